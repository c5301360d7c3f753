//! Documents fetched last: of the selected entities alone.

pub mod documents;
pub mod pages;
pub(in crate::query) mod pages_ahead;
mod reorder;
pub mod reshape;
pub mod selection;
pub mod spilled;

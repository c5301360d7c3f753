//! Documents fetched last: of the selected entities alone.

pub mod documents;
pub mod pages;
pub(crate) mod pages_ahead;
mod reorder;
pub mod reshape;
pub mod selection;
pub mod spilled;

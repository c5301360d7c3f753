//! Documents fetched last, of the selected entities alone.

pub mod documents;
mod reorder;
pub mod reshape;
pub mod selection;
pub mod spilled;

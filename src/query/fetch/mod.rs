//! Late materialization: the documents of the selected entities.

pub mod documents;
mod external_order;
pub mod pages;
pub(crate) mod readahead;
pub mod reshape;
pub mod selection;
pub mod spilled;

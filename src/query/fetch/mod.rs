//! Documents fetched last: of the selected entities alone.
//!
//! | Module | Holds |
//! |---|---|
//! | [`pages`] | documents by page, of one row group |
//! | [`selection`] | the positions of the selected entities |
//! | [`documents`] | their documents, in the order of the answer |
//! | `pages_ahead` | pages that are fetched ahead of an answer |
//! | `reorder` | documents put in order by way of the disk |
//! | [`reshape`] | what a request makes of each document |
//! | [`spilled`] | bytes on disk until they are read |

pub mod documents;
pub mod pages;
pub(in crate::query) mod pages_ahead;
mod reorder;
pub mod reshape;
pub mod selection;
pub mod spilled;

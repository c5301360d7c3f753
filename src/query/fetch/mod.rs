//! Late materialization: reads the documents of the selected entities.

pub mod document_page_reader;
pub mod entity_projection;
mod external_sort;
pub(crate) mod readahead;
pub mod selected_documents;
pub mod selection;
pub mod spilled_bytes;

//! Reads the documents (entities as JSON) at positions of an entity list.

use std::ops::Range;

use bytes::Bytes;
use strata_store::{Result, StorageError};

use crate::reader::VersionReader;

pub(super) async fn read_documents(list: &VersionReader, position: u64, rows: u32) -> Result<Vec<Bytes>> {
    let mut documents = Vec::with_capacity(rows as usize);
    let mut positions = position..position + u64::from(rows);
    while !positions.is_empty() {
        documents.extend(read_next_page(list, &mut positions).await?);
    }
    Ok(documents)
}

/// Reads the document page at the first position. Returns its documents, and removes their positions from `positions`.
pub(super) async fn read_next_page(list: &VersionReader, positions: &mut Range<u64>) -> Result<Vec<Bytes>> {
    let row_group = list.row_group_at(positions.start);
    let first = list.row_groups()[row_group].first_position;
    let start = (positions.start - first) as usize;
    let page = list.read_document_page(row_group, list.page_for_row(row_group, start)).await?;
    let page_rows = page.rows();
    let rows = start..page_rows.end.min((positions.end - first) as usize);
    if rows.is_empty() || rows.start < page_rows.start {
        return Err(StorageError::InvalidFile("documents are missing from a page".to_owned()));
    }
    positions.start += rows.len() as u64;
    Ok(rows.map(|row| Bytes::copy_from_slice(page.document(row))).collect())
}

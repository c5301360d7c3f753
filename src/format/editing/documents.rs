//! Documents of a list, by position.

use std::ops::Range;

use bytes::Bytes;
use strata_store::{Result, StorageError};

use crate::reader::VersionReader;

pub(super) async fn read(list: &VersionReader, position: u64, rows: u32) -> Result<Vec<Bytes>> {
    let mut documents = Vec::with_capacity(rows as usize);
    let mut positions = position..position + u64::from(rows);
    while !positions.is_empty() {
        documents.extend(read_page(list, &mut positions).await?);
    }
    Ok(documents)
}

/// Takes the first of these positions that lie in one page, and returns their documents.
pub(super) async fn read_page(list: &VersionReader, positions: &mut Range<u64>) -> Result<Vec<Bytes>> {
    let row_group = list.row_group_of(positions.start);
    let first = list.row_groups()[row_group].first;
    let start = (positions.start - first) as usize;
    let page = list.documents(row_group, list.page_of(row_group, start)).await?;
    let of_page = page.rows();
    let wanted = start..of_page.end.min((positions.end - first) as usize);
    if wanted.is_empty() || wanted.start < of_page.start {
        return Err(StorageError::Layout("documents are missing from a page".to_owned()));
    }
    positions.start += wanted.len() as u64;
    Ok(wanted.map(|row| Bytes::copy_from_slice(page.document(row))).collect())
}

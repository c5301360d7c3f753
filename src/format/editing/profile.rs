//! The profile and the table columns of an edited list.

use std::ops::Range;
use std::vec::IntoIter;

use bytes::Bytes;
use strata_json::{TableColumnNames, TableColumnNamesBuilder};
use strata_runtime::blocking::run_blocking;
use strata_store::Result;

use super::documents::read_next_page;
use super::edit_script::EditScript;
use super::extents::{OverlayItem, apply_edits};
use crate::layout::FileLayout;
use crate::profile::{ProfileBuilder, StoredProfile, profile_after_edit};
use crate::reader::VersionReader;

/// Bytes that are read from the start of an edited list to find the order of its table columns.
const MAX_COLUMN_SCAN_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct ChangedEntities {
    pub removed: Vec<Bytes>,
    pub added: Vec<Bytes>,
    pub replaced: Vec<(Bytes, Bytes)>,
    pub has_pure_removals: bool,
}

/// Computes the profile of an edited list from the previous profile. Returns `None` if that profile is not sufficient.
/// Retires indexed columns whose dictionary would get too many values.
pub(super) async fn profile_edited_list(
    list: &VersionReader,
    layout: &mut FileLayout,
    changed: &ChangedEntities,
    script: &EditScript,
) -> Result<Option<(StoredProfile, Option<TableColumnNames>)>> {
    let before = list.profile().await?;
    let paths = list.profile_paths().await?;
    let Some(profile) = profile_after_edit(&before, &changed.removed, &changed.added, layout) else { return Ok(None) };
    let columns = match paths.columns() {
        Some(columns) => columns_after_edit(list, columns, changed, script).await?,
        None => None,
    };
    Ok(Some((profile, columns)))
}

async fn columns_after_edit(
    list: &VersionReader,
    before: &TableColumnNames,
    changed: &ChangedEntities,
    script: &EditScript,
) -> Result<Option<TableColumnNames>> {
    let columns_of = |document: &[u8]| {
        let mut columns = TableColumnNamesBuilder::new(before.len() + 1_000);
        columns.add_entity(document).ok().map(|()| columns.finish())
    };
    // If each replacement has the same table columns as the replaced entity, the columns of the list do not change.
    let is_same = !changed.has_pure_removals && changed.added.len() == changed.replaced.len();
    if is_same
        && changed.replaced.iter().all(|(removed, added)| {
            let removed = columns_of(removed);
            removed.is_some() && removed == columns_of(added)
        })
    {
        return Ok(Some(before.clone()));
    }
    let mut added = TableColumnNamesBuilder::new(before.len() + 1_000);
    if changed.added.iter().any(|document| added.add_entity(document).is_err()) {
        return Ok(None);
    }
    let is_empty = added.is_empty();
    let added = added.columns();
    let new = added.names().iter().filter(|name| !is_empty && before.position(name).is_none()).count();
    let expected = before.len() + new;
    let mut found = TableColumnNamesBuilder::new(expected);
    let mut bytes = 0;
    let mut reader = EditedDocumentReader::new(list, script);
    while bytes < MAX_COLUMN_SCAN_BYTES {
        let Some(block) = reader.next_documents().await? else { break };
        for document in block {
            bytes += document.len();
            if found.add_entity(&document).is_err() {
                return Ok(None);
            }
        }
        if !found.is_empty() && found.columns().len() == expected {
            return Ok(Some(found.finish()));
        }
    }
    Ok(None)
}

/// Reads a whole list after edits to compute its profile and table columns. Drops indexed columns whose dictionary
/// would get too many values.
pub async fn rebuild_profile(
    list: &VersionReader,
    script: &EditScript,
    layout: &mut FileLayout,
) -> Result<(StoredProfile, Option<TableColumnNames>)> {
    let mut profile = ProfileBuilder::default();
    let mut reader = EditedDocumentReader::new(list, script);
    while let Some(block) = reader.next_documents().await? {
        let add = move || {
            block.iter().for_each(|document| profile.add(document));
            profile
        };
        profile = run_blocking(add).await?;
    }
    profile.retire_oversized_dictionaries(layout);
    let mut stored = profile.to_stored(&profile.shredding_for_layout(layout), &layout.index);
    stored.set_unmet_index_paths(layout);
    Ok((stored, profile.columns()))
}

struct EditedDocumentReader<'a> {
    list: &'a VersionReader,
    items: IntoIter<OverlayItem>,
    positions: Range<u64>,
}

impl<'a> EditedDocumentReader<'a> {
    fn new(list: &'a VersionReader, script: &EditScript) -> EditedDocumentReader<'a> {
        EditedDocumentReader { list, items: apply_edits(list.extents(), script).into_iter(), positions: 0..0 }
    }

    async fn next_documents(&mut self) -> Result<Option<Vec<Bytes>>> {
        if self.positions.is_empty() {
            self.positions = match self.items.next() {
                None => return Ok(None),
                Some(OverlayItem::NewDocument(document)) => return Ok(Some(vec![document])),
                Some(OverlayItem::PreviousRows { extent, position, .. }) => position..position + u64::from(extent.rows),
            };
        }
        read_next_page(self.list, &mut self.positions).await.map(Some)
    }
}

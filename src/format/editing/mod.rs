//! Edits of a list: which rows stay in the base file, which entities a delta file contains, and the profile of both.
//!
//! 1. [`extents`] applies the edits to the extents of the list. Unchanged rows stay in the base. The entities of this
//!    edit and of earlier edits become the entities of a new delta file.
//! 2. [`profile`] computes the profile of the list from the previous profile and the changed entities. Minima and
//!    maxima are then bounds. If anything else cannot be computed, the list is read once for a new profile.
//! 3. [`write_edited`](super::writer::write_edited) writes the file.
//!
//! The cost of an edit depends only on the changes. If the list gets many extents or a large delta, which slow down
//! reads, [`plan_edit`] returns `None`, and the caller writes the whole list.

mod documents;
mod edit_script;
pub mod extents;
pub mod profile;

use bytes::Bytes;
use strata_json::TableColumnNames;
use strata_store::Result;
use strata_types::index_settings::IndexSettings;

use self::documents::read_documents;
pub use self::edit_script::{EditScript, PositionEdit};
use self::extents::{ExtentBuilder, OverlayItem};
use self::profile::ChangedEntities;
use super::overlay::{BaseFile, EditOverlay, Extent};
use super::profile::{StoredProfile, total_bytes};
use super::reader::VersionReader;
use super::shredder::conflicting_columns;
use super::writer::EditedFileSpec;

/// Limits of edited files. Beyond these limits, an edit writes the whole list instead of only the changed entities.
#[derive(Clone, Copy, Debug)]
pub struct DeltaFileLimits {
    /// Lists with fewer bytes of documents are rewritten as a whole by every edit, which is as fast.
    pub min_list_bytes: u64,
    /// Up to this many base file rows between two edits are stored again, because another extent would cost more.
    pub max_gap_rows: u32,
    /// Max extents (row ranges) beyond the number of row groups in the base file. Readers handle each as a row group.
    pub max_extra_extents: usize,
    /// Max bytes of documents in an edited file. `max_delta_percent` is the same limit relative to the list.
    pub max_delta_bytes: u64,
    pub max_delta_percent: u64,
}

impl Default for DeltaFileLimits {
    fn default() -> Self {
        DeltaFileLimits {
            min_list_bytes: 16 << 20,
            max_gap_rows: 32,
            max_extra_extents: 4_096,
            max_delta_bytes: 64 << 20,
            max_delta_percent: 20,
        }
    }
}

pub struct DeltaFilePlan {
    pub delta_documents: Vec<Bytes>,
    pub list: EditedFileSpec,
    /// Profile and table columns of the edited list; `None` if they can be computed only by reading the whole list.
    pub profile: Option<(StoredProfile, Option<TableColumnNames>)>,
}

pub fn base_file_for_edit(list: &VersionReader, path: &str, size_bytes: u64) -> BaseFile {
    let layout = list.layout();
    match &layout.edit {
        Some(EditOverlay { base, .. }) => base.clone(),
        None => BaseFile { path: path.to_owned(), size_bytes, content_sha256: layout.content_sha256.clone() },
    }
}

/// Plans a file with only the changes of an edit. Returns `None` if the whole list should be written instead. Reads
/// only pages with edits. All positions must exist.
pub async fn plan_edit(
    list: &VersionReader,
    base: BaseFile,
    script: &EditScript,
    index: &IndexSettings,
    limits: &DeltaFileLimits,
    row_group_rows: usize,
) -> Result<Option<DeltaFilePlan>> {
    let before = list.layout();
    if before.document_bytes < limits.min_list_bytes || before.index != *index {
        return Ok(None);
    }
    let applied = extents::apply_edits(list.extents(), script);
    let exceeds_row_limit = |items: &[OverlayItem]| {
        extents::count_delta_rows(items).saturating_mul(100)
            > before.entity_count.saturating_mul(limits.max_delta_percent)
    };
    let mut items = extents::move_small_gaps_to_delta(applied.clone(), limits.max_gap_rows);
    if exceeds_row_limit(&items) {
        items = applied;
        if exceeds_row_limit(&items) {
            return Ok(None);
        }
    }
    let mut builder = ExtentBuilder::new(row_group_rows);
    let mut delta_documents = Vec::new();
    let mut delta_bytes = 0_u64;
    let max_bytes = limits.max_delta_bytes.min(before.document_bytes.saturating_mul(limits.max_delta_percent) / 100);
    for item in items {
        let documents = match item {
            OverlayItem::PreviousRows { extent, moves_to_delta: false, .. } => {
                builder.push_extent(extent);
                continue;
            }
            OverlayItem::PreviousRows { extent, position, .. } => read_documents(list, position, extent.rows).await?,
            OverlayItem::NewDocument(document) => vec![document],
        };
        for document in documents {
            delta_bytes += document.len() as u64;
            if delta_bytes > max_bytes {
                return Ok(None);
            }
            builder.push_delta_row(document.len());
            delta_documents.push(document);
        }
    }
    let extents = builder.extents;
    let base_extents = extents.iter().filter(|extent| extent.file == Extent::BASE).count();
    if base_extents == 0 || extents.len() > list.base_row_group_count() + limits.max_extra_extents {
        return Ok(None);
    }
    let Some(changed) = collect_changed_entities(list, script, limits.max_delta_bytes).await? else { return Ok(None) };
    let mut layout = before.clone();
    for added in &changed.added {
        let conflicting = conflicting_columns(&layout, added).into_iter();
        conflicting.for_each(|number| layout.shredded_columns[number].retired = true);
    }
    let document_bytes = before.document_bytes + total_bytes(&changed.added) - total_bytes(&changed.removed);
    let profile = profile::profile_edited_list(list, &mut layout, &changed, script).await?;
    let list = EditedFileSpec { base, extents, layout, document_bytes };
    Ok(Some(DeltaFilePlan { delta_documents, list, profile }))
}

/// Collects the entities that an edit removes and adds. Returns `None` if the removed ones have more than `max_bytes`.
async fn collect_changed_entities(
    list: &VersionReader,
    script: &EditScript,
    max_bytes: u64,
) -> Result<Option<ChangedEntities>> {
    let mut changed = ChangedEntities::default();
    let mut bytes = 0;
    for (position, PositionEdit { inserts, change }) in script {
        changed.added.extend(inserts.iter().cloned());
        let Some(entity) = change else { continue };
        let removed = read_documents(list, *position, 1).await?;
        bytes += total_bytes(&removed);
        if bytes > max_bytes {
            return Ok(None);
        }
        if let ([removed], Some(entity)) = (&removed[..], entity) {
            changed.replaced.push((removed.clone(), entity.clone()));
        }
        changed.has_pure_removals |= entity.is_none();
        changed.removed.extend(removed);
        changed.added.extend(entity.iter().cloned());
    }
    Ok(Some(changed))
}

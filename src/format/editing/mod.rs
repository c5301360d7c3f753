//! Edits of a list: which rows stay in base files, which entities a delta file contains, and the profile of both.
//!
//! 1. [`extents`] applies the edits to the extents of the list. Unchanged rows stay in the bases. The entities of this
//!    edit and of earlier edits become the entities of a new delta file.
//! 2. [`profile`] computes the profile of the list from the previous profile and the changed entities. Minima and
//!    maxima are then bounds. If anything else cannot be computed, the list is read once for a new profile.
//! 3. [`write_delta`](super::writer::write_delta) writes the file.
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
use super::overlay::{BaseFile, Extent, MAX_BASES};
use super::profile::{StoredProfile, total_bytes};
use super::reader::VersionReader;
use super::shredder::conflicting_columns;
use super::writer::DeltaFileSpec;

/// Limits of delta files. Beyond these limits, the whole list is written instead of only the changed entities.
#[derive(Clone, Copy, Debug)]
pub struct DeltaFileLimits {
    /// Lists with fewer bytes of documents are written as a whole, which is as fast.
    pub min_list_bytes: u64,
    /// Up to this many rows of bases between two edits are stored again, because another extent would cost more.
    pub max_gap_rows: u32,
    /// Max extents (row ranges), in total and relative to the number of entities. Each needs memory, and reading a
    /// column copies each.
    pub max_extents: usize,
    pub min_rows_per_extent: u64,
    /// Max bytes of documents in a delta file. `max_delta_percent` is the same limit relative to the list.
    pub max_delta_bytes: u64,
    pub max_delta_percent: u64,
}

impl Default for DeltaFileLimits {
    fn default() -> Self {
        DeltaFileLimits {
            min_list_bytes: 16 << 20,
            max_gap_rows: 32,
            max_extents: 1 << 19,
            min_rows_per_extent: 4,
            max_delta_bytes: 64 << 20,
            max_delta_percent: 20,
        }
    }
}

impl DeltaFileLimits {
    pub(super) fn allow_extents(&self, extents: usize, entities: u64) -> bool {
        extents <= self.max_extents_for(entities)
    }

    /// Returns the max extents of a list with this number of entities.
    pub fn max_extents_for(&self, entities: u64) -> usize {
        const MIN_EXTENTS: u64 = 4_096;
        let max_extents = (entities / self.min_rows_per_extent.max(1)).max(MIN_EXTENTS);
        self.max_extents.min(usize::try_from(max_extents).unwrap_or(usize::MAX))
    }
}

pub struct DeltaFilePlan {
    pub delta_documents: Vec<Bytes>,
    pub list: DeltaFileSpec,
    /// Profile and table columns of the edited list; `None` if they can be computed only by reading the whole list.
    pub profile: Option<(StoredProfile, Option<TableColumnNames>)>,
}

/// What happens to the file of the list that is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditedFile {
    /// The file becomes a base of the new file.
    Kept,
    /// The new file replaces the file, whose rows move to it.
    Replaced,
}

/// Plans a file with only the changes of an edit. Returns `None` if the whole list should be written instead. Reads
/// only pages with edits. All positions must exist.
pub async fn plan_edit(
    list: &VersionReader,
    edited: EditedFile,
    script: &EditScript,
    index: &IndexSettings,
    limits: &DeltaFileLimits,
    row_group_rows: usize,
) -> Result<Option<DeltaFilePlan>> {
    let before = list.layout();
    let bases = bases_of(list, edited);
    if before.document_bytes < limits.min_list_bytes || before.index != *index || bases.len() > MAX_BASES {
        return Ok(None);
    }
    let applied = extents::apply_edits(extents_in_bases(list, edited), script);
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
            builder.push_own_row(document.len());
            delta_documents.push(document);
        }
    }
    let extents = builder.extents;
    let entities = extents.iter().map(|extent| u64::from(extent.rows)).sum();
    let has_bases = extents.iter().any(|extent| extent.file != Extent::OWN);
    if !has_bases || !limits.allow_extents(extents.len(), entities) {
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
    let list = DeltaFileSpec { bases, extents, layout, document_bytes, content_sha256: None };
    Ok(Some(DeltaFilePlan { delta_documents, list, profile }))
}

/// Returns the bases of a file that is created from `list`.
pub(super) fn bases_of(list: &VersionReader, edited: EditedFile) -> Vec<BaseFile> {
    let layout = list.layout();
    let own = (edited == EditedFile::Kept).then(|| BaseFile {
        path: list.path().to_owned(),
        size_bytes: list.size_bytes(),
        content_sha256: layout.content_sha256.clone(),
    });
    own.into_iter().chain(layout.overlay.iter().flat_map(|overlay| overlay.bases.iter().cloned())).collect()
}

/// Returns the extents of `list`, with the numbers that the files have among [`bases_of`].
pub(super) fn extents_in_bases(list: &VersionReader, edited: EditedFile) -> impl Iterator<Item = Extent> {
    let before = u8::from(edited == EditedFile::Kept);
    list.extents().map(move |extent| Extent { file: extent.file + before, ..extent })
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

//! An edited list: what of a list stays where it lies, what lies in a file of its own, and what both are like.
//!
//! 1. The edits are laid along the extents of the list ([`extents`]). What no edit touches stays in the base. What
//!    edits brought, now and before, becomes the entities of a new file.
//! 2. The profile of the list follows from that of the list before, and the entities that went and came ([`profile`]).
//!    Minima and maxima are bounds then. Where anything else does not follow, the list is read once for a new profile.
//! 3. [`write_edited`](super::writer::write_edited) writes the file.
//!
//! Nothing is written anew that an edit does not touch, so that an edit costs what it changes, however large the list
//! is. A list that edits have cut into many extents, or of which much lies in the file of its own, is worth less than
//! one written whole: [`plan`] gives none then.

pub mod extents;
pub mod profile;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use strata_json::Columns;
use strata_store::{Result, StorageError};
use strata_types::index::IndexSettings;

use self::extents::{ExtentBuilder, Item};
use self::profile::Changed;
use super::overlay::{BaseFile, Edit, Extent};
use super::profile::{StoredProfile, bytes_of};
use super::reader::VersionReader;
use super::shred::conflicts;
use super::writer::EditedList;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What comes before it, canonical documents in order.
    pub inserts: Vec<Bytes>,
    /// What becomes of the entity there, if anything: another one, or nothing.
    pub change: Option<Option<Bytes>>,
}

/// Edits of a list, by position. The one after its last takes inserts alone.
pub type Slots = BTreeMap<u64, Slot>;

/// When a list is written whole.
#[derive(Clone, Copy, Debug)]
pub struct EditLimits {
    /// A list of fewer bytes of documents is: that is as quick.
    pub list_bytes: u64,
    /// So few rows of the base between edits are moved beside these: an extent costs more than they do.
    pub gap_rows: u32,
    /// Most extents beside the row groups of the base. Each is a row group to readers.
    pub extents: usize,
    /// Most bytes of documents in the file of its own, and most of them as a share of the list's.
    pub own_bytes: u64,
    pub own_percent: u64,
}

impl Default for EditLimits {
    fn default() -> Self {
        EditLimits { list_bytes: 16 << 20, gap_rows: 32, extents: 4_096, own_bytes: 64 << 20, own_percent: 20 }
    }
}

pub struct EditPlan {
    /// The entities of the file, canonical documents in order.
    pub own: Vec<Bytes>,
    /// What the list is made of beside them.
    pub list: EditedList,
    /// What is told of the list, with its columns as a table; `None` where it has to be read for that.
    pub profile: Option<(StoredProfile, Option<Columns>)>,
}

/// The file that an edit of a list refers to: that of the list, or the base of an edited one.
pub fn base_of(list: &VersionReader, path: &str, size_bytes: u64) -> BaseFile {
    let layout = list.layout();
    match &layout.edit {
        Some(Edit { base, .. }) => base.clone(),
        None => BaseFile { path: path.to_owned(), size_bytes, content_sha256: layout.content_sha256.clone() },
    }
}

/// How an edited list is to be written beside its base; `None` where it should be written whole. `slots` are within the
/// list. Reads what edits touch.
pub async fn plan(
    list: &VersionReader,
    base: BaseFile,
    slots: &Slots,
    index: &IndexSettings,
    (limits, row_group_rows): (&EditLimits, usize),
) -> Result<Option<EditPlan>> {
    let before = list.layout();
    if before.document_bytes < limits.list_bytes || before.index != *index {
        return Ok(None);
    }
    let laid_out = extents::laid_out(list.extents(), slots);
    // Few rows may have many bytes, which are bounded below.
    let is_much = |items: &[Item]| {
        extents::own_rows(items).saturating_mul(100) > before.entity_count.saturating_mul(limits.own_percent)
    };
    let mut items = extents::without_gaps(laid_out.clone(), limits.gap_rows);
    if is_much(&items) {
        // Scattered edits would move too much that lies between them.
        items = laid_out;
        if is_much(&items) {
            return Ok(None);
        }
    }
    let mut builder = ExtentBuilder::new(row_group_rows);
    let (mut own, mut own_bytes) = (Vec::new(), 0_u64);
    let most_bytes = limits.own_bytes.min(before.document_bytes.saturating_mul(limits.own_percent) / 100);
    for item in items {
        let documents = match item {
            Item::Rows { extent, moves: false, .. } => {
                builder.add(extent);
                continue;
            }
            Item::Rows { extent, position, .. } => read(list, position, extent.rows).await?,
            Item::New(document) => vec![document],
        };
        for document in documents {
            own_bytes += document.len() as u64;
            if own_bytes > most_bytes {
                return Ok(None);
            }
            builder.own(document.len());
            own.push(document);
        }
    }
    let extents = builder.extents;
    let of_base = extents.iter().filter(|extent| extent.file == Extent::BASE).count();
    if of_base == 0 || extents.len() > list.base_row_groups() + limits.extents {
        return Ok(None);
    }
    let Some(changed) = changed(list, slots, limits.own_bytes).await? else { return Ok(None) };
    let mut layout = before.clone();
    for added in &changed.added {
        for number in conflicts(&layout, added) {
            layout.shredded_columns[number].retired = true;
        }
    }
    let document_bytes = before.document_bytes + bytes_of(&changed.added) - bytes_of(&changed.removed);
    let profile = profile::of_edited(list, &mut layout, &changed, slots).await?;
    let list = EditedList { base, extents, layout, document_bytes };
    Ok(Some(EditPlan { own, list, profile }))
}

async fn read(list: &VersionReader, position: u64, rows: u32) -> Result<Vec<Bytes>> {
    let mut documents = Vec::with_capacity(rows as usize);
    let mut positions = position..position + u64::from(rows);
    while !positions.is_empty() {
        documents.extend(read_page(list, &mut positions).await?);
    }
    Ok(documents)
}

/// Takes the first of these positions that lie in one page, and returns their documents.
async fn read_page(list: &VersionReader, positions: &mut Range<u64>) -> Result<Vec<Bytes>> {
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

/// The entities that go, and those that come; `None` where those that go have more bytes than `most_bytes`.
async fn changed(list: &VersionReader, slots: &Slots, most_bytes: u64) -> Result<Option<Changed>> {
    let (mut changed, mut bytes) = (Changed::default(), 0);
    for (position, Slot { inserts, change }) in slots {
        changed.added.extend(inserts.iter().cloned());
        let Some(entity) = change else { continue };
        let gone = read(list, *position, 1).await?;
        bytes += bytes_of(&gone);
        if bytes > most_bytes {
            return Ok(None);
        }
        if let ([gone], Some(entity)) = (&gone[..], entity) {
            changed.replaced.push((gone.clone(), entity.clone()));
        }
        changed.reshapes |= entity.is_none();
        changed.removed.extend(gone);
        changed.added.extend(entity.iter().cloned());
    }
    Ok(Some(changed))
}

//! Edits of a list: which rows stay in the base file, which entities a delta file contains, and the profile of both.
//!
//! 1. The edits are laid along the extents of the list ([`extents`]). Rows that no edit touches stay in the base. The
//!    entities of this edit and of earlier edits become the entities of a new delta file.
//! 2. The profile of the list is computed from the previous profile and the changed entities ([`profile`]). Minima and
//!    maxima are bounds then. If anything else cannot be computed, the list is read once for a new profile.
//! 3. [`write_edited`](super::writer::write_edited) writes the file.
//!
//! An edit writes only what it changes, so its cost does not depend on the size of the list. Reads of a list with many
//! extents or a large delta are slower than reads of a list that is written as a whole: [`plan`] returns `None` then.

mod documents;
pub mod extents;
pub mod profile;
mod slots;

use bytes::Bytes;
use strata_json::Columns;
use strata_store::Result;
use strata_types::index::IndexSettings;

use self::documents::read;
use self::extents::{ExtentBuilder, Item};
use self::profile::Changed;
pub use self::slots::{Slot, Slots};
use super::overlay::{BaseFile, Edit, Extent};
use super::profile::{StoredProfile, bytes_of};
use super::reader::VersionReader;
use super::shred::conflicts;
use super::writer::EditedList;

/// The limits beyond which a list is written as a whole.
#[derive(Clone, Copy, Debug)]
pub struct EditLimits {
    /// A list with fewer bytes of documents is always written as a whole, which is as fast.
    pub list_bytes: u64,
    /// Rows of the base between two edits move to the delta if they are at most this many: an extent costs more.
    pub gap_rows: u32,
    /// Most extents in addition to the row groups of the base. Each is a row group to readers.
    pub extents: usize,
    /// Most bytes of documents in the delta, and their largest share of the documents of the list.
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
    pub list: EditedList,
    /// The profile of the list, with its columns as a table; `None` if the list must be read for it.
    pub profile: Option<(StoredProfile, Option<Columns>)>,
}

/// The base of an edit: the file of the list, or the base of an edited list.
pub fn base_of(list: &VersionReader, path: &str, size_bytes: u64) -> BaseFile {
    let layout = list.layout();
    match &layout.edit {
        Some(Edit { base, .. }) => base.clone(),
        None => BaseFile { path: path.to_owned(), size_bytes, content_sha256: layout.content_sha256.clone() },
    }
}

/// Plans a delta file with edits of a list; `None` if the list should be written as a whole. `slots` are within the
/// list. Reads what edits touch.
pub async fn plan(
    list: &VersionReader,
    base: BaseFile,
    slots: &Slots,
    index: &IndexSettings,
    limits: &EditLimits,
    row_group_rows: usize,
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
    let mut own = Vec::new();
    let mut own_bytes = 0_u64;
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

/// The removed and the added entities; `None` if the removed ones have more bytes than `most_bytes`.
async fn changed(list: &VersionReader, slots: &Slots, most_bytes: u64) -> Result<Option<Changed>> {
    let mut changed = Changed::default();
    let mut bytes = 0;
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

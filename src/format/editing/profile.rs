//! The profile of an edited list, and its columns as a table.

use std::ops::Range;
use std::vec::IntoIter;

use bytes::Bytes;
use strata_json::{Columns, ColumnsBuilder};
use strata_runtime::blocking::blocking;
use strata_store::Result;

use super::documents::read_page;
use super::extents::{Item, laid_out};
use super::slots::Slots;
use crate::layout::Layout;
use crate::profile::{ProfileBuilder, StoredProfile, edited};
use crate::reader::VersionReader;

/// How many bytes are read from the beginning of a list for the order of its columns.
const COLUMNS_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct Changed {
    pub removed: Vec<Bytes>,
    pub added: Vec<Bytes>,
    /// Those of them that take another's place, behind that.
    pub replaced: Vec<(Bytes, Bytes)>,
    /// Whether an entity goes, and none takes its place.
    pub reshapes: bool,
}

/// The profile of a list after edits, and its columns. `None` if they cannot be computed from the previous profile.
/// Retires columns of the layout.
pub(super) async fn of_edited(
    list: &VersionReader,
    layout: &mut Layout,
    changed: &Changed,
    slots: &Slots,
) -> Result<Option<(StoredProfile, Option<Columns>)>> {
    let before = list.profile().await?;
    let paths = list.paths().await?;
    let Some(profile) = edited(&before, &changed.removed, &changed.added, layout) else { return Ok(None) };
    let columns = match paths.columns() {
        Some(columns) => columns_of(list, columns, changed, slots).await?,
        None => None,
    };
    Ok(Some((profile, columns)))
}

/// The columns of a list after edits, in order of first appearance; `None` if they cannot be computed.
async fn columns_of(
    list: &VersionReader,
    before: &Columns,
    changed: &Changed,
    slots: &Slots,
) -> Result<Option<Columns>> {
    let alone = |document: &[u8]| {
        let mut columns = ColumnsBuilder::new(before.len() + 1_000);
        columns.add(document).ok().map(|()| columns)
    };
    // Where each entity has the columns of the one before it in its place, all have.
    let is_same = !changed.reshapes && changed.added.len() == changed.replaced.len();
    if is_same
        && changed.replaced.iter().all(|(gone, came)| {
            let [gone, came] = [alone(gone), alone(came)].map(|columns| columns.map(ColumnsBuilder::finish));
            gone.is_some() && gone == came
        })
    {
        return Ok(Some(before.clone()));
    }
    // No others can be there.
    let mut possible = ColumnsBuilder::new(before.len() + 1_000);
    for document in &changed.added {
        if possible.add(document).is_err() {
            return Ok(None);
        }
    }
    let is_empty = possible.is_empty();
    let possible = possible.columns();
    let new = possible.names().iter().filter(|name| !is_empty && before.position(name).is_none()).count();
    let expected = before.len() + new;
    let mut found = ColumnsBuilder::new(expected);
    let mut bytes = 0;
    let mut walk = Walk::new(list, slots);
    while bytes < COLUMNS_BYTES {
        let Some(block) = walk.next().await? else { break };
        for document in block {
            bytes += document.len();
            if found.add(&document).is_err() {
                return Ok(None);
            }
        }
        if !found.is_empty() && found.columns().len() == expected {
            return Ok(Some(found.finish()));
        }
    }
    Ok(None)
}

/// Reads a whole list after edits for its profile and its columns. Retires columns of the layout.
pub async fn read_anew(
    list: &VersionReader,
    slots: &Slots,
    layout: &mut Layout,
) -> Result<(StoredProfile, Option<Columns>)> {
    let mut profile = ProfileBuilder::default();
    let mut walk = Walk::new(list, slots);
    while let Some(block) = walk.next().await? {
        // A page may take milliseconds.
        let add = move || {
            block.iter().for_each(|document| profile.add(document));
            profile
        };
        profile = blocking(add).await?;
    }
    profile.retire_dictionaries(layout);
    let mut stored = profile.describe(&profile.shredded_in(layout), &layout.index);
    stored.set_unmet(layout);
    Ok((stored, profile.columns()))
}

struct Walk<'a> {
    list: &'a VersionReader,
    items: IntoIter<Item>,
    /// Positions of the list before that are next.
    positions: Range<u64>,
}

impl<'a> Walk<'a> {
    fn new(list: &'a VersionReader, slots: &Slots) -> Walk<'a> {
        Walk { list, items: laid_out(list.extents(), slots).into_iter(), positions: 0..0 }
    }

    /// The next documents, of one page at most; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        if self.positions.is_empty() {
            self.positions = match self.items.next() {
                None => return Ok(None),
                Some(Item::New(document)) => return Ok(Some(vec![document])),
                Some(Item::Rows { extent, position, .. }) => position..position + u64::from(extent.rows),
            };
        }
        read_page(self.list, &mut self.positions).await.map(Some)
    }
}

//! The profile of an edited list, and its columns as a table.

use bytes::Bytes;
use strata_json::{Columns, ColumnsBuilder};
use strata_runtime::blocking::blocking;
use strata_store::Result;

use super::{Slot, Slots};
use crate::layout::Layout;
use crate::profile::{ProfileBuilder, StoredProfile, edited};
use crate::reader::VersionReader;

/// So many bytes of a list are read from its beginning for the order of its columns.
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

/// What is told of a list after edits, and its columns. `None` where it does not follow from what is told of the list
/// before. Retires columns of the layout.
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

/// The columns of a list after edits, in order of first appearance; `None` where they do not follow.
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
    let (possible, is_empty) = (possible.columns(), possible.is_empty());
    let new = possible.names().iter().filter(|name| !is_empty && before.position(name).is_none()).count();
    let expected = before.len() + new;
    let mut found = ColumnsBuilder::new(expected);
    let mut bytes = 0;
    let mut walk = Walk::of(list, slots);
    while bytes < COLUMNS_BYTES {
        let Some(block) = walk.next(BLOCK_BYTES / 16).await? else { break };
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

/// What is told of a list after edits, by reading all of it. Retires columns of the layout.
pub async fn read_anew(
    list: &VersionReader,
    slots: &Slots,
    layout: &mut Layout,
) -> Result<(StoredProfile, Option<Columns>)> {
    let mut profile = ProfileBuilder::default();
    let mut walk = Walk::of(list, slots);
    while let Some(block) = walk.next(BLOCK_BYTES).await? {
        // It takes milliseconds.
        let add = move || {
            block.iter().for_each(|document| profile.add(document));
            profile
        };
        profile = blocking(add).await?;
    }
    profile.retire_dictionaries(layout);
    let told = profile.describe(&profile.shredded_in(layout), &layout.index);
    Ok((told, profile.columns()))
}

const BLOCK_BYTES: usize = 1 << 20;

/// A walk along the documents of a list after edits.
struct Walk<'a> {
    list: &'a VersionReader,
    slots: &'a Slots,
    row_group: usize,
    page: usize,
    is_over: bool,
}

impl<'a> Walk<'a> {
    fn of(list: &'a VersionReader, slots: &'a Slots) -> Walk<'a> {
        Walk { list, slots, row_group: 0, page: 0, is_over: false }
    }

    /// The next documents, of about so many bytes; `None` at the end.
    async fn next(&mut self, bytes: usize) -> Result<Option<Vec<Bytes>>> {
        let (mut block, mut taken) = (Vec::new(), 0);
        while taken < bytes {
            let Some(row_group) = self.list.row_groups().get(self.row_group) else {
                if !std::mem::replace(&mut self.is_over, true) {
                    let behind = self.slots.range(self.list.entity_count()..);
                    block.extend(behind.flat_map(|(_, slot)| slot.inserts.iter().cloned()));
                }
                break;
            };
            let pages = self.page..self.list.page_count(self.row_group);
            if pages.is_empty() {
                (self.row_group, self.page) = (self.row_group + 1, 0);
                continue;
            }
            let page = self.list.documents(self.row_group, self.page).await?;
            self.page += 1;
            for row in page.rows() {
                let document = page.document(row);
                taken += document.len();
                let before = block.len();
                match self.slots.get(&(row_group.first + row as u64)) {
                    None => block.push(Bytes::copy_from_slice(document)),
                    Some(Slot { inserts, change }) => {
                        block.extend(inserts.iter().cloned());
                        match change {
                            None => block.push(Bytes::copy_from_slice(document)),
                            Some(entity) => block.extend(entity.iter().cloned()),
                        }
                    }
                }
                taken += (block.len() - before).saturating_sub(1);
            }
        }
        Ok((!block.is_empty() || !self.is_over).then_some(block))
    }
}

//! A walk along the documents of a list after edits.

use bytes::Bytes;

use super::{Slot, Slots};
use crate::storage::Result;
use crate::storage::reader::VersionReader;

pub(super) const BLOCK_BYTES: usize = 1 << 20;

pub(super) struct Walk<'a> {
    list: &'a VersionReader,
    slots: &'a Slots,
    row_group: usize,
    page: usize,
    is_over: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn of(list: &'a VersionReader, slots: &'a Slots) -> Walk<'a> {
        Walk { list, slots, row_group: 0, page: 0, is_over: false }
    }

    /// The next documents, of about so many bytes; `None` at the end.
    pub(super) async fn next(&mut self, bytes: usize) -> Result<Option<Vec<Bytes>>> {
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

//! Edits of an alternate by position: an edit costs what it changes, and goes over no network.
//!
//! 1. The edits are laid out by position, which checks them against the length of the list.
//! 2. Where the list is the version's, or one that was edited before, what no edit touched stays in the version's file:
//!    the new file holds what edits brought, and says which rows make the list ([`strata_format::editing`]).
//! 3. Any other list, and one of which little would stay, is written whole. It is read unit by unit on the engine's
//!    threads; each unit becomes a block of lines in which the edits are made. Another thread puts the blocks into a
//!    spool, two blocks behind at most, so that memory is bounded for any list.
//! 4. From there on it is a save as any other ([`Datasets::save_alternate`]).

use std::collections::HashMap;
use std::collections::btree_map::IntoIter;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use strata_catalog::VersionRecord;
use strata_format::editing::{self, EditLimits, EditPlan, Slot, Slots};
use strata_format::overlay::BaseFile;
use strata_format::reader::VersionReader;
use strata_format::writer::ROW_GROUP_ROWS;
use strata_ingest::SourceError;
use strata_query::fetch::documents;
use strata_query::fetch::selection::Positions;
use strata_runtime::priority::Work;
use strata_store::StorageError;
use strata_types::ids::{DatasetId, UserId};
use strata_types::index::IndexSettings;
use strata_types::user::User;
use strata_types::version::{VersionFile, VersionNumber};
use tokio::sync::mpsc;

use crate::dataset::Datasets;
use crate::dataset::alternates::{AlternateError, Current, EditError, EditProblem};
use crate::refresh::ingest::{PushedEntities, RefreshPermit};
use crate::refresh::tasks::on_thread;
use crate::refresh::version_file::WrittenFile;
use crate::{BodyRoom, RefreshError, Weight};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEdit {
    /// A position of the list as it is, from 0.
    pub position: u64,
    pub change: EntityChange,
}

/// What becomes of a position. Entities are canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityChange {
    Set(Bytes),
    Remove,
    /// These come before it, or at the end where it is the length of the list.
    Insert(Vec<Bytes>),
}

const AHEAD: usize = 2;

impl Datasets {
    /// Saves the alternate of a version of the owner's dataset, made of the list that is there by these edits: all of
    /// them, or nothing. `etag` must be the version's [`alternate_etag`](crate::alternate_etag). `room` is
    /// that of the edits' memory. Dropping it cancels nothing.
    pub async fn edit_alternate(
        self: &Arc<Self>,
        owner: &User,
        (dataset, version): (DatasetId, VersionNumber),
        etag: &str,
        edits: Vec<EntityEdit>,
        room: Option<BodyRoom>,
    ) -> Result<VersionRecord, AlternateError> {
        let current = self.current_version(owner, dataset, version).await?;
        let base = current.base(etag)?;
        fitting(&edits, self.refreshes.ingest.config.limits.entity_bytes)?;
        let list = current.version.alt.clone().unwrap_or_else(|| current.version.file.clone());
        let slots = laid_out(edits, list.entity_count)?;
        let (datasets, owner) = (self.clone(), owner.id);
        let editing = async move {
            let _room = room;
            let writing = datasets.edited(owner, &current, &list, slots);
            Ok(datasets.save_file(owner, (dataset, version), writing, Some(base)).await)
        };
        self.refreshes.tasks.run(editing).await?
    }

    /// The list with the edits made, in a file.
    async fn edited(
        &self,
        owner: UserId,
        current: &Current,
        list: &VersionFile,
        slots: Slots,
    ) -> Result<WrittenFile, RefreshError> {
        let permit = self.refreshes.ingest.permit(owner).await?;
        let reader = self.refreshes.files.open(list).await?;
        let base = editing::base_of(&reader, &list.path, list.size_bytes);
        let slots = Arc::new(slots);
        // What else the list refers to may be swept.
        if base.path == current.version.file.path {
            let file = self.beside(owner, &reader, base, &slots, &current.index, &permit).await?;
            if let Some(file) = file {
                return Ok(file);
            }
        }
        let merge = Merge::new(Arc::unwrap_or_clone(slots));
        let entities = self.whole(owner, reader, merge, permit).await?;
        self.write_alternate(entities, current.index.clone()).await
    }

    /// The list with the edits made, in a file that refers to its base; `None` where it is to be written whole.
    async fn beside(
        &self,
        owner: UserId,
        reader: &VersionReader,
        base: BaseFile,
        slots: &Arc<Slots>,
        index: &IndexSettings,
        permit: &RefreshPermit,
    ) -> Result<Option<WrittenFile>, RefreshError> {
        let engine = self.engine.with_priority(Weight::Heavy.priority());
        let (list, slots, index) = (reader.clone(), slots.clone(), index.clone());
        let planning = engine.spawn(async move {
            let limits = EditLimits::default();
            let plan = editing::plan(&list, base, &slots, &index, &limits, ROW_GROUP_ROWS).await?;
            let Some(mut plan) = plan else { return Ok(None) };
            let (profile, columns) = match plan.profile.take() {
                Some(told) => told,
                None => editing::profile::read_anew(&list, &slots, &mut plan.list.layout).await?,
            };
            let told = profile.encode(columns.as_ref())?;
            Ok::<_, StorageError>(Some((plan, told)))
        });
        let Some((plan, told)) = planning.await.map_err(|_| RefreshError::Worker)?? else { return Ok(None) };
        let (mut spool, EditPlan { own, list, .. }) = (self.refreshes.ingest.spool(owner)?, plan);
        let spooling = on_thread("edit", move || {
            let mut lines = Vec::new();
            for document in own {
                append(&document, &mut lines);
                if lines.len() >= documents::UNIT_BYTES as usize {
                    spool.add_lines(&lines)?;
                    lines.clear();
                }
            }
            spool.add_lines(&lines)?;
            spool.finish()
        });
        let spooled = spooling.await??;
        let file = self.refreshes.files.reserve().await?.write_edited(spooled, list, told, permit).await?;
        Ok(Some(file))
    }

    async fn whole(
        &self,
        owner: UserId,
        reader: VersionReader,
        merge: Merge,
        permit: RefreshPermit,
    ) -> Result<PushedEntities, RefreshError> {
        let (blocks, mut received) = mpsc::channel(AHEAD);
        let reading = self.engine.with_priority(Weight::Heavy.priority()).spawn(read(reader, merge, blocks));
        let (mut spool, held) = (self.refreshes.ingest.spool(owner)?, permit.clone());
        let spooling = on_thread("edit", move || {
            let _permit = held;
            let mut work = Work::default();
            loop {
                match received.blocking_recv() {
                    Some(Block::Lines(lines)) => {
                        work.add(lines.len() as u64);
                        spool.add_lines(&lines)?;
                    }
                    Some(Block::End) => return Ok(spool.finish()?),
                    Some(Block::Failed(error)) => return Err(RefreshError::from(error)),
                    // Whoever read has failed, or nobody waits any more.
                    None => return Err(RefreshError::Stopping),
                }
            }
        });
        let (read, spooled) = tokio::join!(reading, spooling);
        // What the spool lacks where the reading panicked is the reading's to tell.
        read.map_err(|_| RefreshError::Worker)?;
        Ok(PushedEntities { spooled: spooled??, permit })
    }
}

enum Block {
    /// Entities, each followed by a line feed.
    Lines(Vec<u8>),
    /// That there are no more. Without it the list is not whole.
    End,
    Failed(StorageError),
}

async fn read(reader: VersionReader, mut merge: Merge, blocks: mpsc::Sender<Block>) {
    let all = Positions::Range(0..reader.entity_count());
    for unit in documents::units(&reader, reader.entity_count()) {
        let mut lines = Vec::with_capacity((documents::UNIT_BYTES + documents::UNIT_BYTES / 8) as usize);
        let each = |document: &[u8]| {
            merge.document(document, &mut lines);
            ControlFlow::Continue(())
        };
        let read = documents::for_each(&reader, &all, &unit, each).await;
        let is_last = read.is_err();
        let block = read.map_or_else(Block::Failed, |_| Block::Lines(lines));
        // A spool that has failed tells why.
        if blocks.send(block).await.is_err() || is_last {
            return;
        }
    }
    let mut lines = Vec::new();
    merge.end(&mut lines);
    for block in [Block::Lines(lines), Block::End] {
        let _ = blocks.send(block).await;
    }
}

/// A list that passes, and the edits that are made in it.
struct Merge {
    slots: IntoIter<u64, Slot>,
    next: Option<(u64, Slot)>,
    position: u64,
}

/// Refuses an entity that no other way of saving takes.
fn fitting(edits: &[EntityEdit], limit_bytes: u64) -> Result<(), AlternateError> {
    let is_larger = |entity: &Bytes| entity.len() as u64 > limit_bytes;
    let larger = edits.iter().position(|edit| match &edit.change {
        EntityChange::Set(entity) => is_larger(entity),
        EntityChange::Insert(entities) => entities.iter().any(is_larger),
        EntityChange::Remove => false,
    });
    larger.map_or(Ok(()), |index| Err(AlternateError::Body(SourceError::edit_too_large(index, limit_bytes))))
}

/// Edits of a list of so many entities, by position.
fn laid_out(edits: Vec<EntityEdit>, length: u64) -> Result<Slots, EditError> {
    let mut slots = Slots::new();
    // Which edit changes the entity there.
    let mut changed_by: HashMap<u64, usize> = HashMap::new();
    for (index, EntityEdit { position, change }) in edits.into_iter().enumerate() {
        let wrong = |problem| Err(EditError { index, problem });
        let entity = match change {
            EntityChange::Insert(entities_before) => {
                if position > length {
                    return wrong(EditProblem::PastEnd { position, length, inserts: true });
                }
                slots.entry(position).or_default().inserts.extend(entities_before);
                continue;
            }
            EntityChange::Set(entity) => Some(entity),
            EntityChange::Remove => None,
        };
        if position >= length {
            return wrong(EditProblem::PastEnd { position, length, inserts: false });
        }
        if let Some(other) = changed_by.insert(position, index) {
            return wrong(EditProblem::Twice { position, other });
        }
        slots.entry(position).or_default().change = Some(entity);
    }
    Ok(slots)
}

impl Merge {
    fn new(slots: Slots) -> Merge {
        let mut slots = slots.into_iter();
        let next = slots.next();
        Merge { slots, next, position: 0 }
    }

    /// Takes the next entity of the list, and appends what stands in its place.
    fn document(&mut self, document: &[u8], lines: &mut Vec<u8>) {
        let slot = self.next.take_if(|(position, _)| *position == self.position);
        self.position += 1;
        let Some((_, slot)) = slot else { return append(document, lines) };
        self.next = self.slots.next();
        slot.inserts.iter().for_each(|entity| append(entity, lines));
        match slot.change {
            None => append(document, lines),
            Some(Some(entity)) => append(&entity, lines),
            Some(None) => {}
        }
    }

    /// Appends what comes behind the last entity.
    fn end(self, lines: &mut Vec<u8>) {
        let last = self.next.into_iter().chain(self.slots);
        last.flat_map(|(_, slot)| slot.inserts).for_each(|entity| append(&entity, lines));
    }
}

fn append(entity: &[u8], lines: &mut Vec<u8>) {
    lines.extend_from_slice(entity);
    lines.push(b'\n');
}

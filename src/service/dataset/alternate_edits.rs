//! Edits of an alternate by position. The cost of an edit depends on what it changes.
//!
//! 1. The edits are ordered by position, and checked against the length of the list.
//! 2. If the list is the version's, or was edited before, unchanged entities stay in the version's file: the new file
//!    contains the added entities and the extents of the list ([`strata_format::editing`]).
//! 3. Any other list, and one of which little would stay, is written in full. The engine's threads read it unit by
//!    unit, and edit each unit as a block of lines. Another thread spools the blocks, at most two blocks behind, so
//!    that memory is bounded.
//! 4. Then the file is saved like any other ([`Datasets::save_alternate`]).

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
    /// A position of the list before the edits, from 0.
    pub position: u64,
    pub change: EntityChange,
}

/// The change at a position. Entities are canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityChange {
    Set(Bytes),
    Remove,
    /// Inserts entities before the position, or at the end if the position is the length of the list.
    Insert(Vec<Bytes>),
}

const AHEAD: usize = 2;

impl Datasets {
    /// Edits the alternate of a version of the owner's dataset, or creates it from the version: all edits, or none.
    /// `etag` must be the version's [`alternate_etag`](crate::alternate_etag). `room` is the reservation of the edits'
    /// memory. Dropping the future cancels nothing.
    pub async fn edit_alternate(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
        etag: &str,
        edits: Vec<EntityEdit>,
        room: Option<BodyRoom>,
    ) -> Result<VersionRecord, AlternateError> {
        let current = self.current_version(owner, dataset, version).await?;
        let base = current.base(etag)?;
        fitting(&edits, self.refreshes.ingest.config.limits.entity_bytes)?;
        let list = current.version.alt.clone().unwrap_or_else(|| current.version.file.clone());
        let slots = laid_out(edits, list.entity_count)?;
        let datasets = self.clone();
        let owner = owner.id;
        let editing = async move {
            let _room = room;
            let writing = datasets.edited(owner, &current, &list, slots);
            Ok(datasets.save_file(owner, dataset, version, writing, Some(base)).await)
        };
        self.refreshes.tasks.run(editing).await?
    }

    /// Writes the file of the edited list.
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
        // A sweep can remove any other base.
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

    /// Writes a file of the edited list that refers to its base; `None` if the list should be written in full.
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
        let list = reader.clone();
        let slots = slots.clone();
        let index = index.clone();
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
        let EditPlan { own, list, .. } = plan;
        let mut spool = self.refreshes.ingest.spool(owner)?;
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
        let mut spool = self.refreshes.ingest.spool(owner)?;
        let held = permit.clone();
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
                    // Reading failed, or was cancelled.
                    None => return Err(RefreshError::Stopping),
                }
            }
        });
        let (read, spooled) = tokio::join!(reading, spooling);
        // If reading panicked, the spool is incomplete.
        read.map_err(|_| RefreshError::Worker)?;
        Ok(PushedEntities { spooled: spooled??, permit })
    }
}

enum Block {
    /// Entities, each followed by a line feed.
    Lines(Vec<u8>),
    /// The end of the list. Without it the list is incomplete.
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
        // A failed spool reports its error.
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

/// Merges edits into the entities of a list.
struct Merge {
    slots: IntoIter<u64, Slot>,
    next: Option<(u64, Slot)>,
    position: u64,
}

/// Refuses entities that are too large.
fn fitting(edits: &[EntityEdit], limit_bytes: u64) -> Result<(), AlternateError> {
    let is_larger = |entity: &Bytes| entity.len() as u64 > limit_bytes;
    let larger = edits.iter().position(|edit| match &edit.change {
        EntityChange::Set(entity) => is_larger(entity),
        EntityChange::Insert(entities) => entities.iter().any(is_larger),
        EntityChange::Remove => false,
    });
    larger.map_or(Ok(()), |index| Err(AlternateError::Body(SourceError::edit_too_large(index, limit_bytes))))
}

/// The edits of a list of `length` entities, by position.
fn laid_out(edits: Vec<EntityEdit>, length: u64) -> Result<Slots, EditError> {
    let mut slots = Slots::new();
    // The index of the edit that sets or removes the entity at a position.
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

    /// Appends the next entity of the list, or its replacement.
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

    /// Appends the entities after the last one.
    fn end(self, lines: &mut Vec<u8>) {
        let last = self.next.into_iter().chain(self.slots);
        last.flat_map(|(_, slot)| slot.inserts).for_each(|entity| append(&entity, lines));
    }
}

fn append(entity: &[u8], lines: &mut Vec<u8>) {
    lines.extend_from_slice(entity);
    lines.push(b'\n');
}

//! Spools the entities of a version, so that they can be written to a new file: for an alternate with edits, and
//! without edits for a compaction.
//!
//! The engine's threads read and edit the version in blocks, and another thread spools the blocks. A queue of two
//! blocks bounds the memory.

use std::collections::btree_map::IntoIter;
use std::ops::ControlFlow;
use std::sync::Arc;

use strata_format::editing::{EditScript, PositionEdit};
use strata_format::reader::VersionReader;
use strata_query::QueryEngine;
use strata_query::fetch::selected_documents;
use strata_query::fetch::selection::SelectedPositions;
use strata_runtime::priority::ThreadWork;
use strata_store::StorageError;
use strata_types::ids::UserId;
use tokio::sync::mpsc;

use crate::CostClass;
use crate::refresh::error::{RefreshError, Result};
use crate::refresh::ingest::{IngestService, PushedEntities, RefreshPermit};
use crate::refresh::tasks::run_on_thread;

const MAX_QUEUED_BLOCKS: usize = 2;

pub(crate) struct VersionSpooler {
    pub(crate) ingest: Arc<IngestService>,
    pub(crate) engine: QueryEngine,
}

impl VersionSpooler {
    /// Spools the entities of a version after the edits of `script`. The spool counts towards the quota of `owner`.
    pub(crate) async fn spool(
        &self,
        owner: UserId,
        reader: VersionReader,
        script: EditScript,
        permit: RefreshPermit,
    ) -> Result<PushedEntities> {
        let (sender, mut receiver) = mpsc::channel(MAX_QUEUED_BLOCKS);
        let engine = self.engine.with_priority(CostClass::Heavy.priority());
        let reading = engine.spawn(send_blocks(reader, EditMerger::new(script), sender));
        let mut spool = self.ingest.create_spool(owner)?;
        let spool_permit = permit.clone();
        let spooling = run_on_thread("spool", move || {
            let _permit = spool_permit;
            let mut work = ThreadWork::default();
            loop {
                match receiver.blocking_recv() {
                    Some(EntityBlock::Lines(lines)) => {
                        work.record_and_lower_priority(lines.len() as u64);
                        spool.add_lines(&lines)?;
                    }
                    Some(EntityBlock::End) => return Ok(spool.finish()?),
                    Some(EntityBlock::Failed(error)) => return Err(RefreshError::from(error)),
                    // The sender was dropped early: reading the entities failed, or was cancelled.
                    None => return Err(RefreshError::Stopping),
                }
            }
        });
        let (read, spooled) = tokio::join!(reading, spooling);
        // If reading the entities panicked, the spool is incomplete.
        read.map_err(|_| RefreshError::WorkerStopped)?;
        Ok(PushedEntities { spooled: spooled??, permit })
    }
}

enum EntityBlock {
    /// Entities, each followed by a line feed.
    Lines(Vec<u8>),
    /// The end of the list, sent only if all of its entities were sent.
    End,
    Failed(StorageError),
}

async fn send_blocks(reader: VersionReader, mut merger: EditMerger, sender: mpsc::Sender<EntityBlock>) {
    let all = SelectedPositions::Range(0..reader.entity_count());
    for chunk in selected_documents::selection_chunks(&reader, reader.entity_count()) {
        let mut lines = Vec::with_capacity(
            (selected_documents::SELECTION_CHUNK_BYTES + selected_documents::SELECTION_CHUNK_BYTES / 8) as usize,
        );
        let each = |entity: &[u8]| {
            merger.merge_next_entity(entity, &mut lines);
            ControlFlow::Continue(())
        };
        let read = selected_documents::for_each_document(&reader, &all, &chunk, each).await;
        let is_last = read.is_err();
        let block = read.map_or_else(EntityBlock::Failed, |_| EntityBlock::Lines(lines));
        // If the receiver is closed, spooling the entities has failed and reports the error.
        if sender.send(block).await.is_err() || is_last {
            return;
        }
    }
    let mut lines = Vec::new();
    merger.append_remaining_inserts(&mut lines);
    for block in [EntityBlock::Lines(lines), EntityBlock::End] {
        let _ = sender.send(block).await;
    }
}

/// Merges edits into an entity list, whose entities are pushed in order.
struct EditMerger {
    remaining_edits: IntoIter<u64, PositionEdit>,
    next_edit: Option<(u64, PositionEdit)>,
    position: u64,
}

impl EditMerger {
    fn new(script: EditScript) -> EditMerger {
        let mut remaining_edits = script.into_iter();
        let next_edit = remaining_edits.next();
        EditMerger { remaining_edits, next_edit, position: 0 }
    }

    /// Appends the next entity of the list or its replacement, after the entities that are inserted before it.
    fn merge_next_entity(&mut self, entity: &[u8], lines: &mut Vec<u8>) {
        let edit = self.next_edit.take_if(|(position, _)| *position == self.position);
        self.position += 1;
        let Some((_, edit)) = edit else { return append_line(entity, lines) };
        self.next_edit = self.remaining_edits.next();
        edit.inserts.iter().for_each(|entity| append_line(entity, lines));
        match edit.change {
            None => append_line(entity, lines),
            Some(Some(entity)) => append_line(&entity, lines),
            Some(None) => {}
        }
    }

    /// Appends the entities that are inserted at the end of the list.
    fn append_remaining_inserts(self, lines: &mut Vec<u8>) {
        let rest = self.next_edit.into_iter().chain(self.remaining_edits);
        rest.flat_map(|(_, edit)| edit.inserts).for_each(|entity| append_line(&entity, lines));
    }
}

pub(crate) fn append_line(entity: &[u8], lines: &mut Vec<u8>) {
    lines.extend_from_slice(entity);
    lines.push(b'\n');
}

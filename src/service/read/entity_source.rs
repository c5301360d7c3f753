//! The entities of a response, fetched and projected chunk by chunk, and the ordered tasks that process the chunks.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use futures::stream::{self, BoxStream, StreamExt};
use strata_json::TableColumnNames;
use strata_query::fetch::entity_projection::{EntityProjection, EntityProjectionScratch};
use strata_query::fetch::selected_documents::{
    self, DocumentRef, ResidentDocuments, SelectedDocuments, SelectionChunk,
};
use strata_query::fetch::selection::SelectedPositions;
use strata_query::{QueryEngine, QueryError};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::lookup::error::ReadError;

pub(crate) struct EntitySource {
    pub documents: SelectedDocuments,
    pub projection: EntityProjection,
}

impl EntitySource {
    pub(crate) fn mean_document_bytes(&self) -> u64 {
        let layout = self.documents.reader().layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    }

    pub(crate) fn estimated_document_bytes(&self) -> u64 {
        self.mean_document_bytes().saturating_mul(self.documents.len())
    }

    pub(crate) async fn columns_from_profile(&self) -> Option<TableColumnNames> {
        if !self.documents.is_empty() && !self.documents.is_whole_version() {
            return None;
        }
        // If the profile is damaged, the reader reports it, and the columns are collected from the documents.
        let paths = self.documents.reader().profile_paths().await.ok()?;
        self.projection.project_columns(paths.columns()?)
    }

    /// Calls `each` with a chunk's projected entities until `each` breaks. Returns the ordinal after the last entity.
    pub(crate) async fn for_each_selected_entity(
        &self,
        chunk: &SelectionChunk,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, ReadError> {
        let mut scratch = EntityProjectionScratch::default();
        let project = |document: &[u8]| each(self.projection.apply(document, &mut scratch));
        Ok(self.documents.for_each(chunk, project).await?)
    }

    /// Like [`EntitySource::for_each_selected_entity`], for documents in memory. Indented documents are not projected.
    pub(crate) fn for_each_resident_document(
        &self,
        documents: &ResidentDocuments,
        mut each: impl FnMut(DocumentRef<'_>) -> ControlFlow<()>,
    ) -> u64 {
        let mut scratch = EntityProjectionScratch::default();
        documents.for_each(|document| match document {
            DocumentRef::Stored(stored) => each(DocumentRef::Stored(self.projection.apply(stored, &mut scratch))),
            DocumentRef::Indented(_) => each(document),
        })
    }

    pub(crate) async fn for_each_entity_in_version(
        &self,
        chunk: &SelectionChunk,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, ReadError> {
        let reader = self.documents.reader();
        let all = SelectedPositions::Range(0..reader.entity_count());
        let mut scratch = EntityProjectionScratch::default();
        let project = |document: &[u8]| each(self.projection.apply(document, &mut scratch));
        Ok(selected_documents::for_each_document(reader, &all, chunk, project).await?)
    }
}

/// Processes chunks in tasks on the engine's threads. The results have the order of the chunks. Work can end before the
/// end of its chunk: the rest then becomes a new chunk, before the chunks that follow.
pub(crate) struct OrderedChunkTasks<U, F, T> {
    engine: QueryEngine,
    chunks: U,
    work: F,
    running: VecDeque<ChunkTask<T>>,
}

struct ChunkTask<T> {
    ordinals: Range<u64>,
    task: AbortOnDropHandle<Result<(T, u64), ReadError>>,
}

impl<U, F, W, T> OrderedChunkTasks<U, F, T>
where
    U: Iterator<Item = SelectionChunk>,
    F: FnMut(SelectionChunk) -> W,
    W: Future<Output = Result<(T, u64), ReadError>> + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(engine: &QueryEngine, chunks: U, work: F) -> Self {
        OrderedChunkTasks { engine: engine.clone(), chunks, work, running: VecDeque::new() }
    }

    /// Returns the next result. Starts tasks while `may_start` accepts the number of running tasks and their entities.
    pub(crate) async fn next_result(&mut self, may_start: impl Fn(usize, u64) -> bool) -> Result<Option<T>, ReadError> {
        let entities = |running: &VecDeque<ChunkTask<T>>| -> u64 {
            running.iter().map(|task| task.ordinals.end - task.ordinals.start).sum()
        };
        while may_start(self.running.len(), entities(&self.running))
            && let Some(chunk) = self.chunks.next()
        {
            let task = self.spawn_task(chunk);
            self.running.push_back(task);
        }
        let Some(ChunkTask { ordinals, task }) = self.running.pop_front() else { return Ok(None) };
        let (result, next) = task.await.map_err(QueryError::from)??;
        if next < ordinals.end {
            let rest = self.spawn_task(SelectionChunk { ordinals: next..ordinals.end });
            self.running.push_front(rest);
        }
        Ok(Some(result))
    }

    fn spawn_task(&mut self, chunk: SelectionChunk) -> ChunkTask<T> {
        ChunkTask { ordinals: chunk.ordinals.clone(), task: self.engine.spawn((self.work)(chunk)) }
    }
}

/// Returns a stream of the items that a task on the engine's threads sends, followed by its error if it fails or
/// panics. The task sends at most `buffered` items ahead of the reader, and is aborted when the stream is dropped.
pub(crate) fn stream_from_task<T: Send + 'static, W: Future<Output = Result<(), ReadError>> + Send + 'static>(
    engine: &QueryEngine,
    buffered: usize,
    work: impl FnOnce(mpsc::Sender<T>) -> W,
) -> BoxStream<'static, Result<T, ReadError>> {
    let (sender, receiver) = mpsc::channel(buffered);
    let task = engine.spawn(work(sender));
    let items = stream::unfold((receiver, Some(task)), |(mut receiver, task)| async move {
        if let Some(item) = receiver.recv().await {
            return Some((Ok(item), (receiver, task)));
        }
        // The error of a task is sent to the reader. Otherwise, the truncated body would look complete.
        match task?.await.map_err(|error| ReadError::from(QueryError::from(error))) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some((Err(error), (receiver, None))),
        }
    });
    items.boxed()
}

//! Streams a body: encodes the chunks of a selection, in order, at the pace of the reader.
//!
//! - The first chunk is small, so that the body begins early. While the reader waits for bytes, chunks grow, and more
//!   chunks are encoded concurrently, as long as there are permits for bytes ahead of readers. Without such a permit, a
//!   chunk is small, and is encoded only after the reader has taken the previous one.
//! - A chunk is encoded on a dedicated thread with a permit. An entity is written as a whole, which can take long, and
//!   no other chunk or page must wait for it.
//! - A chunk ends early when its bytes fill its limit. The rest becomes a new chunk.
//! - If the reader leaves a complete chunk waiting for [`SLOW_READER_DELAY`], chunks are small again.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt};
use strata_query::QueryError;
use strata_query::fetch::selected_documents::{SELECTION_CHUNK_BYTES, SelectionChunk};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::{MAX_SHORT_WORK_BYTES, ThreadPriority};
use tokio_util::task::AbortOnDropHandle;

use crate::admission::resource_context::ResourceContext;
use crate::admission::{Permit, StreamPermit};
use crate::lookup::error::ReadError;

const SMALL_CHUNK_BYTES: u64 = 64 << 10;

/// Estimated encoded bytes for each byte of the documents: 1.4 for pretty JSON, more for XML.
pub(crate) const ENCODED_BYTES_PER_BYTE: u64 = 2;
const MAX_CHUNK_ENTITIES: u64 = 8_192;

/// A reader that leaves a complete chunk waiting for longer than this is slow.
const SLOW_READER_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct BackpressuredEncoder<F> {
    pub capacity: ResourceContext,
    pub stream_permit: StreamPermit,
    pub entity_count: u64,
    pub mean_document_bytes: u64,
    /// Encodes the entities of a chunk until the specified number of bytes. Called again for the rest of the chunk.
    pub encode: F,
}

struct PendingChunk {
    ordinals: Range<u64>,
    ahead_permit: Option<Permit>,
    task: AbortOnDropHandle<Result<EncodedChunk, ReadError>>,
}

struct EncodedChunk {
    encoded: EncodedEntities,
    encoded_at: Instant,
    /// Reserved if an entity is much larger than the bytes charged for its chunk, which can wait for a slow reader.
    overrun_memory: Option<MemoryReservation>,
}

/// The encoded bytes of the first entities of a chunk, and the ordinal after the last of these entities.
pub(crate) type EncodedEntities = (Vec<u8>, u64);

struct BodyStreamState<F> {
    encoder: BackpressuredEncoder<F>,
    next_ordinal: u64,
    pending_chunks: VecDeque<PendingChunk>,
    chunk_bytes: u64,
    max_pending_chunks: usize,
    /// The estimated size of an entity: the larger of the mean size of documents and the mean size of the encoded
    /// entities of the last chunk.
    entity_bytes: u64,
}

impl<F, W> BackpressuredEncoder<F>
where
    F: FnMut(SelectionChunk, u64) -> W + Send + 'static,
    W: Future<Output = Result<EncodedEntities, ReadError>> + Send + 'static,
{
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let state = BodyStreamState {
            next_ordinal: 0,
            pending_chunks: VecDeque::new(),
            chunk_bytes: SMALL_CHUNK_BYTES,
            max_pending_chunks: 1,
            entity_bytes: self.mean_document_bytes.max(1),
            encoder: self,
        };
        stream::try_unfold(state, async |mut state| Ok(state.next_chunk().await?.map(|bytes| (bytes, state)))).boxed()
    }
}

impl<F, W> BodyStreamState<F>
where
    F: FnMut(SelectionChunk, u64) -> W + Send + 'static,
    W: Future<Output = Result<EncodedEntities, ReadError>> + Send + 'static,
{
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.start_chunks();
        let Some(PendingChunk { ordinals, ahead_permit, task }) = self.pending_chunks.pop_front() else {
            return Ok(None);
        };
        let was_ready = task.is_finished();
        let EncodedChunk { encoded: (bytes, next), encoded_at, overrun_memory } =
            task.await.map_err(QueryError::from)??;
        let rows = next - ordinals.start;
        if next < ordinals.end {
            // The chunk ended early: its entities exceed the mean size. Its rest precedes already encoded chunks.
            self.start_chunk(next..ordinals.end, true);
        } else if !was_ready {
            self.grow_chunks_or_concurrency();
        } else if encoded_at.elapsed() > SLOW_READER_DELAY {
            self.chunk_bytes = SMALL_CHUNK_BYTES;
            self.max_pending_chunks = 1;
        }
        self.entity_bytes = self.encoder.mean_document_bytes.max(bytes.len() as u64 / rows.max(1)).max(1);
        metrics().sent_rows.increment(rows);
        Ok(Some(self.encoder.capacity.admission.charge_buffered(bytes, ahead_permit, overrun_memory)))
    }

    fn start_chunks(&mut self) {
        while self.pending_chunks.len() < self.max_pending_chunks && self.next_ordinal < self.encoder.entity_count {
            match self.start_chunk(self.next_ordinal..self.encoder.entity_count, false) {
                Some(end) => self.next_ordinal = end,
                None => return,
            }
        }
    }

    /// Starts encoding a chunk from the start of `ordinals`. If they are the rest of a chunk, all are encoded, before
    /// the pending chunks. Returns the ordinal after the chunk; `None` without a permit if another chunk is pending.
    fn start_chunk(&mut self, ordinals: Range<u64>, is_rest: bool) -> Option<u64> {
        let end_for = |size_bytes| if is_rest { ordinals.end } else { self.chunk_end(&ordinals, size_bytes) };
        let encoded_bytes =
            |end: u64| (end - ordinals.start).saturating_mul(self.entity_bytes * ENCODED_BYTES_PER_BYTE);
        let mut end = end_for(self.chunk_bytes);
        let mut max_bytes = encoded_bytes(end).clamp(SMALL_CHUNK_BYTES, SELECTION_CHUNK_BYTES * ENCODED_BYTES_PER_BYTE);
        let ahead_permit = self.encoder.capacity.admission.try_acquire_buffer(max_bytes);
        if ahead_permit.is_none() {
            if !self.pending_chunks.is_empty() && !is_rest {
                return None;
            }
            end = end_for(SMALL_CHUNK_BYTES);
            max_bytes = SMALL_CHUNK_BYTES * ENCODED_BYTES_PER_BYTE;
        }
        let chunk = SelectionChunk { ordinals: ordinals.start..end };
        // Before the first byte of a body is sent, the response can still be an error.
        let is_first = ordinals.start == 0;
        let work = (self.encoder.encode)(chunk.clone(), max_bytes);
        let sent_bytes = ordinals.start.saturating_mul(self.entity_bytes);
        let resources = &self.encoder.capacity;
        let long = sent_bytes > MAX_SHORT_WORK_BYTES;
        let resources = if long { resources.with_priority(ThreadPriority::Long) } else { resources.clone() };
        // The bytes of the stream permit cover one chunk, so only the first pending chunk can use them.
        let large_entity = self.encoder.stream_permit.large_entity.as_ref().filter(|_| self.pending_chunks.is_empty());
        let charged_bytes = max_bytes.max(large_entity.map_or(0, Permit::units));
        let task = resources.engine.clone().spawn(async move {
            let permit = match is_first {
                true => resources.admission.acquire_encode().await?,
                false => resources.admission.acquire_encode_without_timeout(long).await,
            };
            // Encoding that the reader has abandoned keeps its permit until it has stopped.
            let work = async move {
                let _permit = permit;
                work.await
            };
            let mut encoded = resources.engine.spawn_dedicated(work).await??;
            // The buffer of a chunk grew by doubling, but only its length is charged until the reader takes the bytes.
            if encoded.0.capacity() - encoded.0.len() > encoded.0.len() / 8 {
                encoded.0.shrink_to_fit();
            }
            let overrun_memory = resources.reserve_overrun((encoded.0.len() as u64).saturating_sub(charged_bytes))?;
            Ok(EncodedChunk { encoded, encoded_at: Instant::now(), overrun_memory })
        });
        let pending = PendingChunk { ordinals: chunk.ordinals, ahead_permit, task };
        if is_rest {
            self.pending_chunks.push_front(pending)
        } else {
            self.pending_chunks.push_back(pending)
        }
        Some(end)
    }

    fn chunk_end(&self, ordinals: &Range<u64>, size_bytes: u64) -> u64 {
        ordinals.end.min(ordinals.start + (size_bytes / self.entity_bytes).clamp(1, MAX_CHUNK_ENTITIES))
    }

    /// Makes streaming faster: doubles the size of chunks or, at the maximum size, encodes another chunk concurrently.
    fn grow_chunks_or_concurrency(&mut self) {
        if self.chunk_bytes < SELECTION_CHUNK_BYTES {
            self.chunk_bytes *= 2;
        } else {
            self.max_pending_chunks = (self.max_pending_chunks + 1).min(self.encoder.capacity.engine.threads() + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::{Condvar, Mutex};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::admission::AdmissionControl;
    use crate::admission::principal_hasher::PrincipalHasher;
    use crate::admission::resource_context::test_engine;
    use crate::{ClientNetwork, Principal};
    use strata_config as config;
    use strata_query::QueryEngine;

    fn engine() -> (QueryEngine, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        (test_engine(2, 64 << 20, Some(directory.path().to_owned())), directory)
    }

    async fn wait_while(holds: impl Fn() -> bool) {
        while holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[derive(Default)]
    struct ThreadLatch {
        is_open: Mutex<bool>,
        opened: Condvar,
        waiting: AtomicUsize,
    }

    impl ThreadLatch {
        fn wait(&self) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut is_open = self.is_open.lock();
            self.opened.wait_while(&mut is_open, |is_open| !*is_open);
        }

        fn open(&self) {
            *self.is_open.lock() = true;
            self.opened.notify_all();
        }
    }

    /// Regression: slow chunks of one network occupied all query threads.
    #[tokio::test]
    async fn long_chunks_of_one_network_delay_no_others() {
        const HANG: Duration = Duration::from_secs(60);
        let (engine, _directory) = engine();
        let admission =
            AdmissionControl::new(&config::QueryConfig::default(), &config::FairShareConfig::default(), 2, 1 << 30);
        let network = |number| admission.for_principal(Principal::Anonymous(ClientNetwork::V4([192, 0, 2, number])));
        let latch = Arc::new(ThreadLatch::default());
        let body = async |admission: AdmissionControl, latch: Option<Arc<ThreadLatch>>| {
            let stream_permit = admission.acquire_stream_for_chunks(0).await.expect("permit is free");
            let encode = move |chunk: SelectionChunk, _: u64| {
                let latch = latch.clone();
                async move {
                    latch.inspect(|latch| latch.wait());
                    let entities = chunk.ordinals.end - chunk.ordinals.start;
                    Ok((vec![b'x'; entities as usize], chunk.ordinals.end))
                }
            };
            let capacity = ResourceContext::new(engine.clone(), admission, PrincipalHasher::new(None));
            BackpressuredEncoder { capacity, stream_permit, entity_count: 1_000, mean_document_bytes: 64 << 10, encode }
                .into_stream()
        };
        let mut hostile_tasks = Vec::new();
        for _ in 0..12 {
            let mut parts = body(network(1), Some(latch.clone())).await;
            hostile_tasks.push(tokio::spawn(async move { parts.next().await.is_some_and(|part| part.is_ok()) }));
        }
        let honest = async {
            // Waits until the first network, which has more chunks than query threads, uses all its encode permits.
            wait_while(|| latch.waiting.load(Ordering::SeqCst) < 3).await;
            let page = engine.spawn(async { "a page" }).await.expect("no panic");
            let mut parts = body(network(2), None).await;
            let mut entities = 0;
            while let Some(part) = parts.next().await {
                entities += part.expect("a part").len();
            }
            (page, entities, admission.current_load().encodes_running)
        };
        let outcome = tokio::time::timeout(HANG, honest).await;
        let begun_chunks = latch.waiting.load(Ordering::SeqCst);
        latch.open();
        assert_eq!(outcome.expect("neither the page nor the body waits for long chunks"), ("a page", 1_000, 3));
        assert_eq!(begun_chunks, 3);
        for task in hostile_tasks {
            assert!(task.await.expect("no panic"));
        }
    }

    /// Regression: each chunk of a disconnected client released its permit before it had stopped.
    #[tokio::test]
    async fn abandoned_chunk_keeps_permit_until_it_stops() {
        let (engine, _directory) = engine();
        let admission =
            AdmissionControl::new(&config::QueryConfig::default(), &config::FairShareConfig::default(), 2, 1 << 30);
        let stream_permit = admission.acquire_stream_for_chunks(0).await.expect("permit is free");
        let latch = Arc::new(ThreadLatch::default());
        let encode_latch = latch.clone();
        let encode = move |chunk: SelectionChunk, _: u64| {
            let latch = encode_latch.clone();
            async move {
                latch.wait();
                Ok((vec![b'x'], chunk.ordinals.end))
            }
        };
        let capacity = ResourceContext::new(engine, admission.clone(), PrincipalHasher::new(None));
        let encoder =
            BackpressuredEncoder { capacity, stream_permit, entity_count: 10, mean_document_bytes: 64 << 10, encode };
        let mut parts = encoder.into_stream();
        let reading = tokio::spawn(async move { parts.next().await.is_some() });
        wait_while(|| latch.waiting.load(Ordering::SeqCst) == 0).await;
        reading.abort();
        assert!(reading.await.is_err());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(admission.current_load().encodes_running, 1);
        latch.open();
        wait_while(|| admission.current_load().encodes_running > 0).await;
    }

    #[tokio::test]
    async fn chunks_for_slow_reader_are_charged() {
        const LARGE_BYTES: usize = 6 << 20;
        let (engine, _directory) = engine();
        let admission =
            AdmissionControl::new(&config::QueryConfig::default(), &config::FairShareConfig::default(), 2, 1 << 30);
        let stream_permit = admission.acquire_stream_for_chunks(0).await.expect("permit is free");
        let large = Arc::new(AtomicBool::new(false));
        let becomes_large = large.clone();
        let encode = move |chunk: SelectionChunk, _: u64| {
            let large = large.clone();
            async move {
                // Encoding is slower than the reader, so that more chunks are encoded concurrently.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let bytes = if large.load(Ordering::SeqCst) { LARGE_BYTES } else { 1 };
                Ok((vec![b'x'; bytes], chunk.ordinals.end))
            }
        };
        let capacity = ResourceContext::new(engine.clone(), admission, PrincipalHasher::new(None));
        let encoder = BackpressuredEncoder {
            capacity,
            stream_permit,
            entity_count: 1_000_000,
            mean_document_bytes: 1 << 10,
            encode,
        };
        let mut parts = encoder.into_stream();
        for _ in 0..10 {
            parts.next().await.expect("a part").expect("a part");
        }
        becomes_large.store(true, Ordering::SeqCst);
        let first = parts.next().await.expect("a part").expect("a part");
        let second = parts.next().await.expect("a part").expect("a part");
        let lengths = [&first, &second].map(Bytes::len);
        assert!(lengths.contains(&LARGE_BYTES), "{lengths:?}");
        drop((first, second));
        wait_while(|| engine.reserved_memory_bytes() < LARGE_BYTES / 4).await;
        drop(parts);
        wait_while(|| engine.reserved_memory_bytes() > 0).await;
    }
}

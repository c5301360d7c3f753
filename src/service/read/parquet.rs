//! Builds Parquet responses.
//!
//! Problem: a row group must be complete before its first byte can be sent, and needs tens of MiB of memory. A slow
//! reader must not occupy that memory. So each row group passes these steps before the next one begins:
//!
//! 1. **Reserve.** The body reserves memory for a row group ([`ParquetMemoryReserver`]).
//! 2. **Collect.** Tasks convert chunks of entities into batches of cells, until the row group is full.
//! 3. **Encode.** A few tasks encode the columns, on the threads of long work if the response is long.
//! 4. **Write.** The encoded row group is written to disk, where it waits for its reader.
//!
//! While one row group waits on disk, the next one is built and written. Then the work stops, and releases its memory,
//! until the reader takes the waiting row group. So a reader that stops after the first bytes occupies no memory and at
//! most three row groups on disk. Row groups for the export cache, which reads fast, are not written to disk here.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use strata_encode::{
    CellBatchFactory, ColumnChunk, ColumnEncoder, ColumnType, EncodeError, ParquetFileStream, PendingRowGroup,
};
use strata_json::TableColumnNames;
use strata_query::{QueryEngine, QueryError};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::{MAX_SHORT_WORK_BYTES, ThreadPriority};
use strata_store::unavailable::ResourceUnavailable;
use tokio::sync::mpsc::error::TrySendError;

use crate::admission::resource_context::ResourceContext;
use crate::admission::{MAX_UNCHARGED_BYTES, Permit, bytes_with_charge};
use crate::export_cache::ExportConsumer;
use crate::lookup::error::ReadError;
use crate::read::ResponseBody;
use crate::read::entity_source::{EntitySource, OrderedChunkTasks, stream_from_task};

/// A batch of cells ends after the entity with which the batch reaches this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A batch can need twice its bytes, because its buffers grow by doubling.
const BATCH_MEMORY_BYTES: usize = 2 * BATCH_BYTES;

/// Limit of the columns of a row group that are encoded concurrently, because each of them needs memory.
const MAX_ENCODERS: usize = 4;

/// Limit of the rows of a row group with typed columns: a compromise for tools that read row groups in parallel, and
/// skip row groups by their minimum and maximum.
const MAX_TYPED_ROW_GROUP_ROWS: u64 = 1 << 16;
const SERVICE_CHUNK_BYTES: usize = 256 << 10;
const MAX_CHUNKS_AHEAD: usize = 64;
const RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time that a Parquet body that has begun waits for memory. After that, it exceeds the limit, because bodies that
/// wait for each other would wait forever.
const MEMORY_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The memory and permit of a row group. Memory is released first, because the next owner of the permit reserves some.
struct RowGroupReservation {
    _memory: MemoryReservation,
    _permit: Permit,
}

struct ParquetMemoryReserver {
    resources: ResourceContext,
    size_bytes: usize,
    footer_bytes: usize,
}

impl ParquetMemoryReserver {
    fn check_fits(&self, footer_bytes: usize) -> Result<(), ReadError> {
        let needed_bytes = (self.size_bytes + footer_bytes) as u64;
        let limit_bytes = self.resources.engine.max_principal_memory_bytes();
        if needed_bytes > limit_bytes { Err(ReadError::TooMuchMemory { needed_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// Reserves memory for the first row group and the footer. Waits for up to `query.heavy_wait_s`: stopped work can
    /// take a moment to release its memory, and bodies that have begun get memory first.
    async fn reserve_first_row_group_and_footer(&self) -> Result<(RowGroupReservation, MemoryReservation), ReadError> {
        self.check_fits(self.footer_bytes)?;
        let ResourceContext { engine, admission, .. } = &self.resources;
        let mut remaining_wait = admission.max_parquet_wait();
        loop {
            let permit = admission.acquire_parquet(self.size_bytes as u64).await?;
            if remaining_wait.is_zero() || !admission.has_memory_waiters() {
                match engine.try_reserve("parquet body", self.size_bytes + self.footer_bytes) {
                    Ok(memory) => {
                        let footer = memory.split(self.footer_bytes);
                        return Ok((RowGroupReservation { _memory: memory, _permit: permit }, footer));
                    }
                    Err(error) if remaining_wait.is_zero() => return Err(error.into()),
                    Err(_) => {}
                }
            }
            drop(permit);
            tokio::time::sleep(RETRY_DELAY).await;
            remaining_wait = remaining_wait.saturating_sub(RETRY_DELAY);
        }
    }

    fn try_reserve_next_row_group(&self) -> Option<RowGroupReservation> {
        let permit = self.resources.admission.try_acquire_parquet(self.size_bytes as u64)?;
        let memory = self.resources.engine.try_reserve("parquet body", self.size_bytes).ok()?;
        Some(RowGroupReservation { _memory: memory, _permit: permit })
    }

    async fn reserve_next_row_group(&self) -> RowGroupReservation {
        let ResourceContext { engine, admission, .. } = &self.resources;
        let mut remaining_wait = MEMORY_GRACE_PERIOD;
        let mut waiter = None;
        loop {
            let permit = admission.acquire_parquet_without_timeout(self.size_bytes as u64).await;
            let memory = match engine.try_reserve("parquet body", self.size_bytes) {
                Ok(memory) => memory,
                Err(_) if remaining_wait.is_zero() => engine.reserve_over_limit("parquet body", self.size_bytes),
                Err(_) => {
                    drop(permit);
                    waiter.get_or_insert_with(|| admission.register_memory_waiter());
                    tokio::time::sleep(RETRY_DELAY).await;
                    remaining_wait = remaining_wait.saturating_sub(RETRY_DELAY);
                    continue;
                }
            };
            return RowGroupReservation { _memory: memory, _permit: permit };
        }
    }
}

/// Buffers for encoding a row group, reused by the next one. Each row group's memory reservation includes them.
struct RowGroupBuffers {
    factory: CellBatchFactory,
    encoders: Vec<ColumnEncoder>,
    encoded_bytes: Bytes,
}

impl RowGroupBuffers {
    fn release(&mut self) {
        self.factory.free_spare_buffers();
        self.encoders.clear();
        self.encoded_bytes = Bytes::new();
    }
}

type EncodedChunks = BoxStream<'static, Result<Bytes, ReadError>>;

fn single_chunk(bytes: Bytes) -> EncodedChunks {
    stream::once(async { Ok(bytes) }).boxed()
}

/// Builds a Parquet body, with typed columns if there are `types`. Several tasks build batches, and one task writes.
pub(crate) async fn build_parquet(
    resources: &ResourceContext,
    source: Arc<EntitySource>,
    columns: Arc<TableColumnNames>,
    types: Option<Arc<[ColumnType]>>,
    consumer: ExportConsumer,
) -> Result<ResponseBody, ReadError> {
    let long = source.estimated_document_bytes() > MAX_SHORT_WORK_BYTES;
    let resources = if long { resources.with_priority(ThreadPriority::Long) } else { resources.clone() };
    let engine = resources.engine.clone();
    // The size of row groups does not depend on the available memory, so that all servers create the same bytes.
    let row_group_bytes = ParquetFileStream::recommended_row_group_bytes(columns.len());
    // In addition to the batches of the tasks, one batch waits for the writer.
    let needed_bytes = |encoders| {
        ParquetFileStream::peak_memory_bytes(&columns, row_group_bytes, encoders) + BATCH_MEMORY_BYTES * (encoders + 2)
    };
    // Several encoders run only if half of the principal's memory share suffices: other bodies reduce the share.
    let spare_bytes = engine.max_principal_memory_bytes() / 2;
    let max_encoders = engine.threads().min(MAX_ENCODERS).min(columns.len());
    let encoders = (2..=max_encoders).rev().find(|&encoders| needed_bytes(encoders) as u64 <= spare_bytes).unwrap_or(1);
    let size_bytes = needed_bytes(encoders);
    let stream_permit = resources.admission.acquire_stream().await?;
    let max_rows = types.as_ref().map_or(usize::MAX, |_| rows_per_typed_row_group(&source, row_group_bytes));
    let mut writer = ParquetFileStream::try_new(&columns, types.clone(), row_group_bytes, max_rows)
        .map_err(ReadError::unreadable)?;
    let batches = CellBatchFactory::new(columns.clone(), types);
    // The memory for the whole footer is reserved in advance: it grows with each row group and is written at the end.
    let metadata_bytes = ParquetFileStream::footer_bytes_per_row_group(&columns);
    let row_group_footer_bytes = metadata_bytes + writer.max_page_index_bytes(&columns);
    let row_groups = writer.estimate_row_groups(source.documents.len(), source.estimated_document_bytes());
    let footer_bytes = row_group_footer_bytes.saturating_mul(row_groups);
    let memory = ParquetMemoryReserver { resources, size_bytes, footer_bytes };
    let (first_reservation, footer) = memory.reserve_first_row_group_and_footer().await?;
    let mut first_reservation = Some(first_reservation);
    let mut used_footer_bytes = 0;
    let mut buffers = RowGroupBuffers { factory: batches.clone(), encoders: Vec::new(), encoded_bytes: Bytes::new() };
    let mut batches = OrderedChunkTasks::new(&engine, source.documents.chunks(), move |chunk| {
        let source = source.clone();
        let mut batch = batches.new_builder();
        async move {
            let push = |entity: &[u8]| {
                batch.add_entity(entity);
                let is_full = batch.size_bytes() >= BATCH_BYTES;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let next = source.for_each_selected_entity(&chunk, push).await?;
            Ok((batch.finish(), next))
        }
    });
    let mut batch_bytes = BATCH_BYTES;
    let resources = memory.resources.clone();
    let encode_engine = engine.clone();
    let buffered = match consumer {
        ExportConsumer::Client => 1,
        ExportConsumer::Service => MAX_CHUNKS_AHEAD,
    };
    let encoded_chunks = stream_from_task(&engine, buffered, async move |sender| {
        loop {
            let reservation = match first_reservation.take().or_else(|| memory.try_reserve_next_row_group()) {
                Some(reservation) => reservation,
                None => {
                    buffers.release();
                    memory.reserve_next_row_group().await
                }
            };
            let mut is_last = false;
            while !writer.is_row_group_full() {
                // No batch is started that would not fit into the row group, because it would wait for the reader. The
                // first running task is not counted, because its batch is awaited now.
                let missing_bytes = writer.row_group_bytes_left();
                let missing_rows = writer.row_group_rows_left() as u64;
                let may_start = |running: usize, rows: u64| {
                    running <= encoders && running * batch_bytes < missing_bytes && rows < missing_rows
                };
                let Some(batch) = batches.next_result(may_start).await? else {
                    is_last = true;
                    break;
                };
                batch_bytes = batch.size_bytes();
                metrics().sent_rows.increment(batch.rows as u64);
                writer.push(batch);
            }
            used_footer_bytes += metadata_bytes + writer.current_page_index_bytes(&columns);
            memory.check_fits(used_footer_bytes)?;
            // The size of the footer exceeds its estimate if row groups are smaller than estimated.
            footer.grow(used_footer_bytes.saturating_sub(footer.size()));
            // If the export cache reads the body, it must first take the previous row group. An error means it left.
            if consumer == ExportConsumer::Service && sender.reserve_many(MAX_CHUNKS_AHEAD).await.is_err() {
                return Ok(());
            }
            // The writer reuses the previous row group's buffer, because a new one would exceed the reserved memory.
            writer.reuse_buffer(mem::take(&mut buffers.encoded_bytes));
            if let Some(row_group) = writer.take_row_group() {
                let encoded = encode_columns(&encode_engine, row_group, encoders, &mut buffers.encoders).await?;
                // Writing copies the encoded columns, but the reservation covers only two copies of the row group, so
                // spare buffers are released.
                if 2 * encoded.iter().map(ColumnChunk::size_bytes).sum::<usize>() > row_group_bytes {
                    buffers.release();
                }
                writer.write_row_group(encoded).map_err(ReadError::unreadable)?;
            }
            if is_last {
                // The footer is sent with the last row group, so that the length of a small file is known at once.
                let bytes = writer.finish_file().map_err(ReadError::unreadable)?;
                let chunk = match consumer {
                    ExportConsumer::Service => single_chunk(bytes),
                    ExportConsumer::Client => {
                        let chunk = spill_or_buffer(&resources, &bytes).await?;
                        drop(bytes);
                        chunk
                    }
                };
                drop((reservation, footer, batches, buffers));
                let _ = sender.send(chunk).await;
                return Ok(());
            }
            let mut bytes = writer.take_written_bytes().map_err(ReadError::unreadable)?;
            if consumer == ExportConsumer::Service {
                while !bytes.is_empty() {
                    let chunk = bytes.split_to(bytes.len().min(SERVICE_CHUNK_BYTES));
                    if sender.send(single_chunk(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
            } else if !bytes.is_empty() {
                let chunk = spill_or_buffer(&resources, &bytes).await?;
                match sender.try_send(chunk) {
                    Ok(()) => buffers.encoded_bytes = bytes,
                    Err(TrySendError::Full(chunk)) => {
                        drop((bytes, reservation));
                        buffers.release();
                        if sender.send(chunk).await.is_err() {
                            return Ok(());
                        }
                    }
                    Err(TrySendError::Closed(_)) => return Ok(()),
                }
            }
        }
    });
    // The Parquet body keeps its stream permit until the reader has taken all bytes.
    let body = encoded_chunks.try_flatten().inspect(move |_| {
        let _ = &stream_permit;
    });
    Ok(ResponseBody::Stream(body.boxed()))
}

/// Returns the rows of a row group with typed columns: as many whole chunks of mean-sized documents as fit.
fn rows_per_typed_row_group(source: &EntitySource, row_group_bytes: usize) -> usize {
    let first_chunk = source.documents.chunks().next();
    let chunk_rows = first_chunk.map_or(1, |chunk| chunk.ordinals.end - chunk.ordinals.start).max(1);
    let fitting_rows = row_group_bytes as u64 / source.mean_document_bytes().max(1);
    let chunks = (MAX_TYPED_ROW_GROUP_ROWS.min(fitting_rows) / chunk_rows).max(1);
    usize::try_from(chunks * chunk_rows).unwrap_or(usize::MAX)
}

async fn encode_columns(
    engine: &QueryEngine,
    row_group: PendingRowGroup,
    encoder_count: usize,
    encoders: &mut Vec<ColumnEncoder>,
) -> Result<Vec<ColumnChunk>, ReadError> {
    let order: Arc<[usize]> = row_group.columns_by_size_desc().into();
    let row_group = Arc::new(row_group);
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..encoder_count)
        .map(|_| {
            let row_group = row_group.clone();
            let order = order.clone();
            let next = next.clone();
            let encoder = encoders.pop();
            engine.spawn(async move {
                let mut encoder = encoder.map_or_else(ColumnEncoder::try_new, Ok)?;
                let mut chunks = Vec::new();
                while let Some(&column) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    chunks.push((column, row_group.encode_column(column, &mut encoder)?));
                    // Yields to other work, and stops the encoding if its future was dropped.
                    tokio::task::yield_now().await;
                }
                Ok::<_, EncodeError>((chunks, encoder))
            })
        })
        .collect();
    drop(row_group);
    let mut chunks = Vec::new();
    for task in tasks {
        let (mut encoded, encoder) = task.await.map_err(QueryError::from)?.map_err(ReadError::unreadable)?;
        chunks.append(&mut encoded);
        encoders.push(encoder);
    }
    chunks.sort_unstable_by_key(|(column, _)| *column);
    Ok(chunks.into_iter().map(|(_, chunk)| chunk).collect())
}

/// Stores encoded bytes until their reader takes them: on disk, or in memory if the disk is full. If there is no memory
/// either, retries until the query timeout.
async fn spill_or_buffer(resources: &ResourceContext, bytes: &Bytes) -> Result<EncodedChunks, ReadError> {
    let engine = &resources.engine;
    let needed_bytes = bytes.len() as u64;
    let limit_bytes = engine.max_principal_spill_bytes();
    if needed_bytes <= MAX_UNCHARGED_BYTES {
        return Ok(single_chunk(bytes.clone()));
    }
    if needed_bytes > limit_bytes {
        return Err(ReadError::TooMuchDisk { needed_bytes, limit_bytes });
    }
    let mut remaining_wait = engine.timeout();
    let mut delay = RETRY_DELAY;
    loop {
        let disk_full = match engine.spill_bytes("parquet body", bytes).await {
            Ok(spilled) => {
                let chunks = async { Ok::<_, ReadError>(spilled.into_stream().map_err(ReadError::from)) };
                return Ok(stream::once(chunks).try_flatten().boxed());
            }
            Err(error) if is_disk_full(&error) => error,
            Err(error) => return Err(error.into()),
        };
        match resources.reserve_response_body(needed_bytes) {
            Ok(charge) => return Ok(single_chunk(bytes_with_charge(bytes.clone(), charge))),
            Err(_) if remaining_wait.is_zero() => return Err(disk_full.into()),
            Err(_) => {}
        }
        tokio::time::sleep(delay).await;
        remaining_wait = remaining_wait.saturating_sub(delay);
        // The delay before the next attempt grows, because an attempt can write many bytes before the disk is full.
        delay = (2 * delay).min(MAX_RETRY_DELAY);
    }
}

/// Returns whether the error is a lack of disk space, which other readers may free.
fn is_disk_full(error: &QueryError) -> bool {
    matches!(error, QueryError::OutOfDisk(_))
        || ResourceUnavailable::from_error(error) == Some(ResourceUnavailable::DiskFull)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionControl;
    use crate::admission::principal_hasher::PrincipalHasher;
    use crate::admission::resource_context::test_engine;
    use strata_config as config;

    const MEMORY_BYTES: usize = 64 << 20;
    const FOOTER_BYTES: usize = 1 << 20;

    fn memory_fixture(wait_s: u64) -> ParquetMemoryReserver {
        let query = config::QueryConfig { heavy_wait_s: wait_s, ..config::QueryConfig::default() };
        let admission = AdmissionControl::new(&query, &config::FairShareConfig::default(), 1, MEMORY_BYTES as u64);
        let resources = ResourceContext::new(test_engine(1, MEMORY_BYTES, None), admission, PrincipalHasher::new(None));
        ParquetMemoryReserver { resources, size_bytes: MEMORY_BYTES / 2 + 1, footer_bytes: FOOTER_BYTES }
    }

    /// Regression: an export failed because the memory of a stopped job was not yet released.
    #[tokio::test]
    async fn first_row_group_waits_for_released_memory() {
        for (wait_s, is_admitted) in [(600, true), (0, false)] {
            let memory = memory_fixture(wait_s);
            let stopped = memory.reserve_first_row_group_and_footer().await.expect("memory is free");
            let release = async {
                tokio::time::sleep(2 * RETRY_DELAY).await;
                drop(stopped);
            };
            let (second, ()) = tokio::join!(memory.reserve_first_row_group_and_footer(), release);
            assert_eq!(second.is_ok(), is_admitted, "{:?}", second.err());
        }
    }

    #[tokio::test]
    async fn body_that_waits_for_memory_comes_first() {
        let memory = memory_fixture(600);
        let waiter = memory.resources.admission.register_memory_waiter();
        let mut first = Box::pin(memory.reserve_first_row_group_and_footer());
        assert!(tokio::time::timeout(4 * RETRY_DELAY, &mut first).await.is_err());
        drop(waiter);
        let (_, footer) = first.await.expect("memory is free");
        assert_eq!(footer.size(), FOOTER_BYTES);
    }

    #[tokio::test]
    async fn begun_body_continues_without_free_memory() {
        let memory = memory_fixture(600);
        let engine = &memory.resources.engine;
        let others = engine.try_reserve("others", MEMORY_BYTES - 1).expect("memory is free");
        let reservation = memory.reserve_next_row_group().await;
        assert!(engine.try_reserve("one more", 1).is_err());
        drop((reservation, others));
        engine.try_reserve("all", MEMORY_BYTES).expect("all memory is released");
    }
}

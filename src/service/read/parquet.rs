//! Builds Parquet responses.
//!
//! Problem: a row group must be complete before its first byte can be sent, and takes tens of MiB of memory. A slow
//! reader must not hold that memory. So each row group passes these steps, and the next one begins after the last step:
//!
//! 1. **Reserve.** The body reserves the memory of a row group, from [`Admission::parquet`] and from the memory of
//!    queries.
//! 2. **Collect.** Tasks turn units of entities into batches of cells, until the row group is full.
//! 3. **Encode.** A few tasks encode the columns, on the threads of long work if the response is long.
//! 4. **Write.** The encoded row group is written to disk, where it waits for its reader. If the disk has only its
//!    reserve left, the row group waits in memory that is charged like that of other bodies.
//!
//! While one row group waits on disk, the next one is built and written. Then the work stops and releases its memory
//! until the reader takes the one that waits. A reader who stops after the first bytes therefore holds at most three
//! row groups on disk, and no memory: the one that it reads, and two that follow.
//!
//! The export cache is no slow reader, so its row groups are not written to disk here. It takes one while the cells of
//! the next one are collected.
//!
//! [`Admission::parquet`]: crate::admission::Admission::parquet

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use strata_encode::{Batches, ColumnChunk, ColumnEncoder, ColumnType, EncodeError, ParquetStream, RowGroup};
use strata_json::Columns;
use strata_query::{Engine, QueryError};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::{Priority, SHORT_BYTES};
use strata_store::shortage::Shortage;
use tokio::sync::mpsc::error::TrySendError;

use crate::admission::capacity::Capacity;
use crate::admission::{Permit, WHOLE_BYTES, accounted};
use crate::export_cache::Consumer;
use crate::lookup::error::ReadError;
use crate::read::AnswerBody;
use crate::read::source::{OrderedUnits, Source, sent_by_task};

/// Bytes of cells in a batch, without those of its last entity.
const BATCH_BYTES: usize = 1 << 20;

/// The memory of a batch, which grows by doubling.
const BATCH_MEMORY: usize = 2 * BATCH_BYTES;

/// Columns that are encoded at the same time, if there are enough threads: each of them needs memory.
const ENCODERS: usize = 4;

/// Maximum number of rows in a row group of typed columns. Analysis tools read row groups in parallel, and skip them by
/// their minimum and maximum. This number is a compromise between the two.
const TYPED_ROWS: u64 = 1 << 16;

/// Bytes of a chunk for the service.
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that are ready for the service before it takes them.
const CHUNKS_AHEAD: usize = 64;

/// Between two attempts to reserve memory.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Between two attempts to write to a full disk, after several of them.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long a body that has begun leaves memory to others. Then it takes the memory anyway, because bodies that wait
/// for each other would wait forever, and the work for a truncated body is lost. Permits limit how many do so.
const GRACE: Duration = Duration::from_secs(2);

/// The memory of a body while it builds a row group. It is released before the permit, because the next body that gets
/// the permit reserves memory.
struct Held {
    _memory: MemoryReservation,
    _permit: Permit,
}

struct Memory {
    capacity: Capacity,
    size_bytes: usize,
    /// Of the whole footer, as far as it is foreseen.
    footer_bytes: usize,
}

impl Memory {
    /// Refuses what would not fit beside a footer of so many bytes if nobody else had any memory.
    fn check(&self, footer_bytes: usize) -> Result<(), ReadError> {
        let needed_bytes = (self.size_bytes + footer_bytes) as u64;
        let limit_bytes = self.capacity.engine.most_memory_bytes();
        match needed_bytes > limit_bytes {
            true => Err(ReadError::TooMuchMemory { needed_bytes, limit_bytes }),
            false => Ok(()),
        }
    }

    /// For the first row group and the footer, before there is an answer. Waits as long as for a permit: work that was
    /// stopped, such as an export that turned out to have no room in the cache, gives its memory back when it notices.
    /// None begins while one that has begun waits for memory.
    async fn first(&self) -> Result<(Held, MemoryReservation), ReadError> {
        self.check(self.footer_bytes)?;
        let Capacity { engine, admission, .. } = &self.capacity;
        let mut patience = admission.parquet_wait();
        loop {
            let permit = admission.parquet(self.size_bytes as u64).await?;
            if patience.is_zero() || !admission.is_memory_waited_for() {
                match engine.reserve("parquet body", self.size_bytes + self.footer_bytes) {
                    Ok(memory) => {
                        let footer = memory.split(self.footer_bytes);
                        return Ok((Held { _memory: memory, _permit: permit }, footer));
                    }
                    Err(error) if patience.is_zero() => return Err(error.into()),
                    Err(_) => {}
                }
            }
            // Who cannot go on keeps nobody waiting who can.
            drop(permit);
            tokio::time::sleep(RETRY_DELAY).await;
            patience = patience.saturating_sub(RETRY_DELAY);
        }
    }

    /// For another one, if there is memory and nobody has to wait for it.
    fn at_once(&self) -> Option<Held> {
        let permit = self.capacity.admission.try_parquet(self.size_bytes as u64)?;
        let memory = self.capacity.engine.reserve("parquet body", self.size_bytes).ok()?;
        Some(Held { _memory: memory, _permit: permit })
    }

    /// For another one, once there is: other work ends before long, and gives its memory back.
    async fn again(&self) -> Held {
        let Capacity { engine, admission, .. } = &self.capacity;
        let mut patience = GRACE;
        let mut waits = None;
        loop {
            let permit = admission.parquet_again(self.size_bytes as u64).await;
            let memory = match engine.reserve("parquet body", self.size_bytes) {
                Ok(memory) => memory,
                Err(_) if patience.is_zero() => engine.reserve_anyway("parquet body", self.size_bytes),
                Err(_) => {
                    drop(permit);
                    waits.get_or_insert_with(|| admission.waits_for_memory());
                    tokio::time::sleep(RETRY_DELAY).await;
                    patience = patience.saturating_sub(RETRY_DELAY);
                    continue;
                }
            };
            return Held { _memory: memory, _permit: permit };
        }
    }
}

/// What a row group leaves to the next one, which is part of the memory that each of them takes.
struct Workspace {
    batches: Batches,
    encoders: Vec<ColumnEncoder>,
    /// What the row group before was encoded to.
    encoded: Bytes,
}

impl Workspace {
    fn free(&mut self) {
        self.batches.free_spare();
        self.encoders.clear();
        self.encoded = Bytes::new();
    }
}

/// Encoded bytes on their way to their consumer.
type Piece = BoxStream<'static, Result<Bytes, ReadError>>;

fn in_memory(bytes: Bytes) -> Piece {
    stream::once(async { Ok(bytes) }).boxed()
}

/// A Parquet body, with typed columns if there are types. Several batches are built at a time, and one task writes.
pub(crate) async fn body(
    capacity: &Capacity,
    source: Arc<Source>,
    columns: Arc<Columns>,
    types: Option<Arc<[ColumnType]>>,
    consumer: Consumer,
) -> Result<AnswerBody, ReadError> {
    let long = source.document_bytes() > SHORT_BYTES;
    let capacity = if long { capacity.at(Priority::Long) } else { capacity.clone() };
    let engine = capacity.engine.clone();
    // Whatever memory there is: the same bytes are made everywhere, for everybody.
    let row_group_bytes = ParquetStream::row_group_bytes(columns.len());
    // One batch waits for the writer.
    let needed_bytes =
        |encoders| ParquetStream::held_bytes(&columns, row_group_bytes, encoders) + BATCH_MEMORY * (encoders + 2);
    // What others hold makes the share of each smaller: also their footers, which stay. More than one only where memory
    // is not short.
    let spare_bytes = engine.most_memory_bytes() / 2;
    let most_encoders = engine.threads().min(ENCODERS).min(columns.len());
    let encoders =
        (2..=most_encoders).rev().find(|&encoders| needed_bytes(encoders) as u64 <= spare_bytes).unwrap_or(1);
    let size_bytes = needed_bytes(encoders);
    let place = capacity.admission.stream().await?;
    let rows = types.as_ref().map_or(usize::MAX, |_| typed_rows(&source, row_group_bytes));
    let mut writer = ParquetStream::try_new(&columns, types.clone(), row_group_bytes, rows).map_err(failed)?;
    let batches = Batches::new(columns.clone(), types);
    // What is begun waits for no more than a row group: the footer stays until the end, and grows with each.
    let footer_bytes = ParquetStream::footer_bytes(&columns);
    let row_group_footer_bytes = footer_bytes + writer.most_index_bytes(&columns);
    let row_groups = writer.row_groups(source.documents.len(), source.document_bytes());
    let footer_bytes_all = row_group_footer_bytes.saturating_mul(row_groups);
    let memory = Memory { capacity, size_bytes, footer_bytes: footer_bytes_all };
    let (held, footer) = memory.first().await?;
    let mut held = Some(held);
    let mut footer_taken = 0;
    let mut workspace = Workspace { batches: batches.clone(), encoders: Vec::new(), encoded: Bytes::new() };
    let mut batches = OrderedUnits::new(&engine, source.documents.units(), move |unit| {
        let source = source.clone();
        let mut batch = batches.begin();
        async move {
            let each = |entity: &[u8]| {
                batch.push(entity);
                let is_full = batch.size_bytes() >= BATCH_BYTES;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let next = source.for_each(&unit, each).await?;
            Ok((batch.finish(), next))
        }
    });
    let mut batch_bytes = BATCH_BYTES;
    let capacity = memory.capacity.clone();
    let work = engine.clone();
    let room = match consumer {
        Consumer::Client => 1,
        Consumer::Service => CHUNKS_AHEAD,
    };
    let pieces = sent_by_task(&engine, room, async move |pieces| {
        loop {
            let held = match held.take().or_else(|| memory.at_once()) {
                Some(held) => held,
                None => {
                    workspace.free();
                    memory.again().await
                }
            };
            let mut over = false;
            while !writer.is_full() {
                // One more than is encoded at once, because the first is waited for. None beyond a full row group: it
                // would wait as long as the reader.
                let missing_bytes = writer.missing_bytes();
                let missing_rows = writer.missing_rows() as u64;
                let may_start = |running: usize, rows: u64| {
                    running <= encoders && running * batch_bytes < missing_bytes && rows < missing_rows
                };
                let Some(batch) = batches.next(may_start).await? else {
                    over = true;
                    break;
                };
                batch_bytes = batch.size_bytes();
                metrics().sent_rows.increment(batch.rows as u64);
                writer.push(batch);
            }
            footer_taken += footer_bytes + writer.index_bytes(&columns);
            memory.check(footer_taken)?;
            // More than was foreseen, where row groups are smaller.
            footer.grow(footer_taken.saturating_sub(footer.size()));
            // A row group waits for the service while the cells of the next one are found, no longer. Without room,
            // nobody is there.
            if consumer == Consumer::Service && pieces.reserve_many(CHUNKS_AHEAD).await.is_err() {
                return Ok(());
            }
            // Encoded as well, it would be a copy more than memory was taken for.
            writer.reuse(mem::take(&mut workspace.encoded));
            if let Some(row_group) = writer.row_group() {
                let encoded = encoded(&work, row_group, encoders, &mut workspace.encoders).await?;
                // What it becomes in the file is another copy of it, and memory was taken for two of the row group.
                if 2 * encoded.iter().map(ColumnChunk::size_bytes).sum::<usize>() > row_group_bytes {
                    workspace.free();
                }
                writer.write(encoded).map_err(failed)?;
            }
            if over {
                // With the last row group: of a file that comes in one piece, everyone knows the length.
                let bytes = writer.finish().map_err(failed)?;
                let piece = match consumer {
                    Consumer::Service => in_memory(bytes),
                    Consumer::Client => {
                        let piece = placed(&capacity, &bytes).await?;
                        drop(bytes);
                        piece
                    }
                };
                drop((held, footer, batches, workspace));
                // Whether the reader is there makes no difference any more.
                let _ = pieces.send(piece).await;
                return Ok(());
            }
            let mut bytes = writer.take().map_err(failed)?;
            if consumer == Consumer::Service {
                while !bytes.is_empty() {
                    let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
                    if pieces.send(in_memory(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
            } else if !bytes.is_empty() {
                let piece = placed(&capacity, &bytes).await?;
                match pieces.try_send(piece) {
                    Ok(()) => workspace.encoded = bytes,
                    Err(TrySendError::Full(piece)) => {
                        drop((bytes, held));
                        workspace.free();
                        // The reader is gone: so is the reason to write.
                        if pieces.send(piece).await.is_err() {
                            return Ok(());
                        }
                    }
                    Err(TrySendError::Closed(_)) => return Ok(()),
                }
            }
        }
    });
    // Its place is held until nothing waits for the reader any more.
    let body = pieces.try_flatten().inspect(move |_| {
        let _ = &place;
    });
    Ok(AnswerBody::Stream(body.boxed()))
}

/// Rows of a row group of typed columns: all have as many, whole units, as far as the mean of documents tells how many
/// fit. A reader that looks for values leaves out whole row groups.
fn typed_rows(source: &Source, row_group_bytes: usize) -> usize {
    let unit_rows = source.documents.units().next().map_or(1, |unit| unit.places.end - unit.places.start).max(1);
    let fitting = row_group_bytes as u64 / source.mean_bytes().max(1);
    let units = (TYPED_ROWS.min(fitting) / unit_rows).max(1);
    usize::try_from(units * unit_rows).unwrap_or(usize::MAX)
}

/// The columns of a row group, encoded by so many tasks, with what these have used before.
async fn encoded(
    engine: &Engine,
    row_group: RowGroup,
    encoders: usize,
    used: &mut Vec<ColumnEncoder>,
) -> Result<Vec<ColumnChunk>, ReadError> {
    let order: Arc<[usize]> = row_group.largest_first().into();
    let row_group = Arc::new(row_group);
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..encoders)
        .map(|_| {
            let row_group = row_group.clone();
            let order = order.clone();
            let next = next.clone();
            let encoder = used.pop();
            engine.spawn(async move {
                let mut encoder = encoder.map_or_else(ColumnEncoder::try_new, Ok)?;
                let mut chunks = Vec::new();
                while let Some(&column) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    chunks.push((column, row_group.encode(column, &mut encoder)?));
                    // Between columns others get their turn, and who left stops the work.
                    tokio::task::yield_now().await;
                }
                Ok::<_, EncodeError>((chunks, encoder))
            })
        })
        .collect();
    drop(row_group);
    let mut chunks = Vec::new();
    for task in tasks {
        let (mut encoded, encoder) = task.await.map_err(QueryError::from)?.map_err(failed)?;
        chunks.append(&mut encoded);
        used.push(encoder);
    }
    chunks.sort_unstable_by_key(|(column, _)| *column);
    Ok(chunks.into_iter().map(|(_, chunk)| chunk).collect())
}

/// Bytes that may wait for their reader for long: on disk, or in memory while the disk is short of room. Where
/// there is neither, readers give some back before long.
async fn placed(capacity: &Capacity, bytes: &Bytes) -> Result<Piece, ReadError> {
    let engine = &capacity.engine;
    let needed_bytes = bytes.len() as u64;
    let limit_bytes = engine.most_spilled_bytes();
    if needed_bytes <= WHOLE_BYTES {
        return Ok(in_memory(bytes.clone()));
    }
    if needed_bytes > limit_bytes {
        return Err(ReadError::TooMuchDisk { needed_bytes, limit_bytes });
    }
    let mut patience = engine.timeout();
    let mut delay = RETRY_DELAY;
    loop {
        let short = match engine.spill("parquet body", bytes).await {
            Ok(spilled) => {
                // It is not opened before its turn.
                let chunks = async { Ok::<_, ReadError>(spilled.into_stream().map_err(ReadError::from)) };
                return Ok(stream::once(chunks).try_flatten().boxed());
            }
            Err(error) if is_short(&error) => error,
            Err(error) => return Err(error.into()),
        };
        match capacity.account(needed_bytes) {
            Ok(account) => return Ok(in_memory(accounted(bytes.clone(), account))),
            Err(_) if patience.is_zero() => return Err(short.into()),
            Err(_) => {}
        }
        tokio::time::sleep(delay).await;
        patience = patience.saturating_sub(delay);
        // Each attempt may write the bytes before it finds the disk full.
        delay = (2 * delay).min(MAX_RETRY_DELAY);
    }
}

/// Whether there is room on the disk again once readers have taken what lies there.
fn is_short(error: &QueryError) -> bool {
    matches!(error, QueryError::OutOfDisk(_)) || Shortage::of(error) == Some(Shortage::DiskFull)
}

fn failed(error: EncodeError) -> ReadError {
    ReadError::Unreadable(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::admission::capacity::test_engine;
    use crate::admission::principal_hasher::PrincipalHasher;
    use strata_config as config;

    const MEMORY_BYTES: usize = 64 << 20;
    const FOOTER_BYTES: usize = 1 << 20;

    fn memory(wait_s: u64) -> Memory {
        let query = config::Query { heavy_wait_s: wait_s, ..config::Query::default() };
        let admission = Admission::new(&query, &config::Fair::default(), 1, MEMORY_BYTES as u64);
        let capacity = Capacity::new(test_engine(1, MEMORY_BYTES, None), admission, PrincipalHasher::new(None));
        Memory { capacity, size_bytes: MEMORY_BYTES / 2 + 1, footer_bytes: FOOTER_BYTES }
    }

    /// An export whose making stopped for want of room in the cache was cut: what had been made held its memory still.
    #[tokio::test]
    async fn first_row_group_waits_for_released_memory() {
        for (wait_s, is_there) in [(600, true), (0, false)] {
            let memory = memory(wait_s);
            let stopped = memory.first().await.expect("room");
            let let_go = async {
                tokio::time::sleep(2 * RETRY_DELAY).await;
                drop(stopped);
            };
            let (held, ()) = tokio::join!(memory.first(), let_go);
            assert_eq!(held.is_ok(), is_there, "{:?}", held.err());
        }
    }

    #[tokio::test]
    async fn body_that_waits_for_memory_comes_first() {
        let memory = memory(600);
        let waits = memory.capacity.admission.waits_for_memory();
        let mut begins = Box::pin(memory.first());
        assert!(tokio::time::timeout(4 * RETRY_DELAY, &mut begins).await.is_err());
        drop(waits);
        let (_, footer) = begins.await.expect("room");
        assert_eq!(footer.size(), FOOTER_BYTES);
    }

    /// Those that have begun may wait for each other.
    #[tokio::test]
    async fn begun_body_continues_without_free_memory() {
        let memory = memory(600);
        let engine = &memory.capacity.engine;
        let others = engine.reserve("others", MEMORY_BYTES - 1).expect("room");
        let held = memory.again().await;
        assert!(engine.reserve("one more", 1).is_err());
        drop((held, others));
        engine.reserve("all", MEMORY_BYTES).expect("all is given back");
    }
}

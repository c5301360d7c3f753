//! A Parquet answer: row groups made as fast as the machine can, and read as slowly as clients like.
//!
//! A row group has to be there as a whole before its first byte, so a body holds one while it is made. It is not held
//! for a reader's sake:
//!
//! 1. Its memory is taken before the row group is begun, from [`Admission::parquet`] and from the pool of queries, and
//!    given back when the row group is encoded.
//! 2. Its columns are encoded by a few tasks at once, on the threads of long work if the answer is long.
//! 3. What is encoded goes to disk, and from there to the reader. One row group waits there while the next one is
//!    built; then the work stops until the reader has taken one, and keeps no memory meanwhile. Where the disk has only
//!    its reserve left, it waits in memory that is accounted as that of other bodies.
//!
//! Row groups for the cache of exports have no slow reader, so they do not pass through this disk buffer. One is taken
//! while the cells of the next one are found.
//!
//! [`Admission::parquet`]: crate::admission::Admission::parquet

use std::collections::VecDeque;
use std::mem;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use strata_encode::{Batch, Batches, ColumnChunk, ColumnEncoder, ColumnType, EncodeError, ParquetStream, RowGroup};
use strata_json::Columns;
use strata_query::fetch::documents::Unit;
use strata_query::{Engine, QueryError};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::{Priority, SHORT_BYTES};
use strata_store::shortage::Shortage;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::task::AbortOnDropHandle;

use crate::admission::capacity::Capacity;
use crate::admission::{Permit, WHOLE_BYTES, accounted};
use crate::export_cache::Taker;
use crate::lookup::error::ReadError;
use crate::read::AnswerBody;
use crate::read::source::{Source, sent_by_task};

/// Bytes of cells of a part, besides those of its last entity; and the memory of one, which grows by doubling.
const PART_BYTES: usize = 1 << 20;
const PART_MEMORY: usize = 2 * PART_BYTES;

/// Columns that are encoded at once, if there are so many threads: each takes memory of its own. One more part is made
/// at once, because the first is waited for.
const ENCODERS: usize = 4;

/// Most rows of a row group of typed columns. Analysis tools work on row groups in parallel, and leave them out by
/// their minimum and maximum: many enough for the one, few enough for the other.
const TYPED_ROWS: u64 = 1 << 16;

/// Bytes that the service takes at once, and how many times as many lie ahead of it.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS_AHEAD: usize = 64;

/// Between two tries to get memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two tries to write what the disk had no room for, when they have failed for a while.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a body that has begun leaves memory to others. Then it takes it anyway: those who wait for each other would
/// wait for ever, and a body that is cut was made for nothing. Permits bound how many do so.
const GRACE: Duration = Duration::from_secs(2);

/// The memory of a body while it makes a row group. It is given back before the permit: who gets that takes memory.
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
        let (engine, admission) = (&self.capacity.engine, &self.capacity.admission);
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
            tokio::time::sleep(PAUSE).await;
            patience = patience.saturating_sub(PAUSE);
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
        let (engine, admission) = (&self.capacity.engine, &self.capacity.admission);
        let (mut patience, mut waits) = (GRACE, None);
        loop {
            let permit = admission.parquet_again(self.size_bytes as u64).await;
            let memory = match engine.reserve("parquet body", self.size_bytes) {
                Ok(memory) => memory,
                Err(_) if patience.is_zero() => engine.reserve_anyway("parquet body", self.size_bytes),
                Err(_) => {
                    drop(permit);
                    waits.get_or_insert_with(|| admission.waits_for_memory());
                    tokio::time::sleep(PAUSE).await;
                    patience = patience.saturating_sub(PAUSE);
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

/// Encoded bytes on their way to their taker.
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
    taker: Taker,
) -> Result<AnswerBody, ReadError> {
    let long = source.document_bytes() > SHORT_BYTES;
    let capacity = if long { capacity.at(Priority::Long) } else { capacity.clone() };
    let engine = capacity.engine.clone();
    // Whatever memory there is: the same bytes are made everywhere, for everybody.
    let row_group_bytes = ParquetStream::row_group_bytes(columns.len());
    // One part waits to be taken.
    let needed_bytes =
        |encoders| ParquetStream::held_bytes(&columns, row_group_bytes, encoders) + PART_MEMORY * (encoders + 2);
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
    let mut parts = Parts {
        engine: engine.clone(),
        units: source.documents.units(),
        source,
        batches,
        making: VecDeque::new(),
        most: encoders + 1,
        batch_bytes: PART_BYTES,
    };
    let capacity = memory.capacity.clone();
    let work = engine.clone();
    let room = match taker {
        Taker::Client => 1,
        Taker::Service => CHUNKS_AHEAD,
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
                let Some(batch) = parts.next(writer.missing_bytes(), writer.missing_rows()).await? else {
                    over = true;
                    break;
                };
                metrics().sent_rows.increment(batch.rows as u64);
                writer.push(batch);
            }
            footer_taken += footer_bytes + writer.index_bytes(&columns);
            memory.check(footer_taken)?;
            // More than was foreseen, where row groups are smaller.
            footer.grow(footer_taken.saturating_sub(footer.size()));
            // A row group waits for the service while the cells of the next one are found, no longer. Without room,
            // nobody is there.
            if taker == Taker::Service && pieces.reserve_many(CHUNKS_AHEAD).await.is_err() {
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
                let piece = match taker {
                    Taker::Service => in_memory(bytes),
                    Taker::Client => {
                        let piece = placed(&capacity, &bytes).await?;
                        drop(bytes);
                        piece
                    }
                };
                drop((held, footer, parts, workspace));
                // Whether the reader is there makes no difference any more.
                let _ = pieces.send(piece).await;
                return Ok(());
            }
            let mut bytes = writer.take().map_err(failed)?;
            if taker == Taker::Service {
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

/// Batches in order, a few built at once, but none beyond a full row group: it would wait as long as the reader.
struct Parts<U> {
    engine: Engine,
    source: Arc<Source>,
    batches: Batches,
    units: U,
    making: VecDeque<Part>,
    most: usize,
    batch_bytes: usize,
}

/// A part in the making: its places, and the batch with the place where it ended.
struct Part {
    places: Range<u64>,
    task: AbortOnDropHandle<Result<(Batch, u64), ReadError>>,
}

impl<U: Iterator<Item = Unit>> Parts<U> {
    /// The next batch for a row group that so many bytes and rows are missing from; `None` at the end.
    async fn next(&mut self, missing_bytes: usize, missing_rows: usize) -> Result<Option<Batch>, ReadError> {
        while self.making.len() < self.most
            && self.making.len() * self.batch_bytes < missing_bytes
            && self.making.iter().map(|part| part.places.end - part.places.start).sum::<u64>() < missing_rows as u64
            && let Some(unit) = self.units.next()
        {
            let part = self.begin(unit);
            self.making.push_back(part);
        }
        let Some(Part { places: Range { end, .. }, task }) = self.making.pop_front() else { return Ok(None) };
        let (batch, next) = task.await.map_err(QueryError::from)??;
        if next < end {
            // Before what comes after it.
            let rest = self.begin(Unit { places: next..end });
            self.making.push_front(rest);
        }
        self.batch_bytes = batch.size_bytes();
        Ok(Some(batch))
    }

    fn begin(&self, unit: Unit) -> Part {
        let (source, mut batch) = (self.source.clone(), self.batches.begin());
        let places = unit.places.clone();
        let task = self.engine.spawn(async move {
            let each = |entity: &[u8]| {
                batch.push(entity);
                let enough = batch.size_bytes() >= PART_BYTES;
                if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let next = source.for_each(&unit, each).await?;
            Ok((batch.finish(), next))
        });
        Part { places, task }
    }
}

/// The columns of a row group, encoded by so many tasks, with what these have used before.
async fn encoded(
    engine: &Engine,
    row_group: RowGroup,
    encoders: usize,
    used: &mut Vec<ColumnEncoder>,
) -> Result<Vec<ColumnChunk>, ReadError> {
    let order: Arc<[usize]> = row_group.largest_first().into();
    let (row_group, next) = (Arc::new(row_group), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..encoders)
        .map(|_| {
            let (row_group, order, next) = (row_group.clone(), order.clone(), next.clone());
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
    let (needed_bytes, limit_bytes) = (bytes.len() as u64, engine.most_spilled_bytes());
    if needed_bytes <= WHOLE_BYTES {
        return Ok(in_memory(bytes.clone()));
    }
    if needed_bytes > limit_bytes {
        return Err(ReadError::TooMuchDisk { needed_bytes, limit_bytes });
    }
    let (mut patience, mut pause) = (engine.timeout(), PAUSE);
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
        tokio::time::sleep(pause).await;
        patience = patience.saturating_sub(pause);
        // Each attempt may write the bytes before it finds the disk full.
        pause = (2 * pause).min(LONGEST_PAUSE);
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
    async fn the_first_row_group_waits_for_memory_that_is_given_back() {
        for (wait_s, is_there) in [(600, true), (0, false)] {
            let memory = memory(wait_s);
            let stopped = memory.first().await.expect("room");
            let let_go = async {
                tokio::time::sleep(2 * PAUSE).await;
                drop(stopped);
            };
            let (held, ()) = tokio::join!(memory.first(), let_go);
            assert_eq!(held.is_ok(), is_there, "{:?}", held.err());
        }
    }

    #[tokio::test]
    async fn none_begins_while_one_that_has_begun_waits_for_memory() {
        let memory = memory(600);
        let waits = memory.capacity.admission.waits_for_memory();
        let mut begins = Box::pin(memory.first());
        assert!(tokio::time::timeout(4 * PAUSE, &mut begins).await.is_err());
        drop(waits);
        let (_, footer) = begins.await.expect("room");
        assert_eq!(footer.size(), FOOTER_BYTES);
    }

    /// Those that have begun may wait for each other.
    #[tokio::test]
    async fn one_that_has_begun_goes_on_whatever_others_hold() {
        let memory = memory(600);
        let engine = &memory.capacity.engine;
        let others = engine.reserve("others", MEMORY_BYTES - 1).expect("room");
        let held = memory.again().await;
        assert!(engine.reserve("one more", 1).is_err());
        drop((held, others));
        engine.reserve("all", MEMORY_BYTES).expect("all is given back");
    }
}

//! A Parquet answer: row groups made as fast as the machine can, and read as slowly as clients like.
//!
//! A row group has to be there as a whole before its first byte, so a body holds one while it is made. It is not held
//! for a reader's sake:
//!
//! 1. Its memory is taken before the row group is begun, from [`Admission::parquet`] and from the pool of queries, and
//!    given back when the row group is encoded.
//! 2. Its columns are encoded by a few tasks at once, on the threads of long work if the answer is long.
//! 3. What is encoded goes to disk, and from there to the reader. One row group waits there while the next one is made;
//!    then the work stops until the reader has taken one.
//!
//! Row groups for the cache of exports have no slow reader, so they do not pass through this disk buffer.
//!
//! [`Admission::parquet`]: crate::service::admission::Admission::parquet

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use crate::document::Columns;
use crate::encode::{BatchBuilder, ColumnChunk, ColumnEncoder, EncodeError, ParquetStream, RowGroup};
use crate::metrics::metrics;
use crate::priority::{Priority, SHORT_BYTES};
use crate::query::fetch::spilled::SpilledBytes;
use crate::query::{Engine, QueryError};
use crate::service::admission::capacity::Capacity;
use crate::service::admission::{Permit, WHOLE_BYTES};
use crate::service::export_cache::Taker;
use crate::service::lookup::error::ReadError;
use crate::service::read::AnswerBody;
use crate::service::read::source::{Source, in_order, sent_by_task};

/// Bytes of cells of a part, besides those of its last entity; and parts that are made at once.
const PART_BYTES: usize = 2 << 20;
const PARTS: usize = 2;

/// Columns that are encoded at once, if there are so many threads: each takes memory of its own.
const ENCODERS: usize = 4;

/// Bytes that the service takes at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Between two tries to get memory.
const PAUSE: Duration = Duration::from_millis(50);

/// The memory of a body while it makes a row group.
struct Held {
    _permit: Option<Permit>,
    _memory: MemoryReservation,
}

/// The budgets for the memory of a row group.
struct Memory {
    capacity: Capacity,
    size_bytes: usize,
}

impl Memory {
    /// For the first row group, before there is an answer.
    async fn first(&self) -> Result<Held, ReadError> {
        let (needed_bytes, limit_bytes) = (self.size_bytes as u64, self.capacity.engine().most_memory_bytes());
        if needed_bytes > limit_bytes {
            return Err(ReadError::TooMuchMemory { needed_bytes, limit_bytes });
        }
        let permit = self.capacity.admission().parquet(self.size_bytes as u64).await?;
        let memory = self.capacity.engine().reserve("parquet body", self.size_bytes)?;
        Ok(Held { _permit: Some(permit), _memory: memory })
    }

    /// For another one, once there is: other work ends before long, and gives its memory back.
    async fn again(&self) -> Result<Held, ReadError> {
        let mut patience = self.capacity.engine().timeout();
        loop {
            let permit = self.capacity.admission().parquet_again(self.size_bytes as u64).await;
            match self.capacity.engine().reserve("parquet body", self.size_bytes) {
                Ok(memory) => return Ok(Held { _permit: Some(permit), _memory: memory }),
                Err(error) if patience.is_zero() => return Err(error.into()),
                Err(_) => {}
            }
            // Who cannot go on keeps nobody waiting who can.
            drop(permit);
            tokio::time::sleep(PAUSE).await;
            patience = patience.saturating_sub(PAUSE);
        }
    }
}

/// The part of a row group that a reader gets.
enum Piece {
    Memory(Bytes),
    Disk(SpilledBytes),
}

impl Piece {
    fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        match self {
            Piece::Memory(bytes) => stream::once(async { Ok(bytes) }).boxed(),
            Piece::Disk(spilled) => spilled.into_stream().map_err(ReadError::from).boxed(),
        }
    }
}

/// An answer in Parquet: batches are built several at once, and written by one task in order.
pub(in crate::service) async fn body(
    capacity: &Capacity,
    source: Arc<Source>,
    columns: Arc<Columns>,
    taker: Taker,
) -> Result<AnswerBody, ReadError> {
    let long = source.document_bytes() > SHORT_BYTES;
    let capacity = if long { capacity.at(Priority::Long) } else { capacity.clone() };
    let engine = capacity.engine().clone();
    let row_group_bytes = ParquetStream::row_group_bytes(columns.len());
    // One part waits to be taken.
    let needed_bytes =
        |encoders| ParquetStream::held_bytes(&columns, row_group_bytes, encoders) + PART_BYTES * (PARTS + 1);
    // More than one only where memory is not short.
    let spare_bytes = engine.most_memory_bytes() / 2;
    let most_encoders = engine.threads().min(ENCODERS).min(columns.len());
    let encoders =
        (2..=most_encoders).rev().find(|&encoders| needed_bytes(encoders) as u64 <= spare_bytes).unwrap_or(1);
    let size_bytes = needed_bytes(encoders);
    let place = capacity.admission().stream().await?;
    let memory = Memory { capacity, size_bytes };
    let mut held = Some(memory.first().await?);
    let footer_bytes = ParquetStream::footer_bytes(&columns);
    let footer = engine.reserve("parquet footer", 0)?;
    let mut writer = ParquetStream::try_new(&columns, row_group_bytes).map_err(failed)?;
    let mut batches = in_order(&engine, PARTS, source.units(), move |unit| {
        let (source, columns) = (source.clone(), columns.clone());
        async move {
            let foreseen = (unit.places.end - unit.places.start).saturating_mul(source.mean_bytes());
            let foreseen = usize::try_from(foreseen).unwrap_or(PART_BYTES).min(PART_BYTES);
            let mut batch = BatchBuilder::new(columns).with_room(foreseen);
            let each = |entity: &[u8]| {
                batch.push(entity);
                let enough = batch.size_bytes() >= PART_BYTES;
                if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let next = source.for_each(&unit, each).await?;
            Ok((batch.finish(), next))
        }
    });
    let work = engine.clone();
    let pieces = sent_by_task(&engine, 1, async move |pieces| {
        loop {
            let held = match held.take() {
                Some(held) => held,
                None => memory.again().await?,
            };
            let mut over = false;
            while !writer.is_full() {
                let Some(batch) = batches.try_next().await? else {
                    over = true;
                    break;
                };
                metrics().sent_rows.increment(batch.rows() as u64);
                writer.push(batch);
            }
            footer.try_grow(footer_bytes).map_err(QueryError::from)?;
            if let Some(row_group) = writer.row_group() {
                let encoded = encoded(&work, row_group, encoders).await?;
                writer.write(encoded).map_err(failed)?;
            }
            if over {
                // With the last row group: of a file that comes in one piece, everybody knows the length.
                let bytes = writer.finish().map_err(failed)?;
                let piece = match taker {
                    Taker::Service => Piece::Memory(bytes),
                    Taker::Client => waiting(&work, bytes).await?,
                };
                drop((held, footer, batches));
                // Whether the reader is there makes no difference any more.
                let _ = pieces.send(piece).await;
                return Ok(());
            }
            let bytes = writer.take().map_err(failed)?;
            // The reader is gone: so is the reason to write.
            if !give(&work, bytes, taker, held, &pieces).await? {
                return Ok(());
            }
        }
    });
    // Its place is held until nothing waits for the reader any more.
    let body = pieces.map_ok(Piece::into_stream).try_flatten().inspect(move |_| {
        let _ = &place;
    });
    Ok(AnswerBody::Stream(body.boxed()))
}

/// The columns of a row group, encoded by so many tasks.
async fn encoded(engine: &Engine, row_group: RowGroup, encoders: usize) -> Result<Vec<ColumnChunk>, ReadError> {
    let (row_group, next) = (Arc::new(row_group), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..encoders)
        .map(|_| {
            let (row_group, next) = (row_group.clone(), next.clone());
            engine.spawn(async move {
                let mut encoder = ColumnEncoder::try_new()?;
                let mut chunks = Vec::new();
                loop {
                    let column = next.fetch_add(1, Ordering::Relaxed);
                    if column >= row_group.columns() {
                        return Ok::<_, EncodeError>(chunks);
                    }
                    chunks.push((column, row_group.encode(column, &mut encoder)?));
                    // Between columns others get their turn, and who left stops the work.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    drop(row_group);
    let mut chunks = Vec::new();
    for task in tasks {
        chunks.append(&mut task.await.map_err(QueryError::from)?.map_err(failed)?);
    }
    chunks.sort_unstable_by_key(|(column, _)| *column);
    Ok(chunks.into_iter().map(|(_, chunk)| chunk).collect())
}

/// Gives bytes to who takes them, and lets go of what was held for them. Whether anybody is there.
async fn give(
    engine: &Engine,
    mut bytes: Bytes,
    taker: Taker,
    held: Held,
    pieces: &mpsc::Sender<Piece>,
) -> Result<bool, ReadError> {
    if bytes.is_empty() {
        return Ok(true);
    }
    if taker == Taker::Service {
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            if pieces.send(Piece::Memory(chunk)).await.is_err() {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let piece = waiting(engine, bytes).await?;
    drop(held);
    Ok(pieces.send(piece).await.is_ok())
}

/// Bytes that may wait for their reader for long.
async fn waiting(engine: &Engine, bytes: Bytes) -> Result<Piece, ReadError> {
    match bytes.len() as u64 {
        ..=WHOLE_BYTES => Ok(Piece::Memory(bytes)),
        _ => Ok(Piece::Disk(engine.spill("parquet body", &bytes).await?)),
    }
}

fn failed(error: EncodeError) -> ReadError {
    ReadError::Unreadable(Arc::new(error))
}

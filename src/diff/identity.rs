//! First part of a diff: equal entities of one `_source` match at once; what is left, by `_source`.
//!
//! Every entity becomes a key of [`KEY_BYTES`] bytes: a hash of its `_source`, its canonical hash as stored, its
//! version and its position. DataFusion sorts the keys of both versions, on disk where they do not fit, so that
//! entities that are equal stand next to each other, by position, and those of one `_source` too: one pass over the
//! sorted keys matches the first of v1 with the first of v2, and so on, and leaves the last ones of the longer side.
//! Documents are read only where no shredded column holds the `_source`, and the profile does not tell that there is
//! none.
//!
//! Of lists that have rows in common ([`super::shared`]), only what is left gets keys. They are sorted in memory.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use sha2::{Digest, Sha256};
use strata_format::reader::VersionReader;
use strata_json::CanonicalForm;
use strata_query::QueryError;
use strata_query::account::Accounted;
use strata_query::engine::Spilled;
use strata_query::fetch::pages::Pages;
use strata_query::fields::SOURCE;
use strata_query::scan::sort_key::{OrderSpec, SortColumn};
use strata_query::tasks;
use strata_store::StorageError;

use super::shared::{self, HASH_BYTES, Rest};
use super::{Session, by_row_group};

/// 128 bits each of the hashes of `_source` and entity, a byte for the version, 64 bits of position.
const KEY_BYTES: usize = 41;

const HASHES: Range<usize> = 0..32;
const SOURCE_HASH: Range<usize> = 0..16;
const VERSION: usize = 32;
const POSITION: Range<usize> = 33..41;

/// Entities without an equal one of the same `_source` in the other version.
pub(super) struct Unmatched {
    /// Positions in v1 and v2 whose `_source` leaves none in the other version: ascending within a `_source`.
    pub(super) alone: [Accounted<u64>; 2],
    /// The sources that leave some in both.
    pub(super) contested: Accounted<Contested>,
    /// Positions in v1 and v2 of the entities of contested sources, ascending within a source.
    pub(super) positions: [Accounted<u64>; 2],
    /// For each entity of v1 and v2, how many are equal to it and have its `_source`, itself included, when it is the
    /// first of them; otherwise 0.
    pub(super) multiplicities: [Accounted<u32>; 2],
}

/// A source that leaves entities in both versions: where they are in [`Unmatched::positions`].
pub(super) type Contested = [Range<usize>; 2];

pub(super) async fn unmatched(session: &Session) -> Result<Unmatched, QueryError> {
    if let Some(rest) = Box::pin(shared::rest(session)).await? {
        return Box::pin(unmatched_of(session, &rest)).await;
    }
    let plan = sorted_keys(&session.readers, session.engine.threads())?;
    let _spilled = Spilled(plan.clone());
    let mut keys = execute_stream(plan, session.engine.context().clone())?;
    let mut grouping = Grouping::new(&session.readers, &session.reservation)?;
    while let Some(batch) = keys.next().await {
        for key in batch?.column(0).as_binary::<i32>().iter().flatten() {
            grouping.push(key)?;
        }
    }
    grouping.finish()
}

/// Matches the equal entities of what two versions do not share.
async fn unmatched_of(session: &Session, rest: &Rest) -> Result<Unmatched, QueryError> {
    let mut jobs = Vec::new();
    for (version, reader) in session.readers.iter().enumerate() {
        let positions = &rest.positions[version][..];
        for (row_group, places) in by_row_group(reader, positions, |position| *position) {
            let first = reader.row_groups()[row_group].first;
            let rows: Vec<usize> = positions[places].iter().map(|position| (position - first) as usize).collect();
            let reader = reader.clone();
            jobs.push(async move {
                let mut keys = Vec::with_capacity(rows.len() * KEY_BYTES);
                append_keys(&reader, row_group, version as u8, rows.into_iter(), &mut keys).await?;
                Ok(keys)
            });
        }
    }
    let mut keys: Accounted<[u8; KEY_BYTES]> = Accounted::new(&session.reservation);
    let mut parts = tasks::in_order(jobs.into_iter(), session.engine.threads());
    while let Some(part) = parts.next().await {
        keys.extend(part?.as_chunks::<KEY_BYTES>().0.iter().copied())?;
    }
    keys.items_mut().sort_unstable();
    let mut grouping = Grouping::new(&session.readers, &session.reservation)?;
    for key in keys.iter() {
        grouping.push(key)?;
    }
    let mut found = grouping.finish()?;
    // The others are equal to themselves in both: they count for two, and are read once.
    let multiplicities = found.multiplicities[0].items_mut();
    for position in rest.left_out() {
        multiplicities[position as usize] = 2;
    }
    Ok(found)
}

fn sorted_keys(readers: &[VersionReader; 2], threads: usize) -> Result<Arc<dyn ExecutionPlan>, QueryError> {
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Binary, false)]));
    let keys = Keys { readers: readers.clone(), schema: schema.clone(), threads };
    let keys = StreamingTableExec::try_new(schema, vec![Arc::new(keys)], None, None, false, None)?;
    let options = SortOptions { descending: false, nulls_first: false };
    let ordering = LexOrdering::from([PhysicalSortExpr::new(Arc::new(Column::new("key", 0)), options)]);
    Ok(Arc::new(SortExec::new(ordering, Arc::new(keys))))
}

#[derive(Debug)]
struct Keys {
    readers: [VersionReader; 2],
    schema: SchemaRef,
    threads: usize,
}

impl PartitionStream for Keys {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let readers = self.readers.clone();
        let jobs = tasks::row_groups(&readers).into_iter().map(move |(version, row_group)| {
            let reader = readers[version].clone();
            async move { Ok(keys(&reader, row_group, version as u8).await?) }
        });
        let schema = self.schema.clone();
        let batches =
            tasks::in_order(jobs, self.threads).map(move |keys| Ok(RecordBatch::try_new(schema.clone(), vec![keys?])?));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

async fn keys(reader: &VersionReader, row_group: usize, version: u8) -> Result<ArrayRef, StorageError> {
    let rows = reader.row_groups()[row_group].rows;
    let mut bytes = Vec::with_capacity(rows * KEY_BYTES);
    append_keys(reader, row_group, version, 0..rows, &mut bytes).await?;
    let offsets: Vec<i32> = (0..=rows).map(|row| (row * KEY_BYTES) as i32).collect();
    Ok(Arc::new(BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes.into(), None)?))
}

/// Appends the keys of some rows of a row group, which ascend.
async fn append_keys(
    reader: &VersionReader,
    row_group: usize,
    version: u8,
    rows: impl ExactSizeIterator<Item = usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), StorageError> {
    // Cancelling takes effect between row groups, even when nothing has to be waited for.
    tokio::task::consume_budget().await;
    let group = reader.row_groups()[row_group];
    let hashes = reader.hashes(row_group).await?;
    let hashes = hashes.as_fixed_size_binary();
    let mut sources = Sources::open(reader, row_group, rows.len()).await?;
    for row in rows {
        bytes.extend_from_slice(&sources.hash(row).await?);
        bytes.extend_from_slice(&hashes.value(row)[..HASH_BYTES]);
        bytes.push(version);
        bytes.extend_from_slice(&(group.first + row as u64).to_be_bytes());
    }
    Ok(())
}

/// Hashes of the canonical forms of the `_source`s of a row group: of nothing where there is none.
struct Sources<'a> {
    shredded: Option<SortColumn>,
    /// Whether no entity has one.
    are_none: bool,
    pages: Pages<'a>,
    canonical: CanonicalForm,
    form: Vec<u8>,
    /// The form before, with its hash: often all are the same.
    last: Option<(Vec<u8>, [u8; 16])>,
}

impl<'a> Sources<'a> {
    async fn open(reader: &'a VersionReader, row_group: usize, wanted: usize) -> Result<Sources<'a>, StorageError> {
        let spec = OrderSpec { field: SOURCE.to_owned(), descending: false, denull: false };
        let shredded = SortColumn::open(reader, row_group, &spec).await?;
        // Documents tell what a damaged profile does not.
        let paths = if shredded.is_none() { reader.paths().await.ok() } else { None };
        Ok(Sources {
            shredded,
            are_none: paths.is_some_and(|paths| paths.is_complete() && paths.get(SOURCE).is_none()),
            pages: Pages::of(reader, row_group, wanted, reader.row_groups()[row_group].rows),
            canonical: CanonicalForm::default(),
            form: Vec::new(),
            last: None,
        })
    }

    async fn hash(&mut self, row: usize) -> Result<[u8; 16], StorageError> {
        self.form.clear();
        let text = self.shredded.as_ref().and_then(|shredded| shredded.string_at(row));
        match text.and_then(|text| std::str::from_utf8(text).ok()) {
            Some(text) => strata_json::write_string(text, &mut self.form),
            None if self.are_none => {}
            None => {
                if let Some(value) = strata_json::member(self.pages.document(row).await?, SOURCE) {
                    self.canonical.write(value, &mut self.form);
                }
            }
        }
        match &self.last {
            Some((form, hash)) if *form == self.form => Ok(*hash),
            _ => {
                let mut hash = [0; 16];
                hash.copy_from_slice(&Sha256::digest(&self.form)[..16]);
                let (form, last) = self.last.get_or_insert_default();
                form.clone_from(&self.form);
                *last = hash;
                Ok(hash)
            }
        }
    }
}

struct Grouping {
    found: Unmatched,
    /// The hashes of the entities that come now.
    hashes: Option<[u8; 32]>,
    /// The first of them, by version and position, and how many there were.
    first: (usize, u64),
    count: u32,
    /// Those of them in v1, and how many of these have been matched.
    ones: Accounted<u64>,
    matched: usize,
    /// What the source that comes now has left in each version.
    left: [Accounted<u64>; 2],
}

impl Grouping {
    fn new(readers: &[VersionReader; 2], reservation: &MemoryReservation) -> Result<Grouping, QueryError> {
        let none = |version: usize| Accounted::filled(0, readers[version].entity_count() as usize, reservation);
        let list = || Accounted::new(reservation);
        let found = Unmatched {
            alone: [list(), list()],
            contested: Accounted::new(reservation),
            positions: [list(), list()],
            multiplicities: [none(0)?, none(1)?],
        };
        let left = [list(), list()];
        Ok(Grouping { found, hashes: None, first: (0, 0), count: 0, ones: list(), matched: 0, left })
    }

    fn push(&mut self, key: &[u8]) -> Result<(), QueryError> {
        let damaged = || StorageError::Layout("a key is truncated".to_owned());
        let hashes: [u8; 32] = key.get(HASHES).and_then(|part| part.try_into().ok()).ok_or_else(damaged)?;
        let position = key.get(POSITION).and_then(|part| part.try_into().ok()).map(u64::from_be_bytes);
        let position = position.ok_or_else(damaged)?;
        let version = usize::from(key[VERSION] != 0);
        if self.hashes != Some(hashes) {
            let same_source = self.hashes.is_some_and(|before| before[SOURCE_HASH] == hashes[SOURCE_HASH]);
            self.end_equals()?;
            if !same_source {
                self.end_source()?;
            }
            self.hashes = Some(hashes);
            self.first = (version, position);
        }
        self.count = self.count.saturating_add(1);
        if version == 0 {
            self.ones.push(position)
        } else if self.matched < self.ones.len() {
            self.matched += 1;
            Ok(())
        } else {
            self.left[1].push(position)
        }
    }

    fn end_equals(&mut self) -> Result<(), QueryError> {
        let (version, position) = self.first;
        if let Some(multiplicity) = self.found.multiplicities[version].items_mut().get_mut(position as usize) {
            *multiplicity = self.count;
        }
        self.left[0].extend(self.ones[self.matched..].iter().copied())?;
        self.ones.clear();
        self.matched = 0;
        self.count = 0;
        Ok(())
    }

    fn end_source(&mut self) -> Result<(), QueryError> {
        let contested = self.left.iter().all(|left| !left.is_empty());
        let mut places = [0..0, 0..0];
        for (version, left) in self.left.iter_mut().enumerate() {
            left.items_mut().sort_unstable();
            let to = if contested { &mut self.found.positions[version] } else { &mut self.found.alone[version] };
            let start = to.len();
            to.extend(left.iter().copied())?;
            places[version] = start..to.len();
            left.clear();
        }
        if contested { self.found.contested.push(places) } else { Ok(()) }
    }

    fn finish(mut self) -> Result<Unmatched, QueryError> {
        if self.hashes.is_some() {
            self.end_equals()?;
            self.end_source()?;
        }
        // By the first position in v1, so that the versions are read from front to back.
        let positions = &self.found.positions[0];
        self.found.contested.items_mut().sort_unstable_by_key(|source| positions[source[0].start]);
        Ok(self.found)
    }
}

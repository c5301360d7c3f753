//! Step 1 of a diff: matches equal entities that have the same `_source`, and groups all other entities by `_source`.
//!
//! Every entity becomes a key of [`KEY_BYTES`] bytes: a hash of its `_source`, its stored canonical hash, its version
//! and its position. DataFusion sorts the keys of both versions and spills if necessary. Equal entities are then
//! adjacent, as are all entities with the same `_source`. A single pass over the sorted keys matches the first equal
//! entity of v1 with the first one of v2, and so on, and leaves the surplus of the longer side unmatched.
//!
//! A document is read only if no indexed column contains the `_source`, and if the profile does not show that the
//! version has no `_source`. If the versions share rows ([`super::shared_rows`]), only the other entities get keys.

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
use strata_json::{CanonicalFormWriter, EntityHash};
use strata_query::QueryError;
use strata_query::engine::SpillRecorder;
use strata_query::fetch::document_page_reader::DocumentPageReader;
use strata_query::fields::SOURCE_FIELD;
use strata_query::scan::sort_key::{OrderSpec, SortColumn};
use strata_query::tasks;
use strata_query::tracked_vec::TrackedVec;
use strata_store::StorageError;

use super::shared_rows::{self, UnsharedEntities};
use super::{DiffSession, group_by_row_group};

/// Bytes of a sort key: 16 of the hash of `_source`, 16 of the entity's hash, 1 for the version, 8 for the position.
const KEY_BYTES: usize = 41;

const HASHES_RANGE: Range<usize> = 0..32;
const SOURCE_HASH_RANGE: Range<usize> = 0..16;
const VERSION_OFFSET: usize = 32;
const POSITION_RANGE: Range<usize> = 33..41;

/// The entities of v1 and v2 that have no equal entity with the same `_source` in the other version.
pub(super) struct UnmatchedEntities {
    /// Positions of entities whose `_source` has unmatched entities in only one version, ascending per `_source`.
    pub(super) one_sided: [TrackedVec<u64>; 2],
    pub(super) contested_sources: TrackedVec<ContestedSource>,
    /// Positions of the entities of [contested sources](ContestedSource), ascending within a source.
    pub(super) contested_positions: [TrackedVec<u64>; 2],
    /// For the first of equal entities with equal `_source`, the number of them in both versions; 0 for the others.
    pub(super) multiplicities: [TrackedVec<u32>; 2],
}

/// A contested source: a `_source` with unmatched entities in both versions. Contains two ranges of
/// [`UnmatchedEntities::contested_positions`].
pub(super) type ContestedSource = [Range<usize>; 2];

pub(super) async fn match_equal_entities(session: &DiffSession) -> Result<UnmatchedEntities, QueryError> {
    if let Some(unshared) = Box::pin(shared_rows::find_unshared_entities(session)).await? {
        return Box::pin(match_unshared(session, &unshared)).await;
    }
    let plan = sorted_keys_plan(&session.readers, session.engine.threads())?;
    let _spill_recorder = SpillRecorder(plan.clone());
    let mut keys = execute_stream(plan, session.engine.task_context().clone())?;
    let mut matcher = KeyMatcher::new(&session.readers, &session.reservation)?;
    while let Some(batch) = keys.next().await {
        for key in batch?.column(0).as_binary::<i32>().iter().flatten() {
            matcher.push_key(key)?;
        }
    }
    matcher.finish()
}

async fn match_unshared(session: &DiffSession, unshared: &UnsharedEntities) -> Result<UnmatchedEntities, QueryError> {
    let mut reads = Vec::new();
    for (version, reader) in session.readers.iter().enumerate() {
        let positions = &unshared.positions[version][..];
        for (row_group, range) in group_by_row_group(reader, positions, |position| *position) {
            let first = reader.row_groups()[row_group].first_position;
            let rows: Vec<usize> = positions[range].iter().map(|position| (position - first) as usize).collect();
            let reader = reader.clone();
            reads.push(async move {
                let mut keys = Vec::with_capacity(rows.len() * KEY_BYTES);
                append_match_keys(&reader, row_group, version as u8, rows.into_iter(), &mut keys).await?;
                Ok(keys)
            });
        }
    }
    let mut keys: TrackedVec<[u8; KEY_BYTES]> = TrackedVec::new(&session.reservation);
    let mut key_chunks = tasks::run_in_order(reads.into_iter(), session.engine.threads());
    while let Some(chunk) = key_chunks.next().await {
        keys.try_extend(chunk?.as_chunks::<KEY_BYTES>().0.iter().copied())?;
    }
    keys.as_mut_slice().sort_unstable();
    let mut matcher = KeyMatcher::new(&session.readers, &session.reservation)?;
    for key in keys.iter() {
        matcher.push_key(key)?;
    }
    let mut unmatched = matcher.finish()?;
    // A shared row that was excluded from the matching counts as two equal entities, one in each version.
    let multiplicities = unmatched.multiplicities[0].as_mut_slice();
    for position in unshared.skipped_shared_v1_positions() {
        multiplicities[position as usize] = 2;
    }
    Ok(unmatched)
}

fn sorted_keys_plan(readers: &[VersionReader; 2], threads: usize) -> Result<Arc<dyn ExecutionPlan>, QueryError> {
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Binary, false)]));
    let keys = MatchKeyStream { readers: readers.clone(), schema: schema.clone(), threads };
    let keys = StreamingTableExec::try_new(schema, vec![Arc::new(keys)], None, None, false, None)?;
    let options = SortOptions { descending: false, nulls_first: false };
    let ordering = LexOrdering::from([PhysicalSortExpr::new(Arc::new(Column::new("key", 0)), options)]);
    Ok(Arc::new(SortExec::new(ordering, Arc::new(keys))))
}

#[derive(Debug)]
struct MatchKeyStream {
    readers: [VersionReader; 2],
    schema: SchemaRef,
    threads: usize,
}

impl PartitionStream for MatchKeyStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let readers = self.readers.clone();
        let reads = tasks::row_groups_of_both(&readers).into_iter().map(move |(version, row_group)| {
            let reader = readers[version].clone();
            async move { Ok(read_match_keys(&reader, row_group, version as u8).await?) }
        });
        let schema = self.schema.clone();
        let batches = tasks::run_in_order(reads, self.threads)
            .map(move |keys| Ok(RecordBatch::try_new(schema.clone(), vec![keys?])?));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

async fn read_match_keys(reader: &VersionReader, row_group: usize, version: u8) -> Result<ArrayRef, StorageError> {
    let rows = reader.row_groups()[row_group].rows;
    let mut bytes = Vec::with_capacity(rows * KEY_BYTES);
    append_match_keys(reader, row_group, version, 0..rows, &mut bytes).await?;
    let offsets: Vec<i32> = (0..=rows).map(|row| (row * KEY_BYTES) as i32).collect();
    Ok(Arc::new(BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes.into(), None)?))
}

/// Appends the sort keys of the entities in `rows`, which must be in ascending order.
async fn append_match_keys(
    reader: &VersionReader,
    row_group: usize,
    version: u8,
    rows: impl ExactSizeIterator<Item = usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), StorageError> {
    // All reads below can complete without waiting, so this is the point at which a diff can be canceled.
    tokio::task::consume_budget().await;
    let group = reader.row_groups()[row_group];
    let hashes = reader.read_entity_hashes(row_group).await?;
    let hashes = hashes.as_fixed_size_binary();
    let mut sources = SourceFieldHasher::open(reader, row_group, rows.len()).await?;
    for row in rows {
        bytes.extend_from_slice(&sources.hash_source_field(row).await?);
        bytes.extend_from_slice(hashes.value(row));
        bytes.push(version);
        bytes.extend_from_slice(&(group.first_position + row as u64).to_be_bytes());
    }
    Ok(())
}

/// Hashes the canonical form of `_source` for rows of a row group. A missing `_source` hashes as the empty string.
struct SourceFieldHasher<'a> {
    indexed_column: Option<SortColumn>,
    has_no_sources: bool,
    pages: DocumentPageReader<'a>,
    canonical: CanonicalFormWriter,
    canonical_buffer: Vec<u8>,
    /// The canonical form of the previous `_source` with its hash, because many entities often have the same `_source`.
    last_hashed: Option<(Vec<u8>, EntityHash)>,
}

impl<'a> SourceFieldHasher<'a> {
    async fn open(reader: &'a VersionReader, row_group: usize, rows: usize) -> Result<Self, StorageError> {
        let spec = OrderSpec { field: SOURCE_FIELD.to_owned(), descending: false, denull: false };
        let indexed_column = SortColumn::open(reader, row_group, &spec).await?;
        // If the profile cannot be read, the documents are read instead.
        let paths = if indexed_column.is_none() { reader.profile_paths().await.ok() } else { None };
        Ok(SourceFieldHasher {
            indexed_column,
            has_no_sources: paths.is_some_and(|paths| paths.is_complete() && paths.get(SOURCE_FIELD).is_none()),
            pages: DocumentPageReader::for_rows(reader, row_group, rows, reader.row_groups()[row_group].rows),
            canonical: CanonicalFormWriter::default(),
            canonical_buffer: Vec::new(),
            last_hashed: None,
        })
    }

    async fn hash_source_field(&mut self, row: usize) -> Result<EntityHash, StorageError> {
        self.canonical_buffer.clear();
        let text = self.indexed_column.as_ref().and_then(|column| column.string_at(row));
        match text.and_then(|text| std::str::from_utf8(text).ok()) {
            Some(text) => strata_json::write_json_string(text, &mut self.canonical_buffer),
            None if self.has_no_sources => {}
            None => {
                if let Some(value) = strata_json::find_member(self.pages.document(row).await?, SOURCE_FIELD) {
                    self.canonical.write(value, &mut self.canonical_buffer);
                }
            }
        }
        match &self.last_hashed {
            Some((form, hash)) if *form == self.canonical_buffer => Ok(*hash),
            _ => {
                let hash = strata_json::truncate_sha256(Sha256::new_with_prefix(&self.canonical_buffer));
                let (last_form, last_hash) = self.last_hashed.get_or_insert_default();
                last_form.clone_from(&self.canonical_buffer);
                *last_hash = hash;
                Ok(hash)
            }
        }
    }
}

/// Matches equal entities in one pass over the sorted keys of both versions.
struct KeyMatcher {
    unmatched: UnmatchedEntities,
    /// The hashes of `_source` and entity, which are equal for all entities of the current group of equal entities.
    current_hashes: Option<[u8; 32]>,
    /// The version and the position of the first entity of the current group of equal entities.
    first_equal: (usize, u64),
    equal_count: u32,
    /// The positions in v1 of the entities of the current group. The first `matched_count` of them have been matched.
    v1_positions: TrackedVec<u64>,
    matched_count: usize,
    unmatched_of_source: [TrackedVec<u64>; 2],
}

impl KeyMatcher {
    fn new(readers: &[VersionReader; 2], reservation: &MemoryReservation) -> Result<KeyMatcher, QueryError> {
        let zeros = |version: usize| TrackedVec::from_elem(0, readers[version].entity_count() as usize, reservation);
        let list = || TrackedVec::new(reservation);
        let unmatched = UnmatchedEntities {
            one_sided: [list(), list()],
            contested_sources: TrackedVec::new(reservation),
            contested_positions: [list(), list()],
            multiplicities: [zeros(0)?, zeros(1)?],
        };
        Ok(KeyMatcher {
            unmatched,
            current_hashes: None,
            first_equal: (0, 0),
            equal_count: 0,
            v1_positions: list(),
            matched_count: 0,
            unmatched_of_source: [list(), list()],
        })
    }

    fn push_key(&mut self, key: &[u8]) -> Result<(), QueryError> {
        let damaged = || StorageError::InvalidFile("a key is truncated".to_owned());
        let hashes: [u8; 32] = key.get(HASHES_RANGE).and_then(|part| part.try_into().ok()).ok_or_else(damaged)?;
        let position = key.get(POSITION_RANGE).and_then(|part| part.try_into().ok()).map(u64::from_be_bytes);
        let position = position.ok_or_else(damaged)?;
        let version = usize::from(key[VERSION_OFFSET] != 0);
        if self.current_hashes != Some(hashes) {
            let same_source =
                self.current_hashes.is_some_and(|current| current[SOURCE_HASH_RANGE] == hashes[SOURCE_HASH_RANGE]);
            self.finish_equal_group()?;
            if !same_source {
                self.finish_source_group()?;
            }
            self.current_hashes = Some(hashes);
            self.first_equal = (version, position);
        }
        self.equal_count = self.equal_count.saturating_add(1);
        if version == 0 {
            self.v1_positions.try_push(position)
        } else if self.matched_count < self.v1_positions.len() {
            self.matched_count += 1;
            Ok(())
        } else {
            self.unmatched_of_source[1].try_push(position)
        }
    }

    fn finish_equal_group(&mut self) -> Result<(), QueryError> {
        let (version, position) = self.first_equal;
        if let Some(multiplicity) = self.unmatched.multiplicities[version].as_mut_slice().get_mut(position as usize) {
            *multiplicity = self.equal_count;
        }
        self.unmatched_of_source[0].try_extend(self.v1_positions[self.matched_count..].iter().copied())?;
        self.v1_positions.clear();
        self.matched_count = 0;
        self.equal_count = 0;
        Ok(())
    }

    fn finish_source_group(&mut self) -> Result<(), QueryError> {
        let is_contested = self.unmatched_of_source.iter().all(|positions| !positions.is_empty());
        let mut ranges = [0..0, 0..0];
        for (version, positions) in self.unmatched_of_source.iter_mut().enumerate() {
            positions.as_mut_slice().sort_unstable();
            let UnmatchedEntities { one_sided, contested_positions, .. } = &mut self.unmatched;
            let target = if is_contested { &mut contested_positions[version] } else { &mut one_sided[version] };
            let start = target.len();
            target.try_extend(positions.iter().copied())?;
            ranges[version] = start..target.len();
            positions.clear();
        }
        if is_contested { self.unmatched.contested_sources.try_push(ranges) } else { Ok(()) }
    }

    fn finish(mut self) -> Result<UnmatchedEntities, QueryError> {
        if self.current_hashes.is_some() {
            self.finish_equal_group()?;
            self.finish_source_group()?;
        }
        // Contested sources are sorted by their first position in v1, so that the versions are read sequentially.
        let positions = &self.unmatched.contested_positions[0];
        self.unmatched.contested_sources.as_mut_slice().sort_unstable_by_key(|source| positions[source[0].start]);
        Ok(self.unmatched)
    }
}

//! Compares two versions: finds the added, subtracted and modified entities.
//!
//! 1. Equal entities with the same `_source` match (`exact_matching`). Rows that both versions share in one file match
//!    without a read (`shared_rows`). Entities of a `_source` that remain in only one version are added or subtracted.
//! 2. If a `_source` has unmatched entities in both versions, every field gets a weight (`field_weights`,
//!    `distinct_values`), the fields of these entities are read (`entity_features`), and similar entities match
//!    (`similarity_matching`). Other nodes can read a part of the documents.
//! 3. The result is a list of positions ([`changes`]), from which [`change_records`] encodes records on request.
//!
//! Values of `_source` are compared as JSON, as in `dedup`. A missing `_source` equals only a missing one.
//!
//! The keys of step 1 and the distinct values of step 2 spill to disk. The engine's memory pool accounts for everything
//! else: 4 bytes per entity, 16 bytes per change, the field names, and 16 bytes per field of the entities that are
//! matched together (about 256 MiB of documents, or a single larger source). If the pool refuses a reservation, the
//! diff fails with [`QueryError::OutOfMemory`], or with [`QueryError::TooMuchMemory`] if no other query uses memory.
//!
//! DataFusion sorts the keys, because that takes the same time for any distribution of sources and entities. Step 2 is
//! not a query plan: a join on values would materialize every pair of entities that share a value.

pub mod change_records;
pub mod changes;
mod distinct_values;
mod entity_features;
mod exact_matching;
mod field_weights;
pub mod patch;
mod shared_rows;
mod similarity_matching;

pub use changes::{ChangeCursor, ChangeList, ChangeType, DiffChange, DiffPage};
pub use similarity_matching::DiffLimits;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::execute_stream;
use strata_format::reader::VersionReader;
use strata_query::fields::entity_counts::DiffEntityCounts;
use strata_query::fields::field_hash::HashSeeds;
use strata_query::fields::field_scan::{FieldScan, FieldScanOutput};
use strata_query::tracked_vec::TrackedVec;
use strata_query::{QueryEngine, QueryError, distribution};

use self::changes::NO_POSITION;
use self::entity_features::EntityFeatures;
use self::exact_matching::{ContestedSource, UnmatchedEntities};
use self::field_weights::FieldWeights;
use self::similarity_matching::SameSourceEntities;

/// Approximate maximum bytes of the documents whose fields are in memory at once, unless one `_source` has more.
const MAX_CHUNK_DOCUMENT_BYTES: u64 = 256 << 20;

/// Maximum number of entities whose fields are in memory at once, unless one `_source` has more.
const MAX_CHUNK_ENTITIES: u64 = 1 << 19;

#[derive(Clone)]
struct DiffSession {
    readers: [VersionReader; 2],
    engine: QueryEngine,
    seeds: HashSeeds,
    reservation: Arc<MemoryReservation>,
    deadline: Instant,
}

impl DiffSession {
    /// Scans the fields of `entities` on several nodes and passes the batches to `collect`. Returns `None` if this node
    /// must read all entities itself, because the scan is small or failed.
    async fn run_distributed<T, F>(
        &self,
        entities: DiffEntityCounts,
        output: FieldScanOutput,
        collect: impl FnOnce(SendableRecordBatchStream) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, QueryError>>,
    {
        let distributor = self.engine.distributor()?;
        let scan = FieldScan::new(&self.readers, entities, output, self.seeds, self.engine.threads());
        let plan =
            distributor.distribute(&(Arc::new(scan) as _), self.engine.task_context(), self.engine.principal()).await?;
        let collected = async { collect(execute_stream(plan.plan.clone(), plan.context.clone())?).await };
        let max_time = distribution::max_distributed_time(self.deadline.saturating_duration_since(Instant::now()));
        distribution::await_distributed(&**distributor, &plan, max_time, collected).await.ok()
    }
}

/// Compares two versions. To cancel the diff, drop the future.
///
/// # Errors
/// [`QueryError::Timeout`], [`QueryError::OutOfMemory`] and [`QueryError::TooMuchMemory`] if a limit of the engine is
/// exceeded, and any error of reading a version.
pub async fn compare(
    engine: &QueryEngine,
    v1: VersionReader,
    v2: VersionReader,
    limits: DiffLimits,
) -> Result<ChangeList, QueryError> {
    let task_engine = engine.clone();
    let work = async move { compare_versions([v1, v2], &limits, task_engine).await };
    engine.run_with_timeout(engine.diff_timeout(), work).await
}

async fn compare_versions(
    readers: [VersionReader; 2],
    limits: &DiffLimits,
    engine: QueryEngine,
) -> Result<ChangeList, QueryError> {
    let session = DiffSession {
        readers,
        seeds: HashSeeds::random(),
        reservation: Arc::new(MemoryConsumer::new("diff").register(engine.task_context().memory_pool())),
        deadline: Instant::now() + engine.diff_timeout(),
        engine,
    };
    let UnmatchedEntities { one_sided, contested_sources, contested_positions, multiplicities } =
        Box::pin(exact_matching::match_equal_entities(&session)).await?;
    let mut v1_changes = TrackedVec::new(&session.reservation);
    let [subtracted, mut added] = one_sided;
    v1_changes.try_extend(subtracted.iter().map(|v1| (*v1, NO_POSITION)))?;
    drop(subtracted);
    if contested_sources.is_empty() {
        drop(multiplicities);
    } else {
        let weights = field_weights::compute_weights(&session, multiplicities).await?;
        let mut start = 0;
        while start < contested_sources.len() {
            let count = count_sources_that_fit(&session.readers, &contested_sources[start..]);
            let chunk = &contested_sources[start..start + count];
            start += chunk.len();
            match_sources(&session, limits, &weights, chunk, &contested_positions, &mut v1_changes, &mut added).await?;
        }
    }
    v1_changes.as_mut_slice().sort_unstable();
    added.as_mut_slice().sort_unstable();
    let modified_count = v1_changes.iter().filter(|(_, v2)| *v2 != NO_POSITION).count() as u64;
    let [total_v1, total_v2] = [0, 1].map(|version: usize| session.readers[version].entity_count());
    let (v1_changes, v1_reservation) = v1_changes.into_parts();
    let (added_positions, added_reservation) = added.into_parts();
    Ok(ChangeList {
        total_v1,
        total_v2,
        modified_count,
        v1_changes,
        added_positions,
        reservations: Some([v1_reservation, added_reservation]),
    })
}

/// Groups items with ascending positions by row group. Returns each row group with the range of its items.
fn group_by_row_group<T>(
    reader: &VersionReader,
    items: &[T],
    position: impl Fn(&T) -> u64,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let row_group = reader.row_group_at(position(items.get(start)?));
        let group = reader.row_groups()[row_group];
        let end = start + items[start..].partition_point(|item| group.contains(position(item)));
        Some((row_group, std::mem::replace(&mut start, end)..end))
    })
}

/// Returns how many contested `_source` values, from the first on, can be matched at once in memory; at least 1.
fn count_sources_that_fit(readers: &[VersionReader; 2], contested_sources: &[ContestedSource]) -> usize {
    let mean_document_bytes = readers.each_ref().map(|reader| {
        let layout = reader.layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    });
    let mut bytes = 0;
    let mut entities = 0;
    let fits = |source: &&ContestedSource| {
        for (range, mean) in source.iter().zip(mean_document_bytes) {
            bytes += range.len() as u64 * mean;
            entities += range.len() as u64;
        }
        bytes <= MAX_CHUNK_DOCUMENT_BYTES && entities <= MAX_CHUNK_ENTITIES
    };
    contested_sources.iter().take_while(fits).count().max(1)
}

/// Matches the entities of several `_source` values, and appends the changes to `v1_changes` and `added`.
async fn match_sources(
    session: &DiffSession,
    limits: &DiffLimits,
    weights: &FieldWeights,
    chunk: &[ContestedSource],
    contested_positions: &[TrackedVec<u64>; 2],
    v1_changes: &mut TrackedVec<(u64, u64)>,
    added: &mut TrackedVec<u64>,
) -> Result<(), QueryError> {
    let mut positions = [TrackedVec::new(&session.reservation), TrackedVec::new(&session.reservation)];
    for source in chunk {
        for version in [0, 1] {
            positions[version].try_extend(contested_positions[version][source[version].clone()].iter().copied())?;
        }
    }
    let v1_features = EntityFeatures::read(session, 0, &positions[0], weights).await?;
    let v2_features = EntityFeatures::read(session, 1, &positions[1], weights).await?;
    let mut is_matched: TrackedVec<bool> = TrackedVec::new(&session.reservation);
    let mut partners: TrackedVec<u64> = TrackedVec::new(&session.reservation);
    let mut starts = [0, 0];
    for source in chunk {
        let [v1_count, v2_count] = [0, 1].map(|version: usize| source[version].len());
        let sides = [
            SameSourceEntities { features: &v1_features, first_entity: starts[0], count: v1_count },
            SameSourceEntities { features: &v2_features, first_entity: starts[1], count: v2_count },
        ];
        let v1 = &positions[0][starts[0]..starts[0] + v1_count];
        let v2 = &positions[1][starts[1]..starts[1] + v2_count];
        starts = [starts[0] + v1_count, starts[1] + v2_count];
        is_matched.clear();
        is_matched.try_extend(std::iter::repeat_n(false, v2_count))?;
        partners.clear();
        partners.try_extend(std::iter::repeat_n(NO_POSITION, v1_count))?;
        let on_match = |v1_entity: usize, v2_entity: usize| {
            partners.as_mut_slice()[v1_entity] = v2[v2_entity];
            is_matched.as_mut_slice()[v2_entity] = true;
        };
        similarity_matching::match_same_source(session, limits, &weights.by_rank, sides, on_match).await?;
        v1_changes.try_extend(v1.iter().copied().zip(partners.iter().copied()))?;
        for (position, is_matched) in v2.iter().zip(is_matched.iter()) {
            if !is_matched {
                added.try_push(*position)?;
            }
        }
    }
    Ok(())
}

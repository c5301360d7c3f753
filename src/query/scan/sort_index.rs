//! Sort indexes: the order of all entities by an indexed column, in the cache ([`ColumnSortIndex`]). With a sort index,
//! a sort with a limit reads no column, regardless of the version's size.
//!
//! A build takes much longer than a scan for the first entities. One scan caches the first thousand entities
//! ([`cached_response`](crate::cached_response)). Sorts for later entities without a sort index count the entities that
//! they scan, and a background task builds the index after [`BUILD_THRESHOLD`] scans of all entities. A sort that
//! returns a large part of the entities builds the index at once ([`is_built_at_once`]).
//!
//! 1. Several threads read the columns of row groups and rank their rows ([`SortColumn::compute_ranks`]).
//! 2. All positions are sorted by rank.
//! 3. Entities with the same rank are sorted by their complete values.
//!
//! The build yields regularly, so it ends with its query. There is no sort index if a document must decide the order of
//! an entity, or if millions of different values share ranks, such as long strings that differ only at the end.
//!
//! Measured by the rows `sort by …, limit 100` of `benches/reads`.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::Time;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use strata_format::aux_index::{AuxKey, AuxLookup, ColumnSortIndex};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::scan::aux_index_build;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_metrics::with_busy_timer;
use crate::scan::sort_key::{OrderSpec, SortColumn, shared_prefix_bytes, sortable_column};
use crate::scan::sort_rank::{EMPTY_STRING_RANK, LAST_RANK, RowRanks};

/// Before a sort index is built in the background, sorts scan this many times all entities of the version.
const BUILD_THRESHOLD: u64 = 2;
/// A sort builds a missing sort index at once if it needs at least this part of the entities, because a scan would then
/// return most rows to the operator that sorts them.
const BUILD_AT_ONCE_DIVISOR: u64 = 8;
/// Bytes of memory for each entity while a sort index is built, in addition to the strings of the column.
const BUILD_BYTES_PER_ENTITY: u64 = 64;
const YIELD_EVERY_ENTITIES: usize = 16_384;
const ENTITY_WORK_BYTES: usize = 4;
const COMPARISON_WORK_BYTES: usize = 64;
/// Max entities that share their sort rank with another value, or a quarter of all entities if that is more.
const MAX_TIED_ENTITIES: usize = 2_000_000;

pub(crate) async fn cached_sort_index(reader: &VersionReader, spec: &OrderSpec) -> AuxLookup<ColumnSortIndex> {
    match sortable_column(reader.layout(), &spec.field) {
        Some(shredded) => reject_if_unusable(reader.cached_aux_index(AuxKey::SortIndex(shredded as u32)).await, spec),
        None => AuxLookup::Unsupported,
    }
}

/// Rejects a sort index if empty strings count as missing (`denull`) and there are any, because its order would differ.
fn reject_if_unusable(found: AuxLookup<ColumnSortIndex>, spec: &OrderSpec) -> AuxLookup<ColumnSortIndex> {
    match found {
        AuxLookup::Hit(order) if spec.denull && order.has_empty_string => AuxLookup::Unsupported,
        found => found,
    }
}

/// Whether a sort of a version builds a missing sort index before it returns its first `k` entities.
pub(crate) fn is_built_at_once(reader: &VersionReader, k: u64) -> bool {
    k >= reader.entity_count() / BUILD_AT_ONCE_DIVISOR
}

/// Returns the counter of scanned entities for a column without a sort index. Starts to build the index if it is due.
pub(super) async fn scan_counter_triggering_build(
    reader: &VersionReader,
    spec: &OrderSpec,
    memory: &MemoryReservation,
) -> Option<Arc<AtomicU64>> {
    let shredded = sortable_column(reader.layout(), &spec.field)?;
    let count = aux_index_build::scan_counter(reader, AuxKey::SortScanCount(shredded as u32)).await?;
    aux_index_build::spawn_if_due(&count, BUILD_THRESHOLD * reader.entity_count(), || {
        let reader = reader.without_metrics_and_readahead();
        let memory = memory.new_empty();
        let spec = spec.clone();
        async move {
            let reader = &reader;
            let spec = &spec;
            let shared_bytes = shared_prefix_bytes(reader, &spec.field);
            let row_groups = stream::iter(0..reader.row_groups().len());
            let ranked_column = |row_group| async move {
                tokio::task::yield_now().await;
                rank_column(reader, row_group, spec, shared_bytes).await
            };
            let columns = row_groups.then(ranked_column).boxed();
            if let Err(error) = build_index(reader, spec, columns, &memory, &Time::new()).await {
                tracing::debug!(%error, field = spec.field, "failed to build sort index");
            }
        }
    });
    Some(count)
}

/// Builds a sort index from the columns of all row groups ([`rank_column`]). Adds the time that this keeps a thread
/// busy, except for reading the columns.
pub(super) async fn build_index(
    reader: &VersionReader,
    spec: &OrderSpec,
    columns: BoxStream<'_, Result<Option<RankedColumn>, StorageError>>,
    memory: &MemoryReservation,
    time: &Time,
) -> Result<AuxLookup<ColumnSortIndex>, StorageError> {
    let Some(shredded) = sortable_column(reader.layout(), &spec.field) else { return Ok(AuxLookup::Unsupported) };
    let working_bytes =
        reader.entity_count().saturating_mul(BUILD_BYTES_PER_ENTITY) + reader.shredded_uncompressed_bytes(shredded);
    let order = async {
        match RankedEntities::from_columns(reader, columns).await? {
            Some(ranked) => Ok(with_busy_timer(time, ranked.into_sort_index()).await),
            None => Ok(None),
        }
    };
    let key = AuxKey::SortIndex(shredded as u32);
    Ok(reject_if_unusable(aux_index_build::build_or_wait(reader, key, working_bytes, memory, order).await?, spec))
}

pub(super) struct RankedColumn {
    column: SortColumn,
    ranks: Vec<u64>,
}

/// Ranks the rows of a row group for a sort. `None` if a document must decide the order of a row.
pub(super) async fn rank_column(
    reader: &VersionReader,
    row_group: usize,
    spec: &OrderSpec,
    shared_bytes: usize,
) -> Result<Option<RankedColumn>, StorageError> {
    let ascending = OrderSpec { field: spec.field.clone(), descending: false, denull: false };
    let Some(column) = SortColumn::open(reader, row_group, &ascending).await? else { return Ok(None) };
    let rows = RowSelection::Range(0..reader.row_groups()[row_group].rows);
    let RowRanks { ranks, needs_documents } = column.compute_ranks(&ascending, shared_bytes, &rows);
    Ok((!needs_documents).then_some(RankedColumn { column, ranks }))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedEntity {
    rank: u64,
    position: u32,
}

struct RankedEntities {
    entities: Vec<RankedEntity>,
    /// The number of entities with a sort value. Entities without one come last.
    sortable_count: usize,
    has_empty_string: bool,
    columns: Vec<(u32, SortColumn)>,
}

impl RankedEntities {
    /// Ranks all entities by the columns of the row groups. Returns `None` if a document must decide the order.
    async fn from_columns(
        reader: &VersionReader,
        mut columns: BoxStream<'_, Result<Option<RankedColumn>, StorageError>>,
    ) -> Result<Option<RankedEntities>, StorageError> {
        let entities = Vec::with_capacity(usize::try_from(reader.entity_count()).unwrap_or_default());
        let mut all = RankedEntities { entities, sortable_count: 0, has_empty_string: false, columns: Vec::new() };
        while let Some(ranked) = columns.try_next().await? {
            let Some(RankedColumn { column, ranks }) = ranked else { return Ok(None) };
            all.sortable_count += ranks.iter().filter(|rank| **rank < LAST_RANK).count();
            all.has_empty_string |= ranks.contains(&EMPTY_STRING_RANK);
            let first = all.entities.len() as u32;
            all.columns.push((first, column));
            all.entities.extend(ranks.into_iter().zip(first..).map(|(rank, position)| RankedEntity { rank, position }));
        }
        Ok(Some(all))
    }

    /// Sorts the ranked entities by value. Returns `None` if too many entities share a rank.
    async fn into_sort_index(mut self) -> Option<ColumnSortIndex> {
        let mut entities = std::mem::take(&mut self.entities);
        sort_yielding(&mut entities, Ord::cmp).await;
        let max_tied = MAX_TIED_ENTITIES.max(entities.len() / 4);
        let mut value_starts = vec![0_u64; entities.len().div_ceil(64)];
        let mut set_start = |index: usize| value_starts[index / 64] |= 1 << (index % 64);
        let mut budget = YieldBudget::default();
        let mut tied = 0;
        let mut end = 0;
        for run in entities[..self.sortable_count].chunk_by_mut(|one, other| one.rank == other.rank) {
            let first = end;
            end += run.len();
            set_start(first);
            budget.yield_after(ENTITY_WORK_BYTES).await;
            let mut is_one_value = true;
            for pair in run.windows(2) {
                is_one_value = self.compare_values(pair[0], pair[1]) == Ordering::Equal;
                if !is_one_value {
                    break;
                }
                budget.yield_after(COMPARISON_WORK_BYTES).await;
            }
            if is_one_value {
                continue;
            }
            tied += run.len();
            if tied > max_tied {
                return None;
            }
            sort_yielding(run, |a, b| self.compare_values(*a, *b).then(a.position.cmp(&b.position))).await;
            budget.yield_after(run.len() * COMPARISON_WORK_BYTES).await;
            for (pair, index) in run.windows(2).zip(first + 1..) {
                if self.compare_values(pair[0], pair[1]) != Ordering::Equal {
                    set_start(index);
                }
                budget.yield_after(COMPARISON_WORK_BYTES).await;
            }
        }
        let positions = entities.into_iter().map(|entity| entity.position).collect();
        let RankedEntities { sortable_count: value_count, has_empty_string, .. } = self;
        Some(ColumnSortIndex { positions, value_starts, value_count, has_empty_string })
    }

    fn compare_values(&self, one: RankedEntity, other: RankedEntity) -> Ordering {
        let find = |position: u32| {
            let group = self.columns.partition_point(|(first, _)| *first <= position) - 1;
            let (first, column) = &self.columns[group];
            (column, (position - first) as usize)
        };
        let (one_column, one) = find(one.position);
        let (other_column, other) = find(other.position);
        one_column.compare_values(one, other_column, other)
    }
}

/// Sorts a slice, and yields to the runtime between parts. `compare` must not consider two entries equal.
async fn sort_yielding<T>(entries: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut budget = YieldBudget::default();
    let mut parts = vec![entries];
    while let Some(part) = parts.pop() {
        budget.yield_after(part.len() * COMPARISON_WORK_BYTES).await;
        if part.len() <= YIELD_EVERY_ENTITIES {
            part.sort_unstable_by(&compare);
        } else {
            let middle = part.len() / 2;
            part.select_nth_unstable_by(middle, &compare);
            let (low, high) = part.split_at_mut(middle);
            parts.extend([low, high]);
        }
    }
}

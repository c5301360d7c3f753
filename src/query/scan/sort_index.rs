//! Sort indexes: the order of all entities by an indexed column, in the cache ([`ColumnOrder`]). The first query that
//! needs a sort index builds it. Later queries read the first entities of the order from it, regardless of the size of
//! the version.
//!
//! 1. Several threads read the columns of row groups and compute the ranks of their rows ([`SortColumn::ranks`]).
//! 2. All positions are sorted by rank.
//! 3. Entities with the same rank are sorted by their complete values.
//!
//! Building yields regularly, so it ends with its query. There is no sort index if a document must decide the order of
//! an entity, or if millions of different values share ranks, such as strings with a common prefix.
//!
//! Measured by the rows `sort by …, limit 100` of `benches/reads`.

use std::cmp::Ordering;

use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::Time;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use strata_format::aux_index::{AuxKey, AuxLookup, ColumnOrder};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::scan::aux_index;
use crate::scan::metrics::timed;
use crate::scan::row_selection::RowSelection;
use crate::scan::sort_key::{OrderSpec, Ranks, SortColumn, order_column};

/// Bytes of memory for each entity during the build, in addition to the strings of the column.
const BUILD_BYTES: u64 = 64;

/// Entities that are sorted between two yields.
const MAX_SORTED: usize = 16_384;

/// The work of an entity and of a comparison, in bytes.
const ENTITY_BYTES: usize = 4;
const COMPARISON_BYTES: usize = 64;

/// This many entities can share their rank with another value, or a quarter of all if that is more.
const MAX_UNEQUAL: usize = 2_000_000;

/// The rank of the empty string, and of strings that begin with NUL.
const EMPTY_RANK: u64 = 2 << 61;

/// The sort index for a sort, if the cache contains it.
pub(crate) async fn lookup(reader: &VersionReader, spec: &OrderSpec) -> AuxLookup<ColumnOrder> {
    match order_column(reader.layout(), &spec.field) {
        Some(shredded) => serving(reader.aux_index(AuxKey::Order(shredded as u32)).await, spec),
        None => AuxLookup::Unsupported,
    }
}

/// If empty strings count as missing, the order is another one.
fn serving(found: AuxLookup<ColumnOrder>, spec: &OrderSpec) -> AuxLookup<ColumnOrder> {
    match found {
        AuxLookup::Hit(order) if spec.denull && order.holds_empty => AuxLookup::Unsupported,
        found => found,
    }
}

/// Builds the sort index for a sort from the columns of all row groups ([`ranked_column`]). Adds the time that this
/// keeps a thread busy, except for reading the columns.
pub(super) async fn build(
    reader: &VersionReader,
    spec: &OrderSpec,
    columns: BoxStream<'_, Result<Option<RankedColumn>, StorageError>>,
    memory: &MemoryReservation,
    time: &Time,
) -> Result<AuxLookup<ColumnOrder>, StorageError> {
    let Some(shredded) = order_column(reader.layout(), &spec.field) else { return Ok(AuxLookup::Unsupported) };
    let working_bytes = reader.entity_count().saturating_mul(BUILD_BYTES) + reader.shredded_bytes(shredded);
    let order = async {
        match RankedEntities::read(reader, columns).await? {
            Some(ranked) => Ok(timed(time, ranked.sort()).await),
            None => Ok(None),
        }
    };
    let key = AuxKey::Order(shredded as u32);
    Ok(serving(aux_index::build(reader, key, working_bytes, memory, order).await?, spec))
}

/// The column of a row group, and the rank of each row, ascending.
pub(super) struct RankedColumn {
    column: SortColumn,
    ranks: Vec<u64>,
}

/// The ranked column of a row group. `None` if a document must decide the order of a row.
pub(super) async fn ranked_column(
    reader: &VersionReader,
    row_group: usize,
    spec: &OrderSpec,
) -> Result<Option<RankedColumn>, StorageError> {
    let ascending = OrderSpec { field: spec.field.clone(), descending: false, denull: false };
    let Some(column) = SortColumn::open(reader, row_group, &ascending).await? else { return Ok(None) };
    let rows = RowSelection::Range(0..reader.row_groups()[row_group].rows);
    let Ranks { ranks, undecided } = column.ranks(&ascending, &rows);
    Ok((!undecided).then_some(RankedColumn { column, ranks }))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedEntity {
    rank: u64,
    position: u32,
}

struct RankedEntities {
    entities: Vec<RankedEntity>,
    /// How many entities have a value to sort by. The others come last.
    sortable: usize,
    holds_empty: bool,
    /// The first position and the column of each row group.
    columns: Vec<(u32, SortColumn)>,
}

impl RankedEntities {
    /// `None` if a document must decide the order of an entity.
    async fn read(
        reader: &VersionReader,
        mut columns: BoxStream<'_, Result<Option<RankedColumn>, StorageError>>,
    ) -> Result<Option<RankedEntities>, StorageError> {
        let entities = Vec::with_capacity(usize::try_from(reader.entity_count()).unwrap_or_default());
        let mut all = RankedEntities { entities, sortable: 0, holds_empty: false, columns: Vec::new() };
        while let Some(ranked) = columns.try_next().await? {
            let Some(RankedColumn { column, ranks }) = ranked else { return Ok(None) };
            all.sortable += ranks.iter().filter(|rank| **rank < u64::MAX).count();
            all.holds_empty |= ranks.contains(&EMPTY_RANK);
            let first = all.entities.len() as u32;
            all.columns.push((first, column));
            all.entities.extend(ranks.into_iter().zip(first..).map(|(rank, position)| RankedEntity { rank, position }));
        }
        Ok(Some(all))
    }

    /// The order by value. `None` if too many entities share a rank.
    async fn sort(mut self) -> Option<ColumnOrder> {
        let mut entities = std::mem::take(&mut self.entities);
        sort(&mut entities, Ord::cmp).await;
        let max_unequal = MAX_UNEQUAL.max(entities.len() / 4);
        let mut starts = vec![0_u64; entities.len().div_ceil(64)];
        let mut set_start = |place: usize| starts[place / 64] |= 1 << (place % 64);
        let mut budget = YieldBudget::default();
        let mut unequal = 0;
        let mut end = 0;
        for run in entities[..self.sortable].chunk_by_mut(|one, other| one.rank == other.rank) {
            let first = end;
            end += run.len();
            set_start(first);
            budget.consume(ENTITY_BYTES).await;
            let mut is_one_value = true;
            for pair in run.windows(2) {
                is_one_value = self.compare(pair[0], pair[1]) == Ordering::Equal;
                if !is_one_value {
                    break;
                }
                budget.consume(COMPARISON_BYTES).await;
            }
            if is_one_value {
                continue;
            }
            unequal += run.len();
            if unequal > max_unequal {
                return None;
            }
            sort(run, |one, other| self.compare(*one, *other).then(one.position.cmp(&other.position))).await;
            budget.consume(run.len() * COMPARISON_BYTES).await;
            for (pair, place) in run.windows(2).zip(first + 1..) {
                if self.compare(pair[0], pair[1]) != Ordering::Equal {
                    set_start(place);
                }
                budget.consume(COMPARISON_BYTES).await;
            }
        }
        let positions = entities.into_iter().map(|entity| entity.position).collect();
        Some(ColumnOrder { positions, starts, sortable: self.sortable, holds_empty: self.holds_empty })
    }

    fn compare(&self, one: RankedEntity, other: RankedEntity) -> Ordering {
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

/// Sorts entries, and yields to other tasks between parts of them. `compare` must not consider two entries equal.
async fn sort<T>(entries: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut budget = YieldBudget::default();
    let mut parts = vec![entries];
    while let Some(part) = parts.pop() {
        budget.consume(part.len() * COMPARISON_BYTES).await;
        if part.len() <= MAX_SORTED {
            part.sort_unstable_by(&compare);
        } else {
            let middle = part.len() / 2;
            part.select_nth_unstable_by(middle, &compare);
            let (low, high) = part.split_at_mut(middle);
            parts.extend([low, high]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sort_orders_parts_as_a_whole() {
        for count in [0, 1, MAX_SORTED, MAX_SORTED + 1, 2 * MAX_SORTED, 5 * MAX_SORTED + 77] {
            let entity = |position: u32| RankedEntity {
                rank: u64::from(position.wrapping_mul(2_654_435_761) % 1_000),
                position,
            };
            let mut entities: Vec<RankedEntity> = (0..count as u32).map(entity).collect();
            let mut expected = entities.clone();
            expected.sort();
            sort(&mut entities, Ord::cmp).await;
            assert!(entities == expected, "{count}");
        }
    }
}

//! The order of all entities by a shredded column, made when a query first needs it and kept in the cache
//! ([`ColumnOrder`]): the first of an order are then read off, whatever the version's size.
//!
//! 1. The columns of row groups are read and their ranks computed ([`SortColumn::ranks`]), on several at once.
//! 2. All ranks are sorted with their positions.
//! 3. Entities of one rank are sorted by their whole values.
//!
//! All of it gives way often, so it ends with its query. There is no such order where a document has to tell one, and
//! where millions of values share a rank without being equal, as texts with one beginning do: sorting them would take
//! as long as a query may.
//!
//! Measured by the rows `sort by …, limit 100` of `benches/reads`.

use std::cmp::Ordering;

use arrow::buffer::{BooleanBuffer, Buffer};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::Time;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use strata_format::aux_index::{AuxKey, AuxLookup, ColumnOrder};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::pace::Pace;
use crate::scan::aux_index;
use crate::scan::metrics::timed;
use crate::scan::radix_sort::{ByRank, by_rank};
use crate::scan::row_selection::RowSelection;
use crate::scan::sort_key::{OrderSpec, Ranks, SortColumn, order_column};

/// Bytes that building an order takes for each entity, in addition to the texts of its column: a rank and a position
/// twice, and the numbers of the column.
const BUILD_BYTES: u64 = 64;

/// Entities that are sorted at once: comparing them is as much work as lies between two points of giving way.
const STRETCH: usize = 16_384;

/// About the bytes that an entity that is alone with its rank counts as work, and those of a comparison.
const ENTITY_BYTES: usize = 4;

const COMPARISON_BYTES: usize = 64;

/// So many entities may share their rank with another value, or one in four of all if that is more.
const UNEQUAL: usize = 2_000_000;

/// The rank of the empty string, and of strings that begin with NULs.
const EMPTY_RANK: u64 = 2 << 61;

/// The order that serves a sort, if the cache contains it.
pub(crate) async fn kept_order(reader: &VersionReader, spec: &OrderSpec) -> AuxLookup<ColumnOrder> {
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

/// Builds the order that serves a sort from the columns of all row groups ([`ranked_column`]). Adds the time that this
/// keeps a thread busy, in addition to that of the columns.
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
        match Ranked::read(reader, columns).await? {
            Some(ranked) => Ok(timed(time, ranked.order()).await),
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

/// The column of a row group by which a sort orders; `None` where a document has to tell the order of some row.
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

/// The ranks of all entities, and what tells those of one rank apart.
struct Ranked {
    ranks: Vec<u64>,
    /// How many entities have a value to sort by. The others come last.
    sortable: usize,
    holds_empty: bool,
    /// By row group: its first position, and the column.
    columns: Vec<(u32, SortColumn)>,
}

impl Ranked {
    /// `None` where a document has to tell the order of some entity.
    async fn read(
        reader: &VersionReader,
        mut columns: BoxStream<'_, Result<Option<RankedColumn>, StorageError>>,
    ) -> Result<Option<Ranked>, StorageError> {
        let entities = usize::try_from(reader.entity_count()).unwrap_or_default();
        let mut all =
            Ranked { ranks: Vec::with_capacity(entities), sortable: 0, holds_empty: false, columns: Vec::new() };
        while let Some(ranked) = columns.try_next().await? {
            let Some(RankedColumn { column, ranks }) = ranked else { return Ok(None) };
            all.sortable += ranks.iter().filter(|rank| **rank < u64::MAX).count();
            all.holds_empty |= ranks.contains(&EMPTY_RANK);
            all.columns.push((all.ranks.len() as u32, column));
            all.ranks.extend(ranks);
        }
        Ok(Some(all))
    }

    /// The order by values; `None` where too many share a rank.
    async fn order(mut self) -> Option<ColumnOrder> {
        let (sortable, holds_empty) = (self.sortable, self.holds_empty);
        let ByRank { mut positions, mut starts } = by_rank(std::mem::take(&mut self.ranks)).await;
        let most_unequal = UNEQUAL.max(positions.len() / 4);
        let (mut unequal, mut pace) = (0, Pace::default());
        let of_ranks = BooleanBuffer::new(Buffer::from_slice_ref(&starts), 0, sortable);
        let mut of_ranks = of_ranks.set_indices().peekable();
        while let Some(start) = of_ranks.next() {
            let end = of_ranks.peek().copied().unwrap_or(sortable);
            pace.worked(ENTITY_BYTES).await;
            let mut is_one_value = true;
            for place in start + 1..end {
                is_one_value = self.compare(positions[place - 1], positions[place]) == Ordering::Equal;
                if !is_one_value {
                    break;
                }
                pace.worked(COMPARISON_BYTES).await;
            }
            if !is_one_value {
                unequal += end - start;
                if unequal > most_unequal {
                    return None;
                }
                // Stable: equal values keep the order of their positions.
                sort(&mut positions[start..end], |one, other| self.compare(*one, *other)).await;
                pace.worked((end - start) * COMPARISON_BYTES).await;
                for place in start + 1..end {
                    if self.compare(positions[place - 1], positions[place]) != Ordering::Equal {
                        starts[place / 64] |= 1 << (place % 64);
                    }
                    pace.worked(COMPARISON_BYTES).await;
                }
            }
        }
        if sortable < positions.len() {
            // Those without a value have no start.
            starts[sortable / 64] &= !(1 << (sortable % 64));
        }
        Some(ColumnOrder { positions, starts, sortable, holds_empty })
    }

    fn compare(&self, one: u32, other: u32) -> Ordering {
        let find = |position: u32| {
            let group = self.columns.partition_point(|(first, _)| *first <= position) - 1;
            let (first, column) = &self.columns[group];
            (column, (position - first) as usize)
        };
        let ((one_column, one), (other_column, other)) = (find(one), find(other));
        one_column.compare_values(one, other_column, other)
    }
}

/// A stable merge sort that yields to other tasks, which a sort of the standard library does not.
async fn sort<T: Copy>(entries: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut pace = Pace::default();
    for stretch in entries.chunks_mut(STRETCH) {
        stretch.sort_by(&compare);
        pace.worked(stretch.len() * COMPARISON_BYTES).await;
    }
    let mut run = STRETCH;
    while run < entries.len() {
        let mut merged = Vec::with_capacity(entries.len());
        for pair in entries.chunks(2 * run) {
            let (mut one, mut other) = pair.split_at(run.min(pair.len()));
            while let (Some(first), Some(second)) = (one.first(), other.first()) {
                let next = if compare(first, second) != Ordering::Greater { &mut one } else { &mut other };
                merged.push(next[0]);
                *next = &next[1..];
                pace.worked(COMPARISON_BYTES).await;
            }
            merged.extend_from_slice(one);
            merged.extend_from_slice(other);
        }
        entries.copy_from_slice(&merged);
        run *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entry = (u64, u32);

    #[tokio::test]
    async fn stretches_are_sorted_as_a_whole_and_equal_entries_keep_their_order() {
        for count in [0, 1, STRETCH, STRETCH + 1, 2 * STRETCH, 3 * STRETCH, 4 * STRETCH, 5 * STRETCH + 77] {
            let mut entries: Vec<Entry> =
                (0..count as u32).map(|place| (u64::from(place.wrapping_mul(2_654_435_761) % 1_000), place)).collect();
            let compare = |one: &Entry, other: &Entry| one.0.cmp(&other.0);
            let mut expected = entries.clone();
            expected.sort_by(compare);
            sort(&mut entries, compare).await;
            assert!(entries == expected, "{count}");
        }
    }
}

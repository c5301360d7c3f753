//! The order of all entities by a shredded column, made when a query first needs it and kept in the cache
//! ([`ColumnOrder`]): the first of an order are then read off, whatever the version's size.
//!
//! 1. Each row group's ranks ([`SortColumn::ranks`]) are sorted with their positions.
//! 2. The row groups are merged, two by two.
//! 3. Entities of one rank are sorted by their whole values.
//!
//! All of it gives way often, so it ends with its query. There is no such order where a document has to tell one, and
//! where millions of values share a rank without being equal, as texts with one beginning do: sorting them would take
//! as long as a query may.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;

use crate::query::scan::sort_key::{OrderSpec, Ranks, SortColumn, order_column};
use crate::storage::StorageError;
use crate::storage::derived::{ColumnOrder, Derivation, Derived};
use crate::storage::reader::VersionReader;

/// Bytes that making an order takes for each entity, beside the texts of its column: a rank and a position twice, and
/// the numbers of the column.
const MAKING_BYTES: u64 = 64;

/// Entities that are worked on between two points of giving way.
const STRETCH: usize = 16_384;

/// So many entities may share their rank with another value, or one in four of all if that is more.
const UNEQUAL: usize = 2_000_000;

/// The rank of the empty string, and of strings that begin with NULs.
const EMPTY_RANK: u64 = 2 << 61;

/// The order that serves a sort, if the cache holds it.
pub(in crate::query) async fn kept_order(reader: &VersionReader, spec: &OrderSpec) -> Kept {
    let Some(shredded) = order_column(reader.layout(), &spec.field) else { return Kept::Never };
    match reader.derived(&Derivation::Order(shredded as u32)).await {
        Some(Derived::Order(order)) => Kept::of(order, spec),
        _ if reader.keeps(size_of::<u32>() as u64 + 1) => Kept::NotYet,
        _ => Kept::Never,
    }
}

/// Whether there is an order.
pub(in crate::query) enum Kept {
    /// This one.
    Order(Arc<ColumnOrder>),
    /// Not yet: it can be made.
    NotYet,
    /// None, nor will there be one.
    Never,
}

impl Kept {
    fn of(order: Option<Arc<ColumnOrder>>, spec: &OrderSpec) -> Kept {
        match order {
            // Where empty strings are as good as missing, their order is another one.
            Some(order) if !(spec.denull && order.holds_empty()) => Kept::Order(order),
            _ => Kept::Never,
        }
    }
}

/// The order that serves a sort, made if the cache does not hold it. `None` where there is none, or no memory to make
/// it.
///
/// # Errors
/// When the column cannot be read.
pub(super) async fn made_order(
    reader: &VersionReader,
    spec: &OrderSpec,
    memory: &MemoryReservation,
) -> Result<Option<Arc<ColumnOrder>>, StorageError> {
    let kept = match kept_order(reader, spec).await {
        Kept::NotYet => make(reader, spec, memory).await?,
        kept => kept,
    };
    Ok(match kept {
        Kept::Order(order) => Some(order),
        Kept::NotYet | Kept::Never => None,
    })
}

async fn make(reader: &VersionReader, spec: &OrderSpec, memory: &MemoryReservation) -> Result<Kept, StorageError> {
    let Some(shredded) = order_column(reader.layout(), &spec.field) else { return Ok(Kept::Never) };
    let size_bytes = reader.entity_count().saturating_mul(MAKING_BYTES) + reader.shredded_bytes(shredded);
    let size_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    let making = memory.new_empty();
    if making.try_grow(size_bytes).is_err() {
        return Ok(Kept::NotYet);
    }
    let order = async {
        let ascending = OrderSpec { field: spec.field.clone(), descending: false, denull: false };
        let Some(ranked) = Ranked::read(reader, &ascending).await? else { return Ok(Derived::Order(None)) };
        Ok(Derived::Order(ranked.order().await.map(Arc::new)))
    };
    match reader.derive(Derivation::Order(shredded as u32), Box::pin(order)).await? {
        Derived::Order(order) => Ok(Kept::of(order, spec)),
        _ => Ok(Kept::Never),
    }
}

/// A rank and the position that has it.
type Entry = (u64, u32);

/// The entities of a version, by rank and position, and what tells those of one rank apart.
struct Ranked {
    entries: Vec<Entry>,
    /// By row group: its first position, and the column.
    columns: Vec<(u32, SortColumn)>,
}

impl Ranked {
    /// All entities; `None` where a document has to tell the order of some.
    async fn read(reader: &VersionReader, spec: &OrderSpec) -> Result<Option<Ranked>, StorageError> {
        let mut entries = Vec::with_capacity(usize::try_from(reader.entity_count()).unwrap_or_default());
        let (mut columns, mut ends) = (Vec::new(), Vec::new());
        for (number, group) in reader.row_groups().iter().enumerate() {
            tokio::task::yield_now().await;
            let Some(column) = SortColumn::open(reader, number, spec).await? else { return Ok(None) };
            let Ranks { ranks, undecided } = column.ranks(spec);
            if undecided {
                return Ok(None);
            }
            let start = entries.len();
            entries.extend(ranks.into_iter().zip(group.first as u32..));
            entries[start..].sort_unstable();
            ends.push(entries.len());
            columns.push((group.first as u32, column));
        }
        Ok(Some(Ranked { entries: merged(entries, ends).await, columns }))
    }

    /// The order by values; `None` where too many share a rank.
    async fn order(mut self) -> Option<ColumnOrder> {
        let mut entries = std::mem::take(&mut self.entries);
        let most_unequal = UNEQUAL.max(entries.len() / 4);
        let sortable = entries.partition_point(|(rank, _)| *rank < u64::MAX);
        let holds_empty = entries.binary_search_by_key(&EMPTY_RANK, |(rank, _)| *rank).is_ok();
        let mut starts = vec![0_u64; entries.len().div_ceil(64)];
        let mut mark = |place: usize| starts[place / 64] |= 1 << (place % 64);
        let (mut unequal, mut stretch) = (0, 0);
        let mut start = 0;
        while start < sortable {
            let (mut end, mut is_one_value) = (start + 1, true);
            while end < sortable && entries[end].0 == entries[start].0 {
                is_one_value = is_one_value && self.compare(entries[end - 1].1, entries[end].1) == Ordering::Equal;
                end += 1;
                give_way(&mut stretch, 1).await;
            }
            mark(start);
            if !is_one_value {
                unequal += end - start;
                if unequal > most_unequal {
                    return None;
                }
                // Stable: equal values keep the order of their positions.
                sort(&mut entries[start..end], |one, other| self.compare(one.1, other.1)).await;
                for place in start + 1..end {
                    if self.compare(entries[place - 1].1, entries[place].1) != Ordering::Equal {
                        mark(place);
                    }
                    give_way(&mut stretch, 1).await;
                }
            }
            give_way(&mut stretch, 1).await;
            start = end;
        }
        let positions = entries.iter().map(|(_, position)| *position).collect();
        Some(ColumnOrder::new(positions, starts, sortable, holds_empty))
    }

    /// The order of two entities of one rank, by their values.
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

/// Gives way after every [`STRETCH`] of work.
#[inline]
async fn give_way(stretch: &mut usize, worked: usize) {
    *stretch += worked;
    if *stretch >= STRETCH {
        *stretch = 0;
        tokio::task::yield_now().await;
    }
}

/// Sorts by stretches, which it then merges; equal entries keep their order.
async fn sort(entries: &mut [Entry], compare: impl Fn(&Entry, &Entry) -> Ordering) {
    for stretch in entries.chunks_mut(STRETCH) {
        stretch.sort_by(&compare);
        tokio::task::yield_now().await;
    }
    if entries.len() > STRETCH {
        let ends = (1..=entries.len().div_ceil(STRETCH)).map(|end| entries.len().min(end * STRETCH)).collect();
        entries.copy_from_slice(&merged_by(entries.to_vec(), ends, compare).await);
    }
}

/// Sorted runs as one; `ends` says where each ends.
async fn merged(runs: Vec<Entry>, ends: Vec<usize>) -> Vec<Entry> {
    merged_by(runs, ends, Entry::cmp).await
}

/// The same, of runs in another order.
async fn merged_by(
    mut runs: Vec<Entry>,
    mut ends: Vec<usize>,
    compare: impl Fn(&Entry, &Entry) -> Ordering,
) -> Vec<Entry> {
    let mut next = Vec::with_capacity(if ends.len() > 1 { runs.len() } else { 0 });
    while ends.len() > 1 {
        next.clear();
        let mut next_ends = Vec::with_capacity(ends.len().div_ceil(2));
        for pair in ends.chunks(2) {
            let start = next.len();
            let end = pair.last().copied().unwrap_or(start);
            merge(&runs[start..pair[0]], &runs[pair[0]..end], &compare, &mut next).await;
            next_ends.push(end);
        }
        std::mem::swap(&mut runs, &mut next);
        ends = next_ends;
    }
    runs
}

/// Appends two sorted runs as one.
async fn merge(
    mut one: &[Entry],
    mut other: &[Entry],
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    merged: &mut Vec<Entry>,
) {
    let mut stretch = 0;
    while let (Some(first), Some(second)) = (one.first(), other.first()) {
        if compare(first, second) != Ordering::Greater {
            merged.push(*first);
            one = &one[1..];
        } else {
            merged.push(*second);
            other = &other[1..];
        }
        give_way(&mut stretch, 1).await;
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stretches_are_sorted_as_a_whole_and_equal_entries_keep_their_order() {
        for count in [0, 1, STRETCH, STRETCH + 1, 5 * STRETCH + 77] {
            let mut entries: Vec<Entry> =
                (0..count as u32).map(|place| (u64::from(place.wrapping_mul(2_654_435_761) % 1_000), place)).collect();
            let compare = |one: &Entry, other: &Entry| one.0.cmp(&other.0);
            let mut expected = entries.clone();
            expected.sort_by(compare);
            sort(&mut entries, compare).await;
            assert!(entries == expected, "{count}");
        }
    }

    #[tokio::test]
    async fn runs_are_merged_in_order_however_many_there_are() {
        for count in 0..9_u32 {
            let mut runs = Vec::new();
            let mut ends = Vec::new();
            for run in 0..count {
                let mut entries: Vec<Entry> =
                    (0..run * 3 % 7).map(|place| (u64::from(place * 5 % 4), run * 10 + place)).collect();
                entries.sort_unstable();
                runs.extend(entries);
                ends.push(runs.len());
            }
            let mut expected = runs.clone();
            expected.sort_unstable();
            assert_eq!(merged(runs, ends).await, expected);
        }
    }
}

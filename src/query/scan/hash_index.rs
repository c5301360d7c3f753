//! Hash indexes of columns, in the cache ([`HashIndex`]). With a hash index, an exact filter checks only the entities
//! that can match, regardless of the size of the version.
//!
//! Filters without a hash index count the rows of a column that they scan. After enough rows, a background task builds
//! the index, one at a time in the process. A hash index lists candidates, which are compared by their values in the
//! column. If all candidates have one value, one comparison is sufficient.
//!
//! Measured by the row `filter id, unique` of `benches/reads`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxKey, AuxLookup};
use strata_format::hash_index::{self, HashCandidates, HashIndex, HashIndexEntry, IndexedValue, SeededValueHasher};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::scan::access_path::PlannedPredicate;
use crate::scan::aux_index_build;
use crate::scan::equality_column::{ComparedForm, EqualityColumn};
use crate::scan::predicate::{ComparisonOperator, PathComparison};

/// Before a hash index is built, filters scan this many elements per entity, which costs about as much as the build.
const BUILD_THRESHOLD: u64 = 4;
/// A row group whose column is not scanned, because another index excludes its rows, counts as this many elements.
pub(super) const EXCLUDED_ROW_GROUP_ELEMENTS: u64 = 512;
/// A hash index is used if it yields at most `max(64, entities / 16)` candidates.
const MAX_CANDIDATES: u64 = 64;
const CANDIDATE_DIVISOR: u64 = 16;
const MAX_PROBED_FILTERS: usize = 16;

/// Hash indexes contain strings and numbers, but not null.
fn can_use_hash_index(compare: &PathComparison) -> bool {
    compare.operator == ComparisonOperator::Equal && !compare.can_match_null()
}

async fn cached_hash_index(reader: &VersionReader, column_number: usize) -> AuxLookup<HashIndex> {
    reader.cached_aux_index(AuxKey::HashIndex(column_number as u32)).await
}

/// Returns the positions of matching entities, ascending: the first `wanted` of them, or more. `None` if no hash index
/// is cached, if it lists more than `max` candidates, or if the cache does not contain the candidates' values.
pub(crate) async fn find_rows_in_hash_index(
    reader: &VersionReader,
    shredded: usize,
    compare: &PathComparison,
    max: usize,
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    if !can_use_hash_index(compare) {
        return Ok(None);
    }
    let Some(index) = cached_hash_index(reader, shredded).await.into_hit() else { return Ok(None) };
    let Some(mut probe) = HashIndexProbe::new(reader, &index, compare).filter(|probe| probe.len() <= max) else {
        return Ok(None);
    };
    if !(probe.texts.is_single_value && probe.numbers.is_single_value) {
        return verify_candidates(reader, shredded, compare, &probe.positions(), wanted).await;
    }
    for (listed, form) in [(&mut probe.texts, ComparedForm::Text), (&mut probe.numbers, ComparedForm::Number)] {
        let Some(first) = listed.positions.first().copied() else { continue };
        let row_group = reader.row_group_at(u64::from(first));
        if !EqualityColumn::is_cached(reader, row_group, shredded, form) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, form).await?;
        let row = (u64::from(first) - reader.row_groups()[row_group].first_position) as usize;
        if !column.is_row_equal(row, form, compare) {
            listed.positions = &[];
        }
    }
    Ok(Some(probe.positions()))
}

/// Returns the first `wanted` candidates of a hash index whose values match. `None` if the values are not cached.
async fn verify_candidates(
    reader: &VersionReader,
    shredded: usize,
    compare: &PathComparison,
    candidates: &[u32],
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    let form = ComparedForm::for_comparison(compare);
    let mut matching = Vec::new();
    let mut left = candidates;
    while let Some(first) = left.first()
        && matching.len() < wanted
    {
        let row_group = reader.row_group_at(u64::from(*first));
        let group = reader.row_groups()[row_group];
        let in_group = left.partition_point(|position| u64::from(*position) < group.first_position + group.rows as u64);
        if !EqualityColumn::is_cached(reader, row_group, shredded, form) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, form).await?;
        let rows = left[..in_group].iter().map(|position| (u64::from(*position) - group.first_position) as usize);
        let equal = column.find_equal_rows(rows, wanted - matching.len(), compare).await;
        matching.extend(equal.into_iter().map(|row| (group.first_position + row as u64) as u32));
        left = &left[in_group..];
    }
    Ok(Some(matching))
}

/// Counts the candidates in a cached hash index. Costs only one lookup, because it runs before the query gets a permit.
pub(crate) async fn candidate_count(reader: &VersionReader, shredded: usize, compare: &PathComparison) -> Option<u64> {
    if !can_use_hash_index(compare) {
        return None;
    }
    let index = cached_hash_index(reader, shredded).await.into_hit()?;
    Some(HashIndexProbe::new(reader, &index, compare)?.len() as u64)
}

/// The candidates in a hash index that have the compared value as a string, and those that have it as a number.
struct HashIndexProbe<'i> {
    texts: HashCandidates<'i>,
    numbers: HashCandidates<'i>,
}

impl<'i> HashIndexProbe<'i> {
    /// Returns `None` if there are too many candidates for the hash index to be worthwhile.
    fn new(reader: &VersionReader, index: &'i HashIndex, compare: &PathComparison) -> Option<HashIndexProbe<'i>> {
        let number = compare.number().and_then(|number| Some((number.nearest_double(), number.double_remainder()?)));
        let number = number.map(|(double, remainder)| index.candidates(IndexedValue::Number(double, remainder)));
        let none = HashCandidates { positions: &[], is_single_value: true };
        let texts = index.candidates(IndexedValue::Text(&compare.folded));
        let probe = HashIndexProbe { texts, numbers: number.unwrap_or(none) };
        (probe.len() as u64 <= MAX_CANDIDATES.max(reader.entity_count() / CANDIDATE_DIVISOR)).then_some(probe)
    }

    /// Counts the candidates. Entities with both listed values (as a string and as a number) count twice.
    fn len(&self) -> usize {
        self.texts.positions.len() + self.numbers.positions.len()
    }

    fn positions(&self) -> Vec<u32> {
        let mut positions = [self.texts.positions, self.numbers.positions].concat();
        if !self.numbers.positions.is_empty() {
            positions.sort_unstable();
        }
        positions.dedup();
        positions
    }
}

pub(super) struct HashIndexCandidates {
    positions: Vec<u32>,
    probed_predicates: Vec<usize>,
    _reservation: MemoryReservation,
}

impl HashIndexCandidates {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn was_probed(&self, predicate: usize) -> bool {
        self.probed_predicates.contains(&predicate)
    }

    pub(super) fn positions_within(&self, first: u64, end: u64) -> &[u32] {
        let index_of = |end: u64| self.positions.partition_point(|position| u64::from(*position) < end);
        &self.positions[index_of(first)..index_of(end).max(index_of(first))]
    }
}

#[derive(Clone, Default)]
pub(super) struct HashIndexResults {
    pub(super) candidates: Option<Arc<HashIndexCandidates>>,
    /// For each predicate that a missing hash index would help: the number of elements scanned in its column.
    scan_counters_by_predicate: Arc<[Option<Arc<AtomicU64>>]>,
}

impl HashIndexResults {
    /// Looks up the candidates for the predicates of a scan in hash indexes. Starts the build of a missing index if it
    /// is worthwhile. The memory of the build is charged to no principal, because all principals use the index.
    pub(super) async fn probe_all(
        reader: &VersionReader,
        conditions: &[PlannedPredicate],
        memory: &MemoryReservation,
        uncharged_memory: &MemoryReservation,
    ) -> HashIndexResults {
        let mut positions = None::<Vec<u32>>;
        let mut probed_predicates = Vec::new();
        let mut scan_counters_by_predicate = vec![None; conditions.len()];
        let supported = conditions.iter().enumerate().filter_map(|(number, condition)| {
            let column = condition.indexed_comparison(reader).filter(|column| can_use_hash_index(column.compare))?;
            Some((number, column.column, column.compare))
        });
        for (number, shredded, compare) in supported.take(MAX_PROBED_FILTERS) {
            let candidates = match cached_hash_index(reader, shredded).await {
                AuxLookup::Hit(index) => HashIndexProbe::new(reader, &index, compare).map(|probe| probe.positions()),
                AuxLookup::Miss => {
                    let counter = scan_counter_triggering_build(reader, shredded, uncharged_memory);
                    scan_counters_by_predicate[number] = counter.await;
                    None
                }
                AuxLookup::Unsupported => None,
            };
            let Some(candidates) = candidates else { continue };
            probed_predicates.push(number);
            positions = Some(match positions {
                None => candidates,
                Some(positions) => intersect_sorted(&positions, &candidates),
            });
        }
        let candidates = positions.and_then(|positions| {
            let reserved = memory.new_empty();
            reserved.try_grow(positions.capacity() * size_of::<u32>()).ok()?;
            Some(Arc::new(HashIndexCandidates { positions, probed_predicates, _reservation: reserved }))
        });
        HashIndexResults { candidates, scan_counters_by_predicate: scan_counters_by_predicate.into() }
    }

    pub(super) fn add_scanned_elements(&self, predicate: usize, elements: u64) {
        if let Some(Some(count)) = self.scan_counters_by_predicate.get(predicate) {
            count.fetch_add(elements, Ordering::Relaxed);
        }
    }
}

fn intersect_sorted(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().copied().filter(|position| many.binary_search(position).is_ok()).collect()
}

/// Returns the counter of scanned elements for a column without a hash index. Starts to build the index if it is due.
async fn scan_counter_triggering_build(
    reader: &VersionReader,
    shredded: usize,
    memory: &MemoryReservation,
) -> Option<Arc<AtomicU64>> {
    let count = aux_index_build::scan_counter(reader, AuxKey::ScanCount(shredded as u32)).await?;
    aux_index_build::spawn_if_due(&count, BUILD_THRESHOLD * reader.entity_count(), || {
        let reader = reader.without_metrics_and_readahead();
        let memory = memory.new_empty();
        async move {
            let elements = reader.shredded_element_count(shredded);
            let working_bytes = elements.saturating_mul(hash_index::BUILD_BYTES_PER_ELEMENT);
            let index = build_index(&reader, shredded, elements);
            let key = AuxKey::HashIndex(shredded as u32);
            let _ = aux_index_build::build_or_wait(&reader, key, working_bytes, &memory, index).await;
        }
    });
    Some(count)
}

/// Builds the hash index of a column with `count` elements. `None` if the index would take too much of the cache.
async fn build_index(reader: &VersionReader, shredded: usize, count: u64) -> Result<Option<HashIndex>, StorageError> {
    if !reader.can_cache_index(count.div_ceil(reader.entity_count().max(1)) * hash_index::MAX_INDEX_BYTES_PER_ELEMENT) {
        return Ok(None);
    }
    let hasher = SeededValueHasher::default();
    let mut entries: Vec<HashIndexEntry> = Vec::new();
    for (number, group) in reader.row_groups().iter().enumerate() {
        tokio::task::yield_now().await;
        let column = EqualityColumn::open(reader, number, shredded, ComparedForm::Number).await?;
        column.append_index_entries(&hasher, group.first_position as u32, &mut entries);
    }
    Ok(Some(HashIndex::build(hasher, &entries, async || tokio::task::yield_now().await).await))
}

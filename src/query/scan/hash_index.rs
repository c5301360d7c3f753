//! Hash indexes of columns, in the cache ([`HashIndex`]). With a hash index, an exact filter checks only the entities
//! that can match, regardless of the size of the version.
//!
//! Filters without a hash index count the rows of a column that they scan. After enough rows, a background task builds
//! the index, one at a time in the process. A hash index lists candidates, which are compared by their values in the
//! column. If all candidates have one value, one comparison is sufficient.
//!
//! Measured by the row `filter id, unique` of `benches/reads`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxKey, AuxLookup};
use strata_format::hash_index::{self, HashCandidates, HashIndex, HashIndexEntry, IndexedValue, SeededValueHasher};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use tokio::sync::Semaphore;

use crate::scan::access_path::PlannedPredicate;
use crate::scan::aux_index_build;
use crate::scan::equality_column::EqualityColumn;
use crate::scan::predicate::{ComparisonOperator, PathComparison};

/// Filters must have scanned this many elements for each entity, which costs about as much as the build.
const BUILD_THRESHOLD: u64 = 4;

/// A row group that a bloom filter excludes counts as this many scanned elements.
pub(super) const PRUNED_ROW_GROUP_ELEMENTS: u64 = 512;

/// The index is used if it yields at most `max(64, entities / 16)` candidates.
const MAX_CANDIDATES: u64 = 64;
const CANDIDATE_DIVISOR: u64 = 16;

const MAX_PROBED_FILTERS: usize = 16;

static BUILD_PERMIT: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// Hash indexes contain strings and numbers, but not null.
fn is_supported(compare: &PathComparison) -> bool {
    compare.operator == ComparisonOperator::Equal && !compare.can_match_null()
}

async fn lookup_index(reader: &VersionReader, shredded: usize) -> AuxLookup<HashIndex> {
    reader.aux_index(AuxKey::HashIndex(shredded as u32)).await
}

/// Returns the positions that match, ascending: the first `wanted` of them, or more. `None` if no index is cached, if
/// it lists more than `max` candidates, or if the cache does not contain their values.
pub(crate) async fn find_rows(
    reader: &VersionReader,
    shredded: usize,
    compare: &PathComparison,
    max: usize,
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    if !is_supported(compare) {
        return Ok(None);
    }
    let Some(index) = lookup_index(reader, shredded).await.into_hit() else { return Ok(None) };
    let Some(mut probe) = HashIndexProbe::new(reader, &index, compare).filter(|probe| probe.count() <= max) else {
        return Ok(None);
    };
    if !probe.0.iter().all(|listed| listed.is_single_value) {
        return verify_candidates(reader, shredded, compare, &probe.positions(), wanted).await;
    }
    for (listed, is_number) in probe.0.iter_mut().zip([false, true]) {
        let Some(first) = listed.positions.first().copied() else { continue };
        let row_group = reader.row_group_at(u64::from(first));
        if !EqualityColumn::is_cached(reader, row_group, shredded, is_number) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, is_number).await?;
        let row = (u64::from(first) - reader.row_groups()[row_group].first_position) as usize;
        if !column.is_row_equal(row, is_number, compare) {
            listed.positions = &[];
        }
    }
    Ok(Some(probe.positions()))
}

/// Returns the first `wanted` candidates whose values match. `None` if the cache does not contain the values.
async fn verify_candidates(
    reader: &VersionReader,
    shredded: usize,
    compare: &PathComparison,
    candidates: &[u32],
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    let with_numbers = compare.number().is_some();
    let mut matching = Vec::new();
    let mut left = candidates;
    while let Some(first) = left.first()
        && matching.len() < wanted
    {
        let row_group = reader.row_group_at(u64::from(*first));
        let group = reader.row_groups()[row_group];
        let in_group = left.partition_point(|position| u64::from(*position) < group.first_position + group.rows as u64);
        if !EqualityColumn::is_cached(reader, row_group, shredded, with_numbers) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, with_numbers).await?;
        let rows = left[..in_group].iter().map(|position| (u64::from(*position) - group.first_position) as usize);
        let equal = column.find_equal_rows(rows, wanted - matching.len(), compare).await;
        matching.extend(equal.into_iter().map(|row| (group.first_position + row as u64) as u32));
        left = &left[in_group..];
    }
    Ok(Some(matching))
}

/// Counts the candidates in a cached hash index. Costs one lookup, because the request has no permit yet.
pub(crate) async fn candidate_count(reader: &VersionReader, shredded: usize, compare: &PathComparison) -> Option<u64> {
    if !is_supported(compare) {
        return None;
    }
    let index = lookup_index(reader, shredded).await.into_hit()?;
    Some(HashIndexProbe::new(reader, &index, compare)?.count() as u64)
}

struct HashIndexProbe<'i>([HashCandidates<'i>; 2]);

impl<'i> HashIndexProbe<'i> {
    fn new(reader: &VersionReader, index: &'i HashIndex, compare: &PathComparison) -> Option<HashIndexProbe<'i>> {
        let number = compare.number().and_then(|number| Some((number.nearest_double(), number.remainder()?)));
        let number = number.map(|(double, remainder)| index.candidates(IndexedValue::Number(double, remainder)));
        let none = HashCandidates { positions: &[], is_single_value: true };
        let probe = HashIndexProbe([index.candidates(IndexedValue::Text(&compare.folded)), number.unwrap_or(none)]);
        (probe.count() as u64 <= MAX_CANDIDATES.max(reader.entity_count() / CANDIDATE_DIVISOR)).then_some(probe)
    }

    /// Entities with both values count twice.
    fn count(&self) -> usize {
        self.0.iter().map(|listed| listed.positions.len()).sum()
    }

    fn positions(&self) -> Vec<u32> {
        let [texts, numbers] = self.0.map(|listed| listed.positions);
        let mut positions = [texts, numbers].concat();
        if !numbers.is_empty() {
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

    pub(super) fn includes_predicate(&self, predicate: usize) -> bool {
        self.probed_predicates.contains(&predicate)
    }

    pub(super) fn positions_within(&self, first: u64, end: u64) -> &[u32] {
        let index_of = |end: u64| self.positions.partition_point(|position| u64::from(*position) < end);
        &self.positions[index_of(first)..index_of(end).max(index_of(first))]
    }
}

#[derive(Clone, Default)]
pub(super) struct HashIndexes {
    pub(super) candidates: Option<Arc<HashIndexCandidates>>,
    /// For each predicate that an index would help: the number of scanned elements of its column.
    scanned_element_counts: Arc<[Option<Arc<AtomicU64>>]>,
}

impl HashIndexes {
    /// Looks up the candidates for the predicates of a scan. Starts the build of a missing index if it is worthwhile.
    /// The memory of the build is charged to no principal, because all principals use the index.
    pub(super) async fn probe_all(
        reader: &VersionReader,
        conditions: &[PlannedPredicate],
        memory: &MemoryReservation,
        shared_memory: &MemoryReservation,
    ) -> HashIndexes {
        let mut positions = None::<Vec<u32>>;
        let mut probed_predicates = Vec::new();
        let mut scanned_element_counts = vec![None; conditions.len()];
        let supported = conditions.iter().enumerate().filter_map(|(number, condition)| {
            let column = condition.indexed_comparison(reader).filter(|column| is_supported(column.compare))?;
            Some((number, column.column, column.compare))
        });
        for (number, shredded, compare) in supported.take(MAX_PROBED_FILTERS) {
            let candidates = match lookup_index(reader, shredded).await {
                AuxLookup::Hit(index) => HashIndexProbe::new(reader, &index, compare).map(|probe| probe.positions()),
                AuxLookup::Miss => {
                    scanned_element_counts[number] = count_or_build(reader, shredded, shared_memory).await;
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
        HashIndexes { candidates, scanned_element_counts: scanned_element_counts.into() }
    }

    pub(super) fn add_scanned_elements(&self, predicate: usize, elements: u64) {
        if let Some(Some(count)) = self.scanned_element_counts.get(predicate) {
            count.fetch_add(elements, Ordering::Relaxed);
        }
    }
}

fn intersect_sorted(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().copied().filter(|position| many.binary_search(position).is_ok()).collect()
}

/// Returns the counter of scanned elements of a column without an index. Starts to build the index if it is due.
async fn count_or_build(reader: &VersionReader, shredded: usize, memory: &MemoryReservation) -> Option<Arc<AtomicU64>> {
    let new_counter = async { Ok(Some(AtomicU64::default())) };
    let key = AuxKey::ScanCount(shredded as u32);
    let count = reader.build_aux_index::<AtomicU64>(key, Box::pin(new_counter)).await.ok()?.into_hit()?;
    if count.load(Ordering::Relaxed) >= BUILD_THRESHOLD * reader.entity_count()
        && let Ok(permit) = BUILD_PERMIT.clone().try_acquire_owned()
    {
        // If the build fails, the next one begins after as many elements.
        count.store(0, Ordering::Relaxed);
        let reader = reader.detached();
        let memory = memory.new_empty();
        tokio::spawn(async move {
            let elements = reader.element_count(shredded);
            let working_bytes = elements.saturating_mul(hash_index::BUILD_BYTES_PER_ELEMENT);
            let index = build_index(&reader, shredded, elements);
            let key = AuxKey::HashIndex(shredded as u32);
            let _ = aux_index_build::build_or_wait(&reader, key, working_bytes, &memory, index).await;
            drop(permit);
        });
    }
    Some(count)
}

/// Builds the index of a column with this many elements. `None` if the index would take too much of the cache.
async fn build_index(reader: &VersionReader, shredded: usize, count: u64) -> Result<Option<HashIndex>, StorageError> {
    if !reader.can_cache_index(count.div_ceil(reader.entity_count().max(1)) * hash_index::MAX_INDEX_BYTES_PER_ELEMENT) {
        return Ok(None);
    }
    let hasher = SeededValueHasher::default();
    let mut entries: Vec<HashIndexEntry> = Vec::new();
    for (number, group) in reader.row_groups().iter().enumerate() {
        tokio::task::yield_now().await;
        let column = EqualityColumn::open(reader, number, shredded, true).await?;
        column.append_index_entries(&hasher, group.first_position as u32, &mut entries);
    }
    Ok(Some(HashIndex::build(hasher, &entries, async || tokio::task::yield_now().await).await))
}

//! Hash indexes of columns, in the cache ([`HashIndex`]). An exact filter then checks only the entities that can match,
//! regardless of the size of the version.
//!
//! Filters without a hash index count the rows of a column that they scan. When they have scanned enough, a background
//! task builds the index, one at a time in the process. A hash index lists candidates, which are compared by their
//! values in the column. If all candidates have one value, the comparison of one is sufficient.
//!
//! Measured by the row `filter id, unique` of `benches/reads`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxKey, AuxLookup};
use strata_format::hash_index::{self, Entry, HashIndex, IndexedValue, Listed, ValueHasher};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use tokio::sync::Semaphore;

use crate::scan::access::Condition;
use crate::scan::aux_index;
use crate::scan::equality_column::EqualityColumn;
use crate::scan::predicate::{Compare, Comparison};

/// An index is built when filters have scanned this many elements for each entity: about the cost of building it.
const BUILD_THRESHOLD: u64 = 4;

/// A row group that a bloom filter excludes counts as this many scanned elements.
pub(super) const PRUNED_ELEMENTS: u64 = 512;

/// An index is used if it lists at most this many candidates, or one of `CANDIDATE_DIVISOR` entities if that is more.
const MAX_CANDIDATES: u64 = 64;
const CANDIDATE_DIVISOR: u64 = 16;

/// Only the first filters of a request use hash indexes.
const MAX_FILTERS: usize = 16;

/// One index is built at a time.
static BUILDS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// Hash indexes contain strings and numbers, but not null.
fn is_supported(compare: &Compare) -> bool {
    compare.comparison == Comparison::Equal && !compare.matches_null()
}

async fn lookup(reader: &VersionReader, shredded: usize) -> AuxLookup<HashIndex> {
    reader.aux_index(AuxKey::HashIndex(shredded as u32)).await
}

/// The positions that match a comparison, ascending, by a cached hash index: the first `wanted` of them, or more.
/// `None` if there is no index, if it lists more than `max` candidates, or if the cache does not contain their values.
pub(crate) async fn find_rows(
    reader: &VersionReader,
    shredded: usize,
    compare: &Compare,
    max: usize,
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    if !is_supported(compare) {
        return Ok(None);
    }
    let Some(index) = lookup(reader, shredded).await.hit() else { return Ok(None) };
    let Some(mut probed) = ProbeResult::new(reader, &index, compare).filter(|probed| probed.count() <= max) else {
        return Ok(None);
    };
    if !probed.0.iter().all(|listed| listed.are_of_one_value) {
        return find_equal(reader, shredded, compare, &probed.positions(), wanted).await;
    }
    for (listed, is_number) in probed.0.iter_mut().zip([false, true]) {
        let Some(first) = listed.positions.first().copied() else { continue };
        let row_group = reader.row_group_of(u64::from(first));
        if !EqualityColumn::is_cached(reader, row_group, shredded, is_number) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, is_number).await?;
        let row = (u64::from(first) - reader.row_groups()[row_group].first) as usize;
        if !column.row_equals(row, is_number, compare) {
            listed.positions = &[];
        }
    }
    Ok(Some(probed.positions()))
}

/// The first `wanted` candidates that match a comparison by their values. `None` if the cache does not contain the
/// values.
async fn find_equal(
    reader: &VersionReader,
    shredded: usize,
    compare: &Compare,
    candidates: &[u32],
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    let with_numbers = compare.number().is_some();
    let mut found = Vec::new();
    let mut left = candidates;
    while let Some(first) = left.first()
        && found.len() < wanted
    {
        let row_group = reader.row_group_of(u64::from(*first));
        let group = reader.row_groups()[row_group];
        let here = left.partition_point(|position| u64::from(*position) < group.first + group.rows as u64);
        if !EqualityColumn::is_cached(reader, row_group, shredded, with_numbers) {
            return Ok(None);
        }
        let column = EqualityColumn::open(reader, row_group, shredded, with_numbers).await?;
        let rows = left[..here].iter().map(|position| (u64::from(*position) - group.first) as usize);
        let equal = column.equal_rows(rows, wanted - found.len(), compare).await;
        found.extend(equal.into_iter().map(|row| (group.first + row as u64) as u32));
        left = &left[here..];
    }
    Ok(Some(found))
}

/// The number of candidates in a cached hash index. Costs one lookup, because the request has no permit yet.
pub(crate) async fn candidate_count(reader: &VersionReader, shredded: usize, compare: &Compare) -> Option<u64> {
    if !is_supported(compare) {
        return None;
    }
    let index = lookup(reader, shredded).await.hit()?;
    Some(ProbeResult::new(reader, &index, compare)?.count() as u64)
}

/// The candidates for a value as a string, and as a number.
struct ProbeResult<'i>([Listed<'i>; 2]);

impl<'i> ProbeResult<'i> {
    /// `None` if there are many.
    fn new(reader: &VersionReader, index: &'i HashIndex, compare: &Compare) -> Option<ProbeResult<'i>> {
        let number = compare.number().and_then(|number| Some((number.double(), number.remainder()?)));
        let number = number.map(|(double, remainder)| index.candidates(IndexedValue::Number(double, remainder)));
        let none = Listed { positions: &[], are_of_one_value: true };
        let probed = ProbeResult([index.candidates(IndexedValue::Text(&compare.folded)), number.unwrap_or(none)]);
        (probed.count() as u64 <= MAX_CANDIDATES.max(reader.entity_count() / CANDIDATE_DIVISOR)).then_some(probed)
    }

    /// Counts entities with both twice.
    fn count(&self) -> usize {
        self.0.iter().map(|listed| listed.positions.len()).sum()
    }

    /// Ascending, without duplicates.
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

/// The positions that may match all probed predicates of a scan.
pub(super) struct Candidates {
    positions: Vec<u32>,
    predicates: Vec<usize>,
    _reserved: MemoryReservation,
}

impl Candidates {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether the index of this predicate has been probed.
    pub(super) fn include(&self, predicate: usize) -> bool {
        self.predicates.contains(&predicate)
    }

    pub(super) fn within(&self, first: u64, end: u64) -> &[u32] {
        let index_of = |end: u64| self.positions.partition_point(|position| u64::from(*position) < end);
        &self.positions[index_of(first)..index_of(end).max(index_of(first))]
    }
}

#[derive(Clone, Default)]
pub(super) struct HashIndexes {
    pub(super) candidates: Option<Arc<Candidates>>,
    /// For each predicate that an index would help: the scanned elements of its column.
    rows_scanned: Arc<[Option<Arc<AtomicU64>>]>,
}

impl HashIndexes {
    /// Looks up the candidates for the predicates of a scan. Starts the build of a missing index if it is worthwhile,
    /// in memory that is charged to no tenant, because all tenants use the index.
    pub(super) async fn probe_all(
        reader: &VersionReader,
        conditions: &[Condition],
        memory: &MemoryReservation,
        shared_memory: &MemoryReservation,
    ) -> HashIndexes {
        let mut found = None::<Vec<u32>>;
        let mut probed = Vec::new();
        let mut rows_scanned = vec![None; conditions.len()];
        let supported = conditions.iter().enumerate().filter_map(|(number, condition)| {
            let column = condition.indexed_column(reader).filter(|column| is_supported(column.compare))?;
            Some((number, column.column, column.compare))
        });
        for (number, shredded, compare) in supported.take(MAX_FILTERS) {
            let candidates = match lookup(reader, shredded).await {
                AuxLookup::Hit(index) => ProbeResult::new(reader, &index, compare).map(|probed| probed.positions()),
                AuxLookup::Miss => {
                    rows_scanned[number] = count_scanned(reader, shredded, shared_memory).await;
                    None
                }
                AuxLookup::Unsupported => None,
            };
            let Some(candidates) = candidates else { continue };
            probed.push(number);
            found = Some(match found {
                None => candidates,
                Some(positions) => intersect(&positions, &candidates),
            });
        }
        let candidates = found.and_then(|positions| {
            let reserved = memory.new_empty();
            reserved.try_grow(positions.capacity() * size_of::<u32>()).ok()?;
            Some(Arc::new(Candidates { positions, predicates: probed, _reserved: reserved }))
        });
        HashIndexes { candidates, rows_scanned: rows_scanned.into() }
    }

    /// Counts elements that were scanned because a column has no index.
    pub(super) fn add_rows_scanned(&self, predicate: usize, elements: u64) {
        if let Some(Some(count)) = self.rows_scanned.get(predicate) {
            count.fetch_add(elements, Ordering::Relaxed);
        }
    }
}

fn intersect(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().copied().filter(|position| many.binary_search(position).is_ok()).collect()
}

/// The scanned elements of a column without an index. If there are enough, a task begins to build the index.
async fn count_scanned(reader: &VersionReader, shredded: usize, memory: &MemoryReservation) -> Option<Arc<AtomicU64>> {
    let new = async { Ok(Some(AtomicU64::default())) };
    let key = AuxKey::ScanCount(shredded as u32);
    let count = reader.build_aux_index::<AtomicU64>(key, Box::pin(new)).await.ok()?.hit()?;
    if count.load(Ordering::Relaxed) >= BUILD_THRESHOLD * reader.entity_count()
        && let Ok(permit) = BUILDS.clone().try_acquire_owned()
    {
        // If the build fails, the next one begins after as many elements.
        count.store(0, Ordering::Relaxed);
        let reader = reader.for_later();
        let memory = memory.new_empty();
        tokio::spawn(async move {
            let elements = reader.element_count(shredded);
            let working_bytes = elements.saturating_mul(hash_index::MAKING_BYTES);
            let index = build(&reader, shredded, elements);
            let key = AuxKey::HashIndex(shredded as u32);
            let _ = aux_index::build(&reader, key, working_bytes, &memory, index).await;
            drop(permit);
        });
    }
    Some(count)
}

/// The index of a column with this many elements; `None` if it would take too much of the cache.
async fn build(reader: &VersionReader, shredded: usize, elements: u64) -> Result<Option<HashIndex>, StorageError> {
    if !reader.can_cache(elements.div_ceil(reader.entity_count().max(1)) * hash_index::ELEMENT_BYTES) {
        return Ok(None);
    }
    let hasher = ValueHasher::default();
    let mut entries: Vec<Entry> = Vec::new();
    for (number, group) in reader.row_groups().iter().enumerate() {
        tokio::task::yield_now().await;
        let column = EqualityColumn::open(reader, number, shredded, true).await?;
        column.entries(&hasher, group.first as u32, &mut entries);
    }
    Ok(Some(HashIndex::build(hasher, &entries, async || tokio::task::yield_now().await).await))
}

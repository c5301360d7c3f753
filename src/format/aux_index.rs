//! Auxiliary indexes: data that queries compute from a whole version file, such as the order of a column for `sort`.
//! [`VersionReader::build_aux_index`](super::reader::VersionReader::build_aux_index) builds an index once for all
//! concurrent queries and caches it. Files are immutable, so indexes do not become stale. An index that could take more
//! than a quarter of the cache is never built.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::buffer::BooleanBuffer;
use sha2::{Digest, Sha256};

const ENTRY_OVERHEAD_BYTES: usize = 256;

pub trait AuxIndex: Any + Send + Sync {
    const MAX_BYTES_PER_ENTITY: u64;

    fn memory_bytes(&self) -> usize;
}

/// Key of an index of a file. Keys contain hashes of long strings, because the cache does not count the size of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuxKey {
    PathCodes([u8; 32]),
    SortIndex(u32),
    GroupRepresentatives([u8; 32]),
    HashIndex(u32),
    ScanCount(u32),
}

impl AuxKey {
    pub fn for_path_codes(path: &str) -> AuxKey {
        AuxKey::PathCodes(Sha256::digest(path).into())
    }

    pub fn for_group_representatives(groups: &str) -> AuxKey {
        AuxKey::GroupRepresentatives(Sha256::digest(groups).into())
    }
}

#[derive(Debug)]
pub enum AuxLookup<T> {
    Hit(Arc<T>),
    Miss,
    Unsupported,
}

impl<T> AuxLookup<T> {
    pub fn into_hit(self) -> Option<Arc<T>> {
        match self {
            AuxLookup::Hit(index) => Some(index),
            AuxLookup::Miss | AuxLookup::Unsupported => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct CachedAuxIndex {
    index: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) memory_bytes: usize,
}

impl CachedAuxIndex {
    pub(super) fn new<T: AuxIndex>(index: Option<T>) -> CachedAuxIndex {
        let memory_bytes = index.as_ref().map_or(0, T::memory_bytes) + ENTRY_OVERHEAD_BYTES;
        let index = index.map(|index| -> Arc<dyn Any + Send + Sync> { Arc::new(index) });
        CachedAuxIndex { index, memory_bytes }
    }

    pub(super) fn lookup<T: AuxIndex>(self) -> AuxLookup<T> {
        match self.index.map(|index| index.downcast()) {
            Some(Ok(index)) => AuxLookup::Hit(index),
            Some(Err(_)) => AuxLookup::Miss,
            None => AuxLookup::Unsupported,
        }
    }
}

/// Dictionary codes: two entities have the same code if and only if the path yields the same values in both.
#[derive(Debug)]
pub struct PathCodes {
    pub codes: Vec<u16>,
    pub distinct_codes: usize,
    pub missing_code: Option<u16>,
    pub null_code: Option<u16>,
    pub empty_code: Option<u16>,
}

impl AuxIndex for PathCodes {
    const MAX_BYTES_PER_ENTITY: u64 = size_of::<u16>() as u64;

    fn memory_bytes(&self) -> usize {
        self.codes.capacity() * size_of::<u16>()
    }
}

impl AuxIndex for AtomicU64 {
    const MAX_BYTES_PER_ENTITY: u64 = 0;

    fn memory_bytes(&self) -> usize {
        0
    }
}

const SCAN_WINDOW_BITS: usize = 1 << 16;

/// Positions of the first entity of each group, ascending: 4 bytes per group, or one bit per entity if that is less.
#[derive(Debug)]
pub enum GroupRepresentatives {
    Positions(Vec<u32>),
    Bitmap(BooleanBuffer, usize),
}

impl GroupRepresentatives {
    pub fn from_bits(bits: BooleanBuffer) -> GroupRepresentatives {
        let count = bits.count_set_bits();
        if count * size_of::<u32>() <= bits.len() / 8 {
            return GroupRepresentatives::Positions(bits.set_indices().map(|position| position as u32).collect());
        }
        GroupRepresentatives::Bitmap(bits, count)
    }

    pub fn count(&self) -> usize {
        match self {
            GroupRepresentatives::Positions(positions) => positions.len(),
            GroupRepresentatives::Bitmap(_, count) => *count,
        }
    }

    pub fn positions_in(&self, positions: Range<usize>) -> Vec<u64> {
        match self {
            GroupRepresentatives::Positions(list) => {
                let index_of = |end: usize| list.partition_point(|position| (*position as usize) < end);
                list[index_of(positions.start)..index_of(positions.end)].iter().copied().map(u64::from).collect()
            }
            GroupRepresentatives::Bitmap(bits, _) => {
                let start = positions.start.min(bits.len());
                let end = positions.end.min(bits.len());
                bits.slice(start, end - start).set_indices().map(|index| (start + index) as u64).collect()
            }
        }
    }

    pub fn skip_and_take(&self, mut skip: usize, limit: usize) -> Vec<u64> {
        let bits = match self {
            GroupRepresentatives::Positions(list) => {
                return list.iter().skip(skip).take(limit).copied().map(u64::from).collect();
            }
            GroupRepresentatives::Bitmap(bits, _) => bits,
        };
        let mut positions = Vec::new();
        for start in (0..bits.len()).step_by(SCAN_WINDOW_BITS) {
            let window = bits.slice(start, SCAN_WINDOW_BITS.min(bits.len() - start));
            let count = window.count_set_bits();
            if skip >= count {
                skip -= count;
                continue;
            }
            let indices = window.set_indices().skip(std::mem::take(&mut skip)).take(limit - positions.len());
            positions.extend(indices.map(|index| (start + index) as u64));
            if positions.len() == limit {
                break;
            }
        }
        positions
    }
}

impl AuxIndex for GroupRepresentatives {
    const MAX_BYTES_PER_ENTITY: u64 = 1;

    fn memory_bytes(&self) -> usize {
        match self {
            GroupRepresentatives::Positions(positions) => positions.capacity() * size_of::<u32>(),
            GroupRepresentatives::Bitmap(bits, _) => bits.inner().capacity(),
        }
    }
}

/// Permutation of a file's entities in the order of a column. Takes 4 bytes and one bit per entity.
#[derive(Debug)]
pub struct ColumnSortIndex {
    /// Positions, ascending by value and then by position. Entities without a sortable value are last.
    pub positions: Vec<u32>,
    /// One bit per index in `positions`, set at the first entity of each distinct value.
    pub value_starts: Vec<u64>,
    pub value_count: usize,
    pub has_empty_string: bool,
}

impl ColumnSortIndex {
    pub fn entity_count(&self) -> usize {
        self.positions.len()
    }

    fn value_start(&self, index: usize) -> usize {
        let mut word = index / 64;
        let mask = u64::MAX >> (63 - index % 64);
        let mut bits = self.value_starts[word] & mask;
        while bits == 0 && word > 0 {
            word -= 1;
            bits = self.value_starts[word];
        }
        word * 64 + (63 - bits.leading_zeros().min(63)) as usize
    }
}

impl AuxIndex for ColumnSortIndex {
    const MAX_BYTES_PER_ENTITY: u64 = size_of::<u32>() as u64 + 1;

    fn memory_bytes(&self) -> usize {
        self.positions.capacity() * size_of::<u32>() + self.value_starts.capacity() * size_of::<u64>()
    }
}

/// Iterator over a [`ColumnSortIndex`]. Equal values are in the order of their positions in both directions.
#[derive(Clone, Debug)]
pub struct SortIndexCursor {
    order: Arc<ColumnSortIndex>,
    run: Range<usize>,
    /// Entities before this index are not yet visited; descending order takes the last run of equal values first.
    remaining_values: usize,
    without_value: Range<usize>,
}

impl SortIndexCursor {
    pub fn new(order: Arc<ColumnSortIndex>, descending: bool) -> SortIndexCursor {
        let value_count = order.value_count;
        let count = order.entity_count();
        match descending {
            false => SortIndexCursor { order, run: 0..count, remaining_values: 0, without_value: 0..0 },
            true => {
                SortIndexCursor { order, run: 0..0, remaining_values: value_count, without_value: value_count..count }
            }
        }
    }
}

impl Iterator for SortIndexCursor {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.run.is_empty() {
            self.run = match self.remaining_values {
                0 => std::mem::take(&mut self.without_value),
                end => {
                    self.remaining_values = self.order.value_start(end - 1);
                    self.remaining_values..end
                }
            };
        }
        self.run.next().map(|index| self.order.positions[index])
    }
}

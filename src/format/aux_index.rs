//! Auxiliary indexes: what queries compute from a whole version file and keep in the cache next to its parts, such as
//! the order of a column for `sort`. [`VersionReader::aux_index`](super::reader::VersionReader::aux_index) looks one
//! up; [`VersionReader::build_aux_index`](super::reader::VersionReader::build_aux_index) builds it once, however many
//! queries need it at the same time. A file never changes, so no index goes stale, and one that the cache evicts is
//! built again. An index that could take more than a quarter of the cache is never built.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::buffer::BooleanBuffer;
use sha2::{Digest, Sha256};

const ENTRY_BYTES: usize = 256;

pub trait AuxIndex: Any + Send + Sync {
    /// The most bytes that the index takes for each entity of the file.
    const ENTITY_BYTES: u64;

    fn memory_bytes(&self) -> usize;
}

/// Names an index of a file. Texts may be long and the cache counts only values, so the key contains their SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuxKey {
    Codes([u8; 32]),
    /// The [`ColumnOrder`] of the shredded column with this number.
    Order(u32),
    Firsts([u8; 32]),
    /// The [`HashIndex`](super::hash_index::HashIndex) of the shredded column with this number.
    HashIndex(u32),
    /// How many elements of a shredded column scans have checked because the column has no hash index yet.
    ScanCount(u32),
}

impl AuxKey {
    pub fn codes(path: &str) -> AuxKey {
        AuxKey::Codes(Sha256::digest(path).into())
    }

    /// `groups` distinguishes the groups from all others of the file.
    pub fn firsts(groups: &str) -> AuxKey {
        AuxKey::Firsts(Sha256::digest(groups).into())
    }
}

#[derive(Debug)]
pub enum AuxLookup<T> {
    Hit(Arc<T>),
    /// The cache does not contain the index. It can be built.
    Miss,
    /// The file cannot have such an index, or the index would take too much of the cache.
    Unsupported,
}

impl<T> AuxLookup<T> {
    pub fn hit(self) -> Option<Arc<T>> {
        match self {
            AuxLookup::Hit(index) => Some(index),
            AuxLookup::Miss | AuxLookup::Unsupported => None,
        }
    }
}

/// An index in the cache, or the fact that the file has none. Clones share memory.
#[derive(Clone, Debug)]
pub struct CachedAux {
    index: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) memory_bytes: usize,
}

impl CachedAux {
    pub(super) fn new<T: AuxIndex>(index: Option<T>) -> CachedAux {
        let memory_bytes = index.as_ref().map_or(0, T::memory_bytes) + ENTRY_BYTES;
        let index = index.map(|index| -> Arc<dyn Any + Send + Sync> { Arc::new(index) });
        CachedAux { index, memory_bytes }
    }

    pub(super) fn lookup<T: AuxIndex>(self) -> AuxLookup<T> {
        match self.index.map(|index| index.downcast()) {
            Some(Ok(index)) => AuxLookup::Hit(index),
            Some(Err(_)) => AuxLookup::Miss,
            None => AuxLookup::Unsupported,
        }
    }
}

/// A code for what a path reaches in each entity of a file: two entities have the same code exactly when they have the
/// same list of values there.
#[derive(Debug)]
pub struct PathCodes {
    /// By position; each below `distinct`.
    pub codes: Vec<u16>,
    pub distinct: usize,
    /// The code of nothing reached, where it occurs.
    pub nothing: Option<u16>,
    pub null: Option<u16>,
    pub empty: Option<u16>,
}

impl AuxIndex for PathCodes {
    const ENTITY_BYTES: u64 = size_of::<u16>() as u64;

    fn memory_bytes(&self) -> usize {
        self.codes.capacity() * size_of::<u16>()
    }
}

impl AuxIndex for AtomicU64 {
    const ENTITY_BYTES: u64 = 0;

    fn memory_bytes(&self) -> usize {
        0
    }
}

const WINDOW: usize = 1 << 16;

/// The positions of the first entity of every group, ascending: 4 bytes a group, or a bit an entity if that is less.
#[derive(Debug)]
pub enum Firsts {
    List(Vec<u32>),
    /// A bit for each entity, and how many are set.
    Bits(BooleanBuffer, usize),
}

impl Firsts {
    pub fn of(bits: BooleanBuffer) -> Firsts {
        let count = bits.count_set_bits();
        if count * size_of::<u32>() <= bits.len() / 8 {
            return Firsts::List(bits.set_indices().map(|position| position as u32).collect());
        }
        Firsts::Bits(bits, count)
    }

    pub fn count(&self) -> usize {
        match self {
            Firsts::List(positions) => positions.len(),
            Firsts::Bits(_, count) => *count,
        }
    }

    pub fn within(&self, positions: Range<usize>) -> Vec<u64> {
        match self {
            Firsts::List(list) => {
                let place = |end: usize| list.partition_point(|position| (*position as usize) < end);
                list[place(positions.start)..place(positions.end)].iter().copied().map(u64::from).collect()
            }
            Firsts::Bits(bits, _) => {
                let start = positions.start.min(bits.len());
                let end = positions.end.min(bits.len());
                bits.slice(start, end - start).set_indices().map(|place| (start + place) as u64).collect()
            }
        }
    }

    /// The first entities from the `skip`-th on, at most so many.
    pub fn window(&self, mut skip: usize, most: usize) -> Vec<u64> {
        let bits = match self {
            Firsts::List(list) => return list.iter().skip(skip).take(most).copied().map(u64::from).collect(),
            Firsts::Bits(bits, _) => bits,
        };
        let mut found = Vec::new();
        for start in (0..bits.len()).step_by(WINDOW) {
            let part = bits.slice(start, WINDOW.min(bits.len() - start));
            let count = part.count_set_bits();
            if skip >= count {
                skip -= count;
                continue;
            }
            let places = part.set_indices().skip(std::mem::take(&mut skip)).take(most - found.len());
            found.extend(places.map(|place| (start + place) as u64));
            if found.len() == most {
                break;
            }
        }
        found
    }
}

impl AuxIndex for Firsts {
    const ENTITY_BYTES: u64 = 1;

    fn memory_bytes(&self) -> usize {
        match self {
            Firsts::List(positions) => positions.capacity() * size_of::<u32>(),
            Firsts::Bits(bits, _) => bits.inner().capacity(),
        }
    }
}

/// The entities of a file in the order of a column. 4 bytes and a bit an entity.
#[derive(Debug)]
pub struct ColumnOrder {
    /// The positions: ascending by value, then by position. Those without a value to sort by come last.
    pub positions: Vec<u32>,
    /// A bit for each place in `positions` that has a value: set where another value begins, as the first one does.
    pub starts: Vec<u64>,
    /// How many have a value.
    pub sortable: usize,
    pub holds_empty: bool,
}

impl ColumnOrder {
    pub fn count(&self) -> usize {
        self.positions.len()
    }

    fn start(&self, place: usize) -> usize {
        let mut word = place / 64;
        let below = u64::MAX >> (63 - place % 64);
        let mut bits = self.starts[word] & below;
        while bits == 0 && word > 0 {
            word -= 1;
            bits = self.starts[word];
        }
        word * 64 + (63 - bits.leading_zeros().min(63)) as usize
    }
}

impl AuxIndex for ColumnOrder {
    const ENTITY_BYTES: u64 = size_of::<u32>() as u64 + 1;

    fn memory_bytes(&self) -> usize {
        self.positions.capacity() * size_of::<u32>() + self.starts.capacity() * size_of::<u64>()
    }
}

/// The positions of a [`ColumnOrder`] one by one, in one direction: entities of one value, and those without one, in
/// the order of their positions.
#[derive(Clone, Debug)]
pub struct OrderCursor {
    order: Arc<ColumnOrder>,
    run: Range<usize>,
    /// Values before this place are left, the last one first.
    left: usize,
    /// Places of those without a value, if they are left.
    last: Range<usize>,
}

impl OrderCursor {
    pub fn new(order: Arc<ColumnOrder>, descending: bool) -> OrderCursor {
        let sortable = order.sortable;
        let count = order.count();
        match descending {
            false => OrderCursor { order, run: 0..count, left: 0, last: 0..0 },
            true => OrderCursor { order, run: 0..0, left: sortable, last: sortable..count },
        }
    }
}

impl Iterator for OrderCursor {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.run.is_empty() {
            self.run = match self.left {
                0 => std::mem::take(&mut self.last),
                left => {
                    self.left = self.order.start(left - 1);
                    self.left..left
                }
            };
        }
        self.run.next().map(|place| self.order.positions[place])
    }
}

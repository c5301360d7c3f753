//! Auxiliary indexes: data that queries compute from a whole version file, such as the order of a column for `sort`.
//! [`VersionReader::build_aux_index`](super::reader::VersionReader::build_aux_index) builds an index once for all
//! concurrent queries and caches it. Files are immutable, so indexes do not become stale. An index that could take more
//! than a quarter of the cache is never built.

mod column_sort_index;
mod group_representatives;
mod path_codes;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sha2::{Digest, Sha256};
use strata_json::SortDirection;

pub use column_sort_index::{ColumnSortIndex, SortIndexCursor, SortedPrefix};
pub use group_representatives::GroupRepresentatives;
pub use path_codes::PathCodes;

const ENTRY_OVERHEAD_BYTES: usize = 256;

/// An index that the cache can store. Each type belongs to one variant of [`AuxKey`].
pub trait AuxIndex: Any + Send + Sync {
    /// Max memory of the index for each entity of the file. Decides before the build whether the cache has room for it.
    const MAX_BYTES_PER_ENTITY: u64;

    fn memory_bytes(&self) -> usize;
}

/// Key of an index of a file. Keys contain hashes of long strings, because the cache does not count the size of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuxKey {
    PathCodes([u8; 32]),
    SortIndex(u32),
    SortedPrefix {
        column: u32,
        direction: SortDirection,
        denull: bool,
    },
    GroupRepresentatives([u8; 32]),
    HashIndex(u32),
    /// The scan counter for the hash index of a column.
    ScanCount(u32),
    /// The scan counter for the sort index of a column.
    SortScanCount(u32),
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
    /// The file cannot have the index, or the index would be too large.
    Unsupported,
}

impl<T> AuxLookup<T> {
    pub fn into_hit(self) -> Option<Arc<T>> {
        if let AuxLookup::Hit(index) = self { Some(index) } else { None }
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

/// The cached number of elements of a column that filters scanned without a hash index ([`AuxKey::ScanCount`]), or
/// sorts without a sort index ([`AuxKey::SortScanCount`]).
impl AuxIndex for AtomicU64 {
    const MAX_BYTES_PER_ENTITY: u64 = 0;

    fn memory_bytes(&self) -> usize {
        0
    }
}

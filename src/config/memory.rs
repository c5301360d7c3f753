//! Default sizes of the cache and of the memory for queries.

use super::Config;

/// The smallest default size of the cache, because a smaller cache is not worth its cost.
const MIN_DEFAULT_CACHE_BYTES: u64 = 64 << 20;

pub(super) const MIN_QUERY_MEMORY_BYTES: u64 = 128 << 20;

/// The memory of the process, and the parts that `cache.memory_bytes` and `query.memory_bytes` limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub available_bytes: u64,
    pub cache_bytes: u64,
    pub query_bytes: u64,
}

impl MemoryPlan {
    /// Applies the defaults: a quarter of the memory for the cache, as is usual for databases, and an eighth for
    /// queries. The rest is for connections, imports, and the file cache of the system.
    pub fn from_config(config: &Config, available_bytes: u64) -> MemoryPlan {
        MemoryPlan {
            available_bytes,
            cache_bytes: config.cache.memory_bytes.unwrap_or((available_bytes / 4).max(MIN_DEFAULT_CACHE_BYTES)),
            query_bytes: config.query.memory_bytes.unwrap_or((available_bytes / 8).max(MIN_QUERY_MEMORY_BYTES)),
        }
    }
}

//! How the memory of the process is divided where the configuration does not say.

use super::Config;

/// A smaller cache is not worth its cost.
const MIN_CACHE_BYTES: u64 = 64 << 20;

/// The least `query.memory_bytes`, which sorts and dedups need.
pub(super) const MIN_QUERY_BYTES: u64 = 128 << 20;

/// The memory of the process and its parts that are bounded by `cache.memory_bytes` and `query.memory_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub available_bytes: u64,
    pub cache_bytes: u64,
    pub query_bytes: u64,
}

impl MemoryPlan {
    /// What the configuration says. Where it does not: a quarter of what is available for the cache, as databases
    /// usually take, and an eighth for queries. The rest is for connections, imports and the system's cache of files.
    pub fn of(config: &Config, available_bytes: u64) -> MemoryPlan {
        MemoryPlan {
            available_bytes,
            cache_bytes: config.cache.memory_bytes.unwrap_or((available_bytes / 4).max(MIN_CACHE_BYTES)),
            query_bytes: config.query.memory_bytes.unwrap_or((available_bytes / 8).max(MIN_QUERY_BYTES)),
        }
    }
}

//! How the memory of the process is divided where the configuration does not say.

use super::Config;

/// The least cache that is worth having.
const LEAST_CACHE_BYTES: u64 = 64 << 20;

/// The least `query.memory_bytes`: what sorts and dedups need.
pub(super) const LEAST_QUERY_BYTES: u64 = 128 << 20;

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
            cache_bytes: config.cache.memory_bytes.unwrap_or((available_bytes / 4).max(LEAST_CACHE_BYTES)),
            query_bytes: config.query.memory_bytes.unwrap_or((available_bytes / 8).max(LEAST_QUERY_BYTES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_is_divided_by_what_is_available() {
        let config = Config::default();
        let plan = |available| {
            let plan = MemoryPlan::of(&config, available);
            (plan.cache_bytes, plan.query_bytes)
        };
        assert_eq!(plan(24 * GIB), (6 * GIB, 3 * GIB));
        assert_eq!(plan(GIB), (GIB / 4, GIB / 8));
        assert_eq!(plan(64 << 20), (64 << 20, 128 << 20), "the least of each");
    }

    #[test]
    fn what_is_configured_holds_whatever_is_available() {
        let mut config = Config::default();
        (config.cache.memory_bytes, config.query.memory_bytes) = (Some(0), Some(GIB));
        let plan = MemoryPlan::of(&config, 24 * GIB);
        assert_eq!((plan.cache_bytes, plan.query_bytes), (0, GIB));
    }
}

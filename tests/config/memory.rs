//! Default sizes of the cache and of the memory for queries.

use strata_config::{Config, MemoryPlan};

const GIB: u64 = 1 << 30;

#[test]
fn default_sizes_are_fractions_of_available_memory() {
    let config = Config::default();
    let plan = |available| {
        let plan = MemoryPlan::from_config(&config, available);
        (plan.cache_bytes, plan.query_bytes)
    };
    assert_eq!(plan(24 * GIB), (6 * GIB, 3 * GIB));
    assert_eq!(plan(GIB), (GIB / 4, GIB / 8));
    assert_eq!(plan(64 << 20), (64 << 20, 128 << 20), "the minimums apply");
}

#[test]
fn configured_sizes_override_available_memory() {
    let mut config = Config::default();
    config.cache.memory_bytes = Some(0);
    config.query.memory_bytes = Some(GIB);
    let plan = MemoryPlan::from_config(&config, 24 * GIB);
    assert_eq!((plan.cache_bytes, plan.query_bytes), (0, GIB));
}

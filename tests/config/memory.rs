//! The division of memory.

use strata_config::{Config, MemoryPlan};

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

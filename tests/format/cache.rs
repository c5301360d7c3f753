//! The cache of decoded parts: its capacity, and its reports of damage.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use strata_format::cache::PartCache;
use strata_format::cached_part::{CachedPart, PartKey};
use strata_format::reader::VersionReader;
use strata_store::store::Store;
use tokio::sync::mpsc;

fn column(row_group: u32, bytes: usize) -> (PartKey, CachedPart) {
    let array: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&vec![7; bytes]]));
    (PartKey::Column { file: 1, row_group, column: 0 }, CachedPart::Column(array))
}

#[tokio::test]
async fn large_parts_stay_within_capacity() {
    const CAPACITY: u64 = 8 << 20;
    let cache = PartCache::new(CAPACITY);
    for number in 0..50 {
        let (key, part) = column(number, 1 << 20);
        match number % 2 {
            0 => cache.insert_loaded(key, part).await,
            _ => drop(cache.get_or_load(key, || async { Ok(part) }).await.expect("failed to load part")),
        }
        assert!(cache.memory_bytes() <= CAPACITY, "after part {number}: {}", cache.memory_bytes());
    }
    assert!(cache.memory_bytes() > CAPACITY / 2, "the cache evicted too much");
}

#[tokio::test]
async fn queued_damage_reports_precede_channel_end() {
    let (damage, mut reports) = mpsc::channel(8);
    let cache = PartCache::new(8 << 20).with_damage_reports(damage);
    let store = Store::in_memory();
    let clone = cache.clone();
    let open_missing = async |path: &str| {
        VersionReader::open(&store, &path.into(), 1_000, &clone).await.expect_err("opened a missing file");
    };
    open_missing("versions/a.parquet").await;
    cache.close_damage_reports();
    open_missing("versions/b.parquet").await;
    assert_eq!(reports.recv().await.map(|report| report.path), Some("versions/a.parquet".to_owned()));
    assert_eq!(reports.recv().await, None);
}

#[tokio::test]
async fn cache_has_room_until_capacity_is_used() {
    let cache = PartCache::new(8 << 20);
    assert!(cache.has_room_for(8 << 20) && !cache.has_room_for((8 << 20) + 1));
    let (key, part) = column(0, 4 << 20);
    cache.insert_loaded(key, part).await;
    assert!(cache.has_room_for(3 << 20) && !cache.has_room_for(4 << 20));
}

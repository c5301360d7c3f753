//! The cache of decoded parts: its capacity, and its reports of damage.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use strata_format::cache::PartCache;
use strata_format::parts::{Part, PartKey};
use strata_format::reader::VersionReader;
use strata_store::store::Store;
use tokio::sync::mpsc;

fn column(row_group: u32, bytes: usize) -> (PartKey, Part) {
    let array: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&vec![7; bytes]]));
    (PartKey::Column { file: 1, row_group, column: 0 }, Part::Column(array))
}

#[tokio::test]
async fn large_parts_stay_within_the_capacity() {
    const CAPACITY: u64 = 8 << 20;
    let cache = PartCache::new(CAPACITY);
    for number in 0..50 {
        let (key, part) = column(number, 1 << 20);
        match number % 2 {
            0 => cache.insert(key, part).await,
            _ => drop(cache.get_or_load(key, || async { Ok(part) }).await.expect("a part")),
        }
        assert!(cache.memory_bytes() <= CAPACITY, "after part {number}: {}", cache.memory_bytes());
    }
    assert!(cache.memory_bytes() > CAPACITY / 2, "some are kept");
}

#[tokio::test]
async fn waiting_reports_arrive_before_the_end() {
    let (damage, mut reports) = mpsc::channel(8);
    let cache = PartCache::new(8 << 20).reporting(damage);
    let (store, other) = (Store::nowhere(), cache.clone());
    let open_missing = async |path: &str| {
        VersionReader::open(&store, &path.into(), 1_000, &other).await.expect_err("it is missing");
    };
    open_missing("versions/a.parquet").await;
    cache.end_reports();
    open_missing("versions/b.parquet").await;
    assert_eq!(reports.recv().await.map(|report| report.path), Some("versions/a.parquet".to_owned()));
    assert_eq!(reports.recv().await, None);
}

#[tokio::test]
async fn cache_has_room_until_capacity_is_used() {
    let cache = PartCache::new(8 << 20);
    assert!(cache.has_room_for(8 << 20) && !cache.has_room_for((8 << 20) + 1));
    let (key, part) = column(0, 4 << 20);
    cache.insert(key, part).await;
    assert!(cache.has_room_for(3 << 20) && !cache.has_room_for(4 << 20));
}

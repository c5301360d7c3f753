//! Usage statistics: the counts of several processes are summed, each batch once.

use std::collections::HashMap;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogCheckDepth, DailyUsage, UsageCounts, UsageIncrement};
use strata_testing::databases::on_both_databases;
use strata_types::ids::{DatasetId, UserId};
use tokio::task::JoinSet;

use super::{Database, clock, create, with_dataset, with_owner};

on_both_databases! {
    Database:
    usage_batch_is_added_once
    usage_of_processes_is_summed
    usage_of_unknown_dataset_is_dropped
    old_usage_is_deleted
}

fn counts(requests: u64) -> UsageCounts {
    UsageCounts { requests, not_modified: 2 * requests, rate_limited: 3 * requests, sent_bytes: 4 * requests }
}

fn increment(dataset: DatasetId, day: u32, requests: u64) -> UsageIncrement {
    UsageIncrement { dataset, name_slug: None, day, counts: counts(requests) }
}

async fn usage(catalog: &Catalog, dataset: DatasetId) -> Vec<(u32, UsageCounts)> {
    let days = catalog.daily_usage(dataset, 0).await.unwrap();
    days.into_iter().map(|DailyUsage { day, counts }| (day, counts)).collect()
}

async fn usage_batch_is_added_once(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    assert_eq!(usage(&catalog, dataset).await, []);
    let rows = [increment(dataset, 5, 1), increment(dataset, 7, 10)];
    catalog.add_usage("a", 1, &rows).await.unwrap();
    // The process did not learn that the commit had succeeded.
    catalog.add_usage("a", 1, &rows).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(7, counts(10)), (5, counts(1))]);
    catalog.add_usage("a", 2, &rows[1..]).await.unwrap();
    // Each process numbers its own batches.
    catalog.add_usage("b", 1, &rows[..1]).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(7, counts(20)), (5, counts(2))]);
    assert_eq!(catalog.daily_usage(dataset, 6).await.unwrap().len(), 1);
    assert_eq!(catalog.daily_usage(dataset, 8).await.unwrap(), []);
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    for (first, requests) in [(0, 22), (6, 20)] {
        assert_eq!(catalog.usage_by_owner(owner, first).await.unwrap(), HashMap::from([(dataset, counts(requests))]));
    }
    for (owner, first) in [(owner, 8), (UserId::new(owner.get() + 1), 0)] {
        assert!(catalog.usage_by_owner(owner, first).await.unwrap().is_empty());
    }
    catalog.add_usage("c", 1, &[]).await.unwrap();
    let mut findings = Vec::new();
    catalog.check_integrity(CatalogCheckDepth::Full, &mut |finding| findings.push(finding)).await.unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

async fn usage_of_processes_is_summed(database: Database) {
    let (first, owner) = with_owner(&database).await;
    let mut datasets = Vec::new();
    for name in ["A", "B", "C"] {
        datasets.push(create(&first, owner, name).await.unwrap().id);
    }
    let second = database.open().await;
    let mut adding = JoinSet::new();
    for writer in 0..8_u64 {
        let catalog = if writer % 2 == 0 { &first } else { &second }.clone();
        let rows: Vec<_> = datasets.iter().flat_map(|id| [increment(*id, 1, 1), increment(*id, 2, writer)]).collect();
        adding.spawn(async move {
            for batch in 1..=10 {
                catalog.add_usage(&format!("{writer}"), batch, &rows).await.unwrap();
            }
        });
    }
    adding.join_all().await;
    for dataset in datasets {
        assert_eq!(usage(&first, dataset).await, [(2, counts(280)), (1, counts(80))]);
    }
}

async fn usage_of_unknown_dataset_is_dropped(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let with_slug =
        |slug: &str, requests| UsageIncrement { name_slug: Some(slug.into()), ..increment(dataset, 5, requests) };
    let missing = DatasetId::new(dataset.get() + 7);
    let rows = [
        with_slug("another", 1),
        with_slug("world-countries", 10),
        increment(dataset, 5, 100),
        increment(missing, 5, 1),
        increment(DatasetId::new(u64::MAX), 5, 1),
    ];
    catalog.add_usage("a", 1, &rows).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(5, counts(110))]);
    assert_eq!(database.number("SELECT COUNT(*) FROM dataset_usage").await, 1);
    // Deleting a dataset deletes its usage, and later increments are dropped.
    catalog.delete_dataset(dataset).await.unwrap();
    catalog.add_usage("a", 2, &rows).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM dataset_usage").await, 0);
}

async fn old_usage_is_deleted(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let rows: Vec<_> = (1..=20).map(|day| increment(dataset, day, 1)).collect();
    catalog.add_usage("old", 1, &rows).await.unwrap();
    clock.advance(Duration::from_secs(6 * 86_400));
    catalog.add_usage("new", 1, &[]).await.unwrap();
    clock.advance(Duration::from_secs(2 * 86_400));
    catalog.delete_usage_before(11).await.unwrap();
    let days: Vec<u32> = usage(&catalog, dataset).await.into_iter().map(|(day, _)| day).collect();
    assert_eq!(days, (11..=20).rev().collect::<Vec<_>>());
    assert_eq!(database.texts("SELECT writer FROM usage_writers").await, [Some("new".to_owned())]);
}

#[test]
fn usage_day_starts_at_midnight_utc() {
    let day_number = |text: &str| DailyUsage::day_number(text.parse().expect("failed to parse time"));
    let midnight = day_number("2026-11-22T00:00:00Z");
    assert_eq!(
        (day_number("2026-11-21T23:59:59.999999Z"), day_number("2026-11-22T23:59:59Z")),
        (midnight - 1, midnight)
    );
    assert_eq!(day_number("2026-11-22T23:30:00-01:00"), midnight + 1);
    assert_eq!(day_number("1969-12-31T00:00:00Z"), 0);
    let date = |day| DailyUsage { day, counts: UsageCounts::default() }.date().to_string();
    assert_eq!((date(midnight), date(0)), ("2026-11-22".to_owned(), "1970-01-01".to_owned()));
}

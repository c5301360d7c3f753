//! Usage: counts of several processes add up, each batch once.

use std::collections::HashMap;
use std::time::Duration;

use strata_catalog::{Catalog, CountedUsage, DayUsage, UsageCounts};
use strata_testing::databases::on_both_databases;
use strata_types::ids::{DatasetId, UserId};
use tokio::task::JoinSet;

use super::{Database, clock, create, with_dataset, with_owner};

on_both_databases! {
    Database:
    a_batch_is_added_once
    several_processes_add_up
    what_names_no_dataset_is_left_out
    old_days_are_forgotten
}

fn counts(requests: u64) -> UsageCounts {
    UsageCounts { requests, not_modified: 2 * requests, rate_limited: 3 * requests, bytes: 4 * requests }
}

fn counted(dataset: DatasetId, day: u32, requests: u64) -> CountedUsage {
    CountedUsage { dataset, name_slug: None, day, counts: counts(requests) }
}

async fn usage(catalog: &Catalog, dataset: DatasetId) -> Vec<(u32, UsageCounts)> {
    let days = catalog.usage(dataset, 0).await.unwrap();
    days.into_iter().map(|DayUsage { day, counts }| (day, counts)).collect()
}

async fn a_batch_is_added_once(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    assert_eq!(usage(&catalog, dataset).await, []);
    let rows = [counted(dataset, 5, 1), counted(dataset, 7, 10)];
    catalog.add_usage("a", 1, &rows).await.unwrap();
    // Its commit was not heard of.
    catalog.add_usage("a", 1, &rows).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(7, counts(10)), (5, counts(1))]);
    catalog.add_usage("a", 2, &rows[1..]).await.unwrap();
    // Another process numbers its own.
    catalog.add_usage("b", 1, &rows[..1]).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(7, counts(20)), (5, counts(2))]);
    assert_eq!(catalog.usage(dataset, 6).await.unwrap().len(), 1);
    assert_eq!(catalog.usage(dataset, 8).await.unwrap(), []);
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    for (first, requests) in [(0, 22), (6, 20)] {
        assert_eq!(catalog.owned_usage(owner, first).await.unwrap(), HashMap::from([(dataset, counts(requests))]));
    }
    for (owner, first) in [(owner, 8), (UserId::new(owner.get() + 1), 0)] {
        assert!(catalog.owned_usage(owner, first).await.unwrap().is_empty());
    }
    catalog.add_usage("c", 1, &[]).await.unwrap();
    let mut told = Vec::new();
    catalog.check_integrity(false, &mut |finding| told.push(finding)).await.unwrap();
    assert!(told.is_empty(), "{told:?}");
}

async fn several_processes_add_up(database: Database) {
    let (first, owner) = with_owner(&database).await;
    let mut datasets = Vec::new();
    for name in ["A", "B", "C"] {
        datasets.push(create(&first, owner, name).await.unwrap().id);
    }
    let second = database.open().await;
    let mut adding = JoinSet::new();
    for writer in 0..8_u64 {
        let catalog = if writer % 2 == 0 { &first } else { &second }.clone();
        let rows: Vec<_> = datasets.iter().flat_map(|id| [counted(*id, 1, 1), counted(*id, 2, writer)]).collect();
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

async fn what_names_no_dataset_is_left_out(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let named = |slug: &str, requests| CountedUsage { name_slug: Some(slug.into()), ..counted(dataset, 5, requests) };
    let nobody = DatasetId::new(dataset.get() + 7);
    let rows = [
        named("another", 1),
        named("world-countries", 10),
        counted(dataset, 5, 100),
        counted(nobody, 5, 1),
        counted(DatasetId::new(u64::MAX), 5, 1),
    ];
    catalog.add_usage("a", 1, &rows).await.unwrap();
    assert_eq!(usage(&catalog, dataset).await, [(5, counts(110))]);
    assert_eq!(database.number("SELECT COUNT(*) FROM dataset_usage").await, 1);
    // With the dataset its usage goes, also what comes late.
    catalog.delete_dataset(dataset).await.unwrap();
    catalog.add_usage("a", 2, &rows).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM dataset_usage").await, 0);
}

async fn old_days_are_forgotten(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let rows: Vec<_> = (1..=20).map(|day| counted(dataset, day, 1)).collect();
    catalog.add_usage("old", 1, &rows).await.unwrap();
    clock.advance(Duration::from_secs(6 * 86_400));
    catalog.add_usage("new", 1, &[]).await.unwrap();
    clock.advance(Duration::from_secs(2 * 86_400));
    catalog.sweep_usage(11).await.unwrap();
    let days: Vec<u32> = usage(&catalog, dataset).await.into_iter().map(|(day, _)| day).collect();
    assert_eq!(days, (11..=20).rev().collect::<Vec<_>>());
    assert_eq!(database.texts("SELECT writer FROM usage_writers").await, [Some("new".to_owned())]);
}

#[test]
fn days_begin_at_midnight_in_utc() {
    let at = |text: &str| DayUsage::day_of(text.parse().expect("a time"));
    let midnight = at("2026-11-22T00:00:00Z");
    assert_eq!((at("2026-11-21T23:59:59.999999Z"), at("2026-11-22T23:59:59Z")), (midnight - 1, midnight));
    assert_eq!(at("2026-11-22T23:30:00-01:00"), midnight + 1);
    assert_eq!(at("1969-12-31T00:00:00Z"), 0);
    let date = |day| DayUsage { day, counts: UsageCounts::default() }.date().to_string();
    assert_eq!((date(midnight), date(0)), ("2026-11-22".to_owned(), "1970-01-01".to_owned()));
}

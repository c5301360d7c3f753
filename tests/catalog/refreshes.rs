//! Refreshes: the exclusive lease on a dataset across processes, and the recorded attempts.

use std::time::Duration;

use strata_catalog::{AttemptOutcome, Catalog, CatalogError, VersionContent};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{RefreshTrigger, RollbackMode};
use strata_types::ids::{DatasetId, RefreshAttemptId};
use strata_types::version::VersionNumber;
use tokio::task::JoinSet;

use super::{Database, acquire, clock, create, file, publish, resolved_number, with_dataset};

on_both_databases! {
    Database:
    refresh_lease_is_exclusive
    concurrent_acquires_yield_one_lease
    failed_refresh_releases_lease
    expired_lease_takeover_fails_old_attempt
    renewed_lease_is_not_taken_over
    expired_lease_without_takeover_publishes
    crashed_attempts_are_ended
    frozen_dataset_rejects_refresh
    freeze_during_refresh_wins
    unchanged_source_shares_file
    failure_reason_is_stored
    attempt_ends_once
    old_attempts_are_deleted
    listed_versions_have_one_active
}

const SHORT: Duration = Duration::from_secs(60);

/// Acquires the lease on the dataset, with the path `a` for the file.
async fn try_acquire(catalog: &Catalog, dataset: DatasetId) -> Result<RefreshAttemptId, CatalogError> {
    Ok(catalog.acquire_refresh(dataset, RefreshTrigger::Ping, "a", SHORT).await?.attempt)
}

/// Publishes a new file with an acquired lease.
async fn publish_as(
    catalog: &Catalog,
    dataset: DatasetId,
    attempt: RefreshAttemptId,
    path: &str,
) -> Result<u64, CatalogError> {
    catalog.reserve_file(path, SHORT).await?;
    let published = catalog.publish_version(dataset, VersionContent::New(&file(path)), None, attempt).await?;
    Ok(published.version.number.get())
}

/// Returns the attempts as strings, newest first.
async fn attempts(catalog: &Catalog, dataset: DatasetId) -> Vec<String> {
    let text = |attempt: strata_catalog::RefreshAttempt| {
        assert_eq!(attempt.finished_at.is_some(), attempt.outcome.is_some());
        let outcome = match attempt.outcome {
            None => "running".to_owned(),
            Some(AttemptOutcome::Published(number)) => format!("v{number}"),
            Some(AttemptOutcome::Failed { error }) => error,
        };
        format!("{}: {outcome}", attempt.trigger.name())
    };
    catalog.attempts(dataset, None, 1_000).await.unwrap().into_iter().map(text).collect()
}

const CRASHED: &str = "ping: strata stopped or lost access to the metadata database before the refresh finished";

async fn refresh_lease_is_exclusive(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&catalog, owner.id, "Other").await.unwrap().id;
    let lease = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "a", SHORT).await.unwrap();
    assert_eq!(lease.dataset.id, dataset);
    for catalog in [&catalog, &database.open().await] {
        let second = try_acquire(catalog, dataset).await;
        assert!(matches!(second, Err(CatalogError::RefreshRunning)), "{second:?}");
    }
    try_acquire(&catalog, other).await.unwrap();
    assert_eq!(attempts(&catalog, dataset).await, ["manual: running"]);
    assert_eq!(publish_as(&catalog, dataset, lease.attempt, "a").await.unwrap(), 1);
    assert_eq!(attempts(&catalog, dataset).await, ["manual: v1"]);
    try_acquire(&catalog, dataset).await.unwrap();

    let missing = try_acquire(&catalog, DatasetId::new(u64::MAX)).await;
    assert!(matches!(missing, Err(CatalogError::NotFound)), "{missing:?}");
}

async fn concurrent_acquires_yield_one_lease(database: Database) {
    let (first, dataset) = with_dataset(&database).await;
    let second = database.open().await;
    let mut refreshes = JoinSet::new();
    for number in 0..12 {
        let catalog = if number % 2 == 0 { &first } else { &second }.clone();
        refreshes.spawn(async move { try_acquire(&catalog, dataset).await });
    }
    let (acquired, busy): (Vec<_>, Vec<_>) = refreshes.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(acquired.len(), 1);
    assert!(busy.iter().all(|outcome| matches!(outcome, Err(CatalogError::RefreshRunning))), "{busy:?}");
    assert_eq!(attempts(&first, dataset).await, ["ping: running"]);
}

async fn failed_refresh_releases_lease(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM file_reservations").await, 1);
    catalog.fail_refresh(attempt, "no").await.unwrap();
    // A failed attempt also loses its file reservation.
    assert_eq!(database.number("SELECT COUNT(*) FROM file_reservations").await, 0);
    let next = try_acquire(&catalog, dataset).await.unwrap();
    assert_eq!(attempts(&catalog, dataset).await, ["ping: running", "ping: no"]);
    assert_eq!(publish_as(&catalog, dataset, next, "b").await.unwrap(), 1);
}

async fn expired_lease_takeover_fails_old_attempt(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let crashed = try_acquire(&catalog, dataset).await.unwrap();
    clock.advance(SHORT - Duration::from_micros(1));
    assert!(matches!(try_acquire(&catalog, dataset).await, Err(CatalogError::RefreshRunning)));
    clock.advance(Duration::from_micros(1));
    let next = try_acquire(&catalog, dataset).await.unwrap();
    assert_eq!(attempts(&catalog, dataset).await, ["ping: running", CRASHED]);

    // The old attempt was only slow, but all its calls now fail.
    let late = catalog.publish_version(dataset, VersionContent::New(&file("a")), None, crashed).await;
    assert!(matches!(late, Err(CatalogError::LeaseLost)), "{late:?}");
    for late in [catalog.renew_refresh(crashed, SHORT).await, catalog.fail_refresh(crashed, "late").await] {
        assert!(matches!(late, Err(CatalogError::LeaseLost)), "{late:?}");
    }
    assert_eq!(publish_as(&catalog, dataset, next, "b").await.unwrap(), 1);
    assert_eq!(attempts(&catalog, dataset).await, ["ping: v1", CRASHED]);
}

async fn renewed_lease_is_not_taken_over(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    for _ in 0..5 {
        clock.advance(SHORT / 2);
        catalog.renew_refresh(attempt, SHORT).await.unwrap();
        assert!(matches!(try_acquire(&catalog, dataset).await, Err(CatalogError::RefreshRunning)));
        assert_eq!(catalog.end_expired_refreshes().await.unwrap(), 0);
        assert_eq!(catalog.expire_reservations().await.unwrap(), 0);
    }
    catalog.publish_version(dataset, VersionContent::New(&file("a")), None, attempt).await.unwrap();
}

async fn expired_lease_without_takeover_publishes(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    clock.advance(SHORT * 10);
    assert_eq!(publish_as(&catalog, dataset, attempt, "a").await.unwrap(), 1);

    // After a sweep has deleted the reservation of its file, the attempt cannot publish.
    let attempt = catalog.acquire_refresh(dataset, RefreshTrigger::Ping, "b", SHORT).await.unwrap().attempt;
    clock.advance(SHORT);
    assert_eq!(catalog.expire_reservations().await.unwrap(), 1);
    let published = catalog.publish_version(dataset, VersionContent::New(&file("b")), None, attempt).await;
    assert!(matches!(published, Err(CatalogError::ReservationLost)), "{published:?}");
    assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(1));
}

async fn crashed_attempts_are_ended(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    try_acquire(&catalog, dataset).await.unwrap();
    assert_eq!(catalog.end_expired_refreshes().await.unwrap(), 0);
    clock.advance(SHORT);
    assert_eq!(catalog.end_expired_refreshes().await.unwrap(), 1);
    assert_eq!(catalog.end_expired_refreshes().await.unwrap(), 0);
    assert_eq!(attempts(&catalog, dataset).await, [CRASHED]);
    try_acquire(&catalog, dataset).await.unwrap();
}

async fn frozen_dataset_rejects_refresh(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    catalog.rollback(dataset, VersionNumber::new(1), RollbackMode::PinAndFreeze).await.unwrap();
    let rejected = try_acquire(&catalog, dataset).await;
    assert!(matches!(rejected, Err(CatalogError::Frozen)), "{rejected:?}");
    assert_eq!(attempts(&catalog, dataset).await, ["import: v1"]);
}

async fn freeze_during_refresh_wins(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    catalog.rollback(dataset, VersionNumber::new(1), RollbackMode::PinAndFreeze).await.unwrap();
    let published = publish_as(&catalog, dataset, attempt, "b").await;
    assert!(matches!(published, Err(CatalogError::Frozen)), "{published:?}");
    catalog.fail_refresh(attempt, "frozen").await.unwrap();
    assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(1));
    // After unfreezing, the next refresh publishes a version, and the pin remains.
    catalog.unfreeze(dataset, 100).await.unwrap();
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    assert_eq!(publish_as(&catalog, dataset, attempt, "c").await.unwrap(), 2);
    assert_eq!(resolved_number(&catalog, dataset, "active").await, Some(1));
}

async fn unchanged_source_shares_file(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&catalog, owner.id, "Other").await.unwrap().id;
    let first = publish(&catalog, dataset, "a").await.unwrap();
    let foreign = publish(&catalog, other, "b").await.unwrap();
    let attempt = acquire(&catalog, dataset, "c").await.unwrap();
    let share = async |file, content_hash| {
        catalog.publish_version(dataset, VersionContent::Shared { file, content_hash }, None, attempt).await
    };
    for (file, hash) in [(first.file.id, "other"), (foreign.file.id, "other")] {
        let shared = share(file, hash).await;
        assert!(matches!(shared, Err(CatalogError::Conflict)), "{shared:?}");
    }
    // A file of another dataset is not shared, but replaced with the file of the same content.
    let second = share(foreign.file.id, "c0ffee").await.unwrap();
    assert_eq!(second.version.number, VersionNumber::new(2));
    assert_eq!(second.version.file, first.file);
    assert!(second.is_active);
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 2);
}

async fn failure_reason_is_stored(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    for error in ["item 3 is not an object: \"\0\"", &"é".repeat(2_001)] {
        let attempt = try_acquire(&catalog, dataset).await.unwrap();
        catalog.fail_refresh(attempt, error).await.unwrap();
    }
    assert_eq!(
        attempts(&catalog, dataset).await,
        [format!("ping: {}", "é".repeat(2_000)), "ping: item 3 is not an object: \"\u{fffd}\"".to_owned()]
    );
    assert_eq!(resolved_number(&catalog, dataset, "latest").await, None);
}

async fn attempt_ends_once(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let attempt = try_acquire(&catalog, dataset).await.unwrap();
    publish_as(&catalog, dataset, attempt, "a").await.unwrap();
    for attempt in [attempt, RefreshAttemptId::new(attempt.get() + 1), RefreshAttemptId::new(u64::MAX)] {
        let failed = catalog.fail_refresh(attempt, "late").await;
        assert!(matches!(failed, Err(CatalogError::LeaseLost)), "{failed:?}");
    }
    let again = catalog.publish_version(dataset, VersionContent::New(&file("b")), None, attempt).await;
    assert!(matches!(again, Err(CatalogError::LeaseLost)), "{again:?}");
    assert_eq!(attempts(&catalog, dataset).await, ["ping: v1"]);
}

async fn old_attempts_are_deleted(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    // Two datasets with slightly fewer attempts than the maximum.
    let other = create(&catalog, catalog.dataset(dataset).await.unwrap().unwrap().owner, "Other").await.unwrap().id;
    for dataset in [dataset, other] {
        database
            .execute(&format!(
                "INSERT INTO refresh_attempts (dataset_id, trigger_name, started_at, finished_at, ok, error)
                 WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 990)
                 SELECT {dataset}, 'ping', 1, 2, (1 = 0), 'old ' || n FROM n"
            ))
            .await;
    }
    for number in 0..55 {
        let attempt = try_acquire(&catalog, dataset).await.unwrap();
        catalog.fail_refresh(attempt, &format!("number {number}")).await.unwrap();
    }
    let stored = attempts(&catalog, dataset).await;
    assert_eq!((stored.len(), stored[0].as_str(), stored[999].as_str()), (1_000, "ping: number 54", "ping: old 46"));
    let sql = format!("SELECT COUNT(*) FROM refresh_attempts WHERE dataset_id = {dataset}");
    assert_eq!(database.number(&sql).await, 1_000);
    assert_eq!(catalog.attempts(other, None, 2_000).await.unwrap().len(), 990);
    // The attempts are listed in pages.
    let all = catalog.attempts(dataset, None, 2_000).await.unwrap();
    let next = catalog.attempts(dataset, Some(all[9].id), 10).await.unwrap();
    assert_eq!(next, all[10..20]);
    assert_eq!(catalog.attempts(dataset, Some(all[999].id), 10).await.unwrap(), []);
    assert_eq!(catalog.attempts(dataset, Some(RefreshAttemptId::new(u64::MAX)), 10).await.unwrap(), all[..10]);
    let view = catalog.dataset_view(dataset).await.unwrap().unwrap();
    assert_eq!(view.last_attempts, catalog.attempts(dataset, None, 10).await.unwrap());
    assert_eq!(catalog.dataset_view(DatasetId::new(99)).await.unwrap(), None);
}

/// Twenty tasks refresh, roll back, unpin, and read two datasets through two handles.
async fn listed_versions_have_one_active(database: Database) {
    let (first, dataset) = with_dataset(&database).await;
    let owner = first.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&first, owner.id, "Other").await.unwrap().id;
    let second = database.open().await;
    let mut tasks = JoinSet::new();
    for task in 0..20_u64 {
        let catalog = if task % 2 == 0 { &first } else { &second }.clone();
        let dataset = if task % 4 < 2 { dataset } else { other };
        tasks.spawn(async move {
            let mut published = Vec::new();
            for round in 0..4 {
                match task % 5 {
                    0 | 1 => {
                        let version = publish(&catalog, dataset, &format!("{task}-{round}")).await.unwrap();
                        published.push((dataset, version.number.get()));
                    }
                    2 => match catalog.rollback(dataset, VersionNumber::new(round + 1), RollbackMode::Pin).await {
                        Ok(_) | Err(CatalogError::NoVersion) => {}
                        Err(error) => panic!("{error:?}"),
                    },
                    3 => drop(catalog.unpin(dataset).await.unwrap()),
                    _ => {
                        let listed = catalog.versions(dataset, None, 1_000).await.unwrap();
                        let view = catalog.dataset_view(dataset).await.unwrap().unwrap();
                        for versions in [&listed, &view.versions] {
                            let numbers: Vec<u64> = versions.iter().map(|listed| listed.version.number.get()).collect();
                            let expected: Vec<u64> = (1..=numbers.len() as u64).rev().collect();
                            assert_eq!(numbers, expected);
                            let active = versions.iter().filter(|listed| listed.is_active).count();
                            assert_eq!(active, usize::from(!versions.is_empty()));
                        }
                        let active = view.versions.iter().find(|listed| listed.is_active);
                        assert_eq!(view.dataset.active_version(), active.map(|listed| listed.version.number));
                    }
                }
            }
            published
        });
    }
    let mut published = tasks.join_all().await.concat();
    published.sort_unstable();
    for dataset in [dataset, other] {
        let numbers: Vec<u64> = published.iter().filter(|(id, _)| *id == dataset).map(|(_, number)| *number).collect();
        assert_eq!(numbers, (1..=16).collect::<Vec<u64>>(), "{dataset}");
        assert_eq!(attempts(&first, dataset).await.len(), 16);
    }
    assert_eq!(database.number("SELECT COUNT(*) FROM refresh_leases").await, 0);
    assert_eq!(database.number("SELECT COUNT(*) FROM file_reservations").await, 0);
}

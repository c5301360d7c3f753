//! Schedules: each due run is claimed exactly once.

use std::time::Duration;

use chrono::TimeDelta;
use strata_catalog::{Catalog, ScheduledRun};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{DEFAULT_CRON_SCHEDULE, DatasetChange, DatasetSource, NewDataset, RollbackMode};
use strata_types::ids::DatasetId;
use strata_types::version::VersionNumber;
use tokio::task::JoinSet;

use super::{Database, clock, create, new_dataset, publish, with_owner};

on_both_databases! {
    Database:
    schedule_is_computed_due_and_claimed_once
    inactive_schedule_is_not_due
    changed_schedule_is_recomputed
    saved_schedule_recomputes_only_a_future_run
    future_schedules_are_listed_by_id_in_pages
    concurrent_claimers_share_due_runs
}

/// Creates a dataset with a schedule and a source to fetch.
async fn scheduled(catalog: &Catalog, owner: strata_types::ids::UserId, text: &str) -> DatasetId {
    let source = DatasetSource::Url("https://a.test/".to_owned());
    catalog.create_dataset(&NewDataset { source, ..new_dataset(owner, text) }, 100).await.unwrap().id
}

async fn due(catalog: &Catalog) -> Vec<ScheduledRun> {
    catalog.due_schedules(100).await.unwrap()
}

async fn schedule_is_computed_due_and_claimed_once(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let dataset = scheduled(&catalog, owner, "a").await;

    let new = due(&catalog).await;
    assert_eq!(new, [ScheduledRun { dataset, owner, schedule: DEFAULT_CRON_SCHEDULE.to_owned(), due_at: None }]);
    let next = clock.now() + TimeDelta::hours(1);
    assert!(catalog.claim_schedule(&new[0], Some(next)).await.unwrap());
    assert!(!catalog.claim_schedule(&new[0], Some(next)).await.unwrap());
    assert_eq!(due(&catalog).await, []);

    clock.advance(Duration::from_secs(3_599));
    assert_eq!(due(&catalog).await, []);
    clock.advance(Duration::from_secs(1));
    let now_due = due(&catalog).await;
    assert_eq!(now_due[0].due_at, Some(next));
    assert!(catalog.claim_schedule(&now_due[0], Some(next + TimeDelta::days(1))).await.unwrap());
    assert!(!catalog.claim_schedule(&now_due[0], Some(next + TimeDelta::days(1))).await.unwrap());
    assert_eq!(due(&catalog).await, []);

    // A schedule without a next run is inactive until it changes.
    clock.advance(Duration::from_secs(86_400));
    let last = due(&catalog).await;
    assert!(catalog.claim_schedule(&last[0], None).await.unwrap());
    clock.advance(Duration::from_secs(86_400_000));
    assert_eq!(due(&catalog).await, []);
}

async fn inactive_schedule_is_not_due(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    // A push dataset has no source to fetch.
    create(&catalog, owner, "push").await.unwrap();
    let unscheduled = DatasetChange { schedule: Some(None), ..Default::default() };
    let without = scheduled(&catalog, owner, "without").await;
    catalog.update_dataset(without, &unscheduled).await.unwrap();
    assert_eq!(due(&catalog).await, []);

    let frozen = scheduled(&catalog, owner, "frozen").await;
    let listed = due(&catalog).await;
    assert_eq!(listed.len(), 1);
    publish(&catalog, frozen, "a").await.unwrap();
    catalog.rollback(frozen, VersionNumber::new(1), RollbackMode::PinAndFreeze).await.unwrap();
    assert_eq!(due(&catalog).await, []);
    // A freeze between the listing and the claim prevents the claim.
    assert!(!catalog.claim_schedule(&listed[0], Some(catalog.now())).await.unwrap());
    catalog.unfreeze(frozen, 100).await.unwrap();
    assert_eq!(due(&catalog).await, listed);
}

async fn changed_schedule_is_recomputed(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let dataset = scheduled(&catalog, owner, "a").await;
    let before = due(&catalog).await;
    let far = catalog.now() + TimeDelta::days(30);
    assert!(catalog.claim_schedule(&before[0], Some(far)).await.unwrap());
    let change = async |schedule: &str| {
        let change = DatasetChange { schedule: Some(Some(schedule.to_owned())), ..Default::default() };
        catalog.update_dataset(dataset, &change).await.unwrap();
    };
    change("5 4 * * *").await;
    let after = due(&catalog).await;
    assert_eq!((after[0].schedule.as_str(), after[0].due_at), ("5 4 * * *", None));
    // The next run was computed from the old schedule.
    assert!(!catalog.claim_schedule(&before[0], Some(far)).await.unwrap());

    // A push dataset becomes due when it gets a source.
    let push = create(&catalog, owner, "push").await.unwrap().id;
    let source = Some(DatasetSource::Url("https://a.test/".to_owned()));
    catalog.update_dataset(push, &DatasetChange { source, ..Default::default() }).await.unwrap();
    assert!(due(&catalog).await.iter().any(|due| due.dataset == push));
}

/// A next run that was stored while the clock was years ahead could not be corrected by its owner.
async fn saved_schedule_recomputes_only_a_future_run(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let dataset = scheduled(&catalog, owner, "a").await;
    let next = clock.now() + TimeDelta::days(1_000);
    assert!(catalog.claim_schedule(&due(&catalog).await[0], Some(next)).await.unwrap());
    let save = async || {
        let change = DatasetChange { schedule: Some(Some(DEFAULT_CRON_SCHEDULE.to_owned())), ..Default::default() };
        catalog.update_dataset(dataset, &change).await.unwrap();
    };
    catalog.update_dataset(dataset, &DatasetChange::default()).await.unwrap();
    assert_eq!(due(&catalog).await, [], "the change does not name the schedule");
    save().await;
    let saved = due(&catalog).await;
    assert_eq!((saved.len(), saved[0].due_at), (1, None));

    let next = clock.now() + TimeDelta::hours(1);
    assert!(catalog.claim_schedule(&saved[0], Some(next)).await.unwrap());
    clock.advance(Duration::from_secs(3_600));
    save().await;
    assert_eq!(due(&catalog).await[0].due_at, Some(next), "a due run is not lost");
}

async fn future_schedules_are_listed_by_id_in_pages(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "frozen", "c", "due"] {
        ids.push(scheduled(&catalog, owner, name).await);
    }
    let next = catalog.now() + TimeDelta::days(1);
    for computed in due(&catalog).await {
        let past = catalog.now() - TimeDelta::days(1);
        let next = if computed.dataset == ids[4] { past } else { next };
        assert!(catalog.claim_schedule(&computed, Some(next)).await.unwrap());
    }
    publish(&catalog, ids[2], "a").await.unwrap();
    catalog.rollback(ids[2], VersionNumber::new(1), RollbackMode::PinAndFreeze).await.unwrap();
    let page = async |last: DatasetId| {
        let page = catalog.future_schedules(last, 2).await.unwrap();
        assert!(page.iter().all(|schedule| schedule.due_at == Some(next) && schedule.owner == owner), "{page:?}");
        page.iter().map(|schedule| schedule.dataset).collect::<Vec<_>>()
    };
    assert_eq!(page(DatasetId::new(0)).await, [ids[0], ids[1]]);
    assert_eq!(page(ids[1]).await, [ids[3]]);
    assert_eq!(page(ids[3]).await, []);
}

async fn concurrent_claimers_share_due_runs(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = database.open().await;
    for number in 0..12 {
        scheduled(&catalog, owner, &format!("d{number}")).await;
    }
    let mut claimers = JoinSet::new();
    for number in 0..6 {
        let catalog = if number % 2 == 0 { &catalog } else { &other }.clone();
        claimers.spawn(async move {
            let mut claimed = Vec::new();
            let far = catalog.now() + TimeDelta::days(1);
            for due in due(&catalog).await {
                if catalog.claim_schedule(&due, Some(far)).await.unwrap() {
                    claimed.push(due.dataset.get());
                }
            }
            claimed
        });
    }
    let mut claimed = claimers.join_all().await.concat();
    claimed.sort_unstable();
    assert_eq!(claimed.len(), 12);
    claimed.dedup();
    assert_eq!(claimed.len(), 12, "two processes have claimed the same run");
}

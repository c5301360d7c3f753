//! The state table in docs/reference/refreshes.md: each trigger leads from each state to the expected one.

use strata_catalog::{Catalog, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{RefreshTrigger, RollbackMode};
use strata_types::ids::{DatasetId, UserId};
use strata_types::secret::Secret;

use super::{Database, LEASE, clock, create, delivery_outcome, file, new_dataset, publish, v, with_owner};

on_both_databases! {
    Database:
    triggers_lead_to_expected_states
    unfreeze_respects_plan_limit
    concurrent_unfreezes_respect_plan_limit
}

/// The state of a dataset, as far as the table distinguishes it.
#[derive(Clone, Debug, PartialEq)]
struct TableState {
    /// The number of versions, and the versions that have an alternate.
    versions: u64,
    alternates: &'static [u64],
    active: u64,
    pinned: bool,
    frozen: bool,
    webhook: WebhookState,
    /// The newest version with a due delivery.
    due: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum WebhookState {
    Absent,
    Fresh,
    Fired,
}

#[derive(Clone, Copy, Debug)]
enum Trigger {
    Refresh,
    Rollback { to: u64, freeze: bool },
    Unpin,
    Unfreeze,
    SaveAlternate { version: u64 },
    DeleteAlternate { version: u64 },
    Register,
    DeleteWebhook,
}

const TRIGGERS: [Trigger; 13] = [
    Trigger::Refresh,
    Trigger::Rollback { to: 1, freeze: false },
    Trigger::Rollback { to: 2, freeze: false },
    Trigger::Rollback { to: 1, freeze: true },
    Trigger::Rollback { to: 3, freeze: true },
    Trigger::Unpin,
    Trigger::Unfreeze,
    Trigger::SaveAlternate { version: 1 },
    Trigger::SaveAlternate { version: 3 },
    Trigger::DeleteAlternate { version: 1 },
    Trigger::DeleteAlternate { version: 2 },
    Trigger::Register,
    Trigger::DeleteWebhook,
];

/// The state table. Returns the next state, or the name of the error.
fn next(state: &TableState, trigger: Trigger) -> Result<TableState, &'static str> {
    let state = state.clone();
    match trigger {
        Trigger::Refresh if state.frozen => Err("Frozen"),
        Trigger::Refresh => Ok(TableState {
            versions: 3,
            active: if state.pinned { state.active } else { 3 },
            due: if state.webhook == WebhookState::Absent { state.due } else { Some(3) },
            ..state
        }),
        Trigger::Rollback { to, .. } if to > state.versions => Err("NoVersion"),
        Trigger::Rollback { to, freeze } => {
            Ok(TableState { active: to, pinned: true, frozen: state.frozen || freeze, ..state })
        }
        Trigger::Unpin => Ok(TableState { active: state.versions, pinned: false, ..state }),
        Trigger::Unfreeze if !state.frozen => Err("NotFrozen"),
        Trigger::Unfreeze => Ok(TableState { frozen: false, ..state }),
        Trigger::SaveAlternate { version } | Trigger::DeleteAlternate { version } if version > state.versions => {
            Err("NoVersion")
        }
        Trigger::SaveAlternate { .. } => Ok(TableState { alternates: &[1], ..state }),
        Trigger::DeleteAlternate { version } if !state.alternates.contains(&version) => Err("NoAlternate"),
        Trigger::DeleteAlternate { .. } => Ok(TableState { alternates: &[], ..state }),
        Trigger::Register => Ok(TableState { webhook: WebhookState::Fresh, ..state }),
        Trigger::DeleteWebhook if state.webhook == WebhookState::Absent => Err("NoWebhook"),
        Trigger::DeleteWebhook => Ok(TableState { webhook: WebhookState::Absent, due: None, ..state }),
    }
}

/// Returns all states that the table distinguishes.
fn states() -> Vec<TableState> {
    let mut states = Vec::new();
    for (active, pinned, frozen) in
        [(2, false, false), (1, true, false), (2, true, false), (1, true, true), (2, false, true)]
    {
        // Alternates and webhooks are independent, so not all combinations are needed.
        for (alternates, webhook) in
            [(&[][..], WebhookState::Absent), (&[1], WebhookState::Fresh), (&[], WebhookState::Fired)]
        {
            states.push(TableState { versions: 2, alternates, active, pinned, frozen, webhook, due: None });
        }
    }
    states
}

/// Creates a dataset in the given state.
async fn arrange(catalog: &Catalog, owner: UserId, name: &str, state: &TableState) -> DatasetId {
    let dataset = catalog.create_dataset(&new_dataset(owner, name), 10_000).await.unwrap().id;
    publish(catalog, dataset, &format!("{name} 1")).await.unwrap();
    if state.webhook != WebhookState::Absent {
        catalog.register_webhook(dataset, "https://old.test/", Some("old")).await.unwrap();
    }
    publish(catalog, dataset, &format!("{name} 2")).await.unwrap();
    while let Some(delivery) = catalog.claim_webhook_delivery().await.unwrap() {
        if state.webhook == WebhookState::Fired {
            catalog.record_delivery_outcome(&delivery, &delivery_outcome(Some(500))).await.unwrap();
        }
    }
    for alternate in state.alternates {
        save(catalog, dataset, *alternate, &format!("{name} alt")).await.unwrap();
    }
    if state.pinned || state.frozen {
        catalog.rollback(dataset, v(state.active), RollbackMode::from_freeze(state.frozen)).await.unwrap();
    }
    if !state.pinned {
        catalog.unpin(dataset).await.unwrap();
    }
    dataset
}

async fn save(catalog: &Catalog, dataset: DatasetId, version: u64, path: &str) -> Result<(), CatalogError> {
    catalog.reserve_file(path, LEASE).await?;
    catalog.save_alternate(dataset, v(version), &file(path), None).await?;
    Ok(())
}

async fn apply(catalog: &Catalog, dataset: DatasetId, trigger: Trigger, path: &str) -> Result<(), CatalogError> {
    match trigger {
        Trigger::Refresh => publish(catalog, dataset, path).await.map(drop),
        Trigger::Rollback { to, freeze } => {
            catalog.rollback(dataset, v(to), RollbackMode::from_freeze(freeze)).await.map(drop)
        }
        Trigger::Unpin => catalog.unpin(dataset).await.map(drop),
        Trigger::Unfreeze => catalog.unfreeze(dataset, 10_000).await.map(drop),
        Trigger::SaveAlternate { version } => save(catalog, dataset, version, path).await,
        Trigger::DeleteAlternate { version } => catalog.delete_alternate(dataset, v(version)).await.map(drop),
        Trigger::Register => catalog.register_webhook(dataset, "https://new.test/", None).await.map(drop),
        Trigger::DeleteWebhook => catalog.delete_webhook(dataset).await,
    }
}

/// Returns the state of the dataset, and claims its due delivery.
async fn observe(catalog: &Catalog, dataset: DatasetId) -> TableState {
    let view = catalog.dataset_view(dataset).await.unwrap().unwrap();
    let active: Vec<u64> =
        view.versions.iter().filter(|listed| listed.is_active).map(|listed| listed.version.number.get()).collect();
    assert_eq!(active.len(), 1, "exactly one version is active");
    assert_eq!(view.dataset.active_version(), Some(v(active[0])));
    let alternates: Vec<u64> = view
        .versions
        .iter()
        .filter(|listed| listed.version.alternate.is_some())
        .map(|listed| listed.version.number.get())
        .collect();
    let webhook = match catalog.webhook(dataset).await.unwrap() {
        None => WebhookState::Absent,
        Some(webhook) => {
            assert!(webhook.is_active);
            assert_eq!(webhook.last_fired_at.is_some(), webhook.last_status.is_some());
            if webhook.last_fired_at.is_some() { WebhookState::Fired } else { WebhookState::Fresh }
        }
    };
    let delivery = catalog.claim_webhook_delivery().await.unwrap();
    TableState {
        versions: view.versions.len() as u64,
        alternates: match alternates[..] {
            [] => &[],
            [1] => &[1],
            _ => panic!("unexpected alternates: {alternates:?}"),
        },
        active: active[0],
        pinned: view.dataset.pinned_version.is_some(),
        frozen: view.dataset.frozen,
        webhook,
        due: delivery.map(|delivery| delivery.version.get()),
    }
}

async fn triggers_lead_to_expected_states(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let catalog = catalog.with_clock(clock());
    for (number, state) in states().into_iter().enumerate() {
        for (index, trigger) in TRIGGERS.into_iter().enumerate() {
            let name = format!("d{number}-{index}");
            let dataset = arrange(&catalog, owner, &name, &state).await;
            let before = catalog.versions(dataset, None, 10).await.unwrap();
            let outcome = apply(&catalog, dataset, trigger, &format!("{name} 3")).await;
            let after = catalog.versions(dataset, None, 10).await.unwrap();
            let observed = observe(&catalog, dataset).await;
            match next(&state, trigger) {
                Ok(expected) => {
                    outcome.unwrap_or_else(|error| panic!("{trigger:?} from {state:?}: {error:?}"));
                    assert_eq!(observed, expected, "{trigger:?} from {state:?}");
                }
                Err(expected) => {
                    let error = outcome.expect_err(expected);
                    assert_eq!(format!("{error:?}"), expected, "{trigger:?} from {state:?}");
                    assert_eq!(observed, state, "{trigger:?} from {state:?}");
                }
            }
            // Apart from the alternate and the active flag, versions are immutable.
            for old in before {
                let new = after.iter().find(|new| new.version.number == old.version.number).expect("a version is lost");
                assert_eq!((&new.version.file, new.version.created_at), (&old.version.file, old.version.created_at));
            }
        }
    }
}

async fn unfreeze_respects_plan_limit(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let frozen = create(&catalog, owner, "frozen").await.unwrap().id;
    publish(&catalog, frozen, "a").await.unwrap();
    catalog.rollback(frozen, v(1), RollbackMode::PinAndFreeze).await.unwrap();
    let active = catalog.create_dataset(&new_dataset(owner, "active"), 1).await.unwrap().id;
    let rejected = catalog.unfreeze(frozen, 1).await;
    assert!(matches!(rejected, Err(CatalogError::TooManyDatasets { limit: 1 })), "{rejected:?}");
    assert!(catalog.dataset(frozen).await.unwrap().unwrap().frozen);
    // The error for a dataset that is not frozen takes precedence.
    let rejected = catalog.unfreeze(active, 0).await;
    assert!(matches!(rejected, Err(CatalogError::NotFrozen)), "{rejected:?}");
    let missing = catalog.unfreeze(DatasetId::new(99), 9).await;
    assert!(matches!(missing, Err(CatalogError::NotFound)), "{missing:?}");
    let unfrozen = catalog.unfreeze(frozen, 2).await.unwrap();
    assert_eq!((unfrozen.frozen, unfrozen.pinned_version), (false, Some(v(1))));
    assert_eq!(catalog.dataset(frozen).await.unwrap(), Some(unfrozen));
    let missing_dataset = DatasetId::new(99);
    let rejected_rollback = catalog.rollback(missing_dataset, v(1), RollbackMode::PinAndFreeze).await;
    for missing in [rejected_rollback, catalog.unpin(missing_dataset).await] {
        assert!(matches!(missing, Err(CatalogError::NotFound)), "{missing:?}");
    }
}

async fn concurrent_unfreezes_respect_plan_limit(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let dataset = create(&catalog, owner, &format!("d{number}")).await.unwrap().id;
        publish(&catalog, dataset, &format!("{number}")).await.unwrap();
        catalog.rollback(dataset, v(1), RollbackMode::PinAndFreeze).await.unwrap();
        let catalog = catalog.clone();
        tasks.spawn(async move {
            // Concurrent refreshes of the datasets lock other rows, but must not deadlock.
            let lease = catalog.acquire_refresh(dataset, RefreshTrigger::Ping, &format!("r{number}"), LEASE).await;
            assert!(!matches!(lease, Err(CatalogError::Database(_))), "{lease:?}");
            let key = Secret::new_ping_token(rand::random());
            catalog.rotate_ping_token(dataset, &key).await.unwrap();
            catalog.unfreeze(dataset, 3).await
        });
    }
    let (unfrozen, rejected): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(unfrozen.len(), 3, "{rejected:?}");
    assert!(
        rejected.iter().all(|outcome| matches!(outcome, Err(CatalogError::TooManyDatasets { limit: 3 }))),
        "{rejected:?}"
    );
}

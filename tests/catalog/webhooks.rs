//! Webhooks: deliveries become due with a version, are claimed once, and report to their registration.

use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, ClaimedDelivery, SentDelivery};
use strata_testing::databases::on_both_databases;
use strata_types::ids::DatasetId;
use strata_types::user::UserPlan;
use strata_types::version::VersionNumber;
use tokio::task::JoinSet;

use super::{Database, clock, create, delivery_outcome, publish, with_dataset};

on_both_databases! {
    Database:
    webhook_is_registered_replaced_and_deleted
    delivery_is_due_with_webhook
    delivery_describes_version
    concurrent_claimers_get_distinct_deliveries
    claimed_delivery_stays_claimed_after_crash
    due_delivery_uses_current_webhook
    deleted_webhook_gets_no_delivery
    outcome_of_old_registration_is_not_shown
    webhook_shows_latest_delivery
    due_and_newest_deliveries_are_stored
    sent_deliveries_survive_webhook_deletion
}

async fn claim(catalog: &Catalog) -> Option<ClaimedDelivery> {
    catalog.claim_webhook_delivery().await.unwrap()
}

/// Claims all due deliveries and returns them.
async fn claim_all(catalog: &Catalog) -> Vec<(DatasetId, u64)> {
    let mut claimed = Vec::new();
    while let Some(delivery) = claim(catalog).await {
        claimed.push((delivery.dataset, delivery.version.get()));
    }
    claimed
}

async fn webhook_is_registered_replaced_and_deleted(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    assert_eq!(catalog.webhook(dataset).await.unwrap(), None);
    assert!(matches!(catalog.delete_webhook(dataset).await, Err(CatalogError::NoWebhook)));

    let first = catalog.register_webhook(dataset, "https://a.test/", Some("s")).await.unwrap();
    assert_eq!((first.url.as_str(), first.is_active), ("https://a.test/", true));
    assert_eq!(first.secret.as_ref().map(|secret| secret.expose()), Some("s"));
    assert_eq!((first.last_fired_at, first.last_status), (None, None));
    assert_eq!(catalog.webhook(dataset).await.unwrap(), Some(first));

    publish(&catalog, dataset, "a").await.unwrap();
    let delivery = claim(&catalog).await.unwrap();
    catalog.record_delivery_outcome(&delivery, &delivery_outcome(Some(500))).await.unwrap();
    let fired = catalog.webhook(dataset).await.unwrap().unwrap();
    assert!(fired.last_fired_at.is_some() && fired.is_active);
    assert_eq!(fired.last_status, Some(500));

    let second = catalog.register_webhook(dataset, "http://b.test/", None).await.unwrap();
    assert_eq!((second.url.as_str(), &second.secret, second.is_active), ("http://b.test/", &None, true));
    assert_eq!((second.last_fired_at, second.last_status), (None, None));
    assert_eq!(catalog.webhook(dataset).await.unwrap(), Some(second));
    catalog.delete_webhook(dataset).await.unwrap();
    assert_eq!(catalog.webhook(dataset).await.unwrap(), None);

    let missing = DatasetId::new(99);
    assert!(matches!(catalog.register_webhook(missing, "x", None).await, Err(CatalogError::NotFound)));
    assert!(matches!(catalog.delete_webhook(missing).await, Err(CatalogError::NotFound)));
    let nul = catalog.register_webhook(dataset, "https://a.test/", Some("a\0")).await;
    assert!(matches!(nul, Err(CatalogError::NulCharacter { field: "secret" })), "{nul:?}");
    assert_eq!(catalog.webhook(dataset).await.unwrap(), None);
}

async fn delivery_is_due_with_webhook(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&catalog, owner.id, "Other").await.unwrap().id;
    publish(&catalog, dataset, "before").await.unwrap();
    catalog.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    publish(&catalog, dataset, "registered").await.unwrap();
    publish(&catalog, other, "another dataset").await.unwrap();
    publish(&catalog, dataset, "registered still").await.unwrap();
    assert_eq!(claim_all(&catalog).await, [(dataset, 2), (dataset, 3)]);
    database.execute("UPDATE webhooks SET is_active = (1 = 0)").await;
    publish(&catalog, dataset, "inactive").await.unwrap();
    assert_eq!(claim_all(&catalog).await, []);
}

async fn delivery_describes_version(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    catalog.register_webhook(dataset, "https://a.test/", Some("sesame")).await.unwrap();
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let delivery = claim(&catalog).await.unwrap();
    assert_eq!(delivery.dataset, dataset);
    assert_eq!(delivery.dataset_name, "World Countries");
    assert_eq!(delivery.owner_plan, UserPlan::Pro);
    assert_eq!((delivery.version, delivery.entity_count), (version.number, version.file.entity_count));
    assert_eq!(delivery.refreshed_at, version.created_at);
    assert_eq!(delivery.url, "https://a.test/");
    assert_eq!(delivery.secret.as_ref().map(|secret| secret.expose()), Some("sesame"));
    assert!(!format!("{delivery:?}").contains("sesame"));

    catalog.record_delivery_outcome(&delivery, &delivery_outcome(None)).await.unwrap();
    let webhook = catalog.webhook(dataset).await.unwrap().unwrap();
    assert!(webhook.last_fired_at.is_some());
    assert_eq!(webhook.last_status, None);
}

async fn concurrent_claimers_get_distinct_deliveries(database: Database) {
    let (first, dataset) = with_dataset(&database).await;
    let second = database.open().await;
    first.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let catalog = if task % 2 == 0 { &first } else { &second }.clone();
        tasks.spawn(async move {
            let mut claimed = Vec::new();
            for round in 0..5 {
                if task < 2 {
                    publish(&catalog, dataset, &format!("{task}-{round}")).await.unwrap();
                }
                claimed.extend(claim_all(&catalog).await);
            }
            claimed
        });
    }
    let mut claimed = tasks.join_all().await.concat();
    claimed.extend(claim_all(&first).await);
    claimed.sort_unstable();
    assert_eq!(claimed, (1..=10).map(|number| (dataset, number)).collect::<Vec<_>>());
}

async fn claimed_delivery_stays_claimed_after_crash(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    catalog.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    assert_eq!(claim(&catalog).await.unwrap().version.get(), 1);
    drop(catalog);
    let catalog = database.open().await;
    assert_eq!(claim_all(&catalog).await, [(dataset, 2)]);
}

async fn due_delivery_uses_current_webhook(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    catalog.register_webhook(dataset, "https://old.test/", Some("old")).await.unwrap();
    publish(&catalog, dataset, "a").await.unwrap();
    catalog.register_webhook(dataset, "https://new.test/", None).await.unwrap();
    let delivery = claim(&catalog).await.unwrap();
    assert_eq!((delivery.url.as_str(), delivery.secret), ("https://new.test/", None));
}

async fn deleted_webhook_gets_no_delivery(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    catalog.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    publish(&catalog, dataset, "a").await.unwrap();
    catalog.delete_webhook(dataset).await.unwrap();
    assert_eq!(claim_all(&catalog).await, []);
    // The next webhook does not get the deliveries of the deleted one.
    catalog.register_webhook(dataset, "https://b.test/", None).await.unwrap();
    assert_eq!(claim_all(&catalog).await, []);
    publish(&catalog, dataset, "b").await.unwrap();
    assert_eq!(claim_all(&catalog).await, [(dataset, 2)]);
}

async fn outcome_of_old_registration_is_not_shown(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    // Even at the same microsecond, the registrations differ.
    let catalog = catalog.with_clock(clock());
    for delete in [false, true] {
        catalog.register_webhook(dataset, "https://old.test/", None).await.unwrap();
        publish(&catalog, dataset, &format!("{delete}")).await.unwrap();
        let delivery = claim(&catalog).await.unwrap();
        if delete {
            catalog.delete_webhook(dataset).await.unwrap();
        }
        let new = catalog.register_webhook(dataset, "https://new.test/", None).await.unwrap();
        catalog.record_delivery_outcome(&delivery, &delivery_outcome(Some(200))).await.unwrap();
        assert_eq!(catalog.webhook(dataset).await.unwrap(), Some(new), "{delete}");
    }
    assert_eq!(database.number("SELECT COUNT(*) FROM webhook_deliveries WHERE done_at IS NOT NULL").await, 2);
}

async fn webhook_shows_latest_delivery(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    catalog.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    let mut deliveries = Vec::new();
    for path in ["a", "b"] {
        publish(&catalog, dataset, path).await.unwrap();
        clock.advance(Duration::from_secs(1));
        deliveries.push((claim(&catalog).await.unwrap(), clock.now()));
    }
    // The outcomes are recorded in the reverse order.
    catalog.record_delivery_outcome(&deliveries[1].0, &delivery_outcome(Some(204))).await.unwrap();
    catalog.record_delivery_outcome(&deliveries[0].0, &delivery_outcome(Some(500))).await.unwrap();
    let webhook = catalog.webhook(dataset).await.unwrap().unwrap();
    assert_eq!((webhook.last_status, webhook.last_fired_at), (Some(204), Some(deliveries[1].1)));
}

async fn due_and_newest_deliveries_are_stored(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    catalog.register_webhook(dataset, "https://a.test/", None).await.unwrap();
    publish(&catalog, dataset, "a").await.unwrap();
    // Inserts 1,249 more versions. Their deliveries are claimed, except the first and every hundredth one.
    let rows = "WITH RECURSIVE n(n) AS (SELECT CAST(2 AS BIGINT) UNION ALL SELECT n + 1 FROM n WHERE n < 1250)";
    for sql in [
        format!(
            "{rows} INSERT INTO versions (dataset_id, version_number, file_id, created_at)
             SELECT {dataset}, n, file_id, 1 FROM n, files"
        ),
        format!(
            "{rows} INSERT INTO webhook_deliveries (dataset_id, version_number, due_at, claimed_at)
             SELECT {dataset}, n, 1, CASE WHEN n = 2 OR n % 100 = 0 THEN NULL ELSE 2 END FROM n"
        ),
        "UPDATE datasets SET latest_version = 1250, record_checksum = NULL".to_owned(),
    ] {
        database.execute(&sql).await;
    }
    let other = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    let other = create(&catalog, other, "Other").await.unwrap().id;
    catalog.register_webhook(other, "https://a.test/", None).await.unwrap();
    publish(&catalog, other, "other").await.unwrap();
    assert_eq!(
        database.number("SELECT COUNT(*) FROM webhook_deliveries").await,
        1_251,
        "the deliveries of other datasets do not count"
    );

    publish(&catalog, dataset, "b").await.unwrap();
    let from_dataset = format!("FROM webhook_deliveries WHERE dataset_id = {dataset}");
    // The newest 1,000 are 252 to 1251. Deliveries 1, 2, 100, and 200 are still due.
    assert_eq!(database.number(&format!("SELECT COUNT(*) {from_dataset} AND version_number > 251")).await, 1_000);
    let sql = format!(
        "SELECT CAST(version_number AS TEXT) {from_dataset} AND version_number < 252
         ORDER BY webhook_deliveries.version_number"
    );
    let older: Vec<String> = database.texts(&sql).await.into_iter().flatten().collect();
    assert_eq!(older, ["1", "2", "100", "200"]);
    assert_eq!(claim(&catalog).await.unwrap().version.get(), 2, "the delivery that has been due the longest");
}

async fn sent_deliveries_survive_webhook_deletion(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let list = async |before: Option<u64>, limit| {
        catalog.sent_webhook_deliveries(dataset, before.map(VersionNumber::new), limit).await.unwrap()
    };
    catalog.register_webhook(dataset, "https://a.test/", Some("sesame")).await.unwrap();
    for path in ["a", "b", "c"] {
        publish(&catalog, dataset, path).await.unwrap();
    }
    assert_eq!(list(None, 10).await, [], "no delivery was sent");
    let first = claim(&catalog).await.unwrap();
    let second = claim(&catalog).await.unwrap();
    let fired_at = clock.now();
    clock.advance(Duration::from_secs(1));
    let error = format!("{}\0", "é".repeat(3_000));
    let outcome = strata_catalog::DeliveryOutcome { duration: None, response: Err(error) };
    catalog.record_delivery_outcome(&second, &outcome).await.unwrap();
    catalog.delete_webhook(dataset).await.unwrap();
    // An outcome can be recorded after the deletion of the webhook. The due delivery is not sent.
    catalog.record_delivery_outcome(&first, &delivery_outcome(Some(500))).await.unwrap();
    assert!(claim(&catalog).await.is_none());
    let sent = |version, outcome| SentDelivery {
        version: VersionNumber::new(version),
        url: "https://a.test/".to_owned(),
        fired_at,
        outcome,
    };
    let truncated = strata_catalog::DeliveryOutcome { duration: None, response: Err("é".repeat(2_000)) };
    let first = sent(1, Some(delivery_outcome(Some(500))));
    let second = sent(2, Some(truncated));
    assert_eq!(list(None, 10).await, [second.clone(), first.clone()]);
    assert_eq!(list(None, 1).await, [second]);
    assert_eq!(list(Some(2), 10).await, [first]);
    assert_eq!(list(Some(1), 10).await, []);
    assert_eq!(list(Some(u64::MAX), 10).await.len(), 2);
    // A running delivery is listed. A delivery to a user whose plan has no webhooks is not.
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    catalog.register_webhook(dataset, "https://b.test/", None).await.unwrap();
    publish(&catalog, dataset, "d").await.unwrap();
    claim(&catalog).await.unwrap();
    catalog.set_plan(owner, UserPlan::Free).await.unwrap();
    publish(&catalog, dataset, "e").await.unwrap();
    assert_eq!(claim(&catalog).await.unwrap().owner_plan, UserPlan::Free);
    let newest = &list(None, 1).await[0];
    assert_eq!((newest.version.get(), newest.url.as_str(), &newest.outcome), (4, "https://b.test/", &None));
}

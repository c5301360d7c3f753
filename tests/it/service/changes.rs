//! Change notifications between processes that share a PostgreSQL catalog.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use strata_testing::owned::{Owned, parsed};
use strata_testing::postgres::Postgres;
use strata_testing::{TestService, eventually};

/// A service on PostgreSQL, and a second process that does not poll.
struct ProcessPair {
    owned: Owned,
    other: TestService,
    server: Arc<Postgres>,
    url: String,
    _background: Box<dyn Any>,
}

impl ProcessPair {
    async fn start() -> ProcessPair {
        let server = Postgres::shared();
        let url = server.create_database().await;
        let catalog = url.clone().try_into().expect("failed to parse URL");
        let owned = Owned::configured(|config| config.catalog.url = Some(catalog), Some(server.clone())).await;
        let other = owned.service.open_instance(|config| config.server.background = false).await;
        other.services.lookups.set_ttl(Duration::from_secs(86_400));
        let background = other.services.start_background();
        let two = ProcessPair { owned, other, server, url, _background: Box::new(background) };
        two.wait_until_listening().await;
        two
    }

    async fn wait_until_listening(&self) {
        eventually("changes are heard of", async || self.other.services.lookups.is_listening()).await;
    }

    /// Checks that the second process returns this response. Because it does not poll, it must have received a
    /// notification.
    async fn other_sees(&self, path: &str, status: u16, body: &str) {
        eventually(&format!("{path} is {status} {body}"), async || {
            let answer = self.other.get(path).await;
            answer.status == status && (status != 200 || answer.text() == body)
        })
        .await;
    }

    async fn change(&self, method: &str, path: &str, body: serde_json::Value) -> serde_json::Value {
        parsed(&self.owned.call(method, path, &body.to_string()).await)
    }
}

#[tokio::test]
async fn change_is_visible_in_other_process_without_polling() {
    let two = ProcessPair::start().await;
    let id = two.owned.dataset("Things", json!({}), &["[{\"v\":1}]"]).await;
    let active = format!("/api/{id}/things/active/?format=jsonl");
    let alt = format!("/api/{id}/things/v1/alt/?format=jsonl");
    two.other_sees(&active, 200, "{\"v\":1}\n").await;
    two.other_sees(&alt, 404, "").await;

    two.owned.push(id, "[{\"v\":2}]").await;
    two.other_sees(&active, 200, "{\"v\":2}\n").await;
    two.change("POST", "/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await;
    two.other_sees(&active, 200, "{\"v\":1}\n").await;
    two.change("POST", "/dataset/unpin", json!({"dataset_id": id})).await;
    two.other_sees(&active, 200, "{\"v\":2}\n").await;

    assert_eq!(two.owned.save(id, 1, "[{\"alt\":1}]").await.status, 200);
    two.other_sees(&alt, 200, "{\"alt\":1}\n").await;
    assert_eq!(two.owned.save(id, 1, "[{\"alt\":2}]").await.status, 200);
    two.other_sees(&alt, 200, "{\"alt\":2}\n").await;
    assert_eq!(two.owned.delete(id, 1).await.status, 200);
    two.other_sees(&alt, 404, "").await;

    two.change("POST", "/dataset/update", json!({"dataset_id": id, "private": true})).await;
    two.other_sees(&active, 401, "").await;
    two.change("POST", "/dataset/update", json!({"dataset_id": id, "private": false})).await;
    two.other_sees(&active, 200, "{\"v\":2}\n").await;
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true});
    two.change("POST", "/dataset/rollback", freeze).await;
    two.other_sees(&active, 410, "").await;
    two.change("POST", "/dataset/unfreeze", json!({"dataset_id": id})).await;
    two.other_sees(&active, 200, "{\"v\":1}\n").await;
}

#[tokio::test]
async fn rotated_key_is_effective_in_other_process() {
    let two = ProcessPair::start().await;
    let id = two.owned.dataset("Hidden", json!({"private": true}), &["[{\"v\":1}]"]).await;
    let path = format!("/api/{id}/hidden/active/");
    let view = two.owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await;
    let old = parsed(&view)["dataset"]["private_key"].as_str().expect("missing key").to_owned();
    let status = async |key: &str| two.other.send("GET", &path, Some(&format!("Bearer {key}"))).await.status;
    assert_eq!(status(&old).await, 200);
    let rotated = two.change("POST", "/dataset/rotate_key", json!({"dataset_id": id})).await;
    let new = rotated["dataset"]["private_key"].as_str().expect("missing key").to_owned();
    eventually("the old key opens nothing", async || status(&old).await == 403).await;
    assert_eq!(status(&new).await, 200);
}

#[tokio::test]
async fn dataset_creation_and_deletion_reach_other_process() {
    let two = ProcessPair::start().await;
    let path = "/api/1/things/active/";
    // The missing dataset is cached, too.
    assert!(two.other.get(path).await.text().contains("dataset"));
    let id = two.owned.dataset("Things", json!({}), &[]).await;
    assert_eq!(id, 1);
    eventually("there is a dataset, without a version", async || two.other.get(path).await.text().contains("version"))
        .await;
    two.change("DELETE", "/dataset/delete", json!({"dataset_id": id})).await;
    eventually("there is none", async || !two.other.get(path).await.text().contains("version")).await;
}

#[tokio::test]
async fn lost_listen_connection_clears_cache() {
    let two = ProcessPair::start().await;
    let id = two.owned.dataset("Things", json!({}), &["[{\"v\":1}]"]).await;
    let active = format!("/api/{id}/things/active/?format=jsonl");
    for number in 2..5 {
        two.other_sees(&active, 200, &format!("{{\"v\":{}}}\n", number - 1)).await;
        // Terminates the LISTEN connections, so that no process receives a notification of the next change.
        let sql =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'LISTEN%'";
        two.server.execute_on(&two.url, sql).await;
        two.owned.push(id, &format!("[{{\"v\":{number}}}]")).await;
        two.other_sees(&active, 200, &format!("{{\"v\":{number}}}\n")).await;
        two.wait_until_listening().await;
    }
}

#[tokio::test]
async fn polling_finds_change_without_notification() {
    let server = Postgres::shared();
    let url = server.create_database().await.try_into().expect("failed to parse URL");
    let owned = Owned::configured(|config| config.catalog.url = Some(url), Some(server.clone())).await;
    // Without background tasks, a process does not listen.
    let other = owned.service.open_instance(|_| ()).await;
    let id = owned.dataset("Things", json!({}), &["[{\"v\":1}]"]).await;
    let active = format!("/api/{id}/things/active/?format=jsonl");
    assert_eq!(other.get(&active).await.text(), "{\"v\":1}\n");
    owned.push(id, "[{\"v\":2}]").await;
    eventually("it is seen", async || other.get(&active).await.text() == "{\"v\":2}\n").await;
    assert!(!other.services.lookups.is_listening());
}

#[tokio::test]
async fn sqlite_catalog_sends_no_notifications() {
    let owned = Owned::sqlite().await;
    let background = owned.service.services.start_background();
    let id = owned.dataset("Things", json!({}), &["[{\"v\":1}]"]).await;
    owned.push(id, "[{\"v\":2}]").await;
    assert!(!owned.service.services.lookups.is_listening());
    background.finish(Duration::from_secs(5)).await;
}

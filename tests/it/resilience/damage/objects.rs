//! Tests of version files on an S3 server: a truncated object is damaged, but an unreachable server is no evidence of
//! damage.

use std::fs;
use std::time::Duration;

use serde_json::json;
use strata_config::{StoreEndpoint, StoreUrl};
use strata_testing::files;
use strata_testing::owned::Owned;
use strata_testing::s3_server::S3Server;
use strata_types::secret::Secret;

use super::entities;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_object_is_damaged_unreachable_is_not() {
    let mut server = S3Server::start().await;
    let endpoint = server.endpoint();
    let owned = Owned::start(|config| {
        config.cache.memory_bytes = Some(0);
        (config.cache.response_bytes, config.cache.diff_bytes, config.cache.export_bytes) = (0, 0, 0);
        config.store.url = Some(StoreUrl::try_from("s3://bucket/strata".to_owned()).expect("failed to parse the URL"));
        config.store.endpoint = Some(StoreEndpoint::try_from(endpoint).expect("an endpoint"));
        config.store.region = Some("us-east-1".to_owned());
        config.store.access_key_id = Some("key".to_owned());
        config.store.secret_access_key = Some(Secret::from_stored("secret".to_owned()));
        config.store.allow_http = true;
        config.store.retry_s = 1;
    })
    .await;
    let id = owned.dataset("Things", json!({}), &[&entities(1)]).await;
    let read = format!("/api/{id}/things/v1/?format=jsonl");
    let right = owned.service.get(&read).await;
    assert_eq!(right.status, 200);
    let object = files(&server.bucket()).into_iter().find(|file| file.to_string_lossy().contains("versions"));
    let object = object.expect("the object");
    let whole = fs::read(&object).expect("the object");
    // Without the last byte, without the footer, and empty.
    for length in [whole.len() - 1, whole.len() / 2, 10, 0] {
        fs::write(&object, &whole[..length]).expect("cut");
        let fresh = owned.service.open_instance(|_| {}).await;
        let answer = fresh.get(&read).await;
        assert_eq!(answer.status, 500, "{length} of {}: {}", whole.len(), answer.text());
    }
    fs::write(&object, &whole).expect("failed to restore the file");
    let fresh = owned.service.open_instance(|_| {}).await;
    assert_eq!(fresh.get(&read).await.body, right.body);
    server.stop().await;
    let begun = std::time::Instant::now();
    fresh.get(&read).await.is_error(503);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

//! Tests that only the owner sees the query string of a source's URL, because query strings often contain keys.

use serde_json::{Value, json};
use strata_config::AllowedNetworks;
use strata_testing::Answer;
use strata_testing::loopback_server::{LoopbackServer, Received, ok, redirect};
use strata_testing::owned::Owned;

fn parsed(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("failed to parse JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_query_is_published_only_with_consent() {
    let server = LoopbackServer::start(|request: &Received| match request.target.as_str() {
        target if target.starts_with("/signed") => redirect("/moved.json?signature=secret#fragment"),
        _ => ok("ETag: \"same\"\r\n", b"[{\"a\":1},{\"a\":2,\"_source\":\"own\"}]"),
    });
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks");
    })
    .await;
    let with_user = |path: &str| server.url(path).replace("http://", "http://ada:password@");
    let sources = async |id: u64, slug: &str, version: u64| {
        let answer = owned.service.get(&format!("/api/{id}/{slug}/v{version}/?pretty=false")).await;
        let entities = parsed(&answer);
        assert_eq!(entities[1]["_source"], "own");
        entities[0]["_source"].as_str().expect("a text").to_owned()
    };
    let refresh = async |id: u64| {
        parsed(&owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await);
    };

    let id = owned.dataset("Keyed", json!({"source": with_user("/x.json?key=secret&a=b")}), &[]).await;
    refresh(id).await;
    assert_eq!(sources(id, "keyed", 1).await, server.url("/x.json"));
    // The change also resets the stored state of the source. Otherwise, the next version would share the file of this
    // one.
    for (publish, expected) in [(true, "/x.json?key=secret&a=b"), (false, "/x.json")] {
        let change = json!({"dataset_id": id, "publish_query": publish});
        let changed = parsed(&owned.call("POST", "/dataset/update", &change.to_string()).await);
        assert_eq!(changed["dataset"]["publish_query"], json!(publish));
        refresh(id).await;
        let latest = owned.versions(id).await.len() as u64;
        assert_eq!(sources(id, "keyed", latest).await, server.url(expected));
    }
    // The query string of a redirect's target, which is often a signature, is never published.
    let id = owned.dataset("Signed", json!({"source": server.url("/signed")}), &[]).await;
    refresh(id).await;
    assert_eq!(sources(id, "signed", 1).await, server.url("/moved.json"));
    let id = owned.dataset("Public", json!({"source": server.url("/signed"), "publish_query": true}), &[]).await;
    refresh(id).await;
    assert_eq!(sources(id, "public", 1).await, server.url("/moved.json?signature=secret"));
}

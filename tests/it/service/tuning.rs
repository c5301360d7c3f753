//! `index`: which paths get a shredded column because their owner says so.

use serde_json::{Value as Json, json};
use strata_config::Networks;
use strata_testing::ImportedSource;
use strata_testing::databases::on_both_databases;
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::owned::{Owned, parsed};

on_both_databases! {
    Owned:
    the_longest_paths_are_kept_and_longer_ones_refused
    every_version_and_alternate_written_from_then_on_has_the_shredded_columns
    a_source_that_has_not_changed_is_written_anew_with_another_index
    a_clone_takes_the_index_along
}

/// The paths that have a shredded column in a version, or in its alternate.
async fn shredded_columns(owned: &Owned, id: u64, more: &str) -> Vec<String> {
    let answer = owned.call("GET", &format!("/dataset/profile?dataset_id={id}{more}"), "").await;
    let profile = parsed(&answer)["profile"].clone();
    let records = profile["paths"].as_array().expect("paths").iter();
    records
        .filter(|record| record["shredded"] == true)
        .map(|record| record["path"].as_str().expect("a path").to_owned())
        .collect()
}

async fn tune(owned: &Owned, id: u64, index: Json) {
    let body = json!({"dataset_id": id, "index": index}).to_string();
    parsed(&owned.call("POST", "/dataset/update", &body).await);
}

/// A longer one, kept with its escapes, made the dataset unreadable, and the list of its owner's datasets.
async fn the_longest_paths_are_kept_and_longer_ones_refused(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let path = |colons: usize| json!({"always": [":".repeat(colons)]});
    tune(&owned, id, path(512)).await;
    let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
    assert_eq!(view["dataset"]["index"]["always"], json!(["\\:".repeat(512)]));
    let body = json!({"dataset_id": id, "index": path(513)}).to_string();
    let answer = owned.call("POST", "/dataset/update", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("a path is 1026 bytes long, including its escapes"), "{}", answer.text());
}

async fn every_version_and_alternate_written_from_then_on_has_the_shredded_columns(owned: Owned) {
    let entities = r#"[{"a":1,"b":2,"c":{"d":3}}]"#;
    let id = owned.dataset("Things", json!({"index": {"never": ["a"]}}), &[entities]).await;
    assert_eq!(shredded_columns(&owned, id, "").await, ["b", "c.d"]);
    let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
    assert_eq!(view["dataset"]["index"], json!({"always": [], "never": ["a"]}));

    // The same entities: the file is shared while it would be written alike, and only then.
    owned.push(id, entities).await;
    assert_eq!(owned.service.version_files().len(), 1);
    tune(&owned, id, json!({"always": ["a"], "never": ["c.d", "b"]})).await;
    assert_eq!(shredded_columns(&owned, id, "").await, ["b", "c.d"], "what is written stays");
    owned.push(id, entities).await;
    assert_eq!(
        (shredded_columns(&owned, id, "").await, owned.service.version_files().len()),
        (vec!["a".to_owned()], 2)
    );
    assert_eq!(shredded_columns(&owned, id, "&version=1").await, ["b", "c.d"]);
    owned.push(id, entities).await;
    assert_eq!(owned.service.version_files().len(), 2);
    // Other changes leave it.
    parsed(&owned.call("POST", "/dataset/update", &json!({"dataset_id": id, "name": "Other"}).to_string()).await);

    parsed(&owned.save(id, 1, entities).await);
    assert_eq!(shredded_columns(&owned, id, "&version=1&alt=true").await, ["a"]);

    // On the command line, too.
    let source = tempfile::NamedTempFile::new_in(owned.service.directory()).expect("a file");
    std::fs::write(source.path(), r#"[{"a":"x","b":"y"}]"#).expect("written");
    let path = source.path().to_str().expect("UTF-8");
    let source = ImportedSource { owner: "ada@strata.test", ..ImportedSource::new("Other", path) };
    let imported = owned.service.import_source(source).await.expect("imported");
    assert_eq!((imported.dataset_id.get(), imported.version.get()), (id, 5));
    assert_eq!(shredded_columns(&owned, id, "").await, ["a"]);

    for nothing in [json!(null), json!({})] {
        tune(&owned, id, json!({"never": ["a"]})).await;
        tune(&owned, id, nothing).await;
        let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
        assert_eq!(view["dataset"]["index"], json!({"always": [], "never": []}));
    }
    owned.push(id, entities).await;
    assert_eq!(shredded_columns(&owned, id, "").await, ["a", "b", "c.d"]);
    // Whatever the shredded columns, the answers are the same.
    for version in [1, 2, 3, 4, 6] {
        assert_eq!(owned.lines(&format!("/api/{id}/other/v{version}/")).await, "{\"a\":1,\"b\":2,\"c\":{\"d\":3}}\n");
    }
}

async fn a_source_that_has_not_changed_is_written_anew_with_another_index(owned: Owned) {
    let source = LoopbackServer::start(|request: &Received| match request.header("if-none-match") {
        Some("\"one\"") => Reply::Bytes(with_status("304 Not Modified", "ETag: \"one\"\r\n", b"")),
        _ => ok("ETag: \"one\"\r\nContent-Type: application/x-ndjson\r\n", b"{\"a\":1}\n{\"a\":2}\n"),
    });
    let beside = owned
        .service
        .beside(|config| config.net.allow = Networks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks"))
        .await;
    let owned = Owned { service: beside, ..owned };
    let id = owned.dataset("Lines", json!({"source": source.url("/lines")}), &[]).await;
    let refresh =
        async || parsed(&owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await);
    let conditional = || -> Vec<bool> {
        source.take_received().iter().map(|request| request.header("if-none-match").is_some()).collect()
    };
    refresh().await;
    refresh().await;
    assert_eq!(
        (shredded_columns(&owned, id, "").await, conditional()),
        (vec!["a".to_owned(), "_source".to_owned()], vec![false, true])
    );
    tune(&owned, id, json!({"never": ["a"]})).await;
    refresh().await;
    assert_eq!((shredded_columns(&owned, id, "").await, conditional()), (vec!["_source".to_owned()], vec![false]));
    refresh().await;
    assert_eq!((shredded_columns(&owned, id, "").await, conditional()), (vec!["_source".to_owned()], vec![true]));
}

async fn a_clone_takes_the_index_along(owned: Owned) {
    let entities = r#"[{"a":1,"b":2}]"#;
    let id = owned.dataset("Things", json!({"index": {"never": ["a"]}}), &[entities]).await;
    let cloned = parsed(&owned.clone(id, "Copy").await);
    assert_eq!(cloned["dataset"]["index"], json!({"always": [], "never": ["a"]}));
    let copy = cloned["dataset"]["dataset_id"].as_u64().expect("an id");
    tune(&owned, id, json!(null)).await;
    for dataset in [id, copy] {
        owned.push(dataset, entities).await;
    }
    assert_eq!(
        (shredded_columns(&owned, id, "").await, shredded_columns(&owned, copy, "").await),
        (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()])
    );
}

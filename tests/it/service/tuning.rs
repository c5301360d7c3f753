//! The dataset setting `index`, which selects the paths with an indexed column.

use serde_json::{Value as Json, json};
use strata_config::AllowedNetworks;
use strata_testing::ImportedSource;
use strata_testing::databases::on_both_databases;
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::owned::{Owned, parsed};

on_both_databases! {
    Owned:
    index_paths_beyond_max_length_are_rejected
    later_versions_and_alternates_have_indexed_columns
    changed_index_rewrites_unchanged_source
    clone_copies_index_settings
}

/// Returns the paths with an indexed column in a version or in its alternate.
async fn indexed_columns(owned: &Owned, id: u64, more: &str) -> Vec<String> {
    let answer = owned.call("GET", &format!("/dataset/profile?dataset_id={id}{more}"), "").await;
    let profile = parsed(&answer)["profile"].clone();
    let records = profile["paths"].as_array().expect("missing paths").iter();
    records
        .filter(|record| record["shredded"] == true)
        .map(|record| record["path"].as_str().expect("missing path").to_owned())
        .collect()
}

async fn set_index(owned: &Owned, id: u64, index: Json) {
    let body = json!({"dataset_id": id, "index": index}).to_string();
    parsed(&owned.call("POST", "/dataset/update", &body).await);
}

/// A longer path, which is stored with its escapes, made the dataset and the list of the owner's datasets unreadable.
async fn index_paths_beyond_max_length_are_rejected(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let path = |colons: usize| json!({"always": [":".repeat(colons)]});
    set_index(&owned, id, path(512)).await;
    let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
    assert_eq!(view["dataset"]["index"]["always"], json!(["\\:".repeat(512)]));
    let body = json!({"dataset_id": id, "index": path(513)}).to_string();
    let answer = owned.call("POST", "/dataset/update", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("a path is 1026 bytes long, including its escapes"), "{}", answer.text());
}

async fn later_versions_and_alternates_have_indexed_columns(owned: Owned) {
    let entities = r#"[{"a":1,"b":2,"c":{"d":3}}]"#;
    let id = owned.dataset("Things", json!({"index": {"never": ["a"]}}), &[entities]).await;
    assert_eq!(indexed_columns(&owned, id, "").await, ["b", "c.d"]);
    let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
    assert_eq!(view["dataset"]["index"], json!({"always": [], "never": ["a"]}));

    // The same entities share the file only if it would be written with the same index settings.
    owned.push(id, entities).await;
    assert_eq!(owned.service.version_files().len(), 1);
    set_index(&owned, id, json!({"always": ["a"], "never": ["c.d", "b"]})).await;
    assert_eq!(indexed_columns(&owned, id, "").await, ["b", "c.d"], "existing files do not change");
    owned.push(id, entities).await;
    assert_eq!((indexed_columns(&owned, id, "").await, owned.service.version_files().len()), (vec!["a".to_owned()], 2));
    assert_eq!(indexed_columns(&owned, id, "&version=1").await, ["b", "c.d"]);
    owned.push(id, entities).await;
    assert_eq!(owned.service.version_files().len(), 2);
    // Other changes keep the setting.
    parsed(&owned.call("POST", "/dataset/update", &json!({"dataset_id": id, "name": "Other"}).to_string()).await);

    parsed(&owned.save(id, 1, entities).await);
    assert_eq!(indexed_columns(&owned, id, "&version=1&alt=true").await, ["a"]);

    // Also on the command line.
    let source = tempfile::NamedTempFile::new_in(owned.service.directory()).expect("missing file");
    std::fs::write(source.path(), r#"[{"a":"x","b":"y"}]"#).expect("failed to write");
    let path = source.path().to_str().expect("invalid UTF-8");
    let source = ImportedSource { owner: "ada@strata.test", ..ImportedSource::new("Other", path) };
    let imported = owned.service.import_source(source).await.expect("failed to import");
    assert_eq!((imported.dataset_id.get(), imported.version.get()), (id, 5));
    assert_eq!(indexed_columns(&owned, id, "").await, ["a"]);

    for no_index in [json!(null), json!({})] {
        set_index(&owned, id, json!({"never": ["a"]})).await;
        set_index(&owned, id, no_index).await;
        let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
        assert_eq!(view["dataset"]["index"], json!({"always": [], "never": []}));
    }
    owned.push(id, entities).await;
    assert_eq!(indexed_columns(&owned, id, "").await, ["a", "b", "c.d"]);
    // The responses do not depend on the indexed columns.
    for version in [1, 2, 3, 4, 6] {
        assert_eq!(owned.lines(&format!("/api/{id}/other/v{version}/")).await, "{\"a\":1,\"b\":2,\"c\":{\"d\":3}}\n");
    }
}

async fn changed_index_rewrites_unchanged_source(owned: Owned) {
    let source = LoopbackServer::start(|request: &Received| match request.header("if-none-match") {
        Some("\"one\"") => Reply::Bytes(with_status("304 Not Modified", "ETag: \"one\"\r\n", b"")),
        _ => ok("ETag: \"one\"\r\nContent-Type: application/x-ndjson\r\n", b"{\"a\":1}\n{\"a\":2}\n"),
    });
    let other_service = owned
        .service
        .open_instance(|config| {
            config.net.allow =
                AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks")
        })
        .await;
    let owned = Owned { service: other_service, ..owned };
    let id = owned.dataset("Lines", json!({"source": source.url("/lines")}), &[]).await;
    let refresh =
        async || parsed(&owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await);
    let conditional = || -> Vec<bool> {
        source.take_received().iter().map(|request| request.header("if-none-match").is_some()).collect()
    };
    refresh().await;
    refresh().await;
    assert_eq!(
        (indexed_columns(&owned, id, "").await, conditional()),
        (vec!["a".to_owned(), "_source".to_owned()], vec![false, true])
    );
    set_index(&owned, id, json!({"never": ["a"]})).await;
    refresh().await;
    assert_eq!((indexed_columns(&owned, id, "").await, conditional()), (vec!["_source".to_owned()], vec![false]));
    refresh().await;
    assert_eq!((indexed_columns(&owned, id, "").await, conditional()), (vec!["_source".to_owned()], vec![true]));
}

async fn clone_copies_index_settings(owned: Owned) {
    let entities = r#"[{"a":1,"b":2}]"#;
    let id = owned.dataset("Things", json!({"index": {"never": ["a"]}}), &[entities]).await;
    let cloned = parsed(&owned.clone(id, "Copy").await);
    assert_eq!(cloned["dataset"]["index"], json!({"always": [], "never": ["a"]}));
    let copy = cloned["dataset"]["dataset_id"].as_u64().expect("missing ID");
    set_index(&owned, id, json!(null)).await;
    for dataset in [id, copy] {
        owned.push(dataset, entities).await;
    }
    assert_eq!(
        (indexed_columns(&owned, id, "").await, indexed_columns(&owned, copy, "").await),
        (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()])
    );
}

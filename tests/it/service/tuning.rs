//! `index`: which paths get a shredded column because their owner says so.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use strata_config::Networks;
use strata_format::profile::{NotShredded, ShreddingBounds};
use strata_format::writer::WriteOptions;
use strata_query::cost;
use strata_service::{ImportProgress, ImportRequest};
use strata_testing::databases::on_both_databases;
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::owned::{Owned, parsed};
use strata_testing::versions::nothing_shredded;
use strata_testing::versions::{Files, of};
use strata_types::index::{INDEX_PATHS, IndexSettings};
use strata_types::request::{ReadRequest, Sort};

fn index(always: &[&str], never: &[&str]) -> IndexSettings {
    IndexSettings::try_new(always, never).expect("an index")
}

/// Entities with a path for each reason not to have a shredded column.
fn entities() -> Vec<String> {
    (0..1_000)
        .map(|number| {
            let rare = if number % 100 == 0 { format!(r#""rare":"r{number}","#) } else { String::new() };
            let text = format!("{number} {}", "a longer text that nobody filters by, ".repeat(6));
            format!(
                r#"{{{rare}"text":"{text}","n":{number},"name":"Name {}","o":{{"p":[{number},null]}}}}"#,
                number % 7
            )
        })
        .collect()
}

fn sorted_by(field: &str) -> ReadRequest {
    ReadRequest {
        sort: Some(Sort { field: field.to_owned(), descending: false }),
        limit: Some(10),
        ..ReadRequest::default()
    }
}

#[test]
fn the_file_has_the_shredded_columns_that_are_asked_for() {
    let files = Files::new();
    let check = |options: &WriteOptions, shredded_columns: &[&str]| {
        let reader = files.open(&files.write(&entities(), options));
        let found: Vec<String> =
            reader.layout().shredded_columns.iter().map(|shredded| shredded.keys.join(".")).collect();
        assert_eq!(found, shredded_columns, "{options:?}");
        assert_eq!(reader.layout().index, options.index);
        let profile = files.profile(&entities(), options);
        for record in &profile.paths {
            assert_eq!(record.shredded, shredded_columns.contains(&record.path.as_str()), "{}", record.path);
        }
        (reader, profile)
    };
    let with = |index| WriteOptions { index, ..WriteOptions::default() };

    let (plain, profile) = check(&with(index(&[], &[])), &["n", "name", "o.p"]);
    let why = |path: &str| of(&profile, path).why_not_shredded;
    assert_eq!((why("rare"), why("text")), (Some(NotShredded::TooRare), Some(NotShredded::TextsTooLong)));
    assert_eq!((why("o"), why("n")), (Some(NotShredded::NoScalar), None));

    let asked = index(&["rare", "text", "o", "nowhere.to\\.be", "name"], &["n"]);
    let (tuned, profile) = check(&with(asked), &["rare", "text", "name", "o.p"]);
    assert_eq!(of(&profile, "n").why_not_shredded, Some(NotShredded::Excluded));
    assert_eq!(profile.index.always, ["name", "nowhere.to\\.be", "o", "rare", "text"]);
    assert_eq!(profile.index.never, ["n"]);
    let unmet: Vec<_> = profile.index.unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect();
    assert_eq!(unmet, [("nowhere.to\\.be", NotShredded::NoScalar), ("o", NotShredded::NoScalar)]);
    // A sort on it is told from the shredded column, long texts or not; without one, from all documents.
    for (field, cheap) in [("text", &tuned), ("rare", &tuned), ("n", &plain)] {
        let dear = if field == "n" { &tuned } else { &plain };
        let [low, high] =
            [cheap, dear].map(|reader| files.bench.runtime.block_on(cost::work_bytes(reader, &sorted_by(field))));
        assert!(low * 4 < high, "{field}: {low} and {high}");
    }

    // What is excluded is that path, and not those below it.
    check(&with(index(&[], &["o", "name"])), &["n", "o.p"]);
    // What is asked for takes no room from the others, nor needs any.
    let few = ShreddingBounds { shredded_columns: 1, ..ShreddingBounds::default() };
    let (_, profile) =
        check(&WriteOptions { shredding: few, ..with(index(&["text", "o.p"], &[])) }, &["text", "n", "o.p"]);
    assert_eq!(of(&profile, "name").why_not_shredded, Some(NotShredded::NoRoom));
    check(&WriteOptions { shredding: nothing_shredded(), ..with(index(&["name"], &[])) }, &["name"]);
}

#[test]
fn as_many_shredded_columns_as_there_can_be_are_written_and_read() {
    let entity: Vec<String> = (0..200).map(|number| format!(r#""p{number}":"x{number}""#)).collect();
    let entities = vec![format!("{{{}}}", entity.join(",")); 50];
    let always: Vec<String> = (200 - INDEX_PATHS..200).map(|number| format!("p{number}")).collect();
    let options =
        WriteOptions { index: IndexSettings::try_new(&always, &[]).expect("an index"), ..WriteOptions::default() };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), ShreddingBounds::default().shredded_columns + INDEX_PATHS);
    let profile = files.profile(&entities, &options);
    assert_eq!(profile.paths.iter().filter(|record| record.shredded).count(), 128);
    assert_eq!(profile.index.unmet, []);
}

#[test]
fn a_path_that_is_not_followed_is_not_shredded_and_the_profile_says_so() {
    let mut entities: Vec<String> = (0..10_100).map(|number| format!(r#"{{"p{number}":1}}"#)).collect();
    entities.push(r#"{"late":1}"#.to_owned());
    let options =
        WriteOptions { index: index(&["late", "p7"], &[]), shredding: nothing_shredded(), ..WriteOptions::default() };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), 1);
    let unmet = files.profile(&entities, &options).index.unmet;
    assert_eq!(
        unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect::<Vec<_>>(),
        [("late", NotShredded::NotFollowed)]
    );
}

// ---- datasets ----

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
    let request = ImportRequest {
        source: source.path().to_string_lossy().into_owned(),
        name: "Other".to_owned(),
        owner_email: "ada@strata.test".to_owned(),
        about: strata_types::dataset::About::default(),
        private: false,
        format: None,
        records_path: None,
        publish_query: false,
        infer_types: false,
    };
    let imported =
        owned.service.app.refreshes().import(request, Arc::new(ImportProgress::default())).await.expect("imported");
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

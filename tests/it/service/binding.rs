//! A store is written and swept with its own catalog alone, and both are missed when they go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use strata_config::{CatalogUrl, Config, StoreUrl};
use strata_testing::catalog::execute;
use strata_testing::maintenance::{BackupKind, Depth, FindingKind};
use strata_testing::owned::Owned;
use strata_testing::{Answer, TestService, files};

/// Answers of `/readyz` are found anew after a second; nothing is kept in memory.
async fn owned() -> Owned {
    Owned::start(|config| {
        config.server.ready_probe_s = 1;
        (config.cache.memory_bytes, config.cache.response_bytes) = (Some(0), 0);
    })
    .await
}

const HOLDS: Duration = Duration::from_millis(1_100);

fn with_catalog(owned: &Owned, file: &Path) -> Config {
    let mut config = (*owned.service.services.config).clone();
    config.catalog.url = Some(CatalogUrl::try_from(format!("sqlite://{}", file.display())).expect("a URL"));
    config
}

fn with_store(owned: &Owned, store: &Path) -> Config {
    let mut config = (*owned.service.services.config).clone();
    config.store.url = Some(StoreUrl::try_from(store.display().to_string()).expect("a URL"));
    config
}

/// Why a service does not open.
async fn refusal(config: &Config) -> String {
    TestService::open(config).await.err().expect("it must not open")
}

async fn try_push(owned: &Owned, id: u64, entities: &str) -> Answer {
    owned.call("POST", "/dataset/refresh", &format!(r#"{{"dataset_id": {id}, "entities": {entities}}}"#)).await
}

/// A 503 that says this, and when to come again.
#[track_caller]
fn unavailable(answer: &Answer, text: &str) {
    answer.is_error(503);
    assert!(answer.text().contains(text), "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
}

async fn ready(owned: &Owned) -> String {
    tokio::time::sleep(HOLDS).await;
    owned.service.get("/readyz").await.text().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_opened_with_its_own_catalog_alone() {
    let owned = owned().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let (home, elsewhere) = (owned.service.directory(), tempfile::tempdir().expect("a directory"));
    let id = home.join("store/strata.id");
    let whole = (files(&home.join("store")), fs::read_to_string(&id).expect("an identity"));

    // A new catalog, as where the file was lost or the URL is wrong.
    let new = with_catalog(&owned, &elsewhere.path().join("new.sqlite"));
    let text = refusal(&new).await;
    let store = home.join("store").display().to_string();
    for said in [store.as_str(), "new.sqlite", whole.1.trim(), "restore the database from a backup", "an empty store"] {
        assert!(text.contains(said), "{text}");
    }
    // A store that lost its identity.
    fs::remove_file(&id).expect("removed");
    let text = refusal(&new).await;
    assert!(text.contains("none of its version files are in the metadata database"), "{text}");
    execute(&owned.service, "DELETE FROM installation").await;
    // A store of files that the catalog names opens.
    owned.service.reopened().await;
    let given = fs::read_to_string(&id).expect("an identity");
    assert_ne!(given, whole.1);

    // Another place than that of the files, as where nothing is mounted.
    let empty = elsewhere.path().join("empty");
    let text = refusal(&with_store(&owned, &empty)).await;
    assert!(
        text.contains("the store has no strata.id; mount the correct store") && text.contains(given.trim()),
        "{text}"
    );
    assert_eq!(files(&empty), Vec::<PathBuf>::new());
    assert!(!empty.join("strata.id").exists());
    // A catalog that names no file may have another store.
    let mut both = with_catalog(&owned, &elsewhere.path().join("another.sqlite"));
    for store in ["one", "two"] {
        both.store.url = with_store(&owned, &elsewhere.path().join(store)).store.url;
        TestService::open(&both).await.expect("it opens");
    }
    assert_eq!(files(&home.join("store")), whole.0);
    assert_eq!(fs::read_to_string(&id).expect("an identity"), given);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_in_place_of_the_stores_name_keeps_nobody_waiting() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let file = owned.service.directory().join("store/strata.id");
    let name = fs::read(&file).expect("an identity");
    fs::remove_file(&file).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo").success());

    let told = "the store is missing: its strata.id is not a regular file";
    let text = ready(&owned).await;
    assert!(text.contains(told), "{text}");
    unavailable(&try_push(&owned, id, r#"[{"a":2}]"#).await, "the version file store is missing");
    let sweep = owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
    let error = sweep.err().map(|error| strata_types::causes::Causes(&error).to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains(told)), "{error:?}");
    let checked = owned.service.check(Depth::Footers).await;
    let found = &checked.findings;
    assert_eq!((checked.damaged, found.len()), (1, 1), "{found:?}");
    let reason = "its strata.id is not a regular file";
    assert!(found[0].kind == FindingKind::Store && found[0].reason.contains(reason), "{found:?}");
    // Reads need no name, and a service opens for them.
    assert_eq!(owned.service.get("/api/1/things/active/?pretty=false").await.text(), r#"[{"a":1}]"#);
    owned.service.reopened().await.services.close().await;

    fs::remove_file(&file).expect("removed");
    fs::write(&file, name).expect("written");
    assert_eq!(ready(&owned).await, "ok");
    assert_eq!(try_push(&owned, id, r#"[{"a":2}]"#).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_leaves_a_store_alone_that_is_another_ones() {
    let owned = owned().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let store = owned.service.directory().join("store");
    let left = store.join("versions/left.parquet");
    fs::write(&left, "left").expect("written");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let id = fs::read(store.join("strata.id")).expect("an identity");
    let sweep = async || owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
    fs::write(store.join("strata.id"), "0123456789abcdef0123456789abcdef\n").expect("written");
    assert!(sweep().await.is_err());
    fs::remove_file(store.join("strata.id")).expect("removed");
    assert!(sweep().await.is_err());
    assert_eq!(files(&store).len(), 2);
    fs::write(store.join("strata.id"), id).expect("written");
    assert_eq!(sweep().await.expect("swept").removed, 1);
    assert!(!left.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_the_identity_and_goes_on_by_itself() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("copy");
    owned.service.backup(&copy, BackupKind::Copied).await.expect("backed up");
    let identity = |home: &Path| fs::read(home.join("store/strata.id")).expect("an identity");
    assert_eq!(identity(&copy), identity(owned.service.directory()));
    let restored = TestService::open_data(&copy).await.expect("it opens");
    assert_eq!(restored.get(&format!("/api/{id}/things/v1/?format=jsonl")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_goes_is_missed_and_found_again() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2}]"#]).await;
    let (store, away) = (owned.service.directory().join("store"), owned.service.directory().join("away"));
    let gone = "the version file store is missing";
    // Nothing, an empty directory, and a file in its place.
    for place in 0..3 {
        fs::rename(&store, &away).expect("moved");
        match place {
            0 => {}
            1 => fs::create_dir(&store).expect("made"),
            _ => fs::write(&store, "no directory").expect("written"),
        }
        let read = owned.service.get(&format!("/api/{id}/things/v1/?x={place}")).await;
        read.is_error(503);
        assert!(read.text().contains(gone), "{}", read.text());
        unavailable(&try_push(&owned, id, r#"[{"b":1}]"#).await, gone);
        // The same entities share a file.
        unavailable(&try_push(&owned, id, r#"[{"a":2}]"#).await, gone);
        unavailable(&owned.save(id, 1, r#"[{"b":1}]"#).await, gone);
        unavailable(&owned.clone(id, "Clone").await, gone);
        let text = ready(&owned).await;
        assert!(text.contains("not ready: the store is missing: "), "{text}");
        assert_eq!(text.contains("it has no strata.id"), place < 2, "{text}");
        assert_eq!(files(&store), Vec::<PathBuf>::new());
        assert_eq!(store.exists(), place > 0, "it is not made anew");
        match place {
            0 => {}
            1 => fs::remove_dir(&store).expect("removed"),
            _ => fs::remove_file(&store).expect("removed"),
        }
        fs::rename(&away, &store).expect("moved");
        assert_eq!(ready(&owned).await, "ok");
        assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/?y={place}")).await.status, 200);
    }
    assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    assert_eq!(owned.versions(id).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_whose_file_goes_takes_no_writes() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let (file, away) = (owned.service.directory().join("catalog.sqlite"), owned.service.directory().join("away"));
    let gone = "its file was deleted or replaced";
    for replaced in [false, true] {
        fs::rename(&file, &away).expect("moved");
        if replaced {
            fs::copy(&away, &file).expect("copied");
        }
        unavailable(&try_push(&owned, id, r#"[{"b":1}]"#).await, gone);
        unavailable(&owned.call("POST", "/dataset/create", r#"{"name": "Other", "source": "push"}"#).await, gone);
        let text = ready(&owned).await;
        assert!(text.contains("cannot write to the metadata database") && text.contains(gone), "{text}");
        fs::rename(&away, &file).expect("moved");
        assert_eq!(ready(&owned).await, "ok");
    }
    assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    assert_eq!(owned.versions(id).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_directories_that_somebody_removes_are_made_anew() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let large = format!(r#"[{{"text": "{}"}}]"#, "x".repeat(600_000));
    for round in 0..2 {
        for folder in ["tmp", "exports"] {
            fs::remove_dir_all(owned.service.directory().join(folder)).expect("removed");
        }
        assert_eq!(try_push(&owned, id, &large).await.status, 200);
        let export = owned.service.get(&format!("/api/{id}/things/latest/?format=parquet&limit={}", 5 + round)).await;
        assert_eq!(export.status, 200, "{}", export.text());
        assert_eq!(strata_testing::files(&owned.service.directory().join("exports")).len(), 2, "a lock and the export");
    }
    // They are held by their process, as before.
    let other = owned.service.reopened().await;
    drop(other);
    assert!(owned.service.directory().join("exports").read_dir().expect("readable").count() > 0);
}

/// Large pushes and saves failed with 500, and small ones said that the data directory is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_the_place_of_temporary_files_is_told_until_it_is_removed() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let folder = owned.service.directory().join("tmp");
    let told = "the directory for temporary files cannot be used: its path is not a directory";
    for (place, is_link) in [false, true].into_iter().enumerate() {
        // Large ones need a file before all of them have come.
        let sizes = [10, 600_000].map(|size| format!(r#"[{{"place": {place}, "text": "{}"}}]"#, "x".repeat(size)));
        fs::remove_dir_all(&folder).expect("removed");
        match is_link {
            true => std::os::unix::fs::symlink("nowhere", &folder).expect("linked"),
            false => fs::write(&folder, "no directory").expect("written"),
        }
        let before = owned.versions(id).await.len();
        for entities in &sizes {
            unavailable(&try_push(&owned, id, entities).await, told);
            unavailable(&owned.save(id, 1, entities).await, told);
        }
        assert_eq!(owned.versions(id).await.len(), before);
        assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/?x={place}")).await.status, 200);
        fs::remove_file(&folder).expect("removed");
        for entities in &sizes {
            assert_eq!(try_push(&owned, id, entities).await.status, 200);
            assert_eq!(owned.save(id, 1, entities).await.status, 200);
        }
    }
}

/// An export made the data directory anew, and everything went on half-way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_that_goes_is_not_made_anew() {
    // With its store elsewhere, exports can be made but not kept.
    for beside in [false, true] {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let owned = Owned::start(|config| {
            if beside {
                let store = elsewhere.path().join("store").display().to_string();
                config.store.url = Some(StoreUrl::try_from(store).expect("a URL"));
            }
        })
        .await;
        let id = owned.dataset("Things", json!({}), &[r#"[{"a":1},{"a":2}]"#]).await;
        let url = |query: &str| format!("/api/{id}/things/v1/?{query}");
        // Its documents are in memory.
        assert_eq!(owned.service.get(&url("format=jsonl")).await.status, 200);
        assert_eq!(owned.service.get(&url("format=parquet")).await.status, 200);
        let data = owned.service.directory();
        let away = elsewhere.path().join("away");
        fs::rename(data, &away).expect("moved");
        for query in
            ["format=parquet", "format=parquet&limit=1", "format=parquet&sample=1", "format=parquet&typed=true"]
        {
            let export = owned.service.get(&url(query)).await;
            export.is_error(503);
            assert!(export.text().contains("the data directory is missing"), "{}", export.text());
        }
        let large = format!(r#"[{{"text": "{}"}}]"#, "x".repeat(600_000));
        for entities in [r#"[{"b":1}]"#, &large] {
            let push = try_push(&owned, id, entities).await;
            push.is_error(503);
            assert!(push.header("retry-after").is_some(), "{}", push.text());
        }
        assert!(!data.exists(), "it is not made anew");
        fs::rename(&away, data).expect("moved");
        for query in ["format=parquet", "format=parquet&limit=1", "format=parquet&sample=1"] {
            assert_eq!(owned.service.get(&url(query)).await.status, 200);
        }
        assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    }
}

#[tokio::test]
async fn an_identity_that_a_power_failure_has_cut_is_written_again() {
    for cut in ["", "0123", "\0\0\0\0", "0123\0\0"] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        let id = directory.path().join("store/strata.id");
        fs::create_dir(directory.path().join("store")).expect("made");
        fs::write(&id, cut).expect("written");
        drop(TestService::open(&config).await.unwrap_or_else(|error| panic!("{cut:?}: {error}")));
        assert_eq!(fs::read_to_string(&id).expect("an identity").trim().len(), 32, "{cut:?}");
        // Another one is not.
        fs::write(&id, "f".repeat(32)).expect("written");
        assert!(refusal(&config).await.contains("belongs to another metadata database"));
    }
}

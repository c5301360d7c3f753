//! The binding of a store to a catalog: only the catalog's own store is written and swept, and both are checked at
//! runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use strata_config::{CatalogUrl, Config, StoreUrl};
use strata_service::BackupCopyMode;
use strata_testing::catalog::execute;
use strata_testing::maintenance::{Depth, FindingKind};
use strata_testing::owned::Owned;
use strata_testing::{Answer, TestService, files};

/// Opens a service that probes readiness every second and caches nothing in memory.
async fn owned() -> Owned {
    Owned::start(|config| {
        config.server.ready_probe_s = 1;
        (config.cache.memory_bytes, config.cache.response_bytes) = (Some(0), 0);
    })
    .await
}

const READY_PROBE_INTERVAL: Duration = Duration::from_millis(1_100);

fn with_catalog(owned: &Owned, file: &Path) -> Config {
    let mut config = (*owned.service.services.config).clone();
    config.catalog.url =
        Some(CatalogUrl::try_from(format!("sqlite://{}", file.display())).expect("failed to parse URL"));
    config
}

fn with_store(owned: &Owned, store: &Path) -> Config {
    let mut config = (*owned.service.services.config).clone();
    config.store.url = Some(StoreUrl::try_from(store.display().to_string()).expect("failed to parse URL"));
    config
}

/// Returns the error of opening a service.
async fn open_error(config: &Config) -> String {
    TestService::open(config).await.err().expect("opened unexpectedly")
}

async fn try_push(owned: &Owned, id: u64, entities: &str) -> Answer {
    owned.call("POST", "/dataset/refresh", &format!(r#"{{"dataset_id": {id}, "entities": {entities}}}"#)).await
}

/// Checks that a response is a 503 with `text` and `Retry-After`.
#[track_caller]
fn assert_unavailable(answer: &Answer, text: &str) {
    answer.is_error(503);
    assert!(answer.text().contains(text), "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
}

async fn get_readiness(owned: &Owned) -> String {
    tokio::time::sleep(READY_PROBE_INTERVAL).await;
    owned.service.get("/readyz").await.text().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_of_another_catalog_is_not_opened() {
    let owned = owned().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let home = owned.service.directory();
    let elsewhere = tempfile::tempdir().expect("failed to create directory");
    let id = home.join("store/strata.id");
    let whole = (files(&home.join("store")), fs::read_to_string(&id).expect("failed to read identity"));

    // A new catalog, as after the loss of the file or with a wrong URL.
    let new = with_catalog(&owned, &elsewhere.path().join("new.sqlite"));
    let text = open_error(&new).await;
    let store = home.join("store").display().to_string();
    for said in [store.as_str(), "new.sqlite", whole.1.trim(), "restore the database from a backup", "an empty store"] {
        assert!(text.contains(said), "{text}");
    }
    // A store that lost its identity.
    fs::remove_file(&id).expect("failed to remove");
    let text = open_error(&new).await;
    assert!(text.contains("none of its version files are in the metadata database"), "{text}");
    execute(&owned.service, "DELETE FROM installation").await;
    // A store whose files the catalog records can be opened.
    owned.service.reopened().await;
    let stored_identity = fs::read_to_string(&id).expect("failed to read identity");
    assert_ne!(stored_identity, whole.1);

    // Another directory than the one with the files, as if a disk is not mounted.
    let empty = elsewhere.path().join("empty");
    let text = open_error(&with_store(&owned, &empty)).await;
    assert!(
        text.contains("the store has no strata.id; mount the correct store") && text.contains(stored_identity.trim()),
        "{text}"
    );
    assert_eq!(files(&empty), Vec::<PathBuf>::new());
    assert!(!empty.join("strata.id").exists());
    // A catalog without recorded files can get another store.
    let mut both = with_catalog(&owned, &elsewhere.path().join("another.sqlite"));
    for store in ["one", "two"] {
        both.store.url = with_store(&owned, &elsewhere.path().join(store)).store.url;
        TestService::open(&both).await.expect("failed to open service");
    }
    assert_eq!(files(&home.join("store")), whole.0);
    assert_eq!(fs::read_to_string(&id).expect("failed to read identity"), stored_identity);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipe_as_identity_file_blocks_no_request() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let file = owned.service.directory().join("store/strata.id");
    let name = fs::read(&file).expect("failed to read identity");
    fs::remove_file(&file).expect("failed to remove");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("failed to run mkfifo").success());

    let expected = "the store is missing: its strata.id is not a regular file";
    let text = get_readiness(&owned).await;
    assert!(text.contains(expected), "{text}");
    assert_unavailable(&try_push(&owned, id, r#"[{"a":2}]"#).await, "the version file store is missing");
    let sweep = owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
    let error = sweep.err().map(|error| strata_types::error_chain::ErrorChain(&error).to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains(expected)), "{error:?}");
    let checked = owned.service.check(Depth::Footers).await;
    let found = &checked.findings;
    assert_eq!((checked.damaged, found.len()), (1, 1), "{found:?}");
    let reason = "its strata.id is not a regular file";
    assert!(found[0].kind == FindingKind::Store && found[0].reason.contains(reason), "{found:?}");
    // Reads do not check the identity, so a service opens.
    assert_eq!(owned.service.get("/api/1/things/active/?pretty=false").await.text(), r#"[{"a":1}]"#);
    owned.service.reopened().await.services.close().await;

    fs::remove_file(&file).expect("failed to remove");
    fs::write(&file, name).expect("failed to write");
    assert_eq!(get_readiness(&owned).await, "ok");
    assert_eq!(try_push(&owned, id, r#"[{"a":2}]"#).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_rejects_store_of_another_catalog() {
    let owned = owned().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let store = owned.service.directory().join("store");
    let left = store.join("versions/left.parquet");
    fs::write(&left, "left").expect("failed to write");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let id = fs::read(store.join("strata.id")).expect("failed to read identity");
    let sweep = async || owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
    fs::write(store.join("strata.id"), "0123456789abcdef0123456789abcdef\n").expect("failed to write");
    assert!(sweep().await.is_err());
    fs::remove_file(store.join("strata.id")).expect("failed to remove");
    assert!(sweep().await.is_err());
    assert_eq!(files(&store).len(), 2);
    fs::write(store.join("strata.id"), id).expect("failed to write");
    assert_eq!(sweep().await.expect("failed to sweep").removed, 1);
    assert!(!left.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_keeps_identity_and_is_independent() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let directory = tempfile::tempdir().expect("failed to create directory");
    let copy = directory.path().join("copy");
    owned.service.backup(&copy, BackupCopyMode::AlwaysCopy).await.expect("failed to back up");
    let identity = |home: &Path| fs::read(home.join("store/strata.id")).expect("failed to read identity");
    assert_eq!(identity(&copy), identity(owned.service.directory()));
    let restored = TestService::open_data(&copy).await.expect("failed to open service");
    assert_eq!(restored.get(&format!("/api/{id}/things/v1/?format=jsonl")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_store_makes_service_unready_until_restored() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2}]"#]).await;
    let store = owned.service.directory().join("store");
    let away = owned.service.directory().join("away");
    let reason = "the version file store is missing";
    // The store is missing, then it is an empty directory, then it is a regular file.
    for place in 0..3 {
        fs::rename(&store, &away).expect("failed to move");
        match place {
            0 => {}
            1 => fs::create_dir(&store).expect("failed to create"),
            _ => fs::write(&store, "no directory").expect("failed to write"),
        }
        let read = owned.service.get(&format!("/api/{id}/things/v1/?x={place}")).await;
        read.is_error(503);
        assert!(read.text().contains(reason), "{}", read.text());
        assert_unavailable(&try_push(&owned, id, r#"[{"b":1}]"#).await, reason);
        // The same entities share a file.
        assert_unavailable(&try_push(&owned, id, r#"[{"a":2}]"#).await, reason);
        assert_unavailable(&owned.save(id, 1, r#"[{"b":1}]"#).await, reason);
        assert_unavailable(&owned.clone(id, "Clone").await, reason);
        let text = get_readiness(&owned).await;
        assert!(text.contains("not ready: the store is missing: "), "{text}");
        assert_eq!(text.contains("it has no strata.id"), place < 2, "{text}");
        assert_eq!(files(&store), Vec::<PathBuf>::new());
        assert_eq!(store.exists(), place > 0, "the directory must not be created again");
        match place {
            0 => {}
            1 => fs::remove_dir(&store).expect("failed to remove"),
            _ => fs::remove_file(&store).expect("failed to remove"),
        }
        fs::rename(&away, &store).expect("failed to move");
        assert_eq!(get_readiness(&owned).await, "ok");
        assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/?y={place}")).await.status, 200);
    }
    assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    assert_eq!(owned.versions(id).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_catalog_file_rejects_writes() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let file = owned.service.directory().join("catalog.sqlite");
    let away = owned.service.directory().join("away");
    let reason = "its file was deleted or replaced";
    for replaced in [false, true] {
        fs::rename(&file, &away).expect("failed to move");
        if replaced {
            fs::copy(&away, &file).expect("failed to copy");
        }
        assert_unavailable(&try_push(&owned, id, r#"[{"b":1}]"#).await, reason);
        assert_unavailable(
            &owned.call("POST", "/dataset/create", r#"{"name": "Other", "source": "push"}"#).await,
            reason,
        );
        let text = get_readiness(&owned).await;
        assert!(text.contains("cannot write to the metadata database") && text.contains(reason), "{text}");
        fs::rename(&away, &file).expect("failed to move");
        assert_eq!(get_readiness(&owned).await, "ok");
    }
    assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    assert_eq!(owned.versions(id).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_temporary_directories_are_recreated() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let large = format!(r#"[{{"text": "{}"}}]"#, "x".repeat(600_000));
    for round in 0..2 {
        for folder in ["tmp", "exports"] {
            fs::remove_dir_all(owned.service.directory().join(folder)).expect("failed to remove");
        }
        assert_eq!(try_push(&owned, id, &large).await.status, 200);
        let export = owned.service.get(&format!("/api/{id}/things/latest/?format=parquet&limit={}", 5 + round)).await;
        assert_eq!(export.status, 200, "{}", export.text());
        assert_eq!(
            strata_testing::files(&owned.service.directory().join("exports")).len(),
            2,
            "expected the lock and the export"
        );
    }
    // The process has locked the new directories.
    let other = owned.service.reopened().await;
    drop(other);
    assert!(owned.service.directory().join("exports").read_dir().expect("failed to read directory").count() > 0);
}

/// Large pushes and saves failed with 500, and small ones reported that the data directory was missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obstructed_temporary_directory_is_reported() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let folder = owned.service.directory().join("tmp");
    let expected = "the directory for temporary files cannot be used: its path is not a directory";
    for (place, is_link) in [false, true].into_iter().enumerate() {
        // Large requests need a file before they are received completely.
        let sizes = [10, 600_000].map(|size| format!(r#"[{{"place": {place}, "text": "{}"}}]"#, "x".repeat(size)));
        fs::remove_dir_all(&folder).expect("failed to remove");
        match is_link {
            true => std::os::unix::fs::symlink("nowhere", &folder).expect("failed to create link"),
            false => fs::write(&folder, "no directory").expect("failed to write"),
        }
        let before = owned.versions(id).await.len();
        for entities in &sizes {
            assert_unavailable(&try_push(&owned, id, entities).await, expected);
            assert_unavailable(&owned.save(id, 1, entities).await, expected);
        }
        assert_eq!(owned.versions(id).await.len(), before);
        assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/?x={place}")).await.status, 200);
        fs::remove_file(&folder).expect("failed to remove");
        for entities in &sizes {
            assert_eq!(try_push(&owned, id, entities).await.status, 200);
            assert_eq!(owned.save(id, 1, entities).await.status, 200);
        }
    }
}

/// An export created the data directory again, and later requests failed in various ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_data_directory_is_not_recreated() {
    // Because the store is elsewhere, exports can be built but not cached.
    for is_store_elsewhere in [false, true] {
        let elsewhere = tempfile::tempdir().expect("failed to create directory");
        let owned = Owned::start(|config| {
            if is_store_elsewhere {
                let store = elsewhere.path().join("store").display().to_string();
                config.store.url = Some(StoreUrl::try_from(store).expect("failed to parse URL"));
            }
        })
        .await;
        let id = owned.dataset("Things", json!({}), &[r#"[{"a":1},{"a":2}]"#]).await;
        let url = |query: &str| format!("/api/{id}/things/v1/?{query}");
        // Documents are in memory.
        assert_eq!(owned.service.get(&url("format=jsonl")).await.status, 200);
        assert_eq!(owned.service.get(&url("format=parquet")).await.status, 200);
        let data = owned.service.directory();
        let away = elsewhere.path().join("away");
        fs::rename(data, &away).expect("failed to move");
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
        assert!(!data.exists(), "the directory must not be created again");
        fs::rename(&away, data).expect("failed to move");
        for query in ["format=parquet", "format=parquet&limit=1", "format=parquet&sample=1"] {
            assert_eq!(owned.service.get(&url(query)).await.status, 200);
        }
        assert_eq!(try_push(&owned, id, r#"[{"b":1}]"#).await.status, 200);
    }
}

#[tokio::test]
async fn truncated_identity_is_written_again() {
    for cut in ["", "0123", "\0\0\0\0", "0123\0\0"] {
        let directory = tempfile::tempdir().expect("failed to create directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        let id = directory.path().join("store/strata.id");
        fs::create_dir(directory.path().join("store")).expect("failed to create");
        fs::write(&id, cut).expect("failed to write");
        drop(TestService::open(&config).await.unwrap_or_else(|error| panic!("{cut:?}: {error}")));
        assert_eq!(fs::read_to_string(&id).expect("failed to read identity").trim().len(), 32, "{cut:?}");
        // Another identity is not replaced.
        fs::write(&id, "f".repeat(32)).expect("failed to write");
        assert!(open_error(&config).await.contains("belongs to another metadata database"));
    }
}

//! The same of catalogs: whatever is damaged in the database while no server runs, the service refuses to open it,
//! fails, or answers as before.

use std::fs;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use strata_config::{Config, StoreUrl};
use strata_testing::TestService;
use strata_testing::maintenance::{BackupKind, Depth, FindingKind};
use strata_testing::owned::{Owned, parsed};

use super::{Damage, Tally, ask, damages, entities, furnished, reads};

/// A service's catalog as one file, and the files that it names.
async fn copy(owned: &Owned, directory: &Path) -> Vec<u8> {
    owned.service.backup(directory, BackupKind::Copied).await.expect("a backup");
    fs::read(directory.join("catalog.sqlite")).expect("a catalog")
}

/// A service on a catalog of these bytes and the store of another directory; `None` if it does not open.
async fn open(catalog: &[u8], store: &Path, directory: &Path) -> Option<TestService> {
    fs::write(directory.join("catalog.sqlite"), catalog).expect("written");
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.store.url = Some(StoreUrl::try_from(store.display().to_string()).expect("a URL"));
    config.query.threads = 2;
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    TestService::open(&config).await.ok()
}

/// A catalog with more than fits into one page of any table.
async fn populous() -> (Owned, u64) {
    let (owned, id) = furnished().await;
    for number in 0..12 {
        let one = format!(r#"[{{"n":{number}}}]"#);
        let versions: Vec<&str> = vec![&one; 1 + number % 5];
        let other = owned.dataset(&format!("Dataset {number}"), json!({"private": number % 2 == 0}), &versions).await;
        if number % 3 == 0 {
            let body = json!({"dataset_id": other, "version_number": 1, "freeze": number % 2 == 0}).to_string();
            parsed(&owned.call("POST", "/dataset/rollback", &body).await);
        }
    }
    (owned, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: damages catalogs hundreds of times"]
async fn every_read_on_a_damaged_catalog_is_right_or_fails() {
    let (owned, id) = populous().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (home, away) = (directory.path().join("home"), directory.path().join("away"));
    let whole = copy(&owned, &home).await;
    // Another service's catalog, of which every record is whole.
    let other = super::owned().await;
    for name in ["Foreign", "Things", "Others"] {
        other.dataset(name, json!({}), &[&entities(5), "[]"]).await;
    }
    let foreign = copy(&other, &away).await;

    let store = home.join("store");
    // One of each kind: here the files are whole, and what decides is the catalog.
    let mut reads: Vec<String> = reads(id, "things").into_iter().step_by(6).collect();
    reads.extend([format!("/api/{id}/things/v2/?count=true"), format!("/api/{id}/things/v1/alt/?count=true")]);
    reads.push(format!("/api/{}/others/active/?count=true", id + 1));
    for number in 0..12 {
        let other = id + 2 + number;
        reads.push(format!("/api/{other}/dataset-{number}/active/?count=true"));
        reads.push(format!("/api/{other}/dataset-{number}/v2/?format=jsonl"));
    }
    reads.push(format!("/dataset/diff?dataset_id={id}&v1=1&v2=2&limit=3"));
    reads.push("/api/99/nothing/v1/".to_owned());
    let sound = directory.path().join("sound");
    fs::create_dir(&sound).expect("made");
    let service = open(&whole, &store, &sound).await.expect("it opens");
    let mut before = Vec::new();
    for uri in &reads {
        before.push(ask(&service, &owned.token, uri).await);
    }
    let mut tally = Tally::default();
    let mut count = 0;
    for seed in damages(60) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = Damage::draw(&mut random);
        if matches!(kind, Damage::Replaced) {
            // Another catalog as a whole is another service.
            continue;
        }
        let damaged = kind.apply(&whole, &foreign, &mut random);
        if damaged == whole {
            continue;
        }
        count += 1;
        let place = tempfile::tempdir_in(&directory).expect("a directory");
        let Some(service) = open(&damaged, &store, place.path()).await else {
            tally.failed += reads.len() as u64;
            tally.noticed(kind);
            continue;
        };
        let what = format!("seed {seed}, {kind:?}");
        let mut noticed = false;
        for (uri, before) in reads.iter().zip(&before) {
            noticed |= tally.judge(&what, uri, before, &ask(&service, &owned.token, uri).await);
        }
        if noticed {
            tally.noticed(kind);
        }
    }
    tally.is_right_or_failed(count, "catalogs");
}

/// Empties indexes of a catalog, as after a write to them was lost: the first bytes of their root pages say so.
async fn without_entries(catalog: &[u8], directory: &Path, indexes: &[&str]) -> Vec<u8> {
    let path = directory.join("looked-at.sqlite");
    fs::write(&path, catalog).expect("written");
    let url = format!("sqlite://{}", path.display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    let mut bytes = catalog.to_vec();
    let page_bytes = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    for index in indexes {
        let root: i64 = sqlx::query_scalar("SELECT rootpage FROM sqlite_master WHERE name = $1")
            .bind(index)
            .fetch_one(&mut connection)
            .await
            .expect("the index");
        let start = (usize::try_from(root).expect("a page") - 1) * page_bytes;
        const INDEX_LEAF: u8 = 0x0a;
        assert_eq!(bytes[start], INDEX_LEAF, "{index} is small");
        bytes[start + 3..start + 5].fill(0);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_lost_its_entries_costs_no_file() {
    let owned = super::owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    // As a deletion leaves it that asked an index without entries.
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    sqlx::raw_sql("UPDATE files SET unreferenced_since = 1").execute(&mut connection).await.expect("marked");
    let directory = tempfile::tempdir().expect("a directory");
    let whole = copy(&owned, &directory.path().join("home")).await;
    let store = directory.path().join("home/store");
    let indexes = [
        "sqlite_autoindex_files_1",
        "sqlite_autoindex_file_reservations_1",
        "versions_by_file",
        "versions_by_alt_file",
    ];
    let damaged = without_entries(&whole, directory.path(), &indexes).await;
    let place = tempfile::tempdir_in(&directory).expect("a directory");
    let service = open(&damaged, &store, place.path()).await.expect("it opens");
    let left = store.join("versions/left.parquet");
    fs::write(&left, "left behind").expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    for _ in 0..2 {
        let mut told = Vec::new();
        let maintenance = &service.services.maintenance;
        let swept = maintenance.sweep(std::time::Duration::ZERO, &mut |file| told.push(file.path.clone())).await;
        swept.expect("swept");
        assert!(told.iter().all(|path| path == "versions/left.parquet"), "{told:?}");
    }
    assert!(!left.exists(), "what nobody names is removed all the same");
    let url = service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    let sql = "SELECT COUNT(*) FROM files WHERE unreferenced_since IS NULL";
    let named: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a count");
    assert_eq!(named, 2, "they are not marked any more");
    for read in [format!("/api/{id}/things/v1/"), format!("/api/{id}/things/v1/alt/")] {
        assert_eq!(service.get(&read).await.status, 200, "{read}");
    }
}

/// A page of zeros gives rows in which everything is empty, the checksum too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_which_nothing_is_left_is_damaged() {
    let owned = super::owned().await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    let emptied = "PRAGMA ignore_check_constraints = ON;
                   UPDATE datasets SET name = '', name_slug = '', source = '', ping_token = '',
                   latest_version = NULL, created_at = 0, record_checksum = NULL";
    sqlx::raw_sql(emptied).execute(&mut connection).await.expect("damaged");
    let fresh = owned.service.beside(|_| {}).await;
    for uri in [format!("/api/{id}/things/v1/"), format!("/dataset/diff?dataset_id={id}&v1=1&v2=1")] {
        ask(&fresh, &owned.token, &uri).await.is_error(500);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_record_of_a_file_keeps_nobody_from_the_others() {
    let owned = super::owned().await;
    for number in 0..3 {
        let list = format!(r#"[{{"a":{number}}}]"#);
        owned.dataset(&format!("Dataset {number}"), json!({}), &[&list]).await;
    }
    // The last one is damaged itself.
    super::damage(&super::newest(&owned.service));
    for damage in [
        "UPDATE files SET content_hash = CAST(x'ff' || substr(content_hash, 2) AS TEXT) WHERE file_id = 2",
        "PRAGMA ignore_check_constraints = ON; UPDATE files SET size_bytes = -1 WHERE file_id = 2",
    ] {
        let url = owned.service.services.config.catalog_url();
        let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
        let before: (String, i64) = sqlx::query_as("SELECT content_hash, size_bytes FROM files WHERE file_id = 2")
            .fetch_one(&mut connection)
            .await
            .expect("the record");
        sqlx::raw_sql(damage).execute(&mut connection).await.expect("damaged");
        let mut told = Vec::new();
        let scrubbed = owned.service.services.maintenance.scrub(0, &mut |file| told.push(file.clone())).await;
        let scrubbed = scrubbed.expect("scrubbed");
        assert_eq!((scrubbed.files, scrubbed.damaged, told.len()), (2, 2, 2), "{damage}: {told:?}");
        let versions = told[0].versions.as_ref().expect("they are known");
        assert!(told[0].path.contains("record 2 ") && versions.len() == 1, "{told:?}");
        assert!(told[1].path.starts_with("versions/"), "{told:?}");

        let checked = owned.service.check(Depth::Footers).await;
        assert_eq!(checked.files, 3);
        let mut damaged = checked.findings.iter().filter(|finding| finding.kind == FindingKind::Damaged);
        assert!(damaged.any(|finding| finding.path.contains("record 2 ")), "{:?}", checked.findings);

        let to = tempfile::tempdir().expect("a directory");
        // A backup that lacks a file is none; it says which record it is.
        let failed = owned.service.backup(&to.path().join("b"), BackupKind::Copied).await;
        let failed = format!("{:?}", failed.expect_err("a damaged record"));
        assert!(failed.starts_with("Record {") && failed.contains("file: FileId(2)"), "{failed}");
        sqlx::query("UPDATE files SET content_hash = $1, size_bytes = $2 WHERE file_id = 2")
            .bind(before.0)
            .bind(before.1)
            .execute(&mut connection)
            .await
            .expect("repaired");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_damaged_catalog_is_none() {
    let owned = super::owned().await;
    owned.dataset("Things", json!({}), &["[]"]).await;
    let directory = tempfile::tempdir().expect("a directory");
    owned.service.backup(&directory.path().join("sound"), BackupKind::Copied).await.expect("made");
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    sqlx::raw_sql("UPDATE datasets SET frozen = 1").execute(&mut connection).await.expect("damaged");
    let to = directory.path().join("damaged");
    let failed = format!("{:?}", owned.service.backup(&to, BackupKind::Copied).await.expect_err("a damaged record"));
    assert!(failed.starts_with("Damaged {") && failed.contains("dataset"), "{failed}");
    assert!(to.join("INCOMPLETE-BACKUP").exists());
}

//! Tests of damage to the metadata database while no server runs: the service does not open the database, returns an
//! error, or responds as before.

use std::fs;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use strata_config::{Config, StoreUrl};
use strata_service::BackupCopyMode;
use strata_testing::TestService;
use strata_testing::maintenance::{Depth, FindingKind};
use strata_testing::owned::{Owned, parsed};

use super::{Damage, DamageTally, ask, damages, entities, reads, service_with_datasets};

/// Copies a service's store to a directory and returns its catalog as the bytes of one file.
async fn copy(owned: &Owned, directory: &Path) -> Vec<u8> {
    owned.service.backup(directory, BackupCopyMode::AlwaysCopy).await.expect("failed to back up");
    fs::read(directory.join("catalog.sqlite")).expect("a catalog")
}

/// Opens a service with these bytes as its catalog and the store of another directory; `None` if it does not open.
async fn open(catalog: &[u8], store: &Path, directory: &Path) -> Option<TestService> {
    fs::write(directory.join("catalog.sqlite"), catalog).expect("written");
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.store.url = Some(StoreUrl::try_from(store.display().to_string()).expect("failed to parse the URL"));
    config.query.threads = 2;
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    TestService::open(&config).await.ok()
}

/// Creates a service in whose catalog the tables take several pages.
async fn large_catalog() -> (Owned, u64) {
    let (owned, id) = service_with_datasets().await;
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
async fn reads_on_damaged_catalog_are_right_or_fail() {
    let (owned, id) = large_catalog().await;
    let directory = tempfile::tempdir().expect("failed to create a directory");
    let home = directory.path().join("home");
    let away = directory.path().join("away");
    let whole = copy(&owned, &home).await;
    // The catalog of another service, in which every record is intact.
    let other = super::owned().await;
    for name in ["Foreign", "Things", "Others"] {
        other.dataset(name, json!({}), &[&entities(5), "[]"]).await;
    }
    let foreign = copy(&other, &away).await;

    let store = home.join("store");
    // One read of each kind suffices, because the version files are intact and only the catalog matters.
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
    fs::create_dir(&sound).expect("failed to create the directory");
    let service = open(&whole, &store, &sound).await.expect("failed to open");
    let mut before = Vec::new();
    for uri in &reads {
        before.push(ask(&service, &owned.token, uri).await);
    }
    let mut tally = DamageTally::default();
    let mut count = 0;
    for seed in damages(60) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = Damage::draw(&mut random);
        if matches!(kind, Damage::Replaced) {
            // Replacing the whole catalog makes it the catalog of another service, which is no damage.
            continue;
        }
        let damaged = kind.apply(&whole, &foreign, &mut random);
        if damaged == whole {
            continue;
        }
        count += 1;
        let place = tempfile::tempdir_in(&directory).expect("failed to create a directory");
        let Some(service) = open(&damaged, &store, place.path()).await else {
            tally.failed += reads.len() as u64;
            tally.noticed(kind);
            continue;
        };
        let what = format!("seed {seed}, {kind:?}");
        let mut noticed = false;
        for (uri, before) in reads.iter().zip(&before) {
            noticed |= tally.compare(&what, uri, before, &ask(&service, &owned.token, uri).await);
        }
        if noticed {
            tally.noticed(kind);
        }
    }
    tally.assert_right_or_failed(count, "catalogs");
}

/// Empties indexes of a catalog, as after a lost write: the first bytes of their root pages say that they have no
/// entries.
async fn empty_indexes(catalog: &[u8], directory: &Path, indexes: &[&str]) -> Vec<u8> {
    let path = directory.join("looked-at.sqlite");
    fs::write(&path, catalog).expect("written");
    let url = format!("sqlite://{}", path.display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
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

/// Returns a list that is long enough for delta versions. `round` changes some of its entities.
fn long_list(round: usize) -> String {
    let entity = |number: usize| {
        let round = if number.is_multiple_of(1_000) { round } else { 0 };
        format!(r#"{{"id":{number},"round":{round},"words":"these are the words of an entity of a long list"}}"#)
    };
    format!("[{}]", (0..20_000).map(entity).collect::<Vec<_>>().join(","))
}

/// Creates a dataset with two versions, and replaces the first file of version 1, as a compaction does. Only version 2
/// needs the replaced file, because it is a base. Returns the IDs of the dataset, of the replaced file, and of the file
/// of version 2.
async fn create_needed_base(owned: &Owned) -> (u64, i64, i64) {
    let id = owned.dataset("Long", json!({}), &[&long_list(0), &long_list(1)]).await;
    let copy = owned.dataset("Copy", json!({}), &[&long_list(0)]).await;
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    let (file, base): (i64, i64) = sqlx::query_as("SELECT file_id, base_file_id FROM file_bases")
        .fetch_one(&mut connection)
        .await
        .expect("missing delta version");
    let replace = "UPDATE versions SET file_id = (SELECT file_id FROM versions WHERE dataset_id = $2),
                   record_checksum = NULL WHERE dataset_id = $1 AND version_number = 1";
    let replaced = sqlx::query(replace).bind(id as i64).bind(copy as i64).execute(&mut connection).await;
    assert_eq!(replaced.expect("failed to replace the file").rows_affected(), 1);
    (id, base, file)
}

/// The rows of `file_bases` are lost or changed. Regression test: the sweep removed a base that was in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_with_damaged_bases_removes_no_used_file() {
    let owned = super::owned().await;
    let (id, base, file) = create_needed_base(&owned).await;
    let unused = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    parsed(&owned.save(unused, 1, r#"[{"alt":1}]"#).await);
    parsed(&owned.delete(unused, 1).await);
    let unrecorded = owned.service.directory().join("store/versions/left.parquet");
    fs::write(&unrecorded, "left behind").expect("written");
    let execute = async |sql: String| strata_testing::catalog::execute(&owned.service, &sql).await;
    let sweep = async || {
        let mut removed = Vec::new();
        let maintenance = &owned.service.services.maintenance;
        let swept = maintenance.sweep(std::time::Duration::ZERO, &mut |file| removed.push(file.path.clone())).await;
        (swept, removed)
    };
    let read = format!("/api/{id}/long/v2/?format=jsonl");
    let before = owned.service.get(&read).await;
    assert_eq!(before.status, 200);

    let repair = format!("DELETE FROM file_bases; INSERT INTO file_bases VALUES ({file}, {base}, 0)");
    // A deletion before the damage was noticed has marked the base.
    execute(format!("UPDATE files SET unreferenced_since = 1 WHERE file_id = {base}")).await;
    for damage in ["DELETE FROM file_bases", "UPDATE file_bases SET file_id = file_id + 1"] {
        execute(damage.to_owned()).await;
        let (swept, removed) = sweep().await;
        let error = format!("{:?}", swept.expect_err("the damage is not noticed"));
        assert!(error.contains(&format!("bases of file {file}")), "{damage}: {error}");
        assert!(removed.iter().all(|path| path == "versions/left.parquet"), "{damage}: {removed:?}");
        assert!(!unrecorded.exists(), "{damage}: the sweep left an unrecorded file");
        let fresh = owned.service.open_instance(|_| {}).await;
        let after = fresh.get(&read).await;
        assert!((after.status, &after.body) == (200, &before.body), "{damage}");
        let found = owned.service.check(Depth::Footers).await.findings;
        let expected = format!("files {file}: rows of file_bases were lost or changed");
        assert!(found.iter().any(|finding| finding.reason.starts_with(&expected)), "{damage}: {found:?}");
        execute(repair.clone()).await;
    }
    // After the repair, the sweep removes the unused alternate, but not the base, which is no longer marked.
    let (swept, removed) = sweep().await;
    assert!(swept.is_ok() && removed.len() == 1, "{swept:?} {removed:?}");
    assert_eq!(owned.service.open_instance(|_| {}).await.get(&read).await.body, before.body);
    let found = owned.service.check(Depth::Footers).await.findings;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_with_damaged_index_removes_no_used_file() {
    let owned = super::owned().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let (long, ..) = create_needed_base(&owned).await;
    // The state after a deletion that used an index without entries.
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    sqlx::raw_sql("UPDATE files SET unreferenced_since = 1")
        .execute(&mut connection)
        .await
        .expect("failed to mark the files");
    let directory = tempfile::tempdir().expect("failed to create a directory");
    let whole = copy(&owned, &directory.path().join("home")).await;
    let store = directory.path().join("home/store");
    let indexes = [
        "sqlite_autoindex_files_1",
        "sqlite_autoindex_file_reservations_1",
        "versions_by_file",
        "versions_by_alt_file",
        "file_bases_by_base",
    ];
    let damaged = empty_indexes(&whole, directory.path(), &indexes).await;
    let place = tempfile::tempdir_in(&directory).expect("failed to create a directory");
    let service = open(&damaged, &store, place.path()).await.expect("failed to open");
    let left = store.join("versions/left.parquet");
    fs::write(&left, "left behind").expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    for _ in 0..2 {
        let mut removed = Vec::new();
        let maintenance = &service.services.maintenance;
        let swept = maintenance.sweep(std::time::Duration::ZERO, &mut |file| removed.push(file.path.clone())).await;
        swept.expect("failed to sweep");
        assert!(removed.iter().all(|path| path == "versions/left.parquet"), "{removed:?}");
    }
    assert!(!left.exists(), "the sweep left an unrecorded file");
    let url = service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    let sql = "SELECT COUNT(*) FROM files WHERE unreferenced_since IS NULL";
    let named: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a count");
    assert_eq!(named, 5, "the files are still marked");
    let of_id = ["v1/", "v1/alt/"].map(|path| format!("/api/{id}/things/{path}"));
    let of_long = ["v1/", "v2/"].map(|path| format!("/api/{long}/long/{path}"));
    for read in of_id.iter().chain(&of_long) {
        assert_eq!(service.get(read).await.status, 200, "{read}");
    }
}

/// A zeroed page yields rows in which all values are empty, including the checksum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_without_content_is_damaged() {
    let owned = super::owned().await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    let emptied = "PRAGMA ignore_check_constraints = ON;
                   UPDATE datasets SET name = '', name_slug = '', source = '', ping_token = '',
                   latest_version = NULL, created_at = 0, record_checksum = NULL";
    sqlx::raw_sql(emptied).execute(&mut connection).await.expect("damaged");
    let fresh = owned.service.open_instance(|_| {}).await;
    for uri in [format!("/api/{id}/things/v1/"), format!("/dataset/diff?dataset_id={id}&v1=1&v2=1")] {
        ask(&fresh, &owned.token, &uri).await.is_error(500);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_file_record_affects_no_other_record() {
    let owned = super::owned().await;
    for number in 0..3 {
        let list = format!(r#"[{{"a":{number}}}]"#);
        owned.dataset(&format!("Dataset {number}"), json!({}), &[&list]).await;
    }
    // The newest file is damaged as well.
    super::damage(&super::newest(&owned.service));
    for damage in [
        "UPDATE files SET content_hash = CAST(x'ff' || substr(content_hash, 2) AS TEXT) WHERE file_id = 2",
        "PRAGMA ignore_check_constraints = ON; UPDATE files SET size_bytes = -1 WHERE file_id = 2",
    ] {
        let url = owned.service.services.config.catalog_url();
        let mut connection =
            <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
        let before: (String, i64) = sqlx::query_as("SELECT content_hash, size_bytes FROM files WHERE file_id = 2")
            .fetch_one(&mut connection)
            .await
            .expect("the record");
        sqlx::raw_sql(damage).execute(&mut connection).await.expect("damaged");
        let mut damaged_files = Vec::new();
        let scrubbed = owned.service.services.maintenance.scrub(0, &mut |file| damaged_files.push(file.clone())).await;
        let scrubbed = scrubbed.expect("failed to scrub");
        assert_eq!((scrubbed.files, scrubbed.damaged, damaged_files.len()), (2, 2, 2), "{damage}: {damaged_files:?}");
        let versions = damaged_files[0].versions.as_ref().expect("they are known");
        assert!(damaged_files[0].path.contains("record 2 ") && versions.len() == 1, "{damaged_files:?}");
        assert!(damaged_files[1].path.starts_with("versions/"), "{damaged_files:?}");

        let checked = owned.service.check(Depth::Footers).await;
        assert_eq!(checked.files, 3);
        let mut damaged = checked.findings.iter().filter(|finding| finding.kind == FindingKind::Damaged);
        assert!(damaged.any(|finding| finding.path.contains("record 2 ")), "{:?}", checked.findings);

        let to = tempfile::tempdir().expect("failed to create a directory");
        // A backup without one of the files is useless, so the command fails and names the record.
        let failed = owned.service.backup(&to.path().join("b"), BackupCopyMode::AlwaysCopy).await;
        let failed = format!("{:?}", failed.expect_err("a damaged record"));
        assert!(failed.starts_with("UnreadableRecord {") && failed.contains("file: VersionFileId(2)"), "{failed}");
        sqlx::query("UPDATE files SET content_hash = $1, size_bytes = $2 WHERE file_id = 2")
            .bind(before.0)
            .bind(before.1)
            .execute(&mut connection)
            .await
            .expect("failed to repair the file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_damaged_catalog_fails() {
    let owned = super::owned().await;
    owned.dataset("Things", json!({}), &["[]"]).await;
    let directory = tempfile::tempdir().expect("failed to create a directory");
    owned.service.backup(&directory.path().join("sound"), BackupCopyMode::AlwaysCopy).await.expect("failed to back up");
    let url = owned.service.services.config.catalog_url();
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    sqlx::raw_sql("UPDATE datasets SET frozen = 1").execute(&mut connection).await.expect("damaged");
    let to = directory.path().join("damaged");
    let failed = owned.service.backup(&to, BackupCopyMode::AlwaysCopy).await.expect_err("a damaged record");
    let failed = format!("{failed:?}");
    assert!(failed.starts_with("Damaged {") && failed.contains("dataset"), "{failed}");
    assert!(to.join("INCOMPLETE-BACKUP").exists());
}

//! The integrity check of the metadata database.

use strata_catalog::{Catalog, CatalogCheckDepth, VersionContent};
use strata_testing::databases::{Raw, on_both_databases};
use strata_types::dataset::RefreshTrigger;
use strata_types::version::NewVersionFile;

use super::{Database, LEASE, acquire, clock, create, v, with_owner};

on_both_databases! {
    Database:
    intact_database_has_no_findings
    inconsistent_records_are_reported
    base_without_record_is_reported
}

async fn findings(catalog: &Catalog) -> Vec<String> {
    let mut findings = Vec::new();
    for depth in [CatalogCheckDepth::Quick, CatalogCheckDepth::Full] {
        findings.clear();
        catalog.check_integrity(depth, &mut |finding| findings.push(finding)).await.unwrap();
    }
    assert_eq!(catalog.find_first_damage().await.unwrap(), None, "the pages are intact");
    findings
}

fn hash(text: &str) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(text))
}

/// Returns a database with a row in every table.
async fn populated(database: &Database) -> Catalog {
    let (catalog, owner) = with_owner(database).await;
    let catalog = catalog.with_clock(clock());
    catalog.add_token(owner, "ci", &hash("token"), 1_000).await.unwrap();
    let session = strata_catalog::StoredSession {
        id_hash: hash("session"),
        user: Some(owner),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + chrono::TimeDelta::hours(1),
        last_used_at: catalog.now(),
    };
    assert!(catalog.try_create_session(&session, None, 100).await.unwrap());
    let dataset = create(&catalog, owner, "World Countries").await.unwrap().id;
    catalog.register_webhook(dataset, "https://a.test/", Some("secret")).await.unwrap();
    for path in ["a", "b", "c"] {
        let attempt = acquire(&catalog, dataset, path).await.unwrap();
        let file = NewVersionFile { content_hash: hash(path), ..super::file(path) };
        catalog.publish_version(dataset, VersionContent::New(&file), None, attempt).await.unwrap();
    }
    catalog.reserve_file("alt", LEASE).await.unwrap();
    let file = NewVersionFile { content_hash: hash("alt"), ..super::delta_file("alt", &["b"]) };
    catalog.save_alternate(dataset, v(2), &file, None).await.unwrap();
    catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "e", LEASE).await.unwrap();
    catalog.reserve_file("d", LEASE).await.unwrap();
    catalog.acquire_file_hold(LEASE).await.unwrap();
    catalog.check_writable().await.unwrap();
    let node = strata_catalog::NodeRegistration {
        id: "a".to_owned(),
        process_id: "p".to_owned(),
        version: "0.1.0".to_owned(),
        roles: "http".to_owned(),
        internal_address: None,
    };
    catalog.register_node(&node).await.unwrap();
    catalog
}

async fn intact_database_has_no_findings(database: Database) {
    let catalog = populated(&database).await;
    assert_eq!(findings(&catalog).await, Vec::<String>::new());
}

async fn inconsistent_records_are_reported(database: Database) {
    let catalog = populated(&database).await;
    for (damage, repair, expected) in [
        (
            "UPDATE users SET email_key = 'x@example.test'",
            "UPDATE users SET email_key = 'owner@example.test'",
            "users 1: the metadata database contains an invalid value in users.email_key: \"x@example.test\"",
        ),
        (
            "UPDATE datasets SET latest_version = 7",
            "UPDATE datasets SET latest_version = 3",
            "dataset 1: the recorded latest version is 7, but there are 3 versions, numbered up to 3",
        ),
        (
            "UPDATE datasets SET schedule = 'every now and then'",
            "UPDATE datasets SET schedule = '0 2 * * *'",
            "datasets 1: the metadata database contains an invalid value in datasets.schedule: \"every now and then\"",
        ),
        (
            "UPDATE datasets SET index_paths = '{'",
            "UPDATE datasets SET index_paths = NULL",
            "datasets 1: the metadata database contains an invalid value in datasets.index_paths: \"{\"",
        ),
        (
            "UPDATE datasets SET checks = '{}', checks_checksum = '1:00'",
            "UPDATE datasets SET checks = NULL, checks_checksum = NULL",
            "datasets 1: the metadata database is damaged: the record for dataset 1's checks is missing or does not match \
             its checksum",
        ),
        (
            "UPDATE versions SET alt_file_id = NULL",
            "UPDATE versions SET alt_file_id = 4 WHERE version_number = 2",
            "files 4: nothing refers to the file, but the file is not marked as unreferenced",
        ),
        (
            "UPDATE files SET created_at = 9223372036854775807 WHERE file_id = 2",
            "UPDATE files SET created_at = 1 WHERE file_id = 2",
            "files 2: the metadata database contains an invalid value in files.created_at: \"9223372036854775807\"",
        ),
        (
            "UPDATE sessions SET user_id = NULL, expires_at = 9223372036854775807, session_hash = 'f'",
            "DELETE FROM sessions",
            "sessions: a key is not a valid hash",
        ),
    ] {
        database.execute(damage).await;
        let reported = findings(&catalog).await;
        // For records with a checksum, the check reports only the mismatch.
        let is_mismatch = reported.iter().any(|finding| finding.ends_with("does not match its checksum"));
        assert!(is_mismatch || reported.contains(&expected.to_owned()), "{damage}: {reported:?}");
        database.execute(repair).await;
        assert_eq!(findings(&catalog).await, Vec::<String>::new(), "{repair}");
    }
}

async fn base_without_record_is_reported(database: Database) {
    let catalog = populated(&database).await;
    match database.raw {
        Raw::Sqlite { .. } => {
            database
                .execute(
                    "PRAGMA foreign_keys = OFF;
                     INSERT INTO file_bases (file_id, base_file_id, base_position) VALUES (9, 8, 0), (9, -8, 1);
                     PRAGMA foreign_keys = ON",
                )
                .await;
        }
        Raw::Postgres { .. } => {
            database
                .execute(
                    "ALTER TABLE file_bases DROP CONSTRAINT file_bases_file_id_fkey;
                     ALTER TABLE file_bases DROP CONSTRAINT file_bases_base_file_id_fkey;
                     INSERT INTO file_bases (file_id, base_file_id, base_position) VALUES (9, 8, 0), (9, -8, 1)",
                )
                .await;
        }
    }
    let reported = findings(&catalog).await;
    for expected in [
        "file_bases 9 8: the file or its base file has no record",
        "file_bases 9 -8: the metadata database contains an invalid value in file_bases.base_file_id: \"-8\"",
    ] {
        assert!(reported.contains(&expected.to_owned()), "{reported:?}");
    }
}

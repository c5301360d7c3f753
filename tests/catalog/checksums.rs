//! Records that were changed or deleted directly in the database are reported as damage.

use std::time::Duration;

use strata_catalog::{
    Catalog, CatalogCheckDepth, CatalogError, FetchedValidators, StoredSession, TokenGrant, VersionContent,
    VersionFileIds,
};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{DatasetSource, NewDatasetClone, RollbackMode};
use strata_types::ids::VersionFileId;
use strata_types::secret::{SECRET_BYTES, Secret};
use strata_types::source::SourceValidators;
use strata_types::token_scope::TokenScope;
use strata_types::user::UserPlan;
use strata_types::version::VersionSelector;

use super::{Database, LEASE, acquire, clock, create, file, name, publish, v, with_dataset, with_owner};

on_both_databases! {
    Database:
    changed_record_is_not_served
    lost_record_is_reported_as_damage
    dataset_changes_update_checksum
    scrub_is_exclusive_and_resumes
    lost_version_fails_each_operation
    first_version_during_read_is_not_damage
    missing_checksums_are_added_on_open
    checksum_of_other_scheme_is_ignored
    changed_token_or_session_grants_no_access
    changed_validators_are_ignored
    clone_with_stale_files_conflicts
}

const HOUR: Duration = Duration::from_secs(3_600);

#[track_caller]
fn check_damaged<T: std::fmt::Debug>(outcome: &Result<T, CatalogError>, context: &str) {
    assert!(matches!(outcome, Err(CatalogError::DamagedRecord { .. })), "{context}: {outcome:?}");
}

/// Creates a dataset with two versions, the first of which has an alternate.
async fn with_two_versions(database: &Database) -> (Catalog, strata_types::ids::DatasetId) {
    let (catalog, dataset) = with_dataset(database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    catalog.reserve_file("alt", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(1), &file("alt"), None).await.unwrap();
    (catalog, dataset)
}

async fn changed_record_is_not_served(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    for (change, undo) in [
        ("UPDATE datasets SET frozen = (1 = 1)", "UPDATE datasets SET frozen = (1 = 0)"),
        ("UPDATE datasets SET pinned_version = 1", "UPDATE datasets SET pinned_version = NULL"),
        ("UPDATE datasets SET latest_version = 1", "UPDATE datasets SET latest_version = 2"),
        ("UPDATE datasets SET created_at = created_at + 1", "UPDATE datasets SET created_at = created_at - 1"),
        (
            "UPDATE versions SET alt_file_id = file_id",
            "UPDATE versions SET alt_file_id = CASE version_number WHEN 1 THEN (SELECT file_id FROM files WHERE path = 'alt') END",
        ),
        ("UPDATE versions SET created_at = created_at + 1", "UPDATE versions SET created_at = created_at - 1"),
        ("UPDATE files SET size_bytes = size_bytes + 1", "UPDATE files SET size_bytes = size_bytes - 1"),
        ("UPDATE files SET entity_count = entity_count + 1", "UPDATE files SET entity_count = entity_count - 1"),
        (
            "UPDATE files SET content_hash = content_hash || '0'",
            "UPDATE files SET content_hash = substr(content_hash, 1, length(content_hash) - 1)",
        ),
        ("UPDATE files SET path = path || 'x'", "UPDATE files SET path = substr(path, 1, length(path) - 1)"),
    ] {
        database.execute(change).await;
        check_damaged(&catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await, change);
        let mut findings = Vec::new();
        catalog.check_integrity(CatalogCheckDepth::Full, &mut |finding| findings.push(finding)).await.unwrap();
        assert!(!findings.is_empty(), "{change}");
        database.execute(undo).await;
        catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await.unwrap();
    }
    // Rows without a checksum are accepted.
    database.execute("UPDATE datasets SET record_checksum = NULL, frozen = (1 = 1)").await;
    assert!(catalog.dataset(dataset).await.unwrap().unwrap().frozen);
}

async fn lost_record_is_reported_as_damage(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    // The dataset has no versions with these numbers, so their absence is not damage.
    for number in [0, 3] {
        let resolved = catalog.resolve_read(dataset, VersionSelector::Number(v(number))).await.unwrap();
        assert_eq!(resolved.unwrap().version, None);
    }
    database.execute("DELETE FROM refresh_attempts; DELETE FROM versions WHERE version_number = 1").await;
    check_damaged(&catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await, "a version");
    catalog.resolve_read(dataset, VersionSelector::Latest).await.unwrap();
}

async fn dataset_changes_update_checksum(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    let check_intact = async |context: &str| {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets WHERE record_checksum IS NULL";
        assert_eq!(database.number(sql).await, 0, "{context}");
        catalog.dataset(dataset).await.unwrap().unwrap();
        catalog.resolve_read(dataset, VersionSelector::Active).await.unwrap().unwrap().version.unwrap();
    };
    check_intact("created").await;
    catalog.rollback(dataset, v(1), RollbackMode::PinAndFreeze).await.unwrap();
    check_intact("rolled back").await;
    catalog.unfreeze(dataset, 10).await.unwrap();
    check_intact("unfrozen").await;
    catalog.unpin(dataset).await.unwrap();
    check_intact("unpinned").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    check_intact("without alternate").await;
    let change = strata_types::dataset::DatasetChange { schedule: Some(None), ..Default::default() };
    catalog.update_dataset(dataset, &change).await.unwrap();
    check_intact("updated").await;
    let secret = Secret::new_ping_token([7; SECRET_BYTES]);
    catalog.rotate_ping_token(dataset, &secret).await.unwrap();
    check_intact("with new ping token").await;
}

async fn scrub_is_exclusive_and_resumes(database: Database) {
    let clock = clock();
    let catalog = database.open().await.with_clock(clock.clone());
    let other = database.open().await.with_clock(clock.clone());
    assert_eq!(catalog.try_acquire_scrub(HOUR, LEASE).await.unwrap(), Some(None), "the first scrub is due");
    assert_eq!(other.try_acquire_scrub(HOUR, LEASE).await.unwrap(), None, "another process has the scrub");
    catalog.record_scrubbed_file(VersionFileId::new(7)).await.unwrap();
    clock.advance(LEASE / 2);
    catalog.renew_scrub(LEASE).await.unwrap();
    clock.advance(LEASE / 2 + Duration::from_secs(1));
    assert_eq!(other.try_acquire_scrub(HOUR, LEASE).await.unwrap(), None, "the lease was renewed");
    clock.advance(LEASE);
    assert_eq!(
        other.try_acquire_scrub(HOUR, LEASE).await.unwrap(),
        Some(Some(VersionFileId::new(7))),
        "the lease has expired"
    );
    // A command that has read all files must not end the scrub of another process.
    catalog.finish_scrub_unless_running().await.unwrap();
    assert_eq!(catalog.try_acquire_scrub(Duration::ZERO, LEASE).await.unwrap(), None, "the scrub is running");
    assert_eq!(database.number("SELECT file_id FROM scrub_progress").await, 7, "the position is unchanged");
    other.finish_scrub().await.unwrap();
    assert_eq!(catalog.try_acquire_scrub(HOUR, LEASE).await.unwrap(), None, "the next scrub is not due");
    clock.advance(HOUR);
    assert_eq!(catalog.try_acquire_scrub(HOUR, LEASE).await.unwrap(), Some(None));
    catalog.release_scrub().await.unwrap();
    assert_eq!(other.try_acquire_scrub(HOUR, LEASE).await.unwrap(), Some(None), "the scrub was released");
}

async fn lost_version_fails_each_operation(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    publish(&catalog, dataset, "c").await.unwrap();
    assert_eq!(catalog.dataset_view(dataset).await.unwrap().unwrap().versions.len(), 3);
    database.execute("DELETE FROM refresh_attempts; DELETE FROM versions WHERE version_number = 2").await;
    check_damaged(&catalog.dataset_view(dataset).await, "dataset view");
    check_damaged(&catalog.rollback(dataset, v(2), RollbackMode::Pin).await, "rollback");
    catalog.reserve_file("alt 2", LEASE).await.unwrap();
    check_damaged(&catalog.save_alternate(dataset, v(2), &file("alt 2"), None).await, "alternate");
    for number in [0, 4] {
        let rejected = catalog.rollback(dataset, v(number), RollbackMode::Pin).await;
        assert!(matches!(rejected, Err(CatalogError::NoVersion)), "{number}: {rejected:?}");
    }
    let missing = strata_types::ids::DatasetId::new(dataset.get() + 1);
    assert_eq!(catalog.dataset_view(missing).await.unwrap(), None);
    let delete = match database.url.starts_with("sqlite") {
        true => "PRAGMA foreign_keys = OFF; DELETE FROM datasets",
        false => {
            "ALTER TABLE versions DISABLE TRIGGER ALL; ALTER TABLE datasets DISABLE TRIGGER ALL; DELETE FROM datasets"
        }
    };
    database.execute(delete).await;
    check_damaged(&catalog.dataset_view(dataset).await, "dataset");
}

async fn first_version_during_read_is_not_damage(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    for number in 0..40 {
        let dataset = create(&catalog, owner, &format!("Dataset {number}")).await.unwrap().id;
        let reads = async {
            loop {
                let resolved = catalog.resolve_read(dataset, VersionSelector::Latest).await.unwrap().unwrap();
                if resolved.version.is_some() {
                    return;
                }
            }
        };
        let path = format!("file {number}");
        let (_, published) = tokio::join!(reads, publish(&catalog, dataset, &path));
        published.unwrap();
    }
}

async fn missing_checksums_are_added_on_open(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    // There are more tokens than rows in a batch.
    for number in 0..210 {
        catalog.add_token(owner, &format!("{number}"), &format!("hash {number}"), 1_000).await.unwrap();
    }
    catalog.try_create_session(&session(&catalog, owner), None, 100).await.unwrap();
    let count_missing = async || {
        let mut count = 0;
        for table in ["datasets", "versions", "api_tokens", "sessions"] {
            let sql = format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table} WHERE record_checksum IS NULL");
            count += database.number(&sql).await;
        }
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets
                   WHERE validated_url IS NOT NULL AND validators_checksum IS NULL";
        count + database.number(sql).await
    };
    assert_eq!(count_missing().await, 0, "new records have checksums");
    for table in ["datasets", "versions", "api_tokens", "sessions"] {
        database.execute(&format!("UPDATE {table} SET record_checksum = NULL")).await;
    }
    database.execute("UPDATE datasets SET validated_url = 'https://a.test/', source_etag = 'x'").await;
    assert_eq!(count_missing().await, 215);
    // Until the next start, rows without a checksum are accepted.
    database.execute("UPDATE versions SET created_at = created_at + 1").await;
    let before = catalog.dataset_view(dataset).await.unwrap().unwrap();
    database.open().await;
    assert_eq!(count_missing().await, 0);
    assert_eq!(catalog.dataset_view(dataset).await.unwrap().unwrap(), before);
    assert!(catalog.user_by_token("hash 7").await.unwrap().is_some());
    assert!(catalog.session("a session").await.unwrap().is_some());
    assert!(catalog.source_validators(dataset).await.unwrap().is_some());
    database.execute("UPDATE versions SET created_at = created_at + 1").await;
    check_damaged(&catalog.dataset_view(dataset).await, "changed version");
    database.open().await;
    check_damaged(&catalog.dataset_view(dataset).await, "a start must not replace an existing checksum");
}

async fn checksum_of_other_scheme_is_ignored(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets WHERE substr(record_checksum, 1, 2) = '1:'";
    assert_eq!(database.number(sql).await, 1);
    database.execute("UPDATE datasets SET record_checksum = substr(record_checksum, 3)").await;
    check_damaged(&catalog.dataset(dataset).await, "no scheme");
    database.execute("UPDATE datasets SET frozen = (1 = 1)").await;
    database.execute("UPDATE datasets SET record_checksum = '1:' || record_checksum").await;
    check_damaged(&catalog.dataset(dataset).await, "current scheme");
    database.execute("UPDATE datasets SET record_checksum = 'x' || record_checksum").await;
    check_damaged(&catalog.dataset(dataset).await, "invalid scheme");
    database.execute("UPDATE datasets SET record_checksum = '2:abc'").await;
    assert!(catalog.dataset(dataset).await.unwrap().unwrap().frozen);
}

fn session(catalog: &Catalog, user: strata_types::ids::UserId) -> StoredSession {
    StoredSession {
        id_hash: "a session".to_owned(),
        user: Some(user),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + chrono::TimeDelta::hours(1),
        last_used_at: catalog.now(),
    }
}

async fn changed_token_or_session_grants_no_access(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("other@example.test", "hash", UserPlan::Free).await.unwrap();
    catalog.add_token(owner, "ci", "a token", 1_000).await.unwrap();
    catalog.try_create_session(&session(&catalog, owner), None, 100).await.unwrap();
    let later = catalog.now() + chrono::TimeDelta::hours(2);
    catalog.extend_session("a session", later).await.unwrap();
    assert_eq!(catalog.session("a session").await.unwrap().unwrap().user, Some(owner));
    assert_eq!(catalog.user_by_token("a token").await.unwrap().unwrap().user.id, owner);
    for change in [
        format!("UPDATE sessions SET user_id = {other}"),
        "UPDATE sessions SET expires_at = expires_at + 4294967296".to_owned(),
        "UPDATE sessions SET data = '[2]'".to_owned(),
        format!("UPDATE api_tokens SET user_id = {other}"),
        "UPDATE api_tokens SET scope = 'read'".to_owned(),
        "UPDATE api_tokens SET expires_at = 1".to_owned(),
    ] {
        let is_token = change.contains("api_tokens");
        database.execute(&change).await;
        match is_token {
            true => check_damaged(&catalog.user_by_token("a token").await, &change),
            false => {
                check_damaged(&catalog.session("a session").await, &change);
                check_damaged(&catalog.extend_session("a session", later).await, &change);
            }
        }
        let mut findings = Vec::new();
        catalog.check_integrity(CatalogCheckDepth::Full, &mut |finding| findings.push(finding)).await.unwrap();
        assert!(
            findings.iter().any(|finding| finding.contains("does not match its checksum")),
            "{change}: {findings:?}"
        );
        let undo = [
            format!("UPDATE sessions SET user_id = {owner}, data = '{{}}', expires_at = {}", later.timestamp_micros()),
            format!("UPDATE api_tokens SET user_id = {owner}, scope = 'write', expires_at = NULL"),
        ];
        database.execute(&undo.join(";")).await;
        assert!(catalog.session("a session").await.unwrap().is_some());
        assert!(catalog.user_by_token("a token").await.unwrap().is_some());
    }
    // The checksum also protects the scope and the expiry of a read-only token.
    let read = TokenGrant { scope: TokenScope::Read, expires_at: Some(later) };
    catalog.add_token_with_grant(owner, "reader", "a reader", read, 10).await.unwrap();
    for change in
        ["scope = 'write'", "expires_at = NULL", "expires_at = expires_at + 1", "scope = 'write', expires_at = NULL"]
    {
        database.execute(&format!("UPDATE api_tokens SET {change} WHERE name = 'reader'")).await;
        check_damaged(&catalog.user_by_token("a reader").await, change);
        let undo = format!("UPDATE api_tokens SET scope = 'read', expires_at = {}", later.timestamp_micros());
        database.execute(&format!("{undo} WHERE name = 'reader'")).await;
        assert_eq!(catalog.user_by_token("a reader").await.unwrap().unwrap().scope, TokenScope::Read);
    }
    // An expiry in the past ends the session, regardless of the checksum.
    database.execute("UPDATE sessions SET expires_at = 1").await;
    assert_eq!(catalog.session("a session").await.unwrap(), None);
}

async fn changed_validators_are_ignored(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let new = strata_types::dataset::NewDataset {
        source: DatasetSource::from("https://a.test/"),
        ..super::new_dataset(owner, "Fetched")
    };
    let dataset = catalog.create_dataset(&new, 10).await.unwrap();
    let validators = SourceValidators {
        url: "https://a.test/".to_owned(),
        etag: Some("\"one\"".to_owned()),
        last_modified: Some("Mon, 01 Jan 2024 00:00:00 GMT".to_owned()),
    };
    let attempt = acquire(&catalog, dataset.id, "a").await.unwrap();
    let fetched = FetchedValidators { dataset: &dataset, validators: &validators };
    let content = file("a");
    let content = VersionContent::New(&content);
    catalog.publish_version(dataset.id, content, Some(fetched), attempt).await.unwrap();
    let validators_now = async || catalog.source_validators(dataset.id).await.unwrap();
    assert!(validators_now().await.is_some());
    for (change, undo) in [
        (
            "source_last_modified = 'Mon, 01 Jan 2025 00:00:00 GMT'",
            "source_last_modified = 'Mon, 01 Jan 2024 00:00:00 GMT'",
        ),
        ("source_etag = NULL", "source_etag = '\"one\"'"),
        ("validated_url = 'https://b.test/'", "validated_url = 'https://a.test/'"),
    ] {
        database.execute(&format!("UPDATE datasets SET {change}")).await;
        assert!(validators_now().await.is_none(), "{change}");
        database.execute(&format!("UPDATE datasets SET {undo}")).await;
        assert!(validators_now().await.is_some(), "{undo}");
    }
    publish(&catalog, dataset.id, "b").await.unwrap();
    assert!(validators_now().await.is_none(), "the validators belong to the previous version");
}

async fn clone_with_stale_files_conflicts(database: Database) {
    let (catalog, dataset) = with_two_versions(&database).await;
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    let clone = |text: &str| NewDatasetClone {
        source: dataset,
        owner,
        name: name(text),
        private_key: Secret::new_private_key([1; SECRET_BYTES]),
        schedule: None,
        ping_token: Secret::new_ping_token(rand::random::<[u8; SECRET_BYTES]>()),
    };
    let checked = catalog.resolve_clone_source(&clone("Clone"), 2).await.unwrap();
    let limited = catalog.resolve_clone_source(&clone("Clone"), 1).await;
    assert!(matches!(limited, Err(CatalogError::TooManyDatasets { limit: 1 })), "{limited:?}");
    let taken = catalog.resolve_clone_source(&clone("World Countries"), 2).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    let base = VersionFileIds::from_version(&checked);
    catalog.reserve_file("alt 2", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(2), &file("alt 2"), None).await.unwrap();
    let rejected = catalog.clone_dataset(&clone("Clone"), 2, Some(base)).await;
    assert!(matches!(rejected, Err(CatalogError::Conflict)), "{rejected:?}");
    let base = VersionFileIds::from_version(&catalog.resolve_clone_source(&clone("Clone"), 2).await.unwrap());
    catalog.clone_dataset(&clone("Clone"), 2, Some(base)).await.unwrap();
}

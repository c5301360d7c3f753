//! Records that were changed behind the catalog's back are refused, and what is lost is not taken for never there.

use std::time::Duration;

use strata_catalog::{AlternateBase, FetchedState, Grant, SessionRecord, VersionContent};
use strata_catalog::{Catalog, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{DatasetSource, NewClone};
use strata_types::ids::FileId;
use strata_types::scope::Scope;
use strata_types::secret::{SECRET_BYTES, Secret};
use strata_types::source::Validators;
use strata_types::user::Plan;
use strata_types::version::VersionSelector;

use super::{Database, LEASE, acquire, clock, create, file, name, publish, v, with_dataset, with_owner};

on_both_databases! {
    Database:
    a_record_that_was_changed_is_not_served
    a_record_that_is_lost_is_not_taken_for_never_there
    every_change_of_a_dataset_keeps_its_record_whole
    the_scrub_is_one_processs_and_goes_on_where_it_was
    a_lost_version_is_missed_by_whoever_needs_it
    a_first_version_that_comes_during_a_read_is_no_damage
    records_without_a_checksum_are_sealed_when_the_catalog_is_opened
    a_checksum_of_another_scheme_says_nothing
    a_token_or_session_that_was_changed_opens_nothing
    a_source_is_fetched_whole_when_what_it_is_asked_by_was_changed
    a_clone_is_of_the_files_that_were_checked
}

const HOUR: Duration = Duration::from_secs(3_600);

#[track_caller]
fn is_unverified<T: std::fmt::Debug>(outcome: &Result<T, CatalogError>, what: &str) {
    assert!(matches!(outcome, Err(CatalogError::Unverified { .. })), "{what}: {outcome:?}");
}

/// A dataset of two versions, the first with an alternate.
async fn furnished(database: &Database) -> (Catalog, strata_types::ids::DatasetId) {
    let (catalog, dataset) = with_dataset(database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    catalog.reserve_file("alt", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(1), &file("alt"), None).await.unwrap();
    (catalog, dataset)
}

async fn a_record_that_was_changed_is_not_served(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
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
        is_unverified(&catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await, change);
        let mut told = Vec::new();
        catalog.check_integrity(false, &mut |finding| told.push(finding)).await.unwrap();
        assert!(!told.is_empty(), "{change}");
        database.execute(undo).await;
        catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await.unwrap();
    }
    // Rows without a checksum are accepted as they are.
    database.execute("UPDATE datasets SET record_checksum = NULL, frozen = (1 = 1)").await;
    assert!(catalog.dataset(dataset).await.unwrap().unwrap().frozen);
}

async fn a_record_that_is_lost_is_not_taken_for_never_there(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    // Above the latest there is none, and that is no damage.
    for number in [0, 3] {
        let resolved = catalog.resolve_read(dataset, VersionSelector::Number(v(number))).await.unwrap();
        assert_eq!(resolved.unwrap().version, None);
    }
    database.execute("DELETE FROM refresh_attempts; DELETE FROM versions WHERE version_number = 1").await;
    is_unverified(&catalog.resolve_read(dataset, VersionSelector::Number(v(1))).await, "a version");
    catalog.resolve_read(dataset, VersionSelector::Latest).await.unwrap();
}

async fn every_change_of_a_dataset_keeps_its_record_whole(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    let whole = async |what: &str| {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets WHERE record_checksum IS NULL";
        assert_eq!(database.number(sql).await, 0, "{what}");
        catalog.dataset(dataset).await.unwrap().unwrap();
        catalog.resolve_read(dataset, VersionSelector::Active).await.unwrap().unwrap().version.unwrap();
    };
    whole("made").await;
    catalog.rollback(dataset, v(1), true).await.unwrap();
    whole("rolled back").await;
    catalog.unfreeze(dataset, 10).await.unwrap();
    whole("unfrozen").await;
    catalog.unpin(dataset).await.unwrap();
    whole("unpinned").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    whole("without its alternate").await;
    let change = strata_types::dataset::DatasetChange { schedule: Some(None), ..Default::default() };
    catalog.update_dataset(dataset, &change).await.unwrap();
    whole("updated").await;
    let secret = strata_types::secret::Secret::ping_token([7; strata_types::secret::SECRET_BYTES]);
    catalog.rotate_ping_token(dataset, &secret).await.unwrap();
    whole("with another ping token").await;
}

async fn the_scrub_is_one_processs_and_goes_on_where_it_was(database: Database) {
    let clock = clock();
    let catalog = database.open().await.with_clock(clock.clone());
    let other = database.open().await.with_clock(clock.clone());
    assert_eq!(catalog.take_scrub(HOUR, LEASE).await.unwrap(), Some(None), "none was ever done");
    assert_eq!(other.take_scrub(HOUR, LEASE).await.unwrap(), None, "another process has it");
    catalog.advance_scrub(FileId::new(7)).await.unwrap();
    clock.advance(LEASE / 2);
    catalog.keep_scrub(LEASE).await.unwrap();
    clock.advance(LEASE / 2 + Duration::from_secs(1));
    assert_eq!(other.take_scrub(HOUR, LEASE).await.unwrap(), None, "it was kept");
    clock.advance(LEASE);
    assert_eq!(other.take_scrub(HOUR, LEASE).await.unwrap(), Some(Some(FileId::new(7))), "the first is gone");
    // A command that has read everything by itself.
    catalog.finish_idle_scrub().await.unwrap();
    assert_eq!(catalog.take_scrub(Duration::ZERO, LEASE).await.unwrap(), None, "another process is still at it");
    assert_eq!(database.number("SELECT file_id FROM scrub_progress").await, 7, "and where it was");
    other.finish_scrub().await.unwrap();
    assert_eq!(catalog.take_scrub(HOUR, LEASE).await.unwrap(), None, "not due");
    clock.advance(HOUR);
    assert_eq!(catalog.take_scrub(HOUR, LEASE).await.unwrap(), Some(None));
    catalog.release_scrub().await.unwrap();
    assert_eq!(other.take_scrub(HOUR, LEASE).await.unwrap(), Some(None), "given back");
}

async fn a_lost_version_is_missed_by_whoever_needs_it(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    publish(&catalog, dataset, "c").await.unwrap();
    assert_eq!(catalog.dataset_view(dataset).await.unwrap().unwrap().versions.len(), 3);
    database.execute("DELETE FROM refresh_attempts; DELETE FROM versions WHERE version_number = 2").await;
    is_unverified(&catalog.dataset_view(dataset).await, "a list");
    is_unverified(&catalog.rollback(dataset, v(2), false).await, "a rollback");
    catalog.reserve_file("alt 2", LEASE).await.unwrap();
    is_unverified(&catalog.save_alternate(dataset, v(2), &file("alt 2"), None).await, "an alternate");
    for number in [0, 4] {
        let refused = catalog.rollback(dataset, v(number), false).await;
        assert!(matches!(refused, Err(CatalogError::NoVersion)), "{number}: {refused:?}");
    }
    let nothing = strata_types::ids::DatasetId::new(dataset.get() + 1);
    assert_eq!(catalog.dataset_view(nothing).await.unwrap(), None);
    let gone = match database.url.starts_with("sqlite") {
        true => "PRAGMA foreign_keys = OFF; DELETE FROM datasets",
        false => {
            "ALTER TABLE versions DISABLE TRIGGER ALL; ALTER TABLE datasets DISABLE TRIGGER ALL; DELETE FROM datasets"
        }
    };
    database.execute(gone).await;
    is_unverified(&catalog.dataset_view(dataset).await, "a dataset");
}

async fn a_first_version_that_comes_during_a_read_is_no_damage(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    for number in 0..40 {
        let dataset = create(&catalog, owner, &format!("Dataset {number}")).await.unwrap().id;
        let reading = async {
            loop {
                let resolved = catalog.resolve_read(dataset, VersionSelector::Latest).await.unwrap().unwrap();
                if resolved.version.is_some() {
                    return;
                }
            }
        };
        let path = format!("file {number}");
        let (_, published) = tokio::join!(reading, publish(&catalog, dataset, &path));
        published.unwrap();
    }
}

async fn records_without_a_checksum_are_sealed_when_the_catalog_is_opened(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    // More than a batch.
    for number in 0..210 {
        catalog.add_token(owner, &format!("{number}"), &format!("hash {number}"), 1_000).await.unwrap();
    }
    catalog.create_session(&session(&catalog, owner), None, 100).await.unwrap();
    let unsealed = async || {
        let mut count = 0;
        for table in ["datasets", "versions", "api_tokens", "sessions"] {
            let sql = format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table} WHERE record_checksum IS NULL");
            count += database.number(&sql).await;
        }
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets
                   WHERE validated_url IS NOT NULL AND validators_checksum IS NULL";
        count + database.number(sql).await
    };
    assert_eq!(unsealed().await, 0, "all are written with one");
    for table in ["datasets", "versions", "api_tokens", "sessions"] {
        database.execute(&format!("UPDATE {table} SET record_checksum = NULL")).await;
    }
    database.execute("UPDATE datasets SET validated_url = 'https://a.test/', source_etag = 'x'").await;
    assert_eq!(unsealed().await, 215);
    // Until then they are taken as they are.
    database.execute("UPDATE versions SET created_at = created_at + 1").await;
    let before = catalog.dataset_view(dataset).await.unwrap().unwrap();
    database.open().await;
    assert_eq!(unsealed().await, 0);
    assert_eq!(catalog.dataset_view(dataset).await.unwrap().unwrap(), before);
    assert!(catalog.user_by_token("hash 7").await.unwrap().is_some());
    assert!(catalog.session("a session").await.unwrap().is_some());
    assert!(catalog.source_validators(dataset).await.unwrap().is_some());
    database.execute("UPDATE versions SET created_at = created_at + 1").await;
    is_unverified(&catalog.dataset_view(dataset).await, "a sealed version");
    database.open().await;
    is_unverified(&catalog.dataset_view(dataset).await, "what does not verify is not sealed anew");
}

async fn a_checksum_of_another_scheme_says_nothing(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM datasets WHERE substr(record_checksum, 1, 2) = '1:'";
    assert_eq!(database.number(sql).await, 1);
    database.execute("UPDATE datasets SET record_checksum = substr(record_checksum, 3)").await;
    is_unverified(&catalog.dataset(dataset).await, "without a scheme");
    database.execute("UPDATE datasets SET frozen = (1 = 1)").await;
    database.execute("UPDATE datasets SET record_checksum = '1:' || record_checksum").await;
    is_unverified(&catalog.dataset(dataset).await, "of this scheme");
    database.execute("UPDATE datasets SET record_checksum = 'x' || record_checksum").await;
    is_unverified(&catalog.dataset(dataset).await, "of no scheme");
    database.execute("UPDATE datasets SET record_checksum = '2:abc'").await;
    assert!(catalog.dataset(dataset).await.unwrap().unwrap().frozen);
}

fn session(catalog: &Catalog, user: strata_types::ids::UserId) -> SessionRecord {
    SessionRecord {
        id_hash: "a session".to_owned(),
        user: Some(user),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + chrono::TimeDelta::hours(1),
        last_used_at: catalog.now(),
    }
}

async fn a_token_or_session_that_was_changed_opens_nothing(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("other@example.test", "hash", Plan::Free).await.unwrap();
    catalog.add_token(owner, "ci", "a token", 1_000).await.unwrap();
    catalog.create_session(&session(&catalog, owner), None, 100).await.unwrap();
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
        let token = change.contains("api_tokens");
        database.execute(&change).await;
        match token {
            true => is_unverified(&catalog.user_by_token("a token").await, &change),
            false => {
                is_unverified(&catalog.session("a session").await, &change);
                is_unverified(&catalog.extend_session("a session", later).await, &change);
            }
        }
        let mut told = Vec::new();
        catalog.check_integrity(false, &mut |finding| told.push(finding)).await.unwrap();
        assert!(told.iter().any(|finding| finding.contains("does not match its checksum")), "{change}: {told:?}");
        let undo = [
            format!("UPDATE sessions SET user_id = {owner}, data = '{{}}', expires_at = {}", later.timestamp_micros()),
            format!("UPDATE api_tokens SET user_id = {owner}, scope = 'write', expires_at = NULL"),
        ];
        database.execute(&undo.join(";")).await;
        assert!(catalog.session("a session").await.unwrap().is_some());
        assert!(catalog.user_by_token("a token").await.unwrap().is_some());
    }
    // Nor does one that may only read open more, or for longer, than it was made for.
    let read = Grant { scope: Scope::Read, expires_at: Some(later) };
    catalog.add_granted_token(owner, "reader", "a reader", read, 10).await.unwrap();
    for change in
        ["scope = 'write'", "expires_at = NULL", "expires_at = expires_at + 1", "scope = 'write', expires_at = NULL"]
    {
        database.execute(&format!("UPDATE api_tokens SET {change} WHERE name = 'reader'")).await;
        is_unverified(&catalog.user_by_token("a reader").await, change);
        let undo = format!("UPDATE api_tokens SET scope = 'read', expires_at = {}", later.timestamp_micros());
        database.execute(&format!("{undo} WHERE name = 'reader'")).await;
        assert_eq!(catalog.user_by_token("a reader").await.unwrap().unwrap().scope, Scope::Read);
    }
    // An end that has moved to the past ends it.
    database.execute("UPDATE sessions SET expires_at = 1").await;
    assert_eq!(catalog.session("a session").await.unwrap(), None);
}

async fn a_source_is_fetched_whole_when_what_it_is_asked_by_was_changed(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let new = strata_types::dataset::NewDataset {
        source: DatasetSource::from("https://a.test/"),
        ..super::new_dataset(owner, "Fetched")
    };
    let dataset = catalog.create_dataset(&new, 10).await.unwrap();
    let validators = Validators {
        url: "https://a.test/".to_owned(),
        etag: Some("\"one\"".to_owned()),
        last_modified: Some("Mon, 01 Jan 2024 00:00:00 GMT".to_owned()),
    };
    let attempt = acquire(&catalog, dataset.id, "a").await.unwrap();
    let fetched = FetchedState { dataset: &dataset, validators: &validators };
    let content = file("a");
    let content = VersionContent::New(&content);
    catalog.publish_version(dataset.id, content, Some(fetched), attempt).await.unwrap();
    let asked = async || catalog.source_validators(dataset.id).await.unwrap();
    assert!(asked().await.is_some());
    for (change, undo) in [
        (
            "source_last_modified = 'Mon, 01 Jan 2025 00:00:00 GMT'",
            "source_last_modified = 'Mon, 01 Jan 2024 00:00:00 GMT'",
        ),
        ("source_etag = NULL", "source_etag = '\"one\"'"),
        ("validated_url = 'https://b.test/'", "validated_url = 'https://a.test/'"),
    ] {
        database.execute(&format!("UPDATE datasets SET {change}")).await;
        assert!(asked().await.is_none(), "{change}");
        database.execute(&format!("UPDATE datasets SET {undo}")).await;
        assert!(asked().await.is_some(), "{undo}");
    }
    publish(&catalog, dataset.id, "b").await.unwrap();
    assert!(asked().await.is_none(), "it belongs to the version before");
}

async fn a_clone_is_of_the_files_that_were_checked(database: Database) {
    let (catalog, dataset) = furnished(&database).await;
    let owner = catalog.dataset(dataset).await.unwrap().unwrap().owner;
    let clone = |text: &str| NewClone {
        source: dataset,
        owner,
        name: name(text),
        private_key: Secret::private_key([1; SECRET_BYTES]),
        schedule: None,
        ping_token: Secret::ping_token(rand::random::<[u8; SECRET_BYTES]>()),
    };
    let checked = catalog.check_clone(&clone("Clone"), 2).await.unwrap();
    let limited = catalog.check_clone(&clone("Clone"), 1).await;
    assert!(matches!(limited, Err(CatalogError::PlanLimit { limit: 1 })), "{limited:?}");
    let taken = catalog.check_clone(&clone("World Countries"), 2).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    let base = AlternateBase::of(&checked);
    catalog.reserve_file("alt 2", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(2), &file("alt 2"), None).await.unwrap();
    let refused = catalog.clone_dataset(&clone("Clone"), 2, Some(base)).await;
    assert!(matches!(refused, Err(CatalogError::Conflict)), "{refused:?}");
    let base = AlternateBase::of(&catalog.check_clone(&clone("Clone"), 2).await.unwrap());
    catalog.clone_dataset(&clone("Clone"), 2, Some(base)).await.unwrap();
}

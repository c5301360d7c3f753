//! Records that were changed behind the catalog's back are refused, and what is lost is not taken for never there.

use std::time::Duration;

use strata::catalog::{Catalog, CatalogError};
use strata::model::ids::FileId;
use strata::model::version::VersionSelector;

use super::{Database, LEASE, clock, file, publish, v, with_dataset};

contract! {
    a_record_that_was_changed_is_not_served
    a_record_that_is_lost_is_not_taken_for_never_there
    every_change_of_a_dataset_keeps_its_record_whole
    the_scrub_is_one_processs_and_goes_on_where_it_was
}

const HOUR: Duration = Duration::from_secs(3_600);

#[track_caller]
fn is_unverified<T: std::fmt::Debug>(outcome: &Result<T, CatalogError>, what: &str) {
    assert!(matches!(outcome, Err(CatalogError::Unverified { .. })), "{what}: {outcome:?}");
}

/// A dataset of two versions, the first with an alternate.
async fn furnished(database: &Database) -> (Catalog, strata::model::ids::DatasetId) {
    let (catalog, dataset) = with_dataset(database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    catalog.reserve_file("alt", None, LEASE).await.unwrap();
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
    // Rows from before there were checksums are taken as they are.
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
    let change = strata::model::dataset::DatasetChange { schedule: Some(None), ..Default::default() };
    catalog.update_dataset(dataset, &change).await.unwrap();
    whole("updated").await;
    let secret = strata::model::secret::Secret::ping_token([7; strata::model::secret::SECRET_BYTES]);
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
    other.finish_scrub().await.unwrap();
    assert_eq!(catalog.take_scrub(HOUR, LEASE).await.unwrap(), None, "not due");
    clock.advance(HOUR);
    assert_eq!(catalog.take_scrub(HOUR, LEASE).await.unwrap(), Some(None));
    catalog.release_scrub().await.unwrap();
    assert_eq!(other.take_scrub(HOUR, LEASE).await.unwrap(), Some(None), "given back");
}

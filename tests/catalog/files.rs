//! The files that a sweep can delete, and those that it must not delete.

use std::collections::HashSet;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::ids::VersionFileId;

use super::{Database, LEASE, clock, file, publish, v, with_dataset};

on_both_databases! {
    Database:
    reserved_file_is_known
    expired_reservation_is_rejected
    unreferenced_files_are_removed_after_delay
    held_files_are_not_removed
    files_are_listed_in_pages
    many_paths_are_looked_up
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn known_paths(catalog: &Catalog, paths: &[&str]) -> Vec<String> {
    let mut known: Vec<String> = catalog.find_known_paths(paths).await.unwrap().into_iter().collect();
    known.sort();
    known
}

/// Returns the paths of the files that a sweep can delete now.
async fn removable(catalog: &Catalog) -> Vec<String> {
    catalog.unreferenced_files(HOUR, 100).await.unwrap().into_iter().map(|file| file.path).collect()
}

async fn save_alternate(catalog: &Catalog, dataset: strata_types::ids::DatasetId, path: &str) {
    catalog.reserve_file(path, LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(1), &file(path), None).await.unwrap();
}

async fn reserved_file_is_known(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "recorded").await.unwrap();
    catalog.reserve_file("reserved", HOUR).await.unwrap();
    catalog.reserve_file("released", HOUR).await.unwrap();
    catalog.release_file_reservation("released").await.unwrap();
    catalog.release_file_reservation("released").await.unwrap();
    assert_eq!(
        known_paths(&catalog, &["recorded", "reserved", "released", "unknown", "nul\0", ""]).await,
        ["recorded", "reserved"]
    );
    assert_eq!(known_paths(&catalog, &[]).await, [""; 0]);
    save_alternate(&catalog, dataset, "reserved").await;
    assert_eq!(known_paths(&catalog, &["reserved"]).await, ["reserved"]);
    assert_eq!(database.number("SELECT COUNT(*) FROM file_reservations").await, 0);
    let nul = catalog.reserve_file("a\0", HOUR).await;
    assert!(matches!(nul, Err(CatalogError::NulCharacter { field: "path" })), "{nul:?}");
}

async fn expired_reservation_is_rejected(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "a").await.unwrap();
    catalog.reserve_file("x", HOUR).await.unwrap();
    clock.advance(HOUR / 2);
    // A second reservation extends the first one.
    catalog.reserve_file("x", HOUR).await.unwrap();
    clock.advance(HOUR / 2);
    assert_eq!(catalog.expire_reservations().await.unwrap(), 0);
    clock.advance(HOUR / 2);
    // The path is known as long as the file can still be recorded.
    assert_eq!(known_paths(&catalog, &["x"]).await, ["x"]);
    assert_eq!(catalog.expire_reservations().await.unwrap(), 1);
    assert_eq!(known_paths(&catalog, &["x"]).await, [""; 0]);
    let saved = catalog.save_alternate(dataset, v(1), &file("x"), None).await;
    assert!(matches!(saved, Err(CatalogError::ReservationLost)), "{saved:?}");
}

async fn unreferenced_files_are_removed_after_delay(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "version").await.unwrap();
    for alt in ["first", "second", "third"] {
        save_alternate(&catalog, dataset, alt).await;
        clock.advance(HOUR / 2);
    }
    // "first" was replaced an hour ago, "second" half an hour ago; "third" is in use.
    assert_eq!(removable(&catalog).await, [""; 0]);
    clock.advance(Duration::from_micros(1));
    assert_eq!(removable(&catalog).await, ["first"]);

    let all: Vec<VersionFileId> =
        catalog.files(None, 100).await.unwrap().iter().map(|recorded| recorded.file.id).collect();
    assert_eq!(all.len(), 4);
    let removed = catalog.remove_file_records(&all, HOUR).await.unwrap();
    assert_eq!(removed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["first"]);
    assert_eq!(catalog.remove_file_records(&all, HOUR).await.unwrap(), []);
    assert_eq!(known_paths(&catalog, &["version", "first", "second", "third"]).await, ["second", "third", "version"]);

    clock.advance(HOUR);
    assert_eq!(removable(&catalog).await, ["second"]);
    // A marked file with a reference, which no operation creates, must not be deleted.
    database.execute("UPDATE files SET unreferenced_since = 0").await;
    let removed = catalog.remove_file_records(&all, HOUR).await.unwrap();
    assert_eq!(removed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["second"]);
}

async fn held_files_are_not_removed(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "version").await.unwrap();
    save_alternate(&catalog, dataset, "alt").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    clock.advance(HOUR * 2);
    let alt = catalog.unreferenced_files(HOUR, 1).await.unwrap().remove(0);

    assert!(!catalog.has_file_holds().await.unwrap());
    let hold = catalog.acquire_file_hold(HOUR).await.unwrap();
    let second = catalog.acquire_file_hold(HOUR).await.unwrap();
    clock.advance(HOUR / 2);
    catalog.renew_hold(hold, HOUR).await.unwrap();
    catalog.release_hold(second).await.unwrap();
    clock.advance(HOUR / 2);
    assert!(catalog.has_file_holds().await.unwrap());
    assert_eq!(removable(&catalog).await, [""; 0]);
    assert_eq!(catalog.remove_file_records(&[alt.id], HOUR).await.unwrap(), []);

    clock.advance(HOUR / 2);
    assert!(!catalog.has_file_holds().await.unwrap());
    assert!(matches!(catalog.renew_hold(hold, HOUR).await, Err(CatalogError::LeaseLost)));
    assert_eq!(removable(&catalog).await, ["alt"]);
    let next = catalog.acquire_file_hold(HOUR).await.unwrap();
    assert!(next > second, "the ID of a hold must not be reused");
    catalog.release_hold(next).await.unwrap();
    assert_eq!(catalog.remove_file_records(&[alt.id], HOUR).await.unwrap(), [alt]);
}

async fn files_are_listed_in_pages(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    for number in 0..5 {
        publish(&catalog, dataset, &format!("{number}")).await.unwrap();
    }
    save_alternate(&catalog, dataset, "alt").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    let mut listed = Vec::new();
    let mut last = None;
    loop {
        let page = catalog.files(last, 2).await.unwrap();
        let Some(end) = page.last() else { break };
        last = Some(end.file.id);
        listed.extend(page.into_iter().map(|recorded| (recorded.file.path, recorded.unreferenced_since.is_some())));
    }
    let expected = ["0", "1", "2", "3", "4"].map(|path| (path.to_owned(), false));
    assert_eq!(listed[..5], expected);
    assert_eq!(listed[5..], [("alt".to_owned(), true)]);
    assert_eq!(catalog.files(Some(VersionFileId::new(u64::MAX)), 2).await.unwrap(), []);
}

async fn many_paths_are_looked_up(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let paths: Vec<String> = (0..250).map(|number| format!("versions/{number}")).collect();
    let mut expected = HashSet::new();
    for path in paths.iter().step_by(41) {
        publish(&catalog, dataset, path).await.unwrap();
        expected.insert(path.clone());
    }
    for path in paths.iter().skip(99).step_by(50) {
        catalog.reserve_file(path, HOUR).await.unwrap();
        expected.insert(path.clone());
    }
    let queried: Vec<&str> = paths.iter().map(String::as_str).collect();
    for count in [1, 99, 100, 101, 200, 250] {
        let expected: HashSet<String> =
            expected.iter().filter(|path| queried[..count].contains(&path.as_str())).cloned().collect();
        assert_eq!(catalog.find_known_paths(&queried[..count]).await.unwrap(), expected, "{count}");
    }
}

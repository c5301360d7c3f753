//! Exports in the store: who makes one, which one all serve, and which go.

use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, DroppedExport, ExportClaim, ExportRecorded, ExportRoom, SharedExport};
use strata_testing::databases::on_both_databases;
use strata_types::ids::FileId;
use tokio::task::JoinSet;

use super::{Database, clock, publish, v, with_dataset};

on_both_databases! {
    Database:
    an_export_is_claimed_by_one_at_a_time
    the_first_one_that_is_recorded_wins
    many_at_once_record_one
    what_was_used_least_recently_makes_room
    what_nobody_uses_goes_and_claims_that_nobody_renews
    an_export_goes_with_the_record_of_its_file
}

const LASTS: Duration = Duration::from_secs(15);

const ROOM: ExportRoom = ExportRoom { bytes: 1_000, exports: 100 };

async fn with_file(database: &Database) -> (Catalog, FileId) {
    let (catalog, dataset) = with_dataset(database).await;
    publish(&catalog, dataset, "versions/a.parquet").await.unwrap();
    let file = catalog.file_at("versions/a.parquet").await.unwrap().unwrap();
    (catalog, file.id)
}

fn export(path: &str, size_bytes: u64) -> SharedExport {
    SharedExport { path: path.to_owned(), size_bytes, entity_count: 7, match_count: Some(9), checksum: u32::MAX }
}

fn dropped(path: &str, size_bytes: u64) -> DroppedExport {
    DroppedExport { path: path.to_owned(), size_bytes }
}

async fn an_export_is_claimed_by_one_at_a_time(database: Database) {
    let clock = clock();
    let (catalog, file) = with_file(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    let claim = async |maker: &str| catalog.claim_export("k", file, maker, LASTS).await.unwrap();
    assert_eq!(claim("a").await, ExportClaim::Granted);
    assert_eq!(claim("b").await, ExportClaim::Anothers);
    assert_eq!(catalog.shared_export("k").await.unwrap(), None);
    // It is renewed by who has it, and not by others.
    clock.advance(LASTS / 2);
    assert_eq!(claim("a").await, ExportClaim::Granted);
    clock.advance(LASTS * 2 / 3);
    assert_eq!(claim("b").await, ExportClaim::Anothers);
    clock.advance(LASTS / 2);
    assert_eq!(claim("b").await, ExportClaim::Granted);
    // It is not the first one's to end any more.
    catalog.release_export("k", "a").await.unwrap();
    assert_eq!(claim("a").await, ExportClaim::Anothers);
    catalog.release_export("k", "b").await.unwrap();
    assert_eq!(claim("a").await, ExportClaim::Granted);
    // Another export is another claim.
    assert_eq!(catalog.claim_export("other", file, "b", LASTS).await.unwrap(), ExportClaim::Granted);
    let gone = catalog.claim_export("x", FileId::new(77), "a", LASTS).await;
    assert!(matches!(gone, Err(CatalogError::Database(_))), "{gone:?}");
}

async fn the_first_one_that_is_recorded_wins(database: Database) {
    let (catalog, file) = with_file(&database).await;
    assert_eq!(catalog.claim_export("k", file, "a", LASTS).await.unwrap(), ExportClaim::Granted);
    // Who has lost patience records, too.
    let (first, second) = (export("e/1", 10), SharedExport { match_count: None, ..export("e/2", 11) });
    let record = async |export: &SharedExport| catalog.record_export("k", file, export, ROOM).await.unwrap();
    assert_eq!(record(&first).await, ExportRecorded::First(vec![]));
    assert_eq!(record(&second).await, ExportRecorded::Second(first.clone()));
    assert_eq!(catalog.shared_export("k").await.unwrap(), Some(first.clone()));
    assert_eq!(catalog.claim_export("k", file, "b", LASTS).await.unwrap(), ExportClaim::Made(first.clone()));
    // The end of a claim ends no export.
    catalog.release_export("k", "a").await.unwrap();
    assert_eq!(catalog.shared_export("k").await.unwrap(), Some(first));
    let named = catalog.shared_exports_named(&["e/1", "e/2", "nul\0", ""]).await.unwrap();
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["e/1"]);
    // One that is gone is forgotten, and not the one that took its place.
    assert!(!catalog.forget_export("k", "e/2").await.unwrap());
    assert!(catalog.forget_export("k", "e/1").await.unwrap());
    assert_eq!(record(&second).await, ExportRecorded::First(vec![]));
    assert_eq!(catalog.shared_export("k").await.unwrap(), Some(second));
}

async fn many_at_once_record_one(database: Database) {
    let (catalog, file) = with_file(&database).await;
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let catalog = catalog.clone();
        tasks.spawn(async move {
            let granted = catalog.claim_export("k", file, &format!("m{number}"), LASTS).await.unwrap();
            let recorded = catalog.record_export("k", file, &export(&format!("e/{number}"), 1), ROOM).await.unwrap();
            (granted == ExportClaim::Granted, matches!(recorded, ExportRecorded::First(_)))
        });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|(_, first)| *first).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().filter(|(granted, _)| *granted).count() <= 1, "{outcomes:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM shared_exports").await, 1);
}

async fn what_was_used_least_recently_makes_room(database: Database) {
    let clock = clock();
    let (catalog, file) = with_file(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    let record = async |name: &str, bytes: u64, room: ExportRoom| {
        clock.advance(Duration::from_secs(1));
        match catalog.record_export(name, file, &export(&format!("e/{name}"), bytes), room).await.unwrap() {
            ExportRecorded::First(dropped) => dropped,
            ExportRecorded::Second(other) => panic!("{other:?} was there"),
        }
    };
    for name in ["a", "b", "c"] {
        assert_eq!(record(name, 300, ROOM).await, []);
    }
    // A use is recorded when the last one is a while ago.
    clock.advance(Duration::from_secs(3_600));
    assert!(matches!(catalog.claim_export("a", file, "m", LASTS).await.unwrap(), ExportClaim::Made(_)));
    // A claim takes no room.
    assert_eq!(catalog.claim_export("x", file, "m", LASTS).await.unwrap(), ExportClaim::Granted);
    assert_eq!(record("d", 200, ROOM).await, [dropped("e/b", 300)]);
    assert_eq!(record("e", 900, ROOM).await, [dropped("e/c", 300), dropped("e/a", 300), dropped("e/d", 200)]);
    // Numbers are bounded, too; and what is new stays, whatever it takes.
    assert_eq!(record("f", 1, ExportRoom { exports: 1, ..ROOM }).await, [dropped("e/e", 900)]);
    assert_eq!(record("g", 5_000, ROOM).await, [dropped("e/f", 1)]);
    assert_eq!(catalog.forget_unused_exports(LASTS * 100, ROOM).await.unwrap(), [dropped("e/g", 5_000)]);
}

async fn what_nobody_uses_goes_and_claims_that_nobody_renews(database: Database) {
    let clock = clock();
    let (catalog, file) = with_file(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    let day = Duration::from_secs(86_400);
    for number in 0..250 {
        let name = format!("{number:03}");
        catalog.record_export(&name, file, &export(&format!("e/{name}"), 1), ROOM_OF_MANY).await.unwrap();
    }
    catalog.claim_export("claimed", file, "m", LASTS).await.unwrap();
    clock.advance(day / 2);
    catalog.claim_export("007", file, "m", LASTS).await.unwrap();
    assert_eq!(catalog.forget_unused_exports(day, ROOM_OF_MANY).await.unwrap(), []);
    assert_eq!(database.number("SELECT COUNT(*) FROM shared_exports").await, 250);
    clock.advance(day * 3 / 4);
    let mut gone = 0;
    loop {
        let page = catalog.forget_unused_exports(day, ROOM_OF_MANY).await.unwrap();
        assert!(page.len() <= 100);
        if page.is_empty() {
            break;
        }
        gone += page.len();
    }
    assert_eq!(gone, 249);
    assert!(catalog.shared_export("007").await.unwrap().is_some());
    // A room that has become smaller.
    let none = ExportRoom { bytes: 0, exports: 100 };
    assert_eq!(catalog.forget_unused_exports(day, none).await.unwrap(), [dropped("e/007", 1)]);
}

const ROOM_OF_MANY: ExportRoom = ExportRoom { bytes: 1_000, exports: 1_000 };

async fn an_export_goes_with_the_record_of_its_file(database: Database) {
    let clock = clock();
    let (catalog, dataset) = with_dataset(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "versions/a.parquet").await.unwrap();
    let save = async |path: &str| {
        catalog.reserve_file(path, super::LEASE).await.unwrap();
        catalog.save_alternate(dataset, v(1), &super::file(path), None).await.unwrap();
        catalog.file_at(path).await.unwrap().unwrap().id
    };
    let replaced = save("versions/alt.parquet").await;
    catalog.record_export("k", replaced, &export("e/1", 10), ROOM).await.unwrap();
    save("versions/other.parquet").await;
    clock.advance(LASTS);
    assert!(catalog.shared_export("k").await.unwrap().is_some());
    // As a sweep does when no version names the file.
    assert_eq!(catalog.remove_file_records(&[replaced], Duration::ZERO).await.unwrap().len(), 1);
    assert_eq!(catalog.shared_export("k").await.unwrap(), None);
    assert!(catalog.shared_exports_named(&["e/1"]).await.unwrap().is_empty());
}

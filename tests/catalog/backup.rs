//! A copy of the catalog: consistent, an SQLite file from either engine, and at rest.

use strata_catalog::{Catalog, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::RefreshTrigger;
use strata_types::user::Plan;
use tokio::task::JoinSet;

use super::{Database, LEASE, create, file, name, new_dataset, publish, v, with_owner};

on_both_databases! {
    Database:
    a_copy_holds_everything_and_goes_on_by_itself
    a_copy_is_of_one_moment
    a_copy_overwrites_nothing
    an_identity_is_settled_once_and_goes_along_with_a_copy
    a_copy_fills_an_empty_catalog_of_either_kind
}

async fn open_copy(path: &std::path::Path) -> Catalog {
    Catalog::open(&format!("sqlite://{}", path.display())).await.unwrap()
}

async fn a_copy_holds_everything_and_goes_on_by_itself(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("ÄRA@example.test", "hash'\"", Plan::Free).await.unwrap();
    catalog.add_token(owner, "ci", "token hash", 1_000).await.unwrap();
    let dataset = create(&catalog, owner, "World '東京' Countries").await.unwrap().id;
    let frozen = catalog.create_dataset(&new_dataset(other, "Frozen"), 1).await.unwrap().id;
    for path in ["a", "b"] {
        publish(&catalog, dataset, path).await.unwrap();
        publish(&catalog, frozen, &format!("frozen {path}")).await.unwrap();
    }
    catalog.rollback(frozen, v(1), true).await.unwrap();
    for path in ["alt", "alt 2"] {
        catalog.reserve_file(path, LEASE).await.unwrap();
        catalog.save_alternate(dataset, v(2), &file(path), None).await.unwrap();
    }
    // The highest id is in use no more.
    catalog.delete_alternate(dataset, v(2)).await.unwrap();
    let highest = catalog.files(None, 100).await.unwrap().pop().unwrap().file.id;
    catalog.register_webhook(dataset, "https://a.test/", Some("secret")).await.unwrap();
    publish(&catalog, dataset, "c").await.unwrap();
    let clock = super::clock();
    let late = catalog.clone().with_clock(clock.clone());
    database.execute(&format!("UPDATE files SET unreferenced_since = 1 WHERE file_id = {highest}")).await;
    assert_eq!(late.remove_file_records(&[highest], LEASE).await.unwrap().len(), 1);
    let path = "in the middle";
    let attempt = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, path, LEASE).await.unwrap().attempt;
    catalog.hold_files(LEASE).await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy '1'.sqlite");
    catalog.copy_to_sqlite(&path).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [path.as_path()], "one file and no log beside it");

    let copy = open_copy(&path).await;
    for user in [owner, other] {
        assert_eq!(copy.user(user).await.unwrap(), catalog.user(user).await.unwrap());
    }
    assert_eq!(copy.tokens(owner).await.unwrap(), catalog.tokens(owner).await.unwrap());
    assert_eq!(copy.files(None, 100).await.unwrap(), catalog.files(None, 100).await.unwrap());
    assert_eq!(copy.webhook(dataset).await.unwrap(), catalog.webhook(dataset).await.unwrap());
    for dataset in [dataset, frozen] {
        let (mut copied, mut original) =
            (copy.dataset_view(dataset).await.unwrap().unwrap(), catalog.dataset_view(dataset).await.unwrap().unwrap());
        for view in [&mut copied, &mut original] {
            view.last_attempts.retain(|attempt| attempt.trigger != RefreshTrigger::Manual);
        }
        assert_eq!(copied, original);
    }

    // Nothing is under way in it, and ids go on where they were.
    assert!(copy.claim_delivery().await.unwrap().is_none());
    assert!(!copy.files_held().await.unwrap());
    assert_eq!(copy.files_named(&["in the middle"]).await.unwrap().len(), 0);
    let last = copy.attempts(dataset, None, 1).await.unwrap();
    assert!(last[0].finished_at.is_some(), "{last:?}");
    let version = publish(&copy, dataset, "d").await.unwrap();
    assert_eq!(version.number, v(4));
    assert!(version.file.id > highest, "{version:?}");
    assert_eq!(copy.claim_delivery().await.unwrap().unwrap().version, v(4));
    copy.unfreeze(frozen, 1).await.unwrap();
    let found = copy.dataset_by_name(owner, &name("World '東京' Countries")).await.unwrap();
    assert_eq!(found.map(|dataset| dataset.id), Some(dataset));
    // The original knows nothing of it.
    assert_eq!(catalog.claim_delivery().await.unwrap().unwrap().version, v(3));
    catalog
        .publish_version(dataset, strata_catalog::VersionContent::New(&file("in the middle")), None, attempt)
        .await
        .unwrap();
}

async fn a_copy_is_of_one_moment(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let mut datasets = Vec::new();
    for number in 0..4 {
        datasets.push(create(&catalog, owner, &format!("d{number}")).await.unwrap().id);
    }
    let mut writers = JoinSet::new();
    for dataset in datasets.clone() {
        let catalog = catalog.clone();
        writers.spawn(async move {
            for number in 0..12 {
                publish(&catalog, dataset, &format!("{dataset}-{number}")).await.unwrap();
            }
        });
    }
    let directory = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let path = directory.path().join(format!("{number}.sqlite"));
        catalog.copy_to_sqlite(&path).await.unwrap();
        let copy = open_copy(&path).await;
        let mut versions = 0;
        for dataset in &datasets {
            let view = copy.dataset_view(*dataset).await.unwrap().unwrap();
            assert_eq!(view.dataset.latest_version.map_or(0, |latest| latest.get()), view.versions.len() as u64);
            versions += view.versions.len();
        }
        assert_eq!(copy.files(None, 1_000).await.unwrap().len(), versions);
    }
    writers.join_all().await;
}

async fn a_copy_overwrites_nothing(database: Database) {
    let (catalog, _) = with_owner(&database).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("there");
    std::fs::write(&path, "precious").unwrap();
    let copied = catalog.copy_to_sqlite(&path).await;
    assert!(matches!(copied, Err(CatalogError::Copy { .. })), "{copied:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

async fn an_identity_is_settled_once_and_goes_along_with_a_copy(database: Database) {
    let mut opened = JoinSet::new();
    for _ in 0..8 {
        let catalog = database.open().await;
        opened.spawn(async move { catalog.installation().await.unwrap() });
    }
    let settled = opened.join_all().await;
    assert!(
        settled.iter().all(|installation| *installation == settled[0] && !installation.store_marked),
        "{settled:?}"
    );
    let catalog = database.open().await;
    catalog.note_store_marked().await.unwrap();
    let marked = catalog.installation().await.unwrap();
    assert_eq!((&marked.identity, marked.store_marked), (&settled[0].identity, true));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.sqlite");
    catalog.copy_to_sqlite(&path).await.unwrap();
    assert_eq!(open_copy(&path).await.installation().await.unwrap(), marked);
    let mut told = Vec::new();
    catalog.check_integrity(false, &mut |damage| told.push(damage)).await.unwrap();
    assert_eq!(told, Vec::<String>::new());
    database.execute("UPDATE installation SET identity = 'none'").await;
    assert!(catalog.installation().await.unwrap_err().is_damage());
    catalog.check_integrity(false, &mut |damage| told.push(damage)).await.unwrap();
    assert!(told.iter().any(|damage| damage.contains("installation.identity")), "{told:?}");
}

/// The copy is an SQLite file; the catalog that is filled is of the kind under test.
async fn a_copy_fills_an_empty_catalog_of_either_kind(database: Database) {
    let source = Database::sqlite().await;
    let (original, owner) = with_owner(&source).await;
    let gone = original.add_user("gone@example.test", "hash", Plan::Free).await.unwrap();
    original.add_token(owner, "ci", "token hash", 1_000).await.unwrap();
    let dataset = create(&original, owner, "World '東京' Countries").await.unwrap().id;
    let pinned = create(&original, owner, "Pinned").await.unwrap().id;
    for path in ["a", "b"] {
        publish(&original, dataset, path).await.unwrap();
        publish(&original, pinned, &format!("pinned {path}")).await.unwrap();
    }
    original.rollback(pinned, v(1), true).await.unwrap();
    original.reserve_file("alt", LEASE).await.unwrap();
    original.save_alternate(dataset, v(2), &file("alt"), None).await.unwrap();
    original.register_webhook(dataset, "https://a.test/", Some("secret")).await.unwrap();
    publish(&original, dataset, "c").await.unwrap();
    // The highest id of a user is in use no more.
    original.remove_user(gone).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.sqlite");
    original.move_to_sqlite(&path).await.unwrap();
    let copy = open_copy(&path).await;

    let filled = database.open().await;
    assert!(filled.is_empty().await.unwrap());
    let own = filled.installation().await.unwrap();
    filled.restore_from(&copy).await.unwrap();
    assert!(!filled.is_empty().await.unwrap());
    assert_eq!(filled.installation().await.unwrap(), own, "a store belongs to one catalog");
    assert_eq!(filled.user(owner).await.unwrap(), original.user(owner).await.unwrap());
    assert_eq!(filled.tokens(owner).await.unwrap(), original.tokens(owner).await.unwrap());
    assert_eq!(filled.files(None, 100).await.unwrap(), original.files(None, 100).await.unwrap());
    assert_eq!(filled.webhook(dataset).await.unwrap(), original.webhook(dataset).await.unwrap());
    for dataset in [dataset, pinned] {
        let (there, here) = (filled.dataset_view(dataset).await.unwrap(), copy.dataset_view(dataset).await.unwrap());
        assert_eq!(there.unwrap(), here.unwrap());
    }
    // The hashes of these tests are none; nothing else is wrong, or missing.
    let (mut here, mut there) = (Vec::new(), Vec::new());
    copy.check_integrity(true, &mut |damage| here.push(damage)).await.unwrap();
    filled.check_integrity(true, &mut |damage| there.push(damage)).await.unwrap();
    assert_eq!((there.len(), &there), (7, &here));

    // Ids go on where they were.
    let highest = original.files(None, 100).await.unwrap().pop().unwrap().file.id;
    let version = publish(&filled, dataset, "d").await.unwrap();
    assert_eq!(version.number, v(4));
    assert!(version.file.id > highest, "{version:?}");
    let new = filled.add_user("new@example.test", "hash", Plan::Free).await.unwrap();
    assert!(new > gone, "{new:?} {gone:?}");

    // What is due is so in one that does not go on by itself.
    assert_eq!(filled.claim_delivery().await.unwrap().unwrap().version, v(3));
    let again = filled.restore_from(&copy).await;
    assert!(matches!(again, Err(CatalogError::NotEmpty)), "{again:?}");
    assert_eq!(publish(&filled, dataset, "e").await.unwrap().number, v(5));
}

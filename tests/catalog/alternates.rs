//! Alternates, and the files they leave behind.

use strata_catalog::{AlternateBase, Catalog, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::NewClone;
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use tokio::task::JoinSet;

use super::{Database, LEASE, file, name, publish, resolve, v, with_dataset};

on_both_databases! {
    Database:
    an_alternate_is_saved_replaced_and_deleted
    what_has_no_alternate_has_none_to_delete
    an_alternate_is_swapped_only_on_its_base
    of_many_swaps_on_one_base_one_succeeds
    a_shared_alternate_is_unreferenced_after_its_last
    the_last_two_references_may_go_at_once
}

async fn save(
    catalog: &Catalog,
    dataset: DatasetId,
    path: &str,
    expected: Option<AlternateBase>,
) -> Result<AlternateBase, CatalogError> {
    catalog.reserve_file(path, LEASE).await?;
    let saved = catalog.save_alternate(dataset, v(1), &file(path), expected).await?;
    assert_eq!(saved.version.alt.as_ref().map(|alt| alt.path.as_str()), Some(path));
    Ok(AlternateBase::of(&saved.version))
}

/// The paths that nothing refers to.
async fn unreferenced(database: &Database) -> Vec<String> {
    let sql = "SELECT path FROM files WHERE unreferenced_since IS NOT NULL ORDER BY path";
    database.texts(sql).await.into_iter().flatten().collect()
}

async fn an_alternate_is_saved_replaced_and_deleted(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let unreserved = catalog.save_alternate(dataset, v(1), &file("x"), None).await;
    assert!(matches!(unreserved, Err(CatalogError::ReservationLost)), "{unreserved:?}");

    save(&catalog, dataset, "x", None).await.unwrap();
    let read = resolve(&catalog, dataset, "v1").await.version.unwrap();
    assert_eq!((&read.file, read.alt.unwrap().path.as_str()), (&version.file, "x"));
    assert_eq!(unreferenced(&database).await, [""; 0]);
    save(&catalog, dataset, "y", None).await.unwrap();
    assert_eq!(unreferenced(&database).await, ["x"]);
    // A frozen dataset is no obstacle.
    catalog.rollback(dataset, v(1), true).await.unwrap();
    save(&catalog, dataset, "z", None).await.unwrap();
    let left = catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(left.version, version);
    assert_eq!(resolve(&catalog, dataset, "v1").await.version, Some(version));
    assert_eq!(unreferenced(&database).await, ["x", "y", "z"]);
}

async fn what_has_no_alternate_has_none_to_delete(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    let deleted = catalog.delete_alternate(dataset, v(1)).await;
    assert!(matches!(deleted, Err(CatalogError::NoAlternate)), "{deleted:?}");
    catalog.reserve_file("x", LEASE).await.unwrap();
    for number in [0, 2, u64::MAX] {
        let number = v(number);
        assert!(matches!(catalog.delete_alternate(dataset, number).await, Err(CatalogError::NoVersion)));
        let saved = catalog.save_alternate(dataset, number, &file("x"), None).await;
        assert!(matches!(saved, Err(CatalogError::NoVersion)), "{saved:?}");
    }
    let missing = DatasetId::new(99);
    assert!(matches!(catalog.delete_alternate(missing, v(1)).await, Err(CatalogError::NotFound)));
    assert!(matches!(catalog.save_alternate(missing, v(1), &file("x"), None).await, Err(CatalogError::NotFound)));
}

async fn an_alternate_is_swapped_only_on_its_base(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let empty = AlternateBase::of(&version);
    let first = save(&catalog, dataset, "x", Some(empty)).await.unwrap();
    let stale = save(&catalog, dataset, "y", Some(empty)).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)), "{stale:?}");
    save(&catalog, dataset, "y", Some(first)).await.unwrap();
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    let stale = save(&catalog, dataset, "z", Some(first)).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)), "{stale:?}");
    save(&catalog, dataset, "z", Some(empty)).await.unwrap();
}

async fn of_many_swaps_on_one_base_one_succeeds(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let base = AlternateBase::of(&publish(&catalog, dataset, "a").await.unwrap());
    let other = database.open().await;
    let mut swaps = JoinSet::new();
    for number in 0..8 {
        let catalog = if number % 2 == 0 { &catalog } else { &other }.clone();
        swaps.spawn(async move { save(&catalog, dataset, &format!("x{number}"), Some(base)).await });
    }
    let (saved, stale): (Vec<_>, Vec<_>) = swaps.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(saved.len(), 1);
    assert!(stale.iter().all(|refused| matches!(refused, Err(CatalogError::Conflict))), "{stale:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 2);
}

async fn clone_of(catalog: &Catalog, source: DatasetId, text: &str) -> DatasetId {
    let owner = catalog.dataset(source).await.unwrap().unwrap().owner;
    let clone = NewClone {
        source,
        owner,
        name: name(text),
        private_key: Secret::private_key([1; 32]),
        schedule: None,
        ping_token: Secret::ping_token(rand::random()),
    };
    catalog.clone_dataset(&clone, 1_000, None).await.unwrap().0.id
}

async fn a_shared_alternate_is_unreferenced_after_its_last(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    save(&catalog, dataset, "x", None).await.unwrap();
    let clone = clone_of(&catalog, dataset, "clone").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(unreferenced(&database).await, [""; 0]);
    save(&catalog, clone, "y", None).await.unwrap();
    assert_eq!(unreferenced(&database).await, ["x"]);
}

async fn the_last_two_references_may_go_at_once(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let other = database.open().await;
    publish(&catalog, dataset, "a").await.unwrap();
    for round in 0..8 {
        save(&catalog, dataset, &format!("x{round}"), None).await.unwrap();
        let clone = clone_of(&catalog, dataset, &format!("clone {round}")).await;
        let (one, two) = tokio::join!(catalog.delete_alternate(dataset, v(1)), other.delete_alternate(clone, v(1)));
        one.unwrap();
        two.unwrap();
        assert_eq!(unreferenced(&database).await.len(), round + 1);
    }
}

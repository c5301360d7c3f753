//! Alternates, and the files that they leave unreferenced.

use strata_catalog::{Catalog, CatalogError, VersionFileIds};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{NewDatasetClone, RollbackMode};
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use tokio::task::JoinSet;

use super::{Database, LEASE, file, name, publish, resolve, v, with_dataset};

on_both_databases! {
    Database:
    alternate_is_saved_replaced_and_deleted
    delete_alternate_without_alternate_fails
    save_alternate_with_stale_base_conflicts
    concurrent_saves_on_one_base_yield_one_success
    shared_alternate_unreferenced_after_last_deletion
    concurrent_last_deletions_mark_file
}

async fn save(
    catalog: &Catalog,
    dataset: DatasetId,
    path: &str,
    expected: Option<VersionFileIds>,
) -> Result<VersionFileIds, CatalogError> {
    catalog.reserve_file(path, LEASE).await?;
    let saved = catalog.save_alternate(dataset, v(1), &file(path), expected).await?;
    assert_eq!(saved.version.alternate.as_ref().map(|alt| alt.path.as_str()), Some(path));
    Ok(VersionFileIds::from_version(&saved.version))
}

/// Returns the paths of the files that are marked as unreferenced.
async fn unreferenced(database: &Database) -> Vec<String> {
    let sql = "SELECT path FROM files WHERE unreferenced_since IS NOT NULL ORDER BY path";
    database.texts(sql).await.into_iter().flatten().collect()
}

async fn alternate_is_saved_replaced_and_deleted(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let unreserved = catalog.save_alternate(dataset, v(1), &file("x"), None).await;
    assert!(matches!(unreserved, Err(CatalogError::ReservationLost)), "{unreserved:?}");

    save(&catalog, dataset, "x", None).await.unwrap();
    let read = resolve(&catalog, dataset, "v1").await.version.unwrap();
    assert_eq!((&read.file, read.alternate.unwrap().path.as_str()), (&version.file, "x"));
    assert_eq!(unreferenced(&database).await, [""; 0]);
    save(&catalog, dataset, "y", None).await.unwrap();
    assert_eq!(unreferenced(&database).await, ["x"]);
    // A frozen dataset accepts alternates.
    catalog.rollback(dataset, v(1), RollbackMode::PinAndFreeze).await.unwrap();
    save(&catalog, dataset, "z", None).await.unwrap();
    let status = catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(status.version, version);
    assert_eq!(resolve(&catalog, dataset, "v1").await.version, Some(version));
    assert_eq!(unreferenced(&database).await, ["x", "y", "z"]);
}

async fn delete_alternate_without_alternate_fails(database: Database) {
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

async fn save_alternate_with_stale_base_conflicts(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let empty = VersionFileIds::from_version(&version);
    let first = save(&catalog, dataset, "x", Some(empty)).await.unwrap();
    let stale = save(&catalog, dataset, "y", Some(empty)).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)), "{stale:?}");
    save(&catalog, dataset, "y", Some(first)).await.unwrap();
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    let stale = save(&catalog, dataset, "z", Some(first)).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)), "{stale:?}");
    save(&catalog, dataset, "z", Some(empty)).await.unwrap();
}

async fn concurrent_saves_on_one_base_yield_one_success(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let base = VersionFileIds::from_version(&publish(&catalog, dataset, "a").await.unwrap());
    let other = database.open().await;
    let mut swaps = JoinSet::new();
    for number in 0..8 {
        let catalog = if number % 2 == 0 { &catalog } else { &other }.clone();
        swaps.spawn(async move { save(&catalog, dataset, &format!("x{number}"), Some(base)).await });
    }
    let (saved, stale): (Vec<_>, Vec<_>) = swaps.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(saved.len(), 1);
    assert!(stale.iter().all(|rejected| matches!(rejected, Err(CatalogError::Conflict))), "{stale:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 2);
}

async fn clone_of(catalog: &Catalog, source: DatasetId, text: &str) -> DatasetId {
    let owner = catalog.dataset(source).await.unwrap().unwrap().owner;
    let clone = NewDatasetClone {
        source,
        owner,
        name: name(text),
        private_key: Secret::new_private_key([1; 32]),
        schedule: None,
        ping_token: Secret::new_ping_token(rand::random()),
    };
    catalog.clone_dataset(&clone, 1_000, None).await.unwrap().0.id
}

async fn shared_alternate_unreferenced_after_last_deletion(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    save(&catalog, dataset, "x", None).await.unwrap();
    let clone = clone_of(&catalog, dataset, "clone").await;
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(unreferenced(&database).await, [""; 0]);
    save(&catalog, clone, "y", None).await.unwrap();
    assert_eq!(unreferenced(&database).await, ["x"]);
}

async fn concurrent_last_deletions_mark_file(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let other = database.open().await;
    publish(&catalog, dataset, "a").await.unwrap();
    for round in 0..8 {
        save(&catalog, dataset, &format!("x{round}"), None).await.unwrap();
        let clone = clone_of(&catalog, dataset, &format!("clone {round}")).await;
        let (first, second) =
            tokio::join!(catalog.delete_alternate(dataset, v(1)), other.delete_alternate(clone, v(1)));
        first.unwrap();
        second.unwrap();
        assert_eq!(unreferenced(&database).await.len(), round + 1);
    }
}

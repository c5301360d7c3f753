//! Copies of the metadata database: consistent SQLite files from either engine, without running work.

use strata_catalog::{Catalog, CatalogCheckDepth, CatalogError};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{RefreshTrigger, RollbackMode};
use strata_types::user::UserPlan;
use tokio::task::JoinSet;

use super::{Database, LEASE, create, delta_file, file, name, new_dataset, publish, v, with_owner};

on_both_databases! {
    Database:
    copy_contains_all_records_and_is_independent
    copy_is_consistent_during_writes
    copy_to_existing_file_fails
    identity_is_created_once_and_copied
    restore_fills_empty_database_of_either_engine
}

async fn open_copy(path: &std::path::Path) -> Catalog {
    Catalog::open(&format!("sqlite://{}", path.display())).await.unwrap()
}

async fn copy_contains_all_records_and_is_independent(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("ÄRA@example.test", "hash'\"", UserPlan::Free).await.unwrap();
    catalog.add_token(owner, "ci", "token hash", 1_000).await.unwrap();
    let dataset = create(&catalog, owner, "World '東京' Countries").await.unwrap().id;
    let frozen = catalog.create_dataset(&new_dataset(other, "Frozen"), 1).await.unwrap().id;
    for path in ["a", "b"] {
        publish(&catalog, dataset, path).await.unwrap();
        publish(&catalog, frozen, &format!("frozen {path}")).await.unwrap();
    }
    catalog.rollback(frozen, v(1), RollbackMode::PinAndFreeze).await.unwrap();
    for path in ["alt", "alt 2"] {
        catalog.reserve_file(path, LEASE).await.unwrap();
        catalog.save_alternate(dataset, v(2), &delta_file(path, &["b", "a"]), None).await.unwrap();
    }
    // The row with the highest file ID will be deleted, so that the copy must not reuse that ID.
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
    catalog.acquire_file_hold(LEASE).await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy '1'.sqlite");
    catalog.copy_to_sqlite(&path).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [path.as_path()], "the copy must be one file without a write-ahead log");

    let copy = open_copy(&path).await;
    for user in [owner, other] {
        assert_eq!(copy.user(user).await.unwrap(), catalog.user(user).await.unwrap());
    }
    assert_eq!(copy.tokens_by_user(owner).await.unwrap(), catalog.tokens_by_user(owner).await.unwrap());
    let files = catalog.files(None, 100).await.unwrap();
    assert_eq!(copy.files(None, 100).await.unwrap(), files);
    let mut bases = 0;
    for recorded in files {
        let copied = copy.bases_of_file(recorded.file.id).await.unwrap();
        assert_eq!(copied, catalog.bases_of_file(recorded.file.id).await.unwrap());
        bases += copied.len();
    }
    assert_eq!(bases, 2, "the remaining alternate has two bases");
    assert_eq!(copy.webhook(dataset).await.unwrap(), catalog.webhook(dataset).await.unwrap());
    for dataset in [dataset, frozen] {
        let mut copied = copy.dataset_view(dataset).await.unwrap().unwrap();
        let mut original = catalog.dataset_view(dataset).await.unwrap().unwrap();
        for view in [&mut copied, &mut original] {
            view.last_attempts.retain(|attempt| attempt.trigger != RefreshTrigger::Manual);
        }
        assert_eq!(copied, original);
    }

    // The copy has no running work, and continues with the next IDs.
    assert!(copy.claim_webhook_delivery().await.unwrap().is_none());
    assert!(!copy.has_file_holds().await.unwrap());
    assert_eq!(copy.find_known_paths(&["in the middle"]).await.unwrap().len(), 0);
    let last = copy.attempts(dataset, None, 1).await.unwrap();
    assert!(last[0].finished_at.is_some(), "{last:?}");
    let version = publish(&copy, dataset, "d").await.unwrap();
    assert_eq!(version.number, v(4));
    assert!(version.file.id > highest, "{version:?}");
    assert_eq!(copy.claim_webhook_delivery().await.unwrap().unwrap().version, v(4));
    copy.unfreeze(frozen, 1).await.unwrap();
    let found = copy.dataset_by_name(owner, &name("World '東京' Countries")).await.unwrap();
    assert_eq!(found.map(|dataset| dataset.id), Some(dataset));
    // The original is independent of the copy.
    assert_eq!(catalog.claim_webhook_delivery().await.unwrap().unwrap().version, v(3));
    catalog
        .publish_version(dataset, strata_catalog::VersionContent::New(&file("in the middle")), None, attempt)
        .await
        .unwrap();
}

async fn copy_is_consistent_during_writes(database: Database) {
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

async fn copy_to_existing_file_fails(database: Database) {
    let (catalog, _) = with_owner(&database).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("there");
    std::fs::write(&path, "precious").unwrap();
    let copied = catalog.copy_to_sqlite(&path).await;
    assert!(matches!(copied, Err(CatalogError::WriteCopy { .. })), "{copied:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

async fn identity_is_created_once_and_copied(database: Database) {
    let mut opened = JoinSet::new();
    for _ in 0..8 {
        let catalog = database.open().await;
        opened.spawn(async move { catalog.ensure_installation().await.unwrap() });
    }
    let installations = opened.join_all().await;
    assert!(
        installations.iter().all(|installation| *installation == installations[0] && !installation.store_marked),
        "{installations:?}"
    );
    let catalog = database.open().await;
    catalog.set_store_marked().await.unwrap();
    let marked = catalog.ensure_installation().await.unwrap();
    assert_eq!((&marked.identity, marked.store_marked), (&installations[0].identity, true));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.sqlite");
    catalog.copy_to_sqlite(&path).await.unwrap();
    assert_eq!(open_copy(&path).await.ensure_installation().await.unwrap(), marked);
    let mut findings = Vec::new();
    catalog.check_integrity(CatalogCheckDepth::Full, &mut |damage| findings.push(damage)).await.unwrap();
    assert_eq!(findings, Vec::<String>::new());
    database.execute("UPDATE installation SET identity = 'none'").await;
    assert!(catalog.ensure_installation().await.unwrap_err().is_corruption());
    catalog.check_integrity(CatalogCheckDepth::Full, &mut |damage| findings.push(damage)).await.unwrap();
    assert!(findings.iter().any(|damage| damage.contains("installation.identity")), "{findings:?}");
}

/// The copy is an SQLite file; the restored database is of the engine under test.
async fn restore_fills_empty_database_of_either_engine(database: Database) {
    let source = Database::sqlite().await;
    let (original, owner) = with_owner(&source).await;
    let removed = original.add_user("removed@example.test", "hash", UserPlan::Free).await.unwrap();
    original.add_token(owner, "ci", "token hash", 1_000).await.unwrap();
    let dataset = create(&original, owner, "World '東京' Countries").await.unwrap().id;
    let pinned = create(&original, owner, "Pinned").await.unwrap().id;
    for path in ["a", "b"] {
        publish(&original, dataset, path).await.unwrap();
        publish(&original, pinned, &format!("pinned {path}")).await.unwrap();
    }
    original.rollback(pinned, v(1), RollbackMode::PinAndFreeze).await.unwrap();
    original.reserve_file("alt", LEASE).await.unwrap();
    let alternate = original.save_alternate(dataset, v(2), &delta_file("alt", &["b", "a"]), None).await.unwrap();
    let alternate = alternate.version.alternate.unwrap().id;
    original.register_webhook(dataset, "https://a.test/", Some("secret")).await.unwrap();
    publish(&original, dataset, "c").await.unwrap();
    // The highest user ID belongs to a deleted user, so that the restored database must not reuse it.
    original.remove_user(removed).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.sqlite");
    original.move_to_sqlite(&path).await.unwrap();
    let copy = open_copy(&path).await;

    let restored = database.open().await;
    assert!(restored.has_no_records().await.unwrap());
    let identity = restored.ensure_installation().await.unwrap();
    restored.restore_from(&copy).await.unwrap();
    assert!(!restored.has_no_records().await.unwrap());
    assert_eq!(restored.ensure_installation().await.unwrap(), identity, "a restore must not change the identity");
    assert_eq!(restored.user(owner).await.unwrap(), original.user(owner).await.unwrap());
    assert_eq!(restored.tokens_by_user(owner).await.unwrap(), original.tokens_by_user(owner).await.unwrap());
    assert_eq!(restored.files(None, 100).await.unwrap(), original.files(None, 100).await.unwrap());
    let bases = restored.bases_of_file(alternate).await.unwrap();
    assert_eq!(bases.iter().map(|base| &*base.path).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(bases, original.bases_of_file(alternate).await.unwrap());
    assert_eq!(restored.webhook(dataset).await.unwrap(), original.webhook(dataset).await.unwrap());
    for dataset in [dataset, pinned] {
        let restored = restored.dataset_view(dataset).await.unwrap();
        let copied = copy.dataset_view(dataset).await.unwrap();
        assert_eq!(restored.unwrap(), copied.unwrap());
    }
    // The only findings are the invalid content hashes of these tests.
    let mut copy_findings = Vec::new();
    let mut restored_findings = Vec::new();
    copy.check_integrity(CatalogCheckDepth::Quick, &mut |damage| copy_findings.push(damage)).await.unwrap();
    restored.check_integrity(CatalogCheckDepth::Quick, &mut |damage| restored_findings.push(damage)).await.unwrap();
    assert_eq!((restored_findings.len(), &restored_findings), (7, &copy_findings));

    // The restored database continues with the next IDs.
    let highest = original.files(None, 100).await.unwrap().pop().unwrap().file.id;
    let version = publish(&restored, dataset, "d").await.unwrap();
    assert_eq!(version.number, v(4));
    assert!(version.file.id > highest, "{version:?}");
    let new = restored.add_user("new@example.test", "hash", UserPlan::Free).await.unwrap();
    assert!(new > removed, "{new:?} {removed:?}");

    // A move keeps the due deliveries.
    assert_eq!(restored.claim_webhook_delivery().await.unwrap().unwrap().version, v(3));
    let again = restored.restore_from(&copy).await;
    assert!(matches!(again, Err(CatalogError::NotEmpty)), "{again:?}");
    assert_eq!(publish(&restored, dataset, "e").await.unwrap().number, v(5));
}

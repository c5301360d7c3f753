//! Datasets: ownership, changes, keys, imports, and clones.

use std::collections::BTreeSet;

use rand::random;
use strata_catalog::{CatalogError, FirstAttempt};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{
    Dataset, DatasetChange, DatasetSource, DatasetVisibility, NewDataset, NewDatasetClone, RefreshTrigger, RollbackMode,
};
use strata_types::ids::{DatasetId, UserId};
use strata_types::index_settings::IndexSettings;
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;
use strata_types::user::UserPlan;
use strata_types::version::VersionNumber;

use super::{Database, LEASE, create, file, name, new_dataset, publish, resolved_number, with_dataset, with_owner};

on_both_databases! {
    Database:
    owned_dataset_rejects_other_owner
    datasets_are_listed_in_pages
    update_changes_only_named_fields
    rename_to_taken_name_is_rejected
    private_dataset_keeps_key
    rotated_key_or_token_replaces_old
    first_import_is_atomic
    clone_starts_with_latest_version
    private_dataset_clone_requires_owner
    invalid_clone_is_rejected
}

async fn owned_dataset_rejects_other_owner(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap().id;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Scale).await.unwrap();
    assert_eq!(catalog.owned_dataset(owner, dataset).await.unwrap().id, dataset);
    for (user, id) in [(other, dataset), (owner, DatasetId::new(99)), (UserId::new(99), dataset)] {
        let found = catalog.owned_dataset(user, id).await;
        assert!(matches!(found, Err(CatalogError::NotFound)), "{found:?}");
    }
}

async fn datasets_are_listed_in_pages(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Scale).await.unwrap();
    let mut created = Vec::new();
    for number in 0..5 {
        created.push(create(&catalog, owner, &format!("d{number}")).await.unwrap());
        create(&catalog, other, &format!("d{number}")).await.unwrap();
    }
    let mut listed: Vec<Dataset> = Vec::new();
    loop {
        let page = catalog.datasets_by_owner(owner, listed.last().map(|dataset| dataset.id), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, created);
    assert_eq!(catalog.datasets_by_owner(owner, Some(DatasetId::new(u64::MAX)), 2).await.unwrap(), []);
}

async fn update_changes_only_named_fields(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let before = catalog.dataset(dataset).await.unwrap().unwrap();
    assert_eq!(catalog.update_dataset(dataset, &DatasetChange::default()).await.unwrap(), before);

    let mut expected = before;
    let mut check = async |change: DatasetChange, expect: &dyn Fn(&mut Dataset)| {
        expect(&mut expected);
        assert_eq!(catalog.update_dataset(dataset, &change).await.unwrap(), expected, "{change:?}");
        assert_eq!(catalog.dataset(dataset).await.unwrap().unwrap(), expected, "{change:?}");
    };
    check(DatasetChange { name: Some(name("New Name")), ..Default::default() }, &|dataset| {
        dataset.name = name("New Name");
    })
    .await;
    let url = DatasetSource::Url("https://a.test/x".to_owned());
    check(DatasetChange { source: Some(url.clone()), ..Default::default() }, &|dataset| {
        dataset.source = url.clone();
    })
    .await;
    check(DatasetChange { format: Some(Some(SourceFormat::Csv)), ..Default::default() }, &|dataset| {
        dataset.format = Some(SourceFormat::Csv);
    })
    .await;
    check(DatasetChange { format: Some(None), ..Default::default() }, &|dataset| dataset.format = None).await;
    for path in [Some("a.b".to_owned()), None] {
        check(DatasetChange { records_path: Some(path.clone()), ..Default::default() }, &|dataset| {
            dataset.records_path = path.clone();
        })
        .await;
    }
    for (text, listed) in [(Some("Ää\n"), true), (Some(""), true), (None, false)] {
        let text = text.map(str::to_owned);
        let change = DatasetChange {
            description: Some(text.clone()),
            licence: Some(text.clone()),
            listed: Some(listed),
            infer_types: Some(listed),
            ..Default::default()
        };
        check(change, &|dataset| {
            dataset.metadata.description = text.clone();
            dataset.metadata.license = text.clone();
            dataset.metadata.listed = listed;
            dataset.infer_types = listed;
        })
        .await;
    }
    for publish_query in [true, false] {
        check(DatasetChange { publish_query: Some(publish_query), ..Default::default() }, &|dataset| {
            dataset.publish_query = publish_query;
        })
        .await;
    }
    for schedule in [Some("5 4 * * *".to_owned()), None] {
        check(DatasetChange { schedule: Some(schedule.clone()), ..Default::default() }, &|dataset| {
            dataset.schedule = schedule.clone();
        })
        .await;
    }

    for never in [&["a", "b.c\u{0}"][..], &[]] {
        let index = IndexSettings::try_new(&["x"][..never.len() / 2], never).expect("failed to create index settings");
        check(DatasetChange { index: Some(index.clone()), ..Default::default() }, &|dataset| {
            dataset.index = index.clone();
        })
        .await;
    }

    let missing = catalog.update_dataset(DatasetId::new(99), &DatasetChange::default()).await;
    assert!(matches!(missing, Err(CatalogError::NotFound)), "{missing:?}");
    let nul = DatasetChange { records_path: Some(Some("\0".to_owned())), ..Default::default() };
    let rejected = catalog.update_dataset(dataset, &nul).await;
    assert!(matches!(rejected, Err(CatalogError::NulCharacter { field: "records_path" })), "{rejected:?}");
}

async fn rename_to_taken_name_is_rejected(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    create(&catalog, owner, "one").await.unwrap();
    let two = create(&catalog, owner, "two").await.unwrap();
    let rename = |text: &str| DatasetChange { name: Some(name(text)), ..Default::default() };
    let taken = catalog.update_dataset(two.id, &rename("one")).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    assert_eq!(catalog.dataset(two.id).await.unwrap(), Some(two.clone()));
    // A dataset can keep its name. Its old name is free after a rename.
    catalog.update_dataset(two.id, &rename("two")).await.unwrap();
    catalog.update_dataset(two.id, &rename("three")).await.unwrap();
    create(&catalog, owner, "two").await.unwrap();
}

async fn private_dataset_keeps_key(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let change = async |visibility| {
        let change = DatasetChange { visibility: Some(visibility), ..Default::default() };
        catalog.update_dataset(dataset, &change).await.unwrap().private_key
    };
    let first = Secret::new_private_key(random());
    let second = Secret::new_private_key(random());
    assert_eq!(change(DatasetVisibility::Private { new_private_key: first.clone() }).await, Some(first.clone()));
    assert_eq!(change(DatasetVisibility::Private { new_private_key: second.clone() }).await, Some(first));
    assert_eq!(change(DatasetVisibility::Public).await, None);
    assert_eq!(change(DatasetVisibility::Private { new_private_key: second.clone() }).await, Some(second.clone()));
    assert_eq!(catalog.dataset(dataset).await.unwrap().unwrap().private_key, Some(second));
}

async fn rotated_key_or_token_replaces_old(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let public = create(&catalog, owner, "public").await.unwrap();
    let new = NewDataset { private_key: Some(Secret::new_private_key(random())), ..new_dataset(owner, "private") };
    let private = catalog.create_dataset(&new, 10).await.unwrap();

    let key = Secret::new_private_key(random());
    assert_eq!(catalog.rotate_key(private.id, &key).await.unwrap().private_key, Some(key.clone()));
    assert_eq!(catalog.dataset(private.id).await.unwrap().unwrap().private_key, Some(key.clone()));
    let rotated = catalog.rotate_key(public.id, &key).await;
    assert!(matches!(rotated, Err(CatalogError::Conflict)), "{rotated:?}");
    let rotated = catalog.rotate_key(DatasetId::new(99), &key).await;
    assert!(matches!(rotated, Err(CatalogError::NotFound)), "{rotated:?}");

    let token = Secret::new_ping_token(random());
    let found = async |token: &Secret| catalog.dataset_by_ping_token(token.expose()).await.unwrap();
    assert_eq!(found(&public.ping_token).await, Some(public.clone()));
    let rotated = catalog.rotate_ping_token(public.id, &token).await.unwrap();
    assert_eq!(found(&public.ping_token).await, None);
    assert_eq!(found(&token).await, Some(rotated));
    let rotated = catalog.rotate_ping_token(DatasetId::new(99), &token).await;
    assert!(matches!(rotated, Err(CatalogError::NotFound)), "{rotated:?}");
}

async fn first_import_is_atomic(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let started_at = catalog.now() - chrono::TimeDelta::seconds(90);
    let import = async |text: &str, path: &str, limit| {
        let warnings = ["odd\0".to_owned(), "empty".to_owned()];
        let attempt = FirstAttempt { trigger: RefreshTrigger::Import, started_at, warnings: &warnings };
        catalog.create_dataset_with_version(&new_dataset(owner, text), limit, attempt, &file(path)).await
    };
    let imported = import("a", "f", 1).await;
    assert!(matches!(imported, Err(CatalogError::ReservationLost)), "{imported:?}");
    catalog.reserve_file("f", LEASE).await.unwrap();
    let imported = import("a", "f", 0).await;
    assert!(matches!(imported, Err(CatalogError::TooManyDatasets { limit: 0 })), "{imported:?}");
    for table in ["datasets", "files", "versions", "refresh_attempts"] {
        assert_eq!(database.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
    let (dataset, first) = import("a", "f", 1).await.unwrap();
    assert!(first.is_active);
    let view = catalog.dataset_view(dataset.id).await.unwrap().unwrap();
    assert_eq!((&view.dataset, &view.versions[..]), (&dataset, &[first][..]));
    // The attempt has the start time of the caller, not the time of the transaction.
    let [attempt] = &view.last_attempts[..] else { panic!("expected one attempt: {:?}", view.last_attempts) };
    assert_eq!(attempt.started_at, started_at);
    let min_finished_at = started_at + chrono::TimeDelta::seconds(90);
    assert!(attempt.finished_at.is_some_and(|finished_at| finished_at >= min_finished_at));
    assert_eq!(attempt.warnings, ["odd\0", "empty"]);
    // The import holds no lease, so the next refresh can start.
    assert_eq!(publish(&catalog, dataset.id, "g").await.unwrap().number, VersionNumber::new(2));
}

fn clone_of(source: DatasetId, owner: UserId, text: &str) -> NewDatasetClone {
    NewDatasetClone {
        source,
        owner,
        name: name(text),
        private_key: Secret::new_private_key(random()),
        schedule: None,
        ping_token: Secret::new_ping_token(random()),
    }
}

async fn clone_starts_with_latest_version(database: Database) {
    let (catalog, source) = with_dataset(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Pro).await.unwrap();
    catalog.register_webhook(source, "https://a.test/", None).await.unwrap();
    publish(&catalog, source, "a").await.unwrap();
    publish(&catalog, source, "b").await.unwrap();
    catalog.rollback(source, VersionNumber::new(1), RollbackMode::Pin).await.unwrap();
    let index = IndexSettings::try_new(&["a"], &["b"]).expect("failed to create index settings");
    catalog.update_dataset(source, &DatasetChange { index: Some(index.clone()), ..Default::default() }).await.unwrap();
    catalog.reserve_file("alt", LEASE).await.unwrap();
    let latest = catalog.save_alternate(source, VersionNumber::new(2), &file("alt"), None).await.unwrap().version;
    while catalog.claim_webhook_delivery().await.unwrap().is_some() {}

    let (clone, first) = catalog.clone_dataset(&clone_of(source, other, "Clone"), 1, None).await.unwrap();
    assert_eq!((clone.owner, clone.source.clone(), clone.private_key.clone()), (other, DatasetSource::Push, None));
    assert_eq!(clone.index, index);
    assert_eq!((clone.pinned_version, clone.latest_version), (None, Some(VersionNumber::new(1))));
    assert_eq!(first.version.number, VersionNumber::new(1));
    assert!(first.is_active);
    assert_eq!((&first.version.file, &first.version.alternate), (&latest.file, &latest.alternate));
    assert_eq!(catalog.dataset(clone.id).await.unwrap(), Some(clone.clone()));
    assert!(catalog.claim_webhook_delivery().await.unwrap().is_none());

    // Later changes of the source and of the clone are independent.
    catalog.delete_alternate(source, VersionNumber::new(2)).await.unwrap();
    assert!(catalog.version(clone.id, VersionNumber::new(1)).await.unwrap().version.alternate.is_some());
    publish(&catalog, clone.id, "c").await.unwrap();
    assert_eq!(resolved_number(&catalog, clone.id, "active").await, Some(2));
    assert_eq!(resolved_number(&catalog, source, "latest").await, Some(2));
    assert_eq!(resolved_number(&catalog, source, "active").await, Some(1));
}

async fn private_dataset_clone_requires_owner(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Pro).await.unwrap();
    let new = NewDataset { private_key: Some(Secret::new_private_key(random())), ..new_dataset(owner, "private") };
    let source = catalog.create_dataset(&new, 10).await.unwrap();
    publish(&catalog, source.id, "a").await.unwrap();
    let rejected = catalog.clone_dataset(&clone_of(source.id, other, "x"), 10, None).await;
    assert!(matches!(rejected, Err(CatalogError::NotFound)), "{rejected:?}");
    let request = clone_of(source.id, owner, "x");
    let (clone, _) = catalog.clone_dataset(&request, 10, None).await.unwrap();
    assert_eq!(clone.private_key, Some(request.private_key));
    assert_ne!(clone.private_key, source.private_key);
}

async fn invalid_clone_is_rejected(database: Database) {
    let (catalog, source) = with_dataset(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Pro).await.unwrap();
    let clone = async |source, user, text: &str, limit| {
        catalog.clone_dataset(&clone_of(source, user, text), limit, None).await.map(|(clone, _)| clone.id)
    };
    let without_version = clone(source, other, "x", 9).await;
    assert!(matches!(without_version, Err(CatalogError::NoVersion)), "{without_version:?}");
    publish(&catalog, source, "a").await.unwrap();
    for (source, user) in [(DatasetId::new(99), other), (source, UserId::new(99))] {
        let rejected = clone(source, user, "x", 9).await;
        assert!(matches!(rejected, Err(CatalogError::NotFound)), "{rejected:?}");
    }
    let limited = clone(source, other, "x", 0).await;
    assert!(matches!(limited, Err(CatalogError::TooManyDatasets { limit: 0 })), "{limited:?}");
    let first = clone(source, other, "x", 1).await.unwrap();
    let taken = clone(source, other, "x", 9).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    catalog.rollback(source, VersionNumber::new(1), RollbackMode::PinAndFreeze).await.unwrap();
    let frozen = clone(source, other, "y", 9).await;
    assert!(matches!(frozen, Err(CatalogError::Frozen)), "{frozen:?}");
    let ids: BTreeSet<_> =
        catalog.datasets_by_owner(other, None, 9).await.unwrap().iter().map(|dataset| dataset.id).collect();
    assert_eq!(ids, BTreeSet::from([first]));
}

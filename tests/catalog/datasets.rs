//! What a dataset is, whose it is, and how that changes; clones.

use std::collections::BTreeSet;

use rand::random;
use strata_catalog::{CatalogError, FirstAttempt};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::{Dataset, DatasetChange, DatasetSource, NewClone, NewDataset, RefreshTrigger, Visibility};
use strata_types::ids::{DatasetId, UserId};
use strata_types::index::IndexSettings;
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;
use strata_types::user::Plan;
use strata_types::version::VersionNumber;

use super::{Database, LEASE, create, file, name, new_dataset, publish, resolved_number, with_dataset, with_owner};

on_both_databases! {
    Database:
    a_dataset_is_its_owners_alone
    datasets_are_listed_page_by_page
    a_change_changes_what_it_names
    a_rename_is_as_unique_as_a_name
    a_private_dataset_keeps_its_key
    a_rotated_key_or_token_replaces_the_old
    a_first_import_leaves_all_or_nothing
    a_clone_begins_with_the_latest_version
    a_private_dataset_is_cloned_by_its_owner_alone
    what_cannot_be_cloned_is_refused
}

async fn a_dataset_is_its_owners_alone(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap().id;
    let other = catalog.add_user("b@example.test", "h", Plan::Scale).await.unwrap();
    assert_eq!(catalog.owned_dataset(owner, dataset).await.unwrap().id, dataset);
    for (user, id) in [(other, dataset), (owner, DatasetId::new(99)), (UserId::new(99), dataset)] {
        let found = catalog.owned_dataset(user, id).await;
        assert!(matches!(found, Err(CatalogError::NotFound)), "{found:?}");
    }
}

async fn datasets_are_listed_page_by_page(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Scale).await.unwrap();
    let mut created = Vec::new();
    for number in 0..5 {
        created.push(create(&catalog, owner, &format!("d{number}")).await.unwrap());
        create(&catalog, other, &format!("d{number}")).await.unwrap();
    }
    let mut listed: Vec<Dataset> = Vec::new();
    loop {
        let page = catalog.datasets_of(owner, listed.last().map(|dataset| dataset.id), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, created);
    assert_eq!(catalog.datasets_of(owner, Some(DatasetId::new(u64::MAX)), 2).await.unwrap(), []);
}

async fn a_change_changes_what_it_names(database: Database) {
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
            dataset.about.description = text.clone();
            dataset.about.licence = text.clone();
            dataset.about.listed = listed;
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
        let index = IndexSettings::try_new(&["x"][..never.len() / 2], never).expect("an index");
        check(DatasetChange { index: Some(index.clone()), ..Default::default() }, &|dataset| {
            dataset.index = index.clone();
        })
        .await;
    }

    let nobody = catalog.update_dataset(DatasetId::new(99), &DatasetChange::default()).await;
    assert!(matches!(nobody, Err(CatalogError::NotFound)), "{nobody:?}");
    let nul = DatasetChange { records_path: Some(Some("\0".to_owned())), ..Default::default() };
    let refused = catalog.update_dataset(dataset, &nul).await;
    assert!(matches!(refused, Err(CatalogError::Nul { field: "records_path" })), "{refused:?}");
}

async fn a_rename_is_as_unique_as_a_name(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    create(&catalog, owner, "one").await.unwrap();
    let two = create(&catalog, owner, "two").await.unwrap();
    let rename = |text: &str| DatasetChange { name: Some(name(text)), ..Default::default() };
    let taken = catalog.update_dataset(two.id, &rename("one")).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    assert_eq!(catalog.dataset(two.id).await.unwrap(), Some(two.clone()));
    // Its own name is no obstacle, and the name it leaves is free.
    catalog.update_dataset(two.id, &rename("two")).await.unwrap();
    catalog.update_dataset(two.id, &rename("three")).await.unwrap();
    create(&catalog, owner, "two").await.unwrap();
}

async fn a_private_dataset_keeps_its_key(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let change = async |visibility| {
        let change = DatasetChange { visibility: Some(visibility), ..Default::default() };
        catalog.update_dataset(dataset, &change).await.unwrap().private_key
    };
    let (first, second) = (Secret::private_key(random()), Secret::private_key(random()));
    assert_eq!(change(Visibility::Private { new_key: first.clone() }).await, Some(first.clone()));
    assert_eq!(change(Visibility::Private { new_key: second.clone() }).await, Some(first));
    assert_eq!(change(Visibility::Public).await, None);
    assert_eq!(change(Visibility::Private { new_key: second.clone() }).await, Some(second.clone()));
    assert_eq!(catalog.dataset(dataset).await.unwrap().unwrap().private_key, Some(second));
}

async fn a_rotated_key_or_token_replaces_the_old(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let public = create(&catalog, owner, "public").await.unwrap();
    let new = NewDataset { private_key: Some(Secret::private_key(random())), ..new_dataset(owner, "private") };
    let private = catalog.create_dataset(&new, 10).await.unwrap();

    let key = Secret::private_key(random());
    assert_eq!(catalog.rotate_key(private.id, &key).await.unwrap().private_key, Some(key.clone()));
    assert_eq!(catalog.dataset(private.id).await.unwrap().unwrap().private_key, Some(key.clone()));
    let rotated = catalog.rotate_key(public.id, &key).await;
    assert!(matches!(rotated, Err(CatalogError::Conflict)), "{rotated:?}");
    let rotated = catalog.rotate_key(DatasetId::new(99), &key).await;
    assert!(matches!(rotated, Err(CatalogError::NotFound)), "{rotated:?}");

    let token = Secret::ping_token(random());
    let found = async |token: &Secret| catalog.dataset_by_ping_token(token.expose()).await.unwrap();
    assert_eq!(found(&public.ping_token).await, Some(public.clone()));
    let rotated = catalog.rotate_ping_token(public.id, &token).await.unwrap();
    assert_eq!(found(&public.ping_token).await, None);
    assert_eq!(found(&token).await, Some(rotated));
    let rotated = catalog.rotate_ping_token(DatasetId::new(99), &token).await;
    assert!(matches!(rotated, Err(CatalogError::NotFound)), "{rotated:?}");
}

async fn a_first_import_leaves_all_or_nothing(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let began = catalog.now() - chrono::TimeDelta::seconds(90);
    let import = async |text: &str, path: &str, limit| {
        let warnings = ["odd\0".to_owned(), "empty".to_owned()];
        let attempt = FirstAttempt { trigger: RefreshTrigger::Import, started_at: began, warnings: &warnings };
        catalog.create_dataset_with_version(&new_dataset(owner, text), limit, attempt, &file(path)).await
    };
    let imported = import("a", "f", 1).await;
    assert!(matches!(imported, Err(CatalogError::ReservationLost)), "{imported:?}");
    catalog.reserve_file("f", LEASE).await.unwrap();
    let imported = import("a", "f", 0).await;
    assert!(matches!(imported, Err(CatalogError::PlanLimit { limit: 0 })), "{imported:?}");
    for table in ["datasets", "files", "versions", "refresh_attempts"] {
        assert_eq!(database.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
    let (dataset, first) = import("a", "f", 1).await.unwrap();
    assert!(first.is_active);
    let view = catalog.dataset_view(dataset.id).await.unwrap().unwrap();
    assert_eq!((&view.dataset, &view.versions[..]), (&dataset, &[first][..]));
    // It took no time: it was said to have begun when it ended.
    let [attempt] = &view.last_attempts[..] else { panic!("one attempt: {:?}", view.last_attempts) };
    assert_eq!(attempt.started_at, began);
    assert!(attempt.finished_at.is_some_and(|finished| finished >= began + chrono::TimeDelta::seconds(90)));
    assert_eq!(attempt.warnings, ["odd\0", "empty"]);
    // Nothing keeps the next refresh from beginning.
    assert_eq!(publish(&catalog, dataset.id, "g").await.unwrap().number, VersionNumber::new(2));
}

fn clone_of(source: DatasetId, owner: UserId, text: &str) -> NewClone {
    NewClone {
        source,
        owner,
        name: name(text),
        private_key: Secret::private_key(random()),
        schedule: None,
        ping_token: Secret::ping_token(random()),
    }
}

async fn a_clone_begins_with_the_latest_version(database: Database) {
    let (catalog, source) = with_dataset(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Pro).await.unwrap();
    catalog.register_webhook(source, "https://a.test/", None).await.unwrap();
    publish(&catalog, source, "a").await.unwrap();
    publish(&catalog, source, "b").await.unwrap();
    catalog.rollback(source, VersionNumber::new(1), false).await.unwrap();
    let index = IndexSettings::try_new(&["a"], &["b"]).expect("an index");
    catalog.update_dataset(source, &DatasetChange { index: Some(index.clone()), ..Default::default() }).await.unwrap();
    catalog.reserve_file("alt", LEASE).await.unwrap();
    let latest = catalog.save_alternate(source, VersionNumber::new(2), &file("alt"), None).await.unwrap().version;
    while catalog.claim_delivery().await.unwrap().is_some() {}

    let (clone, first) = catalog.clone_dataset(&clone_of(source, other, "Clone"), 1, None).await.unwrap();
    assert_eq!((clone.owner, clone.source.clone(), clone.private_key.clone()), (other, DatasetSource::Push, None));
    assert_eq!(clone.index, index);
    assert_eq!((clone.pinned_version, clone.latest_version), (None, Some(VersionNumber::new(1))));
    assert_eq!(first.version.number, VersionNumber::new(1));
    assert!(first.is_active);
    assert_eq!((&first.version.file, &first.version.alt), (&latest.file, &latest.alt));
    assert_eq!(catalog.dataset(clone.id).await.unwrap(), Some(clone.clone()));
    assert!(catalog.claim_delivery().await.unwrap().is_none());

    // From here on each goes its own way.
    catalog.delete_alternate(source, VersionNumber::new(2)).await.unwrap();
    assert!(catalog.version(clone.id, VersionNumber::new(1)).await.unwrap().version.alt.is_some());
    publish(&catalog, clone.id, "c").await.unwrap();
    assert_eq!(resolved_number(&catalog, clone.id, "active").await, Some(2));
    assert_eq!(resolved_number(&catalog, source, "latest").await, Some(2));
    assert_eq!(resolved_number(&catalog, source, "active").await, Some(1));
}

async fn a_private_dataset_is_cloned_by_its_owner_alone(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Pro).await.unwrap();
    let new = NewDataset { private_key: Some(Secret::private_key(random())), ..new_dataset(owner, "private") };
    let source = catalog.create_dataset(&new, 10).await.unwrap();
    publish(&catalog, source.id, "a").await.unwrap();
    let refused = catalog.clone_dataset(&clone_of(source.id, other, "x"), 10, None).await;
    assert!(matches!(refused, Err(CatalogError::NotFound)), "{refused:?}");
    let request = clone_of(source.id, owner, "x");
    let (clone, _) = catalog.clone_dataset(&request, 10, None).await.unwrap();
    assert_eq!(clone.private_key, Some(request.private_key));
    assert_ne!(clone.private_key, source.private_key);
}

async fn what_cannot_be_cloned_is_refused(database: Database) {
    let (catalog, source) = with_dataset(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Pro).await.unwrap();
    let clone = async |source, user, text: &str, limit| {
        catalog.clone_dataset(&clone_of(source, user, text), limit, None).await.map(|(clone, _)| clone.id)
    };
    let without_version = clone(source, other, "x", 9).await;
    assert!(matches!(without_version, Err(CatalogError::NoVersion)), "{without_version:?}");
    publish(&catalog, source, "a").await.unwrap();
    for (source, user) in [(DatasetId::new(99), other), (source, UserId::new(99))] {
        let refused = clone(source, user, "x", 9).await;
        assert!(matches!(refused, Err(CatalogError::NotFound)), "{refused:?}");
    }
    let beyond = clone(source, other, "x", 0).await;
    assert!(matches!(beyond, Err(CatalogError::PlanLimit { limit: 0 })), "{beyond:?}");
    let first = clone(source, other, "x", 1).await.unwrap();
    let taken = clone(source, other, "x", 9).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken)), "{taken:?}");
    catalog.rollback(source, VersionNumber::new(1), true).await.unwrap();
    let frozen = clone(source, other, "y", 9).await;
    assert!(matches!(frozen, Err(CatalogError::Frozen)), "{frozen:?}");
    let ids: BTreeSet<_> = catalog.datasets_of(other, None, 9).await.unwrap().iter().map(|each| each.id).collect();
    assert_eq!(ids, BTreeSet::from([first]));
}

//! The contract of the metadata database. The tests here and in the modules run against SQLite and PostgreSQL, each
//! test with its own database. The tests at the end cover the differences between the engines.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use chrono::DateTime;
use strata_catalog::{
    Catalog, CatalogClock, CatalogError, CatalogOptions, DeliveryOutcome, ResolvedDataset, UnavailableReason,
    VersionContent,
};
use strata_testing::databases::{Database, on_both_databases};
use strata_testing::pages::ROOT;
use strata_types::dataset::{
    DEFAULT_CRON_SCHEDULE, Dataset, DatasetMetadata, DatasetName, DatasetSource, NewDataset, RefreshTrigger,
};
use strata_types::ids::{DatasetId, RefreshAttemptId, UserId};
use strata_types::index_settings::IndexSettings;
use strata_types::secret::{SECRET_BYTES, Secret};
use strata_types::source::SourceFormat;
use strata_types::user::UserPlan;
use strata_types::version::{DatasetVersion, NewVersionFile, VersionFile, VersionNumber, VersionSelector};
use tokio::task::JoinSet;

mod accounts;
mod alternates;
mod backup;
mod checksums;
mod datasets;
mod file_bases;
mod files;
mod integrity;
mod listings;
mod nodes;
mod random;
mod refreshes;
mod schedules;
mod states;
mod usage;
mod webhooks;

on_both_databases! {
    Database:
    new_database_supports_concurrent_open
    records_survive_reopening
    newer_database_is_rejected
    email_is_unique_ignoring_case
    token_name_is_unique_per_user
    dataset_round_trips
    dataset_name_is_unique_per_owner
    hostile_strings_round_trip
    plan_limits_active_datasets
    plan_limit_holds_for_concurrent_creation
    name_is_checked_before_limit
    create_dataset_requires_owner
    dataset_without_versions_resolves_to_none
    unassigned_ids_find_nothing
    versions_are_numbered_and_newest_is_active
    pinned_version_stays_active
    frozen_dataset_rejects_version
    alternate_is_resolved_with_version
    versions_can_share_file
    file_is_found_by_content
    concurrent_publications_get_consecutive_numbers
    failed_publication_uses_no_number
    canceled_publication_leaves_no_gap
    change_is_visible_to_other_handle
}

/// Opens a catalog and adds an owner.
async fn with_owner(database: &Database) -> (Catalog, UserId) {
    let catalog = database.open().await;
    let owner = catalog.add_user("owner@example.test", "$argon2id$…", UserPlan::Pro).await.unwrap();
    (catalog, owner)
}

/// Opens a catalog and adds a public dataset.
async fn with_dataset(database: &Database) -> (Catalog, DatasetId) {
    let (catalog, owner) = with_owner(database).await;
    let dataset = create(&catalog, owner, "World Countries").await.unwrap();
    (catalog, dataset.id)
}

fn name(text: &str) -> DatasetName {
    text.parse().unwrap()
}

fn new_dataset(owner: UserId, text: &str) -> NewDataset {
    NewDataset {
        owner,
        name: name(text),
        metadata: DatasetMetadata::default(),
        private_key: None,
        source: DatasetSource::Push,
        format: None,
        records_path: None,
        publish_query: false,
        infer_types: false,
        schedule: Some(DEFAULT_CRON_SCHEDULE.to_owned()),
        index: IndexSettings::default(),
        checks: None,
        ping_token: Secret::new_ping_token(rand::random::<[u8; SECRET_BYTES]>()),
    }
}

async fn create(catalog: &Catalog, owner: UserId, text: &str) -> Result<Dataset, CatalogError> {
    catalog.create_dataset(&new_dataset(owner, text), 1_000).await
}

fn file(path: &str) -> NewVersionFile {
    delta_file(path, &[])
}

fn delta_file(path: &str, bases: &[&str]) -> NewVersionFile {
    NewVersionFile {
        path: path.to_owned(),
        size_bytes: 91_234,
        entity_count: 250,
        content_hash: "c0ffee".to_owned(),
        bases: bases.iter().map(|base| (*base).to_owned()).collect(),
    }
}

fn v(number: u64) -> VersionNumber {
    VersionNumber::new(number)
}

/// Returns the outcome of a delivery with this response status, or without a response.
fn delivery_outcome(status: Option<u16>) -> DeliveryOutcome {
    DeliveryOutcome { duration: Some(Duration::from_millis(12)), response: status.ok_or("no answer".to_owned()) }
}

/// The duration of a lease that no test exceeds in real time.
const LEASE: Duration = Duration::from_secs(600);

/// Returns a manual clock.
fn clock() -> CatalogClock {
    CatalogClock::manual(DateTime::from_timestamp(1_800_000_000, 0).unwrap())
}

/// Refreshes the dataset with a new file, after waiting for other refreshes of it.
async fn publish(catalog: &Catalog, dataset: DatasetId, path: &str) -> Result<DatasetVersion, CatalogError> {
    publish_file(catalog, dataset, &file(path)).await
}

/// Like [`publish`], with a file that can have bases.
async fn publish_file(
    catalog: &Catalog,
    dataset: DatasetId,
    file: &NewVersionFile,
) -> Result<DatasetVersion, CatalogError> {
    let attempt = acquire(catalog, dataset, &file.path).await?;
    let published = catalog.publish_version(dataset, VersionContent::New(file), None, attempt).await?;
    Ok(published.version)
}

/// Acquires the lease on the dataset, after waiting for other refreshes of it.
async fn acquire(catalog: &Catalog, dataset: DatasetId, path: &str) -> Result<RefreshAttemptId, CatalogError> {
    loop {
        match catalog.acquire_refresh(dataset, RefreshTrigger::Import, path, LEASE).await {
            Err(CatalogError::RefreshRunning) => tokio::time::sleep(Duration::from_millis(1)).await,
            outcome => return Ok(outcome?.attempt),
        }
    }
}

async fn resolve(catalog: &Catalog, dataset: DatasetId, selector: &str) -> ResolvedDataset {
    catalog.resolve_read(dataset, selector.parse().unwrap()).await.unwrap().expect("the dataset exists")
}

async fn resolved_number(catalog: &Catalog, dataset: DatasetId, selector: &str) -> Option<u64> {
    let resolved = resolve(catalog, dataset, selector).await;
    resolved.version.map(|version| version.number.get())
}

async fn new_database_supports_concurrent_open(database: Database) {
    let mut handles = JoinSet::new();
    for number in 0..8 {
        let url = database.url.clone();
        handles.spawn(async move {
            let catalog = Catalog::open(&url).await?;
            catalog.check_writable().await?;
            let email = format!("user{number}@example.test");
            catalog.add_user(&email, "hash", UserPlan::Free).await
        });
    }
    let users: BTreeSet<UserId> = handles.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(users.len(), 8);
    assert_eq!(database.number("SELECT COUNT(*) FROM users").await, 8);
}

async fn records_survive_reopening(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let before = resolve(&catalog, dataset, "active").await;
    drop(catalog);

    let catalog = database.open().await;
    let after = resolve(&catalog, dataset, "active").await;
    assert_eq!(after, before);
    assert_eq!(after.version, Some(version));
}

async fn newer_database_is_rejected(database: Database) {
    database.open().await;
    database
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             SELECT 9999, 'from the future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1",
        )
        .await;
    let rejected = Catalog::open(&database.url).await;
    assert!(matches!(rejected, Err(CatalogError::Migration(_))), "{rejected:?}");
}

async fn email_is_unique_ignoring_case(database: Database) {
    let catalog = database.open().await;
    assert_eq!(catalog.user_by_email("ada@example.test").await.unwrap(), None);
    let id = catalog.add_user("Ada@Example.test", "$argon2id$1", UserPlan::Scale).await.unwrap();
    for taken in ["Ada@Example.test", "ada@example.TEST", " ada@example.test "] {
        let added = catalog.add_user(taken, "$argon2id$2", UserPlan::Free).await;
        assert!(matches!(added, Err(CatalogError::EmailTaken)), "{added:?}");
        let user = catalog.user_by_email(taken).await.unwrap().unwrap();
        assert_eq!(user.id, id);
        assert_eq!(user.email, "Ada@Example.test");
        assert_eq!(user.password_hash, "$argon2id$1");
        assert_eq!(user.plan, UserPlan::Scale);
    }

    // The database's own comparison would ignore case only in ASCII, or only with some locales.
    catalog.add_user("ÄRA@example.test", "h", UserPlan::Free).await.unwrap();
    let added = catalog.add_user("ära@example.test", "h", UserPlan::Free).await;
    assert!(matches!(added, Err(CatalogError::EmailTaken)), "{added:?}");
}

async fn token_name_is_unique_per_user(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    catalog.add_token(owner, "ci", "hash 1", 1_000).await.unwrap();
    catalog.add_token(owner, "laptop", "hash 2", 1_000).await.unwrap();
    catalog.add_token(other, "ci", "hash 3", 1_000).await.unwrap();

    let again = catalog.add_token(owner, "ci", "hash 4", 1_000).await;
    assert!(matches!(again, Err(CatalogError::TokenNameTaken)), "{again:?}");
    let orphan = catalog.add_token(UserId::new(999), "ci", "hash 5", 1_000).await;
    assert!(matches!(orphan, Err(CatalogError::NotFound)), "{orphan:?}");
    assert_eq!(
        database.texts("SELECT token_hash FROM api_tokens ORDER BY token_hash").await,
        ["hash 1", "hash 2", "hash 3"].map(|hash| Some(hash.to_owned()))
    );
}

async fn dataset_round_trips(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let new = NewDataset {
        private_key: Some(Secret::new_private_key([7; SECRET_BYTES])),
        source: DatasetSource::Url("https://example.test/x.json".to_owned()),
        format: Some(SourceFormat::Json),
        records_path: Some("data.items".to_owned()),
        publish_query: true,
        infer_types: true,
        metadata: DatasetMetadata { description: Some("Ä".to_owned()), license: Some("".to_owned()), listed: true },
        schedule: None,
        index: IndexSettings::try_new(&["a.b", "\u{0}\"\\."], &["ü"]).expect("failed to create index settings"),
        checks: Some(r#"{"required":["\u0000"]}"#.to_owned()),
        ..new_dataset(owner, "World Countries")
    };
    let dataset = catalog.create_dataset(&new, 1).await.unwrap();
    assert_eq!(dataset.owner, owner);
    assert_eq!(dataset.name, name("World Countries"));
    assert_eq!(dataset.name.slug(), "world-countries");
    assert_eq!(dataset.private_key, new.private_key);
    assert!(dataset.is_private());
    assert_eq!(dataset.source, new.source);
    assert_eq!(dataset.format, Some(SourceFormat::Json));
    assert_eq!(dataset.records_path.as_deref(), Some("data.items"));
    assert!(dataset.publish_query && dataset.infer_types);
    assert_eq!(dataset.metadata, new.metadata);
    assert_eq!(catalog.dataset_checks(dataset.id).await.unwrap(), new.checks);
    assert_eq!(dataset.schedule, None);
    assert_eq!(dataset.index, new.index);
    assert_eq!(dataset.ping_token, new.ping_token);
    assert_eq!(dataset.latest_version, None);
    assert_eq!(dataset.pinned_version, None);
    assert!(!dataset.frozen);

    assert_eq!(catalog.dataset(dataset.id).await.unwrap(), Some(dataset.clone()));
    assert_eq!(catalog.dataset_by_name(owner, &name("World Countries")).await.unwrap(), Some(dataset));

    let public = create(&catalog, owner, "Public").await.unwrap();
    assert!(!public.is_private());
    assert_eq!(public.source, DatasetSource::Push);
    assert_eq!(public.schedule.as_deref(), Some(DEFAULT_CRON_SCHEDULE));
    assert_eq!(catalog.dataset(public.id).await.unwrap(), Some(public));
}

async fn dataset_name_is_unique_per_owner(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    let first = create(&catalog, owner, "Films").await.unwrap();

    let again = create(&catalog, owner, "Films").await;
    assert!(matches!(again, Err(CatalogError::NameTaken)), "{again:?}");
    // Another name with the same slug is a different name.
    let similar = create(&catalog, owner, "films").await.unwrap();
    let others = create(&catalog, other, "Films").await.unwrap();
    assert_eq!(BTreeSet::from([first.id, similar.id, others.id]).len(), 3);

    for (user, text, expected) in [
        (owner, "Films", Some(first.id)),
        (owner, "films", Some(similar.id)),
        (other, "Films", Some(others.id)),
        (other, "films", None),
        (owner, "FILMS", None),
    ] {
        let found = catalog.dataset_by_name(user, &name(text)).await.unwrap();
        assert_eq!(found.map(|dataset| dataset.id), expected, "{text}");
    }
}

async fn hostile_strings_round_trip(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    for text in [
        "'; DROP TABLE datasets; --x",
        "$1 ?2 :name @x \\ \" ` %_",
        "naïve 東京 🦀 \u{10ffff}",
        " blanks around\t",
        &"長".repeat(DatasetName::MAX_CHARACTERS),
    ] {
        let dataset = create(&catalog, owner, text).await.unwrap();
        assert_eq!(dataset.name.as_str(), text);
        let found = catalog.dataset_by_name(owner, &name(text)).await.unwrap();
        assert_eq!(found, Some(dataset), "{text:?}");
    }
}

async fn plan_limits_active_datasets(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    for text in ["one", "two"] {
        catalog.create_dataset(&new_dataset(owner, text), 2).await.unwrap();
    }
    let third = catalog.create_dataset(&new_dataset(owner, "three"), 2).await;
    assert!(matches!(third, Err(CatalogError::TooManyDatasets { limit: 2 })), "{third:?}");
    assert_eq!(catalog.dataset_by_name(owner, &name("three")).await.unwrap(), None);
    // The datasets of other owners and frozen datasets do not count.
    catalog.create_dataset(&new_dataset(other, "three"), 1).await.unwrap();
    database.execute("UPDATE datasets SET frozen = (1 = 1) WHERE name = 'one'").await;
    catalog.create_dataset(&new_dataset(owner, "three"), 2).await.unwrap();
}

async fn plan_limit_holds_for_concurrent_creation(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let second = database.open().await;
    let mut creations = JoinSet::new();
    for number in 0..12 {
        let catalog = if number % 2 == 0 { &catalog } else { &second }.clone();
        creations
            .spawn(async move { catalog.create_dataset(&new_dataset(owner, &format!("dataset {number}")), 3).await });
    }
    let (created, rejected): (Vec<_>, Vec<_>) = creations.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(created.len(), 3);
    for outcome in rejected {
        assert!(matches!(outcome, Err(CatalogError::TooManyDatasets { limit: 3 })), "{outcome:?}");
    }
    assert_eq!(database.number("SELECT COUNT(*) FROM datasets").await, 3);
}

async fn name_is_checked_before_limit(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    catalog.create_dataset(&new_dataset(owner, "one"), 1).await.unwrap();
    let again = catalog.create_dataset(&new_dataset(owner, "one"), 1).await;
    assert!(matches!(again, Err(CatalogError::NameTaken)), "{again:?}");
}

async fn create_dataset_requires_owner(database: Database) {
    let catalog = database.open().await;
    for missing in [UserId::new(1), UserId::new(u64::MAX)] {
        let created = create(&catalog, missing, "one").await;
        assert!(matches!(created, Err(CatalogError::NotFound)), "{created:?}");
    }
}

async fn dataset_without_versions_resolves_to_none(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    for selector in ["active", "latest", "v0", "v1"] {
        let resolved = resolve(&catalog, dataset, selector).await;
        assert_eq!(resolved.dataset.id, dataset);
        assert_eq!(resolved.version, None, "{selector}");
    }
}

async fn unassigned_ids_find_nothing(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    for number in [0, dataset.get() + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        let id = DatasetId::new(number);
        assert_eq!(catalog.dataset(id).await.unwrap(), None, "{number}");
        let resolved = catalog.resolve_read(id, VersionSelector::Active).await.unwrap();
        assert_eq!(resolved, None, "{number}");
        let published = publish(&catalog, id, "b").await;
        assert!(matches!(published, Err(CatalogError::NotFound)), "{published:?}");
    }
    for selector in ["v0", "v2", "v9223372036854775808", "v99999999999999999999999"] {
        assert_eq!(resolved_number(&catalog, dataset, selector).await, None, "{selector}");
    }
}

async fn versions_are_numbered_and_newest_is_active(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let mut published = Vec::new();
    for (number, path) in [(1, "a"), (2, "b"), (3, "c")] {
        let version = publish(&catalog, dataset, path).await.unwrap();
        assert_eq!(version.dataset, dataset);
        assert_eq!(version.number, VersionNumber::new(number));
        assert_eq!(version.file.path, path);
        assert_eq!(version.file.size_bytes, 91_234);
        assert_eq!(version.file.entity_count, 250);
        assert_eq!(version.file.content_hash, "c0ffee");
        assert_eq!(version.alternate, None);
        for selector in ["active", "latest"] {
            let resolved = resolve(&catalog, dataset, selector).await;
            assert_eq!(resolved.dataset.latest_version, Some(version.number));
            assert_eq!(resolved.dataset.active_version(), Some(version.number));
            assert_eq!(resolved.version.as_ref(), Some(&version), "{selector}");
        }
        published.push(version);
    }
    for version in published {
        let selector = VersionSelector::Number(version.number).to_string();
        assert_eq!(resolve(&catalog, dataset, &selector).await.version, Some(version));
    }

    // Each dataset has its own numbers.
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&catalog, owner.id, "Other").await.unwrap();
    let version = publish(&catalog, other.id, "d").await.unwrap();
    assert_eq!(version.number, VersionNumber::new(1));
}

async fn pinned_version_stays_active(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    database.execute("UPDATE datasets SET pinned_version = 1, record_checksum = NULL").await;
    assert_eq!(resolved_number(&catalog, dataset, "active").await, Some(1));
    assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(2));

    publish(&catalog, dataset, "c").await.unwrap();
    assert_eq!(resolved_number(&catalog, dataset, "active").await, Some(1));
    assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(3));
    assert_eq!(resolved_number(&catalog, dataset, "v2").await, Some(2));
    let record = catalog.dataset(dataset).await.unwrap().unwrap();
    assert_eq!(record.pinned_version, Some(VersionNumber::new(1)));
    assert_eq!(record.active_version(), Some(VersionNumber::new(1)));

    database.execute("UPDATE datasets SET pinned_version = NULL, record_checksum = NULL").await;
    assert_eq!(resolved_number(&catalog, dataset, "active").await, Some(3));
}

async fn frozen_dataset_rejects_version(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    database.execute("UPDATE datasets SET frozen = (1 = 1), record_checksum = NULL").await;
    let published = publish(&catalog, dataset, "b").await;
    assert!(matches!(published, Err(CatalogError::Frozen)), "{published:?}");

    let resolved = resolve(&catalog, dataset, "latest").await;
    assert!(resolved.dataset.frozen);
    assert_eq!(resolved.dataset.latest_version, Some(VersionNumber::new(1)));
    assert_eq!(database.texts("SELECT path FROM files").await, [Some("a".to_owned())]);

    database.execute("UPDATE datasets SET frozen = (1 = 0), record_checksum = NULL").await;
    let version = publish(&catalog, dataset, "b").await.unwrap();
    assert_eq!(version.number, VersionNumber::new(2));
}

async fn alternate_is_resolved_with_version(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    publish(&catalog, dataset, "b").await.unwrap();
    database
        .execute(
            "INSERT INTO files (path, size_bytes, entity_count, content_hash, created_at)
             VALUES ('alt', 5, 6, 'abc', 0);
             UPDATE versions
             SET alt_file_id = (SELECT file_id FROM files WHERE path = 'alt'), record_checksum = NULL
             WHERE version_number = 1;",
        )
        .await;
    let version = resolve(&catalog, dataset, "v1").await.version.unwrap();
    assert_eq!(version.file.path, "a");
    let alt = version.alternate.expect("version 1 has an alternate");
    assert_eq!(alt.path, "alt");
    assert_eq!(alt.size_bytes, 5);
    assert_eq!(alt.entity_count, 6);
    assert_eq!(alt.content_hash, "abc");
    assert_ne!(alt.id, version.file.id);
    assert_eq!(resolve(&catalog, dataset, "v2").await.version.unwrap().alternate, None);
}

async fn versions_can_share_file(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    database
        .execute(
            "INSERT INTO versions (dataset_id, version_number, file_id, created_at)
             SELECT dataset_id, 2, file_id, 7 FROM versions;
             UPDATE datasets SET latest_version = 2, record_checksum = NULL;",
        )
        .await;
    let first = resolve(&catalog, dataset, "v1").await.version.unwrap();
    let second = resolve(&catalog, dataset, "latest").await.version.unwrap();
    assert_eq!(second.number, VersionNumber::new(2));
    assert_eq!(second.file, first.file);
    assert_eq!(second.created_at.timestamp_micros(), 7);
}

async fn file_is_found_by_content(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let owner = catalog.user_by_email("owner@example.test").await.unwrap().unwrap();
    let other = create(&catalog, owner.id, "Other").await.unwrap().id;
    let content = |path: &str, hash: &str| NewVersionFile { content_hash: hash.to_owned(), ..file(path) };
    let find = async |dataset, hash: &str| {
        catalog.file_with_content(dataset, hash).await.unwrap().map(|file: VersionFile| file.path)
    };
    assert_eq!(find(dataset, "x").await, None);
    for (path, hash) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z")] {
        publish_file(&catalog, dataset, &content(path, hash)).await.unwrap();
    }
    publish_file(&catalog, other, &content("other", "only here")).await.unwrap();
    catalog.reserve_file("alt", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(2), &content("alt", "alternate"), None).await.unwrap();
    for (hash, expected) in [("x", Some("c")), ("y", Some("b")), ("z", Some("d")), ("X", None), ("", None)] {
        assert_eq!(find(dataset, hash).await.as_deref(), expected, "{hash}");
    }
    // The content of another dataset or of an alternate does not count.
    assert_eq!(find(dataset, "only here").await, None);
    assert_eq!(find(dataset, "alternate").await, None);
    assert_eq!(find(DatasetId::new(u64::MAX), "x").await, None);
    let nul = catalog.file_with_content(dataset, "\0").await;
    assert!(matches!(nul, Err(CatalogError::NulCharacter { field: "content_hash" })), "{nul:?}");
}

async fn concurrent_publications_get_consecutive_numbers(database: Database) {
    let (first, dataset) = with_dataset(&database).await;
    let second = database.open().await;
    let mut publications = JoinSet::new();
    for number in 0..20 {
        let catalog = if number % 2 == 0 { &first } else { &second }.clone();
        publications.spawn(async move { publish(&catalog, dataset, &format!("file-{number}")).await });
    }
    let numbers: BTreeSet<u64> =
        publications.join_all().await.into_iter().map(|version| version.unwrap().number.get()).collect();
    assert_eq!(numbers, (1..=20).collect());
    assert_eq!(resolved_number(&first, dataset, "latest").await, Some(20));
    assert_eq!(resolved_number(&second, dataset, "active").await, Some(20));
}

async fn failed_publication_uses_no_number(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    let attempt = acquire(&catalog, dataset, "c").await.unwrap();
    let publish = async |file: &NewVersionFile, attempt| {
        catalog
            .publish_version(dataset, VersionContent::New(file), None, attempt)
            .await
            .map(|published| published.version)
    };

    // A path that is not reserved, or that is already recorded.
    for path in ["b", "a"] {
        let published = publish(&file(path), attempt).await;
        assert!(matches!(published, Err(CatalogError::ReservationLost)), "{published:?}");
    }
    // A recorded path that is reserved again.
    catalog.reserve_file("a", LEASE).await.unwrap();
    let published = publish(&file("a"), attempt).await;
    assert!(matches!(published, Err(CatalogError::Database(_))), "{published:?}");
    // A size that exceeds the range of the column.
    catalog.reserve_file("b", LEASE).await.unwrap();
    let published = publish(&NewVersionFile { size_bytes: u64::MAX, ..file("b") }, attempt).await;
    assert!(
        matches!(published, Err(CatalogError::OutOfRange { field: "size_bytes", value: u64::MAX })),
        "{published:?}"
    );
    // An attempt that does not exist.
    let published = publish(&file("b"), RefreshAttemptId::new(attempt.get() + 1)).await;
    assert!(matches!(published, Err(CatalogError::LeaseLost)), "{published:?}");

    assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(1));
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 1);
    assert_eq!(database.number("SELECT COUNT(*) FROM versions").await, 1);
    let version = publish(&file("b"), attempt).await.unwrap();
    assert_eq!(version.number, VersionNumber::new(2));
}

async fn canceled_publication_leaves_no_gap(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    for number in 0..40 {
        // Each iteration cancels the publication at another point, or after its end.
        let path = format!("file-{number}");
        let publication = publish(&catalog, dataset, &path);
        let timeout = async {
            let started_at = Instant::now();
            while started_at.elapsed() < Duration::from_micros(400 * number) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            version = publication => drop(version.unwrap()),
            () = timeout => {}
        }
        // The lease of a canceled publication expires, so that the next iteration takes over.
        clock.advance(LEASE);
    }

    let last = publish(&catalog, dataset, "last").await.unwrap();
    let recorded = database.number("SELECT COUNT(*) FROM versions").await;
    assert_eq!(i64::try_from(last.number.get()).unwrap(), recorded);
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, recorded);
    assert_eq!(database.number("SELECT COUNT(*) FROM refresh_attempts WHERE ok").await, recorded);
}

async fn change_is_visible_to_other_handle(database: Database) {
    let (writer, dataset) = with_dataset(&database).await;
    let reader = database.open().await;
    for number in 1..=30 {
        publish(&writer, dataset, &format!("file-{number}")).await.unwrap();
        for selector in ["active", "latest"] {
            assert_eq!(resolved_number(&reader, dataset, selector).await, Some(number));
        }
    }
}

/// Compares the lists of tables, columns, and their nullability, without the engines' own tables.
#[tokio::test]
async fn engines_have_same_tables_and_columns() {
    let sqlite = Database::sqlite().await;
    sqlite.open().await;
    let columns_sqlite = sqlite
        .texts(
            "SELECT t.name || '.' || c.name || ' '
                 || CASE c.type WHEN 'TEXT' THEN 'text' WHEN 'INTEGER' THEN 'number' ELSE c.type END
                 || CASE WHEN c.\"notnull\" OR c.pk > 0 THEN '' ELSE ' or null' END
             FROM sqlite_master t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '_sqlx_%'
             ORDER BY t.name, c.cid",
        )
        .await;

    let postgres = Database::postgres().await;
    postgres.open().await;
    let columns_postgres = postgres
        .texts(
            "SELECT table_name || '.' || column_name || ' '
                 || CASE data_type WHEN 'bigint' THEN 'number' WHEN 'boolean' THEN 'number' ELSE data_type END
                 || CASE is_nullable WHEN 'NO' THEN '' ELSE ' or null' END
             FROM information_schema.columns
             WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx\\_%'
             ORDER BY table_name, ordinal_position",
        )
        .await;

    assert_eq!(columns_sqlite, columns_postgres);
    let tables: BTreeSet<&str> =
        columns_sqlite.iter().flatten().filter_map(|column| Some(column.split_once('.')?.0)).collect();
    assert_eq!(
        tables.into_iter().collect::<Vec<_>>(),
        [
            "api_tokens",
            "dataset_usage",
            "datasets",
            "file_bases",
            "file_holds",
            "file_reservations",
            "files",
            "installation",
            "nodes",
            "refresh_attempts",
            "refresh_leases",
            "scrub_progress",
            "sessions",
            "usage_writers",
            "users",
            "versions",
            "webhook_deliveries",
            "webhooks",
            "write_probes"
        ]
    );
}

#[tokio::test]
async fn canceled_begin_leaves_no_transaction() {
    let database = Database::postgres().await;
    let (catalog, dataset) = with_dataset(&database).await;
    let other = database.open().await;
    for polls in [1, 1, 1, 2, 2, 3] {
        // The pool has an idle connection, so the call first waits for the response to `BEGIN`.
        catalog.check_writable().await.unwrap();
        {
            let mut view = std::pin::pin!(catalog.dataset_view(dataset));
            for _ in 0..polls {
                // A fast server might already have responded to everything.
                if futures::poll!(&mut view).is_ready() {
                    break;
                }
            }
        }
        // The interrupted connection returns to the pool.
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..2 {
            let number = publish(&other, dataset, &rand::random::<u64>().to_string()).await.unwrap().number.get();
            assert_eq!(resolved_number(&catalog, dataset, "latest").await, Some(number), "after {polls} polls");
        }
    }
}

#[test]
fn engines_have_same_migrations() {
    let names = |engine: &str| -> BTreeSet<_> {
        std::fs::read_dir(format!("{ROOT}/sql/{engine}")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert!(!names("sqlite").is_empty());
    assert_eq!(names("sqlite"), names("postgres"));
}

/// The first migration that can run while processes of the previous version still work.
const ROLLING_FROM: &str = "0002";

/// During a rolling update, processes of the previous version continue to use the tables. Therefore a migration may
/// only add tables, indexes, and columns that can be null or have a default. An index on an existing table must not be
/// unique, because the previous version does not expect conflicts.
#[test]
fn migrations_are_additive() {
    for engine in ["sqlite", "postgres"] {
        for entry in std::fs::read_dir(format!("{ROOT}/sql/{engine}")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap() < ROLLING_FROM {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code =
                text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
            for statement in code.split(';').map(|statement| statement.split_whitespace().collect::<Vec<_>>().join(" "))
            {
                assert!(statement.is_empty() || is_additive(&statement), "{}: {statement}", path.display());
            }
        }
    }
}

fn is_additive(statement: &str) -> bool {
    let statement = statement.to_ascii_uppercase();
    let column = statement.strip_prefix("ALTER TABLE ").and_then(|rest| rest.split_once(" ADD COLUMN "));
    match column {
        Some((_, column)) => {
            let required = column.contains(" NOT NULL") && !column.contains(" DEFAULT ");
            // The previous version inserts rows without the column, and does not know its constraints.
            !required
                && !column.contains(',')
                && [" UNIQUE", " REFERENCES", " CHECK"].iter().all(|rule| !column.contains(rule))
        }
        None => statement.starts_with("CREATE TABLE ") || statement.starts_with("CREATE INDEX "),
    }
}

#[test]
fn is_additive_rejects_other_statements() {
    for statement in [
        "CREATE TABLE a (b TEXT NOT NULL)",
        "CREATE INDEX a_by_b ON a (b)",
        "ALTER TABLE a ADD COLUMN b TEXT",
        "ALTER TABLE a ADD COLUMN b BIGINT NOT NULL DEFAULT 0",
    ] {
        assert!(is_additive(statement), "{statement}");
    }
    for statement in [
        "ALTER TABLE a ADD COLUMN b TEXT NOT NULL",
        "ALTER TABLE a ADD COLUMN b TEXT CHECK (b <> '')",
        "ALTER TABLE a DROP COLUMN b",
        "ALTER TABLE a RENAME COLUMN b TO c",
        "DROP TABLE a",
        "CREATE UNIQUE INDEX a_by_b ON a (b)",
        "UPDATE a SET b = 1",
        "DELETE FROM a",
        "INSERT INTO a (b) VALUES (1)",
    ] {
        assert!(!is_additive(statement), "{statement}");
    }
}

#[tokio::test]
async fn sqlite_path_is_not_decoded() {
    let directory = tempfile::tempdir().unwrap();
    for file_name in ["a b.db", "50%20?mode=ro.db", "ünïcode#1.db", "file:x.db"] {
        let path = directory.path().join("deep/er").join(file_name);
        for prefix in ["sqlite://", "sqlite:"] {
            let url = format!("{prefix}{}", path.display());
            Catalog::open(&url).await.unwrap().check_writable().await.unwrap();
        }
        assert!(path.is_file(), "{path:?}");
    }
}

#[tokio::test]
async fn sqlite_file_uses_wal_and_foreign_keys() {
    let database = Database::sqlite().await;
    let (catalog, dataset) = with_dataset(&database).await;
    assert_eq!(database.texts("PRAGMA journal_mode").await, [Some("wal".to_owned())]);
    let token = catalog.add_token(UserId::new(dataset.get() + 7), "ci", "hash", 1_000).await;
    assert!(matches!(token, Err(CatalogError::NotFound)), "{token:?}");
}

#[tokio::test]
async fn invalid_url_is_rejected_without_revealing_it() {
    for url in [
        "",
        "catalog.db",
        "mysql://user:sesame@localhost/db",
        "sqlite:",
        "sqlite://",
        "sqlite::memory:",
        "postgres://user:sesame@localhost:notaport/db",
    ] {
        let error = Catalog::open(url).await.expect_err(url);
        assert!(matches!(error, CatalogError::InvalidUrl { .. }), "{url}: {error:?}");
        assert!(!format!("{error:?} {error}").contains("sesame"), "{error:?}");
    }
}

#[tokio::test]
async fn directory_creation_error_names_path() {
    let directory = tempfile::tempdir().unwrap();
    let occupied = directory.path().join("occupied");
    std::fs::write(&occupied, "").unwrap();
    let url = format!("sqlite://{}/catalog.db", occupied.display());
    let rejected = Catalog::open(&url).await;
    assert!(matches!(rejected, Err(CatalogError::CreateDirectory { .. })), "{rejected:?}");
    let url = format!("sqlite://{}", directory.path().display());
    let error = Catalog::open(&url).await.expect_err("opened a directory").to_string();
    assert!(error.ends_with(": it is not a regular file"), "{error}");
}

#[tokio::test]
async fn moved_sqlite_file_is_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.sqlite");
    let away = directory.path().join("away");
    let options = CatalogOptions { wait_timeout: Duration::from_millis(200), ..CatalogOptions::default() };
    let catalog = Catalog::open_with_options(&format!("sqlite://{}", path.display()), &options).await.unwrap();
    for is_replaced in [false, true] {
        std::fs::rename(&path, &away).unwrap();
        if is_replaced {
            std::fs::copy(&away, &path).unwrap();
        }
        // The reads run at the same time, so that each uses its own connection.
        let reads: JoinSet<_> = (0..8)
            .map(|_| {
                let catalog = catalog.clone();
                async move { catalog.user(UserId::new(1)).await }
            })
            .collect();
        assert!(reads.join_all().await.into_iter().all(|read| matches!(read, Ok(None))));
        let error = catalog.check_writable().await.expect_err("wrote to a moved file");
        assert_eq!(error.unavailability(), Some(UnavailableReason::FileReplaced), "{error}");
        std::fs::rename(&away, &path).unwrap();
        catalog.check_writable().await.unwrap();
    }
}

//! The list of public datasets at the scale of a large service.

use std::time::{Duration, Instant};

use strata_testing::databases::{Raw, on_both_databases};

use super::{Database, create, publish, with_owner};

on_both_databases! {
    Database:
    a_hundred_thousand_datasets_are_listed_and_searched_in_bounded_work
    a_listing_whose_record_is_damaged_is_left_out
}

/// Copies of the dataset 1 with its version, all listed but one in a thousand.
async fn fill(database: &Database, datasets: u32) {
    let (series, truth) = match &database.raw {
        Raw::Sqlite { .. } => (
            format!("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {datasets})"),
            ("1", "0"),
        ),
        Raw::Postgres { .. } => (format!("WITH s AS (SELECT generate_series(1, {datasets}) AS n)"), ("TRUE", "FALSE")),
    };
    let (yes, no) = truth;
    let description = "the description of one dataset among very many, as long as people write them: ".repeat(3);
    database
        .execute(&format!(
            "INSERT INTO datasets (owner_id, name, name_slug, source, ping_token, created_at, description, listed,
                 folded_name, folded_description)
             {series} SELECT 1, 'Set ' || n, 'set-' || n, 'push', 'ping_' || n, 0, '{description}' || n,
                 CASE WHEN n % 1000 = 0 THEN {no} ELSE {yes} END, 'set ' || n, '{description}' || n FROM s;
             INSERT INTO versions (dataset_id, version_number, file_id, created_at)
             SELECT datasets.dataset_id, 1, versions.file_id, 7 FROM datasets, versions
             WHERE versions.dataset_id = 1 AND datasets.dataset_id <> 1;
             UPDATE datasets SET latest_version = 1 WHERE dataset_id <> 1;"
        ))
        .await;
}

async fn a_hundred_thousand_datasets_are_listed_and_searched_in_bounded_work(database: Database) {
    const DATASETS: u32 = 100_000;
    let (catalog, owner) = with_owner(&database).await;
    let first = create(&catalog, owner, "First").await.unwrap().id;
    publish(&catalog, first, "file").await.unwrap();
    fill(&database, DATASETS).await;
    let timed = async |query: Option<&str>, after: Option<u64>, limit: u32| {
        let started = Instant::now();
        let after = after.map(strata_types::ids::DatasetId::new);
        let found = catalog.listings(query, after, limit).await.unwrap();
        (found, started.elapsed())
    };
    let (page, took) = timed(None, None, 1_000).await;
    assert_eq!(page.len(), 1_000);
    assert!(page.is_sorted_by_key(|listing| listing.dataset.id));
    assert!(page.iter().all(|listing| listing.dataset.about.listed && listing.active.file.entity_count == 250));
    assert!(took < Duration::from_secs(2), "a page: {took:?}");
    let (last, took) = timed(None, Some(99_990), 1_000).await;
    assert!(!last.is_empty() && last.len() <= 12, "{}", last.len());
    assert!(took < Duration::from_secs(1), "the last page: {took:?}");
    // The whole list is looked through, since nothing matches.
    let (none, took) = timed(Some("no dataset has this"), None, 1_000).await;
    assert!(none.is_empty());
    assert!(took < Duration::from_secs(5), "a search in vain: {took:?}");
    let (one, took) = timed(Some("SET 77777"), None, 1_000).await;
    assert_eq!(one.iter().map(|listing| listing.dataset.name.as_str()).collect::<Vec<_>>(), ["Set 77777"]);
    assert!(took < Duration::from_secs(5), "a search: {took:?}");
    if let Raw::Sqlite { .. } = &database.raw {
        let plan = database
            .texts(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND name = 'datasets_listed'
                 AND sql LIKE '%WHERE listed AND private_key IS NULL AND NOT frozen AND latest_version IS NOT NULL%'",
            )
            .await;
        assert_eq!(plan.len(), 1);
    }
}

async fn a_listing_whose_record_is_damaged_is_left_out(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    for name in ["One", "Two", "Three"] {
        let id = create(&catalog, owner, name).await.unwrap().id;
        publish(&catalog, id, name).await.unwrap();
        let change = strata_types::dataset::DatasetChange { listed: Some(true), ..Default::default() };
        catalog.update_dataset(id, &change).await.unwrap();
    }
    database.execute("UPDATE datasets SET licence = 'forged' WHERE name = 'Two'").await;
    let found = catalog.listings(None, None, 10).await.unwrap();
    let names: Vec<&str> = found.iter().map(|listing| listing.dataset.name.as_str()).collect();
    assert_eq!(names, ["One", "Three"]);
}

//! The dataset list with as many datasets as a large service has.

use strata_testing::databases::{Raw, on_both_databases};

use super::{Database, create, publish, with_owner};

on_both_databases! {
    Database:
    listings_page_through_100000_datasets
    damaged_listing_is_skipped
}

/// Inserts copies of dataset 1 with its version. All of them are listed, except one in a thousand.
async fn fill(database: &Database, datasets: u32) {
    let (series, yes, no) = match &database.raw {
        Raw::Sqlite { .. } => {
            (format!("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {datasets})"), "1", "0")
        }
        Raw::Postgres { .. } => (format!("WITH s AS (SELECT generate_series(1, {datasets}) AS n)"), "TRUE", "FALSE"),
    };
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

async fn listings_page_through_100000_datasets(database: Database) {
    const DATASETS: u32 = 100_000;
    let (catalog, owner) = with_owner(&database).await;
    let first = create(&catalog, owner, "First").await.unwrap().id;
    publish(&catalog, first, "file").await.unwrap();
    fill(&database, DATASETS).await;
    let search = async |query: Option<&str>, after: Option<u64>, limit: u32| {
        let after = after.map(strata_types::ids::DatasetId::new);
        catalog.search_listed_datasets(query, after, limit).await.unwrap()
    };
    let page = search(None, None, 1_000).await;
    assert_eq!(page.len(), 1_000);
    assert!(page.is_sorted_by_key(|listing| listing.dataset.id));
    assert!(
        page.iter().all(|listing| listing.dataset.metadata.listed && listing.active_version.file.entity_count == 250)
    );
    let last = search(None, Some(99_990), 1_000).await;
    assert!(!last.is_empty() && last.len() <= 12, "{}", last.len());
    // Without a match, the query scans the whole list.
    assert_eq!(search(Some("no dataset has this"), None, 1_000).await, []);
    let one = search(Some("SET 77777"), None, 1_000).await;
    assert_eq!(one.iter().map(|listing| listing.dataset.name.as_str()).collect::<Vec<_>>(), ["Set 77777"]);
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

async fn damaged_listing_is_skipped(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    for name in ["One", "Two", "Three"] {
        let id = create(&catalog, owner, name).await.unwrap().id;
        publish(&catalog, id, name).await.unwrap();
        let change = strata_types::dataset::DatasetChange { listed: Some(true), ..Default::default() };
        catalog.update_dataset(id, &change).await.unwrap();
    }
    database.execute("UPDATE datasets SET licence = 'forged' WHERE name = 'Two'").await;
    let listings = catalog.search_listed_datasets(None, None, 10).await.unwrap();
    let names: Vec<&str> = listings.iter().map(|listing| listing.dataset.name.as_str()).collect();
    assert_eq!(names, ["One", "Three"]);
}

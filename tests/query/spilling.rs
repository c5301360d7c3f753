//! Queries that would spill more than their client may: the fault is not in the dataset.

use std::sync::Arc;

use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_http::params;
use strata_query::fetch::documents::SelectedDocuments;
use strata_query::{Engine, Outcome, QueryError, Tenant};
use strata_reference::Value;
use strata_testing::TestService;
use strata_testing::engines::Lab;

/// Texts that are equal for a long way, more than the least memory that queries may have.
fn long() -> Vec<String> {
    let filler = "x".repeat(700);
    (0..24_000_u64).map(|number| format!(r#"{{"n":{number},"v":"{filler}{:05}"}}"#, number * 7_919 % 24_000)).collect()
}

/// How many entities a query finds, with their documents put in order.
async fn found(engine: &Engine, reader: &VersionReader, query: &str) -> Result<u64, QueryError> {
    let request = Arc::new(params::parse(Some(query)).expect("a query").0);
    match engine.select(reader.clone(), request).await? {
        Outcome::Count(count) => Ok(count),
        Outcome::Selection(selection) => Ok(SelectedDocuments::of(engine, reader.clone(), selection).await?.len()),
    }
}

#[test]
fn what_others_have_spilled_is_told_from_what_is_too_much_for_ever() {
    let lab = Lab::new();
    let entities: Vec<Value> = long().iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    let reader = lab.reader(&entities, &WriteOptions { row_group_rows: 2_500, ..WriteOptions::default() });
    let tenants = |engine: &Engine| [1, 2].map(|key| engine.for_tenant(Tenant { key, anonymous: false }));
    let narrow = lab.engine_that_spills(8 << 20);
    let [other, own] = tenants(&narrow);
    let [_, wide] = tenants(&lab.engine_that_spills(1 << 30));
    // While rows are put in order, and when their documents are.
    for query in ["sort=v:desc&dedup=true", "sort=v"] {
        lab.bench.runtime.block_on(async {
            for _ in 0..2 {
                let outcome = found(&own, &reader, query).await;
                assert!(
                    matches!(outcome, Err(QueryError::TooMuchDisk { limit_bytes }) if limit_bytes == 4 << 20),
                    "{query}: {outcome:?}"
                );
            }
            assert_eq!(found(&wide, &reader, query).await.expect("room"), 24_000, "{query}");
        });
    }
    // Perhaps it has room when the other one has none.
    let query = "sort=v:desc&dedup=true";
    lab.bench.runtime.block_on(async {
        let held = other.spill("another's", &[0; 1_000]).await.expect("room");
        let outcome = found(&own, &reader, query).await;
        assert!(
            matches!(&outcome, Err(QueryError::OutOfDisk(told)) if told.contains("can currently spill only")),
            "{outcome:?}"
        );
        drop(held);
        assert!(matches!(found(&own, &reader, query).await, Err(QueryError::TooMuchDisk { .. })));
    });
}

#[tokio::test]
async fn a_client_is_told_that_the_disk_of_queries_is_too_small() {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(16 << 20);
        config.query.spill_bytes = 4 << 20;
        config.cache.memory_bytes = Some(1 << 20);
    })
    .await;
    service.import("Long", &long().join("\n")).await;
    for query in ["sort=v&format=jsonl", "sort=v:desc&dedup=true&format=csv"] {
        let answer = service.get(&format!("/api/1/long/v1/?{query}")).await;
        answer.is_error(400);
        assert!(answer.text().starts_with("The query needs more than 2359296 bytes of disk"), "{}", answer.text());
    }
    assert_eq!(service.get("/api/1/long/v1/?sort=n&limit=3").await.status, 200);
}

//! Queries that would spill more than their principal can. The dataset is not reported as damaged.

use std::sync::Arc;

use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_http::params;
use strata_query::fetch::selected_documents::SelectedDocuments;
use strata_query::{HashedPrincipal, QueryEngine, QueryError, QueryOutcome};
use strata_reference::Value;
use strata_testing::TestService;
use strata_testing::engines::EngineLab;

/// Strings with a long common prefix, larger than the minimum memory of queries.
fn long() -> Vec<String> {
    let filler = "x".repeat(700);
    (0..24_000_u64).map(|number| format!(r#"{{"n":{number},"v":"{filler}{:05}"}}"#, number * 7_919 % 24_000)).collect()
}

/// Returns the number of entities that a query selects, after sorting their documents.
async fn found(engine: &QueryEngine, reader: &VersionReader, query: &str) -> Result<u64, QueryError> {
    let request = Arc::new(params::parse_query(Some(query)).expect("a query").0);
    match engine.select(reader.clone(), request).await? {
        QueryOutcome::Count(count) => Ok(count),
        QueryOutcome::Selection(selection) => {
            Ok(SelectedDocuments::open(engine, reader.clone(), selection).await?.len())
        }
    }
}

#[test]
fn spill_quota_in_use_differs_from_too_small() {
    let lab = EngineLab::new();
    let entities: Vec<Value> = long().iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    let reader = lab.reader(&entities, &WriteOptions { max_row_group_rows: 2_500, ..WriteOptions::default() });
    let principals =
        |engine: &QueryEngine| [1, 2].map(|key| engine.for_principal(HashedPrincipal { key, is_anonymous: false }));
    let limited = lab.engine_that_spills(8 << 20);
    let [other, principal] = principals(&limited);
    let [_, wide] = principals(&lab.engine_that_spills(1 << 30));
    // While rows are sorted, and while their documents are sorted.
    for query in ["sort=v:desc&dedup=true", "sort=v"] {
        lab.bench.runtime.block_on(async {
            for _ in 0..2 {
                let outcome = found(&principal, &reader, query).await;
                assert!(
                    matches!(outcome, Err(QueryError::TooMuchDisk { limit_bytes }) if limit_bytes == 4 << 20),
                    "{query}: {outcome:?}"
                );
            }
            assert_eq!(found(&wide, &reader, query).await.expect("room"), 24_000, "{query}");
        });
    }
    // The query might fit when the other principal uses no space.
    let query = "sort=v:desc&dedup=true";
    lab.bench.runtime.block_on(async {
        let held = other.spill_bytes("another's", &[0; 1_000]).await.expect("room");
        let outcome = found(&principal, &reader, query).await;
        assert!(
            matches!(&outcome, Err(QueryError::OutOfDisk(message)) if message.contains("can currently spill only")),
            "{outcome:?}"
        );
        drop(held);
        assert!(matches!(found(&principal, &reader, query).await, Err(QueryError::TooMuchDisk { .. })));
    });
}

#[tokio::test]
async fn query_over_spill_limit_returns_400() {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(16 << 20);
        config.query.spill_bytes = 4 << 20;
        config.cache.memory_bytes = Some(1 << 20);
    })
    .await;
    service.import("Long", &long().join("\n")).await;
    for query in ["sort=v&format=jsonl", "sort=v:desc&dedup=true&format=csv"] {
        let response = service.get(&format!("/api/1/long/v1/?{query}")).await;
        response.is_error(400);
        assert!(response.text().starts_with("The query needs more than 2359296 bytes of disk"), "{}", response.text());
    }
    assert_eq!(service.get("/api/1/long/v1/?sort=n&limit=3").await.status, 200);
}

//! A version file with arbitrary entities, and a query over it. The input is a byte that selects the layout, a line
//! with a query string, and one entity on each further line.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_http::params::PARAMETERS;
use strata_query::fetch::selected_documents;
use strata_query::{QueryEngine, QueryEngineOptions, QueryOutcome};
use strata_reference::query;
use strata_reference::{Value, pipeline, rules};
use strata_types::read_request::ReadRequest;

use super::bench::{FileBench, layout};
use crate::harness::{line, text};

static BENCH: LazyLock<FileBench> = LazyLock::new(FileBench::new);
static ENGINE: LazyLock<QueryEngine> = LazyLock::new(|| {
    QueryEngine::try_new(&QueryEngineOptions {
        threads: 1,
        memory_bytes: 256 << 20,
        timeout: Duration::from_secs(60),
        diff_timeout: Duration::from_secs(60),
        spill_directory: Some(std::env::temp_dir()),
        spill_bytes: 64 << 20,
        disk_reserve: None,
        shares: strata_query::PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
    })
    .expect("an engine")
});

pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let (query, rest) = line(text(rest));
    let entities: Vec<Value> = rest.lines().take(12).filter_map(|entity| Value::parse_entity(entity).ok()).collect();
    let documents: Vec<String> = entities.iter().map(Value::write).collect();
    let (path, written) = BENCH.write(&documents, &layout(*choice));
    assert_eq!(written.entity_count, entities.len() as u64);

    let cache = PartCache::new(0);
    let read = async {
        let reader = VersionReader::open(&BENCH.store, &path, written.size_bytes, &cache).await.expect("opened");
        check_documents(&reader, &entities, &documents).await;
        if let Some(Ok((request, _))) =
            query::parse(query, |name| PARAMETERS.iter().any(|parameter| parameter.name == name))
        {
            check_selection(reader, &entities, ReadRequest { sample: None, ..request }).await;
        }
    };
    BENCH.runtime.block_on(read);
    BENCH.remove(&path);
}

/// Checks that the documents are the same bytes, and that hashes are equal if the entities are.
async fn check_documents(reader: &VersionReader, entities: &[Value], documents: &[String]) {
    let mut found = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        for page in 0..reader.page_count(row_group) {
            let page = reader.read_document_page(row_group, page).await.expect("documents");
            found.extend(page.rows().map(|row| String::from_utf8_lossy(page.document(row)).into_owned()));
        }
    }
    assert_eq!(found, documents);
    for (one, left) in entities.iter().zip(documents) {
        for (other, right) in entities.iter().zip(documents) {
            let same = strata_json::CanonicalFormWriter::default().hash_without_source_field(left.as_bytes())
                == strata_json::CanonicalFormWriter::default().hash_without_source_field(right.as_bytes());
            assert_eq!(
                same,
                rules::equal(&rules::strip_source(one), &rules::strip_source(other)),
                "{left} and {right}"
            );
        }
    }
}

/// Checks that the engine selects the same entities as the reference, in the same order.
async fn check_selection(reader: VersionReader, entities: &[Value], request: ReadRequest) {
    // Positions distinguish entities that are equal after the request has reshaped them.
    let expected = expected_positions(entities, &request);
    match ENGINE.select(reader.clone(), Arc::new(request.clone())).await.expect("selected") {
        QueryOutcome::Count(count) => assert_eq!(count, expected.len() as u64, "{request:?}"),
        QueryOutcome::Selection(selection) => {
            assert_eq!(selection.len(), expected.len() as u64, "{request:?}");
            let mut found = Vec::new();
            for chunk in selected_documents::selection_chunks(&reader, selection.len()) {
                let each = |document: &[u8]| {
                    found.push(String::from_utf8_lossy(document).into_owned());
                    ControlFlow::Continue(())
                };
                selected_documents::for_each_document(&reader, selection.positions(), &chunk, each)
                    .await
                    .expect("read");
            }
            let expected: Vec<String> = expected.iter().map(|position| entities[*position].write()).collect();
            assert_eq!(found, expected, "{request:?}");
        }
    }
}

/// Returns the positions that a request selects according to the reference. Each entity is identified by its position.
fn expected_positions(entities: &[Value], request: &ReadRequest) -> Vec<usize> {
    let whole = ReadRequest { offset: 0, limit: None, ..request.clone() };
    // Filters treat each entity separately. Sorting and `dedup` apply to the entities that pass.
    let selected = pipeline::selected(entities, &whole);
    let reshaped = pipeline::reshaped(entities, &whole);
    let passes = |position: usize| {
        let alone = std::slice::from_ref(&entities[position]);
        !pipeline::selected(alone, &ReadRequest { dedup: false, sort: None, ..whole.clone() }).is_empty()
    };
    let mut left: Vec<usize> = (0..entities.len()).filter(|position| passes(*position)).collect();
    // The sort is stable and `dedup` retains the first entity, so the earlier one of equal entities comes first.
    let mut positions = Vec::new();
    for entity in selected {
        let place = left.iter().position(|position| reshaped[*position] == entity).expect("it was selected");
        positions.push(left.remove(place));
    }
    let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    positions.into_iter().skip(offset).take(limit).collect()
}

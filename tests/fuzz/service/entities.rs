//! Any entities as a version file, then a query over it. The input: a byte that chooses the layout, a line with a query
//! string, then an entity on each line.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::AsArray;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_http::params::PARAMETERS;
use strata_query::fetch::documents;
use strata_query::{Engine, EngineOptions, Outcome};
use strata_reference::query;
use strata_reference::{Value, pipeline, rules};
use strata_types::request::ReadRequest;

use super::bench::{Bench, layout};
use crate::harness::{line, text};

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::try_new(&EngineOptions {
        threads: 1,
        memory_bytes: 256 << 20,
        timeout: Duration::from_secs(60),
        diff_timeout: Duration::from_secs(60),
        spill_directory: Some(std::env::temp_dir()),
        spill_bytes: 64 << 20,
        disk_reserve: None,
        shares: strata_query::TenantShares { one_percent: 100, anonymous_percent: 100 },
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
        holds(&reader, &entities, &documents).await;
        if let Some(Ok((request, _))) =
            query::parse(query, |name| PARAMETERS.iter().any(|parameter| parameter.name == name))
        {
            selects(reader, &entities, ReadRequest { sample: None, ..request }).await;
        }
    };
    BENCH.runtime.block_on(read);
    BENCH.remove(&path);
}

/// The documents come back byte for byte, with search texts and hashes as the reference says.
async fn holds(reader: &VersionReader, entities: &[Value], documents: &[String]) {
    let mut found = Vec::new();
    for (row_group, place) in reader.row_groups().iter().enumerate() {
        let first = place.first as usize;
        let search = reader.search(row_group).await.expect("search texts");
        let texts: Vec<&[u8]> = search.as_binary::<i32>().iter().flatten().collect();
        let expected: Vec<Vec<u8>> = entities[first..first + place.rows].iter().map(rules::search_text).collect();
        assert_eq!(texts, expected);
        for page in 0..reader.page_count(row_group) {
            let page = reader.documents(row_group, page).await.expect("documents");
            found.extend(page.rows().map(|row| String::from_utf8_lossy(page.document(row)).into_owned()));
        }
    }
    assert_eq!(found, documents);
    for (one, left) in entities.iter().zip(documents) {
        for (other, right) in entities.iter().zip(documents) {
            let same = strata_json::CanonicalForm::default().hash(left.as_bytes())
                == strata_json::CanonicalForm::default().hash(right.as_bytes());
            assert_eq!(
                same,
                rules::equal(&rules::strip_source(one), &rules::strip_source(other)),
                "{left} and {right}"
            );
        }
    }
}

/// The engine selects the entities that the reference selects, in its order.
async fn selects(reader: VersionReader, entities: &[Value], request: ReadRequest) {
    // Numbered, so that the reference's entities are told apart after they were reshaped.
    let expected = positions(entities, &request);
    match ENGINE.select(reader.clone(), Arc::new(request.clone())).await.expect("selected") {
        Outcome::Count(count) => assert_eq!(count, expected.len() as u64, "{request:?}"),
        Outcome::Selection(selection) => {
            assert_eq!(selection.len(), expected.len() as u64, "{request:?}");
            let mut found = Vec::new();
            for unit in documents::units(&reader, selection.len()) {
                let each = |document: &[u8]| {
                    found.push(String::from_utf8_lossy(document).into_owned());
                    ControlFlow::Continue(())
                };
                documents::for_each(&reader, selection.positions(), &unit, each).await.expect("read");
            }
            let expected: Vec<String> = expected.iter().map(|position| entities[*position].write()).collect();
            assert_eq!(found, expected, "{request:?}");
        }
    }
}

/// The positions that a request selects, by the rules on trees: each step over all entities, each entity known by the
/// place that it has.
fn positions(entities: &[Value], request: &ReadRequest) -> Vec<usize> {
    let whole = ReadRequest { offset: 0, limit: None, ..request.clone() };
    // What a single entity passes does not depend on the others; order and repetition are those of the survivors.
    let selected = pipeline::selected(entities, &whole);
    let reshaped = pipeline::reshaped(entities, &whole);
    let passes = |position: usize| {
        let alone = std::slice::from_ref(&entities[position]);
        !pipeline::selected(alone, &ReadRequest { dedup: false, sort: None, ..whole.clone() }).is_empty()
    };
    let mut left: Vec<usize> = (0..entities.len()).filter(|position| passes(*position)).collect();
    // The sort is stable and dedup keeps the first, so of entities that look the same the earlier comes first.
    let mut positions = Vec::new();
    for entity in selected {
        let place = left.iter().position(|position| reshaped[*position] == entity).expect("it was selected");
        positions.push(left.remove(place));
    }
    let skipped = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let most = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    positions.into_iter().skip(skipped).take(most).collect()
}

//! Filters on any path from search text and shapes: exact whatever the entities, and without documents.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::shapes::builder::ShapeLimits;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions};
use strata_query::scan::report::{AccessName, KeywordIndexUse, PredicateUse, ScanUse, ShapeUse};
use strata_reference::Value;
use strata_testing::engines::{Lab as Engines, hundred};
use strata_testing::reads::{Lab, cases, entities, no_failure, plan};
use strata_testing::versions::{nothing_shredded, segments, shapes, some_segments};
use strata_types::index::IndexSettings;
use strata_types::path::Path;
use strata_types::request::{Format, PathValue, ReadRequest, Sort};

#[test]
fn filters_are_exact_over_any_shapes() {
    let labs = [Lab::without_cache(1), Lab::with_threads(2), Lab::new(|config| config.query.threads = 2)];
    let plans = vec((plan(), 0..4_usize, any::<Index>()), 12..24);
    let ways = (0..4_usize, 0..6_usize, 0..3_usize, 0..4_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(20), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans, ways), |(entities, plans, (rows, size, lab, limits))| {
        let options = WriteOptions {
            row_group_rows: [1, 3, 7, ROW_GROUP_ROWS][rows],
            keywords: some_segments(size),
            shredding: nothing_shredded(),
            // Some leave row groups out.
            shapes: [
                shapes(),
                shapes(),
                ShapeLimits { paths: 6, ..shapes() },
                ShapeLimits { raw_bytes: 90, ..shapes() },
            ][limits],
            ..WriteOptions::default()
        };
        let version = labs[lab].publish(&entities, &options);
        for (plan, kind, place) in &plans {
            let mut request = plan.resolve(&entities);
            // Texts that are there, in places where they are not, too.
            let mut filters: Vec<PathValue> =
                request.filters.drain(..).chain(request.filters_contain.drain(..)).collect();
            if filters.len() > 1 {
                let at = place.index(filters.len());
                let value = filters[at].value.clone();
                filters[0].value = value;
            }
            match kind {
                0 => request.filters = filters,
                1 => request.filters_contain = filters,
                2 => {
                    request.filters = filters.drain(..filters.len() / 2).collect();
                    request.filters_contain = filters;
                }
                _ => {
                    let words =
                        filters.iter().map(|filter| filter.value.replace(',', "").trim_matches([' ', '\t']).to_owned());
                    request.keywords.extend(words.filter(|word| !word.is_empty()));
                    request.include_source &= place.index(2) == 0;
                }
            }
            request.sort = None::<Sort>;
            request.dedup = false;
            request.format = Format::Jsonl;
            labs[lab].check(version, &entities, &request)?;
        }
        Ok(())
    });
    no_failure(result);
}

/// A hundred entities with the same words at several paths, of several shapes.
fn things() -> Vec<Value> {
    hundred(|number, rare| {
        let text = format!(
            r#"{{"name":"{rare} n{number}","other":[null,"zebra {}",{{"deep":"ZEBRA"}}],"size":{},"none":{},"_source":"horse"}}"#,
            number % 3,
            ["1.0", "1", "\"1\"", "2", "10e-1"][number % 5],
            ["null", "\"null\"", "\"\""][number % 3],
        );
        Value::parse_entity(&text).expect("an entity")
    })
}

fn count(lab: &Engines, reader: &VersionReader, request: ReadRequest) -> (u64, ScanUse, Arc<ReaderMetrics>) {
    lab.scan(reader, ReadRequest { count: true, ..request })
}

fn on(path: &str, value: &str) -> Vec<PathValue> {
    vec![PathValue { path: Path::parse(path).expect("a path"), value: value.to_owned() }]
}

#[test]
fn what_shapes_did_is_told() {
    let lab = Engines::new();
    let options = WriteOptions {
        row_group_rows: 10,
        keywords: segments(40),
        shredding: nothing_shredded(),
        shapes: shapes(),
        ..WriteOptions::default()
    };
    let reader = lab.reader(&things(), &options);
    // What is in memory is searched, however few documents would tell, too.
    lab.bench.runtime.block_on(async {
        for row_group in 0..10 {
            reader.search(row_group).await.expect("search text");
        }
    });
    let check = |request: ReadRequest, expected: u64, settled: u64| {
        let (found, used, metrics) = count(&lab, &reader, request);
        let PredicateUse { access, shapes, .. } = &used.predicates[0];
        assert_eq!((found, *access), (expected, AccessName::SearchTextAndShapes), "{used:?}");
        assert_eq!(shapes, &Some(ShapeUse { settled, left_to_documents: 0 }), "{used:?}");
        assert_eq!((used.verification.clone(), metrics.documents.get().misses), (None, 0), "{used:?}");
        used
    };
    let contains = |path, value| ReadRequest { filters_contain: on(path, value), ..ReadRequest::default() };
    let equals = |path, value| ReadRequest { filters: on(path, value), ..ReadRequest::default() };
    let used = check(contains("name", "Zebra"), 1, 10);
    assert_eq!(
        used.predicates[0].keyword_index,
        Some(KeywordIndexUse { exact: 10, candidates: 0, left_to_scan: 0, rows: 100 })
    );
    check(contains("other", "zebra"), 100, 10);
    check(contains("other.deep", "zebra"), 100, 10);
    check(contains("other.none", "zebra"), 0, 10);
    check(equals("other", "ZEBRA 2"), 33, 10);
    check(equals("other.deep", "zebra"), 100, 10);
    check(equals("name", "zebra"), 0, 10);
    // The index leaves row groups out.
    check(equals("name", "zebra n57"), 1, 1);
    // No text tells numbers, nulls and any text.
    check(equals("size", "1"), 80, 10);
    check(equals("size", "1.0"), 60, 10);
    check(equals("size", "10E-1"), 60, 10);
    check(equals("size", "3"), 0, 10);
    check(equals("none", "Null"), 67, 10);
    check(equals("none", "null"), 67, 10);
    check(contains("none", ""), 66, 10);
    check(ReadRequest { denull: true, ..contains("none", "") }, 33, 10);
    check(ReadRequest { denull: true, ..equals("none", "") }, 0, 10);
    // Fields that are hidden are not searched.
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let hidden = ReadRequest { include_source: false, keywords: words(&["horse"]), ..ReadRequest::default() };
    check(hidden, 99, 10);
    let kept = vec![Path::parse("name").expect("a path")];
    check(ReadRequest { keep: kept.clone(), keywords: words(&["zebra"]), ..ReadRequest::default() }, 1, 10);
    check(ReadRequest { drop: kept, keywords: words(&["n57", "n58"]), ..ReadRequest::default() }, 0, 1);
}

#[test]
fn documents_settle_at_once_what_is_left_of_many_comparisons() {
    let lab = Engines::new();
    // Nine filters by shredded columns are no reason to read documents.
    for shredded in [false, true] {
        let options = WriteOptions {
            row_group_rows: 10,
            shredding: nothing_shredded(),
            index: IndexSettings::try_new(&["_source"][..usize::from(shredded)], &[]).expect("an index"),
            shapes: shapes(),
            ..WriteOptions::default()
        };
        let reader = lab.reader(&things(), &options);
        lab.bench.runtime.block_on(async {
            for row_group in 0..10 {
                reader.search(row_group).await.expect("search text");
            }
        });
        let numbers = (1..=12).flat_map(|zeros| on("size", &format!("1.{}", "0".repeat(zeros))));
        let parts = ["h", "o", "r", "s", "e", "ho", "or", "rs", "se"].into_iter().filter(|_| shredded);
        let filters_contain = parts.flat_map(|part| on("_source", part)).collect();
        let request = ReadRequest { filters: numbers.collect(), filters_contain, ..ReadRequest::default() };
        let (found, used, _) = count(&lab, &reader, request);
        let told: Vec<_> = used.predicates.iter().filter_map(|used| used.shapes.clone()).collect();
        let searched = ShapeUse { settled: 10, left_to_documents: 0 };
        let left = ShapeUse { settled: 0, left_to_documents: 10 };
        assert_eq!((found, &told[..8], &told[8..]), (60, &vec![searched; 8][..], &vec![left; 4][..]), "{used:?}");
    }
}

#[test]
fn few_candidates_of_a_cold_row_group_are_left_to_documents() {
    let lab = Engines::new();
    // Long texts, so that the search text of a row group is more than a page of documents.
    let entity = |number: usize| {
        let text: String = (0..300).map(|at| format!("word{} ", (number * 31 + at * at) % 97)).collect();
        Value::parse_entity(&format!(r#"{{"text":"{text}","n":{number},"word":"w{number}"}}"#)).expect("an entity")
    };
    let entities: Vec<Value> = (0..2_000).map(entity).collect();
    let options = WriteOptions {
        keywords: segments(ROW_GROUP_ROWS),
        shredding: nothing_shredded(),
        shapes: shapes(),
        ..WriteOptions::default()
    };
    let reader = lab.reader(&entities, &options);
    let request = ReadRequest { filters: on("word", "W1234"), ..ReadRequest::default() };
    let (found, used, metrics) = count(&lab, &reader, request.clone());
    assert_eq!((found, &used.predicates[0].shapes), (1, &Some(ShapeUse { settled: 0, left_to_documents: 1 })));
    assert_eq!((used.verification.map(|verified| verified.rows_in), metrics.columns.get().misses), (Some(1), 0));
    lab.bench.runtime.block_on(reader.search(0)).expect("search text");
    let (found, used, metrics) = count(&lab, &reader, request);
    assert_eq!((found, &used.predicates[0].shapes), (1, &Some(ShapeUse { settled: 1, left_to_documents: 0 })));
    assert_eq!((metrics.documents.get().hits, metrics.documents.get().misses, metrics.shapes.get().misses), (0, 0, 1));
}

#[test]
fn versions_without_shapes_read_documents() {
    let lab = Engines::new();
    let options = WriteOptions { row_group_rows: 10, shredding: nothing_shredded(), ..WriteOptions::default() };
    let reader = lab.reader(&things(), &options);
    assert!(reader.shape_index().is_empty());
    let (found, used, _) = count(&lab, &reader, ReadRequest { filters: on("size", "1"), ..ReadRequest::default() });
    assert_eq!((found, used.predicates[0].access, &used.predicates[0].shapes), (80, AccessName::Documents, &None));
    let request = ReadRequest { filters_contain: on("name", "zebra"), ..ReadRequest::default() };
    let (found, used, _) = count(&lab, &reader, request);
    assert_eq!((found, used.predicates[0].access), (1, AccessName::SearchTextThenDocuments));
}

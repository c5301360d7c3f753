//! Filters on any path by the full-text column and the path index: exact for any entities, and without documents.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::path_index::builder::PathIndexLimits;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_query::scan::scan_report::{AccessPath, KeywordIndexReport, PathIndexReport, PredicateReport, ScanReport};
use strata_reference::Value;
use strata_testing::engines::{EngineLab, hundred};
use strata_testing::reads::{ServiceLab, cases, entities, no_failure, plan};
use strata_testing::versions::{nothing_shredded, segments, shapes, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::IndexSettings;
use strata_types::read_request::{PathValue, ReadRequest, ResponseFormat, SortField};

#[test]
fn filters_over_any_structures_match_reference() {
    let labs =
        [ServiceLab::without_cache(1), ServiceLab::with_threads(2), ServiceLab::new(|config| config.query.threads = 2)];
    let plans = vec((plan(), 0..4_usize, any::<Index>()), 12..24);
    let ways = (0..4_usize, 0..6_usize, 0..3_usize, 0..4_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(20), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans, ways), |(entities, plans, (rows, size, lab, limits))| {
        let options = WriteOptions {
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            keyword_limits: some_segments(size),
            shredding_limits: nothing_shredded(),
            // Some limits leave row groups without a path index.
            path_index_limits: [
                shapes(),
                shapes(),
                PathIndexLimits { max_paths: 6, ..shapes() },
                PathIndexLimits { max_raw_bytes: 90, ..shapes() },
            ][limits],
            ..WriteOptions::default()
        };
        let version = labs[lab].publish(&entities, &options);
        for (plan, kind, place) in &plans {
            let mut request = plan.resolve(&entities);
            // Also existing texts at other paths.
            let mut filters: Vec<PathValue> =
                request.filters.drain(..).chain(request.contains_filters.drain(..)).collect();
            if filters.len() > 1 {
                let at = place.index(filters.len());
                let value = filters[at].value.clone();
                filters[0].value = value;
            }
            match kind {
                0 => request.filters = filters,
                1 => request.contains_filters = filters,
                2 => {
                    request.filters = filters.drain(..filters.len() / 2).collect();
                    request.contains_filters = filters;
                }
                _ => {
                    let words =
                        filters.iter().map(|filter| filter.value.replace(',', "").trim_matches([' ', '\t']).to_owned());
                    request.keywords.extend(words.filter(|word| !word.is_empty()));
                    request.include_source &= place.index(2) == 0;
                }
            }
            request.sort = None::<SortField>;
            request.dedup = false;
            request.format = ResponseFormat::Jsonl;
            labs[lab].check(version, &entities, &request)?;
        }
        Ok(())
    });
    no_failure(result);
}

/// A hundred entities with the same words at several paths, with several structures.
fn hundred_entities() -> Vec<Value> {
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

fn count(lab: &EngineLab, reader: &VersionReader, request: ReadRequest) -> (u64, ScanReport, Arc<ReaderMetrics>) {
    lab.scan(reader, ReadRequest { count: true, ..request })
}

fn on(path: &str, value: &str) -> Vec<PathValue> {
    vec![PathValue { path: FieldPath::parse(path).expect("a path"), value: value.to_owned() }]
}

#[test]
fn path_index_use_is_reported() {
    let lab = EngineLab::new();
    let options = WriteOptions {
        max_row_group_rows: 10,
        keyword_limits: segments(40),
        shredding_limits: nothing_shredded(),
        path_index_limits: shapes(),
        ..WriteOptions::default()
    };
    let reader = lab.reader(&hundred_entities(), &options);
    // Cached full-text columns are searched, even if reading a few documents would suffice.
    lab.bench.runtime.block_on(async {
        for row_group in 0..10 {
            reader.read_full_text(row_group).await.expect("search text");
        }
    });
    let check = |request: ReadRequest, expected: u64, settled: u64| {
        let (found, report, metrics) = count(&lab, &reader, request);
        let PredicateReport { access, shapes, .. } = &report.predicates[0];
        assert_eq!((found, *access), (expected, AccessPath::SearchTextAndShapes), "{report:?}");
        assert_eq!(shapes, &Some(PathIndexReport { settled, left_to_documents: 0 }), "{report:?}");
        assert_eq!((report.verification.clone(), metrics.documents.load().misses), (None, 0), "{report:?}");
        report
    };
    let contains = |path, value| ReadRequest { contains_filters: on(path, value), ..ReadRequest::default() };
    let equals = |path, value| ReadRequest { filters: on(path, value), ..ReadRequest::default() };
    // The keyword index decides about a part of a word at a path.
    let report = check(contains("name", "Zebra"), 1, 0);
    assert_eq!(
        report.predicates[0].keyword_index,
        Some(KeywordIndexReport { exact: 10, candidates: 0, left_to_scan: 0, rows: 1 })
    );
    check(contains("other", "zebra"), 100, 0);
    check(contains("other.deep", "zebra"), 100, 0);
    check(contains("other.none", "zebra"), 0, 0);
    check(equals("other", "ZEBRA 2"), 33, 10);
    check(equals("other.deep", "zebra"), 100, 10);
    // The keyword index prunes the row groups of segments without this token in the name.
    check(equals("name", "zebra"), 0, 4);
    // The keyword index prunes row groups.
    check(equals("name", "zebra n57"), 1, 1);
    // Numbers, nulls and any string have no text to search for.
    check(equals("size", "1"), 80, 10);
    check(equals("size", "1.0"), 60, 10);
    check(equals("size", "10E-1"), 60, 10);
    check(equals("size", "3"), 0, 10);
    check(equals("none", "Null"), 67, 10);
    check(equals("none", "null"), 67, 10);
    check(contains("none", ""), 66, 10);
    check(ReadRequest { denull: true, ..contains("none", "") }, 33, 10);
    check(ReadRequest { denull: true, ..equals("none", "") }, 0, 10);
    // Hidden fields are not searched.
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let hidden = ReadRequest { include_source: false, keywords: words(&["horse"]), ..ReadRequest::default() };
    check(hidden, 99, 0);
    let kept = vec![FieldPath::parse("name").expect("a path")];
    check(ReadRequest { keep_fields: kept.clone(), keywords: words(&["zebra"]), ..ReadRequest::default() }, 1, 0);
    check(ReadRequest { drop_fields: kept, keywords: words(&["n57", "n58"]), ..ReadRequest::default() }, 0, 0);
}

#[test]
fn documents_verify_remaining_comparisons_at_once() {
    let lab = EngineLab::new();
    // Nine filters on indexed columns are no reason to read documents.
    for shredded in [false, true] {
        let options = WriteOptions {
            max_row_group_rows: 10,
            shredding_limits: nothing_shredded(),
            index_settings: IndexSettings::try_new(&["_source"][..usize::from(shredded)], &[]).expect("an index"),
            path_index_limits: shapes(),
            ..WriteOptions::default()
        };
        let reader = lab.reader(&hundred_entities(), &options);
        lab.bench.runtime.block_on(async {
            for row_group in 0..10 {
                reader.read_full_text(row_group).await.expect("search text");
            }
        });
        let numbers = (1..=12).flat_map(|zeros| on("size", &format!("1.{}", "0".repeat(zeros))));
        let parts = ["h", "o", "r", "s", "e", "ho", "or", "rs", "se"].into_iter().filter(|_| shredded);
        let contains_filters = parts.flat_map(|part| on("_source", part)).collect();
        let request = ReadRequest { filters: numbers.collect(), contains_filters, ..ReadRequest::default() };
        let (found, report, _) = count(&lab, &reader, request);
        let path_index_reports: Vec<_> = report.predicates.iter().filter_map(|report| report.shapes.clone()).collect();
        let searched = PathIndexReport { settled: 10, left_to_documents: 0 };
        let left = PathIndexReport { settled: 0, left_to_documents: 10 };
        assert_eq!(
            (found, &path_index_reports[..8], &path_index_reports[8..]),
            (60, &vec![searched; 8][..], &vec![left; 4][..]),
            "{report:?}"
        );
    }
}

#[test]
fn few_uncached_candidates_are_verified_in_documents() {
    let lab = EngineLab::new();
    // Long texts, so that the full-text column of a row group is larger than a page of documents.
    let entity = |number: usize| {
        let text: String = (0..300).map(|at| format!("word{} ", (number * 31 + at * at) % 97)).collect();
        Value::parse_entity(&format!(r#"{{"text":"{text}","n":{number},"word":"w{number}"}}"#)).expect("an entity")
    };
    let entities: Vec<Value> = (0..2_000).map(entity).collect();
    let options = WriteOptions {
        keyword_limits: segments(MAX_ROW_GROUP_ROWS),
        shredding_limits: nothing_shredded(),
        path_index_limits: shapes(),
        ..WriteOptions::default()
    };
    let reader = lab.reader(&entities, &options);
    let request = ReadRequest { filters: on("word", "W1234"), ..ReadRequest::default() };
    let (found, report, metrics) = count(&lab, &reader, request.clone());
    assert_eq!((found, &report.predicates[0].shapes), (1, &Some(PathIndexReport { settled: 0, left_to_documents: 1 })));
    assert_eq!((report.verification.map(|verified| verified.rows_in), metrics.columns.load().misses), (Some(1), 0));
    lab.bench.runtime.block_on(reader.read_full_text(0)).expect("search text");
    let (found, report, metrics) = count(&lab, &reader, request);
    assert_eq!((found, &report.predicates[0].shapes), (1, &Some(PathIndexReport { settled: 1, left_to_documents: 0 })));
    assert_eq!(
        (metrics.documents.load().hits, metrics.documents.load().misses, metrics.path_index.load().misses),
        (0, 0, 1)
    );
}

#[test]
fn version_without_path_index_reads_documents() {
    let lab = EngineLab::new();
    let options =
        WriteOptions { max_row_group_rows: 10, shredding_limits: nothing_shredded(), ..WriteOptions::default() };
    let reader = lab.reader(&hundred_entities(), &options);
    assert!(reader.path_index_directory().is_empty());
    let (found, report, _) = count(&lab, &reader, ReadRequest { filters: on("size", "1"), ..ReadRequest::default() });
    assert_eq!((found, report.predicates[0].access, &report.predicates[0].shapes), (80, AccessPath::Documents, &None));
    let request = ReadRequest { contains_filters: on("name", "zebra"), ..ReadRequest::default() };
    let (found, report, _) = count(&lab, &reader, request);
    assert_eq!((found, report.predicates[0].access), (1, AccessPath::SearchTextThenDocuments));
}

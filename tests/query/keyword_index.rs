//! Searches for text with a keyword index: exact over any segments, and without documents if the index decides.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::writer::WriteOptions;
use strata_query::scan::scan_report::{AccessPath, KeywordIndexReport};
use strata_reference::Value;
use strata_testing::engines::{EngineLab, hundred};
use strata_testing::reads::{ServiceLab, cases, no_failure};
use strata_testing::versions::{all_shredded, nothing_shredded, segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, ReadRequest, ResponseFormat};

/// Parts of texts: words, numbers and hashes, with punctuation and breaks on both sides.
fn part() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "long-",
        "term",
        "(foo)",
        "x(",
        "foo",
        "https://",
        "a.test/",
        "c++",
        "C#",
        " ",
        "  ",
        "\t",
        "\n",
        "\u{1}",
        "-",
        "--",
        ".",
        "12",
        "2018-",
        "02",
        "12a4",
        "deadbeef",
        "0123456789abcdef01",
        "d41d8cd98f00b204e9800998ecf8427e",
        "fedcba9876543210-",
        "é",
        "STRASSE",
        "straße",
        "İ",
        "東京",
        "\u{ff}",
        "null",
        "the ",
        " the",
        "li",
        "\u{7f}",
        "\u{80}",
        "e-1",
    ];
    prop_oneof![
        20 => select(PARTS).prop_map(str::to_owned),
        1 => "[a-c]{60,90}",
        1 => any::<String>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    vec(part(), 0..5).prop_map(|parts| parts.concat())
}

/// An entity with texts in two fields and a source.
fn entity(name: &str, tags: &[String], source: &str) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    Value::Object(vec![
        ("name".to_owned(), text(name)),
        ("tags".to_owned(), Value::Array(tags.iter().map(|tag| text(tag)).collect())),
        ("_source".to_owned(), text(source)),
    ])
}

/// More paths with text than the index has fields, so that other paths with less text share one.
fn many_paths() -> Value {
    let text = |number: usize| Value::String(format!("long-term foo {number} the x(").repeat(3));
    Value::Object((0..40).map(|number| (format!("p{number}"), text(number))).collect())
}

/// Entities, some of them repeated. The first one can have many paths.
fn entities() -> impl Strategy<Value = Vec<Value>> {
    let one = (text(), vec(text(), 0..3), select(&["https://a.test/1", "long-term"][..]));
    let one = one.prop_map(|(name, tags, source)| entity(&name, &tags, source));
    (vec(one, 1..14), 1..9_usize, any::<bool>()).prop_map(|(mut some, times, has_many_paths)| {
        if let (true, Some(Value::Object(members))) = (has_many_paths, some.first_mut()) {
            members.push(("more".to_owned(), many_paths()));
        }
        some.iter().cycle().take(some.len() * times).cloned().collect()
    })
}

/// A substring of the texts of an entity.
fn substring(entities: &[Value], place: (Index, Index, usize)) -> String {
    let entity = place.0.get(entities);
    let texts: Vec<String> = ["name", "tags", "_source"]
        .iter()
        .filter_map(|field| entity.get(field))
        .flat_map(|value| match value {
            Value::Array(elements) => elements.iter().filter_map(Value::text).collect(),
            other => other.text().into_iter().collect::<Vec<_>>(),
        })
        .collect();
    let all: Vec<char> = texts.concat().chars().collect();
    let from = place.1.index(all.len().max(1));
    all.iter().skip(from).take(place.2).collect()
}

#[test]
fn searches_over_any_segments_match_reference() {
    let labs =
        [ServiceLab::without_cache(1), ServiceLab::with_threads(2), ServiceLab::new(|config| config.query.threads = 2)];
    let place = || (any::<Index>(), any::<Index>(), 1..12_usize);
    let search = (vec((place(), prop::option::weighted(0.2, text())), 1..4), 0..6_usize, any::<bool>(), 0..3_usize);
    let ways = (0..4_usize, 0..4_usize, 0..3_usize, any::<bool>());
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(20), ..PropertyConfig::default() });
    let result =
        runner.run(&(entities(), vec(search, 6..12), ways), |(entities, searches, (rows, size, lab, is_shredded))| {
            let options = WriteOptions {
                max_row_group_rows: [1, 3, 7, 64][rows],
                keyword_limits: segments([1, 5, 20, usize::MAX][size]),
                // Long hexadecimal tokens of paths with an indexed column are not in the index.
                shredding_limits: if is_shredded { all_shredded() } else { nothing_shredded() },
                ..WriteOptions::default()
            };
            let version = labs[lab].publish(&entities, &options);
            for (words, kind, all, limit) in &searches {
                let words =
                    words.iter().map(|(place, other)| other.clone().unwrap_or_else(|| substring(&entities, *place)));
                let words: Vec<String> = words.collect();
                let on = |words: &[String]| {
                    let condition = |value: &String| {
                        let path = FieldPath::from_keys([["name", "tags"][value.len() % 2]]).expect("a path");
                        PathValue { path, value: value.clone() }
                    };
                    words.iter().map(condition).collect::<Vec<_>>()
                };
                let mut request = ReadRequest {
                    format: ResponseFormat::Jsonl,
                    limit: [None, Some(1), Some(5)][*limit],
                    ..ReadRequest::default()
                };
                // In a URL, keywords are separated by commas and trimmed.
                let trimmed = words.iter().map(|word| word.replace(',', "").trim_matches([' ', '\t']).to_owned());
                let trimmed: Vec<String> = trimmed.filter(|word| !word.is_empty()).collect();
                match kind {
                    0 | 1 => request.keywords = trimmed,
                    2 => {
                        request.keywords = trimmed;
                        request.include_source = false;
                    }
                    3 => {
                        request.keywords = trimmed;
                        request.drop_fields = vec![FieldPath::from_keys(["tags"]).expect("a path")];
                        request.contains_filters = on(&words[..1]);
                    }
                    4 => request.contains_filters = on(&words),
                    _ => request.filters = on(&words[..1]),
                }
                request.keywords_mode = if *all { KeywordsMode::And } else { KeywordsMode::Or };
                labs[lab].check(version, &entities, &request)?;
            }
            Ok(())
        });
    no_failure(result);
}

/// A hundred entities with a common word, rare words, and hashes.
fn hundred_entities() -> Vec<Value> {
    hundred(|number, rare| {
        let name =
            format!("common n{number} {rare} half-{} {:x}", ["done", "open"][number % 2], 0xABCDE + number * 7919);
        entity(&name, &[format!("tag {}", number / 10)], "https://a.test/1")
    })
}

#[test]
fn keyword_index_use_is_reported() {
    let lab = EngineLab::new();
    let options = WriteOptions {
        max_row_group_rows: 10,
        keyword_limits: segments(40),
        shredding_limits: nothing_shredded(),
        ..WriteOptions::default()
    };
    let reader = lab.reader(&hundred_entities(), &options);
    assert_eq!(reader.keyword_index().segments.len(), 3);
    let count = |word: &str| ReadRequest { keywords: vec![word.to_owned()], count: true, ..ReadRequest::default() };
    let used =
        |exact, candidates, left_to_scan, rows| Some(KeywordIndexReport { exact, candidates, left_to_scan, rows });

    // The index decides: documents are not read.
    let (found, report, metrics) = lab.scan(&reader, count("zebra"));
    assert_eq!((found, report.row_groups.pruned_by_keyword_index, report.row_groups.scanned), (1, 9, 1));
    assert_eq!(report.predicates[0].keyword_index, used(10, 0, 0, 1));
    assert_eq!(report.verification, None);
    assert_eq!((metrics.columns.load().misses, metrics.documents.load().misses), (0, 0));
    let (found, report, metrics) = lab.scan(&reader, count("COMMON"));
    assert_eq!((found, report.predicates[0].keyword_index.clone()), (100, used(10, 0, 0, 100)));
    assert_eq!((metrics.columns.load().misses, metrics.documents.load().misses), (0, 0));

    // With several tokens, candidates are verified.
    let (found, report, _) = lab.scan(&reader, count("57 zebra"));
    assert_eq!((found, report.predicates[0].keyword_index.clone()), (1, used(9, 1, 0, 1)));
    let (found, report, _) = lab.scan(&reader, count("57 horse"));
    assert!(found == 0 && report.row_groups.scanned >= 1, "{report:?}");

    // White space, and tokens of most entities, are left to documents.
    for word in ["n5 ", "common n"] {
        let (_, report, _) = lab.scan(&reader, count(word));
        let index = report.predicates[0].keyword_index.clone().expect("asked");
        assert!(index.left_to_scan > 0 || index.exact + index.candidates == 10, "{word}: {index:?}");
    }
    let blank =
        ReadRequest { keywords: vec!["\u{a0}".to_owned(), "\u{1f}".to_owned()], count: true, ..ReadRequest::default() };
    let (found, report, _) = lab.scan(&reader, blank);
    let predicate = &report.predicates[0];
    assert_eq!((found, predicate.access, &predicate.keyword_index), (0, AccessPath::Documents, &None));

    // For a path without an indexed column, documents decide.
    let filter =
        |value: &str| vec![PathValue { path: FieldPath::parse("tags").expect("a path"), value: value.to_owned() }];
    let request = ReadRequest { filters: filter("TAG 7"), count: true, ..ReadRequest::default() };
    let (found, report, _) = lab.scan(&reader, request);
    assert_eq!((found, report.row_groups.scanned), (10, 1));
    assert_eq!(report.verification.map(|verified| (verified.rows_in, verified.rows_out)), Some((10, 10)));
    let request = ReadRequest { contains_filters: filter("zebra"), count: true, ..ReadRequest::default() };
    let (found, report, _) = lab.scan(&reader, request);
    // The only zebra is in the name.
    assert_eq!((found, report.row_groups.pruned_by_keyword_index), (0, 10));

    // A limited read stops with the row group that completes the page.
    let page = ReadRequest { keywords: vec!["horse".to_owned()], limit: Some(3), ..ReadRequest::default() };
    let (found, report, metrics) = lab.scan(&reader, page);
    assert_eq!((found, metrics.columns.load().misses), (3, 0));
    assert!(report.row_groups.not_reached >= 7, "{report:?}");
}

#[test]
fn version_without_keyword_index_is_scanned() {
    let lab = EngineLab::new();
    let options =
        WriteOptions { max_row_group_rows: 10, shredding_limits: nothing_shredded(), ..WriteOptions::default() };
    let reader = lab.reader(&hundred_entities(), &options);
    assert!(reader.keyword_index().is_empty());
    let request = ReadRequest { keywords: vec!["zebra".to_owned()], count: true, ..ReadRequest::default() };
    let (found, report, metrics) = lab.scan(&reader, request);
    assert_eq!((found, report.row_groups.scanned, metrics.documents.load().misses), (1, 10, 10));
    assert_eq!((report.predicates[0].access, &report.predicates[0].keyword_index), (AccessPath::Documents, &None));
}

//! Range filters: exact for any entities and layouts, and decided by statistics if possible.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::reader::VersionReader;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_query::QueryOutcome;
use strata_query::scan::scan_report::{AccessPath, ScanReport};
use strata_reference::{Value, pipeline};
use strata_testing::engines::EngineLab;
use strata_testing::reads::{ServiceLab, cases, entities, no_failure, plan, range_plan};
use strata_testing::versions::{all_shredded, nothing_shredded, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest, ResponseFormat};

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).expect("a path")
}

fn ranged(conditions: &[(RangeBound, &str, &str)]) -> ReadRequest {
    let mut request = ReadRequest::default();
    for (bound, place, value) in conditions {
        request.range_filters[*bound as usize].push(PathValue { path: path(place), value: (*value).to_owned() });
    }
    request
}

/// The layouts that evaluate range filters differently: with indexed columns, and with documents.
fn layouts(row_group_rows: usize) -> [WriteOptions; 2] {
    let options = WriteOptions { worker_threads: 1, max_row_group_rows: row_group_rows, ..WriteOptions::default() };
    [
        WriteOptions { shredding_limits: all_shredded(), ..options.clone() },
        WriteOptions { shredding_limits: nothing_shredded(), ..options },
    ]
}

#[test]
fn ranges_with_other_steps_match_reference() {
    let labs =
        [ServiceLab::without_cache(1), ServiceLab::with_threads(2), ServiceLab::new(|config| config.query.threads = 2)];
    let plans = vec((plan(), vec(range_plan(), 1..4), any::<Index>(), any::<bool>()), 12..24);
    let ways = (0..4_usize, 0..5_usize, 0..3_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans, ways), |(entities, plans, (rows, size, lab, shredding_limits))| {
        let options = WriteOptions {
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            keyword_limits: some_segments(size),
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()]
                [shredding_limits],
            ..WriteOptions::default()
        };
        let version = labs[lab].publish(&entities, &options);
        for (plan, ranges, place, is_only_ranges) in &plans {
            let mut request = plan.resolve(&entities);
            // Uses the values of other filters as limits, so that some filters match and others barely do not.
            let mut found: Vec<PathValue> =
                request.filters.drain(..).chain(request.contains_filters.drain(..)).collect();
            for ((bound, is_quoted), number) in ranges.iter().zip(0..) {
                let Some(at) = (!found.is_empty()).then(|| (place.index(found.len()) + number) % found.len()) else {
                    break;
                };
                let mut condition = found.swap_remove(at);
                if *is_quoted {
                    condition.value = format!("\"{}\"", condition.value);
                }
                request.range_filters[*bound as usize].push(condition);
            }
            if *is_only_ranges {
                request = ReadRequest {
                    range_filters: request.range_filters,
                    format: ResponseFormat::Jsonl,
                    ..ReadRequest::default()
                };
            }
            labs[lab].check(version, &entities, &request)?;
        }
        Ok(())
    });
    no_failure(result);
}

/// Values and limits for which a comparison, or a shortcut, is most likely wrong.
#[test]
fn known_hard_ranges_match_reference() {
    let lab = EngineLab::new();
    let ones = |digits: usize| "1".repeat(digits);
    let mut scalars: Vec<String> = [
        "0",
        "-0",
        "0.0",
        "1",
        "10",
        "10.0",
        "1E1",
        "-1",
        "1e400",
        "-1e400",
        "1E2",
        "100",
        "0.1",
        "1e-400",
        "5e-324",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "-9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "1e308",
        "null",
        "true",
        "false",
        "{}",
        "[]",
        r#""""#,
        r#""\"""#,
        r#""5""#,
        r#""05""#,
        r#""NaN""#,
        r#""+1""#,
        r#""null""#,
        r#""true""#,
        r#""a""#,
        r#""A""#,
        r#""b""#,
        r#""Z""#,
        r#""a\u0000""#,
        r#""\n""#,
        r#""\\""#,
        "\"\u{e9}\"",
        "\"\u{c9}\"",
        "\"\u{ffff}\"",
        "\"\u{10400}\"",
        "\"\u{10428}\"",
        "\"\u{130}\"",
        "\"\u{212a}\"",
        "\"\u{3c2}\"",
        "\"\u{3c3}\"",
    ]
    .map(str::to_owned)
    .into();
    scalars.extend([ones(30), ones(41), ones(200), ones(400), format!("-{}", ones(400)), format!("{}2", ones(29))]);
    // Longer than the statistics of a file, and equal up to their length.
    scalars.extend(["", "a", "B", "b", "\u{10ffff}"].map(|end| format!("\"{}{end}\"", "long text ".repeat(7))));
    let texts: Vec<String> = scalars
        .iter()
        .map(|scalar| match Value::parse(scalar).expect("a value") {
            Value::String(text) => text,
            other => other.write(),
        })
        .collect();
    let mut values = texts.clone();
    values.extend(texts.iter().map(|text| format!("\"{text}\"")));
    values.extend(
        ["1e999", "-1E999", "1.0e1", "1.1111111111111111e40", "1.1111111111111112e199", "01", " 1", "\""]
            .map(str::to_owned),
    );

    let mut entities: Vec<Value> = (0..scalars.len())
        .map(|place| {
            let scalar = &scalars[place];
            let other = &scalars[(place + 1) % scalars.len()];
            let text = format!(r#"{{"v":{scalar},"many":[{scalar},[{other}],{{}}],"deep":[{{"v":{scalar}}},{{}}]}}"#);
            Value::parse_entity(&text).expect("an entity")
        })
        .collect();
    entities.push(Value::parse_entity("{}").expect("an entity"));
    let mut requests = Vec::new();
    for (place, value) in ["v", "many", "deep.v"].into_iter().cycle().zip(&values) {
        for (bound, denull) in RangeBound::ALL.into_iter().flat_map(|bound| [(bound, false), (bound, true)]) {
            let request = ReadRequest { denull, count: true, ..ranged(&[(bound, place, value)]) };
            let expected = pipeline::selected(&entities, &request).len() as u64;
            requests.push((Arc::new(request), expected));
        }
    }
    let mut wrong = Vec::new();
    for (size, row_group_rows) in [1, 6, MAX_ROW_GROUP_ROWS].into_iter().enumerate() {
        for (layout, options) in layouts(row_group_rows).into_iter().enumerate() {
            let reader = lab.reader(&entities, &options);
            // Each request with each size and with each layout.
            for (request, expected) in requests.iter().skip((size + layout) % 3).step_by(3) {
                let select = lab.engines[1].select(reader.clone(), request.clone());
                match lab.bench.runtime.block_on(select).expect("selected") {
                    QueryOutcome::Count(count) if count == *expected => {}
                    other => wrong.push(format!("{other:?}, not {expected}: {row_group_rows} {request:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} requests differ, the first:\n{}", wrong.len(), wrong[0]);
}

/// Explains a counting request and checks its count against the reference.
fn scan(lab: &EngineLab, reader: &VersionReader, entities: &[Value], request: ReadRequest) -> ScanReport {
    let request = ReadRequest { count: true, ..request };
    let explain = lab.engines[1].explain(reader.clone(), Arc::new(request.clone()));
    let (outcome, explained) = lab.bench.runtime.block_on(explain).expect("explained");
    match outcome {
        QueryOutcome::Count(count) => {
            assert_eq!(count, pipeline::selected(entities, &request).len() as u64, "{request:?}");
        }
        QueryOutcome::Selection(_) => panic!("expected a count"),
    }
    explained.scan.expect("a scan")
}

/// The row groups of ten entities: pruned by numbers, pruned by texts, matched completely by statistics, scanned.
fn outcome(used: &ScanReport) -> (u64, u64, u64, u64) {
    let groups = &used.row_groups;
    let whole = used.predicates.iter().filter_map(|used| used.settled_by_statistics).sum();
    assert_eq!(groups.pruned_by_numbers + groups.pruned_by_texts + groups.scanned, groups.total, "{used:?}");
    (groups.pruned_by_numbers, groups.pruned_by_texts, whole, groups.scanned)
}

fn hundred(entity: impl Fn(usize) -> String) -> Vec<Value> {
    (0..100).map(|number| Value::parse_entity(&entity(number)).expect("an entity")).collect()
}

#[test]
fn statistics_decide_row_groups_correctly() {
    use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let lab = EngineLab::new();
    let entities = hundred(|n| {
        let digits = "7".repeat(40);
        format!(
            r#"{{"n":{n},"day":"2024-{:02}-{:02}","word":"{}{n:02}","big":{},"mixed":{},"list":[{n},{}],"long":"{}{n:02}"}}"#,
            n / 10 + 1,
            n % 10 + 1,
            // When folded, both letters are equal.
            if n % 2 == 0 { "a" } else { "A" },
            9_007_199_254_740_980_u64 + n as u64,
            // The only long integer of its row group is above all doubles of the row group.
            if n == 25 {
                digits
            } else if n % 3 == 0 {
                format!("\"{n:02}\"")
            } else {
                n.to_string()
            },
            n + 1,
            "statistics are cut before this text ends ",
        )
    });
    let [options, ..] = layouts(10);
    let reader = lab.reader(&entities, &options);
    let scan_outcome = |bound, place, value| {
        let used = scan(&lab, &reader, &entities, ranged(&[(bound, place, value)]));
        assert_eq!(used.predicates[0].access, AccessPath::ShreddedColumn, "{used:?}");
        outcome(&used)
    };
    // Numbers in the order of the file: at most one row group is read.
    assert_eq!(scan_outcome(Greater, "n", "54"), (5, 0, 4, 5));
    assert_eq!(scan_outcome(Greater, "n", "59"), (6, 0, 4, 4));
    assert_eq!(scan_outcome(GreaterOrEqual, "n", "6e1"), (6, 0, 4, 4));
    assert_eq!(scan_outcome(Less, "n", "60.0"), (4, 0, 6, 6));
    assert_eq!(scan_outcome(LessOrEqual, "n", "-1"), (10, 0, 0, 0));
    assert_eq!(scan_outcome(Less, "n", "1e400"), (0, 0, 10, 10));
    // Strings without letters.
    assert_eq!(scan_outcome(GreaterOrEqual, "day", "2024-07"), (0, 6, 4, 4));
    assert_eq!(scan_outcome(Less, "day", "2024-03-05"), (0, 7, 2, 3));
    // A string never matches a number, and a number never matches a string: the kinds decide.
    assert_eq!(scan_outcome(Greater, "n", "\"1\""), (0, 10, 0, 0));
    assert_eq!(scan_outcome(Less, "day", "7"), (10, 0, 0, 0));
    // Upper-case letters are below all lower-case letters, although their folded texts are not.
    assert_eq!(scan_outcome(Less, "word", "B"), (0, 0, 0, 10));
    assert_eq!(scan_outcome(Greater, "word", "a50"), (0, 5, 0, 5));
    assert_eq!(scan_outcome(Less, "word", "A"), (0, 10, 0, 0));
    assert_eq!(scan_outcome(LessOrEqual, "word", "zz"), (0, 0, 10, 10));
    // Integers that share a double are distinguished by their values.
    assert_eq!(scan_outcome(Greater, "big", "9007199254740995"), (1, 0, 8, 9));
    assert_eq!(scan_outcome(Greater, "big", "9007199254740989"), (1, 0, 9, 9));
    // An integer that no column can store as a double is compared exactly.
    let beyond = format!("1{}", "0".repeat(39));
    assert_eq!(scan_outcome(Greater, "mixed", &beyond), (9, 0, 0, 1));
    // The texts of numbers are in the bounds, too.
    assert_eq!(scan_outcome(Greater, "mixed", "\"5\""), (0, 3, 0, 7));
    // A list can be empty.
    assert_eq!(scan_outcome(GreaterOrEqual, "list", "0"), (0, 0, 0, 10));
    assert_eq!(scan_outcome(Less, "list", "30"), (7, 0, 0, 3));
    // Truncated texts bound the complete ones, but do not distinguish them.
    assert_eq!(scan_outcome(Greater, "long", "statistics are cut before this text ends 50"), (0, 0, 0, 10));
    assert_eq!(scan_outcome(Greater, "long", "statistics are cut "), (0, 0, 10, 10));
    assert_eq!(scan_outcome(Less, "long", "statistics are cut "), (0, 10, 0, 0));
    assert_eq!(scan_outcome(Greater, "long", "statistics are cuu"), (0, 10, 0, 0));
}

#[test]
fn statistics_do_not_decide_denulled_empty_strings() {
    let lab = EngineLab::new();
    let entities = hundred(|n| format!(r#"{{"s":"{}"}}"#, if n % 10 == 3 { "" } else { "x" }));
    let [options, ..] = layouts(10);
    let reader = lab.reader(&entities, &options);
    let request = ranged(&[(RangeBound::Less, "s", "y")]);
    assert_eq!(outcome(&scan(&lab, &reader, &entities, request.clone())), (0, 0, 10, 10));
    let with_denull = ReadRequest { denull: true, ..request };
    assert_eq!(outcome(&scan(&lab, &reader, &entities, with_denull)), (0, 0, 0, 10));
}

#[test]
fn range_without_indexed_column_reads_documents() {
    let lab = EngineLab::new();
    let entities = hundred(|n| {
        let rare = if n % 10 == 1 { r#","rare":"Text""# } else { "" };
        format!(r#"{{"n":{n}.5{rare}}}"#)
    });
    let [_, with_documents] = layouts(10);
    let reader = lab.reader(&entities, &with_documents);
    let used = scan(&lab, &reader, &entities, ranged(&[(RangeBound::LessOrEqual, "rare", "Text")]));
    assert_eq!(used.predicates[0].access, AccessPath::Documents);
    assert_eq!(used.verification.map(|verified| verified.rows_in), Some(100));
}

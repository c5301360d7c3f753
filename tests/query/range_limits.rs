//! Range filters whose limits are values of the version, or neighbors of these values, where comparisons, their
//! shortcuts and statistics are most likely wrong: with indexed columns and documents, with row groups
//! that statistics distinguish, and with edited lists.

use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as PropertyConfig, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use strata_format::cache::PartCache;
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::QueryOutcome;
use strata_reference::{Value, pipeline};
use strata_testing::engines::EngineLab;
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::{all_shredded, always_beside, edited, nothing_shredded};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest};

/// Values close to each other, in ascending order if they have one. A column contains values of one or two families.
const FAMILIES: &[&[&str]] = &[
    // Zeros, and spellings of one value.
    &["-2", "-1", "-0.5", "-0", "-0.0", "0", "0.0", "0e7", "5e-324", "0.5", "1", "1.0", "1e0", "10e-1", "1.5", "2"],
    // Integers that share a double.
    &[
        "-9007199254740993",
        "-9007199254740992",
        "9007199254740991",
        "9007199254740992",
        "9007199254740992.0",
        "9007199254740993.0",
        "9007199254740993",
        "9007199254740994",
        "9007199254740995",
    ],
    // The ends of 64 bits, and beyond.
    &[
        "-9223372036854775809",
        "-9223372036854775808",
        "9223372036854775806",
        "9223372036854775807",
        "9.223372036854775807e18",
        "9223372036854775808",
        "9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
    ],
    // Integers that no column can store: they differ from their double by more than 64 bits.
    &[
        "-1e400",
        "-1111111111111111111111111111111111111111111111",
        // The integers of these powers of ten are on both sides of their doubles.
        "-1e45",
        "-1000000000000000000000000000000000000000000000",
        "1e40",
        "10000000000000000303786028427003666890752",
        "1e45",
        "1000000000000000000000000000000000000000000000",
        "1111111111111111111111111111111111111111111110",
        "1111111111111111111111111111111111111111111111",
        "1111111111111111111111111111111111111111111112",
        "100000000000000000000000000000000000000000000000",
        "1e47",
        "1e400",
    ],
    // Numbers with a long integer among them, which the doubles of the others do not bound.
    &[
        "-7",
        "3",
        "4",
        "5",
        "1111111111111111111111111111111111111111111111",
        "-1111111111111111111111111111111111111111",
    ],
    // Empty and short texts, some of which need escapes.
    &[r#""""#, r#""""#, r#""\u0000""#, r#""\n""#, r#""\"""#, r#""A""#, r#""\\""#, r#""a""#, r#""a\u0000""#, r#""aa""#],
    // Above the surrogates, the order of UTF-16 differs from the order of code points.
    &[
        "\"\u{d7ff}\"",
        "\"\u{e000}\"",
        "\"\u{ffff}\"",
        "\"\u{10000}\"",
        "\"\u{10ffff}\"",
        "\"a\u{fffd}\"",
        "\"a\u{1f600}\"",
    ],
    // Dates, which are compared as texts.
    &[
        r#""2023-12-31""#,
        r#""2024-02-28""#,
        r#""2024-02-29""#,
        r#""2024-03-01""#,
        r#""2024-03-01T00:00:00Z""#,
        r#""2024-10-01""#,
    ],
    // Texts that folding changes, or makes equal.
    &[
        r#""ABC""#,
        r#""Abc""#,
        r#""aBC""#,
        r#""abc""#,
        "\"\u{130}\"",
        "\"i\u{307}\"",
        "\"\u{212a}\"",
        r#""k""#,
        "\"\u{3c2}\"",
        "\"\u{3c3}\"",
        "\"\u{3a3}\"",
    ],
    // Values of all types at one path.
    &[r#""5""#, "5", "5.0", r#""05""#, "true", r#""true""#, "null", r#""null""#, "{}", "[]", "false", r#""""#],
];

/// Texts around the length at which the statistics of a file truncate them, one of them within a character.
fn long_texts() -> Vec<String> {
    let mut texts = Vec::new();
    for length in [31, 32, 33, 64] {
        texts.extend(["", "A", "a", "z", "\u{10ffff}"].map(|end| format!("\"{}{end}\"", "x".repeat(length))));
    }
    texts.extend(["", "\u{e9}", "y"].map(|end| format!("\"{}\u{e9}{end}\"", "x".repeat(31))));
    texts.push(format!("\"{}\"", "\u{10ffff}".repeat(20)));
    texts
}

fn families() -> Vec<Vec<String>> {
    let texts = |family: &&[&str]| family.iter().map(|text| (*text).to_owned()).collect();
    FAMILIES.iter().map(texts).chain([long_texts()]).collect()
}

/// The values of a column, as indexes of a family. `None` means no value.
type Drawn = Vec<Option<Index>>;

/// An entity with three columns: a value, a list of values, and objects with one value each.
fn entity(number: usize, [one, many, deep]: [&[Option<&str>]; 3]) -> Value {
    let at = |column: &[Option<&str>], place: usize| column[place % column.len()].map(str::to_owned);
    let mut members = vec![format!("\"id\":{number}")];
    members.extend(at(one, number).map(|value| format!("\"one\":{value}")));
    let listed: Vec<String> = (0..number % 3).filter_map(|more| at(many, number + more)).collect();
    members.push(format!("\"many\":[{}]", listed.join(",")));
    let objects: Vec<String> =
        (0..number % 4).filter_map(|more| Some(format!("{{\"v\":{}}}", at(deep, number + more)?))).collect();
    members.push(format!("\"deep\":[{}]", objects.join(",")));
    Value::parse_entity(&format!("{{{}}}", members.join(","))).expect("an entity")
}

/// Limits at a value and next to it, as text in a request.
pub(super) fn limits(scalar: &Value) -> Vec<String> {
    let Some(text) = scalar.text() else { return vec!["null".to_owned(), "\"null\"".to_owned()] };
    let mut limits = vec![text.clone()];
    match scalar {
        Value::Number(_) => limits.extend(numbers_near(&text)),
        _ => limits.extend(texts_near(&text)),
    }
    let quoted = limits.iter().map(|limit| format!("\"{limit}\"")).collect::<Vec<_>>();
    limits.extend(quoted);
    limits
}

/// The number in other spellings, its neighbors as an integer, and its neighbors as a double.
fn numbers_near(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.contains(['.', 'e', 'E']) {
        found.extend([format!("{text}.0"), format!("{text}e0"), format!("{text}0e-1")]);
        found.extend([-1, 1].map(|step| increment(text, step)));
    }
    let double: f64 = text.parse().expect("a number");
    let doubles = [double, double.next_down(), double.next_up()].into_iter().filter(|double| double.is_finite());
    found.extend(doubles.map(|double| format!("{double:e}")));
    found
}

/// Adds 1 or -1 to an integer of any length.
fn increment(text: &str, step: i32) -> String {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let magnitude: Vec<u8> = digits.bytes().map(|digit| digit - b'0').collect();
    if magnitude.iter().all(|digit| *digit == 0) {
        return step.to_string();
    }
    let grows = (step > 0) != is_negative;
    let mut digits = magnitude;
    for digit in digits.iter_mut().rev() {
        *digit = if grows { (*digit + 1) % 10 } else { (*digit + 9) % 10 };
        if *digit != if grows { 0 } else { 9 } {
            break;
        }
    }
    if grows && digits.iter().all(|digit| *digit == 0) {
        digits.insert(0, 1);
    }
    let text: String = digits.iter().map(|digit| char::from(digit + b'0')).collect();
    let text = text.trim_start_matches('0');
    match (is_negative, text) {
        (_, "") => "0".to_owned(),
        (true, text) => format!("-{text}"),
        (false, text) => text.to_owned(),
    }
}

/// The texts directly before and after, in other cases, and truncated.
fn texts_near(text: &str) -> Vec<String> {
    let mut found = vec![format!("{text}\u{0}"), text.to_uppercase(), text.to_lowercase(), String::new()];
    let mut start: Vec<char> = text.chars().collect();
    if let Some(last) = start.pop() {
        let start: String = start.iter().collect();
        let beside = [u32::from(last).wrapping_sub(1), u32::from(last) + 1].into_iter().filter_map(char::from_u32);
        found.extend(beside.map(|last| format!("{start}{last}")));
        found.push(start);
    }
    found
}

fn scalars(column: &[Option<&str>]) -> Vec<Value> {
    let values = column.iter().flatten().map(|text| Value::parse(text).expect("a value"));
    values.filter(|value| !matches!(value, Value::Array(_) | Value::Object(_))).collect()
}

fn ranged(place: &str, conditions: impl IntoIterator<Item = (RangeBound, String)>) -> ReadRequest {
    let mut request = ReadRequest::default();
    for (bound, value) in conditions {
        let path = FieldPath::parse(place).expect("a path");
        request.range_filters[bound as usize].push(PathValue { path, value });
    }
    request
}

/// Checks that the selected positions, or their number, match the reference.
fn check(
    lab: &EngineLab,
    reader: &VersionReader,
    entities: &[Value],
    request: &ReadRequest,
) -> Result<(), TestCaseError> {
    let expected = pipeline::selected_positions(entities, request);
    let select = lab.engines[0].select(reader.clone(), Arc::new(request.clone()));
    let outcome = lab.bench.runtime.block_on(select).expect("selected");
    let is_right = match &outcome {
        QueryOutcome::Count(found) => *found == expected.len() as u64,
        QueryOutcome::Selection(found) => found.positions().to_vec() == expected,
    };
    prop_assert!(
        is_right,
        "{outcome:?}, not {expected:?}\nfor {request:?}\nover {}",
        Value::Array(entities.to_vec()).write()
    );
    Ok(())
}

/// The layouts that evaluate range filters differently: with indexed columns, and with documents.
pub(super) fn layouts(row_group_rows: usize) -> [WriteOptions; 2] {
    let options = WriteOptions { worker_threads: 1, max_row_group_rows: row_group_rows, ..WriteOptions::default() };
    [
        WriteOptions { shredding_limits: all_shredded(), ..options.clone() },
        WriteOptions { shredding_limits: nothing_shredded(), ..options },
    ]
}

/// Opens a list that was written and then edited.
pub(super) fn edited_reader(
    lab: &EngineLab,
    before: &[Value],
    slots: &EditScript,
    options: &WriteOptions,
) -> Option<VersionReader> {
    let base = lab.write(before, options);
    let made = lab.bench.edit(&lab.store, &base, slots, (options, &always_beside(0)));
    let (path, written) = made.expect("planned and written")?;
    Some(lab.open(&path, &written, &PartCache::new(1 << 30)))
}

#[derive(Clone, Debug)]
struct EntityListCase {
    /// For each column: its two families, and its values as indexes of them.
    columns: [(Index, Index, Drawn); 3],
    rows: usize,
    row_group_rows: usize,
    /// Whether values are in the order of their family, so that statistics distinguish row groups.
    in_order: bool,
    /// Entities that an edit replaces, each by the entity of another number.
    edits: Vec<(Index, Index)>,
    requests: Vec<RangeCase>,
}

/// A request: its column, limits with their bounds, and options.
#[derive(Clone, Debug)]
struct RangeCase {
    column: usize,
    limits: Vec<(RangeBound, Index, Index)>,
    denull: bool,
    limit: Option<u64>,
    count: bool,
}

fn case() -> impl Strategy<Value = EntityListCase> {
    let value = || prop_oneof![7 => any::<Index>().prop_map(Some), 1 => Just(None)];
    let column = || (any::<Index>(), any::<Index>(), vec(value(), 3..12));
    let range_case = (
        0..3_usize,
        vec((select(&RangeBound::ALL[..]), any::<Index>(), any::<Index>()), 1..6),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.1, 0..4_u64),
        any::<bool>(),
    );
    let range_case = range_case.prop_map(|(column, limits, denull, limit, count)| RangeCase {
        column,
        limits,
        denull,
        limit,
        count,
    });
    (
        (column(), column(), column()),
        1..20_usize,
        select(&[1, 2, 4, 100][..]),
        any::<bool>(),
        vec((any::<Index>(), any::<Index>()), 1..4),
        vec(range_case, 16..24),
    )
        .prop_map(|((one, many, deep), rows, row_group_rows, in_order, edits, requests)| EntityListCase {
            columns: [one, many, deep],
            rows,
            row_group_rows,
            in_order,
            edits,
            requests,
        })
}

const PLACES: [&str; 3] = ["one", "many", "deep.v"];

fn check_case(lab: &EngineLab, case: &EntityListCase) -> Result<(), TestCaseError> {
    let families = families();
    let columns = case.columns.each_ref().map(|(family, other, drawn)| {
        let mut places: Vec<Option<(usize, usize)>> = drawn
            .iter()
            .enumerate()
            .map(|(number, place)| {
                // One in four values is of the other family.
                let family = if number % 4 == 3 { other } else { family }.index(families.len());
                place.map(|place| (family, place.index(families[family].len())))
            })
            .collect();
        if case.in_order {
            places.sort_unstable();
        }
        places
            .into_iter()
            .map(|place| place.map(|(family, place)| families[family][place].as_str()))
            .collect::<Vec<_>>()
    });
    let [one, many, deep] = columns.each_ref().map(Vec::as_slice);
    let entities: Vec<Value> = (0..case.rows).map(|number| entity(number, [one, many, deep])).collect();
    let texts: Vec<String> = entities.iter().map(Value::write).collect();
    let mut slots = EditScript::new();
    for (at, to) in &case.edits {
        let slot: &mut PositionEdit = slots.entry(at.index(case.rows) as u64).or_default();
        // The values of all columns move from one row group to another. Half of the time, they also move from one
        // column to another, which may not be able to store them.
        let values = if to.index(2) == 0 { [one, many, deep] } else { [many, deep, one] };
        slot.change = Some(Some(Bytes::from(entity(to.index(97), values).write())));
    }
    let after: Vec<Value> =
        edited(&texts, &slots).iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    let mut readers = Vec::new();
    for options in layouts(case.row_group_rows) {
        readers.push((lab.reader(&entities, &options), &entities));
        readers.extend(edited_reader(lab, &entities, &slots, &options).map(|reader| (reader, &after)));
    }
    for RangeCase { column, limits: wanted, denull, limit, count } in &case.requests {
        // Includes the values that edits moved from the next column.
        let mut found = scalars(&columns[*column]);
        found.extend(scalars(&columns[(column + 1) % 3]));
        if found.is_empty() {
            continue;
        }
        let conditions = wanted.iter().map(|(bound, value, beside)| {
            let limits = limits(value.get(&found));
            (*bound, beside.get(&limits).clone())
        });
        let request =
            ReadRequest { denull: *denull, limit: *limit, count: *count, ..ranged(PLACES[*column], conditions) };
        for (reader, entities) in &readers {
            check(lab, reader, entities, &request)?;
        }
    }
    Ok(())
}

#[test]
fn range_limits_near_values_match_reference() {
    let lab = EngineLab::new();
    // The same cases in each run, so that failures are reproducible.
    let config = PropertyConfig { cases: 32, failure_persistence: None, ..PropertyConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    no_failure(runner.run(&case(), |case| check_case(&lab, &case)));
    // Random cases.
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(8), ..PropertyConfig::default() });
    no_failure(runner.run(&case(), |case| check_case(&lab, &case)));
}

/// Each value of each family as the only limit, with all four bounds.
#[test]
fn each_value_as_range_limit_matches_reference() {
    let lab = EngineLab::new();
    for family in families() {
        let column: Vec<Option<&str>> = family.iter().map(|text| Some(text.as_str())).collect();
        let entities: Vec<Value> = (0..family.len()).map(|number| entity(number, [&column; 3])).collect();
        let readers = layouts(3).map(|options| lab.reader(&entities, &options));
        for (number, scalar) in scalars(&column).iter().enumerate() {
            let Some(text) = scalar.text() else { continue };
            let limit = if matches!(scalar, Value::String(_)) { format!("\"{text}\"") } else { text };
            for bound in RangeBound::ALL {
                let request = ReadRequest { count: number % 2 == 1, ..ranged("one", [(bound, limit.clone())]) };
                for reader in &readers {
                    check(&lab, reader, &entities, &request).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
    }
}

/// Row groups that differ in one aspect: a decision about one of them must not apply to the others.
#[test]
fn similar_statistics_do_not_confuse_row_groups() {
    let lab = EngineLab::new();
    let long = "1111111111111111111111111111111111111111111111";
    // Two rows each; "" means no value. The statistics of some row groups are equal.
    let groups = [
        ["5", "5"],
        ["5", "null"],
        ["5", ""],
        ["5", "true"],
        ["5", r#""5""#],
        ["5", long],
        ["5.0", "5e0"],
        ["-0.0", "0"],
        [r#""m""#, r#""m""#],
        [r#""m""#, "null"],
        [r#""m""#, ""],
        [r#""m""#, "7"],
        [r#""m""#, r#""M""#],
        [r#""m""#, r#""""#],
        [r#""""#, r#""""#],
        [r#""""#, "null"],
        ["null", "null"],
        ["", ""],
        ["true", "false"],
        ["9007199254740992", "9007199254740993"],
    ];
    let column: Vec<Option<&str>> =
        groups.as_flattened().iter().map(|text| Some(*text).filter(|text| !text.is_empty())).collect();
    let rows = column.len();
    let row = |number: usize| {
        let one = column[number].map_or_else(String::new, |value| format!("\"one\":{value},\"many\":[{value}],"));
        let text = format!("{{{one}\"id\":{number}}}");
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..rows).map(row).collect();
    let [options, ..] = layouts(2);
    let reader = lab.reader(&entities, &options);
    // In an edited list, extents of one row have the statistics of the previous row.
    let slots: EditScript = (0..rows)
        .step_by(3)
        .map(|at| {
            let other = entities[(at + 7) % rows].write();
            (at as u64, PositionEdit { inserts: Vec::new(), change: Some(Some(Bytes::from(other))) })
        })
        .collect();
    let texts: Vec<String> = entities.iter().map(Value::write).collect();
    let after: Vec<Value> =
        edited(&texts, &slots).iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    let edited = edited_reader(&lab, &entities, &slots, &options).expect("an edited file");
    let below = increment(long, -1);
    let above = increment(long, 1);
    let limits = [
        "4",
        "5",
        "5.0",
        "6",
        "7",
        "0",
        "-1",
        "9007199254740992",
        "9007199254740993",
        &below,
        long,
        &above,
        "",
        "\"5\"",
        "M",
        "l",
        "m",
        "n",
        "true",
        "null",
    ];
    for (place, limit) in ["one", "many"].into_iter().flat_map(|place| limits.map(|limit| (place, limit))) {
        for (bound, denull) in RangeBound::ALL.into_iter().flat_map(|bound| [(bound, false), (bound, true)]) {
            let request = ReadRequest { denull, ..ranged(place, [(bound, limit.to_owned())]) };
            for (reader, entities) in [(&reader, &entities), (&edited, &after)] {
                check(&lab, reader, entities, &request).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

/// A column of lower-case strings has no exact texts and no numbers. An edit adds some.
#[test]
fn edit_with_unsupported_value_matches_reference() {
    let lab = EngineLab::new();
    let row = |value: &str| Value::parse_entity(&format!(r#"{{"one":{value},"kept":"m"}}"#)).expect("an entity");
    let entities: Vec<Value> = (0..12).map(|number| row(&format!("\"m{}\"", number % 3))).collect();
    let [options, ..] = layouts(4);
    for added in
        [r#""M1""#, "\"\u{e9}\"", "7", "1111111111111111111111111111111111111111111111", r#"["m1","A"]"#, "null"]
    {
        let change = Some(Some(Bytes::from(row(added).write())));
        let slots = EditScript::from([(5, PositionEdit { inserts: Vec::new(), change })]);
        let reader = edited_reader(&lab, &entities, &slots, &options).expect("an edited file");
        let mut after = entities.clone();
        after[5] = row(added);
        for limit in ["A", "M1", "M2", "l", "m1", "m\u{0}", "\u{e9}", "6", "7", "8", "1e45", "\"7\""] {
            for (place, bound) in
                ["one", "kept"].into_iter().flat_map(|place| RangeBound::ALL.map(|bound| (place, bound)))
            {
                let request = ranged(place, [(bound, limit.to_owned())]);
                check(&lab, &reader, &after, &request).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

#[test]
fn increment_of_any_integer_is_exact() {
    for (text, below, above) in [
        ("0", "-1", "1"),
        ("-0", "-1", "1"),
        ("1", "0", "2"),
        ("-1", "-2", "0"),
        ("9", "8", "10"),
        ("-10", "-11", "-9"),
        ("1000", "999", "1001"),
        ("9007199254740992", "9007199254740991", "9007199254740993"),
        ("99999999999999999999", "99999999999999999998", "100000000000000000000"),
    ] {
        assert_eq!((increment(text, -1), increment(text, 1)), (below.to_owned(), above.to_owned()), "{text}");
    }
}

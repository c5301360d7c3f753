//! The maximum number of range filters in one request, on one path, on some and on many: of the filters on one path the
//! tightest ones remain, and one walk of a document tests all that documents decide.

use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::reader::VersionReader;
use strata_http::params::MAX_QUERY_ITEMS;
use strata_query::QueryOutcome;
use strata_query::scan::predicate::ComparisonOperator;
use strata_reference::{Value, pipeline, rules};
use strata_testing::engines::{EngineLab, hundred};
use strata_testing::reads::cases;
use strata_testing::versions::edited;
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest};

use super::range_limits::{edited_reader, layouts, limits};

/// The number of fields of an entity.
const FIELDS: usize = 40;

/// Values close to each other, of every type. Two of them are equal as numbers, and two only as folded text.
const VALUES: [&str; 20] = [
    "-1",
    "-0.0",
    "0",
    "0.5",
    "9",
    "10",
    "10.0",
    "9007199254740992",
    "9007199254740993",
    "1e400",
    r#""""#,
    r#""10""#,
    r#""9""#,
    r#""A""#,
    r#""a""#,
    "\"\u{e9}\"",
    r#""\"\n""#,
    "null",
    "true",
    "{}",
];

fn value(random: &mut StdRng) -> &'static str {
    VALUES[random.random_range(0..VALUES.len())]
}

/// An entity with many fields: scalars, lists, and objects.
fn entity(random: &mut StdRng) -> Value {
    let mut members = Vec::new();
    for field in 0..FIELDS {
        let list = |random: &mut StdRng, item: fn(&mut StdRng) -> String| {
            let items: Vec<String> = (0..random.random_range(0..4)).map(|_| item(random)).collect();
            format!("[{}]", items.join(","))
        };
        let object = |random: &mut StdRng| format!("{{\"x\":1,\"v\":{},\"w\":[{}]}}", value(random), value(random));
        let text = match (field + random.random_range(0..2)) % 5 {
            0 => value(random).to_owned(),
            1 => list(random, |random| value(random).to_owned()),
            2 => object(random),
            3 => list(random, object),
            _ if random.random_bool(0.2) => continue,
            _ => list(random, list_of_any),
        };
        members.push(format!("\"f{field}\":{text}"));
    }
    Value::parse_entity(&format!("{{{}}}", members.join(","))).expect("an entity")
}

fn list_of_any(random: &mut StdRng) -> String {
    format!("[{},{{\"v\":{}}},[{}]]", value(random), value(random), value(random))
}

/// Any path of such an entity, including paths that no entity has.
fn path(random: &mut StdRng) -> FieldPath {
    let field = random.random_range(0..FIELDS);
    let below = ["", "", ".v", ".w", ".v.w"][random.random_range(0..5)];
    FieldPath::parse(&format!("f{field}{below}")).expect("a path")
}

/// A request with this many range filters on these paths, which one entity matches, except for one filter at most.
fn request(random: &mut StdRng, entity: &Value, paths: &[FieldPath], count: usize, denull: bool) -> ReadRequest {
    let mut request = ReadRequest { denull, count: random.random_bool(0.3), ..ReadRequest::default() };
    let all: Vec<String> = VALUES
        .iter()
        .map(|text| Value::parse(text).expect("a value"))
        .filter(|value| !matches!(value, Value::Object(_)))
        .flat_map(|value| limits(&value))
        .collect();
    let mut left = count;
    let mut attempts = 0;
    while left > 0 {
        let path = &paths[random.random_range(0..paths.len())];
        let bound = RangeBound::ALL[random.random_range(0..4)];
        let value = &all[random.random_range(0..all.len())];
        let fits = |scalar: &&Value| {
            let is_gone = denull && scalar.text().is_none_or(|text| text.is_empty());
            !is_gone && rules::matches_range(scalar, bound, value)
        };
        let is_met = rules::reach(entity, path.keys()).iter().any(fits);
        attempts += 1;
        // On some paths, no filter can match.
        if is_met || random.random_bool(0.000_2) || attempts > 20 * count {
            request.range_filters[bound as usize].push(PathValue { path: path.clone(), value: value.clone() });
            left -= 1;
        }
    }
    request
}

fn select(lab: &EngineLab, reader: &VersionReader, request: &ReadRequest) -> QueryOutcome {
    let select = lab.engines[0].select(reader.clone(), Arc::new(request.clone()));
    lab.bench.runtime.block_on(select).expect("selected")
}

#[test]
fn thousand_range_filters_match_reference() {
    let lab = EngineLab::new();
    let mut found = 0;
    let mut missed = 0;
    for seed in 0..u64::from(cases(12).max(12)) {
        let random = &mut StdRng::seed_from_u64(seed);
        let entities: Vec<Value> = (0..random.random_range(1..12)).map(|_| entity(random)).collect();
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let change = Some(Some(Bytes::from(entity(random).write())));
        let slots = EditScript::from([(0, PositionEdit { inserts: Vec::new(), change })]);
        let after: Vec<Value> =
            edited(&texts, &slots).iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
        let mut readers = Vec::new();
        for options in layouts(5) {
            readers.push((lab.reader(&entities, &options), 0));
            readers.extend(edited_reader(&lab, &entities, &slots, &options).map(|reader| (reader, 1)));
        }
        for (paths, count) in [(1, MAX_QUERY_ITEMS), (4, 300), (60, 9), (60, 90), (200, MAX_QUERY_ITEMS)] {
            let paths: Vec<FieldPath> = (0..paths).map(|_| path(random)).collect();
            let denull = random.random_bool(0.2);
            let met = &entities[random.random_range(0..entities.len())];
            let request = request(random, met, &paths, count, denull);
            assert_eq!(request.range_filters().count(), count);
            let expected = [&entities, &after].map(|list| pipeline::selected_positions(list, &request));
            if expected[0].is_empty() {
                missed += 1
            } else {
                found += 1
            };
            for (reader, list) in &readers {
                let expected = &expected[*list];
                let is_right = match select(&lab, reader, &request) {
                    QueryOutcome::Count(found) => found == expected.len() as u64,
                    QueryOutcome::Selection(found) => found.positions().to_vec() == *expected,
                };
                assert!(is_right, "seed {seed}, {count} ranges, not {expected:?}");
            }
        }
    }
    assert!(found > 10 && missed > 10, "{found} requests found something, {missed} nothing");
}

/// Of a thousand ranges on one path, one remains on each side, and one walk of each document tests all of them.
#[test]
fn thousand_range_filters_reduce_to_two_predicates() {
    let lab = EngineLab::new();
    let entities = hundred(|number, word| {
        let text = format!(r#"{{"number":{number},"in":[{{"word":"{word}"}},{{"word":"ox"}}]}}"#);
        Value::parse_entity(&text).expect("an entity")
    });
    let [_, options] = layouts(50);
    let reader = lab.reader(&entities, &options);
    let mut request = ReadRequest::default();
    let path = FieldPath::parse("in.word").expect("a path");
    let mut add = |bound: RangeBound, value: String| {
        request.range_filters[bound as usize].push(PathValue { path: path.clone(), value });
    };
    (0..MAX_QUERY_ITEMS - 2).for_each(|number| add(RangeBound::Greater, format!("a{number}")));
    add(RangeBound::GreaterOrEqual, "zebra".to_owned());
    add(RangeBound::Less, "p".to_owned());
    let (found, report, _) = lab.scan(&reader, request);
    assert_eq!(found, 1);
    let predicates: Vec<&str> = report.predicates.iter().map(|report| report.predicate.as_str()).collect();
    assert_eq!(predicates, ["filter_gte=in.word:zebra", "filter_lt=in.word:p"]);
    let verified = report.verification.expect("verified documents");
    assert_eq!((verified.rows_in, verified.rows_out), (100, 1));
}

/// Returns the remaining range filters.
fn simplified(conditions: &[(RangeBound, &str)]) -> String {
    let mut request = ReadRequest::default();
    for (bound, condition) in conditions {
        let (path, value) = FieldPath::parse_path_value(condition).expect("a condition");
        request.range_filters[*bound as usize].push(PathValue { path, value: value.to_owned() });
    }
    let shown = |(comparison, condition): (ComparisonOperator, &PathValue)| {
        format!("{}={}:{}", comparison.parameter_name(), condition.path, condition.value)
    };
    ComparisonOperator::from_request(&request).map(shown).collect::<Vec<_>>().join("&")
}

#[test]
fn range_filters_reduce_to_four_for_each_path() {
    use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
    for (conditions, expected) in [
        (&[(Greater, "a:1"), (Greater, "a:10"), (Greater, "a:9")][..], "filter_gt=a:10"),
        (&[(Less, "a:1"), (Less, "a:1.0"), (Less, "a:9")], "filter_lt=a:1"),
        // Without its limit, the range is tighter.
        (&[(GreaterOrEqual, "a:1"), (Greater, "a:1.0")], "filter_gt=a:1.0"),
        (&[(LessOrEqual, "a:b"), (Less, "a:b")], "filter_lt=a:b"),
        (&[(GreaterOrEqual, "a:2"), (Greater, "a:1")], "filter_gte=a:2"),
        (&[(LessOrEqual, "a:A"), (Less, "a:a")], "filter_lte=a:A"),
        // Filters that cannot imply each other.
        (
            &[(Greater, "a:9"), (Greater, "a:\"10\""), (Greater, "b:1")],
            "filter_gt=a:9&filter_gt=a:\"10\"&filter_gt=b:1",
        ),
        (&[(Greater, "a:9"), (Less, "a:1")], "filter_gt=a:9&filter_lt=a:1"),
        (
            &[
                (Greater, "a:1"),
                (GreaterOrEqual, "a:x"),
                (Less, "a:0"),
                (LessOrEqual, "a:y"),
                (Greater, "a:0"),
                (Less, "a:z"),
            ],
            "filter_gt=a:1&filter_gte=a:x&filter_lt=a:0&filter_lte=a:y",
        ),
    ] {
        assert_eq!(simplified(conditions), expected);
    }
}

/// A walk of a document compares a limited number of scalars. Beyond it, each condition has its own walk.
#[test]
fn array_beyond_walk_limit_is_compared_exactly() {
    let lab = EngineLab::new();
    let elements: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let entity = Value::parse_entity(&format!("{{\"a\":[{}],\"b\":1}}", elements.join(","))).expect("an entity");
    let [.., plain] = layouts(50);
    let reader = lab.reader(&[entity], &plain);
    let filter = |path: &str, value: String| PathValue { path: FieldPath::parse(path).expect("a path"), value };
    // Groups of 8, 64 and 512 conditions: the last one compares 512 values with up to 2,000 elements.
    for (values, expected) in [(1_400..1_984, 1), (1_417..2_001, 0), (0..5, 1)] {
        let filters = values.map(|value| filter("a", format!("{value}.0"))).chain([filter("b", "1".to_owned())]);
        let (found, report, _) =
            lab.scan(&reader, ReadRequest { filters: filters.collect(), ..ReadRequest::default() });
        assert_eq!((found, report.verification.expect("documents").rows_in), (expected, 1));
    }
}

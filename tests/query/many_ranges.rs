//! As many range filters as one request may hold, on one path, on some and on many: of those on one path the tightest
//! are left, and one walk of a document tests all that documents settle.

use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::editing::{Slot, Slots};
use strata_format::reader::VersionReader;
use strata_http::params::ITEMS_LIMIT;
use strata_query::Outcome;
use strata_query::scan::predicate::Comparison;
use strata_reference::{Value, pipeline, rules};
use strata_testing::engines::{Lab, hundred};
use strata_testing::reads::cases;
use strata_testing::versions::edited;
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};

use super::range_limits::{edited_reader, layouts, limits};

/// Fields of an entity.
const FIELDS: usize = 40;

/// Values that lie close together, of every type; two of them are equal as numbers, and two only as text.
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

/// An entity of many fields, of which some are scalars, some are lists, and some lead on to others.
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

/// Any path into such an entity, some of which no entity has.
fn path(random: &mut StdRng) -> Path {
    let field = random.random_range(0..FIELDS);
    let below = ["", "", ".v", ".w", ".v.w"][random.random_range(0..5)];
    Path::parse(&format!("f{field}{below}")).expect("a path")
}

/// A request of so many range filters on these paths, which one entity matches, or all but one that another may fail.
fn request(random: &mut StdRng, entity: &Value, paths: &[Path], count: usize, denull: bool) -> ReadRequest {
    let mut request = ReadRequest { denull, count: random.random_bool(0.3), ..ReadRequest::default() };
    let all: Vec<String> = VALUES
        .iter()
        .map(|text| Value::parse(text).expect("a value"))
        .filter(|value| !matches!(value, Value::Object(_)))
        .flat_map(|value| limits(&value))
        .collect();
    let mut left = count;
    let mut tries = 0;
    while left > 0 {
        let (path, bound) = (&paths[random.random_range(0..paths.len())], RangeBound::ALL[random.random_range(0..4)]);
        let value = &all[random.random_range(0..all.len())];
        let fits = |scalar: &&Value| {
            let is_gone = denull && scalar.text().is_none_or(|text| text.is_empty());
            !is_gone && rules::matches_range(scalar, bound, value)
        };
        let is_met = rules::reach(entity, path.keys()).iter().any(fits);
        tries += 1;
        // Nothing may be met on some paths.
        if is_met || random.random_bool(0.000_2) || tries > 20 * count {
            request.ranges[bound as usize].push(PathValue { path: path.clone(), value: value.clone() });
            left -= 1;
        }
    }
    request
}

fn select(lab: &Lab, reader: &VersionReader, request: &ReadRequest) -> Outcome {
    let select = lab.engines[0].select(reader.clone(), Arc::new(request.clone()));
    lab.bench.runtime.block_on(select).expect("selected")
}

#[test]
fn a_thousand_ranges_are_as_exact_as_one_after_the_other() {
    let lab = Lab::new();
    let (mut found, mut missed) = (0, 0);
    for seed in 0..u64::from(cases(12).max(12)) {
        let random = &mut StdRng::seed_from_u64(seed);
        let entities: Vec<Value> = (0..random.random_range(1..12)).map(|_| entity(random)).collect();
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let change = Some(Some(Bytes::from(entity(random).write())));
        let slots = Slots::from([(0, Slot { inserts: Vec::new(), change })]);
        let after: Vec<Value> =
            edited(&texts, &slots).iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
        let mut readers = Vec::new();
        for options in layouts(5) {
            readers.push((lab.reader(&entities, &options), 0));
            readers.extend(edited_reader(&lab, &entities, &slots, &options).map(|reader| (reader, 1)));
        }
        for (paths, count) in [(1, ITEMS_LIMIT), (4, 300), (60, 9), (60, 90), (200, ITEMS_LIMIT)] {
            let paths: Vec<Path> = (0..paths).map(|_| path(random)).collect();
            let denull = random.random_bool(0.2);
            let met = &entities[random.random_range(0..entities.len())];
            let request = request(random, met, &paths, count, denull);
            assert_eq!(request.ranges().count(), count);
            let expected = [&entities, &after].map(|list| pipeline::selected_positions(list, &request));
            if expected[0].is_empty() {
                missed += 1
            } else {
                found += 1
            };
            for (reader, list) in &readers {
                let expected = &expected[*list];
                let is_right = match select(&lab, reader, &request) {
                    Outcome::Count(found) => found == expected.len() as u64,
                    Outcome::Selection(found) => found.positions().to_vec() == *expected,
                };
                assert!(is_right, "seed {seed}, {count} ranges, not {expected:?}");
            }
        }
    }
    assert!(found > 10 && missed > 10, "{found} requests found something, {missed} nothing");
}

/// Of a thousand ranges on one path one is left on each side, and one walk of each document tests it and all others.
#[test]
fn what_is_left_of_a_thousand_ranges() {
    let lab = Lab::new();
    let entities = hundred(|number, word| {
        let text = format!(r#"{{"number":{number},"in":[{{"word":"{word}"}},{{"word":"ox"}}]}}"#);
        Value::parse_entity(&text).expect("an entity")
    });
    let [_, shaped, plain] = layouts(50);
    for options in [shaped, plain] {
        let reader = lab.reader(&entities, &options);
        let mut request = ReadRequest::default();
        let path = Path::parse("in.word").expect("a path");
        let mut add = |bound: RangeBound, value: String| {
            request.ranges[bound as usize].push(PathValue { path: path.clone(), value });
        };
        (0..ITEMS_LIMIT - 2).for_each(|number| add(RangeBound::Greater, format!("a{number}")));
        add(RangeBound::GreaterOrEqual, "zebra".to_owned());
        add(RangeBound::Less, "p".to_owned());
        let (found, used, _) = lab.scan(&reader, request);
        assert_eq!(found, 1);
        let predicates: Vec<&str> = used.predicates.iter().map(|used| used.predicate.as_str()).collect();
        assert_eq!(predicates, ["filter_gte=in.word:zebra", "filter_lt=in.word:p"]);
        let verified = used.verification.expect("documents were looked at");
        assert_eq!((verified.rows_in, verified.rows_out), (100, 1));
    }
}

/// The conditions that are left of range filters.
fn simplified(conditions: &[(RangeBound, &str)]) -> String {
    let mut request = ReadRequest::default();
    for (bound, condition) in conditions {
        let (path, value) = Path::parse_prefix(condition).expect("a condition");
        request.ranges[*bound as usize].push(PathValue { path, value: value.to_owned() });
    }
    let shown = |(comparison, condition): (Comparison, &PathValue)| {
        format!("{}={}:{}", comparison.parameter(), condition.path, condition.value)
    };
    Comparison::from_request(&request).map(shown).collect::<Vec<_>>().join("&")
}

#[test]
fn four_range_filters_are_left_of_a_path() {
    use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
    for (conditions, expected) in [
        (&[(Greater, "a:1"), (Greater, "a:10"), (Greater, "a:9")][..], "filter_gt=a:10"),
        (&[(Less, "a:1"), (Less, "a:1.0"), (Less, "a:9")], "filter_lt=a:1"),
        // Without its limit it is tighter.
        (&[(GreaterOrEqual, "a:1"), (Greater, "a:1.0")], "filter_gt=a:1.0"),
        (&[(LessOrEqual, "a:b"), (Less, "a:b")], "filter_lt=a:b"),
        (&[(GreaterOrEqual, "a:2"), (Greater, "a:1")], "filter_gte=a:2"),
        (&[(LessOrEqual, "a:A"), (Less, "a:a")], "filter_lte=a:A"),
        // Values that no filter can have in common.
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
    let lab = Lab::new();
    let elements: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let entity = Value::parse_entity(&format!("{{\"a\":[{}],\"b\":1}}", elements.join(","))).expect("an entity");
    let [.., plain] = layouts(50);
    let reader = lab.reader(&[entity], &plain);
    let filter = |path: &str, value: String| PathValue { path: Path::parse(path).expect("a path"), value };
    // Groups of 8, 64 and 512 conditions: the last one compares 512 values with up to 2,000 elements.
    for (values, expected) in [(1_400..1_984, 1), (1_417..2_001, 0), (0..5, 1)] {
        let filters = values.map(|value| filter("a", format!("{value}.0"))).chain([filter("b", "1".to_owned())]);
        let (found, used, _) = lab.scan(&reader, ReadRequest { filters: filters.collect(), ..ReadRequest::default() });
        assert_eq!((found, used.verification.expect("documents").rows_in), (expected, 1));
    }
}

//! `dedup` and top-k against the naive reference: by codes, by cached indexes, by the values of columns and by
//! documents, each before and after an index is cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::aux_index::{AuxKey, ColumnSortIndex};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions, WrittenVersionFile};
use strata_query::fetch::selection::SelectedPositions;
use strata_query::scan::scan_report::{AccessPath, KeySourceReport, ScanReport};
use strata_query::{QueryEngine, QueryOutcome, cost};
use strata_reference::{Value, hostile, pipeline};
use strata_testing::engines::EngineLab;
use strata_testing::reads::{cases, no_failure, small};
use strata_testing::versions::{all_shredded, nothing_shredded};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest, SortField};

/// Values that are equal in several spellings, or nearly equal.
pub(super) const VALUES: &[&str] = &[
    "1",
    "1.0",
    "1e0",
    "10e-1",
    "\"1\"",
    "-0",
    "0",
    "0.0",
    "null",
    "\"\"",
    "\"null\"",
    "true",
    "\"true\"",
    "false",
    "\"x\"",
    "\"X\"",
    "\"ß\"",
    "\"SS\"",
    "\"ΟΔΟΣ\"",
    "\"οδος\"",
    "\"İ\"",
    "9007199254740992",
    "9007199254740993",
    "9007199254740993.0",
    "1e400",
    "1e401",
    "10000000000000000000000000000000000000001",
    "10000000000000000000000000000000000000002",
    "1e40",
    "2.5",
    "-7",
    "\"a text that is longer than the codes compare as it stands, and so is compared by its hash alone\"",
    "\"a text that is longer than the codes compare as it stands, and so is compared by its hash alone.\"",
];

/// Values that a column of scalars cannot store.
const CONTAINERS: &[&str] = &[
    "[]",
    "[1]",
    "[1.0]",
    "[[1]]",
    "[null]",
    "[\"\"]",
    "{}",
    "{\"b\":1}",
    "{\"b\":null}",
    "{\"b\":{\"c\":\"x\"},\"d\":1}",
    "{\"d\":1e0,\"b\":{\"c\":\"x\"}}",
    "[{\"b\":1},{\"b\":\"X\"}]",
    "[{\"b\":1},[{\"b\":\"X\"}]]",
    "[{\"b\":\"\"},{\"b\":1}]",
    "[{},{\"b\":[]}]",
];

fn parsed(text: &str) -> Value {
    Value::parse(text).expect("a value")
}

/// The value of a field, if the entity has the field.
type Field = Option<Value>;

/// Generates the value of a field. `kind` decides which values all entities of a version have: scalars, numbers,
/// objects, lists, or any values.
fn field(kind: usize) -> BoxedStrategy<Field> {
    let scalar = select(VALUES).prop_map(parsed);
    let number = select(&["1", "1.0", "2", "2.5", "-7", "0", "1e400", "9007199254740993"][..]).prop_map(parsed);
    let any = prop_oneof![
        4 => select(VALUES).prop_map(parsed),
        2 => select(CONTAINERS).prop_map(parsed),
        1 => small(),
        1 => hostile::value(),
    ];
    match kind {
        0 => prop_oneof![1 => Just(None).boxed(), 5 => scalar.prop_map(Some).boxed()].boxed(),
        1 => prop_oneof![1 => Just(None).boxed(), 5 => number.prop_map(Some).boxed()].boxed(),
        2 => {
            select(&["{\"c\":1}", "{\"c\":\"X\",\"d\":2}", "{\"d\":1}"][..]).prop_map(|text| Some(parsed(text))).boxed()
        }
        3 => vec(select(VALUES).prop_map(parsed), 0..3)
            .prop_map(|values| {
                let object = |value| Value::Object(vec![("b".to_owned(), value)]);
                Some(Value::Array(values.into_iter().map(object).collect()))
            })
            .boxed(),
        _ => prop_oneof![1 => Just(None).boxed(), 5 => any.prop_map(Some).boxed()].boxed(),
    }
}

/// Entities with a few fields, each of one kind in all entities.
fn entities() -> impl Strategy<Value = Vec<Value>> {
    let sizes = prop_oneof![1 => Just(0..2_usize), 3 => Just(2..14), 4 => Just(14..60)];
    (vec(0..6_usize, 3), sizes).prop_flat_map(|(kinds, size)| {
        let fields = (field(kinds[0]), field(kinds[1]), field(kinds[2]), any::<bool>());
        vec(fields, size).prop_map(|entities| {
            let entity = |(place, (a, b, k, reversed)): (usize, (Field, Field, Field, bool))| {
                let fields = [("a", a), ("b", b), ("k", k)];
                let mut members: Vec<(String, Value)> =
                    fields.into_iter().filter_map(|(key, value)| value.map(|value| (key.to_owned(), value))).collect();
                if reversed {
                    members.reverse();
                }
                members.push(("_source".to_owned(), Value::String(format!("#{place}"))));
                Value::parse_entity(&Value::Object(members).write()).expect("an entity")
            };
            entities.into_iter().enumerate().map(entity).collect()
        })
    })
}

#[derive(Clone, Debug)]
struct DedupSortPlan {
    reshape: (bool, bool, Vec<&'static str>, Vec<&'static str>),
    filter: Option<(Index, bool)>,
    sort: Option<(&'static str, bool)>,
    key: Vec<&'static str>,
    dedup: bool,
    window: (u64, Option<u64>),
    count: bool,
}

fn plan() -> impl Strategy<Value = DedupSortPlan> {
    const PATHS: &[&str] = &["a", "b", "k", "a", "b", "k", "a.b", "a.c", "b.b", "k.b.c", "nothing", "a.nothing"];
    const DEEP_PATHS: &[&str] = &[
        "a.b",
        "a.b.c",
        "a.d",
        "a.c",
        "b.b",
        "b.b.c",
        "b.d",
        "k.b",
        "k.b.c",
        "k.d",
        "k.c",
        "_source.a",
        "a..b",
        "nothing",
    ];
    const FIELDS: &[&str] = &["a", "b", "k", "a", "b", "a.b", "k.c", "nothing"];
    let few = |most: usize, list: &'static [&'static str]| vec(select(list), 0..=most);
    let keep = prop_oneof![2 => Just(Vec::new()).boxed(), 3 => few(3, FIELDS).boxed()];
    let drop = prop_oneof![4 => Just(Vec::new()).boxed(), 1 => few(2, FIELDS).boxed()];
    let reshape = (prop::bool::weighted(0.8), prop::bool::weighted(0.25), keep, drop);
    let filter = prop::option::weighted(0.4, (any::<Index>(), any::<bool>()));
    let sort = prop::option::weighted(0.5, (select(&["a", "b", "k", "_source", "nothing"][..]), any::<bool>()));
    let limit = prop_oneof![2 => Just(None), 3 => (0..8_u64).prop_map(Some)];
    let window = (prop_oneof![2 => Just(0_u64), 1 => 0..6_u64], limit);
    let key = prop_oneof![4 => few(3, PATHS), 1 => few(20, PATHS), 2 => few(20, DEEP_PATHS)];
    (reshape, filter, sort, key, prop::bool::weighted(0.75), window, prop::bool::weighted(0.2)).prop_map(
        |(reshape, filter, sort, key, dedup, window, count)| DedupSortPlan {
            reshape,
            filter,
            sort,
            key,
            dedup,
            window,
            count,
        },
    )
}

impl DedupSortPlan {
    fn resolve(&self, entities: &[Value]) -> ReadRequest {
        let paths = |list: &[&str]| list.iter().map(|text| FieldPath::parse(text).expect("a path")).collect::<Vec<_>>();
        let (include_source, denull, keep, drop) = &self.reshape;
        let mut keep = paths(keep);
        if !keep.is_empty() {
            // Identifies the first of several equal entities.
            keep.push(FieldPath::parse("_source").expect("a path"));
        }
        let filters = self.filter.as_ref().filter(|_| !entities.is_empty()).and_then(|(place, frequent)| {
            let (field, value) = match place.get(entities) {
                Value::Object(members) if *frequent => members.first()?.clone(),
                Value::Object(members) => members.last()?.clone(),
                _ => return None,
            };
            let value = value.text().unwrap_or_else(|| "null".to_owned());
            Some(vec![PathValue { path: FieldPath::from_keys([field]).ok()?, value }])
        });
        ReadRequest {
            include_source: *include_source,
            denull: *denull,
            keep_fields: keep,
            drop_fields: paths(drop),
            filters: filters.unwrap_or_default(),
            sort: self.sort.map(|(field, descending)| SortField { field: field.to_owned(), descending }),
            dedup: self.dedup,
            dedup_key: paths(&self.key),
            offset: self.window.0,
            limit: self.window.1,
            count: self.count,
            ..ReadRequest::default()
        }
    }
}

/// How a request runs. From the second run on, cached indexes are used, also in the explained plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueryRun {
    First,
    Second,
    Explained,
}

/// The engines and runs to check. Without a cache, each run is like the first.
fn ways(lab: &EngineLab, has_cache: bool) -> Vec<(&QueryEngine, QueryRun)> {
    let [one, two] = &lab.engines;
    match has_cache {
        true => vec![
            (one, QueryRun::First),
            (two, QueryRun::Second),
            (one, QueryRun::Explained),
            (two, QueryRun::Explained),
        ],
        false => vec![(two, QueryRun::First)],
    }
}

pub(super) fn select_positions(
    lab: &EngineLab,
    engine: &QueryEngine,
    reader: &VersionReader,
    request: &ReadRequest,
    run: QueryRun,
) -> Result<Vec<u64>, u64> {
    let reader = reader.clone();
    let shared_request = Arc::new(request.clone());
    let selecting = async {
        match run {
            QueryRun::First | QueryRun::Second => engine.select(reader, shared_request).await,
            QueryRun::Explained => engine.explain(reader, shared_request).await.map(|(outcome, _)| outcome),
        }
    };
    match lab.bench.runtime.block_on(selecting) {
        Ok(QueryOutcome::Count(count)) => Err(count),
        Ok(QueryOutcome::Selection(selection)) => Ok(match selection.positions() {
            SelectedPositions::Range(range) => range.clone().collect(),
            SelectedPositions::List(list) => list.clone(),
        }),
        Err(error) => panic!("{request:?} fails: {error}"),
    }
}

pub(super) fn open(
    lab: &EngineLab,
    (path, written): &(ObjectPath, WrittenVersionFile),
    cache: &PartCache,
) -> VersionReader {
    let open = VersionReader::open(&lab.store, path, written.size_bytes, cache);
    lab.bench.runtime.block_on(open).expect("opened")
}

/// Builds the sort index of the column that a request sorts by, if the column can have one.
fn build_sort_index(lab: &EngineLab, reader: &VersionReader, request: &ReadRequest) {
    let all = ReadRequest { sort: request.sort.clone(), limit: Some(u64::MAX), ..ReadRequest::default() };
    if all.sort.is_some() {
        let _ = select_positions(lab, &lab.engines[0], reader, &all, QueryRun::First);
    }
}

fn check(
    lab: &EngineLab,
    readers: &[(&str, VersionReader)],
    entities: &[Value],
    request: &ReadRequest,
) -> Result<(), TestCaseError> {
    let expected = pipeline::window(pipeline::selected(entities, request), request);
    let reshaped = pipeline::reshaped(entities, request);
    for (name, reader) in readers {
        for (engine, run) in ways(lab, name.starts_with("cached")) {
            match select_positions(lab, engine, reader, request, run) {
                Err(count) => prop_assert_eq!(count, expected.len() as u64, "{} {:?} {:?}", name, run, request),
                Ok(positions) => {
                    let found: Vec<&Value> = positions.iter().map(|position| &reshaped[*position as usize]).collect();
                    let same = found.iter().zip(&expected).all(|(found, expected)| *found == expected);
                    prop_assert!(
                        same && found.len() == expected.len(),
                        "{name} {run:?} {request:?}\n gives {positions:?}: {found:?}\n and not {expected:?}\n of {:?}",
                        reader.layout().shredded_columns
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn dedup_and_sort_match_reference() {
    let lab = EngineLab::new();
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(15), ..PropertyConfig::default() });
    let ways = (0..4_usize, 0..3_usize);
    let result = runner.run(&(entities(), vec(plan(), 8..16), ways), |(entities, plans, (rows, bounds))| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()][bounds],
            ..WriteOptions::default()
        };
        let written = lab.write(&entities, &options);
        // Without a cache, no index is built.
        let readers = [
            ("cached", open(&lab, &written, &PartCache::new(1 << 30))),
            ("cached, with sort indexes", open(&lab, &written, &PartCache::new(1 << 30))),
            ("not cached", open(&lab, &written, &PartCache::new(0))),
        ];
        for plan in &plans {
            let request = plan.resolve(&entities);
            build_sort_index(&lab, &readers[1].1, &request);
            check(&lab, &readers, &entities, &request)?;
        }
        Ok(())
    });
    no_failure(result);
}

/// A pseudorandom number that is always the same.
fn scrambled(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

/// Many rows in several row groups: enough that a sort index serves queries with predicates, that keys are too many for
/// a table, and that a path has too many values for codes.
#[test]
fn dedup_and_sort_of_many_rows_match_reference() {
    let lab = EngineLab::new();
    let count = 70_000;
    let entity = |number: u64| {
        let random = scrambled(number);
        let text = format!(
            r#"{{"_source":"{number}","many":{},"some":"{}","few":{},"pick":{},"unique":"u{random}","rare":{},"step":{},
                "alike":"the same beginning{}","nested":{{"n":{}}}}}"#,
            random % 300,
            ["x", "X", "y", "ß", "", "null"][random as usize / 300 % 6],
            ["1", "1.0", "null", "true", "\"1\"", "2"][random as usize / 1_800 % 6],
            random % 3,
            if number % 30_000 == 7 { "[1]".to_owned() } else { (random % 2_000).to_string() },
            number / 100,
            if number.is_multiple_of(9) { random % 50 } else { 7 },
            random % 40,
        );
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..count).map(entity).collect();
    let written = lab.write(&entities, &WriteOptions { max_row_group_rows: 9_000, ..WriteOptions::default() });
    let readers = [
        ("cached", open(&lab, &written, &PartCache::new(1 << 30))),
        ("cached, with sort indexes", open(&lab, &written, &PartCache::new(1 << 30))),
        ("not cached", open(&lab, &written, &PartCache::new(0))),
    ];
    let mut compared = 0;
    for query in [
        "dedup=true&dedup_key=few,some",
        "dedup=true&dedup_key=few,some&sort=many:desc",
        "dedup=true&dedup_key=many,some&filter=pick:1",
        "dedup=true&dedup_key=many,some,few,rare",
        "dedup=true&dedup_key=many,some,few,rare&filter=pick:1",
        "dedup=true&dedup_key=many,rare&sort=some",
        "dedup=true&dedup_key=unique&count=true",
        "dedup=true&dedup_key=unique&offset=69000&limit=30",
        "dedup=true&dedup_key=unique,pick&offset=31&limit=5000",
        "dedup=true&dedup_key=nested.n&limit=7",
        "dedup=true&dedup_key=step,rare&offset=10",
        "dedup=true&dedup_key=unique,few&filter=pick:2&count=true",
        "dedup=true&keep_field=few,some&offset=3&limit=4",
        "dedup=true&keep_field=few,some&denull=true",
        "dedup=true&keep_field=few,rare&count=true",
        "sort=many:desc&limit=120&offset=30",
        "sort=many&limit=120&filter=pick:1",
        "sort=many:desc&limit=50&filter=pick:1",
        "sort=some:desc&limit=40&filter=pick:0&denull=true",
        "sort=few&limit=60000&offset=100",
        "sort=few:desc&limit=69990",
        "sort=unique:desc&limit=10",
        "sort=unique&limit=69000",
        "sort=rare&limit=10",
        "sort=step:desc&limit=5",
        "sort=step&limit=5&offset=1000&filter=pick:2",
        "sort=alike:desc&limit=20",
        "sort=alike&limit=20&offset=30000",
    ] {
        let request = parse(query);
        // The reference for many rows compares texts, because most of these values have one spelling.
        let expected = naive(&entities, &request);
        build_sort_index(&lab, &readers[1].1, &request);
        for (name, reader) in &readers {
            for (engine, run) in ways(&lab, name.starts_with("cached")) {
                compared += 1;
                match select_positions(&lab, engine, reader, &request, run) {
                    Err(counted) => assert_eq!(counted, expected.len() as u64, "{query} {name} {run:?}"),
                    Ok(found) => assert!(
                        found == expected,
                        "{query} {name} {run:?}: {} and {}, {:?} {:?}",
                        found.len(),
                        expected.len(),
                        &found[..found.len().min(9)],
                        &expected[..expected.len().min(9)]
                    ),
                }
            }
        }
    }
    assert_eq!(compared, 28 * 9);
}

pub(super) fn parse(query: &str) -> ReadRequest {
    let mut request = ReadRequest::default();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').expect("a parameter");
        match name {
            "dedup" => request.dedup = true,
            "denull" => request.denull = true,
            "count" => request.count = true,
            "dedup_key" => request.dedup_key = FieldPath::parse_list(value),
            "keep_field" => request.keep_fields = FieldPath::parse_list(value),
            "offset" => request.offset = value.parse().expect("a number"),
            "limit" => request.limit = Some(value.parse().expect("a number")),
            "filter" => {
                let (path, value) = FieldPath::parse_path_value(value).expect("a filter");
                request.filters.push(PathValue { path, value: value.to_owned() });
            }
            "sort" => {
                let (field, direction) = value.split_once(':').unwrap_or((value, "asc"));
                request.sort = Some(SortField { field: field.to_owned(), descending: direction == "desc" });
            }
            other => panic!("{other}"),
        }
    }
    request
}

/// Returns the positions that a request selects among entities whose values have one spelling each, except `1.0`.
fn naive(entities: &[Value], request: &ReadRequest) -> Vec<u64> {
    let value = |entity: &Value, field: &str| {
        let value = entity.get(field).cloned();
        let is_empty = matches!(&value, Some(Value::String(text)) if text.is_empty());
        let value = value.filter(|value| !(request.denull && (*value == Value::Null || is_empty)));
        value.map(|value| if value == Value::Number("1.0".to_owned()) { Value::Number("1".to_owned()) } else { value })
    };
    let mut positions: Vec<u64> = (0..entities.len() as u64).collect();
    let entity = |position: &u64| &entities[*position as usize];
    for filter in &request.filters {
        positions.retain(|position| {
            value(entity(position), &filter.path.keys()[0]).and_then(|value| value.text()) == Some(filter.value.clone())
        });
    }
    if let Some(sort) = &request.sort {
        let class = |value: &Option<Value>| match value {
            Some(Value::Number(_)) => 0,
            Some(Value::String(_)) => 1,
            Some(Value::Bool(_)) => 2,
            _ => 3,
        };
        let compare = |one: &u64, other: &u64| {
            let one = value(entity(one), &sort.field);
            let other = value(entity(other), &sort.field);
            let number = |value: &Value| value.text().expect("a number").parse::<f64>().expect("a number");
            let ordering = class(&one).cmp(&class(&other)).then_with(|| match (&one, &other) {
                (Some(one @ Value::Number(_)), Some(other)) => number(one).total_cmp(&number(other)),
                (Some(Value::String(one)), Some(Value::String(other))) => one.cmp(other),
                _ => std::cmp::Ordering::Equal,
            });
            let is_last = class(&one) == 3 || class(&other) == 3;
            if sort.descending && !is_last { ordering.reverse() } else { ordering }
        };
        positions.sort_by(compare);
    }
    if request.dedup {
        let paths = if request.dedup_key.is_empty() { &request.keep_fields } else { &request.dedup_key };
        let mut seen = std::collections::HashSet::new();
        positions.retain(|position| {
            // The only object has one field.
            let key = paths.iter().map(|path| format!("{:?}", value(entity(position), &path.keys()[0])));
            seen.insert(key.collect::<Vec<_>>())
        });
    }
    let limit = request.limit.map_or(usize::MAX, |limit| limit as usize);
    positions.into_iter().skip(request.offset as usize).take(limit).collect()
}

/// Writes 30,000 entities in fifteen row groups.
fn steps(lab: &EngineLab) -> (ObjectPath, WrittenVersionFile) {
    let entity = |number: u64| {
        let text = format!(
            r#"{{"n":{number},"random":{},"k":{},"t":"x{}","o":{{"p":[{}]}}}}"#,
            scrambled(number),
            number % 7,
            number % 5,
            number % 3
        );
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..30_000).map(entity).collect();
    lab.write(&entities, &WriteOptions { max_row_group_rows: 2_000, ..WriteOptions::default() })
}

/// Returns the report of a scan, and the number of column lookups.
fn explained(lab: &EngineLab, engine: &QueryEngine, reader: &VersionReader, query: &str) -> (ScanReport, u64) {
    let metrics = Arc::new(ReaderMetrics::default());
    let explained = engine.explain(reader.with_metrics(metrics.clone()), Arc::new(parse(query)));
    let (_, explained) = lab.bench.runtime.block_on(explained).expect("explained");
    let columns = metrics.columns.load();
    (explained.scan.expect("a scan"), columns.hits + columns.misses)
}

fn access(report: Option<KeySourceReport>) -> AccessPath {
    report.expect("keys").access
}

#[test]
fn cached_indexes_are_used_and_lower_cost() {
    let lab = EngineLab::new();
    let reader = open(&lab, &steps(&lab), &PartCache::new(1 << 30));
    let work = |query: &str| lab.bench.runtime.block_on(cost::estimate_request_bytes(&reader, &parse(query)));
    let [engine, _] = &lab.engines;

    // A sort that needs a large part of the entities builds the sort index at once.
    let large = "sort=n:desc&limit=5&offset=4000";
    assert!(work(large) >= 64 * 30_000, "{}", work(large));
    let query = "sort=n:desc&limit=5&offset=10";
    assert!((16 * 30_000..17 * 30_000).contains(&work(query)), "{}", work(query));
    let (first, columns) = explained(&lab, engine, &reader, large);
    assert!(access(first.sort) == AccessPath::KeptOrder && columns > 0);
    let (second, columns) = explained(&lab, engine, &reader, query);
    assert_eq!((access(second.sort), columns), (AccessPath::KeptOrder, 0));
    assert_eq!((second.row_groups.scanned, second.row_groups.not_reached, second.rows_selected), (0, 15, 15));
    assert!(work(query) < 1_000, "{}", work(query));
    // The same sort index serves the other direction, and predicates that select many entities.
    assert_eq!(explained(&lab, engine, &reader, "sort=n&limit=3").1, 0);
    let (many, _) = explained(&lab, engine, &reader, "sort=n&limit=3&filter=k:1");
    let (few, _) = explained(&lab, engine, &reader, "sort=n&limit=3&filter=n:77");
    assert_eq!((access(many.sort), access(few.sort)), (AccessPath::KeptOrder, AccessPath::ShreddedColumn));

    for (query, source, groups) in [
        ("dedup=true&dedup_key=k,t", AccessPath::Codes, 35),
        ("dedup=true", AccessPath::StoredHashes, 30_000),
        ("dedup=true&dedup_key=o", AccessPath::Codes, 3),
        ("dedup=true&denull=true&dedup_key=o", AccessPath::Documents, 3),
        ("dedup=true&dedup_key=n", AccessPath::Codes, 30_000),
    ] {
        let before = work(query);
        let (first, _) = explained(&lab, engine, &reader, query);
        assert_eq!((access(first.dedup), first.rows_selected), (source, groups), "{query}");
        let (second, columns) = explained(&lab, engine, &reader, query);
        assert_eq!((access(second.dedup), second.rows_selected), (AccessPath::KeptSet, groups), "{query}");
        assert_eq!((second.row_groups.scanned, columns), (0, 0), "{query}");
        assert_eq!(second.duplicates_left_out, Some(30_000 - groups), "{query}");
        let counted = work(&format!("{query}&count=true"));
        assert!(work(query) <= before && counted < 100, "{query}: {before}, {}, {counted}", work(query));
    }
    assert_eq!(work("dedup=true&dedup_key=k,t"), 16 * 35);
}

#[test]
fn sort_index_without_cache_or_memory_is_not_built() {
    let lab = EngineLab::new();
    let file = steps(&lab);
    let [engine, _] = &lab.engines;
    let query = "sort=n:desc&limit=5";
    // Statistics prune all row groups but the one with the first entities.
    let small = open(&lab, &file, &PartCache::new(100_000));
    for _ in 0..2 {
        let (scan, _) = explained(&lab, engine, &small, query);
        assert_eq!(access(scan.sort), AccessPath::ShreddedColumn);
        assert_eq!((scan.row_groups.scanned, scan.row_groups.pruned_by_order), (1, 14));
    }
    let reader = open(&lab, &file, &PartCache::new(1 << 30));
    let query = "sort=n:desc&limit=4000";
    let limited = lab.engine(2, 64 << 20, Duration::from_secs(60));
    let reservation = limited.try_reserve("others", 63 << 20).expect("memory");
    assert_eq!(access(explained(&lab, &limited, &reader, query).0.sort), AccessPath::ShreddedColumn);
    assert_eq!(limited.reserved_memory_bytes(), 63 << 20);
    drop(reservation);
    assert_eq!(access(explained(&lab, &limited, &reader, query).0.sort), AccessPath::KeptOrder);
    assert_eq!(limited.reserved_memory_bytes(), 0);
}

/// Returns the positions of [`steps`] in the order of `random`, descending.
fn by_random_number() -> Vec<u64> {
    let mut positions: Vec<u64> = (0..30_000).collect();
    positions.sort_by_key(|number| std::cmp::Reverse(scrambled(*number)));
    positions
}

#[test]
fn sort_caches_its_first_entities() {
    let lab = EngineLab::new();
    let reader = open(&lab, &steps(&lab), &PartCache::new(1 << 30));
    let descending = by_random_number();
    let ascending: Vec<u64> = descending.iter().copied().rev().collect();
    for (query, positions, is_scanned) in [
        ("sort=random:desc&limit=5", &descending[..5], true),
        ("sort=random:desc&limit=5&offset=5", &descending[5..10], false),
        ("sort=random:desc&limit=1000", &descending[..1_000], false),
        ("sort=random:desc&limit=0", &descending[..0], false),
        ("sort=random:desc&limit=5&offset=995&keep_field=random", &descending[995..1_000], false),
        ("sort=random:desc&limit=5&offset=996", &descending[996..1_001], true),
        ("sort=random&limit=5&offset=7", &ascending[7..12], true),
        ("sort=random&limit=5&denull=true", &ascending[..5], true),
        ("sort=random&limit=5&denull=true&offset=5", &ascending[5..10], false),
        ("sort=random&limit=9", &ascending[..9], false),
    ] {
        let metrics = Arc::new(ReaderMetrics::default());
        let found = select_positions(
            &lab,
            &lab.engines[0],
            &reader.with_metrics(metrics.clone()),
            &parse(query),
            QueryRun::First,
        );
        assert_eq!(found.as_deref(), Ok(positions), "{query}");
        let columns = metrics.columns.load();
        assert_eq!(columns.hits + columns.misses > 0, is_scanned, "{query}");
    }
}

#[test]
fn repeated_sort_builds_sort_index_once() {
    let lab = EngineLab::new();
    let reader = open(&lab, &steps(&lab), &PartCache::new(1 << 30));
    let [_, engine] = &lab.engines;
    let column = reader.layout().find_shredded(&["random".to_owned()]).expect("a column") as u32;
    let cached_index = || {
        let found = reader.cached_aux_index::<ColumnSortIndex>(AuxKey::SortIndex(column));
        lab.bench.runtime.block_on(found).into_hit()
    };
    // These entities are not among the first of the order, which one scan caches.
    let query = "sort=random:desc&limit=5&offset=1000";
    let expected = by_random_number()[1_000..1_005].to_vec();
    let positions = || select_positions(&lab, engine, &reader, &parse(query), QueryRun::First);

    let (first, _) = explained(&lab, engine, &reader, query);
    assert_eq!((access(first.sort.clone()), first.row_groups.not_reached), (AccessPath::ShreddedColumn, 0));
    assert!(first.row_groups.scanned > 0 && first.left_out_early > Some(0), "{first:?}");
    // The scan was counted, but one scan starts no build.
    let counter = reader.cached_aux_index::<AtomicU64>(AuxKey::SortScanCount(column));
    let counter = lab.bench.runtime.block_on(counter).into_hit().expect("a counter");
    assert_eq!(counter.load(Ordering::Relaxed), first.rows_tested);
    assert!(cached_index().is_none());

    let mut built = None;
    for _ in 0..20_000 {
        assert_eq!(positions(), Ok(expected.clone()));
        built = cached_index();
        if built.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let built = built.expect("a sort index");
    let (again, columns) = explained(&lab, engine, &reader, query);
    assert_eq!((access(again.sort), columns), (AccessPath::KeptOrder, 0));
    assert_eq!(positions(), Ok(expected));
    assert_eq!(explained(&lab, engine, &reader, "sort=random&limit=5").1, 0);
    assert!(cached_index().is_some_and(|index| Arc::ptr_eq(&index, &built)));
    while engine.reserved_memory_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sorts of few values, of values in order, and of strings skip row groups by statistics.
#[test]
fn top_k_scan_prunes_row_groups_by_statistics() {
    let lab = EngineLab::new();
    let entity = |number: u64| {
        let text = format!(
            r#"{{"n":{number},"date":"{:04}-01-02","few":{},"mixed":{}}}"#,
            number / 10,
            number % 3,
            if number < 9_000 { format!("\"{:05}\"", number) } else { number.to_string() }
        );
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..10_000).map(entity).collect();
    let written = lab.write(&entities, &WriteOptions { max_row_group_rows: 1_000, ..WriteOptions::default() });
    let reader = open(&lab, &written, &PartCache::new(1 << 30));
    for (query, scanned) in [
        ("sort=n&limit=7", 1),
        ("sort=n:desc&limit=1001", 2),
        ("sort=date&limit=9", 1),
        ("sort=date:desc&limit=9", 1),
        ("sort=mixed:desc&limit=5", 1),
        ("sort=mixed&limit=5", 1),
        ("sort=few&limit=5", 1),
        ("sort=few:desc&limit=5", 1),
    ] {
        let (scan, _) = explained(&lab, &lab.engines[0], &reader, query);
        assert_eq!(access(scan.sort), AccessPath::ShreddedColumn, "{query}");
        assert_eq!((scan.row_groups.scanned, scan.row_groups.pruned_by_order), (scanned, 10 - scanned), "{query}");
        let request = parse(query);
        let found = select_positions(&lab, &lab.engines[0], &reader, &request, QueryRun::First);
        assert_eq!(found, Ok(naive(&entities, &request)), "{query}");
    }
}

#[test]
fn cancelled_sort_index_build_releases_memory() {
    let lab = EngineLab::new();
    let file = steps(&lab);
    let request = Arc::new(parse("sort=n:desc&limit=4000"));
    let [engine, _] = &lab.engines;
    for patience_us in [0, 50, 200, 500, 1_000, 2_000, 4_000] {
        let reader = open(&lab, &file, &PartCache::new(1 << 30));
        lab.bench.runtime.block_on(async {
            let selecting = engine.select(reader.clone(), request.clone());
            let _ = tokio::time::timeout(Duration::from_micros(patience_us), selecting).await;
            while engine.reserved_memory_bytes() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let found = select_positions(&lab, engine, &reader, &request, QueryRun::First);
        assert_eq!(found, Ok((26_000..30_000).rev().collect()));
    }
}

/// The examples of docs/reference/sort-and-dedup.md, sample.
#[test]
fn sample_order_for_a_seed_is_stable() {
    let lab = EngineLab::new();
    let entities: Vec<Value> = (0..10).map(|number| parsed(&format!("{{\"n\":{number}}}"))).collect();
    let reader = lab.reader(&entities, &WriteOptions::default());
    for (seed, expected) in
        [(0, [8, 9, 1, 7, 4, 2, 3, 5, 6, 0]), (1, [7, 9, 0, 1, 6, 2, 8, 4, 5, 3]), (42, [4, 0, 8, 7, 2, 1, 5, 9, 3, 6])]
    {
        let request = ReadRequest { sample: Some(10), seed: Some(seed), ..ReadRequest::default() };
        let found = select_positions(&lab, &lab.engines[1], &reader, &request, QueryRun::First);
        assert_eq!(found, Ok(expected.to_vec()), "seed {seed}");
    }
}

#[test]
fn dedup_key_drops_descendant_paths() {
    let lab = EngineLab::new();
    let reader = lab.reader(&[parsed("{}")], &WriteOptions::default());
    for (list, expected) in [
        ("b,a", "a,b"),
        ("a.b,a,a.b.c,a.c", "a"),
        ("a.b.c,a.b,a.b,ab,a!,a.bc", "a.b,a.bc,a!,ab"),
        (r"a\.b,a.b,a..b", r"a..b,a.b,a\.b"),
    ] {
        let request = ReadRequest { dedup: true, dedup_key: FieldPath::parse_list(list), ..ReadRequest::default() };
        let (_, used, _) = lab.scan(&reader, request);
        assert_eq!(used.dedup.expect("a key").by, expected, "{list}");
    }
}

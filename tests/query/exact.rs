//! Exact filters with hash indexes against the naive reference: before an index is built, with the index, and in the
//! explained plan.

use std::time::Duration;

use arrow::array::Array;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::scan::scan_report::{AccessPath, ScanReport};
use strata_query::{HashedPrincipal, QueryEngine, QueryOutcome, cost};
use strata_reference::{Value, pipeline};
use strata_testing::engines::EngineLab;
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::all_shredded;
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest, SortField};

use super::sets::{QueryRun, VALUES, open, parse, select_positions};

const PATHS: &[&str] = &["a", "l.b"];

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).expect("a path")
}

fn filter(at: &str, value: &str) -> PathValue {
    PathValue { path: path(at), value: value.to_owned() }
}

/// Entities with a field of scalars, and a list of objects with scalars.
fn entities() -> impl Strategy<Value = Vec<Value>> {
    let list = vec(select(VALUES), 0..4);
    vec((prop::option::weighted(0.9, select(VALUES)), list), 0..160).prop_map(|entities| {
        let entity = |(number, (scalar, list)): (usize, (Option<&str>, Vec<&str>))| {
            let scalar = scalar.map(|value| format!(r#""a":{value},"#)).unwrap_or_default();
            let list: Vec<String> = list.into_iter().map(|value| format!(r#"{{"b":{value}}}"#)).collect();
            let text = format!(r#"{{{scalar}"l":[{}],"n":{number}}}"#, list.join(","));
            Value::parse_entity(&text).expect("an entity")
        };
        entities.into_iter().enumerate().map(entity).collect()
    })
}

fn request() -> impl Strategy<Value = ReadRequest> {
    let values: Vec<String> = VALUES
        .iter()
        .map(|value| Value::parse(value).expect("a value").text().unwrap_or_else(|| "null".to_owned()))
        .chain(["zzz", "TRUE", "1.00", "-0.0", "X", "ss", "1e9999", "90071992547409930e-1"].map(str::to_owned))
        .collect();
    let condition = (select(PATHS), select(values)).prop_map(|(at, value)| filter(at, &value));
    let sort = prop::option::weighted(0.2, (select(&["a", "n"][..]), any::<bool>()));
    let window = (prop_oneof![3 => Just(0_u64), 1 => 0..5_u64], prop::option::of(0..6_u64));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let other = prop::option::weighted(0.2, select(&["x", "1", "l"][..]));
    (vec(condition, 1..3), sort, window, flags, other).prop_map(
        |(filters, sort, (offset, limit), (denull, dedup, count), other)| ReadRequest {
            filters,
            contains_filters: other.map(|value| filter("a", value)).into_iter().collect(),
            sort: sort.map(|(field, descending)| SortField { field: field.to_owned(), descending }),
            offset,
            limit,
            denull,
            dedup,
            dedup_key: if dedup { vec![path("a")] } else { Vec::new() },
            count,
            ..ReadRequest::default()
        },
    )
}

/// Filters by a path until its hash index is used, which is built after enough scans. Indexes are built in the
/// background, one at a time in all tests of the process.
fn index(lab: &EngineLab, reader: &VersionReader, at: &str) -> bool {
    for _ in 0..2_000 {
        let request = ReadRequest { filters: vec![filter(at, "no entity has this value")], ..ReadRequest::default() };
        let (found, scan, _) = lab.scan(reader, request);
        assert_eq!(found, 0);
        match scan.predicates.first().map(|predicate| predicate.access) {
            Some(AccessPath::HashIndex) => return true,
            Some(AccessPath::ShreddedColumn) => std::thread::sleep(Duration::from_millis(1)),
            _ => return false,
        }
    }
    false
}

#[test]
fn exact_filters_match_reference_with_any_index() {
    let lab = EngineLab::new();
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), vec(request(), 12), 0..3_usize), |(entities, requests, rows)| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [5, 32, 1_000][rows],
            shredding_limits: all_shredded(),
            ..WriteOptions::default()
        };
        let written = lab.write(&entities, &options);
        let reader = open(&lab, &written, &PartCache::new(1 << 30));
        let check = |runs: &[QueryRun]| {
            for request in &requests {
                let expected = pipeline::window(pipeline::selected(&entities, request), request);
                let reshaped = pipeline::reshaped(&entities, request);
                for run in runs {
                    match select_positions(&lab, &lab.engines[1], &reader, request, *run) {
                        Err(count) => prop_assert_eq!(count, expected.len() as u64, "{:?} {:?}", run, request),
                        Ok(positions) => {
                            let found = positions.iter().map(|position| reshaped[*position as usize].write());
                            let wanted: Vec<String> = expected.iter().map(Value::write).collect();
                            prop_assert_eq!(found.collect::<Vec<_>>(), wanted, "{:?} {:?}", run, request);
                        }
                    }
                }
            }
            Ok(())
        };
        check(&[QueryRun::First])?;
        for at in PATHS {
            let is_shredded = reader.layout().find_shredded(path(at).keys()).is_some();
            prop_assert!(index(&lab, &reader, at) == (is_shredded && !entities.is_empty()), "{}", at);
        }
        check(&[QueryRun::Second, QueryRun::Explained])
    });
    no_failure(result);
}

/// The keyword index finds the few entities with a text. Few of them are verified by their documents, others by the
/// column.
#[test]
fn keyword_index_finds_values_of_columns_with_many_values() {
    const ENTITIES: u64 = 9_000;
    let lab = EngineLab::new();
    let sha = |number: u64| {
        format!("{:032x}", u128::from(number / 2).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834))
    };
    let entity = |number: u64| {
        let mixed = if number.is_multiple_of(3) { format!("{number}") } else { format!("\"{number}\"") };
        let sha = sha(number);
        let text = format!(
            r#"{{"id":"Id{number}","sha":"{sha}","words":"Foo-Bar {}, baz","mixed":{mixed},"version":"{}.5","list":["x{}","{number}y"],"about":"{}"}}"#,
            number % 5_000,
            number % 4_500,
            number % 7,
            "and so on ".repeat(9)
        );
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..ENTITIES).map(entity).collect();
    let options = WriteOptions { max_row_group_rows: 500, ..WriteOptions::default() };
    let written = lab.write(&entities, &options);
    // The small cache has no room for hash indexes, which would soon replace searches in the keyword index.
    let readers = [400_000, 1 << 30].map(|cache_bytes| open(&lab, &written, &PartCache::new(cache_bytes)));
    let [reader, _] = &readers;
    assert!(!reader.keyword_index().is_empty());
    let shared_digits = sha(77)[..20].to_owned();
    let cases = [
        ("id", "ID4321".to_owned(), true),
        ("id", "Id432".to_owned(), true),
        ("sha", sha(8_000).to_uppercase(), true),
        ("sha", shared_digits, true),
        ("sha", sha(20_000), true),
        ("words", "foo-bar 77, BAZ".to_owned(), true),
        ("words", "foo-bar".to_owned(), true),
        ("version", "33.5".to_owned(), true),
        ("version", "33.50".to_owned(), true),
        ("mixed", "3000".to_owned(), false),
        ("mixed", "3001".to_owned(), false),
        ("mixed", "3e3".to_owned(), false),
        ("list", "8999Y".to_owned(), true),
        ("list", "x3".to_owned(), true),
        ("id", "null".to_owned(), false),
        ("id", " ".to_owned(), false),
        ("id", "\u{e4}\u{1F600}".to_owned(), true),
    ];
    // The second time, what the first one has read is cached.
    for (at, value, is_sought) in cases.iter().chain(&cases) {
        for (count, denull) in [(false, false), (true, false), (false, true)] {
            let request = ReadRequest { filters: vec![filter(at, value)], count, denull, ..ReadRequest::default() };
            let expected = pipeline::selected(&entities, &request).len() as u64;
            for reader in &readers {
                assert_eq!(lab.scan(reader, request.clone()).0, expected, "{at}:{value}");
            }
            let (_, scan, _) = lab.scan(reader, request);
            let is_sought = *is_sought || (denull && value == "null");
            assert_eq!(scan.predicates[0].keyword_index.is_some(), is_sought, "{at}:{value}: {scan:?}");
            if is_sought && (1..5).contains(&expected) {
                assert!(scan.row_groups.scanned <= 4, "{at}:{value}: {scan:?}");
            }
        }
    }
    let both = ReadRequest { filters: vec![filter("id", "Id78"), filter("sha", &sha(79))], ..ReadRequest::default() };
    assert_eq!(lab.scan(reader, both).0, 1);
    let other = ReadRequest { filters: vec![filter("id", "Id78"), filter("sha", &sha(80))], ..ReadRequest::default() };
    assert_eq!(lab.scan(reader, other).0, 0);
    let dedup = ReadRequest {
        filters: vec![filter("words", "foo-bar 9, baz")],
        dedup: true,
        dedup_key: vec![path("list")],
        ..ReadRequest::default()
    };
    let expected = pipeline::selected(&entities, &dedup).len() as u64;
    assert_eq!(lab.scan(reader, dedup).0, expected);
}

/// Columns with many values omit the texts of integers, which filters derive from the numbers.
#[test]
fn filters_match_integers_without_texts() {
    const ENTITIES: u64 = 6_000;
    const ROW_GROUP_ROWS: usize = 500;
    const SPECIAL: &[&str] =
        &["-0", "0", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "18014398509481985", "1e3"];
    let lab = EngineLab::new();
    let entity = |number: u64| {
        // The second half has row groups without any text.
        let mixed = match number {
            3_000.. => (number * 7).to_string(),
            _ if number.is_multiple_of(5) => format!("\"{number}\""),
            _ if number.is_multiple_of(11) => format!("{number}.0"),
            _ => SPECIAL.get(number as usize % 97).map_or_else(|| format!("-{number}"), |text| (*text).to_owned()),
        };
        let list = match number % 4 {
            0 => String::new(),
            1 => format!("{number},\"{number}\""),
            _ => format!("null,{number}5,-{number}"),
        };
        Value::parse_entity(&format!(r#"{{"mixed":{mixed},"list":[{list}]}}"#)).expect("an entity")
    };
    let entities: Vec<Value> = (0..ENTITIES).map(entity).collect();
    let written = lab.write(&entities, &WriteOptions { max_row_group_rows: ROW_GROUP_ROWS, ..WriteOptions::default() });
    let reader = open(&lab, &written, &PartCache::new(1 << 30));
    for (at, omitted) in [("mixed", ROW_GROUP_ROWS), ("list", 0)] {
        let column = reader.layout().find_shredded(path(at).keys()).expect("an indexed column");
        let texts = reader.read_shredded(ENTITIES as usize / ROW_GROUP_ROWS - 1, column, ShreddedPart::Text);
        let texts = lab.bench.runtime.block_on(texts).expect("readable texts").expect("texts");
        assert_eq!(texts.null_count(), omitted, "{at}");
    }
    let needles = ["", "-", "-1", "7", "99", "5999", "41993", "854775807", "0.", "e3", "-0", "1498", "a1", "85", "1-"];
    let values = ["-7", "7", "41993", "41993.0", "5", "1000", "-0", "0", "1498", "-1498", "42000", "x", "null"];
    for at in ["mixed", "list"] {
        for (contains_filters, filters) in (needles.iter().map(|needle| (vec![filter(at, needle)], Vec::new())))
            .chain(values.iter().chain(SPECIAL).map(|value| (Vec::new(), vec![filter(at, value)])))
        {
            for denull in [false, true] {
                let request = ReadRequest {
                    contains_filters: contains_filters.clone(),
                    filters: filters.clone(),
                    denull,
                    ..ReadRequest::default()
                };
                let expected = pipeline::selected(&entities, &request).len() as u64;
                assert_eq!(lab.scan(&reader, request.clone()).0, expected, "{request:?}");
            }
        }
    }
    let missing = ReadRequest { filters: vec![filter("mixed", "1")], ..ReadRequest::default() };
    let (_, scan, _) = lab.scan(&reader, missing);
    assert!(scan.row_groups.scanned <= 6, "row groups without texts are skipped by their numbers: {scan:?}");
}

/// Writes 30,000 entities in fifteen row groups: each with a string and a number of its own, and a string that ten
/// share.
fn many(lab: &EngineLab, cache: &PartCache) -> VersionReader {
    let entity = |number: u64| {
        let text = format!(r#"{{"id":"Id{number}","n":{number},"ten":"t{}","few":"f{}"}}"#, number % 3_000, number % 3);
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..30_000).map(entity).collect();
    let written = lab.write(&entities, &WriteOptions { max_row_group_rows: 2_000, ..WriteOptions::default() });
    open(lab, &written, cache)
}

fn scan(lab: &EngineLab, reader: &VersionReader, query: &str) -> (u64, ScanReport) {
    let (found, scan, _) = lab.scan(reader, parse(query));
    (found, scan)
}

/// About one other value, which ten entities share, is in the same bucket.
const OTHER_ENTITIES: u64 = 9;

#[test]
fn hash_index_prunes_row_groups_and_lowers_cost() {
    let lab = EngineLab::new();
    let reader = many(&lab, &PartCache::new(1 << 30));
    let work = |query: &str| lab.bench.runtime.block_on(cost::estimate_request_bytes(&reader, &parse(query)));
    let before = work("filter=ten:T7");
    let expected = (0..10).map(|place| 7 + 3_000 * place).collect::<Vec<u64>>();
    assert!(before >= 16 * 30_000, "{before}");
    for at in ["id", "n", "ten"] {
        assert!(index(&lab, &reader, at), "{at}");
    }
    assert!(work("filter=ten:T7") < 10_000, "{}", work("filter=ten:T7"));
    let positions = |query: &str| {
        let request = parse(query);
        select_positions(&lab, &lab.engines[0], &reader, &request, QueryRun::Second).expect("positions")
    };
    assert_eq!(positions("filter=ten:T7"), expected);
    assert_eq!(positions("filter=ten:T7&offset=3&limit=4"), expected[3..7]);
    assert_eq!(positions("filter=id:iD12345"), [12_345]);
    assert_eq!(positions("filter=n:1.2345e4"), [12_345]);
    assert_eq!(positions("filter=n:12345&filter=ten:t346"), Vec::<u64>::new());

    for (query, found, scanned) in [
        ("filter=id:id12345", 1, 1),
        ("filter=n:12345&count=true", 1, 1),
        ("filter=ten:t7&count=true", 10, 10),
        ("filter=ten:t7&filter=id:id3007", 1, 1),
        ("filter=ten:t7&filter=few:f1", 10, 10),
        ("filter=ten:t7&sort=n:desc&limit=1", 1, 10),
        ("filter=ten:t7&dedup=true&dedup_key=few", 1, 10),
    ] {
        let (selected, scan) = scan(&lab, &reader, query);
        // A sort with a limit scans only some of the row groups with candidates.
        let with_candidates = scan.row_groups.scanned + scan.row_groups.pruned_by_order;
        let pruned = scan.row_groups.pruned_by_hash_index;
        assert_eq!((selected, with_candidates + pruned), (found, 15), "{query}: {scan:?}");
        // Another value may share the bucket.
        assert!((scanned..scanned + OTHER_ENTITIES).contains(&with_candidates), "{query}: {scan:?}");
        assert!(scan.predicates.iter().any(|predicate| predicate.access == AccessPath::HashIndex), "{query}");
    }
    // A value of a third of all entities is scanned.
    let (found, scan) = scan(&lab, &reader, "filter=few:f1&count=true");
    assert_eq!((found, scan.row_groups.scanned, scan.row_groups.pruned_by_hash_index), (10_000, 15, 0));
    while lab.engines.iter().any(|engine| engine.reserved_memory_bytes() > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hash_index_without_cache_or_memory_is_not_built() {
    let lab = EngineLab::new();
    let small = many(&lab, &PartCache::new(1_000_000));
    let reader = many(&lab, &PartCache::new(1 << 30));
    let narrow = lab.engine(2, 64 << 20, Duration::from_secs(60));
    let held = narrow.try_reserve("others", (64 << 20) - 300_000).expect("memory");
    for _ in 0..100 {
        assert_eq!(access(&lab, &lab.engines[0], &small), AccessPath::ShreddedColumn);
        assert_eq!(access(&lab, &narrow, &reader), AccessPath::ShreddedColumn);
    }
    drop(held);
    // A failed build is retried.
    await_index(&lab, &narrow, &reader);
}

/// Returns the access path of a filter by `id`.
fn access(lab: &EngineLab, engine: &QueryEngine, reader: &VersionReader) -> AccessPath {
    let explained = engine.explain(reader.clone(), std::sync::Arc::new(parse("filter=id:id77")));
    let (_, explained) = lab.bench.runtime.block_on(explained).expect("explained");
    explained.scan.expect("a scan").predicates[0].access
}

/// Filters by `id` until the hash index is used.
fn await_index(lab: &EngineLab, engine: &QueryEngine, reader: &VersionReader) {
    for attempts in 0.. {
        if access(lab, engine, reader) == AccessPath::HashIndex {
            break;
        }
        assert!(attempts < 5_000);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hash_index_build_is_charged_to_no_principal() {
    let lab = EngineLab::new();
    let reader = many(&lab, &PartCache::new(1 << 30));
    let engine = lab.engine_of_tenants(32 << 20, 1);
    let tenant = |key| engine.for_principal(HashedPrincipal { key, is_anonymous: false });
    let held = tenant(1).try_reserve("another's", 1_000).expect("memory");
    // The build takes 20 bytes for each value, which is more than the principal's share.
    assert!(tenant(2).try_reserve("as much", 20 * 30_000).is_err());
    await_index(&lab, &tenant(2), &reader);
    drop(held);
    while engine.reserved_memory_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hash_index_verification_yields_between_batches() {
    /// The number of values in each list with common values.
    const SHARED: usize = 20;
    let lab = EngineLab::new();
    let entity = |number: u64| {
        let list: Vec<String> = match number.is_multiple_of(17) {
            true => (0..SHARED).map(|value| format!("\"Same{value}\"")).collect(),
            // Distinct values, which share buckets with some common values.
            false => (0..3).map(|value| format!("\"{number} {value}\"")).collect(),
        };
        Value::parse_entity(&format!(r#"{{"id":"Id{number}","l":[{}]}}"#, list.join(","))).expect("an entity")
    };
    let entities: Vec<Value> = (0..30_000).map(entity).collect();
    let options =
        WriteOptions { max_row_group_rows: 9_000, shredding_limits: all_shredded(), ..WriteOptions::default() };
    let written = lab.write(&entities, &options);
    let reader = open(&lab, &written, &PartCache::new(1 << 30));
    assert!(index(&lab, &reader, "l"));
    // Returns the result, and the number of polls.
    let select = |query: &str| {
        let mut polls = 0;
        let mut selecting = Box::pin(lab.engines[0].select(reader.clone(), std::sync::Arc::new(parse(query))));
        let polled = std::future::poll_fn(|context| {
            polls += 1;
            selecting.as_mut().poll(context)
        });
        match lab.bench.runtime.block_on(polled).expect("selected") {
            QueryOutcome::Count(count) => (vec![count], polls),
            QueryOutcome::Selection(selection) => (selection.positions().to_vec(), polls),
        }
    };
    // Loads the values of all parts of the column into the cache.
    select("filter=l:nothing&filter=l:none");
    let all: Vec<u64> = (0..30_000).step_by(17).collect();
    let mut kinds = [false; 2];
    for value in 0..SHARED {
        let (found, turns) = select(&format!("filter=l:SAME{value}"));
        assert_eq!(found, all);
        // If all listed entities have one value, one comparison is sufficient. Otherwise 1,765 lists of twenty values
        // are compared, 1,024 values at once, in four row groups.
        assert!(turns == 1 || (30..=45).contains(&turns), "{turns}");
        kinds[usize::from(turns > 1)] = true;
        assert_eq!(select(&format!("filter=l:same{value}&count=true")).0, [all.len() as u64]);
        assert_eq!(select(&format!("filter=l:same{value}&limit=2")), (all[..2].to_vec(), 1));
        for (offset, limit) in [(0, 400), (340, 5), (525, 10), (1_700, 100), (5_000, 1)] {
            let window = all.iter().copied().skip(offset).take(limit).collect::<Vec<_>>();
            assert_eq!(select(&format!("filter=l:same{value}&offset={offset}&limit={limit}")).0, window);
        }
    }
    assert_eq!(kinds, [true; 2], "there are buckets of both kinds");
}

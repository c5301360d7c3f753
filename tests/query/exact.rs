//! Exact filters by hash indexes against the naive reference: before an index is made, with it, and in the plan that is
//! explained.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::scan::report::{AccessName, ScanUse};
use strata_query::{Engine, Outcome, Tenant, cost};
use strata_reference::{Value, pipeline};
use strata_testing::engines::Lab;
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::all_shredded;
use strata_types::path::Path;
use strata_types::request::{PathValue, ReadRequest, Sort};

use super::sets::{Time, VALUES, open, parse, select_positions};

const PATHS: &[&str] = &["a", "l.b"];

fn path(text: &str) -> Path {
    Path::parse(text).expect("a path")
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
            filters_contain: other.map(|value| filter("a", value)).into_iter().collect(),
            sort: sort.map(|(field, descending)| Sort { field: field.to_owned(), descending }),
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

/// Filters by a path until its hash index is asked, which it is once it has been missed long enough. Indexes are made
/// in the background, one at a time in all tests.
fn index(lab: &Lab, reader: &VersionReader, at: &str) -> bool {
    for _ in 0..2_000 {
        let request = ReadRequest { filters: vec![filter(at, "nobody has this value")], ..ReadRequest::default() };
        let (found, scan, _) = lab.scan(reader, request);
        assert_eq!(found, 0);
        match scan.predicates.first().map(|predicate| predicate.access) {
            Some(AccessName::HashIndex) => return true,
            Some(AccessName::ShreddedColumn) => std::thread::sleep(Duration::from_millis(1)),
            _ => return false,
        }
    }
    false
}

#[test]
fn exact_filters_find_what_the_reference_finds_with_an_index_and_without() {
    let lab = Lab::new();
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), vec(request(), 12), 0..3_usize), |(entities, requests, rows)| {
        let options = WriteOptions {
            threads: 1,
            row_group_rows: [5, 32, 1_000][rows],
            shredding: all_shredded(),
            ..WriteOptions::default()
        };
        let written = lab.write(&entities, &options);
        let reader = open(&lab, &written, &PartCache::new(1 << 30));
        let check = |times: &[Time]| {
            for request in &requests {
                let expected = pipeline::window(pipeline::selected(&entities, request), request);
                let reshaped = pipeline::reshaped(&entities, request);
                for time in times {
                    match select_positions(&lab, &lab.engines[1], &reader, request, *time) {
                        Err(count) => prop_assert_eq!(count, expected.len() as u64, "{:?} {:?}", time, request),
                        Ok(positions) => {
                            let found = positions.iter().map(|position| reshaped[*position as usize].write());
                            let wanted: Vec<String> = expected.iter().map(Value::write).collect();
                            prop_assert_eq!(found.collect::<Vec<_>>(), wanted, "{:?} {:?}", time, request);
                        }
                    }
                }
            }
            Ok(())
        };
        check(&[Time::First])?;
        for at in PATHS {
            let is_shredded = reader.layout().shredded(path(at).keys()).is_some();
            prop_assert!(index(&lab, &reader, at) == (is_shredded && !entities.is_empty()), "{}", at);
        }
        check(&[Time::Second, Time::Explained])
    });
    no_failure(result);
}

/// 30,000 entities in fifteen row groups: each with a text and a number of its own, and a text that ten share.
fn many(lab: &Lab, cache: &PartCache) -> VersionReader {
    let entity = |number: u64| {
        let text = format!(r#"{{"id":"Id{number}","n":{number},"ten":"t{}","few":"f{}"}}"#, number % 3_000, number % 3);
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..30_000).map(entity).collect();
    let written = lab.write(&entities, &WriteOptions { row_group_rows: 2_000, ..WriteOptions::default() });
    open(lab, &written, cache)
}

fn scan(lab: &Lab, reader: &VersionReader, query: &str) -> (u64, ScanUse) {
    let (found, scan, _) = lab.scan(reader, parse(query));
    (found, scan)
}

/// About one other value is in a bucket.
const OTHERS: u64 = 9;

#[test]
fn an_index_leaves_the_row_groups_of_its_entities_and_weighs_as_little() {
    let lab = Lab::new();
    let reader = many(&lab, &PartCache::new(1 << 30));
    let work = |query: &str| lab.bench.runtime.block_on(cost::work_bytes(&reader, &parse(query)));
    let (before, expected) = (work("filter=ten:T7"), (0..10).map(|place| 7 + 3_000 * place).collect::<Vec<u64>>());
    assert!(before >= 16 * 30_000, "{before}");
    for at in ["id", "n", "ten"] {
        assert!(index(&lab, &reader, at), "{at}");
    }
    assert!(work("filter=ten:T7") < 10_000, "{}", work("filter=ten:T7"));
    let positions = |query: &str| {
        let request = parse(query);
        select_positions(&lab, &lab.engines[0], &reader, &request, Time::Second).expect("positions")
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
        let (answered, scan) = scan(&lab, &reader, query);
        let (looked_at, pruned) = (scan.row_groups.scanned, scan.row_groups.pruned_by_hash_index);
        assert_eq!((answered, looked_at + pruned), (found, 15), "{query}: {scan:?}");
        // Another value may share the bucket.
        assert!((scanned..scanned + OTHERS).contains(&looked_at), "{query}: {scan:?}");
        assert!(scan.predicates.iter().any(|predicate| predicate.access == AccessName::HashIndex), "{query}");
    }
    // What a third of all entities have is looked through.
    let (found, scan) = scan(&lab, &reader, "filter=few:f1&count=true");
    assert_eq!((found, scan.row_groups.scanned, scan.row_groups.pruned_by_hash_index), (10_000, 15, 0));
    while lab.engines.iter().any(|engine| engine.memory_bytes() > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_index_is_made_without_room_or_memory_for_it() {
    let lab = Lab::new();
    let small = many(&lab, &PartCache::new(1_000_000));
    let reader = many(&lab, &PartCache::new(1 << 30));
    let narrow = lab.engine(2, 64 << 20, Duration::from_secs(60));
    let held = narrow.reserve("others", (64 << 20) - 300_000).expect("memory");
    for _ in 0..100 {
        assert_eq!(access(&lab, &lab.engines[0], &small), AccessName::ShreddedColumn);
        assert_eq!(access(&lab, &narrow, &reader), AccessName::ShreddedColumn);
    }
    drop(held);
    // What failed is tried again.
    await_index(&lab, &narrow, &reader);
}

/// How a filter by `id` is answered.
fn access(lab: &Lab, engine: &Engine, reader: &VersionReader) -> AccessName {
    let explained = engine.explain(reader.clone(), std::sync::Arc::new(parse("filter=id:id77")));
    let (_, explained) = lab.bench.runtime.block_on(explained).expect("explained");
    explained.scan.expect("a scan").predicates[0].access
}

/// Filters by `id` until an index answers.
fn await_index(lab: &Lab, engine: &Engine, reader: &VersionReader) {
    for tries in 0.. {
        if access(lab, engine, reader) == AccessName::HashIndex {
            break;
        }
        assert!(tries < 5_000);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_index_is_made_in_nobodys_share_of_the_memory() {
    let lab = Lab::new();
    let reader = many(&lab, &PartCache::new(1 << 30));
    let engine = lab.engine_of_tenants(32 << 20, 1);
    let tenant = |key| engine.for_tenant(Tenant { key, anonymous: false });
    let held = tenant(1).reserve("another's", 1_000).expect("memory");
    // Making the index takes 20 bytes a value: more than the share of who asks for it.
    assert!(tenant(2).reserve("as much", 20 * 30_000).is_err());
    await_index(&lab, &tenant(2), &reader);
    drop(held);
    while engine.memory_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn candidates_are_looked_at_in_stretches_between_which_others_have_their_turn() {
    /// Values that all lists of them hold.
    const SHARED: usize = 20;
    let lab = Lab::new();
    let entity = |number: u64| {
        let list: Vec<String> = match number.is_multiple_of(17) {
            true => (0..SHARED).map(|value| format!("\"Same{value}\"")).collect(),
            // Values of their own, which share buckets with some of those.
            false => (0..3).map(|value| format!("\"{number} {value}\"")).collect(),
        };
        Value::parse_entity(&format!(r#"{{"id":"Id{number}","l":[{}]}}"#, list.join(","))).expect("an entity")
    };
    let entities: Vec<Value> = (0..30_000).map(entity).collect();
    let options = WriteOptions { row_group_rows: 9_000, shredding: all_shredded(), ..WriteOptions::default() };
    let written = lab.write(&entities, &options);
    let reader = open(&lab, &written, &PartCache::new(1 << 30));
    assert!(index(&lab, &reader, "l"));
    // What is found, and how often the search went on.
    let select = |query: &str| {
        let mut polls = 0;
        let mut selecting = Box::pin(lab.engines[0].select(reader.clone(), std::sync::Arc::new(parse(query))));
        let polled = std::future::poll_fn(|context| {
            polls += 1;
            selecting.as_mut().poll(context)
        });
        match lab.bench.runtime.block_on(polled).expect("selected") {
            Outcome::Count(count) => (vec![count], polls),
            Outcome::Selection(selection) => (selection.positions().to_vec(), polls),
        }
    };
    // The values of all parts of the column lie in the cache from now on.
    select("filter=l:nothing&filter=l:none");
    let all: Vec<u64> = (0..30_000).step_by(17).collect();
    let mut kinds = [false; 2];
    for value in 0..SHARED {
        let (found, turns) = select(&format!("filter=l:SAME{value}"));
        assert_eq!(found, all);
        // One entity tells of all that are listed for one value. Of others, 1,765 lists of twenty values are looked at,
        // 1,024 values at once, in four row groups.
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

//! Reads over HTTP against the naive reference: any request over any entities returns the same bytes, regardless of the
//! layout of the version, the number of threads and the memory. Then the boundary cases of each rule.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_reference::pipeline::{self, Body};
use strata_reference::{Value, hostile};
use strata_testing::files;
use strata_testing::reads::{
    PathPlan, ServiceLab, alike, cases, entities, no_failure, path_plan, places, plan, query, shown,
};
use strata_testing::versions::{all_shredded, nothing_shredded, segments, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::{IndexSettings, MAX_INDEX_PATH_BYTES};
use strata_types::read_request::{PathValue, ReadRequest, ResponseFormat, SortField};

// ---- any request over any entities ----

#[test]
fn any_request_matches_reference_response() {
    let labs = [ServiceLab::without_cache(1), ServiceLab::with_threads(2)];
    let indexed = vec((path_plan(), any::<bool>()), 0..4);
    let ways = (0..4_usize, 0..3_usize, 0..2_usize, indexed);
    let sample = prop_oneof![(0..8_u64).boxed(), Just(1_000).boxed(), Just(u64::MAX).boxed()];
    let seed = prop_oneof![(0..3_u64).boxed(), any::<u64>().boxed()];
    let plans = vec((plan(), (sample, seed), 0..9_usize), 8..16);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(25), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans, ways), |(entities, plans, (rows, bounds, lab, indexed))| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()][bounds],
            index_settings: index(&indexed, &entities),
            keyword_limits: some_segments(rows + 2 * bounds + plans.len()),
            min_footer_index_chunks: [usize::MAX, 0][plans.len() % 2],
        };
        let lab = &labs[lab];
        let version = lab.publish(&entities, &options);
        for (plan, (sample, seed), way) in &plans {
            let request = plan.resolve(&entities);
            match way {
                0 => lab.check_sample(version, &entities, &ReadRequest { sample: Some(*sample), ..request })?,
                1 => {
                    let request = ReadRequest { sample: Some(*sample), count: true, ..request };
                    lab.check_sample(version, &entities, &request)?;
                }
                2 | 3 => {
                    let seeded = ReadRequest { sample: Some(*sample), seed: Some(*seed), ..request };
                    lab.check(version, &entities, &seeded)?;
                }
                _ => lab.check(version, &entities, &request)?,
            }
        }
        Ok(())
    });
    no_failure(result);
}

/// Existing paths, and perhaps missing ones, each with or without an indexed column.
fn index(plans: &[(PathPlan, bool)], entities: &[Value]) -> IndexSettings {
    let mut found = Vec::new();
    entities.iter().for_each(|entity| places(entity, &mut Vec::new(), &mut found));
    let mut lists = [Vec::new(), Vec::new()];
    for (plan, always) in plans {
        let Some((path, _)) = plan.resolve(&found) else { continue };
        let text = path.to_string();
        if text.len() <= MAX_INDEX_PATH_BYTES && lists.iter().all(|list| !list.contains(&text)) {
            lists[usize::from(*always)].push(text);
        }
    }
    let [never, always] = lists;
    IndexSettings::try_new(&always, &never).expect("an index")
}

/// Next to a large entity, the others are encoded a few at a time, so that the body has several chunks.
#[test]
fn response_in_chunks_matches_reference() {
    let labs = [ServiceLab::without_cache(1), ServiceLab::with_threads(2)];
    let list = vec(prop_oneof![3 => alike().boxed(), 1 => hostile::entity().boxed()], 12..40);
    let plans = vec((plan(), prop::bool::weighted(0.9)), 8..12);
    let ways = (0..2_usize, 0..2_usize, any::<Index>());
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(8), ..PropertyConfig::default() });
    let max_chunks = std::cell::Cell::new(0);
    let result = runner.run(&(list, plans, ways), |(mut entities, plans, (rows, lab, place))| {
        let large = Value::Object(vec![("large".to_owned(), Value::String("large ".repeat(500_000)))]);
        let small = entities.clone();
        entities.insert(place.index(entities.len()), large);
        let options = WriteOptions { max_row_group_rows: [7, MAX_ROW_GROUP_ROWS][rows], ..WriteOptions::default() };
        let lab = &labs[lab];
        let version = lab.publish(&entities, &options);
        for (plan, drops_large) in &plans {
            let mut request = ReadRequest { filters: Vec::new(), ..plan.resolve(&small) };
            if *drops_large {
                request.drop_fields.push(FieldPath::from_keys(["large"]).expect("a path"));
            }
            lab.check(version, &entities, &request)?;
        }
        max_chunks.set(max_chunks.get().max(lab.get(version, "format=csv&drop_field=large").chunks));
        Ok(())
    });
    no_failure(result);
    assert!(max_chunks.get() > 2, "{} chunks", max_chunks.get());
}

// ---- many rows: top-k, spilling ----

/// Entities that are cheap to compare, in many row groups. The first entities of an order can be anywhere.
fn many(count: u64, value: impl Fn(u64) -> &'static str) -> Vec<Value> {
    let entity = |number: u64| {
        let v = value(number);
        let v = if v.is_empty() { String::new() } else { format!("\"v\":{v},") };
        let text = format!(r#"{{{v}"n":{number},"k":{}}}"#, number % 17);
        Value::parse_entity(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    (0..count).map(entity).collect()
}

/// A pseudorandom number that is always the same.
fn scrambled(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

#[test]
fn top_k_matches_reference_with_any_method() {
    const PREFIXED: &[&str] = &[
        r#""shared p""#,
        r#""shared prefix""#,
        r#""shared prefix 1""#,
        r#""shared prefix 2""#,
        r#""shared prefix\u0000""#,
        r#""shared ""#,
        r#""shared""#,
        r#""Shared prefix""#,
        r#""""#,
        r#""\u0000""#,
        r#""zz""#,
    ];
    const NUMBERS: &[&str] = &[
        "1",
        "1.0",
        "0",
        "-0",
        "-0.0",
        "1e400",
        "-1e400",
        "9007199254740992",
        "9007199254740993",
        "9007199254740992.0",
        "-9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "5e-324",
        "0.1",
        "null",
        "",
    ];
    const LONG: &[&str] = &[
        "10000000000000000000000000000000000000001",
        "10000000000000000000000000000000000000002",
        "10000000000000000000000000000000000000003",
        "1e40",
        "-10000000000000000000000000000000000000001",
        "-10000000000000000000000000000000000000002",
        "5",
    ];
    const MIXED: &[&str] =
        &["1", "\"1\"", "true", "false", "null", "", "[1]", "{\"v\":1}", "\"\"", "\"a\"", "2.5", "-7"];
    const RARE: &[&str] = &["null", "", "[]", "{}"];
    let pools: [(&str, &[&str]); 5] =
        [("prefixes", PREFIXED), ("numbers", NUMBERS), ("long", LONG), ("mixed", MIXED), ("rare", RARE)];
    let labs = [ServiceLab::without_cache(1), ServiceLab::with_threads(2)];
    let mut wrong = Vec::new();
    for (name, pool) in pools {
        let entities = many(900, |number| match name {
            // Almost no entity has a sortable value.
            "rare" if number % 400 == 399 => "7",
            _ => pool[scrambled(number) as usize % pool.len()],
        });
        let windows = [(false, 1, 0), (true, 1, 0), (false, 7, 3), (true, 7, 3), (true, 150, 0), (false, 90, 800)];
        let requests = windows.map(|(descending, limit, offset)| ReadRequest {
            sort: Some(SortField { field: "v".to_owned(), descending }),
            limit: Some(limit),
            offset,
            denull: limit == 7,
            format: ResponseFormat::Jsonl,
            filters: if limit == 7 { vec![filter("k", "3")] } else { Vec::new() },
            ..ReadRequest::default()
        });
        let expected = requests.each_ref().map(|request| pipeline::answer(&entities, request, 1, 1).1);
        for (row_group_rows, shredding_limits, lab) in
            [(5, all_shredded(), &labs[0]), (64, all_shredded(), &labs[1]), (100, nothing_shredded(), &labs[1])]
        {
            let version = lab.publish(
                &entities,
                &WriteOptions {
                    worker_threads: 1,
                    max_row_group_rows: row_group_rows,
                    shredding_limits,
                    ..WriteOptions::default()
                },
            );
            for (request, expected) in requests.iter().zip(&expected) {
                let query = query(request);
                let response = lab.get(version, &query);
                if response.status != 200 || Body::Text(shown(&response)) != *expected {
                    let found = shown(&response);
                    wrong.push(format!("{name}, {row_group_rows} rows, ?{query}:\n{found}\n{expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ, the first:\n{}", wrong.len(), wrong[0]);
}

fn filter(path: &str, value: &str) -> PathValue {
    PathValue { path: FieldPath::parse(path).expect("a path"), value: value.to_owned() }
}

/// With little memory, each response is correct. Below the minimum of the configuration, the response can be 400.
#[test]
fn queries_with_little_memory_spill() {
    /// The memory that sorts and dedups need: an eighth of the minimum of `query.memory_bytes`.
    const MIN_MEMORY_BYTES: u64 = 16 << 20;
    // Long keys with a long common prefix, larger than the minimum memory.
    let filler = "x".repeat(700);
    let entities: Vec<Value> = (0..24_000_u64)
        .map(|number| {
            let v = format!("{filler}{:05}", scrambled(number) % 20_000);
            let members = [("v", Value::String(v)), ("n", Value::Number(number.to_string()))];
            Value::Object(members.map(|(key, value)| (key.to_owned(), value)).into())
        })
        .collect();
    let path = |text: &str| FieldPath::parse(text).expect("a path");
    let sort = Some(SortField { field: "v".to_owned(), descending: true });
    let keep = vec![path("n")];
    let plain = ReadRequest { format: ResponseFormat::Jsonl, ..ReadRequest::default() };
    let sorted = ReadRequest { sort: sort.clone(), ..plain.clone() };
    // `keep_field` must not hide the sort field, so the responses contain whole entities.
    let requests = [
        sorted.clone(),
        ReadRequest { offset: 100, limit: Some(50), ..sorted.clone() },
        ReadRequest { dedup: true, dedup_key: vec![path("v")], ..sorted.clone() },
        ReadRequest { dedup: true, dedup_key: vec![path("n")], ..sorted.clone() },
        ReadRequest { dedup: true, keep_fields: keep.clone(), ..plain.clone() },
        ReadRequest { dedup: true, dedup_key: vec![path("v")], count: true, ..plain.clone() },
    ];
    // The reference's dedup compares all pairs, so the expected result is computed here.
    let expected: Vec<Vec<u64>> = {
        let texts: Vec<String> =
            entities.iter().map(|entity| entity.get("v").and_then(Value::text).expect("text")).collect();
        let all: Vec<u64> = (0..entities.len() as u64).collect();
        let mut order = all.clone();
        order.sort_by(|one, other| texts[*other as usize].cmp(&texts[*one as usize]));
        let firsts = |order: &[u64]| {
            let mut seen = std::collections::HashSet::new();
            order.iter().copied().filter(|number| seen.insert(&texts[*number as usize])).collect::<Vec<u64>>()
        };
        vec![order.clone(), order[100..150].to_vec(), firsts(&order), order.clone(), all.clone(), firsts(&all)]
    };
    let mut right = 0;
    let mut refused = 0;
    for memory_bytes in [1 << 20, MIN_MEMORY_BYTES, 1 << 30] {
        let lab = ServiceLab::new(|config| {
            config.query.memory_bytes = Some(memory_bytes);
            config.cache.memory_bytes = Some(1 << 20);
        });
        let version = lab.publish(&entities, &WriteOptions { max_row_group_rows: 2_500, ..WriteOptions::default() });
        for (request, expected) in requests.iter().zip(&expected) {
            let response = lab.get(version, &query(request));
            if response.status == 400 {
                refused += 1;
                assert!(
                    memory_bytes < MIN_MEMORY_BYTES,
                    "{} for {request:?} with {memory_bytes} bytes",
                    shown(&response)
                );
                assert!(response.text().contains("the limit per client (query.memory_bytes)"), "{}", shown(&response));
                continue;
            }
            assert_eq!((response.status, response.whole), (200, true), "{} for {request:?}", shown(&response));
            right += 1;
            if request.count {
                assert_eq!(response.header("x-total-count"), Some(expected.len().to_string().as_str()));
                continue;
            }
            let found: Vec<u64> = response
                .text()
                .lines()
                .map(|line| {
                    let number = Value::parse_entity(line).expect(line).get("n").and_then(Value::text);
                    number.and_then(|text| text.parse().ok()).expect("a number")
                })
                .collect();
            assert!(found == *expected, "{request:?} with {memory_bytes} bytes");
        }
        // No spilled file remains.
        let spilled = lab.service.directory().join("tmp");
        let left: Vec<_> =
            files(&spilled).into_iter().filter(|path| path.file_name() != Some("lock".as_ref())).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(right > 0 && refused > 0, "{right} right, {refused} refused");
}

// ---- the boundary cases of each rule ----

/// Publishes entities in several layouts, and checks which entities every query selects. The field `id` identifies
/// them.
fn check_selected(lines: &[&str], id: &str, cases: &[(&str, &[&str])]) {
    let lab = ServiceLab::with_threads(2);
    let entities: Vec<Value> = lines.iter().map(|line| Value::parse_entity(line).expect(line)).collect();
    let mut wrong = Vec::new();
    for (row_group_rows, shredding_limits) in
        [(1, all_shredded()), (2, nothing_shredded()), (MAX_ROW_GROUP_ROWS, all_shredded())]
    {
        let version = lab.publish(
            &entities,
            &WriteOptions {
                worker_threads: 1,
                max_row_group_rows: row_group_rows,
                shredding_limits,
                keyword_limits: segments(row_group_rows),
                ..WriteOptions::default()
            },
        );
        for (query, expected) in cases {
            let response = lab.get(version, &format!("format=jsonl&{query}"));
            let found = response.text().lines().map(|line| {
                let text = Value::parse_entity(line).ok().and_then(|entity| entity.get(id)?.text());
                text.unwrap_or_else(|| line.to_owned())
            });
            let found: Vec<String> = found.collect();
            let count = lab.get(version, &format!("count=1&pretty=0&{query}"));
            let counted =
                format!("{{\"count\":{},\"dataset_id\":1,\"version\":{version},\"alt\":false}}", expected.len());
            if found != *expected || count.text() != counted {
                let count = count.text();
                wrong.push(format!(
                    "?{query}, {row_group_rows} rows:\n  found    {found:?} {count}\n  expected {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn filters_apply_to_projected_entities() {
    let lines = [
        r#"{"n":1,"_source":"s1","a":{"b":{"c":"deep"},"d":"side"},"k":"word"}"#,
        r#"{"n":2,"_source":"s2","a":"scalar","k":"deep"}"#,
        r#"{"n":3,"_source":"s3","a":[{"b":"x"},"loose",[{"b":["deep","y"]}]],"k":null}"#,
        r#"{"n":4,"_source":"word","k":""}"#,
    ];
    check_selected(
        &lines,
        "n",
        &[
            ("filter=a:scalar", &["2"]),
            ("filter=a:loose", &["3"]),
            ("filter=a.b:deep", &["3"]),
            ("filter=a.b.c:deep", &["1"]),
            // `keep_field` with part of a field.
            ("keep_field=n,a.b&filter=a:scalar", &[]),
            ("keep_field=n,a.b&filter=a:loose", &[]),
            ("keep_field=n,a.b&filter_contains=a:", &[]),
            ("keep_field=n,a.b&filter=a.b:x", &["3"]),
            ("keep_field=n,a.b&filter=a.b:deep", &["3"]),
            ("keep_field=n,a.b&filter=a.b.c:deep", &["1"]),
            ("keep_field=n,a.b&filter=a.d:side", &[]),
            ("keep_field=n,a.b.c&filter=a.b:x", &[]),
            ("keep_field=n,a.b.c&filter=a.b:deep", &[]),
            ("keep_field=n,a.b.c&filter=a.b.c:deep", &["1"]),
            ("keep_field=n,a.b,a&filter=a.d:side", &["1"]),
            ("keep_field=n,a.b,a&filter=a:scalar", &["2"]),
            ("keep_field=n,a.b&filter=k:word", &[]),
            ("keep_field=n,a.b,a.d&filter=a.d:side&filter=a.b.c:DEEP", &["1"]),
            // `drop_field` with part of a field.
            ("drop_field=a.b&filter=a.b:x", &[]),
            ("drop_field=a.b&filter=a.b.c:deep", &[]),
            ("drop_field=a.b&filter=a.d:side", &["1"]),
            ("drop_field=a.b&filter=a:scalar", &["2"]),
            ("drop_field=a.b&filter=a:loose", &["3"]),
            ("drop_field=a.b.c&filter=a.b:deep", &["3"]),
            ("drop_field=a.b.c&filter=a.b.c:deep", &[]),
            ("drop_field=a&filter=a:scalar", &[]),
            ("drop_field=a&filter=a.b:x", &[]),
            ("keep_field=a,n&drop_field=a.b&filter=a.b:x", &[]),
            ("keep_field=a.b,n&drop_field=a&filter=a.b:x", &[]),
            ("keep_field=a.b,n&drop_field=a.b.c&filter=a.b:x", &["3"]),
            // `denull` removes nulls and empty strings.
            ("filter=k:null", &["3"]),
            ("filter=k:", &["4"]),
            ("filter_contains=k:", &["1", "2", "4"]),
            ("denull=1&filter=k:null", &[]),
            ("denull=1&filter=k:", &[]),
            ("denull=1&filter_contains=k:", &["1", "2"]),
            ("include_source=false&filter=_source:s1", &[]),
            ("include_source=false&filter_contains=_source:", &[]),
            ("filter=_source:S1", &["1"]),
            // Keywords.
            ("keywords=deep", &["1", "2", "3"]),
            ("keywords=deep&keep_field=n,k", &["2"]),
            ("keywords=deep&drop_field=k", &["1", "3"]),
            ("keywords=deep&drop_field=a.b.c", &["2", "3"]),
            ("keywords=side&keep_field=n,a.b", &[]),
            ("keywords=loose&keep_field=n,a.b", &[]),
            ("keywords=DEEP&keep_field=n,a.b", &["1", "3"]),
            ("keywords=word", &["1", "4"]),
            ("keywords=word&include_source=0", &["1"]),
            ("keywords=word&include_source=0&drop_field=k", &[]),
            ("keywords=s1&include_source=0", &[]),
            ("keywords=s1&drop_field=_source", &[]),
            ("keywords=s1&drop_field=k", &["1"]),
            // Field names and nulls are not searched.
            ("keywords=b", &[]),
            ("keywords=_source", &[]),
            ("keywords=null", &[]),
            // Keywords do not match across two scalars.
            ("keywords=deepside", &[]),
            ("keywords=sideword", &[]),
            ("keywords=1s1", &[]),
            ("keywords=xloose&keep_field=a,n", &[]),
            ("keywords=deepy", &[]),
            ("keywords=deep,side&keywords_mode=and", &["1"]),
            ("keywords=deep,word&keywords_mode=and", &["1"]),
            ("keywords=deep&keywords=y&keywords_mode=and", &["3"]),
            ("keywords=deep,word&keywords_mode=and&keep_field=n,a", &[]),
            ("keywords=s4,word&keywords_mode=or&denull=1", &["1", "4"]),
            ("keywords=deep,deep&keywords_mode=and", &["1", "2", "3"]),
            ("keywords=deep&filter=k:deep&filter_contains=a:SCAL", &["2"]),
        ],
    );
}

#[test]
fn sort_applies_to_projected_entities() {
    let lines = [
        r#"{"n":1,"s":"","_source":"c"}"#,
        r#"{"n":2,"s":null,"_source":"b"}"#,
        r#"{"n":3,"s":"a","_source":"a"}"#,
        r#"{"n":4}"#,
        r#"{"n":5,"s":0}"#,
        r#"{"n":6,"s":{"x":1}}"#,
        r#"{"n":7,"s":false}"#,
        r#"{"n":8,"s":[9]}"#,
        r#"{"n":9,"s":-0}"#,
        r#"{"n":10,"s":""}"#,
    ];
    const ALL: &[&str] = &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    check_selected(
        &lines,
        "n",
        &[
            ("sort=s", &["5", "9", "1", "10", "3", "7", "2", "4", "6", "8"]),
            ("sort=s:desc", &["7", "3", "1", "10", "5", "9", "2", "4", "6", "8"]),
            ("sort=s&denull=1", &["5", "9", "3", "7", "1", "2", "4", "6", "8", "10"]),
            ("sort=s:desc&denull=1", &["7", "3", "5", "9", "1", "2", "4", "6", "8", "10"]),
            ("sort=s:desc&denull=1&limit=4&offset=1", &["3", "5", "9", "1"]),
            ("sort=s&keep_field=n", ALL),
            ("sort=s:desc&drop_field=s", ALL),
            ("sort=s&keep_field=n,s.x", ALL),
            ("sort=s:desc&drop_field=s.x", &["7", "3", "1", "10", "5", "9", "2", "4", "6", "8"]),
            ("sort=s.x:desc", ALL),
            ("sort=nothing:desc", ALL),
            ("sort=_source", &["3", "2", "1", "4", "5", "6", "7", "8", "9", "10"]),
            ("sort=_source&include_source=0", ALL),
            ("sort=n:desc&limit=2", &["10", "9"]),
            ("sort=n:desc&limit=0", &[]),
            ("sort=n:desc&limit=0&offset=3", &[]),
            ("sort=n&offset=9", &["10"]),
            ("sort=n:desc&offset=10&limit=5", &[]),
            ("sort=n:desc&offset=18446744073709551615&limit=18446744073709551615", &[]),
            ("sort=n:desc&limit=18446744073709551615&offset=8", &["2", "1"]),
            ("dedup=1&limit=0", &[]),
            ("dedup=1&limit=0&sort=s", &[]),
            ("sample=0", &[]),
            ("sample=0&sort=s", &[]),
            ("sample=0&dedup=1&limit=3", &[]),
            ("sample=3&limit=0", &[]),
            ("sample=3&offset=3", &[]),
            ("sample=3&offset=3&limit=0&sort=s", &[]),
            ("sort=s&dedup=1&dedup_key=s&limit=4", &["5", "1", "3", "7"]),
            ("sort=s&dedup=1&dedup_key=s&denull=1&limit=4", &["5", "3", "7", "1"]),
            ("filter=s:&sort=n:desc", &["10", "1"]),
        ],
    );
}

#[test]
fn dedup_compares_projected_entities() {
    let lines = [
        r#"{"n":1,"a":{"x":1,"y":null},"_source":"1"}"#,
        r#"{"_source":"2","a":{"y":null,"x":1.0},"n":1e0}"#,
        r#"{"n":1,"a":{"x":1},"_source":"3"}"#,
        r#"{"n":1,"a":{"x":1,"y":""},"_source":"4"}"#,
        r#"{"n":2,"a":{"x":1},"_source":"5"}"#,
        r#"{"n":1,"a":[{"x":1},{"x":2}],"_source":"6"}"#,
        r#"{"n":1,"a":[{"x":1},[{"x":2}]],"_source":"7"}"#,
        r#"{"n":1,"a":{"x":[1,2]},"_source":"8"}"#,
    ];
    check_selected(
        &lines,
        "_source",
        &[
            ("dedup=1", &["1", "3", "4", "5", "6", "7", "8"]),
            ("dedup=1&denull=1", &["1", "5", "6", "7", "8"]),
            ("dedup=1&drop_field=a.y", &["1", "5", "6", "7", "8"]),
            ("dedup=1&drop_field=a.x", &["1", "3", "4", "5", "6", "7"]),
            ("dedup=1&drop_field=n", &["1", "3", "4", "6", "7", "8"]),
            ("dedup=1&drop_field=a", &["1", "5"]),
            ("dedup=1&keep_field=a.x,_source", &["1", "6", "7", "8"]),
            ("dedup=1&keep_field=_source", &["1"]),
            ("dedup=1&keep_field=_source,n", &["1", "5"]),
            ("dedup=1&sort=_source:desc", &["8", "7", "6", "5", "4", "3", "2"]),
            ("dedup=1&offset=1&limit=2", &["3", "4"]),
            ("dedup=1&dedup_key=a.x", &["1", "6", "8"]),
            ("dedup=1&dedup_key=a.y", &["1", "3", "4"]),
            ("dedup=1&dedup_key=a.y&denull=1", &["1"]),
            ("dedup=1&dedup_key=a", &["1", "3", "4", "6", "7", "8"]),
            ("dedup=1&dedup_key=a&drop_field=a.y", &["1", "6", "7", "8"]),
            ("dedup=1&dedup_key=a&keep_field=_source", &["1"]),
            ("dedup=1&dedup_key=n,a.x", &["1", "5", "6", "8"]),
            ("dedup=1&dedup_key=a.x&dedup_key=n", &["1", "5", "6", "8"]),
            ("dedup=1&dedup_key=_source", &["1", "2", "3", "4", "5", "6", "7", "8"]),
            ("dedup=1&dedup_key=missing", &["1"]),
            ("dedup=1&dedup_key=n.x", &["1"]),
            ("dedup=0&dedup_key=n", &["1", "2", "3", "4", "5", "6", "7", "8"]),
            ("dedup=1&filter=n:2&dedup_key=missing", &["5"]),
            ("dedup=1&dedup_key=_source&include_source=0&keep_field=missing", &["{}"]),
            ("dedup=1&include_source=0&keep_field=n", &[r#"{"n":1}"#, r#"{"n":2}"#]),
        ],
    );
}

#[test]
fn empty_response_is_valid_in_every_format() {
    let lab = ServiceLab::with_threads(2);
    let lines = [r#"{"a":1,"b":{"c":null}}"#, r#"{"d":"","e":{}}"#];
    let entities = lines.map(|line| Value::parse_entity(line).expect(line));
    let version = lab.publish(&entities, &WriteOptions::default());
    // The version of an empty import.
    let empty = 1;
    const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset/>";
    for (version, query, expected) in [
        (empty, "", "[]"),
        (empty, "pretty=false&flatten=1", "[]"),
        (empty, "format=jsonl", ""),
        (empty, "format=csv", "_source\n"),
        (empty, "format=tsv&keep_field=a", "_source\n"),
        (empty, "format=xml", XML),
        (empty, "format=csv&sort=a&dedup=1&sample=3&denull=1&keywords=x&filter=a:b", "_source\n"),
        (empty, "format=parquet&count=1&pretty=0", "{\"count\":0,\"dataset_id\":1,\"version\":1,\"alt\":false}"),
        (version, "limit=0", "[]"),
        (version, "format=jsonl&offset=2", ""),
        (version, "format=xml&filter=a:2", XML),
        (version, "format=csv&limit=0", "a,b.c,d\n"),
        (version, "format=csv&sample=0", "a,b.c,d\n"),
        (version, "format=csv&filter=a:2&sort=a&dedup=1", "a,b.c,d\n"),
        (version, "format=tsv&keywords=nothing", "a\tb.c\td\n"),
        (version, "format=csv&limit=0&denull=1", "a\n"),
        (version, "format=csv&limit=0&keep_field=d,b", "b.c,d\n"),
        (version, "format=csv&limit=0&drop_field=a,b.c", "d\n"),
        (version, "format=csv&limit=0&keep_field=z", "_source\n"),
        // Entities without any of the keys.
        (version, "format=csv&keep_field=z", "_source\n\"\"\n\"\"\n"),
        (version, "format=csv&keep_field=e&limit=1", "_source\n\"\"\n"),
        (version, "format=csv&keep_field=d", "d\n\"\"\n\"\"\n"),
        // The columns of the selected entities, not of the version.
        (version, "format=csv&offset=1", "d\n\"\"\n"),
        (
            version,
            "format=xml&keep_field=z",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset><entity/><entity/></dataset>",
        ),
    ] {
        let response = lab.get(version, query);
        assert_eq!((response.status, response.text()), (200, expected), "v{version} ?{query}");
    }
    for (version, query, columns, rows) in [
        (empty, "", &["_source"][..], 0),
        (version, "limit=0", &["a", "b.c", "d"], 0),
        (version, "keep_field=z", &["_source"], 2),
    ] {
        let response = lab.get(version, &format!("format=parquet&{query}"));
        let columns: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
        let cells = vec![vec![None; columns.len()]; rows];
        assert_eq!(
            Body::read(&response.body, ResponseFormat::Parquet),
            Body::Cells(columns, cells),
            "v{version} ?{query}"
        );
    }
    let response = lab.get(version, "format=parquet");
    let Body::Cells(_, cells) = Body::read(&response.body, ResponseFormat::Parquet) else { unreachable!() };
    assert_eq!(cells, [[Some("1".to_owned()), None, None], [None, None, Some(String::new())]]);
}

#[test]
fn response_headers_describe_the_response() {
    let lab = ServiceLab::with_threads(1);
    let one = [Value::parse_entity(r#"{"which":"original"}"#).expect("an entity")];
    let other = [Value::parse_entity(r#"{"which":"alternate"}"#).expect("an entity")];
    let version = lab.publish(&one, &WriteOptions::default());
    let donor = lab.publish(&other, &WriteOptions::default());
    lab.bench.runtime.block_on(async {
        let pool = sqlx::SqlitePool::connect(&lab.service.services.config.catalog_url()).await.expect("connected");
        let sql = "UPDATE versions SET record_checksum = NULL, alt_file_id = (SELECT file_id FROM versions WHERE version_number = $1)
                   WHERE version_number = $2";
        let update = sqlx::query(sql).bind(donor as i64).bind(version as i64);
        assert_eq!(update.execute(&pool).await.expect("updated").rows_affected(), 1);
        pool.close().await;
    });
    for format in ResponseFormat::ALL {
        let name = format.name();
        for (path, query, alt) in
            [("", "", false), ("", "&alt=1", true), ("alt/", "", true), ("alt/", "&alt=false", true)]
        {
            let uri = format!("/api/1/data/v{version}/{path}?format={name}{query}");
            let response = lab.bench.runtime.block_on(lab.service.get(&uri));
            assert_eq!(response.status, 200, "{uri} {}", shown(&response));
            assert_eq!(response.header("content-type"), Some(format.content_type()), "{uri}");
            assert_eq!(response.header("x-dataset-alt"), Some(if alt { "true" } else { "false" }), "{uri}");
            assert_eq!(response.header("x-total-count"), Some("1"), "{uri}");
            let suffix = if alt { "-alt" } else { "" };
            let file = format!("attachment; filename=\"data-v{version}{suffix}.{name}\"");
            let is_table = ["csv", "tsv", "parquet"].contains(&name);
            assert_eq!(response.header("content-disposition"), is_table.then_some(file.as_str()), "{uri}");
            let which = if alt { "alternate" } else { "original" };
            match Body::read(&response.body, format) {
                Body::Text(text) => assert!(text.contains(which), "{uri}: {text}"),
                Body::Cells(_, cells) => assert_eq!(cells, [[Some(which.to_owned())]], "{uri}"),
                Body::Typed(..) => unreachable!("types are not requested"),
            }
            // A count is JSON, regardless of the format, and not an attachment.
            let response = lab.bench.runtime.block_on(lab.service.get(&format!("{uri}&count=1&pretty=0")));
            let counted = format!("{{\"count\":1,\"dataset_id\":1,\"version\":{version},\"alt\":{alt}}}");
            assert_eq!((response.status, response.text()), (200, counted.as_str()), "{uri}");
            assert_eq!(response.header("content-type"), Some("application/json"), "{uri}");
            assert_eq!(response.header("content-disposition"), None, "{uri}");
        }
    }
    assert_eq!(lab.get(donor, "alt=true").status, 404);
    assert_eq!(lab.get(donor, "alt=true&count=1").status, 404);
}

#[test]
fn table_with_too_many_columns_returns_400() {
    let lab = ServiceLab::new(|config| config.limits.columns = 3);
    let lines = [r#"{"a":1,"b":{"c":1,"d":[]}}"#, r#"{"a":1,"e":{}}"#, r#"{"f":[{"g":1}]}"#];
    let entities = lines.map(|line| Value::parse_entity(line).expect(line));
    let options = WriteOptions { max_row_group_rows: 1, ..WriteOptions::default() };
    let version = lab.publish(&entities, &options);
    for (query, fits) in [
        ("", false),
        ("limit=2", true),
        ("keep_field=a,b", true),
        ("drop_field=f", true),
        ("sort=a&dedup=1", false),
        ("sample=3", false),
        // Without entities, the columns are all columns of the version.
        ("limit=0", false),
        ("limit=0&keep_field=a", true),
        ("count=true", true),
    ] {
        for format in ["csv", "tsv", "parquet"] {
            let response = lab.get(version, &format!("format={format}&{query}"));
            if fits {
                assert_eq!(response.status, 200, "{format} {query}: {}", shown(&response));
            } else {
                response.is_error(400);
                assert!(response.text().contains("keep_field"), "{}", response.text());
                assert_eq!(response.header("content-disposition"), None);
            }
        }
        for format in ["json", "jsonl", "xml"] {
            assert_eq!(lab.get(version, &format!("flatten=1&format={format}&{query}")).status, 200);
        }
    }
}

#[test]
fn sample_supports_maximum_nesting_depth() {
    let lab = ServiceLab::with_threads(2);
    let arrays = |levels: usize| format!(r#"{{"deep":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let entities = [arrays(127), r#"{"deep":0}"#.to_owned()].map(|text| Value::parse_entity(&text).expect("an entity"));
    let version = lab.publish(&entities, &WriteOptions::default());
    for format in ResponseFormat::ALL {
        let request = ReadRequest { sample: Some(2), format, ..ReadRequest::default() };
        lab.check_sample(version, &entities, &request).expect("the reference's answer");
    }
}

#[test]
fn sample_is_shuffled_and_covers_all_entities() {
    let lab = ServiceLab::with_threads(2);
    let entities: Vec<Value> =
        (0..5).map(|number| Value::Object(vec![("n".to_owned(), Value::Number(number.to_string()))])).collect();
    let version = lab.publish(&entities, &WriteOptions { max_row_group_rows: 2, ..WriteOptions::default() });
    let mut orders: BTreeMap<String, usize> = BTreeMap::new();
    let mut firsts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..200 {
        // A preceding sort does not matter.
        *orders.entry(shown(&lab.get(version, "format=jsonl&sample=5&sort=n:desc"))).or_default() += 1;
        *firsts.entry(shown(&lab.get(version, "format=jsonl&sample=2&offset=1"))).or_default() += 1;
    }
    // There are 120 orders and 5 entities, so each assertion fails by chance less than once in 10^18 runs.
    assert!(orders.len() > 50, "{orders:?}");
    assert_eq!(firsts.len(), 5, "{firsts:?}");
}

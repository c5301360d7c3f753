//! The query engine against the naive reference: the same selection for any request, row group size, set of indexed
//! columns and number of threads. Also the limits of queries.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_query::fetch::selected_documents;
use strata_query::fetch::selection::SelectedPositions;
use strata_query::{QueryEngine, QueryError, QueryOutcome};
use strata_reference::{Value, hostile, rules};
use strata_testing::engines::EngineLab;
use strata_testing::versions::{all_shredded, nothing_shredded, segments, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest};

// ---- the reference ----

/// Returns the positions that a request selects, by the rules on trees.
fn selected(entities: &[Value], request: &ReadRequest) -> Vec<u64> {
    let matches = |entity: &Value, filter: &PathValue, rule: fn(&Value, &str) -> bool| {
        rules::reach(entity, filter.path.keys()).into_iter().any(|scalar| rule(scalar, &filter.value))
    };
    let matching = entities.iter().enumerate().filter(|(_, entity)| {
        request.filters.iter().all(|filter| matches(entity, filter, rules::matches_equal))
            && request.contains_filters.iter().all(|filter| matches(entity, filter, rules::matches_contains))
    });
    let positions = matching.map(|(position, _)| position as u64);
    let after_offset = positions.skip(usize::try_from(request.offset).unwrap_or(usize::MAX));
    after_offset.take(request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))).collect()
}

// ---- requests that tend to find something ----

/// A request that is not resolved against entities yet.
#[derive(Clone, Debug)]
struct SelectionPlan {
    filters: Vec<Condition>,
    contains: Vec<Condition>,
    offset: Option<u64>,
    limit: Option<u64>,
    count: bool,
}

#[derive(Clone, Debug)]
struct Condition {
    /// Selects one of the entities' scalars.
    scalar: Index,
    spelling: u8,
    /// Replace the path and the value of the scalar, if set.
    path: Option<Vec<String>>,
    value: Option<String>,
}

fn condition() -> impl Strategy<Value = Condition> {
    let path = prop_oneof![5 => Just(None), 1 => hostile::path().prop_map(Some)];
    let value = prop_oneof![4 => Just(None), 1 => hostile::needle().prop_map(Some), 1 => Just(Some("null".to_owned()))];
    (any::<Index>(), any::<u8>(), path, value).prop_map(|(scalar, spelling, path, value)| Condition {
        scalar,
        spelling,
        path,
        value,
    })
}

fn plan() -> impl Strategy<Value = SelectionPlan> {
    let number = || {
        let large = prop_oneof![Just(u64::MAX), Just(i64::MAX as u64), Just(u64::MAX / 2 + 1), 60..100_u64];
        prop_oneof![3 => Just(None), 3 => (0..12_u64).prop_map(Some), 1 => large.prop_map(Some)]
    };
    (vec(condition(), 0..4), vec(condition(), 0..3), number(), number(), any::<bool>())
        .prop_map(|(filters, contains, offset, limit, count)| SelectionPlan { filters, contains, offset, limit, count })
}

/// Collects every scalar of an entity with its keys.
fn scalars_with_paths<'v>(value: &'v Value, keys: &mut Vec<String>, out: &mut Vec<(Vec<String>, &'v Value)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                keys.push(key.clone());
                scalars_with_paths(value, keys, out);
                keys.pop();
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| scalars_with_paths(element, keys, out)),
        _ => out.push((keys.clone(), value)),
    }
}

/// Respells a scalar. Most spellings still match it.
fn respell(scalar: &Value, spelling: u8) -> String {
    let Some(text) = scalar.text() else { return ["null", "NULL", "Null", ""][usize::from(spelling % 4)].to_owned() };
    if let Value::Number(text) = scalar {
        let double: f64 = text.parse().expect("a number");
        let spelled = match spelling % 8 {
            0 => text.clone(),
            1 if !text.contains(['.', 'e', 'E']) => format!("{text}.0"),
            2 => format!("{text}0"),
            3 if double.is_finite() => format!("{double:e}"),
            4 if double.is_finite() => format!("{double:.0}"),
            5 if !text.contains(['e', 'E']) => format!("{text}e0"),
            6 => text.to_uppercase(),
            7 if double.is_infinite() => if double > 0.0 { "1e999" } else { "-1E999" }.to_owned(),
            _ => text.strip_prefix('-').unwrap_or(text).to_owned(),
        };
        return spelled;
    }
    match spelling % 6 {
        0 | 1 => text,
        2 => text.to_uppercase(),
        3 => text.to_lowercase(),
        4 => rules::fold(&text),
        _ => format!("{text} "),
    }
}

/// Returns a substring.
fn substring(text: &str, spelling: u8) -> String {
    let length = text.chars().count();
    let start = usize::from(spelling) % (length + 1);
    text.chars().skip(start).take(usize::from(spelling % 5)).collect()
}

impl SelectionPlan {
    fn resolve(&self, entities: &[Value]) -> ReadRequest {
        let mut scalars = Vec::new();
        entities.iter().for_each(|entity| scalars_with_paths(entity, &mut Vec::new(), &mut scalars));
        let resolve = |condition: &Condition, contains: bool| {
            let found = (!scalars.is_empty()).then(|| condition.scalar.get(&scalars));
            let keys = condition.path.clone().or_else(|| found.map(|(keys, _)| keys.clone()));
            let value = condition.value.clone().or_else(|| {
                let value = respell(found?.1, condition.spelling);
                Some(if contains { substring(&value, condition.spelling / 7) } else { value })
            });
            // A single empty key cannot be written as a path.
            let path = FieldPath::from_keys(keys.unwrap_or_default());
            path.ok().map(|path| PathValue { path, value: value.unwrap_or_default() })
        };
        ReadRequest {
            filters: self.filters.iter().filter_map(|condition| resolve(condition, false)).collect(),
            contains_filters: self.contains.iter().filter_map(|condition| resolve(condition, true)).collect(),
            offset: self.offset.unwrap_or_default(),
            limit: self.limit,
            count: self.count,
            ..ReadRequest::default()
        }
    }
}

// ---- any request over any entities ----

#[test]
fn any_request_selects_like_the_reference() {
    let lab = EngineLab::new();
    let sizes = prop_oneof![3 => 0..12_usize, 1 => 12..60_usize];
    let entities = sizes.prop_flat_map(|size| vec(hostile::entity(), size..=size));
    let ways = (0..4_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: 60, ..PropertyConfig::default() });
    let result = runner.run(&(entities, vec(plan(), 8..16), ways), |(entities, plans, (rows, bounds))| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()][bounds],
            keyword_limits: some_segments(rows + 2 * bounds + plans.len()),
            ..WriteOptions::default()
        };
        let reader = lab.reader(&entities, &options);
        for plan in &plans {
            check_selection(&lab, &reader, &entities, &plan.resolve(&entities))?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Entities and values for which access paths were wrong, or could easily be.
#[test]
fn known_hard_filters_match_reference() {
    let lab = EngineLab::new();
    let ones = |digits: usize| "1".repeat(digits);
    let numbers = [
        "10",
        "10.0",
        "1e1",
        "\"10\"",
        "\"1E1\"",
        "-0",
        "0.0",
        "1e400",
        "-1e400",
        "9007199254740993",
        "9007199254740992",
        "9007199254740992.0",
        "9223372036854775807",
        "9223372036854775808",
        "0.1",
        "1e-400",
        "null",
        "\"null\"",
        "\"NULL\"",
        "true",
        "\"TRUE\"",
        "\"\"",
    ];
    let mut scalars: Vec<String> = numbers.iter().map(|&text| text.to_owned()).collect();
    scalars.extend([ones(30), ones(41), ones(200), ones(400), format!("-{}", ones(400)), format!("{}2", ones(29))]);
    scalars.extend(["\"a\u{ff}b\"", "\"ab\"", "\"ba\"", "\"aab\"", "\"İ\"", "\"ΟΔΟΣ\""].map(str::to_owned));
    let texts: Vec<String> = scalars
        .iter()
        .map(|scalar| match Value::parse(scalar).expect("a scalar") {
            Value::String(text) => text,
            other => other.text().unwrap_or_else(|| "null".to_owned()),
        })
        .collect();
    let mut values = texts.clone();
    values.extend(
        ["1.1111111111111112e199", "1.1111111111111111e40", "1e999", "-1e999", "1.0e1", "2"].map(str::to_owned),
    );
    values.extend(
        texts
            .iter()
            .filter_map(|text| text.parse::<f64>().ok())
            .filter(|double| double.is_finite())
            .map(|double| format!("{double:e}")),
    );

    let entities: Vec<Value> = scalars
        .iter()
        .enumerate()
        .map(|(place, scalar)| {
            // As a field, in arrays, and across the border of two elements and two rows.
            let other = &scalars[(place + 1) % scalars.len()];
            let text = format!(
                r#"{{"v":{scalar},"many":[{scalar},[{other}],{{}},"x"],"deep":[{{"v":{scalar}}},{{"v":null}},{{}}]}}"#
            );
            Value::parse_entity(&text).expect("an entity")
        })
        .collect();
    let mut wrong = Vec::new();
    for row_group_rows in [1, 5, MAX_ROW_GROUP_ROWS] {
        for shredding_limits in [all_shredded(), nothing_shredded()] {
            let keywords = segments(row_group_rows);
            let options = WriteOptions {
                worker_threads: 2,
                max_row_group_rows: row_group_rows,
                shredding_limits,
                keyword_limits: keywords,
                ..WriteOptions::default()
            };
            let reader = lab.reader(&entities, &options);
            for value in &values {
                for keys in [vec!["v"], vec!["many"], vec!["deep", "v"]] {
                    let path = FieldPath::from_keys(keys).expect("a path");
                    let filter = vec![PathValue { path, value: value.clone() }];
                    let request = ReadRequest { filters: filter.clone(), ..ReadRequest::default() };
                    let contains = ReadRequest { contains_filters: filter, ..ReadRequest::default() };
                    for request in [request, contains] {
                        wrong.extend(
                            check_selection(&lab, &reader, &entities, &request).err().map(|error| error.to_string()),
                        );
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} requests differ, the first:\n{}", wrong.len(), wrong[0]);
}

/// Windows over row groups and pages return the documents of their positions.
#[test]
fn documents_match_selected_positions() {
    let lab = EngineLab::new();
    let entities: Vec<Value> = (0..500)
        .map(|number| {
            let text =
                format!(r#"{{"n":{number},"odd":{},"text":"{}"}}"#, number % 2 == 1, "x".repeat(number * 7 % 3_000));
            Value::parse_entity(&text).expect("an entity")
        })
        .collect();
    let odd = vec![PathValue { path: FieldPath::from_keys(["odd"]).expect("a path"), value: "true".to_owned() }];
    for row_group_rows in [1, 64, MAX_ROW_GROUP_ROWS] {
        let options = WriteOptions { max_row_group_rows: row_group_rows, ..WriteOptions::default() };
        let reader = lab.reader(&entities, &options);
        for filters in [Vec::new(), odd.clone()] {
            for (offset, limit) in
                [(0, None), (0, Some(1)), (63, Some(2)), (499, Some(9)), (500, None), (120, Some(300))]
            {
                let request = ReadRequest { filters: filters.clone(), offset, limit, ..ReadRequest::default() };
                let expected: Vec<String> =
                    selected(&entities, &request).iter().map(|position| entities[*position as usize].write()).collect();
                let Ok(QueryOutcome::Selection(selection)) = select(&lab, &lab.engines[1], &reader, &request) else {
                    panic!("no selection for {request:?}");
                };
                let mut found = Vec::new();
                for chunk in selected_documents::selection_chunks(&reader, selection.len()) {
                    let each = |document: &[u8]| {
                        found.push(String::from_utf8_lossy(document).into_owned());
                        ControlFlow::Continue(())
                    };
                    let work = selected_documents::for_each_document(&reader, selection.positions(), &chunk, each);
                    lab.bench.runtime.block_on(work).expect("read");
                }
                assert!(found == expected, "{} documents for {} of {request:?}", found.len(), expected.len());
            }
        }
    }
}

// ---- limits ----

/// Returns the outcome after the tasks of a rejected query have ended and released their memory.
fn select_until_fits(select: &dyn Fn() -> Result<QueryOutcome, QueryError>) -> QueryOutcome {
    for _ in 0..600 {
        match select() {
            Err(QueryError::OutOfMemory(_) | QueryError::TooMuchMemory { .. }) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome.expect("it fits"),
        }
    }
    panic!("the memory was not released");
}

#[test]
fn selection_over_memory_limit_releases_its_memory() {
    let lab = EngineLab::new();
    let engine = lab.engine(1, 64 << 10, Duration::from_secs(60));
    let entities: Vec<Value> =
        (0..40_000).map(|number| Value::Object(vec![("odd".to_owned(), Value::Bool(number % 2 == 1))])).collect();
    let reader = lab.reader(&entities, &WriteOptions { max_row_group_rows: 1_000, ..WriteOptions::default() });
    let odd = vec![PathValue { path: FieldPath::from_keys(["odd"]).expect("a path"), value: "true".to_owned() }];
    // Every second entity: 160 kB of positions.
    let large = ReadRequest { filters: odd.clone(), ..ReadRequest::default() };
    let fitting = ReadRequest { limit: Some(1_000), ..large.clone() };
    for _ in 0..20 {
        match select(&lab, &engine, &reader, &large) {
            // Otherwise the tasks of the previous query have not ended.
            Err(QueryError::TooMuchMemory { limit_bytes: 65_536, .. } | QueryError::OutOfMemory(_)) => {}
            other => panic!("{other:?}"),
        }
        let QueryOutcome::Selection(selection) = select_until_fits(&|| select(&lab, &engine, &reader, &fitting)) else {
            panic!("no list")
        };
        assert_eq!(selection.len(), 1_000);
    }
    // Counts and consecutive positions need no memory.
    let count = ReadRequest { count: true, ..large };
    assert!(matches!(select(&lab, &engine, &reader, &count), Ok(QueryOutcome::Count(20_000))));
    let Ok(QueryOutcome::Selection(all)) = select(&lab, &engine, &reader, &ReadRequest::default()) else {
        panic!("it fits")
    };
    assert_eq!(*all.positions(), SelectedPositions::Range(0..40_000));

    // The memory of selections counts until they are dropped.
    let mut selections = Vec::new();
    let refused = loop {
        match select(&lab, &engine, &reader, &fitting) {
            Ok(outcome) if selections.len() < 100 => selections.push(outcome),
            other => break other,
        }
    };
    assert!(matches!(refused, Err(QueryError::OutOfMemory(_))), "{refused:?} after {}", selections.len());
    selections.clear();
    select_until_fits(&|| select(&lab, &engine, &reader, &fitting));
}

#[test]
fn query_over_timeout_is_cancelled() {
    let lab = EngineLab::new();
    let entities: Vec<Value> =
        (0..2_000).map(|number| Value::Object(vec![("n".to_owned(), Value::Number(number.to_string()))])).collect();
    let options =
        WriteOptions { max_row_group_rows: 10, shredding_limits: nothing_shredded(), ..WriteOptions::default() };
    let reader = lab.reader(&entities, &options);
    let filter = vec![PathValue { path: FieldPath::from_keys(["n"]).expect("a path"), value: "1e99".to_owned() }];
    let request = ReadRequest { filters: filter, ..ReadRequest::default() };
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        let engine = lab.engine(2, 1 << 30, timeout);
        match select(&lab, &engine, &reader, &request) {
            Err(QueryError::Timeout { seconds: 0 }) => {}
            other => panic!("{timeout:?} gives {other:?}"),
        }
    }
    // Other queries still succeed.
    assert!(
        matches!(select(&lab, &lab.engines[1], &reader, &request), Ok(QueryOutcome::Selection(none)) if none.is_empty())
    );
}

#[test]
fn dropped_query_is_cancelled() {
    let lab = EngineLab::new();
    let engine = lab.engine(1, 1 << 30, Duration::from_secs(600));
    let entities: Vec<Value> =
        (0..3_000).map(|number| Value::Object(vec![("n".to_owned(), Value::Number(number.to_string()))])).collect();
    let options =
        WriteOptions { max_row_group_rows: 2, shredding_limits: nothing_shredded(), ..WriteOptions::default() };
    let (path, written) = lab.write(&entities, &options);
    // The cached pages show the progress of the query.
    let cache = PartCache::new(1 << 30);
    let open = VersionReader::open(&lab.store, &path, written.size_bytes, &cache);
    let reader = lab.bench.runtime.block_on(open).expect("opened");
    let filter = vec![PathValue { path: FieldPath::from_keys(["n"]).expect("a path"), value: "1e99".to_owned() }];
    let request = Arc::new(ReadRequest { filters: filter, ..ReadRequest::default() });
    let pages_read = || {
        let cached = async {
            let mut count = 0;
            for row_group in 0..reader.row_groups().len() as u32 {
                let file = file_id(&cache, &path).await;
                let key = strata_format::cached_part::PartKey::Documents { file, row_group, page: 0 };
                count += usize::from(cache.get(&key).await.is_some());
            }
            count
        };
        lab.bench.runtime.block_on(cached)
    };
    lab.bench.runtime.block_on(async {
        let mut query = Box::pin(engine.select(reader.clone(), request.clone()));
        // The query starts and is then dropped.
        assert!(futures::poll!(&mut query).is_pending());
        drop(query);
        // The only thread of the engine is free again after this task.
        engine.spawn(async {}).await.expect("run");
    });
    let read = pages_read();
    assert!(read < reader.row_groups().len(), "the query ran to its end");
    lab.bench.runtime.block_on(engine.spawn(async {})).expect("run");
    assert_eq!(pages_read(), read, "the query continued");
}

/// The number of a file in the keys of the cache.
async fn file_id(cache: &PartCache, path: &ObjectPath) -> u64 {
    match cache.get(&strata_format::cached_part::PartKey::Footer(path.as_ref().into())).await {
        Some(strata_format::cached_part::CachedPart::Footer(footer)) => footer.id,
        _ => panic!("no footer"),
    }
}

#[test]
fn missing_version_file_is_a_storage_error() {
    let lab = EngineLab::new();
    let entities: Vec<Value> =
        (0..20).map(|number| Value::Object(vec![("n".to_owned(), Value::Number(number.to_string()))])).collect();
    let reader = lab.gone(&entities, &WriteOptions { shredding_limits: nothing_shredded(), ..WriteOptions::default() });
    let filter = vec![PathValue { path: FieldPath::from_keys(["n"]).expect("a path"), value: "1".to_owned() }];
    for engine in &lab.engines {
        for count in [false, true] {
            let request = ReadRequest { filters: filter.clone(), count, ..ReadRequest::default() };
            match select(&lab, engine, &reader, &request) {
                Err(QueryError::Storage(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

// ---- helpers ----

fn select(
    lab: &EngineLab,
    engine: &QueryEngine,
    reader: &VersionReader,
    request: &ReadRequest,
) -> Result<QueryOutcome, QueryError> {
    lab.bench.runtime.block_on(engine.select(reader.clone(), Arc::new(request.clone())))
}

/// Checks that both engines select the same entities as the reference.
fn check_selection(
    lab: &EngineLab,
    reader: &VersionReader,
    entities: &[Value],
    request: &ReadRequest,
) -> Result<(), TestCaseError> {
    let expected = selected(entities, request);
    for engine in &lab.engines {
        match select(lab, engine, reader, request) {
            Ok(QueryOutcome::Count(count)) if request.count => {
                prop_assert_eq!(count, expected.len() as u64, "{:?}", request)
            }
            Ok(QueryOutcome::Selection(selection)) if !request.count => {
                let found: Vec<u64> = match selection.positions() {
                    SelectedPositions::Range(range) => range.clone().collect(),
                    SelectedPositions::List(list) => list.clone(),
                };
                prop_assert_eq!(&found, &expected, "{:?} with {:?}", request, reader.layout().shredded_columns);
            }
            other => prop_assert!(false, "{:?} gives {:?}", request, other),
        }
    }
    Ok(())
}

//! Distributed `dedup` by paths: each node returns the first entity of each local group, and the first of these equals
//! the result of the reference implementation, for all combinations with other parameters.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::editing::EditScript;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_reference::{Value, pipeline};
use strata_testing::reads::{
    PathPlan, Places, ReadRequestPlan, alike, cases, entities, no_failure, path_plan, places, plan,
};
use strata_testing::versions::{all_shredded, always_beside, edited, nothing_shredded, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest, SortField};

use super::{QueryResult, SECRET, TestNodes, filter, forty_entities, path, sort, ten_rows_per_group};

/// A parameter in addition to `dedup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExtraClause {
    Nothing,
    Filter,
    Keywords,
    Sort,
    Window,
    Sample,
    Count,
    /// `keep_fields` instead of `dedup_key`.
    Keep,
    /// Any request.
    Anything,
}

const EXTRA_CLAUSES: [ExtraClause; 9] = [
    ExtraClause::Nothing,
    ExtraClause::Filter,
    ExtraClause::Keywords,
    ExtraClause::Sort,
    ExtraClause::Window,
    ExtraClause::Sample,
    ExtraClause::Count,
    ExtraClause::Keep,
    ExtraClause::Anything,
];

/// A request that is not yet resolved against entities.
#[derive(Clone, Debug)]
struct GroupPlan {
    keys: Vec<PathPlan>,
    clause: ExtraClause,
    subject: PathPlan,
    numbers: (u64, u64),
    denull: bool,
    anything: ReadRequestPlan,
}

fn group_plan(clause: ExtraClause) -> impl Strategy<Value = GroupPlan> {
    let paths = (vec(path_plan(), 1..4), path_plan());
    (paths, (0..5_u64, 0..9_u64), prop::bool::weighted(0.25), plan()).prop_map(
        move |((keys, subject), numbers, denull, anything)| GroupPlan {
            keys,
            clause,
            subject,
            numbers,
            denull,
            anything,
        },
    )
}

impl GroupPlan {
    fn resolve(&self, entities: &[Value], places: &Places<'_>) -> ReadRequest {
        let keys: Vec<_> = self.keys.iter().filter_map(|key| Some(key.resolve(places)?.0)).collect();
        let request =
            ReadRequest { dedup: true, dedup_key: keys.clone(), denull: self.denull, ..ReadRequest::default() };
        let subject = self.subject.resolve(places);
        let text = || subject.as_ref()?.1?.text();
        let (small, large) = self.numbers;
        match self.clause {
            ExtraClause::Nothing => request,
            ExtraClause::Filter => {
                let condition =
                    subject.as_ref().zip(text()).map(|((path, _), value)| PathValue { path: path.clone(), value });
                ReadRequest { filters: condition.into_iter().collect(), ..request }
            }
            ExtraClause::Keywords => {
                let word = text().map(|text| text.chars().take(1).collect::<String>());
                ReadRequest { keywords: word.into_iter().filter(|word| !word.is_empty()).collect(), ..request }
            }
            ExtraClause::Sort => {
                let field = subject.as_ref().map(|(path, _)| path.keys()[0].clone());
                let sort = field.map(|field| SortField { field, descending: large % 2 == 0 });
                ReadRequest { sort, limit: (small > 1).then_some(large), ..request }
            }
            ExtraClause::Window => ReadRequest { offset: small, limit: Some(large), ..request },
            ExtraClause::Sample => ReadRequest { sample: Some(large), seed: Some(small), offset: small / 2, ..request },
            ExtraClause::Count => ReadRequest { count: true, offset: small / 2, ..request },
            ExtraClause::Keep => {
                let keep = keys.iter().filter_map(|key| FieldPath::from_keys([key.keys()[0].clone()]).ok()).collect();
                ReadRequest { keep_fields: keep, dedup_key: Vec::new(), ..request }
            }
            ExtraClause::Anything => ReadRequest { dedup: true, dedup_key: keys, ..self.anything.resolve(entities) },
        }
    }
}

/// Returns the result of the reference implementation, or for samples the local result.
fn expected(nodes: &TestNodes, reader: &VersionReader, entities: &[Value], request: &ReadRequest) -> QueryResult {
    if request.sample.is_some() {
        return nodes.run_locally(reader, request).expect("found");
    }
    let positions = pipeline::selected_positions(entities, request);
    if request.count { QueryResult::Count(positions.len() as u64) } else { QueryResult::Positions(positions) }
}

/// Builds an edit script that changes, removes and inserts entities.
fn edit_script(edits: &[(Index, bool, Option<Value>)], length: usize) -> EditScript {
    let mut script = EditScript::new();
    for (index, inserts, entity) in edits {
        let document = entity.as_ref().map(|entity| Bytes::from(entity.write()));
        match document {
            Some(document) if *inserts => {
                script.entry(index.index(length + 1) as u64).or_default().inserts.push(document);
            }
            document => script.entry(index.index(length) as u64).or_default().change = Some(document),
        }
    }
    script
}

/// Returns an edited version of the entities; `None` if no entity of the base would remain.
fn edited_version(
    nodes: &TestNodes,
    entities: &[Value],
    options: &WriteOptions,
    edits: &[(Index, bool, Option<Value>)],
) -> Option<(VersionReader, Vec<Value>)> {
    let list: Vec<String> = entities.iter().map(Value::write).collect();
    let script = edit_script(edits, list.len());
    let file = nodes.lab.write(entities, options);
    let made = nodes.lab.bench.edit(&nodes.lab.store, &file, &script, (options, &always_beside(1)));
    let (path, written) = made.expect("planned and written")?;
    let list = edited(&list, &script);
    let entities = list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    Some((nodes.lab.open(&path, &written, &PartCache::new(0)), entities))
}

#[test]
fn distributed_dedup_equals_reference() {
    let nodes = TestNodes::new(3);
    let edit = (any::<Index>(), any::<bool>(), prop::option::of(alike()));
    let layout = (1..6_usize, any::<bool>(), any::<usize>(), vec(edit, 1..4), any::<bool>());
    // Number of distributed requests for each extra clause, layout and key source.
    let distributed: RefCell<BTreeMap<String, usize>> = RefCell::default();
    let count = |kind: String| *distributed.borrow_mut().entry(kind).or_default() += 1;
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let plans: Vec<_> = EXTRA_CLAUSES.into_iter().map(group_plan).collect();
    let result = runner.run(&(entities(), layout, plans), |(entities, layout, plans)| {
        let (rows, shredded, indexed, edits, is_edited) = layout;
        let options = WriteOptions {
            max_row_group_rows: rows,
            shredding_limits: if shredded { all_shredded() } else { nothing_shredded() },
            keyword_limits: some_segments(indexed),
            ..WriteOptions::default()
        };
        let made = match is_edited && !entities.is_empty() {
            true => edited_version(&nodes, &entities, &options, &edits),
            false => None,
        };
        let (layout, (reader, entities)) = match made {
            Some(made) => ("edited", made),
            None => ("whole", (nodes.version(&entities, &options), entities)),
        };
        let mut found_places = Vec::new();
        entities.iter().for_each(|entity| places(entity, &mut Vec::new(), &mut found_places));
        for (number, plan) in plans.iter().enumerate() {
            let request = plan.resolve(&entities, &found_places);
            let (found, used) = nodes.run_on(number % 3, &reader, &request);
            let expected = expected(&nodes, &reader, &entities, &request);
            prop_assert_eq!(&found, &expected, "{:?} of {} {:?}", request, layout, entities);
            prop_assert_eq!(&nodes.run_locally(&reader, &request).expect("found"), &expected, "local: {:?}", request);
            if let Some(used) = used {
                prop_assert_eq!(&used.fallback, &None, "{:?}", request);
                prop_assert!(used.nodes.len() > 1, "{:?}", used);
                count(format!("{:?}", plan.clause));
                count(layout.to_owned());
                count(if shredded { "columns" } else { "documents" }.to_owned());
            }
        }
        Ok(())
    });
    no_failure(result);
    let kinds = EXTRA_CLAUSES.iter().map(|clause| format!("{clause:?}"));
    for kind in kinds.chain(["whole", "edited", "columns", "documents"].map(str::to_owned)) {
        let times = distributed.borrow().get(&kind).copied().unwrap_or_default();
        assert!(times >= 3, "{kind} was distributed {times} times: {:?}", distributed.borrow());
    }
}

/// `dedup` requests for [`forty_entities`].
fn dedup_requests() -> Vec<ReadRequest> {
    let by_k = ReadRequest { dedup: true, dedup_key: vec![path("k")], ..ReadRequest::default() };
    vec![
        by_k.clone(),
        ReadRequest { dedup_key: vec![path("k"), path("v")], ..by_k.clone() },
        ReadRequest { dedup_key: vec![path("missing")], filters: filter("k", "1").filters, ..by_k.clone() },
        ReadRequest { sort: sort("v", true), ..by_k.clone() },
        ReadRequest { dedup_key: Vec::new(), keep_fields: vec![path("_source")], ..by_k.clone() },
        ReadRequest { count: true, filters: filter("k", "2").filters, ..by_k },
    ]
}

/// Codes of values are valid in one process only, and only some nodes have them.
#[test]
fn nodes_with_and_without_codes_find_equal_groups() {
    let mut nodes = TestNodes::new(1);
    let file = nodes.lab.write(&forty_entities(), &ten_rows_per_group());
    let cache = PartCache::new(1 << 30);
    let store = nodes.lab.store.clone();
    nodes.add_with(SECRET, store, cache.clone());
    let reader_there = nodes.lab.open(&file.0, &file.1, &cache);
    let reader = nodes.lab.open(&file.0, &file.1, &PartCache::new(0));
    for request in dedup_requests() {
        let whole = ReadRequest { filters: Vec::new(), sort: None, count: false, ..request.clone() };
        let scan = nodes.lab.scan(&reader_there, whole.clone());
        assert!(scan.0 > 0);
        let (found, used) = nodes.run_on(0, &reader, &request);
        assert_eq!(found, expected(&nodes, &reader, &forty_entities(), &request), "{request:?}");
        if let Some(used) = used {
            assert_eq!((used.fallback, used.nodes.len()), (None, 2), "{request:?}");
        } else {
            assert!(request.keep_fields == [path("_source")], "{request:?} was not distributed");
        }
    }
}

#[test]
fn coordinator_caches_first_of_each_group() {
    let nodes = TestNodes::new(2);
    let by_k = &dedup_requests()[0];
    for windows in [
        ReadRequest { offset: 1, limit: Some(1), ..by_k.clone() },
        by_k.clone(),
        ReadRequest { sort: sort("v", false), ..by_k.clone() },
        ReadRequest { filters: filter("v", "7").filters, ..by_k.clone() },
        ReadRequest { count: true, ..by_k.clone() },
    ] {
        let (path, written) = nodes.lab.write(&forty_entities(), &ten_rows_per_group());
        let reader = nodes.lab.open(&path, &written, &PartCache::new(1 << 30));
        let (found, explained) = nodes.explain_on(0, &reader, &windows);
        assert_eq!(found, expected(&nodes, &reader, &forty_entities(), &windows), "{windows:?}");
        assert_eq!(explained.distributed.map(|used| used.fallback), Some(None), "{windows:?}");
        let is_cached = explained.operators.iter().any(|operator| operator.operator == "KeepFirsts");
        // Other requests do not find all groups, or have no positions.
        let are_all = windows.sort.is_none() && windows.filters.is_empty() && !windows.count;
        assert_eq!(is_cached, are_all, "{windows:?}");
        for request in [by_k.clone(), ReadRequest { count: true, ..by_k.clone() }] {
            let (found, used) = nodes.run_on(1, &reader, &request);
            assert_eq!(found, expected(&nodes, &reader, &forty_entities(), &request), "{request:?} after {windows:?}");
            if are_all {
                assert_eq!(used, None, "{request:?} after {windows:?}");
            }
        }
    }
}

/// Distributing such a query would send nearly all rows.
#[test]
fn dedup_by_mostly_unique_key_is_not_distributed() {
    let nodes = TestNodes::new(2);
    let entity = |number: u64| Value::parse_entity(&format!(r#"{{"own":[{number}],"shared":[{}]}}"#, number % 5));
    let entities: Vec<Value> = (0..80_000).map(|number| entity(number).expect("an entity")).collect();
    let reader = nodes.version(&entities, &WriteOptions { max_row_group_rows: 20_000, ..WriteOptions::default() });
    for (key, groups, is_distributed) in [("own", 80_000, false), ("shared", 5, true)] {
        let dedup_key = vec![path(key)];
        let request = ReadRequest { dedup: true, dedup_key, count: true, ..ReadRequest::default() };
        let (found, distributed) = nodes.run_on(0, &reader, &request);
        assert_eq!((found, distributed.is_some()), (QueryResult::Count(groups), is_distributed), "{key}");
    }
}

//! `dedup` by paths with other nodes: each gives the first of its groups, and the first of these is what the reference
//! implementation finds, whatever else the request asks for and wherever the keys are read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::editing::Slots;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_reference::{Value, pipeline};
use strata_testing::reads::{PathPlan, Places, Plan, alike, cases, entities, no_failure, path_plan, places, plan};
use strata_testing::versions::{all_shredded, always_beside, edited, nothing_shredded, some_segments, some_shapes};
use strata_types::path::Path;
use strata_types::request::{PathValue, ReadRequest, Sort};

use super::{Found, Nodes, SECRET, filter, forty, path, sort, tens};

/// What a request asks for besides the first of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Besides {
    Nothing,
    Filter,
    Keywords,
    Sort,
    Window,
    Sample,
    Count,
    /// Instead of paths.
    Keep,
    /// What no other one of these has.
    Anything,
}

const BESIDES: [Besides; 9] = [
    Besides::Nothing,
    Besides::Filter,
    Besides::Keywords,
    Besides::Sort,
    Besides::Window,
    Besides::Sample,
    Besides::Count,
    Besides::Keep,
    Besides::Anything,
];

/// A request before it has entities.
#[derive(Clone, Debug)]
struct GroupPlan {
    keys: Vec<PathPlan>,
    besides: Besides,
    about: PathPlan,
    numbers: (u64, u64),
    denull: bool,
    anything: Plan,
}

fn group_plan(besides: Besides) -> impl Strategy<Value = GroupPlan> {
    let paths = (vec(path_plan(), 1..4), path_plan());
    (paths, (0..5_u64, 0..9_u64), prop::bool::weighted(0.25), plan()).prop_map(
        move |((keys, about), numbers, denull, anything)| GroupPlan { keys, besides, about, numbers, denull, anything },
    )
}

impl GroupPlan {
    fn resolve(&self, entities: &[Value], places: &Places<'_>) -> ReadRequest {
        let keys: Vec<_> = self.keys.iter().filter_map(|key| Some(key.resolve(places)?.0)).collect();
        let request =
            ReadRequest { dedup: true, dedup_key: keys.clone(), denull: self.denull, ..ReadRequest::default() };
        let about = self.about.resolve(places);
        let text = || about.as_ref()?.1?.text();
        let (small, large) = self.numbers;
        match self.besides {
            Besides::Nothing => request,
            Besides::Filter => {
                let condition =
                    about.as_ref().zip(text()).map(|((path, _), value)| PathValue { path: path.clone(), value });
                ReadRequest { filters: condition.into_iter().collect(), ..request }
            }
            Besides::Keywords => {
                let word = text().map(|text| text.chars().take(1).collect::<String>());
                ReadRequest { keywords: word.into_iter().filter(|word| !word.is_empty()).collect(), ..request }
            }
            Besides::Sort => {
                let field = about.as_ref().map(|(path, _)| path.keys()[0].clone());
                let sort = field.map(|field| Sort { field, descending: large % 2 == 0 });
                ReadRequest { sort, limit: (small > 1).then_some(large), ..request }
            }
            Besides::Window => ReadRequest { offset: small, limit: Some(large), ..request },
            Besides::Sample => ReadRequest { sample: Some(large), seed: Some(small), offset: small / 2, ..request },
            Besides::Count => ReadRequest { count: true, offset: small / 2, ..request },
            Besides::Keep => {
                let keep = keys.iter().filter_map(|key| Path::from_keys([key.keys()[0].clone()]).ok()).collect();
                ReadRequest { keep, dedup_key: Vec::new(), ..request }
            }
            Besides::Anything => ReadRequest { dedup: true, dedup_key: keys, ..self.anything.resolve(entities) },
        }
    }
}

/// What a request finds, by the reference implementation but for samples.
fn expected(nodes: &Nodes, reader: &VersionReader, entities: &[Value], request: &ReadRequest) -> Found {
    if request.sample.is_some() {
        return nodes.alone(reader, request).expect("found");
    }
    let positions = pipeline::selected_positions(entities, request);
    if request.count { Found::Count(positions.len() as u64) } else { Found::Positions(positions) }
}

/// Edits of a list: what becomes of some entities, and what comes before some.
fn slots(edits: &[(Index, bool, Option<Value>)], length: usize) -> Slots {
    let mut slots = Slots::new();
    for (place, inserts, entity) in edits {
        let document = entity.as_ref().map(|entity| Bytes::from(entity.write()));
        match document {
            Some(document) if *inserts => {
                slots.entry(place.index(length + 1) as u64).or_default().inserts.push(document);
            }
            document => slots.entry(place.index(length) as u64).or_default().change = Some(document),
        }
    }
    slots
}

/// The same entities in another version, edited; `None` where nothing would be left in its base.
fn edited_version(
    nodes: &Nodes,
    entities: &[Value],
    options: &WriteOptions,
    edits: &[(Index, bool, Option<Value>)],
) -> Option<(VersionReader, Vec<Value>)> {
    let list: Vec<String> = entities.iter().map(Value::write).collect();
    let slots = slots(edits, list.len());
    let file = nodes.lab.write(entities, options);
    let made = nodes.lab.bench.edit(&nodes.lab.store, &file, &slots, (options, &always_beside(1)));
    let (path, written) = made.expect("planned and written")?;
    let list = edited(&list, &slots);
    let entities = list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
    Some((nodes.lab.open(&path, &written, &PartCache::new(0)), entities))
}

#[test]
fn any_groups_have_with_other_nodes_the_first_that_the_reference_finds() {
    let nodes = Nodes::new(3);
    let edit = (any::<Index>(), any::<bool>(), prop::option::of(alike()));
    let layout = (1..6_usize, any::<bool>(), any::<usize>(), vec(edit, 1..4), any::<bool>());
    // How many requests of each kind were distributed, and over what.
    let distributed: RefCell<BTreeMap<String, usize>> = RefCell::default();
    let count = |kind: String| *distributed.borrow_mut().entry(kind).or_default() += 1;
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let plans: Vec<_> = BESIDES.into_iter().map(group_plan).collect();
    let result = runner.run(&(entities(), layout, plans), |(entities, layout, plans)| {
        let (rows, shredded, indexed, edits, is_edited) = layout;
        let options = WriteOptions {
            row_group_rows: rows,
            shredding: if shredded { all_shredded() } else { nothing_shredded() },
            keywords: some_segments(indexed),
            shapes: some_shapes(indexed / 7),
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
            let (found, used) = nodes.found(number % 3, &reader, &request);
            let expected = expected(&nodes, &reader, &entities, &request);
            prop_assert_eq!(&found, &expected, "{:?} of {} {:?}", request, layout, entities);
            prop_assert_eq!(&nodes.alone(&reader, &request).expect("found"), &expected, "alone: {:?}", request);
            if let Some(used) = used {
                prop_assert_eq!(&used.fallback, &None, "{:?}", request);
                prop_assert!(used.nodes.len() > 1, "{:?}", used);
                count(format!("{:?}", plan.besides));
                count(layout.to_owned());
                count(if shredded { "columns" } else { "documents" }.to_owned());
            }
        }
        Ok(())
    });
    no_failure(result);
    let kinds = BESIDES.iter().map(|besides| format!("{besides:?}"));
    for kind in kinds.chain(["whole", "edited", "columns", "documents"].map(str::to_owned)) {
        let times = distributed.borrow().get(&kind).copied().unwrap_or_default();
        assert!(times >= 3, "{kind} was distributed {times} times: {:?}", distributed.borrow());
    }
}

/// Requests for the first of each group of [`forty`].
fn first_of_each() -> Vec<ReadRequest> {
    let by_k = ReadRequest { dedup: true, dedup_key: vec![path("k")], ..ReadRequest::default() };
    vec![
        by_k.clone(),
        ReadRequest { dedup_key: vec![path("k"), path("v")], ..by_k.clone() },
        ReadRequest { dedup_key: vec![path("missing")], filters: filter("k", "1").filters, ..by_k.clone() },
        ReadRequest { sort: sort("v", true), ..by_k.clone() },
        ReadRequest { dedup_key: Vec::new(), keep: vec![path("_source")], ..by_k.clone() },
        ReadRequest { count: true, filters: filter("k", "2").filters, ..by_k },
    ]
}

/// Codes of values have a meaning in one process alone, and some nodes may have them.
#[test]
fn nodes_that_have_codes_of_a_path_and_nodes_that_have_none_find_the_same_groups() {
    let mut nodes = Nodes::new(1);
    let (file, cache) = (nodes.lab.write(&forty(), &tens()), PartCache::new(1 << 30));
    let store = nodes.lab.store.clone();
    nodes.add_with(SECRET, store, cache.clone());
    let reader_there = nodes.lab.open(&file.0, &file.1, &cache);
    let reader = nodes.lab.open(&file.0, &file.1, &PartCache::new(0));
    for request in first_of_each() {
        let whole = ReadRequest { filters: Vec::new(), sort: None, count: false, ..request.clone() };
        let dear = nodes.lab.scan(&reader_there, whole.clone());
        assert!(dear.0 > 0);
        let (found, used) = nodes.found(0, &reader, &request);
        assert_eq!(found, expected(&nodes, &reader, &forty(), &request), "{request:?}");
        if let Some(used) = used {
            assert_eq!((used.fallback, used.nodes.len()), (None, 2), "{request:?}");
        } else {
            assert!(request.keep == [path("_source")], "{request:?} was not distributed");
        }
    }
}

#[test]
fn the_first_of_all_groups_are_kept_where_they_come_together() {
    let nodes = Nodes::new(2);
    let by_k = &first_of_each()[0];
    for windows in [
        ReadRequest { offset: 1, limit: Some(1), ..by_k.clone() },
        by_k.clone(),
        ReadRequest { sort: sort("v", false), ..by_k.clone() },
        ReadRequest { filters: filter("v", "7").filters, ..by_k.clone() },
        ReadRequest { count: true, ..by_k.clone() },
    ] {
        let (path, written) = nodes.lab.write(&forty(), &tens());
        let reader = nodes.lab.open(&path, &written, &PartCache::new(1 << 30));
        let (found, explained) = nodes.explained(0, &reader, &windows);
        assert_eq!(found, expected(&nodes, &reader, &forty(), &windows), "{windows:?}");
        assert_eq!(explained.distributed.map(|used| used.fallback), Some(None), "{windows:?}");
        let keeps = explained.operators.iter().any(|operator| operator.operator == "KeepFirsts");
        // Others are not all, or have no positions.
        let are_all = windows.sort.is_none() && windows.filters.is_empty() && !windows.count;
        assert_eq!(keeps, are_all, "{windows:?}");
        for request in [by_k.clone(), ReadRequest { count: true, ..by_k.clone() }] {
            let (found, used) = nodes.found(1, &reader, &request);
            assert_eq!(found, expected(&nodes, &reader, &forty(), &request), "{request:?} after {windows:?}");
            if are_all {
                assert_eq!(used, None, "{request:?} after {windows:?}");
            }
        }
    }
}

/// Nearly all rows were sent.
#[test]
fn a_key_that_most_of_many_entities_have_alone_is_not_distributed() {
    let nodes = Nodes::new(2);
    let entity = |number: u64| Value::parse_entity(&format!(r#"{{"own":[{number}],"shared":[{}]}}"#, number % 5));
    let entities: Vec<Value> = (0..80_000).map(|number| entity(number).expect("an entity")).collect();
    let reader = nodes.version(&entities, &WriteOptions { row_group_rows: 20_000, ..WriteOptions::default() });
    for (key, groups, is_distributed) in [("own", 80_000, false), ("shared", 5, true)] {
        let dedup_key = vec![path(key)];
        let request = ReadRequest { dedup: true, dedup_key, count: true, ..ReadRequest::default() };
        let (found, distributed) = nodes.found(0, &reader, &request);
        assert_eq!((found, distributed.is_some()), (Found::Count(groups), is_distributed), "{key}");
    }
}

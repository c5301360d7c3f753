//! Diffs with other nodes: they read the fields of entities, and the diff is the one that one process finds, byte for
//! byte.

use std::cell::Cell;
use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_diff::{self as diff, Change, Diff, DiffBounds, DiffPage, records};
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::{Engine, QueryError};
use strata_reference::Value;
use strata_reference::diff::{self as reference, Bounds};
use strata_store::store::{self, S3Options};
use strata_testing::diffs::{parsed, plan};
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::{all_shredded, nothing_shredded};

use super::{Nodes, SECRET};

impl Nodes {
    fn diff(&self, engine: &Engine, readers: &[VersionReader; 2], bounds: DiffBounds) -> Result<Diff, QueryError> {
        let [v1, v2] = readers.clone();
        self.lab.bench.runtime.block_on(diff::compare(engine, v1, v2, bounds))
    }

    /// Every byte of the records of a diff.
    fn records(&self, readers: &[VersionReader; 2], diff: &Diff) -> Vec<String> {
        let changes: Vec<Change> = diff.changes(&DiffPage::default()).collect();
        let mut all = Vec::new();
        let written = records::for_each(readers, &changes, |record| {
            all.push(String::from_utf8(record.to_vec()).expect("UTF-8"));
            ControlFlow::Continue(())
        });
        self.lab.bench.runtime.block_on(written).expect("read");
        all
    }
}

/// What was read of the fields, of all that a node has distributed.
fn kinds(seen: &[(String, Option<String>)]) -> [usize; 2] {
    ["values", "features"]
        .map(|kind| seen.iter().filter(|(scan, _)| scan.contains(&format!("FieldScan: {kind}"))).count())
}

#[test]
fn any_two_versions_differ_with_other_nodes_as_the_reference_says() {
    let nodes = Nodes::new(3);
    let bounds = (0..12_u64, 1..4_u64, any::<bool>());
    let ways = (1..6_usize, any::<bool>(), 0..3_usize);
    let distributed = Cell::new([0, 0]);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(75), ..PropertyConfig::default() });
    let result = runner.run(&(plan(), bounds, ways), |(plan, (pairs, holders, is_small), (rows, shredded, node))| {
        let options = WriteOptions {
            row_group_rows: rows,
            shredding: if shredded { all_shredded() } else { nothing_shredded() },
            ..WriteOptions::default()
        };
        let bounds = match is_small {
            true => DiffBounds { candidate_pairs: pairs, value_holders: holders },
            false => DiffBounds::default(),
        };
        let versions = [plan.v1().to_vec(), plan.v2()];
        let readers = [0, 1].map(|version: usize| nodes.version(&versions[version], &options));
        for [one, other] in [[0, 1], [1, 0]] {
            let readers = [readers[one].clone(), readers[other].clone()];
            let found = nodes.diff(&nodes.engines[node], &readers, bounds).expect("a diff");
            let alone = nodes.diff(&nodes.lab.engines[1], &readers, bounds).expect("a diff");
            let changes = |diff: &Diff| diff.changes(&DiffPage::default()).collect::<Vec<_>>();
            prop_assert_eq!(changes(&found), changes(&alone));
            prop_assert_eq!((found.total_v1, found.total_v2), (alone.total_v1, alone.total_v2));
            let records = nodes.records(&readers, &found);
            prop_assert_eq!(&records, &nodes.records(&readers, &alone));
            let most = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let bounds =
                Bounds { candidate_pairs: most(bounds.candidate_pairs), value_holders: most(bounds.value_holders) };
            let expected = reference::records(&versions[one], &versions[other], bounds).into_iter();
            prop_assert_eq!(records, expected.map(|(_, record)| record).collect::<Vec<_>>());
            let seen = nodes.watched[node].take();
            prop_assert!(seen.iter().all(|(_, fallback)| fallback.is_none()), "{:?}", seen);
            let [values, features] = kinds(&seen);
            let before = distributed.get();
            distributed.set([before[0] + values, before[1] + features]);
        }
        Ok(())
    });
    no_failure(result);
    let [values, features] = distributed.get();
    assert!(values > 20 && features > 20, "{values} times values were read together, {features} times features");
}

/// Two versions of one source: some entities are equal, in another order and several times, others have changed.
fn changed() -> [Vec<Value>; 2] {
    let entity = |number: usize, changed: usize| {
        let text = format!(
            r#"{{"id":{},"same":"{}","n":{changed},"é\n":[{}],"_source":"x"}}"#,
            number / 2,
            number % 5,
            number % 7
        );
        parsed(&text)
    };
    let v1 = (0..90).map(|number| entity(number, 0)).collect();
    let v2 = (0..90).rev().map(|number| entity(number, usize::from(number % 4 == 0) * number)).collect();
    [v1, v2]
}

fn tens() -> WriteOptions {
    WriteOptions { row_group_rows: 10, ..WriteOptions::default() }
}

#[test]
fn nodes_read_the_fields_of_both_versions() {
    let nodes = Nodes::new(3);
    let readers = changed().map(|version| nodes.version(&version, &tens()));
    let found = nodes.diff(&nodes.engines[0], &readers, DiffBounds::default()).expect("a diff");
    let alone = nodes.diff(&nodes.lab.engines[1], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &alone));
    assert!(found.modified() > 10, "{found:?}");
    let seen = nodes.watched[0].take();
    assert!(seen.iter().all(|(_, fallback)| fallback.is_none()), "{seen:?}");
    // The features of each version.
    assert_eq!(kinds(&seen), [1, 2], "{seen:?}");
}

#[test]
fn a_diff_goes_on_alone_where_a_node_fails() {
    let mut nodes = Nodes::new(2);
    // It does not have the files.
    let empty = nodes.add(SECRET, store::open("memory://", &S3Options::default()).expect("a store"));
    let readers = changed().map(|version| nodes.version(&version, &tens()));
    let alone = nodes.diff(&nodes.lab.engines[1], &readers, DiffBounds::default()).expect("a diff");
    let found = nodes.diff(&nodes.engines[0], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &alone));
    let fallbacks: Vec<_> = nodes.watched[0].take().into_iter().map(|(_, fallback)| fallback).collect();
    // It is left alone then.
    assert_eq!(fallbacks, [Some(format!("failed: n{empty}")), None, None]);
}

#[test]
fn versions_that_are_cached_are_compared_where_they_are() {
    let nodes = Nodes::new(2);
    let cache = strata_format::cache::PartCache::new(1 << 30);
    let readers = changed().map(|version| {
        let (path, written) = nodes.lab.write(&version, &tens());
        nodes.lab.open(&path, &written, &cache)
    });
    let alone = nodes.diff(&nodes.lab.engines[1], &readers, DiffBounds::default()).expect("a diff");
    // Which has read all of it into the cache of these readers.
    let found = nodes.diff(&nodes.engines[0], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &alone));
    assert_eq!(nodes.watched[0].take(), []);
}

//! Distributed diffs: several nodes read the fields of entities, and the diff equals a local diff byte for byte.

use std::cell::Cell;
use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_diff::{self as diff, ChangeList, DiffChange, DiffLimits, DiffPage, change_records};
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::{QueryEngine, QueryError};
use strata_reference::Value;
use strata_reference::diff::{self as reference, Bounds};
use strata_store::store::{self, S3Options};
use strata_testing::diffs::{parsed, plan};
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::{all_shredded, nothing_shredded};

use super::{SECRET, TestNodes};

impl TestNodes {
    fn diff(
        &self,
        engine: &QueryEngine,
        readers: &[VersionReader; 2],
        bounds: DiffLimits,
    ) -> Result<ChangeList, QueryError> {
        let [v1, v2] = readers.clone();
        self.lab.bench.runtime.block_on(diff::compare(engine, v1, v2, bounds))
    }

    /// Returns the encoded records of a diff.
    fn records(&self, readers: &[VersionReader; 2], diff: &ChangeList) -> Vec<String> {
        let changes: Vec<DiffChange> = diff.changes(&DiffPage::default()).collect();
        let mut all = Vec::new();
        let written = change_records::for_each_record(readers, &changes, |record| {
            all.push(String::from_utf8(record.to_vec()).expect("UTF-8"));
            ControlFlow::Continue(())
        });
        self.lab.bench.runtime.block_on(written).expect("read");
        all
    }
}

/// Returns how many distributed scans read values, and how many read features.
fn scan_counts(seen: &[(String, Option<String>)]) -> [usize; 2] {
    ["values", "features"]
        .map(|kind| seen.iter().filter(|(scan, _)| scan.contains(&format!("FieldScan: {kind}"))).count())
}

#[test]
fn distributed_diff_equals_reference() {
    let nodes = TestNodes::new(3);
    let bounds = (0..12_u64, 1..4_u64, any::<bool>());
    let ways = (1..6_usize, any::<bool>(), 0..3_usize);
    let distributed = Cell::new([0, 0]);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(75), ..PropertyConfig::default() });
    let result = runner.run(&(plan(), bounds, ways), |(plan, (pairs, holders, is_small), (rows, shredded, node))| {
        let options = WriteOptions {
            max_row_group_rows: rows,
            shredding_limits: if shredded { all_shredded() } else { nothing_shredded() },
            ..WriteOptions::default()
        };
        let bounds = match is_small {
            true => DiffLimits { max_candidate_pairs: pairs, max_value_holders: holders },
            false => DiffLimits::default(),
        };
        let versions = [plan.v1().to_vec(), plan.v2()];
        let readers = [0, 1].map(|version: usize| nodes.version(&versions[version], &options));
        for [one, other] in [[0, 1], [1, 0]] {
            let readers = [readers[one].clone(), readers[other].clone()];
            let found = nodes.diff(&nodes.engines[node], &readers, bounds).expect("a diff");
            let local = nodes.diff(&nodes.lab.engines[1], &readers, bounds).expect("a diff");
            let changes = |diff: &ChangeList| diff.changes(&DiffPage::default()).collect::<Vec<_>>();
            prop_assert_eq!(changes(&found), changes(&local));
            prop_assert_eq!((found.total_v1, found.total_v2), (local.total_v1, local.total_v2));
            let records = nodes.records(&readers, &found);
            prop_assert_eq!(&records, &nodes.records(&readers, &local));
            let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let bounds = Bounds {
                candidate_pairs: to_usize(bounds.max_candidate_pairs),
                value_holders: to_usize(bounds.max_value_holders),
            };
            let expected = reference::records(&versions[one], &versions[other], bounds).into_iter();
            prop_assert_eq!(records, expected.map(|(_, record)| record).collect::<Vec<_>>());
            let seen = nodes.watched[node].take();
            prop_assert!(seen.iter().all(|(_, fallback)| fallback.is_none()), "{:?}", seen);
            let [values, features] = scan_counts(&seen);
            let before = distributed.get();
            distributed.set([before[0] + values, before[1] + features]);
        }
        Ok(())
    });
    no_failure(result);
    let [values, features] = distributed.get();
    assert!(
        values > 20 && features > 20,
        "{values} times values were read by several nodes, {features} times features"
    );
}

/// Two versions of one source: some entities are equal, in another order and several times, and others have changed.
fn two_versions() -> [Vec<Value>; 2] {
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

fn ten_rows_per_group() -> WriteOptions {
    WriteOptions { max_row_group_rows: 10, ..WriteOptions::default() }
}

#[test]
fn nodes_read_the_fields_of_both_versions() {
    let nodes = TestNodes::new(3);
    let readers = two_versions().map(|version| nodes.version(&version, &ten_rows_per_group()));
    let found = nodes.diff(&nodes.engines[0], &readers, DiffLimits::default()).expect("a diff");
    let local = nodes.diff(&nodes.lab.engines[1], &readers, DiffLimits::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &local));
    assert!(found.modified_count() > 10, "{found:?}");
    let seen = nodes.watched[0].take();
    assert!(seen.iter().all(|(_, fallback)| fallback.is_none()), "{seen:?}");
    // One scan of values, and a scan of features for each version.
    assert_eq!(scan_counts(&seen), [1, 2], "{seen:?}");
}

#[test]
fn diff_runs_on_one_node_if_a_node_fails() {
    let mut nodes = TestNodes::new(2);
    // A node without the files.
    let empty = nodes.add(SECRET, store::open_store("memory://", &S3Options::default()).expect("a store"));
    let readers = two_versions().map(|version| nodes.version(&version, &ten_rows_per_group()));
    let local = nodes.diff(&nodes.lab.engines[1], &readers, DiffLimits::default()).expect("a diff");
    let found = nodes.diff(&nodes.engines[0], &readers, DiffLimits::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &local));
    let fallbacks: Vec<_> = nodes.watched[0].take().into_iter().map(|(_, fallback)| fallback).collect();
    // The failed node is then excluded.
    assert_eq!(fallbacks, [Some(format!("failed: n{empty}")), None, None]);
}

#[test]
fn cached_versions_are_compared_locally() {
    let nodes = TestNodes::new(2);
    let cache = strata_format::cache::PartCache::new(1 << 30);
    let readers = two_versions().map(|version| {
        let (path, written) = nodes.lab.write(&version, &ten_rows_per_group());
        nodes.lab.open(&path, &written, &cache)
    });
    let local = nodes.diff(&nodes.lab.engines[1], &readers, DiffLimits::default()).expect("a diff");
    // The local diff has read all data into the cache of these readers.
    let found = nodes.diff(&nodes.engines[0], &readers, DiffLimits::default()).expect("a diff");
    assert_eq!(nodes.records(&readers, &found), nodes.records(&readers, &local));
    assert_eq!(nodes.watched[0].take(), []);
}

//! Patches compared with the naive reference: the edits turn the old version into the new one, and leave out as many
//! entities as possible. Also the limits of memory and time.

use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use strata_diff::patch::{PatchLimits, VersionPatch, write_edits};
use strata_format::cache::PartCache;
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::reader::VersionReader;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_query::{QueryEngine, QueryError};
use strata_reference::Value;
use strata_reference::changes::{apply_edits, unchanged_count};
use strata_testing::diffs::{entity, parsed};
use strata_testing::engines::EngineLab;
use strata_testing::reads::cases;
use strata_testing::versions::{always_beside, edited};

#[derive(Clone, Debug)]
enum ListEdit {
    Set(Index, Value),
    Remove(Index),
    Insert(Index, Value),
    Duplicate(Index, Index),
    Move(Index, Index, Index),
    ReverseKeys(Index),
}

fn list_edit() -> impl Strategy<Value = ListEdit> {
    let entity = || entity(3, 3, 3);
    prop_oneof![
        3 => (any::<Index>(), entity()).prop_map(|(at, entity)| ListEdit::Set(at, entity)),
        3 => any::<Index>().prop_map(ListEdit::Remove),
        3 => (any::<Index>(), entity()).prop_map(|(at, entity)| ListEdit::Insert(at, entity)),
        2 => any::<(Index, Index)>().prop_map(|(of, at)| ListEdit::Duplicate(of, at)),
        1 => any::<(Index, Index, Index)>().prop_map(|(from, end, to)| ListEdit::Move(from, end, to)),
        1 => any::<Index>().prop_map(ListEdit::ReverseKeys),
    ]
}

fn apply_list_edits(old: &[Value], edits: &[ListEdit]) -> Vec<Value> {
    let mut list = old.to_vec();
    for edit in edits {
        match edit {
            ListEdit::Insert(at, entity) => list.insert(at.index(list.len() + 1), entity.clone()),
            _ if list.is_empty() => {}
            ListEdit::Set(at, entity) => {
                let at = at.index(list.len());
                list[at] = entity.clone();
            }
            ListEdit::Remove(at) => {
                list.remove(at.index(list.len()));
            }
            ListEdit::Duplicate(of, at) => list.insert(at.index(list.len() + 1), of.get(&list).clone()),
            ListEdit::Move(from, end, to) => {
                let from = from.index(list.len());
                let moved: Vec<Value> = list.drain(from..=from + end.index(list.len() - from)).collect();
                let to = to.index(list.len() + 1);
                list.splice(to..to, moved);
            }
            ListEdit::ReverseKeys(at) => {
                let at = at.index(list.len());
                let Value::Object(members) = &list[at] else { unreachable!("an entity is an object") };
                list[at] = Value::Object(members.iter().rev().cloned().collect());
            }
        }
    }
    list
}

fn compute(
    lab: &EngineLab,
    engine: &QueryEngine,
    [old, new]: [&VersionReader; 2],
    limits: PatchLimits,
) -> Result<VersionPatch, QueryError> {
    lab.bench.runtime.block_on(VersionPatch::compute(engine, old.clone(), new.clone(), limits))
}

/// Encodes a patch in parts of a few rows and bytes.
fn encode(lab: &EngineLab, patch: &VersionPatch, new: &VersionReader, rows: u64, max_bytes: usize) -> String {
    let mut text = Vec::new();
    let mut next = 0;
    while next < patch.changed_rows() {
        let ordinals = next..patch.changed_rows().min(next + rows);
        let written = write_edits(patch, new, ordinals, max_bytes, &mut text);
        let end = lab.bench.runtime.block_on(written).expect("failed to write edits");
        assert!(end > next, "no progress");
        next = end;
    }
    String::from_utf8(text).expect("edits are not UTF-8")
}

fn check_patch(
    lab: &EngineLab,
    readers: [&VersionReader; 2],
    lists: [&[Value]; 2],
    limits: PatchLimits,
) -> Result<(), TestCaseError> {
    let patch = compute(lab, &lab.engines[1], readers, limits).expect("failed to compute patch");
    let text = encode(lab, &patch, readers[1], 1_000_000, usize::MAX);
    prop_assert_eq!(&encode(lab, &patch, readers[1], 3, 40), &text);
    let lines: Vec<&str> = text.lines().collect();
    prop_assert_eq!(patch.edit_count(), lines.len() as u64, "{}", text);
    let texts = |list: &[Value]| list.iter().map(Value::write).collect::<Vec<_>>();
    let patched = apply_edits(lists[0], &lines).map_err(TestCaseError::fail)?;
    prop_assert_eq!(texts(&patched), texts(lists[1]), "{}", text);
    if limits.max_region_entities >= PatchLimits::default().max_region_entities {
        let changed = lists[0].len().max(lists[1].len()) - unchanged_count(lists[0], lists[1]);
        prop_assert!(patch.changed_rows() >= changed as u64, "{}", text);
        let hunks_are_minimal =
            changed_rows(&lines) == lists[0].len() + lists[1].len() - 2 * unchanged_count(lists[0], lists[1]);
        prop_assert!(hunks_are_minimal, "{}", text);
    }
    Ok(())
}

/// The number of rows of both lists that edits mention.
fn changed_rows(lines: &[&str]) -> usize {
    let rows = |line: &&str| match parsed(line) {
        Value::Object(members) => match &members[1] {
            (kind, _) if kind == "set" => 2,
            (_, Value::Array(entities)) => entities.len(),
            _ => 1,
        },
        _ => unreachable!("an edit is an object"),
    };
    lines.iter().map(rows).sum()
}

#[test]
fn patch_of_random_versions_matches_reference() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let size = prop_oneof![4 => 0..12_usize, 2 => 12..60_usize];
    let old = size.prop_flat_map(|size| vec(entity(3, 3, 3), size));
    let limit = prop_oneof![2 => Just(u64::MAX), 1 => 4..40_u64];
    let strategy = (old, vec(list_edit(), 0..8), 0..4_usize, limit);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(300), ..PropertyConfig::default() });
    let result = runner.run(&strategy, |(old, edits, rows, max_region_entities)| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            ..WriteOptions::default()
        };
        let new = apply_list_edits(&old, &edits);
        let readers = [lab.reader(&old, &options), lab.reader(&new, &options)];
        let limits = PatchLimits { max_region_entities };
        check_patch(&lab, [&readers[0], &readers[1]], [&old, &new], limits)?;
        check_patch(&lab, [&readers[1], &readers[0]], [&new, &old], limits)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn patch_of_edited_version_skips_shared_rows() {
    let lab = EngineLab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"id":{number},"text":"the same number {number}"}}"#));
    let list: Vec<Value> = (0..500).map(entity).collect();
    let options = WriteOptions { max_row_group_rows: 10, ..WriteOptions::default() };
    let base = lab.write(&list, &options);
    let set = Bytes::from(entity(1_000).write());
    let slots = EditScript::from([
        (77, PositionEdit { inserts: Vec::new(), change: Some(None) }),
        (300, PositionEdit { inserts: vec![set.clone()], change: Some(Some(set)) }),
    ]);
    let made = lab.bench.edit(&lab.store, &base, &slots, (&options, &always_beside(0)));
    let made = made.expect("failed to edit").expect("missing edit plan");
    let texts: Vec<String> = list.iter().map(Value::write).collect();
    let new: Vec<Value> = edited(&texts, &slots).iter().map(|text| parsed(text)).collect();
    let metrics = std::sync::Arc::new(strata_format::reader_metrics::ReaderMetrics::default());
    let readers =
        [&base, &made].map(|(path, written)| lab.open(path, written, &PartCache::new(0)).with_metrics(metrics.clone()));
    let limits = PatchLimits::default();
    let patch = compute(&lab, &lab.engines[1], [&readers[0], &readers[1]], limits).expect("failed to compute patch");
    assert_eq!((patch.edit_count(), patch.changed_rows()), (3, 3));
    let documents = metrics.documents.load();
    assert_eq!(documents.misses + documents.hits, 0, "documents were read although no hash occurs twice");
    check_patch(&lab, [&readers[0], &readers[1]], [&list, &new], limits).expect("wrong patch");
    check_patch(&lab, [&readers[1], &readers[0]], [&new, &list], limits).expect("wrong patch");
}

/// Long lists, which are divided at anchors: blocks are inserted, removed and moved, and single entities changed.
#[test]
fn long_versions_are_divided_at_anchors() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let entity = |number: u64| parsed(&format!(r#"{{"id":{number}}}"#));
    let old: Vec<Value> = (0..3_000).map(entity).collect();
    let mut new = old.clone();
    new.splice(2_500..2_500, (10_000..11_000).map(entity));
    new.drain(1_500..1_900);
    for index in (0..1_400).step_by(37) {
        new[index] = entity(20_000 + index as u64);
    }
    new.swap(1_450, 1_455);
    let options = WriteOptions { max_row_group_rows: 500, worker_threads: 1, ..WriteOptions::default() };
    let readers = [lab.reader(&old, &options), lab.reader(&new, &options)];
    for max_region_entities in [100, 400, u64::MAX] {
        let limits = PatchLimits { max_region_entities };
        check_patch(&lab, [&readers[0], &readers[1]], [&old, &new], limits).expect("wrong patch");
        check_patch(&lab, [&readers[1], &readers[0]], [&new, &old], limits).expect("wrong patch");
        let patch =
            compute(&lab, &lab.engines[0], [&readers[0], &readers[1]], limits).expect("failed to compute patch");
        assert_eq!(patch.changed_rows(), 38 + 2 + 400 + 1_000, "{max_region_entities}");
    }
}

/// Entities that differ only in `_source` have equal canonical hashes, but different texts.
#[test]
fn entities_that_differ_in_source_are_not_equal() {
    let lab = EngineLab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"status":404,"_source":"https://a.test/{number}"}}"#));
    let old: Vec<Value> = (0..40).map(entity).collect();
    let mut new = old.clone();
    new.remove(3);
    let readers = [lab.reader(&old, &WriteOptions::default()), lab.reader(&new, &WriteOptions::default())];
    let patch = compute(&lab, &lab.engines[0], [&readers[0], &readers[1]], PatchLimits::default());
    let text = encode(&lab, &patch.expect("failed to compute patch"), &readers[1], 10, usize::MAX);
    assert_eq!(text, "{\"position\":3,\"remove\":true}\n");
}

#[test]
fn long_insert_has_several_edits() {
    let lab = EngineLab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"id":{number}}}"#));
    let new: Vec<Value> = (0..2_001).map(entity).collect();
    let readers = [lab.reader(&[], &WriteOptions::default()), lab.reader(&new, &WriteOptions::default())];
    let limits = PatchLimits { max_region_entities: 64 };
    let patch = compute(&lab, &lab.engines[0], [&readers[0], &readers[1]], limits).expect("failed to compute patch");
    assert_eq!((patch.edit_count(), patch.changed_rows()), (3, 2_001));
    let text = encode(&lab, &patch, &readers[1], 300, usize::MAX);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with(r#"{"position":0,"insert":["#)), "{lines:?}");
    assert_eq!(apply_edits(&[], &lines).expect("wrong edits").len(), 2_001);
}

#[test]
fn patch_beyond_memory_fails() {
    let lab = EngineLab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"id":{number}}}"#));
    let old: Vec<Value> = (0..2_000).map(entity).collect();
    let new: Vec<Value> = old.iter().rev().cloned().collect();
    let readers = [lab.reader(&old, &WriteOptions::default()), lab.reader(&new, &WriteOptions::default())];
    let engine = lab.engine(1, 100 << 10, Duration::from_secs(60));
    let limits = PatchLimits::default();
    let error = compute(&lab, &engine, [&readers[0], &readers[1]], limits).expect_err("the memory is too small");
    assert!(matches!(error, QueryError::TooMuchMemory { .. }), "{error:?}");
    assert_eq!(engine.reserved_memory_bytes(), 0);
    // Smaller regions need less memory.
    let limits = PatchLimits { max_region_entities: 200 };
    check_patch(&lab, [&readers[0], &readers[1]], [&old, &new], limits).expect("wrong patch");
    compute(&lab, &engine, [&readers[0], &readers[1]], limits).expect("failed to compute patch");
    assert_eq!(engine.reserved_memory_bytes(), 0);
}

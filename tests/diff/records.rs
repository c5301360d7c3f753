//! Diffs compared with the naive reference: the records are the same for any two versions, regardless of row groups,
//! indexed columns and candidate limits. Also pages of diffs, and their memory and time limits.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use strata_diff::{self as diff, ChangeList, DiffChange, DiffLimits, DiffPage, change_records};
use strata_format::cache::PartCache;
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_query::{QueryEngine, QueryError};
use strata_reference::Value;
use strata_reference::diff::{self as reference, Bounds};
use strata_testing::diffs::{page, parsed, plan};
use strata_testing::engines::EngineLab;
use strata_testing::reads::cases;
use strata_testing::versions::{all_shredded, always_beside, edited, nothing_shredded};

// ---- similar versions ----

#[test]
fn diff_of_random_versions_matches_reference() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let bounds = (0..12_u64, 1..4_u64);
    let ways = (0..4_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(300), ..PropertyConfig::default() });
    let result =
        runner.run(&(plan(), vec(page(), 0..3), bounds, ways), |(plan, pages, bounds, (rows, shredded_columns))| {
            let options = WriteOptions {
                worker_threads: 1,
                max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
                shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()]
                    [shredded_columns],
                ..WriteOptions::default()
            };
            let v2 = plan.v2();
            let readers = [lab.reader(&plan.v1, &options), lab.reader(&v2, &options)];
            let small = DiffLimits { max_candidate_pairs: bounds.0, max_value_holders: bounds.1 };
            let [one, other] = readers.clone();
            for bounds in [DiffLimits::default(), small] {
                check_diff(&lab, &readers, &plan.v1, &v2, bounds, &pages)?;
                check_diff(&lab, &[other.clone(), one.clone()], &v2, &plan.v1, bounds, &pages)?;
            }
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Shared rows are excluded from the matching, which must not change the result even if other entities are equal to
/// them.
#[test]
fn diff_of_edited_list_matches_full_rewrite() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let edit = (any::<Index>(), proptest::option::weighted(0.6, any::<Index>()), any::<bool>());
    let ways = (0..4_usize, 0..3_usize, 0..3_u32);
    let rounds = vec(vec(edit, 1..4), 2);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(200), ..PropertyConfig::default() });
    let edits_with_base = std::cell::Cell::new(0);
    let result = runner.run(&(plan(), rounds, vec(page(), 0..2), ways), |(plan, rounds, pages, ways)| {
        let (rows, shredded_columns, gap) = ways;
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()]
                [shredded_columns],
            ..WriteOptions::default()
        };
        // Inserts copies of existing entities, so that some are equal to entities that stay.
        let pool = [&plan.v1[..], &plan.v2()].concat();
        let mut file = lab.write(&plan.v1, &options);
        let mut lists = vec![(file.clone(), plan.v1.clone())];
        for edits in rounds {
            let list = &lists.last().expect("missing first list").1;
            let mut slots = EditScript::new();
            for (place, entity, inserts) in edits {
                let entity = entity.filter(|_| !pool.is_empty()).map(|entity| Bytes::from(entity.get(&pool).write()));
                match entity {
                    Some(entity) if inserts || list.is_empty() => {
                        let slot: &mut PositionEdit = slots.entry(place.index(list.len() + 1) as u64).or_default();
                        slot.inserts.push(entity);
                    }
                    entity if !list.is_empty() => {
                        let slot: &mut PositionEdit = slots.entry(place.index(list.len()) as u64).or_default();
                        slot.change.get_or_insert(entity);
                    }
                    _ => {}
                }
            }
            let texts: Vec<String> = list.iter().map(Value::write).collect();
            let list: Vec<Value> = edited(&texts, &slots)
                .iter()
                .map(|text| Value::parse_entity(text).expect("failed to parse entity"))
                .collect();
            let made =
                lab.bench.edit(&lab.store, &file, &slots, (&options, &always_beside(gap))).expect("failed to edit");
            edits_with_base.set(edits_with_base.get() + usize::from(made.is_some()));
            file = made.unwrap_or_else(|| lab.write(&list, &options));
            lists.push((file.clone(), list));
        }
        let cache = PartCache::new(1 << 30);
        for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let open = |list: usize| {
                let (path, written) = &lists[list].0;
                lab.open(path, written, &cache)
            };
            let bounds = DiffLimits::default();
            check_diff(&lab, &[open(one), open(other)], &lists[one].1, &lists[other].1, bounds, &pages)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(edits_with_base.get() > 40, "{}", edits_with_base.get());
}

/// For an edited alternate, `_source` is read only for the rows that it does not share with its version.
#[test]
fn shared_rows_are_not_matched() {
    let lab = EngineLab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"id":{number},"text":"the same number {number}"}}"#));
    let list: Vec<Value> = (0..500).map(entity).collect();
    let options = WriteOptions { max_row_group_rows: 10, ..WriteOptions::default() };
    let base = lab.write(&list, &options);
    let slots = EditScript::from([(77, PositionEdit { inserts: Vec::new(), change: Some(None) })]);
    let made = lab.bench.edit(&lab.store, &base, &slots, (&options, &always_beside(0)));
    let made = made.expect("failed to edit").expect("missing edit plan");
    let metrics = Arc::new(ReaderMetrics::default());
    let readers =
        [&base, &made].map(|(path, written)| lab.open(path, written, &PartCache::new(0)).with_metrics(metrics.clone()));
    let diff = run_diff(&lab, &lab.engines[1], &readers, DiffLimits::default()).expect("failed to compare");
    assert_eq!((diff.subtracted_count(), diff.added_count(), diff.modified_count()), (1, 0, 0));
    let columns = metrics.columns.load();
    let documents = metrics.documents.load();
    // The hashes of the version.
    assert!(columns.misses <= 60, "{columns:?}");
    assert_eq!(documents.misses + documents.hits, 0, "documents were read although no entity has a source");
}

/// Many pairs with the same similarity, and many different similarities: more candidates than an entity stores.
#[test]
fn diff_of_many_candidates_matches_reference() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let entity = |seed: usize, size: usize, values: usize| {
        let mut members = Vec::new();
        for (place, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let number = seed.wrapping_mul(0x9e37_79b9).wrapping_add(place * 0x85eb_ca6b) >> 7;
            if number % 7 < size {
                members.push((name.to_owned(), Value::Number((number / 7 % values).to_string())));
            }
        }
        Value::Object(members)
    };
    for count in [9, 40] {
        for (size, values) in [(7, 1), (7, 2), (7, 5), (5, 2), (4, 1), (5, 30), (3, 3)] {
            let version = |salt: usize| -> Vec<Value> {
                (0..count).map(|number| entity(number * 31 + salt, size, values)).collect()
            };
            let v1 = version(1);
            let v2 = version(500);
            let options = WriteOptions { max_row_group_rows: 17, ..WriteOptions::default() };
            let readers = [lab.reader(&v1, &options), lab.reader(&v2, &options)];
            for (candidate_pairs, value_holders) in [(10_000_000, 100), (100, 5), (0, 1), (700, 10), (2_000, 30)] {
                let bounds = DiffLimits { max_candidate_pairs: candidate_pairs, max_value_holders: value_holders };
                check_diff(&lab, &readers, &v1, &v2, bounds, &[]).unwrap_or_else(|error| {
                    panic!("{count} entities, {size}, {values}, {bounds:?}: {error}");
                });
            }
        }
    }
}

// ---- examples ----

/// Checks the records of two versions, which are specified as lines.
#[track_caller]
fn check(v1: &str, v2: &str, expected: &[&str]) {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let [v1, v2] = [v1, v2]
        .map(|text| -> Vec<Value> { text.lines().map(|line| Value::parse_entity(line.trim()).expect(line)).collect() });
    let readers = [lab.reader(&v1, &WriteOptions::default()), lab.reader(&v2, &WriteOptions::default())];
    let diff = run_diff(&lab, &lab.engines[0], &readers, DiffLimits::default()).expect("failed to compare");
    assert_eq!(records(&lab, &readers, &diff, &DiffPage::default()), expected);
    check_diff(&lab, &readers, &v1, &v2, DiffLimits::default(), &[]).expect("result differs from reference");
}

#[test]
fn record_contains_stored_bytes() {
    check(
        r#"{"_source":"http://a/1","id":1,"price":1.50,"gone":null,"same":1.0,"a":[]}
           {"_source":"http://a/2","id":2}
           {"id":3,"no":"source"}"#,
        r#"{"id":4}
           {"price":15e-1,"new":[1.0],"same":1,"a":[],"_source":"http://a/1","id":7}
           {"_source":"http://a/2","id":2.0}"#,
        &[
            concat!(
                r#"{"id":"m0-1","change_type":"modified","source":"http://a/1","#,
                r#""v1":{"_source":"http://a/1","id":1,"price":1.50,"gone":null,"same":1.0,"a":[]},"#,
                r#""v2":{"price":15e-1,"new":[1.0],"same":1,"a":[],"_source":"http://a/1","id":7},"#,
                r#""field_diffs":[{"field":"id","v1":1,"v2":7},{"field":"gone","v1":null,"v2":null},"#,
                r#"{"field":"new","v1":null,"v2":[1.0]}]}"#
            ),
            concat!(
                r#"{"id":"s2","change_type":"subtracted","source":"","#,
                r#""v1":{"id":3,"no":"source"},"v2":null,"field_diffs":[]}"#
            ),
            r#"{"id":"a0","change_type":"added","source":"","v1":null,"v2":{"id":4},"field_diffs":[]}"#,
        ],
    );
}

#[test]
fn source_of_other_type_is_json_text() {
    let record = |id: &str, source: &str, entity: &str| {
        format!(r#"{{"id":"{id}","change_type":"added","source":{source},"v1":null,"v2":{entity},"field_diffs":[]}}"#)
    };
    let entities = [
        (r#"{"_source":null}"#, r#""""#),
        (r#"{"_source":1e2}"#, r#""1e2""#),
        (r#"{"_source":false}"#, r#""false""#),
        (r#"{"_source":{"u":"\""}}"#, r#""{\"u\":\"\\\"\"}""#),
        (r#"{"_source":"\n\"é"}"#, r#""\n\"é""#),
    ];
    let lines: Vec<&str> = entities.iter().map(|(entity, _)| *entity).collect();
    let expected: Vec<String> = entities
        .iter()
        .enumerate()
        .map(|(place, (entity, source))| record(&format!("a{place}"), source, entity))
        .collect();
    check("", &lines.join("\n"), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn pair_matches_from_minimum_similarity() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    // Ten fields with the same weight, of which `equal` are equal in the only pair. Three tenths do not sum to exactly
    // 0.3.
    for (equal, expected) in [(2, (0, 1, 1)), (3, (1, 0, 0)), (4, (1, 0, 0))] {
        let version = |salt: usize| {
            let field = |place: usize| {
                let value = if place < equal { 0 } else { salt };
                (format!("f{place}"), Value::Number(value.to_string()))
            };
            vec![Value::Object((0..10).map(field).collect())]
        };
        // Entities of another source give every field as many values as entities, minus one half.
        let others = |salt: usize| {
            let field = |place: usize| {
                let value = if place < equal { salt } else { 1 };
                (format!("f{place}"), Value::Number(value.to_string()))
            };
            let mut members: Vec<_> = (0..10).map(field).collect();
            members.push(("_source".to_owned(), Value::String(salt.to_string())));
            Value::Object(members)
        };
        let mut v1 = version(1);
        let mut v2 = version(2);
        v1.push(others(8));
        v2.push(others(9));
        let options = WriteOptions::default();
        let readers = [lab.reader(&v1, &options), lab.reader(&v2, &options)];
        check_diff(&lab, &readers, &v1, &v2, DiffLimits::default(), &[]).expect("result differs from reference");
        let diff = run_diff(&lab, &lab.engines[0], &readers, DiffLimits::default()).expect("failed to compare");
        let modified = diff.changes(&DiffPage::default()).any(|change| change == DiffChange::Modified { v1: 0, v2: 0 });
        assert_eq!(modified, expected.0 == 1, "{equal} equal fields: {diff:?}");
    }
}

#[test]
fn version_equals_itself() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let entities: Vec<Value> =
        (0..40).map(|number| parsed(&format!(r#"{{"n":{},"_source":"x"}}"#, number % 7))).collect();
    let reader = lab.reader(&entities, &WriteOptions { max_row_group_rows: 9, ..WriteOptions::default() });
    let diff =
        run_diff(&lab, &lab.engines[1], &[reader.clone(), reader], DiffLimits::default()).expect("failed to compare");
    assert_eq!(diff.change_count(None), 0);
    assert_eq!((diff.total_v1, diff.total_v2), (40, 40));
}

#[test]
fn long_page_has_ordered_records() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let version = |salt: usize| -> Vec<Value> {
        (0..3_000)
            .map(|number| parsed(&format!(r#"{{"id":{number},"salt":{salt},"text":"{}"}}"#, "x".repeat(900))))
            .collect()
    };
    let readers = [1, 2]
        .map(|salt| lab.reader(&version(salt), &WriteOptions { max_row_group_rows: 700, ..WriteOptions::default() }));
    let diff = run_diff(&lab, &lab.engines[1], &readers, DiffLimits::default()).expect("failed to compare");
    assert_eq!((diff.modified_count(), diff.change_count(None)), (3_000, 3_000));
    let records = records(&lab, &readers, &diff, &DiffPage { offset: 1_500, ..DiffPage::default() });
    assert_eq!(records.len(), 1_500);
    for (place, record) in records.iter().enumerate() {
        let place = place + 1_500;
        assert!(record.starts_with(&format!(r#"{{"id":"m{place}-{place}","#)), "{}", &record[..60]);
        assert!(record.ends_with(r#""field_diffs":[{"field":"salt","v1":1,"v2":2}]}"#));
    }
}

// ---- limits ----

/// Returns two versions with `entities` entities of one source, all of them modified.
fn modified_versions(lab: &EngineLab, entities: usize) -> [VersionReader; 2] {
    [1, 2].map(|salt| {
        let version: Vec<Value> = (0..entities)
            .map(|number| {
                let text = format!(
                    r#"{{"id":"{number}","salt":{salt},"a":{},"b":{},"c":"{}","same":true}}"#,
                    number * 3 + salt,
                    number * 5,
                    number / 70
                );
                parsed(&text)
            })
            .collect();
        lab.reader(&version, &WriteOptions { worker_threads: 2, max_row_group_rows: 2_000, ..WriteOptions::default() })
    })
}

#[test]
fn spilled_diff_has_same_result() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let readers = [1, 2].map(|salt| {
        let entity = |number: usize| {
            let changed = if number % 1_000 == 7 { salt } else { 0 };
            parsed(&format!(
                r#"{{"id":"{number}","a":{},"b":{},"c":"{}","d":{changed},"e":{number}.5}}"#,
                number * 3,
                number * 5,
                number / 70
            ))
        };
        let version: Vec<Value> = (0..20_000).map(entity).collect();
        lab.reader(&version, &WriteOptions { worker_threads: 2, max_row_group_rows: 500, ..WriteOptions::default() })
    });
    // The keys of 40,000 entities take 1.8 MB, and the values of 100,000 fields 1.6 MB.
    for memory_bytes in [1_500 << 10, 1 << 30] {
        let engine = lab.engine(2, memory_bytes, Duration::from_secs(600));
        let diff = run_diff(&lab, &engine, &readers, DiffLimits::default()).expect("failed to compare");
        let found: Vec<DiffChange> = diff.changes(&DiffPage::default()).collect();
        let expected = (0..20).map(|number| number * 1_000 + 7).map(|v1| DiffChange::Modified { v1, v2: v1 });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{memory_bytes} bytes");
    }
}

#[test]
fn diff_beyond_memory_limit_fails_and_frees_memory() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let readers = modified_versions(&lab, 8_000);
    let small = modified_versions(&lab, 10);
    let mut refused = 0;
    for kibibytes in (0..).map(|step| 256_usize << step) {
        let engine = lab.engine(2, kibibytes << 10, Duration::from_secs(600));
        match run_diff(&lab, &engine, &readers, DiffLimits::default()) {
            // No other query uses memory.
            Err(QueryError::TooMuchMemory { .. }) => refused += 1,
            Ok(diff) => {
                let changes: Vec<DiffChange> = diff.changes(&DiffPage::default()).collect();
                let expected = (0..8_000).map(|number| DiffChange::Modified { v1: number, v2: number });
                assert!(changes == expected.collect::<Vec<_>>());
                break;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            run_diff(&lab, &engine, &small, DiffLimits::default())
                .expect("failed to compare small versions")
                .modified_count(),
            10
        );
    }
    assert!((1..9).contains(&refused), "{refused} diffs failed");
}

#[test]
fn diff_is_reserved_until_drop_or_release() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let readers = modified_versions(&lab, 3_000);
    let engine = &lab.engines[1];
    let diff = run_diff(&lab, engine, &readers, DiffLimits::default()).expect("failed to compare");
    assert_eq!((diff.memory_bytes(), engine.reserved_memory_bytes()), (48_000, 48_000));
    drop(diff);
    assert_eq!(engine.reserved_memory_bytes(), 0);
    let diff =
        run_diff(&lab, engine, &readers, DiffLimits::default()).expect("failed to compare").without_reservations();
    assert_eq!((diff.memory_bytes(), diff.modified_count(), engine.reserved_memory_bytes()), (48_000, 3_000, 0));
}

#[test]
fn slow_diff_times_out() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let readers = modified_versions(&lab, 3_000);
    for timeout in [Duration::ZERO, Duration::from_millis(5)] {
        match run_diff(&lab, &lab.engine(2, 1 << 30, timeout), &readers, DiffLimits::default()) {
            Err(QueryError::Timeout { seconds: 0 }) => {}
            other => panic!("{timeout:?} gives {other:?}"),
        }
    }
}

#[test]
fn dropped_diff_is_cancelled() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    // All pairs are candidates: far more work than a test has time for.
    let version = |salt: usize| -> Vec<Value> {
        (0..6_000).map(|number| parsed(&format!(r#"{{"id":{},"salt":{salt},"same":1}}"#, number * 2 + salt))).collect()
    };
    let readers = [0, 1].map(|salt| lab.reader(&version(salt), &WriteOptions::default()));
    let engine = lab.engine(1, 1 << 30, Duration::from_secs(3_600));
    let bounds = DiffLimits { max_candidate_pairs: u64::MAX, ..DiffLimits::default() };
    lab.bench.runtime.block_on(async {
        let mut work = Box::pin(diff::compare(&engine, readers[0].clone(), readers[1].clone(), bounds));
        for _ in 0..200 {
            assert!(futures::poll!(&mut work).is_pending());
            // Other tasks can use the only thread of the engine at the same time.
            engine.spawn(async {}).await.expect("failed to run");
        }
        drop(work);
        engine.spawn(async {}).await.expect("failed to run");
    });
}

#[test]
fn missing_version_file_is_storage_error() {
    let lab = EngineLab::with_timeout(Duration::from_secs(600));
    let entities = vec![parsed(r#"{"a":1}"#)];
    let other = lab.reader(&[parsed(r#"{"a":1,"b":2}"#)], &WriteOptions::default());
    let reader = lab.gone(&entities, &WriteOptions::default());
    for readers in [[reader.clone(), other.clone()], [other, reader]] {
        match run_diff(&lab, &lab.engines[0], &readers, DiffLimits::default()) {
            Err(QueryError::Storage(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

// ---- helpers ----

fn run_diff(
    lab: &EngineLab,
    engine: &QueryEngine,
    readers: &[VersionReader; 2],
    bounds: DiffLimits,
) -> Result<ChangeList, QueryError> {
    lab.bench.runtime.block_on(diff::compare(engine, readers[0].clone(), readers[1].clone(), bounds))
}

/// Returns the records of a page.
fn records(lab: &EngineLab, readers: &[VersionReader; 2], diff: &ChangeList, page: &DiffPage) -> Vec<String> {
    let changes: Vec<DiffChange> = diff.changes(page).collect();
    assert_eq!(changes.len() as u64, diff.page_change_count(page));
    let mut records = Vec::new();
    let each = |record: &[u8]| {
        records.push(String::from_utf8(record.to_vec()).expect("invalid UTF-8"));
        ControlFlow::Continue(())
    };
    lab.bench.runtime.block_on(change_records::for_each_record(readers, &changes, each)).expect("missing records");
    records
}

/// Checks that both engines return the result of the reference.
fn check_diff(
    lab: &EngineLab,
    readers: &[VersionReader; 2],
    v1: &[Value],
    v2: &[Value],
    bounds: DiffLimits,
    pages: &[DiffPage],
) -> Result<(), TestCaseError> {
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let expected = reference::records(
        v1,
        v2,
        Bounds {
            candidate_pairs: to_usize(bounds.max_candidate_pairs),
            value_holders: to_usize(bounds.max_value_holders),
        },
    );
    for engine in &lab.engines {
        let diff = match run_diff(lab, engine, readers, bounds) {
            Ok(diff) => diff,
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let count = |name: &str| expected.iter().filter(|(change_type, _)| *change_type == name).count() as u64;
        prop_assert_eq!(
            (diff.added_count(), diff.subtracted_count(), diff.modified_count(), diff.total_v1, diff.total_v2),
            (count("added"), count("subtracted"), count("modified"), v1.len() as u64, v2.len() as u64),
            "{:?}",
            bounds
        );
        for page in [&DiffPage::default()].into_iter().chain(pages) {
            let wanted = expected
                .iter()
                .filter(|(name, _)| page.change_type.is_none_or(|change_type| change_type.name() == *name))
                .skip(to_usize(page.offset))
                .take(page.limit.map_or(usize::MAX, to_usize));
            let wanted: Vec<String> = wanted.map(|(_, record)| record.clone()).collect();
            prop_assert_eq!(records(lab, readers, &diff, page), wanted, "{:?} {:?}", page, bounds);
        }
    }
    Ok(())
}

//! The diff of two versions against the naive reference: the same records for any two versions, however they are cut
//! into row groups, whichever paths have a shredded column, with any bounds on candidates; pages of them; and the
//! bounds that diffs keep.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use strata_diff::{self as diff, Change, Diff, DiffBounds, DiffPage, records};
use strata_format::cache::PartCache;
use strata_format::editing::{Slot, Slots};
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions};
use strata_query::{Engine, QueryError};
use strata_reference::Value;
use strata_reference::diff::{self as reference, Bounds};
use strata_testing::diffs::{page, parsed, plan};
use strata_testing::engines::Lab;
use strata_testing::reads::cases;
use strata_testing::versions::{all_shredded, always_beside, edited, nothing_shredded};

// ---- two versions that are much alike ----

#[test]
fn any_two_versions_differ_as_the_reference_says() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let bounds = (0..12_u64, 1..4_u64);
    let ways = (0..4_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(300), ..PropertyConfig::default() });
    let result =
        runner.run(&(plan(), vec(page(), 0..3), bounds, ways), |(plan, pages, bounds, (rows, shredded_columns))| {
            let options = WriteOptions {
                threads: 1,
                row_group_rows: [1, 3, 7, ROW_GROUP_ROWS][rows],
                shredding: [WriteOptions::default().shredding, all_shredded(), nothing_shredded()][shredded_columns],
                ..WriteOptions::default()
            };
            let v2 = plan.v2();
            let readers = [lab.reader(&plan.v1, &options), lab.reader(&v2, &options)];
            let small = DiffBounds { candidate_pairs: bounds.0, value_holders: bounds.1 };
            let [one, other] = readers.clone();
            for bounds in [DiffBounds::default(), small] {
                check_diff(&lab, &readers, &plan.v1, &v2, bounds, &pages)?;
                check_diff(&lab, &[other.clone(), one.clone()], &v2, &plan.v1, bounds, &pages)?;
            }
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// What two lists share is not matched, and makes no difference: not where others are equal to it, either.
#[test]
fn an_edited_list_differs_from_its_version_as_one_written_whole() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let edit = (any::<Index>(), proptest::option::weighted(0.6, any::<Index>()), any::<bool>());
    let ways = (0..4_usize, 0..3_usize, 0..3_u32);
    let rounds = vec(vec(edit, 1..4), 2);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(200), ..PropertyConfig::default() });
    let beside = std::cell::Cell::new(0);
    let result = runner.run(&(plan(), rounds, vec(page(), 0..2), ways), |(plan, rounds, pages, ways)| {
        let (rows, shredded_columns, gap) = ways;
        let options = WriteOptions {
            threads: 1,
            row_group_rows: [1, 3, 7, ROW_GROUP_ROWS][rows],
            shredding: [WriteOptions::default().shredding, all_shredded(), nothing_shredded()][shredded_columns],
            ..WriteOptions::default()
        };
        // Entities of both lists come, so that some are equal to others that stay.
        let pool = [&plan.v1[..], &plan.v2()].concat();
        let mut file = lab.write(&plan.v1, &options);
        let mut lists = vec![(file.clone(), plan.v1.clone())];
        for edits in rounds {
            let list = &lists.last().expect("the first").1;
            let mut slots = Slots::new();
            for (place, entity, inserts) in edits {
                let entity = entity.filter(|_| !pool.is_empty()).map(|entity| Bytes::from(entity.get(&pool).write()));
                match entity {
                    Some(entity) if inserts || list.is_empty() => {
                        let slot: &mut Slot = slots.entry(place.index(list.len() + 1) as u64).or_default();
                        slot.inserts.push(entity);
                    }
                    entity if !list.is_empty() => {
                        let slot: &mut Slot = slots.entry(place.index(list.len()) as u64).or_default();
                        slot.change.get_or_insert(entity);
                    }
                    _ => {}
                }
            }
            let texts: Vec<String> = list.iter().map(Value::write).collect();
            let list: Vec<Value> =
                edited(&texts, &slots).iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
            let made = lab.bench.edit(&lab.store, &file, &slots, (&options, &always_beside(gap))).expect("edited");
            beside.set(beside.get() + usize::from(made.is_some()));
            file = made.unwrap_or_else(|| lab.write(&list, &options));
            lists.push((file.clone(), list));
        }
        let cache = PartCache::new(1 << 30);
        for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let open = |list: usize| {
                let (path, written) = &lists[list].0;
                lab.open(path, written, &cache)
            };
            let bounds = DiffBounds::default();
            check_diff(&lab, &[open(one), open(other)], &lists[one].1, &lists[other].1, bounds, &pages)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(beside.get() > 40, "{}", beside.get());
}

/// Of an alternate that was edited, only what it does not share with its version is looked at for its `_source`.
#[test]
fn shared_rows_are_not_matched() {
    let lab = Lab::new();
    let entity = |number: usize| parsed(&format!(r#"{{"id":{number},"text":"the same number {number}"}}"#));
    let list: Vec<Value> = (0..500).map(entity).collect();
    let options = WriteOptions { row_group_rows: 10, ..WriteOptions::default() };
    let base = lab.write(&list, &options);
    let slots = Slots::from([(77, Slot { inserts: Vec::new(), change: Some(None) })]);
    let made = lab.bench.edit(&lab.store, &base, &slots, (&options, &always_beside(0)));
    let made = made.expect("edited").expect("beside");
    let metrics = Arc::new(ReaderMetrics::default());
    let readers =
        [&base, &made].map(|(path, written)| lab.open(path, written, &PartCache::new(0)).observed(metrics.clone()));
    let diff = compared(&lab, &lab.engines[1], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!((diff.subtracted(), diff.added(), diff.modified()), (1, 0, 0));
    let (columns, documents) = (metrics.columns.get(), metrics.documents.get());
    // The hashes of the version.
    assert!(columns.misses <= 60, "{columns:?}");
    assert_eq!(documents.misses + documents.hits, 0, "no entity has a source, so none is read");
}

/// Many pairs of one similarity, and many similarities: more than an entity keeps candidates.
#[test]
fn crowded_sources_differ_as_the_reference_says() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
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
            let (v1, v2) = (version(1), version(500));
            let options = WriteOptions { row_group_rows: 17, ..WriteOptions::default() };
            let readers = [lab.reader(&v1, &options), lab.reader(&v2, &options)];
            for (candidate_pairs, value_holders) in [(10_000_000, 100), (100, 5), (0, 1), (700, 10), (2_000, 30)] {
                let bounds = DiffBounds { candidate_pairs, value_holders };
                check_diff(&lab, &readers, &v1, &v2, bounds, &[]).unwrap_or_else(|error| {
                    panic!("{count} entities, {size}, {values}, {bounds:?}: {error}");
                });
            }
        }
    }
}

// ---- examples ----

/// The records of two versions, given as lines.
#[track_caller]
fn check(v1: &str, v2: &str, expected: &[&str]) {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let [v1, v2] = [v1, v2]
        .map(|text| -> Vec<Value> { text.lines().map(|line| Value::parse_entity(line.trim()).expect(line)).collect() });
    let readers = [lab.reader(&v1, &WriteOptions::default()), lab.reader(&v2, &WriteOptions::default())];
    let diff = compared(&lab, &lab.engines[0], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!(records(&lab, &readers, &diff, &DiffPage::default()), expected);
    check_diff(&lab, &readers, &v1, &v2, DiffBounds::default(), &[]).expect("as the reference says");
}

#[test]
fn records_hold_entities_and_values_as_they_are_stored() {
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
fn a_source_that_is_no_string_is_told_by_its_text() {
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
fn a_similarity_of_three_tenths_is_enough_and_less_is_not() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    // Ten fields of one weight, of which `equal` are equal in the only pair: 3 of 10 do not sum to 0.3 exactly.
    for (equal, expected) in [(2, (0, 1, 1)), (3, (1, 0, 0)), (4, (1, 0, 0))] {
        let version = |salt: usize| {
            let field = |place: usize| {
                let value = if place < equal { 0 } else { salt };
                (format!("f{place}"), Value::Number(value.to_string()))
            };
            vec![Value::Object((0..10).map(field).collect())]
        };
        // Entities of another source bring every field to as many values as entities have it, less one half.
        let others = |salt: usize| {
            let field = |place: usize| {
                let value = if place < equal { salt } else { 1 };
                (format!("f{place}"), Value::Number(value.to_string()))
            };
            let mut members: Vec<_> = (0..10).map(field).collect();
            members.push(("_source".to_owned(), Value::String(salt.to_string())));
            Value::Object(members)
        };
        let (mut v1, mut v2) = (version(1), version(2));
        v1.push(others(8));
        v2.push(others(9));
        let options = WriteOptions::default();
        let readers = [lab.reader(&v1, &options), lab.reader(&v2, &options)];
        check_diff(&lab, &readers, &v1, &v2, DiffBounds::default(), &[]).expect("as the reference says");
        let diff = compared(&lab, &lab.engines[0], &readers, DiffBounds::default()).expect("a diff");
        let modified = diff.changes(&DiffPage::default()).any(|change| change == Change::Modified { v1: 0, v2: 0 });
        assert_eq!(modified, expected.0 == 1, "{equal} equal fields: {diff:?}");
    }
}

#[test]
fn a_version_does_not_differ_from_itself() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let entities: Vec<Value> =
        (0..40).map(|number| parsed(&format!(r#"{{"n":{},"_source":"x"}}"#, number % 7))).collect();
    let reader = lab.reader(&entities, &WriteOptions { row_group_rows: 9, ..WriteOptions::default() });
    let diff = compared(&lab, &lab.engines[1], &[reader.clone(), reader], DiffBounds::default()).expect("a diff");
    assert_eq!(diff.count(None), 0);
    assert_eq!((diff.total_v1, diff.total_v2), (40, 40));
}

#[test]
fn a_long_page_has_its_records_in_order() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let version = |salt: usize| -> Vec<Value> {
        (0..3_000)
            .map(|number| parsed(&format!(r#"{{"id":{number},"salt":{salt},"text":"{}"}}"#, "x".repeat(900))))
            .collect()
    };
    let readers =
        [1, 2].map(|salt| lab.reader(&version(salt), &WriteOptions { row_group_rows: 700, ..WriteOptions::default() }));
    let diff = compared(&lab, &lab.engines[1], &readers, DiffBounds::default()).expect("a diff");
    assert_eq!((diff.modified(), diff.count(None)), (3_000, 3_000));
    let records = records(&lab, &readers, &diff, &DiffPage { offset: 1_500, ..DiffPage::default() });
    assert_eq!(records.len(), 1_500);
    for (place, record) in records.iter().enumerate() {
        let place = place + 1_500;
        assert!(record.starts_with(&format!(r#"{{"id":"m{place}-{place}","#)), "{}", &record[..60]);
        assert!(record.ends_with(r#""field_diffs":[{"field":"salt","v1":1,"v2":2}]}"#));
    }
}

// ---- bounds ----

/// Versions of so many entities of one source, all of them changed.
fn changed(lab: &Lab, entities: usize) -> [VersionReader; 2] {
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
        lab.reader(&version, &WriteOptions { threads: 2, row_group_rows: 2_000, ..WriteOptions::default() })
    })
}

#[test]
fn a_diff_finds_the_same_by_way_of_the_disk() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
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
        lab.reader(&version, &WriteOptions { threads: 2, row_group_rows: 500, ..WriteOptions::default() })
    });
    // The keys of 40,000 entities take 1.8 MB, and the values of 100,000 fields 1.6 MB.
    for memory_bytes in [1_400 << 10, 1 << 30] {
        let engine = lab.engine(2, memory_bytes, Duration::from_secs(600));
        let diff = compared(&lab, &engine, &readers, DiffBounds::default()).expect("a diff");
        let found: Vec<Change> = diff.changes(&DiffPage::default()).collect();
        let expected = (0..20).map(|number| number * 1_000 + 7).map(|v1| Change::Modified { v1, v2: v1 });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{memory_bytes} bytes");
    }
}

#[test]
fn a_diff_that_does_not_fit_is_refused_and_gives_its_memory_back() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let readers = changed(&lab, 8_000);
    let small = changed(&lab, 10);
    let mut refused = 0;
    for kibibytes in (0..).map(|step| 256_usize << step) {
        let engine = lab.engine(2, kibibytes << 10, Duration::from_secs(600));
        match compared(&lab, &engine, &readers, DiffBounds::default()) {
            // Nobody else held any.
            Err(QueryError::TooMuchMemory { .. }) => refused += 1,
            Ok(diff) => {
                let changes: Vec<Change> = diff.changes(&DiffPage::default()).collect();
                let expected = (0..8_000).map(|number| Change::Modified { v1: number, v2: number });
                assert!(changes == expected.collect::<Vec<_>>());
                break;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(compared(&lab, &engine, &small, DiffBounds::default()).expect("it fits").modified(), 10);
    }
    assert!((1..9).contains(&refused), "{refused} refused");
}

#[test]
fn a_diff_is_accounted_until_it_is_dropped_or_kept_by_another() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let readers = changed(&lab, 3_000);
    let engine = &lab.engines[1];
    let diff = compared(&lab, engine, &readers, DiffBounds::default()).expect("a diff");
    assert_eq!((diff.memory_bytes(), engine.memory_bytes()), (48_000, 48_000));
    drop(diff);
    assert_eq!(engine.memory_bytes(), 0);
    let diff = compared(&lab, engine, &readers, DiffBounds::default()).expect("a diff").unaccounted();
    assert_eq!((diff.memory_bytes(), diff.modified(), engine.memory_bytes()), (48_000, 3_000, 0));
}

#[test]
fn a_diff_that_takes_too_long_is_stopped() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let readers = changed(&lab, 3_000);
    for timeout in [Duration::ZERO, Duration::from_millis(5)] {
        match compared(&lab, &lab.engine(2, 1 << 30, timeout), &readers, DiffBounds::default()) {
            Err(QueryError::Timeout { seconds: 0 }) => {}
            other => panic!("{timeout:?} gives {other:?}"),
        }
    }
}

#[test]
fn a_diff_that_nobody_waits_for_is_stopped() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    // All pairs are candidates: far more work than a test has time for.
    let version = |salt: usize| -> Vec<Value> {
        (0..6_000).map(|number| parsed(&format!(r#"{{"id":{},"salt":{salt},"same":1}}"#, number * 2 + salt))).collect()
    };
    let readers = [0, 1].map(|salt| lab.reader(&version(salt), &WriteOptions::default()));
    let engine = lab.engine(1, 1 << 30, Duration::from_secs(3_600));
    let bounds = DiffBounds { candidate_pairs: u64::MAX, ..DiffBounds::default() };
    lab.bench.runtime.block_on(async {
        let mut work = Box::pin(diff::compare(&engine, readers[0].clone(), readers[1].clone(), bounds));
        for _ in 0..200 {
            assert!(futures::poll!(&mut work).is_pending());
            // The only thread of the engine is shared with others meanwhile.
            engine.spawn(async {}).await.expect("run");
        }
        drop(work);
        engine.spawn(async {}).await.expect("run");
    });
}

#[test]
fn a_version_that_is_gone_is_a_storage_error() {
    let lab = Lab::with_timeout(Duration::from_secs(600));
    let entities = vec![parsed(r#"{"a":1}"#)];
    let other = lab.reader(&[parsed(r#"{"a":1,"b":2}"#)], &WriteOptions::default());
    let reader = lab.gone(&entities, &WriteOptions::default());
    for readers in [[reader.clone(), other.clone()], [other, reader]] {
        match compared(&lab, &lab.engines[0], &readers, DiffBounds::default()) {
            Err(QueryError::Storage(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

// ---- what the tests are written with ----

fn compared(lab: &Lab, engine: &Engine, readers: &[VersionReader; 2], bounds: DiffBounds) -> Result<Diff, QueryError> {
    lab.bench.runtime.block_on(diff::compare(engine, readers[0].clone(), readers[1].clone(), bounds))
}

/// The records of a page.
fn records(lab: &Lab, readers: &[VersionReader; 2], diff: &Diff, page: &DiffPage) -> Vec<String> {
    let changes: Vec<Change> = diff.changes(page).collect();
    assert_eq!(changes.len() as u64, diff.page_count(page));
    let mut records = Vec::new();
    let each = |record: &[u8]| {
        records.push(String::from_utf8(record.to_vec()).expect("UTF-8"));
        ControlFlow::Continue(())
    };
    lab.bench.runtime.block_on(records::for_each(readers, &changes, each)).expect("records");
    records
}

/// Both engines find what the reference finds.
fn check_diff(
    lab: &Lab,
    readers: &[VersionReader; 2],
    v1: &[Value],
    v2: &[Value],
    bounds: DiffBounds,
    pages: &[DiffPage],
) -> Result<(), TestCaseError> {
    let most = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let expected = reference::records(
        v1,
        v2,
        Bounds { candidate_pairs: most(bounds.candidate_pairs), value_holders: most(bounds.value_holders) },
    );
    for engine in &lab.engines {
        let diff = match compared(lab, engine, readers, bounds) {
            Ok(diff) => diff,
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let count = |name: &str| expected.iter().filter(|(change_type, _)| *change_type == name).count() as u64;
        prop_assert_eq!(
            (diff.added(), diff.subtracted(), diff.modified(), diff.total_v1, diff.total_v2),
            (count("added"), count("subtracted"), count("modified"), v1.len() as u64, v2.len() as u64),
            "{:?}",
            bounds
        );
        for page in [&DiffPage::default()].into_iter().chain(pages) {
            let wanted = expected
                .iter()
                .filter(|(name, _)| page.change_type.is_none_or(|change_type| change_type.name() == *name))
                .skip(most(page.offset))
                .take(page.limit.map_or(usize::MAX, most));
            let wanted: Vec<String> = wanted.map(|(_, record)| record.clone()).collect();
            prop_assert_eq!(records(lab, readers, &diff, page), wanted, "{:?} {:?}", page, bounds);
        }
    }
    Ok(())
}

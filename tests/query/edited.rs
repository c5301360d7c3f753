//! Edited lists: whatever edits made of a list, and edits of that, reads, profile and checksums are those of the same
//! list written whole.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use strata_format::cache::PartCache;
use strata_format::editing::{self, Slot, Slots};
use strata_format::profile::{NotShredded, NumberRange, PathRecord, StoredProfile, ValueRecord};
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::reader_metrics::{CacheUse, ReaderMetrics};
use strata_format::verify::verify;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions, Written};
use strata_reference::{Value, hostile, number};
use strata_testing::reads::{Lab, alike, cases, entities, no_failure, plan};
use strata_testing::versions::{
    Files, all_shredded, always_beside, edited, nothing_shredded, of, shapes, some_segments, some_shapes,
};
use strata_types::index::IndexSettings;
use strata_types::request::ReadRequest;

/// An edit before it has a list.
#[derive(Clone, Debug)]
enum Edit {
    Set(Value),
    Remove,
    Insert(Vec<Value>),
}

fn edit() -> impl Strategy<Value = (Index, Edit)> {
    let entity = || prop_oneof![3 => alike().boxed(), 1 => hostile::entity().boxed()];
    let edit = prop_oneof![
        3 => entity().prop_map(Edit::Set),
        2 => Just(Edit::Remove),
        2 => vec(entity(), 1..4).prop_map(Edit::Insert),
    ];
    (any::<Index>(), edit)
}

/// Edits of a list of so many entities; of two changes of one entity the first.
fn slots(edits: &[(Index, Edit)], length: usize) -> Slots {
    let document = |entity: &Value| Bytes::from(entity.write());
    let mut slots = Slots::new();
    for (place, edit) in edits {
        let (position, change) = match edit {
            Edit::Insert(entities) => {
                let slot: &mut Slot = slots.entry(place.index(length + 1) as u64).or_default();
                slot.inserts.extend(entities.iter().map(document));
                continue;
            }
            _ if length == 0 => continue,
            Edit::Set(entity) => (place.index(length), Some(document(entity))),
            Edit::Remove => (place.index(length), None),
        };
        slots.entry(position as u64).or_default().change.get_or_insert(change);
    }
    slots
}

fn opened(lab: &Lab, file: &(ObjectPath, Written)) -> VersionReader {
    opened_with(lab, file, 1 << 20)
}

fn opened_with(lab: &Lab, (path, written): &(ObjectPath, Written), cache_bytes: u64) -> VersionReader {
    let cache = PartCache::new(cache_bytes);
    let open = VersionReader::open(lab.store(), path, written.size_bytes, &cache);
    lab.bench.runtime.block_on(open).expect("opened")
}

fn profile(lab: &Lab, reader: &VersionReader) -> StoredProfile {
    lab.bench.runtime.block_on(reader.profile()).expect("read")
}

/// All but what may be an estimate or wider, and which paths have columns: that stays as it was.
fn exact(record: &PathRecord) -> PathRecord {
    let mut record = record.clone();
    (record.shredded, record.why_not_shredded) = (false, None);
    (record.distinct, record.top, record.top_estimated) = (of_none(), Vec::new(), false);
    (record.number_min, record.number_max, record.string_min, record.string_max) = (None, None, None, None);
    record.number_bins = None;
    record
}

fn of_none() -> strata_format::profile::Distinct {
    strata_format::profile::Distinct { count: 0, estimated: false }
}

/// How many values edits of a list bring and take away, at most: each but the last of an entity has a comma behind it.
fn values(slots: &Slots, list: &[String]) -> u64 {
    let of = |document: &[u8]| 1 + document.iter().filter(|byte| **byte == b',').count() as u64;
    let changed = |(position, slot): (&u64, &Slot)| {
        let gone = slot.change.as_ref().map_or(0, |_| of(list[*position as usize].as_bytes()));
        gone + slot.inserts.iter().chain(slot.change.iter().flatten()).map(|document| of(document)).sum::<u64>()
    };
    slots.iter().map(changed).sum()
}

/// The profile of an edited list says what that of the same list written whole says; estimates are no farther off than
/// edits changed values.
fn check_profile(found: &StoredProfile, whole: &StoredProfile, edits: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!((found.entities, found.document_bytes), (whole.entities, whole.document_bytes));
    prop_assert_eq!(found.paths_left_out, whole.paths_left_out);
    let sorted = |profile: &StoredProfile| {
        let mut paths = profile.paths.clone();
        paths.sort_by(|one, other| one.path.cmp(&other.path));
        paths
    };
    let (found, whole) = (sorted(found), sorted(whole));
    let exactly = |paths: &[PathRecord]| paths.iter().map(exact).collect::<Vec<_>>();
    prop_assert_eq!(exactly(&found), exactly(&whole));
    for (found, whole) in found.iter().zip(&whole) {
        check_bounds(found, whole)?;
        check_ranges(found, whole)?;
        match found.distinct.estimated {
            false => prop_assert_eq!(found.distinct, whole.distinct, "{}", found.path),
            true => prop_assert!(found.distinct.count.abs_diff(whole.distinct.count) <= edits, "{}", found.path),
        }
        if !found.top_estimated {
            prop_assert_eq!(&found.top, &whole.top, "{}", found.path);
        }
    }
    Ok(())
}

/// No value is beyond a minimum or maximum, and some value equals it unless it is estimated.
fn check_bounds(found: &PathRecord, whole: &PathRecord) -> Result<(), TestCaseError> {
    // A number that is cut compares with none.
    let by_value = |one: &ValueRecord, other: &ValueRecord| match one.cut || other.cut {
        true => None,
        false => Some(number::compare(&one.value.to_string(), &other.value.to_string())),
    };
    let by_code_point = |one: &ValueRecord, other: &ValueRecord| {
        let [one, other] = [one, other].map(|record| (record.value.as_str().expect("a string"), record.cut));
        // A character that does not fit is greater than one that does.
        Some(match (one, other) {
            ((head, true), (text, _)) if text.len() > head.len() && text.starts_with(head) => Ordering::Greater,
            ((text, _), (head, true)) if text.len() > head.len() && text.starts_with(head) => Ordering::Less,
            _ => one.cmp(&other),
        })
    };
    for (found, whole, compare, outside) in [
        (&found.number_min, &whole.number_min, &by_value as &Compare, Ordering::Less),
        (&found.number_max, &whole.number_max, &by_value, Ordering::Greater),
        (&found.string_min, &whole.string_min, &by_code_point, Ordering::Less),
        (&found.string_max, &whole.string_max, &by_code_point, Ordering::Greater),
    ] {
        prop_assert_eq!(found.is_some(), whole.is_some());
        let Some((found, whole)) = found.as_ref().zip(whole.as_ref()) else { continue };
        let is_right =
            compare(found, whole).is_none_or(|order| order == Ordering::Equal || found.estimated && order == outside);
        prop_assert!(is_right, "{:?} for {:?}", found, whole);
    }
    Ok(())
}

type Compare = dyn Fn(&ValueRecord, &ValueRecord) -> Option<Ordering>;

/// Ranges of numbers may be wider, or be left out, but their counts are exact.
fn check_ranges(found: &PathRecord, whole: &PathRecord) -> Result<(), TestCaseError> {
    let Some(bins) = &found.number_bins else { return Ok(()) };
    let ranges = bins.ranges(32);
    let Some(whole_bins) = &whole.number_bins else {
        prop_assert!(ranges.iter().filter(|range| range.count > 0).count() <= 1, "{:?}", ranges);
        return Ok(());
    };
    let edges = |range: &NumberRange| [&range.from, &range.to].map(|edge| edge.parse::<f64>().expect("a number"));
    let whole_ranges = whole_bins.ranges(32);
    for range in &ranges {
        let [from, to] = edges(range);
        let inside = whole_ranges.iter().filter(|inner| edges(inner)[0] >= from && edges(inner)[1] <= to);
        prop_assert_eq!(inside.map(|inner| inner.count).sum::<u64>(), range.count, "{:?} of {:?}", range, whole_ranges);
    }
    let sum = |ranges: &[NumberRange]| ranges.iter().map(|range| range.count).sum::<u64>();
    prop_assert_eq!(sum(&ranges), sum(&whole_ranges));
    Ok(())
}

/// Documents are at hand once all their pages have been read, in any order, and no more bytes than are asked for.
async fn check_at_hand(reader: &VersionReader, list: &[String]) -> Result<(), TestCaseError> {
    let count = list.len() as u64;
    for row_group in 0..reader.row_groups().len() {
        for page in 0..reader.page_count(row_group) {
            reader.documents(row_group, page).await.expect("a page");
        }
    }
    let backwards: Vec<_> = (0..count).rev().map(|position| position..position + 1).collect();
    let halves = vec![count / 2..count, 0..count / 2];
    let whole = std::iter::once(0..count).collect();
    for stretches in [whole, backwards, halves] {
        let expected: Vec<&str> =
            stretches.iter().flat_map(|stretch| stretch.clone()).map(|position| &*list[position as usize]).collect();
        let bytes: usize = expected.iter().map(|document| document.len()).sum();
        let parts = reader.documents_at_hand(stretches.clone().into_iter(), usize::MAX, false).await.expect("at hand");
        let found: Vec<&str> = parts
            .iter()
            .flat_map(|part| part.stored.iter())
            .map(|bytes| std::str::from_utf8(bytes).expect("text"))
            .collect();
        prop_assert_eq!(found, expected);
        if count > 0 {
            prop_assert!(reader.documents_at_hand(stretches.into_iter(), bytes - 1, false).await.is_none());
        }
    }
    Ok(())
}

#[test]
fn edits_of_edits_read_as_the_list_written_whole() {
    let labs = [Lab::without_cache(1), Lab::with_threads(2), Lab::new(|config| config.query.threads = 2)];
    let rounds = vec((vec(edit(), 1..6), vec(plan(), 2..5)), 1..4);
    let ways = (0..4_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(25), ..PropertyConfig::default() });
    let beside = std::cell::Cell::new(0);
    let result = runner.run(&(entities(), rounds, ways), |(entities, rounds, (rows, bounds, lab, gap))| {
        let options = WriteOptions {
            threads: 1,
            row_group_rows: [1, 3, 7, ROW_GROUP_ROWS][rows],
            shredding: [WriteOptions::default().shredding, all_shredded(), nothing_shredded()][bounds],
            keywords: some_segments(rows + 2 * bounds + rounds.len()),
            shapes: some_shapes(rows + bounds + entities.len()),
            outline_chunks: [usize::MAX, 0][rounds.len() % 2],
            ..WriteOptions::default()
        };
        let lab = &labs[lab];
        let mut list: Vec<String> = entities.iter().map(Value::write).collect();
        let mut file = lab.write(&entities, &options);
        let mut changes = 0;
        for (edits, plans) in &rounds {
            let slots = slots(edits, list.len());
            changes += values(&slots, &list);
            let made = lab.bench.edit(lab.store(), &file, &slots, (&options, &always_beside(gap as u32)));
            list = edited(&list, &slots);
            let values: Vec<Value> = list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect();
            let about = list.join(",");
            let whole = lab.write(&values, &options);
            file = match made.expect("planned and written") {
                Some(made) => {
                    beside.set(beside.get() + 1);
                    made
                }
                // Nothing of it is left in its base.
                None => whole.clone(),
            };
            let reader = opened(lab, &file);
            prop_assert_eq!(reader.entity_count(), list.len() as u64);
            let verified = lab.bench.runtime.block_on(verify(&reader, &mut Unbounded));
            prop_assert_eq!(verified.expect("sound"), file.1.content_sha256.clone());
            lab.bench.runtime.block_on(reader.verify_end()).expect("sound");
            let reader_of_whole = opened(lab, &whole);
            let (found, expected) = (profile(lab, &reader), profile(lab, &reader_of_whole));
            check_profile(&found, &expected, changes)
                .map_err(|error| TestCaseError::fail(format!("{error}\nafter {slots:?}\nover [{about}]")))?;
            let columns = |reader: &VersionReader| {
                let paths = lab.bench.runtime.block_on(reader.paths()).expect("read");
                paths.columns().cloned()
            };
            if let Some(found) = columns(&reader) {
                prop_assert_eq!(Some(found), columns(&reader_of_whole), "columns of [{}]", about);
            }
            lab.bench.runtime.block_on(check_at_hand(&opened_with(lab, &file, 64 << 20), &list))?;
            let version = lab.publish_file(&file);
            for plan in plans {
                lab.check(version, &values, &plan.resolve(&values))?;
            }
            lab.check(version, &values, &ReadRequest::default())?;
        }
        Ok(())
    });
    no_failure(result);
    let followed: usize = labs.iter().map(|lab| lab.bench.followed.load(Relaxed)).sum();
    assert!(beside.get() > 20 && followed > 5, "{} beside their base, {followed} profiles followed", beside.get());
}

/// Scalars that are nearly equal, equal in other spellings, beyond doubles, or alike as far as they are shown.
fn neighbours() -> impl Strategy<Value = Value> {
    const NUMBERS: &[&str] = &[
        "0",
        "-0",
        "0.0",
        "1",
        "1.0",
        "1E0",
        "1e0",
        "10e-1",
        "2",
        "3",
        "-1",
        "0.5",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0",
        "9223372036854775807",
        "9223372036854775808",
        "9223372036854775809",
        "18446744073709551617",
        "-18446744073709551617",
        "1e400",
        "-1e400",
    ];
    let long = |head: usize| {
        // The bytes that are shown end within a character, or just there.
        select(vec!["", "a", "A", "é", "中", "😀", "中文", "ab"])
            .prop_map(move |tail| Value::String(format!("{}{tail}", "p".repeat(head))))
    };
    prop_oneof![
        6 => select(NUMBERS).prop_map(|text| Value::Number(text.to_owned())),
        1 => select(vec![89_usize, 90, 1_001]).prop_map(|length| Value::Number("9".repeat(length))),
        4 => select(vec!["", "a", "A", "b", "B", "é", "\u{ffff}", "\"", "a\n"]).prop_map(|text| Value::String(text.to_owned())),
        3 => prop_oneof![long(31), long(32), long(77), long(78), long(79), long(80)],
        1 => Just(Value::Bool(true)),
        1 => Just(Value::Null),
    ]
}

/// Entities of few paths, one of them below arrays.
fn neighbour_entity() -> impl Strategy<Value = Value> {
    let scalar = || proptest::option::weighted(0.7, neighbours());
    (scalar(), vec(neighbours(), 0..3), scalar()).prop_map(|(one, several, below)| {
        let mut members = Vec::new();
        members.extend(one.map(|one| ("a".to_owned(), one)));
        if !several.is_empty() {
            members.push(("b".to_owned(), Value::Array(several)));
        }
        members.extend(below.map(|below| ("c".to_owned(), Value::Object(vec![("d".to_owned(), below)]))));
        Value::Object(members)
    })
}

/// Edits that take values away and that move entities as they are.
fn neighbour_edit() -> impl Strategy<Value = (Index, Option<Index>, Option<Value>)> {
    (
        any::<Index>(),
        proptest::option::weighted(0.4, any::<Index>()),
        proptest::option::weighted(0.4, neighbour_entity()),
    )
}

/// A minimum or maximum that an edit takes away stays as a bound, marked as estimated. What is not marked is what a
/// list that is written whole tells.
#[test]
fn edited_bounds_contain_every_value() {
    let files = Files::new();
    let rounds = vec(vec(neighbour_edit(), 1..4), 1..4);
    let ways = (0..3_usize, 0..4_usize, 0..3_u32);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(100), ..PropertyConfig::default() });
    let made_beside = std::cell::Cell::new(0);
    let result =
        runner.run(&(vec(neighbour_entity(), 1..20), rounds, ways), |(entities, rounds, (rows, shredded, gap))| {
            let options = WriteOptions {
                row_group_rows: [1, 3, 7][rows],
                shredding: if shredded == 0 { nothing_shredded() } else { all_shredded() },
                outline_chunks: [usize::MAX, 0][shredded % 2],
                ..WriteOptions::default()
            };
            let limits = always_beside(gap);
            let mut list: Vec<String> = entities.iter().map(Value::write).collect();
            let mut file = files.write(&list, &options);
            let mut changes = 0;
            for edits in &rounds {
                let mut slots = Slots::new();
                for (place, to, entity) in edits.iter().filter(|_| !list.is_empty()) {
                    let position = place.index(list.len()) as u64;
                    let entity = entity.as_ref().map(|entity| Bytes::from(entity.write()));
                    let slot: &mut Slot = slots.entry(position).or_default();
                    if slot.change.is_some() {
                        continue;
                    }
                    slot.change = Some(entity);
                    if let Some(to) = to {
                        let moved = Bytes::from(list[position as usize].clone());
                        slots.entry(to.index(list.len() + 1) as u64).or_default().inserts.push(moved);
                    }
                }
                changes += values(&slots, &list);
                let made = files.bench.edit(&files.store, &file, &slots, (&options, &limits)).expect("edited");
                let about = list.join(",");
                list = edited(&list, &slots);
                let whole = files.write(&list, &options);
                made_beside.set(made_beside.get() + usize::from(made.is_some()));
                file = made.unwrap_or_else(|| whole.clone());
                let profile = |file| {
                    let reader = files.open(file);
                    files.bench.runtime.block_on(reader.profile()).expect("read")
                };
                check_profile(&profile(&file), &profile(&whole), changes)
                    .map_err(|error| TestCaseError::fail(format!("{error}\nafter {slots:?}\nover [{about}]")))?;
            }
            Ok(())
        });
    no_failure(result);
    let followed = files.bench.followed.load(Relaxed);
    assert!(followed > made_beside.get() / 2, "{followed} profiles of {} followed", made_beside.get());
}

/// Removing an entity reads what it changes, and not the list. A maximum that it takes away stays as a bound until a
/// value comes that equals it or is greater.
#[test]
fn a_removed_maximum_stays_as_a_bound() {
    let files = Files::new();
    let entity = |number: usize| {
        let price = if number == 1_500 { 1_000_000 } else { number * 37 % 3_001 };
        let url = format!("https://example.org/a/path/that/all/share/{number:06}");
        format!(r#"{{"id":{number},"price":{price},"kind":"k{}","url":"{url}"}}"#, number % 3)
    };
    let list: Vec<String> = (0..3_000).map(entity).collect();
    let base = files.write(&list, &options());
    let metrics = Arc::new(ReaderMetrics::default());
    let reader = files.open(&base).observed(metrics.clone());
    let slots = Slots::from([(1_500, Slot { inserts: Vec::new(), change: Some(None) })]);
    let place = editing::base_of(&reader, base.0.as_ref(), base.1.size_bytes);
    let (limits, index) = (always_beside(0), IndexSettings::default());
    let plan = editing::plan(&reader, place, &slots, &index, &limits, 20);
    let plan = files.bench.runtime.block_on(plan).expect("planned").expect("beside");
    assert!(plan.profile.is_some(), "it follows");
    let looked_up = |counts: CacheUse| counts.hits + counts.misses;
    let (columns, documents) = (looked_up(metrics.columns.get()), looked_up(metrics.documents.get()));
    // The beginning of the list, for the order of its columns.
    assert!(columns == 0 && documents <= 50, "{columns} columns, {documents} of 150 pages of documents");

    let mut file = base;
    for (slots, estimated, price) in [
        (slots, true, 1_000_000),
        (Slots::from([set(7, r#"{"id":7,"price":999999,"kind":"k1"}"#)]), true, 1_000_000),
        (Slots::from([set(7, r#"{"id":7,"price":1000000,"kind":"k1"}"#)]), false, 1_000_000),
        (Slots::from([set(7, r#"{"id":7,"price":1000001,"kind":"k1"}"#)]), false, 1_000_001),
    ] {
        let edit = files.bench.edit(&files.store, &file, &slots, (&options(), &always_beside(0)));
        file = edit.expect("edited").expect("beside");
        let profile = files.bench.runtime.block_on(files.open(&file).profile()).expect("read");
        let max = of(&profile, "price").number_max.clone().expect("a number");
        assert_eq!((max.value.to_string(), max.estimated), (price.to_string(), estimated));
        let json = serde_json::to_string(&max).expect("JSON");
        assert_eq!(json.contains("estimated"), estimated, "{json}");
        // Others like them are there.
        let kind = of(&profile, "kind").string_max.clone().expect("a string");
        assert_eq!((kind.value.as_str(), kind.estimated), (Some("k2"), false));
    }
}

/// Some entities, several row groups of them.
fn some(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!(r#"{{"id":{number},"kind":"k{}","words":"some text {number}"}}"#, number % 3))
        .collect()
}

fn set(position: u64, entity: &str) -> (u64, Slot) {
    (position, Slot { inserts: Vec::new(), change: Some(Some(Bytes::copy_from_slice(entity.as_bytes()))) })
}

fn options() -> WriteOptions {
    WriteOptions { row_group_rows: 20, shredding: all_shredded(), shapes: shapes(), ..WriteOptions::default() }
}

#[test]
fn an_edit_holds_what_it_brought_and_nothing_else() {
    let files = Files::new();
    let list = some(100);
    let base = files.write(&list, &options());
    let slots = Slots::from([
        set(0, r#"{"id":0,"kind":"k0","words":"first"}"#),
        set(50, r#"{"id":50,"kind":"k1","words":"middle"}"#),
        (99, Slot { inserts: Vec::new(), change: Some(None) }),
    ]);
    let edit = |file, slots: &Slots| {
        files.bench.edit(&files.store, file, slots, (&options(), &always_beside(0))).expect("edited").expect("beside")
    };
    let one = edit(&base, &slots);
    let reader = files.open(&one);
    let (layout, rows) =
        (reader.layout(), reader.row_groups().iter().map(|row_group| row_group.rows).collect::<Vec<_>>());
    assert_eq!((layout.format_version, layout.entity_count, layout.own_entities()), (1, 99, 2));
    assert_eq!(rows, [1, 19, 20, 10, 1, 9, 20, 19]);
    assert!(layout.shredded_columns.iter().all(|column| !column.retired));
    // The second edit refers to the base, not to the first.
    let two = edit(&one, &Slots::from([set(98, r#"{"id":98,"kind":"k2","words":"last"}"#)]));
    files.bench.runtime.block_on(files.store.objects().delete(&one.0)).expect("removed");
    let reader = files.open(&two);
    assert_eq!((reader.layout().entity_count, reader.layout().own_entities()), (99, 3));
    let profile = files.bench.runtime.block_on(reader.profile()).expect("read");
    assert_eq!(of(&profile, "kind").distinct, strata_format::profile::Distinct { count: 3, estimated: false });

    // Without the base nothing can be read, and the error says so.
    files.bench.runtime.block_on(files.store.objects().delete(&base.0)).expect("removed");
    let refused = || {
        let cache = PartCache::new(1 << 20);
        let open = VersionReader::open(&files.store, &two.0, two.1.size_bytes, &cache);
        files.bench.runtime.block_on(open).expect_err("not that base")
    };
    let error = refused();
    assert!(error.is_damage() && error.to_string().contains(base.0.as_ref()), "{error}");
    // Another file in its place is none.
    let other = files.write(&some(101), &options());
    let bytes = files
        .bench
        .runtime
        .block_on(async { files.store.objects().get(&other.0).await.expect("there").bytes().await.expect("bytes") });
    files.bench.runtime.block_on(files.store.objects().put(&base.0, bytes.into())).expect("put");
    let error = refused();
    assert!(error.is_damage() && error.to_string().contains("its base"), "{error}");
}

#[test]
fn columns_that_cannot_hold_what_came_are_asked_no_more() {
    let files = Files::new();
    let base = files.write(&some(100), &options());
    for (entity, retired) in [
        (r#"{"id":7,"kind":"k1","words":"as before"}"#, &[][..]),
        (r#"{"id":7,"kind":"K1","words":"folds"}"#, &["kind"]),
        (r#"{"id":7,"kind":5,"words":["in","an array"]}"#, &["kind", "words"]),
        (r#"{"id":7,"kind":null,"words":true}"#, &[]),
    ] {
        let slots = Slots::from([set(7, entity)]);
        let made = files.bench.edit(&files.store, &base, &slots, (&options(), &always_beside(0)));
        let reader = files.open(&made.expect("edited").expect("beside"));
        let columns = reader.layout().shredded_columns.iter();
        let found: Vec<&str> = columns.filter(|column| column.retired).map(|column| column.keys[0].as_str()).collect();
        assert_eq!(found, retired, "{entity}");
        let profile = files.bench.runtime.block_on(reader.profile()).expect("read");
        for path in ["id", "kind", "words"] {
            let why = retired.contains(&path).then_some(NotShredded::Edited);
            let record = of(&profile, path);
            assert_eq!((record.shredded, record.why_not_shredded), (why.is_none(), why), "{path} of {entity}");
            assert_eq!(reader.layout().shredded(&[path.to_owned()]).is_some(), why.is_none());
        }
        files.bench.runtime.block_on(verify(&reader, &mut Unbounded)).expect("sound");
    }
}

/// The columns of an edited list are those of its base, which prove nothing of the list.
#[test]
fn a_path_that_edits_took_from_every_entity_is_unknown() {
    let lab = Lab::with_threads(2);
    let mut list = some(100);
    list[7] = r#"{"id":7,"kind":"k1","words":"text","gone":"x"}"#.to_owned();
    let values = |list: &[String]| -> Vec<Value> {
        list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect()
    };
    let base = lab.write(&values(&list), &options());
    let slots = Slots::from([set(7, r#"{"id":7,"kind":"k1","words":"text"}"#)]);
    let made = lab.bench.edit(lab.store(), &base, &slots, (&options(), &always_beside(0)));
    let made = made.expect("edited").expect("beside");
    assert!(opened(&lab, &made).layout().shredded(&["gone".to_owned()]).is_some());
    for (file, list, status) in [(&base, list.clone(), 200), (&made, edited(&list, &slots), 400)] {
        let version = lab.publish_file(file);
        for query in ["filter=gone:x", "filter_gt=gone:a", "keep_field=gone", "sort=gone"] {
            assert_eq!(lab.get(version, &format!("{query}&strict=true")).status, status, "{query}");
            let named = lab.get(version, query).header("x-unknown-fields").map(str::to_owned);
            assert_eq!(named.is_some(), status == 400, "{query}: {named:?}");
        }
        lab.check(version, &values(&list), &ReadRequest::default()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_damaged_byte_of_an_edited_file_is_found() {
    let files = Files::new();
    let base = files.write(&some(60), &options());
    let slots = Slots::from([set(3, r#"{"id":3,"kind":"k9","words":"new"}"#)]);
    let made = files.bench.edit(&files.store, &base, &slots, (&options(), &always_beside(0)));
    let (path, written) = made.expect("edited").expect("beside");
    let whole = files
        .bench
        .runtime
        .block_on(async { files.store.objects().get(&path).await.expect("there").bytes().await.expect("bytes") });
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let found = files.bench.runtime.block_on(async {
            files.store.objects().put(&path, bytes.into()).await.expect("put");
            let cache = PartCache::new(1 << 20);
            let reader = VersionReader::open(&files.store, &path, written.size_bytes, &cache).await?;
            verify(&reader, &mut Unbounded).await
        });
        let is_found = found.as_ref().is_err_and(strata_store::StorageError::is_damage);
        // The first bytes of a Parquet file say what it is, and readers do not ask.
        assert!(is_found || at < 4, "byte {at} of {}: {found:?}", whole.len());
    }
}

//! Edited alternates: after repeated edits, reads, profile and checksums are the same as for a list written as a whole.

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
use strata_format::document_page::DocumentForm;
use strata_format::editing::{self, EditScript, EditedFile, PositionEdit};
use strata_format::profile::{NotShreddedReason, NumberRange, ProfilePathRecord, StoredProfile, ValueRecord};
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::reader_metrics::{LookupCounts, ReaderMetrics};
use strata_format::verify::verify_and_hash;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions, WrittenVersionFile};
use strata_reference::{Value, hostile, number};
use strata_testing::reads::{ServiceLab, alike, cases, entities, no_failure, plan};
use strata_testing::versions::{
    Files, all_shredded, always_beside, edited, nothing_shredded, path_record, some_segments,
};
use strata_types::index_settings::IndexSettings;
use strata_types::read_request::ReadRequest;

/// An edit that is not resolved against a list yet.
#[derive(Clone, Debug)]
pub(crate) enum UnresolvedEdit {
    Set(Value),
    Remove,
    Insert(Vec<Value>),
}

pub(crate) fn edit() -> impl Strategy<Value = (Index, UnresolvedEdit)> {
    let entity = || prop_oneof![3 => alike().boxed(), 1 => hostile::entity().boxed()];
    let edit = prop_oneof![
        3 => entity().prop_map(UnresolvedEdit::Set),
        2 => Just(UnresolvedEdit::Remove),
        2 => vec(entity(), 1..4).prop_map(UnresolvedEdit::Insert),
    ];
    (any::<Index>(), edit)
}

/// Resolves edits of a list with this many entities. If several edits change an entity, the first one counts.
pub(crate) fn slots(edits: &[(Index, UnresolvedEdit)], length: usize) -> EditScript {
    let document = |entity: &Value| Bytes::from(entity.write());
    let mut slots = EditScript::new();
    for (place, edit) in edits {
        let (position, change) = match edit {
            UnresolvedEdit::Insert(entities) => {
                let slot: &mut PositionEdit = slots.entry(place.index(length + 1) as u64).or_default();
                slot.inserts.extend(entities.iter().map(document));
                continue;
            }
            _ if length == 0 => continue,
            UnresolvedEdit::Set(entity) => (place.index(length), Some(document(entity))),
            UnresolvedEdit::Remove => (place.index(length), None),
        };
        slots.entry(position as u64).or_default().change.get_or_insert(change);
    }
    slots
}

pub(crate) fn opened(lab: &ServiceLab, file: &(ObjectPath, WrittenVersionFile)) -> VersionReader {
    opened_with(lab, file, 1 << 20)
}

pub(crate) fn opened_with(
    lab: &ServiceLab,
    (path, written): &(ObjectPath, WrittenVersionFile),
    cache_bytes: u64,
) -> VersionReader {
    let cache = PartCache::new(cache_bytes);
    let open = VersionReader::open(lab.store(), path, written.size_bytes, &cache);
    lab.bench.runtime.block_on(open).expect("opened")
}

pub(crate) fn profile(lab: &ServiceLab, reader: &VersionReader) -> StoredProfile {
    lab.bench.runtime.block_on(reader.profile()).expect("read")
}

/// Clears the statistics that may be estimates or wider bounds, and the indexed columns, which edits do not change.
fn exact(record: &ProfilePathRecord) -> ProfilePathRecord {
    let mut record = record.clone();
    (record.shredded, record.why_not_shredded) = (false, None);
    (record.distinct, record.top, record.top_estimated) = (no_count(), Vec::new(), false);
    (record.number_min, record.number_max, record.string_min, record.string_max) = (None, None, None, None);
    record.number_bins = None;
    record
}

fn no_count() -> strata_format::profile::DistinctCount {
    strata_format::profile::DistinctCount { count: 0, estimated: false }
}

/// An upper limit for the number of values that edits add and remove: a comma follows each value but the last of an
/// entity.
fn values(slots: &EditScript, list: &[String]) -> u64 {
    let count_values = |document: &[u8]| 1 + document.iter().filter(|byte| **byte == b',').count() as u64;
    let changed = |(position, slot): (&u64, &PositionEdit)| {
        let gone = slot.change.as_ref().map_or(0, |_| count_values(list[*position as usize].as_bytes()));
        gone + slot
            .inserts
            .iter()
            .chain(slot.change.iter().flatten())
            .map(|document| count_values(document))
            .sum::<u64>()
    };
    slots.iter().map(changed).sum()
}

/// Compares the profile of an edited list with the profile of the same list written as a whole. The error of estimates
/// is at most the number of edited values.
pub(crate) fn check_profile(found: &StoredProfile, whole: &StoredProfile, edits: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!((found.entities, found.document_bytes), (whole.entities, whole.document_bytes));
    prop_assert_eq!(found.paths_left_out, whole.paths_left_out);
    let sorted = |profile: &StoredProfile| {
        let mut paths = profile.paths.clone();
        paths.sort_by(|one, other| one.path.cmp(&other.path));
        paths
    };
    let found = sorted(found);
    let whole = sorted(whole);
    let exact_records = |paths: &[ProfilePathRecord]| paths.iter().map(exact).collect::<Vec<_>>();
    prop_assert_eq!(exact_records(&found), exact_records(&whole));
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

/// No value is beyond a minimum or maximum, and a value equals the bound unless the bound is estimated.
fn check_bounds(found: &ProfilePathRecord, whole: &ProfilePathRecord) -> Result<(), TestCaseError> {
    // A truncated number cannot be compared.
    let by_value = |one: &ValueRecord, other: &ValueRecord| match one.cut || other.cut {
        true => None,
        false => Some(number::compare(&one.value.to_string(), &other.value.to_string())),
    };
    let by_code_point = |one: &ValueRecord, other: &ValueRecord| {
        let [one, other] = [one, other].map(|record| (record.value.as_str().expect("a string"), record.cut));
        // A character that was truncated is greater than one that was not.
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

/// Ranges of numbers may be wider, or absent, but their counts are exact.
fn check_ranges(found: &ProfilePathRecord, whole: &ProfilePathRecord) -> Result<(), TestCaseError> {
    let Some(bins) = &found.number_bins else { return Ok(()) };
    let ranges = bins.to_ranges(32);
    let Some(whole_bins) = &whole.number_bins else {
        prop_assert!(ranges.iter().filter(|range| range.count > 0).count() <= 1, "{:?}", ranges);
        return Ok(());
    };
    let edges = |range: &NumberRange| [&range.from, &range.to].map(|edge| edge.parse::<f64>().expect("a number"));
    let whole_ranges = whole_bins.to_ranges(32);
    for range in &ranges {
        let [from, to] = edges(range);
        let in_string = whole_ranges.iter().filter(|inner| edges(inner)[0] >= from && edges(inner)[1] <= to);
        prop_assert_eq!(
            in_string.map(|inner| inner.count).sum::<u64>(),
            range.count,
            "{:?} of {:?}",
            range,
            whole_ranges
        );
    }
    let sum = |ranges: &[NumberRange]| ranges.iter().map(|range| range.count).sum::<u64>();
    prop_assert_eq!(sum(&ranges), sum(&whole_ranges));
    Ok(())
}

/// Documents are resident after all their pages have been read, in any order, within the limit of bytes.
pub(crate) async fn check_resident(reader: &VersionReader, list: &[String]) -> Result<(), TestCaseError> {
    let count = list.len() as u64;
    for row_group in 0..reader.row_groups().len() {
        for page in 0..reader.page_count(row_group) {
            reader.read_document_page(row_group, page).await.expect("a page");
        }
    }
    let backwards: Vec<_> = (0..count).rev().map(|position| position..position + 1).collect();
    let halves = vec![count / 2..count, 0..count / 2];
    let whole = std::iter::once(0..count).collect();
    for ranges in [whole, backwards, halves] {
        let expected: Vec<&str> =
            ranges.iter().flat_map(|range| range.clone()).map(|position| &*list[position as usize]).collect();
        let bytes: usize = expected.iter().map(|document| document.len()).sum();
        let resident_documents = async |max_bytes| {
            reader.try_resident_documents(ranges.clone().into_iter(), max_bytes, DocumentForm::Stored).await
        };
        let parts = resident_documents(usize::MAX).await.expect("at hand");
        let found: Vec<&str> = parts
            .iter()
            .flat_map(|part| part.stored.iter())
            .map(|bytes| std::str::from_utf8(bytes).expect("text"))
            .collect();
        prop_assert_eq!(found, expected);
        if count > 0 {
            prop_assert!(resident_documents(bytes - 1).await.is_none());
        }
    }
    Ok(())
}

#[test]
fn repeated_edits_read_like_a_full_rewrite() {
    let labs =
        [ServiceLab::without_cache(1), ServiceLab::with_threads(2), ServiceLab::new(|config| config.query.threads = 2)];
    let rounds = vec((vec(edit(), 1..6), vec(plan(), 2..5)), 1..4);
    let ways = (0..4_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(25), ..PropertyConfig::default() });
    let edited_files = std::cell::Cell::new(0);
    let result = runner.run(&(entities(), rounds, ways), |(entities, rounds, (rows, bounds, lab, gap))| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()][bounds],
            keyword_limits: some_segments(rows + 2 * bounds + rounds.len()),
            min_footer_index_chunks: [usize::MAX, 0][rounds.len() % 2],
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
            let before = list.join(",");
            let whole = lab.write(&values, &options);
            file = match made.expect("planned and written") {
                Some(made) => {
                    edited_files.set(edited_files.get() + 1);
                    made
                }
                // Nothing of the base is left.
                None => whole.clone(),
            };
            let reader = opened(lab, &file);
            prop_assert_eq!(reader.entity_count(), list.len() as u64);
            let verified = lab.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle));
            prop_assert_eq!(verified.expect("sound"), file.1.content_sha256.clone());
            lab.bench.runtime.block_on(reader.verify_footer_index()).expect("sound");
            let reader_of_whole = opened(lab, &whole);
            let found = profile(lab, &reader);
            let expected = profile(lab, &reader_of_whole);
            check_profile(&found, &expected, changes)
                .map_err(|error| TestCaseError::fail(format!("{error}\nafter {slots:?}\nover [{before}]")))?;
            let columns = |reader: &VersionReader| {
                let paths = lab.bench.runtime.block_on(reader.profile_paths()).expect("read");
                paths.columns().cloned()
            };
            if let Some(found) = columns(&reader) {
                prop_assert_eq!(Some(found), columns(&reader_of_whole), "columns of [{}]", before);
            }
            lab.bench.runtime.block_on(check_resident(&opened_with(lab, &file, 64 << 20), &list))?;
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
    assert!(
        edited_files.get() > 20 && followed > 5,
        "{} edited files, {followed} profiles were updated",
        edited_files.get()
    );
}

/// Scalars that are nearly equal, equal in other spellings, beyond doubles, or equal up to the stored length.
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
        // The stored bytes end within a character, or exactly after one.
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

/// Entities with few paths, one of them below arrays.
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

/// Edits that remove values, and edits that move entities unchanged.
fn neighbour_edit() -> impl Strategy<Value = (Index, Option<Index>, Option<Value>)> {
    (
        any::<Index>(),
        proptest::option::weighted(0.4, any::<Index>()),
        proptest::option::weighted(0.4, neighbour_entity()),
    )
}

/// A minimum or maximum that an edit removes remains as a bound, marked as estimated. Other statistics equal those of a
/// list that is written as a whole.
#[test]
fn edited_bounds_contain_every_value() {
    let files = Files::new();
    let rounds = vec(vec(neighbour_edit(), 1..4), 1..4);
    let ways = (0..3_usize, 0..4_usize, 0..3_u32);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(100), ..PropertyConfig::default() });
    let edited_files = std::cell::Cell::new(0);
    let result =
        runner.run(&(vec(neighbour_entity(), 1..20), rounds, ways), |(entities, rounds, (rows, shredded, gap))| {
            let options = WriteOptions {
                max_row_group_rows: [1, 3, 7][rows],
                shredding_limits: if shredded == 0 { nothing_shredded() } else { all_shredded() },
                min_footer_index_chunks: [usize::MAX, 0][shredded % 2],
                ..WriteOptions::default()
            };
            let limits = always_beside(gap);
            let mut list: Vec<String> = entities.iter().map(Value::write).collect();
            let mut file = files.write(&list, &options);
            let mut changes = 0;
            for edits in &rounds {
                let mut slots = EditScript::new();
                for (place, to, entity) in edits.iter().filter(|_| !list.is_empty()) {
                    let position = place.index(list.len()) as u64;
                    let entity = entity.as_ref().map(|entity| Bytes::from(entity.write()));
                    let slot: &mut PositionEdit = slots.entry(position).or_default();
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
                edited_files.set(edited_files.get() + usize::from(made.is_some()));
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
    assert!(followed > edited_files.get() / 3, "{followed} of {} profiles were updated", edited_files.get());
}

/// Removing an entity does not read the whole list. A removed maximum remains as a bound until an equal or greater
/// value is added.
#[test]
fn removed_maximum_remains_as_a_bound() {
    let files = Files::new();
    let entity = |number: usize| {
        let price = if number == 1_500 { 1_000_000 } else { number * 37 % 3_001 };
        let url = format!("https://example.org/a/path/that/all/share/{number:06}");
        format!(r#"{{"id":{number},"price":{price},"kind":"k{}","url":"{url}"}}"#, number % 3)
    };
    let list: Vec<String> = (0..3_000).map(entity).collect();
    let base = files.write(&list, &options());
    let metrics = Arc::new(ReaderMetrics::default());
    let reader = files.open(&base).with_metrics(metrics.clone());
    let slots = EditScript::from([(1_500, PositionEdit { inserts: Vec::new(), change: Some(None) })]);
    let limits = always_beside(0);
    let index = IndexSettings::default();
    let plan = editing::plan_edit(&reader, EditedFile::Kept, &slots, &index, &limits, 20);
    let plan = files.bench.runtime.block_on(plan).expect("planned").expect("an edited file");
    assert!(plan.profile.is_some(), "the profile is updated");
    let lookups = |counts: LookupCounts| counts.hits + counts.misses;
    let columns = lookups(metrics.columns.load());
    let documents = lookups(metrics.documents.load());
    // The beginning of the list, for the order of its columns.
    assert!(columns == 0 && documents <= 50, "{columns} columns, {documents} of 150 pages of documents");

    let mut file = base;
    for (slots, estimated, price) in [
        (slots, true, 1_000_000),
        (EditScript::from([set(7, r#"{"id":7,"price":999999,"kind":"k1"}"#)]), true, 1_000_000),
        (EditScript::from([set(7, r#"{"id":7,"price":1000000,"kind":"k1"}"#)]), false, 1_000_000),
        (EditScript::from([set(7, r#"{"id":7,"price":1000001,"kind":"k1"}"#)]), false, 1_000_001),
    ] {
        let edit = files.bench.edit(&files.store, &file, &slots, (&options(), &always_beside(0)));
        file = edit.expect("edited").expect("an edited file");
        let profile = files.bench.runtime.block_on(files.open(&file).profile()).expect("read");
        let max = path_record(&profile, "price").number_max.clone().expect("a number");
        assert_eq!((max.value.to_string(), max.estimated), (price.to_string(), estimated));
        let json = serde_json::to_string(&max).expect("JSON");
        assert_eq!(json.contains("estimated"), estimated, "{json}");
        // Other entities have the same maximum.
        let kind = path_record(&profile, "kind").string_max.clone().expect("a string");
        assert_eq!((kind.value.as_str(), kind.estimated), (Some("k2"), false));
    }
}

/// Entities in several row groups.
fn some(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!(r#"{{"id":{number},"kind":"k{}","words":"some text {number}"}}"#, number % 3))
        .collect()
}

fn set(position: u64, entity: &str) -> (u64, PositionEdit) {
    (position, PositionEdit { inserts: Vec::new(), change: Some(Some(Bytes::copy_from_slice(entity.as_bytes()))) })
}

fn options() -> WriteOptions {
    WriteOptions { max_row_group_rows: 20, shredding_limits: all_shredded(), ..WriteOptions::default() }
}

#[test]
fn edited_file_contains_only_delta_entities() {
    let files = Files::new();
    let list = some(100);
    let base = files.write(&list, &options());
    let slots = EditScript::from([
        set(0, r#"{"id":0,"kind":"k0","words":"first"}"#),
        set(50, r#"{"id":50,"kind":"k1","words":"middle"}"#),
        (99, PositionEdit { inserts: Vec::new(), change: Some(None) }),
    ]);
    let edit = |file, slots: &EditScript| {
        files
            .bench
            .edit(&files.store, file, slots, (&options(), &always_beside(0)))
            .expect("edited")
            .expect("an edited file")
    };
    let one = edit(&base, &slots);
    let reader = files.open(&one);
    let (layout, rows) =
        (reader.layout(), reader.row_groups().iter().map(|row_group| row_group.rows).collect::<Vec<_>>());
    assert_eq!((layout.format_version, layout.entity_count, layout.stored_row_count()), (1, 99, 2));
    // The extents of each row group of the base, and the rows between them, are one row group of the version.
    assert_eq!(rows, [20, 20, 20, 20, 19]);
    let extents: Vec<u32> = reader.extents().map(|extent| extent.rows).collect();
    assert_eq!(extents, [1, 19, 20, 10, 1, 9, 20, 19]);
    assert!(layout.shredded_columns.iter().all(|column| !column.retired));
    // The second edit refers to the base, not to the first edit.
    let two = edit(&one, &EditScript::from([set(98, r#"{"id":98,"kind":"k2","words":"last"}"#)]));
    files.bench.runtime.block_on(files.store.object_store().delete(&one.0)).expect("removed");
    let reader = files.open(&two);
    assert_eq!((reader.layout().entity_count, reader.layout().stored_row_count()), (99, 3));
    let profile = files.bench.runtime.block_on(reader.profile()).expect("read");
    assert_eq!(
        path_record(&profile, "kind").distinct,
        strata_format::profile::DistinctCount { count: 3, estimated: false }
    );

    // Without the base, nothing can be read, and the error names the base.
    files.bench.runtime.block_on(files.store.object_store().delete(&base.0)).expect("removed");
    let open_error = || {
        let cache = PartCache::new(1 << 20);
        let open = VersionReader::open(&files.store, &two.0, two.1.size_bytes, &cache);
        files.bench.runtime.block_on(open).expect_err("not that base")
    };
    let error = open_error();
    assert!(error.is_file_damage() && error.to_string().contains(base.0.as_ref()), "{error}");
    // Another file at the same path is not accepted.
    let other = files.write(&some(101), &options());
    let bytes = files.bench.runtime.block_on(async {
        files.store.object_store().get(&other.0).await.expect("there").bytes().await.expect("bytes")
    });
    files.bench.runtime.block_on(files.store.object_store().put(&base.0, bytes.into())).expect("put");
    let error = open_error();
    assert!(error.is_file_damage() && error.to_string().contains("its base"), "{error}");
}

#[test]
fn column_with_unsupported_edit_is_retired() {
    let files = Files::new();
    let base = files.write(&some(100), &options());
    for (entity, retired) in [
        (r#"{"id":7,"kind":"k1","words":"as before"}"#, &[][..]),
        (r#"{"id":7,"kind":"K1","words":"folds"}"#, &["kind"]),
        (r#"{"id":7,"kind":5,"words":["in","an array"]}"#, &["kind", "words"]),
        (r#"{"id":7,"kind":null,"words":true}"#, &[]),
    ] {
        let slots = EditScript::from([set(7, entity)]);
        let made = files.bench.edit(&files.store, &base, &slots, (&options(), &always_beside(0)));
        let reader = files.open(&made.expect("edited").expect("an edited file"));
        let columns = reader.layout().shredded_columns.iter();
        let found: Vec<&str> = columns.filter(|column| column.retired).map(|column| column.keys[0].as_str()).collect();
        assert_eq!(found, retired, "{entity}");
        let profile = files.bench.runtime.block_on(reader.profile()).expect("read");
        for path in ["id", "kind", "words"] {
            let why = retired.contains(&path).then_some(NotShreddedReason::Edited);
            let record = path_record(&profile, path);
            assert_eq!((record.shredded, record.why_not_shredded), (why.is_none(), why), "{path} of {entity}");
            assert_eq!(reader.layout().find_shredded(&[path.to_owned()]).is_some(), why.is_none());
        }
        files.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle)).expect("sound");
    }
}

/// The columns of an edited list are the columns of its base, which prove nothing about the list.
#[test]
fn path_removed_by_edits_is_unknown() {
    let lab = ServiceLab::with_threads(2);
    let mut list = some(100);
    list[7] = r#"{"id":7,"kind":"k1","words":"text","gone":"x"}"#.to_owned();
    let values = |list: &[String]| -> Vec<Value> {
        list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect()
    };
    let base = lab.write(&values(&list), &options());
    let slots = EditScript::from([set(7, r#"{"id":7,"kind":"k1","words":"text"}"#)]);
    let made = lab.bench.edit(lab.store(), &base, &slots, (&options(), &always_beside(0)));
    let made = made.expect("edited").expect("an edited file");
    assert!(opened(&lab, &made).layout().find_shredded(&["gone".to_owned()]).is_some());
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
fn damaged_byte_of_edited_file_is_detected() {
    let files = Files::new();
    let base = files.write(&some(60), &options());
    let slots = EditScript::from([set(3, r#"{"id":3,"kind":"k9","words":"new"}"#)]);
    let made = files.bench.edit(&files.store, &base, &slots, (&options(), &always_beside(0)));
    let (path, written) = made.expect("edited").expect("an edited file");
    let whole = files
        .bench
        .runtime
        .block_on(async { files.store.object_store().get(&path).await.expect("there").bytes().await.expect("bytes") });
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let found = files.bench.runtime.block_on(async {
            files.store.object_store().put(&path, bytes.into()).await.expect("put");
            let cache = PartCache::new(1 << 20);
            let reader = VersionReader::open(&files.store, &path, written.size_bytes, &cache).await?;
            verify_and_hash(&reader, &mut NoReadThrottle).await
        });
        let is_found = found.as_ref().is_err_and(strata_store::StorageError::is_file_damage);
        // The first bytes of a Parquet file are its magic number, which readers do not check.
        assert!(is_found || at < 4, "byte {at} of {}: {found:?}", whole.len());
    }
}

//! Delta versions: after any chain of refreshes, reads, profile and checksums are those of a complete file.

use std::cell::Cell;

use object_store::ObjectStoreExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::editing::DeltaFileLimits;
use strata_format::keywords::indexer::KeywordSegmentLimits;
use strata_format::overlay::{Extent, MAX_BASES};
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify::verify_and_hash;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, ROW_GROUP_TARGET_BYTES, WriteOptions};
use strata_reference::Value;
use strata_testing::reads::{ServiceLab, cases, entities, no_failure, plan};
use strata_testing::versions::{Files, all_shredded, always_beside, edited, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest, SortField};

use crate::edited::{UnresolvedEdit, check_profile, check_resident, edit, opened, opened_with, profile, slots};

/// What a refresh does to a list.
#[derive(Clone, Debug)]
enum Change {
    Edits(Vec<(Index, UnresolvedEdit)>),
    /// Moves a block of entities.
    Move(Index, Index, Index),
    /// Appends a copy of a block.
    Repeat(Index, Index),
    Clear,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => vec(edit(), 1..4).prop_map(Change::Edits),
        3 => any::<(Index, Index, Index)>().prop_map(|(start, end, to)| Change::Move(start, end, to)),
        2 => any::<(Index, Index)>().prop_map(|(start, end)| Change::Repeat(start, end)),
        1 => Just(Change::Clear),
    ]
}

impl Change {
    fn apply(&self, list: &[String]) -> Vec<String> {
        let block = |start: &Index, end: &Index| {
            let [start, end] = [start, end].map(|place| place.index(list.len() + 1));
            start.min(end)..start.max(end)
        };
        let mut changed = list.to_vec();
        match self {
            Change::Edits(edits) => return edited(list, &slots(edits, list.len())),
            Change::Move(start, end, to) => {
                let moved: Vec<String> = changed.drain(block(start, end)).collect();
                let to = to.index(changed.len() + 1);
                changed.splice(to..to, moved);
            }
            Change::Repeat(start, end) => changed.extend_from_slice(&list[block(start, end)]),
            Change::Clear => changed.clear(),
        }
        changed
    }
}

fn bases(reader: &VersionReader) -> usize {
    reader.layout().overlay.as_ref().map_or(0, |overlay| overlay.bases.len())
}

#[test]
fn delta_versions_read_like_complete_files() {
    let labs =
        [ServiceLab::without_cache(1), ServiceLab::with_threads(2), ServiceLab::new(|config| config.query.threads = 2)];
    let rounds = vec((change(), vec(plan(), 1..4)), 1..14);
    let ways = (0..4_usize, 0..3_usize, any::<bool>());
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(25), ..PropertyConfig::default() });
    let [deltas, most_bases] = [Cell::new(0), Cell::new(0)];
    let result = runner.run(&(entities(), rounds, ways), |(entities, rounds, (rows, lab_number, all))| {
        let options = WriteOptions {
            worker_threads: 1,
            max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: if all { all_shredded() } else { WriteOptions::default().shredding_limits },
            keyword_limits: some_segments(rows + rounds.len()),
            min_footer_index_chunks: [usize::MAX, 0][rounds.len() % 2],
            ..WriteOptions::default()
        };
        let lab = &labs[lab_number];
        let mut list: Vec<String> = entities.iter().map(Value::write).collect();
        let mut file = lab.write(&entities, &options);
        for (change, plans) in &rounds {
            list = change.apply(&list);
            let values = values(&list);
            let whole = lab.write(&values, &options);
            let limits = DeltaFileLimits { max_delta_percent: [30, u64::MAX][lab_number % 2], ..always_beside(0) };
            file = lab.bench.refresh_or_write(lab.store(), &file, &list, (&options, &limits)).expect("written");
            deltas.set(deltas.get() + usize::from(!file.1.bases.is_empty()));
            prop_assert_eq!(&file.1.content_sha256, &whole.1.content_sha256);
            let reader = opened(lab, &file);
            prop_assert!(bases(&reader) <= MAX_BASES);
            most_bases.set(most_bases.get().max(bases(&reader)));
            prop_assert_eq!(reader.entity_count(), list.len() as u64);
            let verified = lab.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle));
            prop_assert_eq!(verified.expect("sound"), file.1.content_sha256.clone());
            lab.bench.runtime.block_on(reader.verify_footer_index()).expect("sound");
            check_profile(&profile(lab, &reader), &profile(lab, &opened(lab, &whole)), 0)?;
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
    assert!(deltas.get() > 50, "{} delta files", deltas.get());
    assert!(most_bases.get() > 2, "{} bases", most_bases.get());
}

#[test]
fn small_bases_are_merged_if_there_are_too_many() {
    let lab = ServiceLab::with_threads(2);
    let mut list = some(500);
    let mut file = lab.write(&values(&list), &options());
    let mut merges = Vec::new();
    // Each version replaces one entity. The text is long, so that the page headers hardly count.
    for number in 0..43 {
        list[11 * number] = format!(r#"{{"id":{},"kind":"k1","words":"{}"}}"#, 1_000 + number, "changed ".repeat(100));
        let made = lab.bench.refresh(lab.store(), &file, &list, (&options(), &always_beside(0)));
        file = made.expect("written").expect("a delta file");
        let reader = opened(&lab, &file);
        assert!(bases(&reader) <= MAX_BASES);
        if reader.layout().stored_row_count() > 1 {
            merges.push((number, reader.layout().stored_row_count(), bases(&reader)));
        }
        let version = lab.publish_file(&file);
        lab.check(version, &values(&list), &ReadRequest::default()).unwrap_or_else(|error| panic!("{error}"));
    }
    // The files with one row each become one file, also when the sizes of all small files are similar again.
    assert_eq!(merges, [(8, 9, 1), (16, 8, 2), (23, 7, 3), (29, 6, 4), (34, 5, 5), (38, 4, 6), (41, 42, 1)]);
}

#[test]
fn fewer_bases_are_merged_within_the_limit() {
    let files = Files::new();
    let mut list: Vec<String> = (0..100).map(|number| format!(r#"{{"id":{},"kind":"k0"}}"#, 100 + number)).collect();
    let mut file = files.write(&list, &options());
    let limits = DeltaFileLimits { max_delta_percent: 20, ..always_beside(0) };
    let mut refresh = |version: usize, changes: usize| {
        for number in 0..changes {
            list[5 * version + number] = format!(r#"{{"id":{},"kind":"k1"}}"#, 200 + 5 * version + number);
        }
        let made = files.bench.refresh(&files.store, &file, &list, (&options(), &limits)).expect("planned");
        made.map(|made| {
            file = made;
            let reader = files.open(&file);
            let verified = files.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle));
            assert_eq!(verified.expect("sound"), file.1.content_sha256);
            (reader.layout().stored_row_count(), bases(&reader))
        })
    };
    for version in 0..8 {
        assert_eq!(refresh(version, 5), Some((5, version + 1)));
    }
    // Of eight bases with five rows each, only two can be merged: 5 new entities and 10 rows are 15 % of the list.
    assert_eq!(refresh(8, 5), Some((15, 7)));
    assert_eq!(refresh(9, 5), Some((5, 8)));
    // The new entities leave no space for the rows of the smallest base.
    assert_eq!(refresh(10, 16), None);
}

fn values(list: &[String]) -> Vec<Value> {
    list.iter().map(|text| Value::parse_entity(text).expect("an entity")).collect()
}

/// Entities in several row groups.
fn some(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!(r#"{{"id":{number},"kind":"k{}","words":"some text {number}"}}"#, number % 3))
        .collect()
}

fn options() -> WriteOptions {
    WriteOptions { max_row_group_rows: 100, shredding_limits: all_shredded(), ..WriteOptions::default() }
}

fn extents(reader: &VersionReader) -> Vec<(u8, u32)> {
    reader.extents().map(|extent| (extent.file, extent.rows)).collect()
}

#[test]
fn unchanged_rows_stay_in_their_files() {
    let files = Files::new();
    let first = some(1_000);
    let base = files.write(&first, &options());
    let refresh = |previous: &_, list: &[String]| {
        let limits = always_beside(0);
        files
            .bench
            .refresh(&files.store, previous, list, (&options(), &limits))
            .expect("written")
            .expect("a delta file")
    };
    // A moved block has extents, but no new rows: 150 entities, which were in two row groups.
    let mut moved = first.clone();
    let block: Vec<String> = moved.drain(250..400).collect();
    moved.splice(700..700, block);
    let reader = files.open(&refresh(&base, &moved));
    let rows = [100, 100, 50, 100, 100, 100, 100, 50, 50, 100, 50, 100, 50];
    assert_eq!((reader.layout().stored_row_count(), bases(&reader)), (0, 1));
    assert_eq!(extents(&reader).iter().map(|(_, rows)| u64::from(*rows)).sum::<u64>(), 1_000);
    assert!(extents(&reader).len() <= rows.len(), "{:?}", extents(&reader));
    // An entity is replaced, one removed, and one added.
    let mut changed = first;
    changed[500] = r#"{"id":500,"kind":"k1","words":"replaced"}"#.to_owned();
    changed.remove(700);
    changed.insert(10, r#"{"id":-1,"kind":"k1","words":"added"}"#.to_owned());
    let second = refresh(&base, &changed);
    let reader = files.open(&second);
    assert_eq!((reader.layout().stored_row_count(), bases(&reader)), (2, 1));
    assert_eq!(reader.row_groups().len(), 10);
    // A later version refers to the rows of both files.
    changed[0] = r#"{"id":0,"kind":"k1","words":"third"}"#.to_owned();
    let third = refresh(&second, &changed);
    let reader = files.open(&third);
    assert_eq!((reader.layout().stored_row_count(), bases(&reader)), (1, 2));
    assert_eq!(extents(&reader)[..3], [(Extent::OWN, 1), (2, 9), (1, 1)]);
}

/// Without a limit of bytes, the version has one row group, because the base has one and the rows are few.
#[test]
fn large_entities_get_more_row_groups() {
    let lab = ServiceLab::with_threads(2);
    let options = WriteOptions::default();
    let mut list = some(6_000);
    let mut file = lab.write(&values(&list), &options);
    for start in [1, 6] {
        for number in (start..list.len()).step_by(17) {
            let text = format!("{number:04}").repeat(25_000);
            list[number] = format!(r#"{{"id":{number},"kind":"large","words":"{text}"}}"#);
        }
        let made = lab.bench.refresh(lab.store(), &file, &list, (&options, &always_beside(0)));
        file = made.expect("written").expect("a delta file");
    }
    let reader = opened(&lab, &file);
    assert_eq!((reader.layout().stored_row_count(), bases(&reader)), (353, 2));
    let row_groups = reader.row_groups().iter().map(|group| &list[group.first_position as usize..][..group.rows]);
    let bytes: Vec<usize> = row_groups.map(|entities| entities.iter().map(String::len).sum()).collect();
    assert!(bytes.len() == 2 && bytes.iter().all(|bytes| *bytes <= 2 * ROW_GROUP_TARGET_BYTES), "{bytes:?}");
    let verified = lab.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle));
    assert_eq!(verified.expect("sound"), file.1.content_sha256);
    let values = values(&list);
    let version = lab.publish_file(&file);
    let path = |text: &str| FieldPath::parse(text).expect("a path");
    let window = |offset, limit| ReadRequest { offset, limit: Some(limit), ..ReadRequest::default() };
    let last_row = reader.row_groups()[0].rows as u64;
    let large = PathValue { path: path("kind"), value: "large".to_owned() };
    let by_id = SortField { field: "id".to_owned(), descending: true };
    let requests = [
        window(last_row - 20, 40),
        ReadRequest { filters: vec![large], keep_fields: vec![path("id")], ..ReadRequest::default() },
        ReadRequest { sort: Some(by_id), ..window(3_000, 20) },
    ];
    for request in &requests {
        lab.check(version, &values, request).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn list_with_too_many_changes_is_written_as_a_whole() {
    let files = Files::new();
    let first = some(1_000);
    let base = files.write(&first, &options());
    let mut limits = always_beside(0);
    limits.max_delta_percent = 20;
    let refresh = |list: &[String]| files.bench.refresh(&files.store, &base, list, (&options(), &limits));
    let with_changes = |count: usize| {
        let mut list = first.clone();
        for number in 0..count {
            list[number * 3] = format!(r#"{{"id":-{number},"kind":"k1","words":"changed"}}"#);
        }
        list
    };
    assert!(refresh(&with_changes(200)).expect("written").is_some());
    assert!(refresh(&with_changes(201)).expect("planned").is_none());
    // The values of a new type do not fit the column.
    let mut typed = first.clone();
    typed[3] = r#"{"id":3,"kind":7,"words":"some text"}"#.to_owned();
    assert!(refresh(&typed).expect("planned").is_none());
    assert!(refresh(&[]).expect("planned").is_none());
}

#[test]
fn damage_of_any_base_is_reported() {
    let files = Files::new();
    let mut list = some(300);
    let mut versions = vec![files.write(&list, &options())];
    for number in 0..3 {
        list[100 * number] = format!(r#"{{"id":-{number},"kind":"k1","words":"changed"}}"#);
        let previous = versions.last().expect("a version");
        let made = files.bench.refresh(&files.store, previous, &list, (&options(), &always_beside(0)));
        versions.push(made.expect("written").expect("a delta file"));
    }
    let last = versions.pop().expect("a version");
    for (path, _) in &versions {
        let bytes = files.bench.runtime.block_on(async {
            let bytes = files.store.object_store().get(path).await.expect("there").bytes().await.expect("bytes");
            files.store.object_store().delete(path).await.expect("removed");
            bytes
        });
        let cache = strata_format::cache::PartCache::new(1 << 20);
        let open = VersionReader::open(&files.store, &last.0, last.1.size_bytes, &cache);
        let error = files.bench.runtime.block_on(open).expect_err("opened without a base");
        assert!(error.is_base_file_damaged() && error.to_string().contains(path.as_ref()), "{error}");
        files.bench.runtime.block_on(files.store.object_store().put(path, bytes.into())).expect("put");
    }
    files.open(&last);
}

/// Searches with the keyword index find entities in all files.
#[test]
fn keyword_index_of_all_files_is_used() {
    let files = Files::new();
    let options = WriteOptions {
        keyword_limits: KeywordSegmentLimits { min_text_bytes: 0, ..KeywordSegmentLimits::default() },
        ..options()
    };
    let mut list = some(1_000);
    let base = files.write(&list, &options);
    list[0] = r#"{"id":0,"kind":"k0","words":"telescope"}"#.to_owned();
    let made = files.bench.refresh(&files.store, &base, &list, (&options, &always_beside(0)));
    let reader = files.open(&made.expect("written").expect("a delta file"));
    assert_eq!(reader.keyword_index().indexed_rows, 1_000);
    let ranges: Vec<_> = reader.keyword_rows(0).map(|rows| rows.segment_range()).collect();
    assert_eq!(ranges, [Some((0, 0..1)), Some((1, 1..100))]);
    let rows = reader.keyword_rows(0).last().expect("no rows");
    assert_eq!(rows.rows_of([0, 1, 99, 100].into_iter()).collect::<Vec<_>>(), [(1, 1), (99, 99)]);
}

//! Cached indented forms of document pages.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use strata_format::cache::PartCache;
use strata_format::cached_part::{CachedPart, PartKey};
use strata_format::document_page::DocumentForm;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_reference::{Value, hostile};
use strata_testing::owned::Owned;
use strata_testing::versions::FileWorkbench;

use super::files::{opened, read_ahead};

/// Entities whose indented form has less than four times their size.
fn entities(count: usize) -> Vec<Value> {
    let texts = ["\\n\\\"{[,:]}", "ä\\\\", "", " , : "];
    let entity = |number: usize| {
        let text = texts[number % texts.len()];
        format!(r#"{{"number":{number},"text":"{text}","none":[],"empty":{{}},"more":[{number},{{"a b":null}}]}}"#)
    };
    (0..count).map(|number| parsed(&entity(number))).collect()
}

/// Checks the documents of two row groups, and returns whether all pages and whether any pages were indented by the
/// reader.
async fn check_indented(reader: &VersionReader, entities: &[Value]) -> (bool, bool) {
    let ranges = [5..entities.len() as u64 - 5, 0..2];
    let expected = ranges.clone().into_iter().flatten().map(|position| &entities[position as usize]);
    let pages = reader.try_resident_documents(ranges.into_iter(), usize::MAX, DocumentForm::PreferIndented).await;
    let pages = pages.expect("failed to find resident documents");
    let mut documents = Vec::new();
    for page in &pages {
        let stored = page.stored.iter();
        let stored = stored.map(|document| parsed(std::str::from_utf8(document).expect("failed to decode document")));
        let text = |document: Value| document.write_pretty(1).into_bytes();
        match &page.indented {
            Some(indented) => documents.extend(indented.iter().map(<[u8]>::to_vec)),
            None => documents.extend(stored.map(text)),
        }
    }
    assert_eq!(documents, expected.map(|entity| entity.write_pretty(1).into_bytes()).collect::<Vec<_>>());
    (pages.iter().all(|page| page.indented.is_some()), pages.iter().any(|page| page.indented.is_some()))
}

#[test]
fn frequently_indented_page_is_cached_indented() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let mut entities = entities(50);
    let options = WriteOptions { max_row_group_rows: 25, ..WriteOptions::default() };
    // With free space, without free space, and with a document that grows too much.
    for case in 0..3 {
        if case == 2 {
            let open = "[".repeat(100);
            let close = "]".repeat(100);
            entities[30] = parsed(&format!(r#"{{"a":{open}1,2,3,4,5,6,7,8,9{close}}}"#));
        }
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let (path, written) = bench.write(&store, &texts, &options).expect("failed to write file");
        bench.runtime.block_on(async {
            let cache = PartCache::new(1 << 20);
            if case == 1 {
                let array: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[7; 800 << 10]]));
                cache
                    .insert_loaded(PartKey::Column { file: 0, row_group: 0, column: 0 }, CachedPart::Column(array))
                    .await;
            }
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await;
            let reader = reader.expect("failed to open file");
            read_ahead(&reader).await.expect("failed to read pages");
            assert_eq!(check_indented(&reader, &entities).await, (false, false));
            let mut last = (false, false);
            for _ in 0..30 {
                last = check_indented(&reader, &entities).await;
            }
            assert_eq!(last, [(true, true), (false, false), (false, true)][case], "{case}");
            let all = std::iter::once(0..50);
            let none = reader.try_resident_documents(all, usize::MAX, DocumentForm::Stored).await;
            let none = none.expect("failed to find resident documents");
            assert!(none.iter().all(|page| page.indented.is_none()));
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_do_not_depend_on_indented_pages() {
    let owned = Owned::start(|config| config.cache.response_bytes = 0).await;
    let mut runner = TestRunner::default();
    let mut entities = entities(40);
    owned.dataset("Plain", json!({}), &[&format!("[{}]", written(&entities))]).await;
    let hostile = |_| hostile::entity().new_tree(&mut runner).expect("failed to generate entity").current();
    entities.extend((0..40).map(hostile));
    owned.dataset("Hostile", json!({}), &[&format!("[{}]", written(&entities))]).await;
    let selections = ["", "&sort=number:desc", "&filter_gte=number:7", "&include_source=false", "&drop_field=text"];
    let selections = prop::sample::select(selections.to_vec());
    let offsets = (0..9_usize, 0..5_usize);
    let pages = (offsets, selections, prop::sample::select(vec!["1/plain", "2/hostile"]));
    // The first response of each URL.
    let mut first = HashMap::new();
    for round in 0..400 {
        let ((offset, limit), selection, dataset) =
            pages.new_tree(&mut runner).expect("failed to generate page").current();
        let page = format!("/api/{dataset}/active/?offset={}&limit={}{selection}", 5 * offset, 10 * limit + 1);
        let response = owned.service.get(&page).await;
        assert_eq!(response.status, 200, "{page}: {}", response.text());
        let lines = owned.service.get(&format!("{page}&format=jsonl")).await;
        let entities: Vec<String> = lines.text().lines().map(|line| parsed(line).write_pretty(1)).collect();
        let expected =
            if entities.is_empty() { "[]".to_owned() } else { format!("[\n  {}\n]", entities.join(",\n  ")) };
        assert_eq!(response.text(), expected, "{page}, in round {round}");
        let before = first.entry(page).or_insert_with(|| response.text().to_owned());
        assert_eq!(response.text(), before);
    }
}

fn parsed(text: &str) -> Value {
    Value::parse(text).expect("failed to parse JSON")
}

fn written(entities: &[Value]) -> String {
    entities.iter().map(Value::write).collect::<Vec<_>>().join(",")
}

//! Pages of documents that answers often show indented are kept so.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use strata_format::cache::PartCache;
use strata_format::parts::{Part, PartKey};
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_reference::{Value, hostile};
use strata_testing::owned::Owned;
use strata_testing::versions::Bench;

use super::files::{opened, read_ahead};

/// Entities that take less than four times their bytes when they are indented.
fn entities(count: usize) -> Vec<Value> {
    let texts = ["\\n\\\"{[,:]}", "ä\\\\", "", " , : "];
    let entity = |number: usize| {
        let text = texts[number % texts.len()];
        format!(r#"{{"number":{number},"text":"{text}","none":[],"empty":{{}},"more":[{number},{{"a b":null}}]}}"#)
    };
    (0..count).map(|number| parsed(&entity(number))).collect()
}

/// The documents of two row groups, indented by the reader where it keeps them so. Whether it did for all pages, and
/// for one.
async fn at_hand(reader: &VersionReader, entities: &[Value]) -> (bool, bool) {
    let stretches = [5..entities.len() as u64 - 5, 0..2];
    let expected = stretches.clone().into_iter().flatten().map(|position| &entities[position as usize]);
    let parts = reader.documents_at_hand(stretches.into_iter(), usize::MAX, true).await.expect("at hand");
    let mut found = Vec::new();
    for part in &parts {
        let stored = part.stored.iter().map(|document| parsed(std::str::from_utf8(document).expect("text")));
        let text = |document: Value| document.write_pretty(1).into_bytes();
        match &part.indented {
            Some(indented) => found.extend(indented.iter().map(<[u8]>::to_vec)),
            None => found.extend(stored.map(text)),
        }
    }
    assert_eq!(found, expected.map(|entity| entity.write_pretty(1).into_bytes()).collect::<Vec<_>>());
    (parts.iter().all(|part| part.indented.is_some()), parts.iter().any(|part| part.indented.is_some()))
}

#[test]
fn a_page_is_kept_indented_once_that_is_less_work() {
    let (bench, store) = (Bench::new(), opened("memory://"));
    let mut entities = entities(50);
    let options = WriteOptions { row_group_rows: 25, ..WriteOptions::default() };
    // With room; without; and with a document that takes much more when it is indented.
    for case in 0..3 {
        if case == 2 {
            let (open, close) = ("[".repeat(100), "]".repeat(100));
            entities[30] = parsed(&format!(r#"{{"a":{open}1,2,3,4,5,6,7,8,9{close}}}"#));
        }
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let (path, written) = bench.write(&store, &texts, &options).expect("written");
        bench.runtime.block_on(async {
            let cache = PartCache::new(1 << 20);
            if case == 1 {
                let array: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[7; 800 << 10]]));
                cache.insert(PartKey::Column { file: 0, row_group: 0, column: 0 }, Part::Column(array)).await;
            }
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await.expect("opened");
            read_ahead(&reader).await.expect("read");
            assert_eq!(at_hand(&reader, &entities).await, (false, false));
            let mut last = (false, false);
            for _ in 0..30 {
                last = at_hand(&reader, &entities).await;
            }
            assert_eq!(last, [(true, true), (false, false), (false, true)][case], "{case}");
            let none = reader.documents_at_hand(std::iter::once(0..50), usize::MAX, false).await.expect("at hand");
            assert!(none.iter().all(|part| part.indented.is_none()));
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_depend_on_indented_pages() {
    let owned = Owned::start(|config| config.cache.response_bytes = 0).await;
    let mut runner = TestRunner::default();
    let mut entities = entities(40);
    owned.dataset("Plain", json!({}), &[&format!("[{}]", written(&entities))]).await;
    entities.extend((0..40).map(|_| hostile::entity().new_tree(&mut runner).expect("an entity").current()));
    owned.dataset("Hostile", json!({}), &[&format!("[{}]", written(&entities))]).await;
    let selections = ["", "&sort=number:desc", "&filter_gte=number:7", "&include_source=false", "&drop_field=text"];
    let selections = prop::sample::select(selections.to_vec());
    let places = (0..9_usize, 0..5_usize);
    let pages = (places, selections, prop::sample::select(vec!["1/plain", "2/hostile"]));
    // What an address answered first.
    let mut first = HashMap::new();
    for round in 0..400 {
        let ((offset, limit), selection, dataset) = pages.new_tree(&mut runner).expect("a page").current();
        let page = format!("/api/{dataset}/active/?offset={}&limit={}{selection}", 5 * offset, 10 * limit + 1);
        let answer = owned.service.get(&page).await;
        assert_eq!(answer.status, 200, "{page}: {}", answer.text());
        let lines = owned.service.get(&format!("{page}&format=jsonl")).await;
        let entities: Vec<String> = lines.text().lines().map(|line| parsed(line).write_pretty(1)).collect();
        let expected =
            if entities.is_empty() { "[]".to_owned() } else { format!("[\n  {}\n]", entities.join(",\n  ")) };
        assert_eq!(answer.text(), expected, "{page}, in round {round}");
        let before = first.entry(page).or_insert_with(|| answer.text().to_owned());
        assert_eq!(answer.text(), before);
    }
}

fn parsed(text: &str) -> Value {
    Value::parse(text).expect("JSON")
}

fn written(entities: &[Value]) -> String {
    entities.iter().map(Value::write).collect::<Vec<_>>().join(",")
}

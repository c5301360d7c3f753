//! Tests of damage to the parts of version files that only save time: the keyword index, and the profile. Reads return
//! correct responses without these parts, and the service logs the damage.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use strata_testing::files::damage_documents;
use strata_testing::maintenance::Depth;
use strata_testing::metrics::growth;
use strata_testing::{CapturedLog, comes_about, seal};

use super::{Damage, DamageTally, damages, entities, newest, owned};

/// Returns entities with enough text for a keyword index.
fn texts() -> String {
    let entity = |number: usize| {
        let text = "lorem ipsum dolor sit amet consectetur ".repeat(100 + number % 7);
        json!({"i": number, "text": text, "word": format!("word{} half-{}", number % 60, number % 2), "id": format!("{:x}", number * 7919 + 0xABCDE)})
            .to_string()
    };
    format!("[{}]", (0..400).map(entity).collect::<Vec<_>>().join(","))
}

/// Returns the JSON value in the footer of a version file that begins with `start`.
fn footer_value(file: &[u8], start: &str) -> Value {
    let at = file.windows(start.len()).rposition(|window| window == start.as_bytes()).expect(start);
    let mut values = serde_json::Deserializer::from_slice(&file[at..]).into_iter::<Value>();
    values.next().expect("a value").expect("failed to parse JSON")
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("failed to parse the number") as usize
}

/// Returns the byte range of the keyword index in a version file with one row group.
fn index_range(file: &[u8]) -> Range<usize> {
    let segment = &footer_value(file, "{\"format\":1,\"fields\":")["segments"][0];
    let pages = segment["pages"].as_array().expect("pages");
    // Pages without postings have no position of postings.
    let starts = pages
        .iter()
        .map(|page| if number(&page[8]) > 0 { number(&page[4]).min(number(&page[7])) } else { number(&page[4]) });
    let ends = pages.iter().map(|page| number(&page[4]) + number(&page[5]));
    starts.min().expect("there are no pages")..ends.max().expect("there are no pages")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: damages files hundreds of times"]
async fn searches_with_damaged_indexes_are_right() {
    let owned = owned().await;
    let id = owned.dataset("Texts", json!({}), &[&texts()]).await;
    owned.dataset("Others", json!({}), &[&entities(4)]).await;
    let files = owned.service.version_files();
    let (file, whole, foreign) = {
        let mut read: Vec<(PathBuf, Vec<u8>)> =
            files.iter().map(|file| (file.clone(), fs::read(file).expect("a file"))).collect();
        let has_index = |bytes: &[u8]| bytes.windows(15).any(|window| window == b"strata.keywords");
        let at = read.iter().position(|(_, bytes)| has_index(bytes)).expect("a file with an index");
        let (file, whole) = read.remove(at);
        (file, whole, read.remove(0).1)
    };
    let index = index_range(&whole);
    assert!(index.len() > 1_000, "{index:?}");
    let reads: Vec<String> = [
        "keywords=word7&count=true",
        "keywords=word7,b2f&format=jsonl&keep_field=i,word",
        "keywords=half-1&keywords_mode=and&limit=3&keep_field=i",
        "keywords=zebra&count=true",
        "filter_contains=text:amet%20lorem&count=true",
        "keywords=dolor%20sit&count=true",
        "filter_contains=id:abc&format=jsonl&keep_field=i",
        "keywords=word7&drop_field=id&count=true",
        "filter=text:null&count=true",
    ]
    .iter()
    .map(|query| format!("/api/{id}/texts/v1/?{query}"))
    .collect();
    let mut before = Vec::new();
    for uri in &reads {
        let answer = owned.service.get(uri).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
        before.push(answer);
    }
    let mut tally = DamageTally::default();
    let mut count = 0;
    let mut spared = 0;
    for seed in damages(24) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = Damage::draw(&mut random);
        let damaged = match kind {
            Damage::Cut | Damage::Replaced => kind.apply(&whole, &foreign, &mut random),
            _ => {
                [&whole[..index.start], &kind.apply(&whole[index.clone()], &foreign, &mut random), &whole[index.end..]]
                    .concat()
            }
        };
        if damaged == whole {
            continue;
        }
        count += 1;
        fs::write(&file, &damaged).expect("written");
        let fresh = owned.service.open_instance(|_| {}).await;
        let mut failed = 0;
        for (uri, before) in reads.iter().zip(&before) {
            failed += u64::from(tally.compare(&format!("seed {seed}, {kind:?}"), uri, before, &fresh.get(uri).await));
        }
        match kind {
            // These damages destroy the documents, too.
            Damage::Cut | Damage::Replaced => tally.noticed(kind),
            _ => {
                assert_eq!(failed, 0, "seed {seed}, {kind:?}");
                spared += 1;
            }
        }
        assert_eq!(
            fresh.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged,
            1,
            "seed {seed}"
        );
    }
    fs::write(&file, &whole).expect("written");
    assert_eq!(owned.service.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged, 0);
    tally.assert_right_or_failed(count, "keyword indexes");
    assert!(spared * 2 > count, "{spared} of {count} damages affected only the keyword index");
}

/// Returns the byte ranges of the parts that only save time, with their names, for a version file with one row group.
fn accelerators(file: &[u8]) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    // For each token class, the dictionary, the token texts, the checksums of the posting lists, and the posting lists
    // are adjacent.
    let index = index_range(file);
    let part = index.len() / 16;
    for start in index.clone().step_by(part) {
        found.push((format!("keyword index from {start}"), start..index.end.min(start + part)));
    }
    // A segment of the keyword index begins with the same bytes.
    let starts: Vec<usize> = memchr::memmem::find_iter(file, "{\"offset\":").collect();
    let parsed_at = |at: &usize| serde_json::Deserializer::from_slice(&file[*at..]).into_iter::<Value>().next()?.ok();
    let profile = starts
        .iter()
        .rev()
        .filter_map(parsed_at)
        .find(|value| value["sha256"].is_string())
        .expect("failed to find the profile");
    let start = number(&profile["offset"]);
    found.push(("profile".to_owned(), start..start + number(&profile["length"])));
    found
}

#[tokio::test]
async fn damaged_index_is_logged_once_and_bypassed() {
    let owned = owned().await;
    let id = owned.dataset("Texts", json!({}), &[&texts()]).await;
    let file = newest(&owned.service);
    let whole = fs::read(&file).expect("failed to read the file");
    let reads: Vec<String> = [
        "?keywords=word7,b2f&format=jsonl&keep_field=i,word",
        "?keywords=dolor%20sit,half-1&keywords_mode=and&count=true",
        "?keywords=word7&drop_field=id&count=true",
        "?filter_contains=id:abc&format=jsonl&keep_field=i",
        "?filter=id:abcde&count=true",
        "?filter=text:null&count=true",
        "?filter=i:399&format=jsonl",
        "?filter=word:word7%20half-1&count=true",
        "?format=csv&limit=3&keep_field=i,nowhere",
        "?filter=i:3&strict=true&count=true",
        "?filter=nowhere.a:3&strict=true",
    ]
    .iter()
    .map(|query| format!("/api/{id}/texts/v1/{query}"))
    .collect();
    let mut right = Vec::new();
    for uri in &reads {
        let answer = owned.service.get(uri).await;
        assert!([200, 400].contains(&answer.status), "{uri}: {}", answer.text());
        right.push(answer);
    }
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let accelerators = accelerators(&whole);
    assert!(accelerators.len() > 15, "{accelerators:?}");
    let mut reported = 0;
    for (name, range) in accelerators {
        let mut bytes = whole.clone();
        bytes[range.start + range.len() / 2] ^= 1;
        fs::write(&file, bytes).expect("written");
        let fresh = owned.service.open_instance(|_| {}).await;
        log.take();
        let all_reads = async {
            for (uri, right) in reads.iter().zip(&right) {
                let answer = fresh.get(uri).await;
                // A 400 response can lack the suggestions that come from the profile.
                let same = (&name, right.status) == (&"profile".to_owned(), 400) || answer.body == right.body;
                assert!(answer.status == right.status && same, "{name}: {uri}: {} {}", answer.status, answer.text());
            }
        };
        let damaged = growth("strata_damaged_parts_total", all_reads).await;
        let is_named = |line: &Value| line["fields"]["versions"].is_string();
        // Some damaged bytes are not used by these reads. The metric also counts the damage of other tests.
        if damaged > 0.0 && comes_about(async || log.lines().iter().any(is_named)).await {
            fresh.get(&reads[0]).await;
            let lines = log.take();
            let named: Vec<&Value> = lines.iter().filter(|line| is_named(line)).collect();
            let [line] = named.as_slice() else { panic!("{name}: {lines:?}") };
            let message =
                "found damaged optional part of version file; its versions are slower until you restore the file";
            assert_eq!(line["fields"]["message"], json!(message), "{name}");
            assert!(file.ends_with(line["fields"]["path"].as_str().expect("a path")), "{line}");
            assert_eq!(line["fields"]["versions"], json!(format!("dataset {id} \"Texts\" v1")));
            reported += 1;
        }
        assert_eq!(
            fresh.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged,
            1,
            "{name}"
        );
        let checked = fresh.check(Depth::Everything).await;
        assert_eq!(checked.damaged, 1, "{name}: {:?}", checked.findings);
    }
    assert!(reported > 5, "{reported} parts were read");
    // Damage to documents is an error.
    damage_documents(&file);
    owned.service.open_instance(|_| {}).await.get(&format!("/api/{id}/texts/v1/?format=jsonl")).await.is_error(500);
}

/// The footer checksum of each changed file is valid, so only the changed keys reveal the damage.
#[tokio::test]
async fn invalid_index_offsets_are_bypassed() {
    let owned = owned().await;
    let id = owned.dataset("Texts", json!({}), &[&texts()]).await;
    let file = newest(&owned.service);
    let uri = format!("/api/{id}/texts/v1/?keywords=word7&drop_field=id&format=jsonl");
    let right = owned.service.get(&uri).await;
    assert_eq!(right.status, 200);
    let whole = fs::read(&file).expect("failed to read the file");
    {
        let found = "\"segments\":[{";
        let instead = "\"segmentz\":[{";
        let mut bytes = whole.clone();
        let at = bytes.windows(found.len()).rposition(|window| window == found.as_bytes()).expect(found);
        bytes[at..at + found.len()].copy_from_slice(instead.as_bytes());
        seal(&mut bytes);
        fs::write(&file, bytes).expect("written");
        let fresh = owned.service.open_instance(|_| {}).await;
        let answer = fresh.get(&uri).await;
        assert_eq!((answer.status, &answer.body), (200, &right.body), "{found}");
        for depth in [Depth::Footers, Depth::Everything] {
            let checked = fresh.check(depth).await;
            assert_eq!(checked.damaged, 1, "{:?}", checked.findings);
        }
        assert_eq!(
            fresh.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged,
            1,
            "{found}"
        );
    }
}

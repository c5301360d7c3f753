//! Tests of damage to version files. Regardless of the damage, every kind of read returns the same bytes as before, or
//! it fails with a 5xx status or a truncated body. Damage does not spread through refreshes, clones, or backups.
//!
//! The damages are random. A seed identifies each, so that you can repeat a failure: `STRATA_DAMAGES` sets the number
//! of damages and `STRATA_DAMAGE_SEED` the first seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use strata_config::AllowedNetworks;
use strata_testing::files::damage_documents;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok, with_status};
use strata_testing::machine::{Machine, Server, get};
use strata_testing::maintenance::Depth;
use strata_testing::owned::{Owned, call, parsed};
use strata_testing::{Answer, CapturedLog, TestService, eventually};

mod accelerators;
mod catalogs;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod objects;

#[derive(Clone, Copy, Debug)]
pub enum Damage {
    Bit,
    Bits,
    Noise,
    Zeros,
    Swap,
    Moved,
    Foreign,
    ForeignElsewhere,
    Cut,
    Replaced,
}

impl Damage {
    const ALL: [Damage; 10] = [
        Damage::Bit,
        Damage::Bits,
        Damage::Noise,
        Damage::Zeros,
        Damage::Swap,
        Damage::Moved,
        Damage::Foreign,
        Damage::ForeignElsewhere,
        Damage::Cut,
        Damage::Replaced,
    ];

    pub fn draw(random: &mut StdRng) -> Damage {
        Damage::ALL[random.random_range(0..Damage::ALL.len())]
    }

    /// Returns the damaged bytes. `foreign` is another file of the same kind.
    pub fn apply(self, whole: &[u8], foreign: &[u8], random: &mut StdRng) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        let length = bytes.len();
        // A sector or a page, either aligned or at any offset.
        let block = [16, 512, 4_096, 16_384][random.random_range(0..4)].min(length / 3);
        let place = |random: &mut StdRng| match random.random_bool(0.5) {
            true => random.random_range(0..=(length - block) / block) * block,
            false => random.random_range(0..=length - block),
        };
        match self {
            Damage::Bit => bytes[random.random_range(0..length)] ^= 1 << random.random_range(0..8),
            Damage::Bits => {
                for _ in 0..random.random_range(2..40) {
                    bytes[random.random_range(0..length)] ^= 1 << random.random_range(0..8);
                }
            }
            Damage::Noise => {
                let at = place(random);
                bytes[at..at + block].iter_mut().for_each(|byte| *byte = random.random());
            }
            Damage::Zeros => {
                let at = place(random);
                bytes[at..at + block].fill(0);
            }
            Damage::Swap => {
                let one = place(random);
                let other = place(random);
                let kept = whole[one..one + block].to_vec();
                bytes.copy_within(other..other + block, one);
                bytes[other..other + block].copy_from_slice(&kept);
            }
            Damage::Moved => {
                let from = place(random);
                let to = place(random);
                bytes.copy_within(from..from + block, to);
            }
            Damage::Foreign => {
                let at = place(random);
                let there = at.min(foreign.len().saturating_sub(block));
                let taken = &foreign[there..(there + block).min(foreign.len())];
                bytes[at..at + taken.len()].copy_from_slice(taken);
            }
            Damage::ForeignElsewhere => {
                let at = place(random);
                let there = random.random_range(0..=foreign.len().saturating_sub(block));
                let taken = &foreign[there..(there + block).min(foreign.len())];
                bytes[at..at + taken.len()].copy_from_slice(taken);
            }
            Damage::Cut => bytes.truncate(random.random_range(0..length)),
            Damage::Replaced => bytes = foreign.to_vec(),
        }
        bytes
    }
}

/// Returns the seeds of the damages to test. `STRATA_DAMAGES` overrides `by_default`, the number of damages.
pub fn damages(by_default: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    let first = number("STRATA_DAMAGE_SEED").unwrap_or(1);
    first..first + number("STRATA_DAMAGES").unwrap_or(by_default)
}

/// The number of reads for each result.
#[derive(Debug, Default)]
pub struct DamageTally {
    pub right: u64,
    pub failed: u64,
    /// Management calls with a token that could not be verified because of the damage.
    pub refused: u64,
    pub wrong: Vec<String>,
    /// Damages after which at least one read failed.
    pub noticed: u64,
    pub of_kind: BTreeMap<String, u64>,
}

impl DamageTally {
    /// Compares a response with the response before the damage. Returns true if the response is an error.
    pub fn compare(&mut self, what: &str, uri: &str, before: &Answer, after: &Answer) -> bool {
        let failed = after.status >= 500 || (after.status == 200 && !after.whole);
        let refused = !uri.starts_with("/api/") && after.status == 401 && before.status == 200;
        let same = (after.status, &after.body) == (before.status, &before.body)
            && after.header("x-total-count") == before.header("x-total-count");
        match (failed, same) {
            (true, _) => self.failed += 1,
            _ if refused => self.refused += 1,
            (false, true) => self.right += 1,
            (false, false) => {
                let text = String::from_utf8_lossy(&after.body[..after.body.len().min(200)]).into_owned();
                self.wrong.push(format!("{what}: {uri}: {} {text}", after.status));
            }
        }
        failed
    }

    pub fn noticed(&mut self, kind: Damage) {
        self.noticed += 1;
        *self.of_kind.entry(format!("{kind:?}")).or_default() += 1;
    }

    #[track_caller]
    pub fn assert_right_or_failed(&self, damages: u64, name: &str) {
        println!(
            "{name}: {damages} damages, {} noticed {:?}; reads: {} right, {} failed, {} refused, {} wrong",
            self.noticed,
            self.of_kind,
            self.right,
            self.failed,
            self.refused,
            self.wrong.len()
        );
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
    }
}

/// Returns entities of many kinds: several pages of documents, and columns with and without dictionaries, numbers, and
/// lists.
fn entities(version: usize) -> String {
    let entity = |number: usize| {
        let text = format!("Größe {} {}", number * 7919 % 1_000, "lorem ipsum ".repeat(number % 90));
        let changed = if number.is_multiple_of(17) { version } else { 0 };
        json!({
            "name": format!("Entity {}", number % 40), "i": number, "f": number as f64 / 8.0, "tags": ["x", format!("T{}", number % 5)],
            "nested": {"a": [{"b": number % 3}, {"b": null}], "empty": ""}, "text": text, "changed": changed,
            "_source": format!("https://a.test/{}", number % 150),
        })
        .to_string()
    };
    format!("[{}]", (0..300 - 7 * version).map(entity).collect::<Vec<_>>().join(","))
}

/// Returns the URIs of every kind of read: entities, diffs, profiles, and explanations.
pub fn reads(id: u64, slug: &str) -> Vec<String> {
    let base = format!("/api/{id}/{slug}");
    let mut reads: Vec<String> = [
        "",
        "?format=jsonl&pretty=false",
        "?format=csv",
        "?format=tsv&limit=40&offset=250",
        "?format=xml&limit=100",
        "?format=parquet",
        "?limit=3&offset=290",
        "?filter=i:21",
        "?filter=name:entity%207&filter=tags:t2&format=jsonl",
        "?filter=f:2.5&count=true",
        "?filter=nested.a.b:null&limit=2",
        "?filter_contains=text:gr%C3%B6%C3%9Fe%209&keep_field=name,i",
        "?sort=f:desc&limit=5",
        "?sort=name&limit=20&offset=30",
        "?dedup=true&dedup_key=name&format=jsonl",
        "?dedup=true&count=true",
        "?keywords=ipsum,entity&keywords_mode=and&limit=4",
        "?keywords=t3&denull=true&drop_field=text&include_source=false&format=csv",
        "?count=true",
        "?flatten=true&limit=2",
    ]
    .iter()
    .map(|query| format!("{base}/v1/{query}"))
    .collect();
    for query in ["v2/?format=jsonl", "v1/alt/?format=jsonl", "active/?count=true", "latest/?sort=i:desc&limit=1"] {
        reads.push(format!("{base}/{query}"));
    }
    reads.push(format!("/dataset/diff?dataset_id={id}&v1=1&v2=2&limit=20"));
    reads.push(format!("/dataset/profile?dataset_id={id}&version=1"));
    reads.push(format!("/dataset/explain?dataset_id={id}&version=1&explain=json&filter=tags:t2&sort=f:desc&limit=3"));
    reads
}

/// Makes a read. From an explanation, only the parts remain that do not depend on times and caches.
pub async fn ask(service: &TestService, token: &str, uri: &str) -> Answer {
    let mut answer = match uri.starts_with("/api/") {
        true => service.get(uri).await,
        false => call(service, token, "GET", uri, "").await,
    };
    if uri.starts_with("/dataset/explain") && answer.status == 200 {
        let explained: Value = serde_json::from_slice(&answer.body).expect("failed to parse JSON");
        answer.body = explained_rows(&explained).into_bytes().into();
    }
    answer
}

/// Returns the operators of an explanation with their row counts.
fn explained_rows(explained: &Value) -> String {
    match explained {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| {
                !["_us", "_ms", "time", "memory", "cache", "store", "requests", "waited"]
                    .iter()
                    .any(|not| name.contains(not))
            })
            .map(|(name, value)| format!("{name}={};", explained_rows(value)))
            .collect(),
        Value::Array(items) => items.iter().map(explained_rows).collect(),
        other => other.to_string(),
    }
}

async fn owned() -> Owned {
    // Caches are disabled, so that every read uses the files.
    Owned::configured(
        |config| {
            config.cache.memory_bytes = Some(0);
            (config.cache.response_bytes, config.cache.diff_bytes, config.cache.export_bytes) = (0, 0, 0);
        },
        None,
    )
    .await
}

/// Creates a dataset with two versions and an alternate, and a second dataset.
async fn service_with_datasets() -> (Owned, u64) {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[&entities(1), &entities(2)]).await;
    parsed(&owned.save(id, 1, &entities(3)).await);
    owned.dataset("Others", json!({}), &[&entities(4)]).await;
    (owned, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: damages files hundreds of times"]
async fn reads_of_damaged_file_are_right_or_fail() {
    let (owned, id) = service_with_datasets().await;
    let files = owned.service.version_files();
    assert_eq!(files.len(), 4);
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a file")).collect();
    let reads = reads(id, "things");
    let mut before = Vec::new();
    for uri in &reads {
        let answer = ask(&owned.service, &owned.token, uri).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
        before.push(answer);
    }
    let mut tally = DamageTally::default();
    let mut count = 0;
    for seed in damages(40) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = Damage::draw(&mut random);
        let hit = random.random_range(0..files.len());
        let other = (hit + random.random_range(1..files.len())) % files.len();
        let damaged = kind.apply(&whole[hit], &whole[other], &mut random);
        if damaged == whole[hit] {
            continue;
        }
        count += 1;
        fs::write(&files[hit], &damaged).expect("written");
        let fresh = owned.service.open_instance(|_| {}).await;
        let what = format!("seed {seed}, {kind:?} in file {hit}");
        let mut failed = Vec::new();
        for (uri, before) in reads.iter().zip(&before) {
            if tally.compare(&what, uri, before, &ask(&fresh, &owned.token, uri).await) {
                failed.push((uri, before));
            }
        }
        if !failed.is_empty() {
            tally.noticed(kind);
        }
        // After the file is restored, the process that found the damage reads it again.
        fs::write(&files[hit], &whole[hit]).expect("written");
        for (uri, before) in failed.iter().take(3) {
            let answer = ask(&fresh, &owned.token, uri).await;
            assert_eq!((answer.status, &answer.body), (200, &before.body), "{what}, restored: {uri}");
        }
    }
    tally.assert_right_or_failed(count, "version files");
    // One of the four files belongs to a dataset that these reads do not use, and few reads use some of the bits.
    assert!(tally.noticed * 4 > count, "{} of {count} damages were noticed", tally.noticed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: damages files hundreds of times"]
async fn check_and_scrub_find_every_changed_byte() {
    let (owned, _) = service_with_datasets().await;
    let files = owned.service.version_files();
    let file = &files[0];
    let whole = fs::read(file).expect("failed to read the file");
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..12 {
        // The first four bytes are the same in every Parquet file.
        let at = random.random_range(4..whole.len());
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.random_range(0..8);
        fs::write(file, bytes).expect("written");
        let mut damaged_files = Vec::new();
        let scrubbed =
            owned.service.services.maintenance.scrub(0, &mut |damaged| damaged_files.push(damaged.clone())).await;
        let scrubbed = scrubbed.expect("failed to scrub");
        assert_eq!((scrubbed.files, scrubbed.damaged, damaged_files.len()), (4, 1, 1), "byte {at} of {}", whole.len());
        assert!(
            file.ends_with(&damaged_files[0].path)
                && damaged_files[0].versions.as_ref().is_some_and(|versions| !versions.is_empty()),
            "{damaged_files:?}"
        );
        let checked = owned.service.check(Depth::Everything).await;
        assert_eq!(checked.damaged, 1, "byte {at}: {:?}", checked.findings);
    }
    fs::write(file, whole).expect("written");
    assert_eq!(owned.service.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged, 0);
}

#[tokio::test]
async fn file_without_footer_checksum_is_damaged() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[&entities(1)]).await;
    let file = newest(&owned.service);
    let mut bytes = fs::read(&file).expect("failed to read the file");
    let at = bytes.windows(12).rposition(|window| window == b"strata.seal:").expect("the seal");
    bytes[at..at + 12].copy_from_slice(b"strata.past:");
    fs::write(&file, bytes).expect("written");
    let fresh = owned.service.open_instance(|_| {}).await;
    fresh.get(&format!("/api/{id}/things/v1/")).await.is_error(500);
    assert_eq!(fresh.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub").damaged, 1);
}

/// Returns the path of the newest version file.
fn newest(service: &TestService) -> PathBuf {
    let files = service.version_files();
    files.into_iter().max_by_key(|file| file.metadata().expect("a file").modified().expect("a time")).expect("a file")
}

/// Changes a byte of the documents and returns the original file.
fn damage(file: &std::path::Path) -> Vec<u8> {
    let whole = fs::read(file).expect("failed to read the file");
    damage_documents(file);
    whole
}

#[tokio::test]
async fn refresh_shares_only_intact_files() {
    let owned = owned().await;
    let good = entities(1);
    let id = owned.dataset("Things", json!({}), &[&good, &good]).await;
    assert_eq!(owned.service.version_files().len(), 1, "the same entities share a file");
    let right = owned.lines(&format!("/api/{id}/things/v1/")).await;
    let file = newest(&owned.service);
    damage(&file);
    owned.service.get(&format!("/api/{id}/things/v2/?format=jsonl")).await.is_error(500);
    owned.push(id, &good).await;
    assert_eq!(owned.service.version_files().len(), 2, "a damaged file is not shared");
    assert_eq!(owned.lines(&format!("/api/{id}/things/v3/")).await, right);
    owned.service.get(&format!("/api/{id}/things/v1/?format=jsonl")).await.is_error(500);
    // The scrub reports that another file has the same content.
    let mut damaged_files = Vec::new();
    let scrubbed =
        owned.service.services.maintenance.scrub(0, &mut |damaged| damaged_files.push(damaged.clone())).await;
    scrubbed.expect("failed to scrub");
    let [damaged] = damaged_files.as_slice() else { panic!("{damaged_files:?}") };
    let versions: Vec<String> = damaged.versions.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(versions, [format!("dataset {id} \"Things\" v1"), format!("dataset {id} \"Things\" v2")]);
    let copy = damaged.intact_copy.as_ref().expect("an intact copy");
    assert!(owned.service.version_files().iter().any(|file| file.ends_with(copy)) && !file.ends_with(copy));
}

#[tokio::test]
async fn unchanged_source_is_fetched_if_file_is_damaged() {
    let server = LoopbackServer::start(|request| match request.header("if-none-match") {
        Some("\"one\"") => Reply::Bytes(with_status("304 Not Modified", "ETag: \"one\"\r\n", b"")),
        _ => ok("Content-Type: application/json\r\nETag: \"one\"\r\n", br#"[{"a":1}]"#),
    });
    // Returns the numbers of unconditional and of conditional requests to the source.
    let asked = || {
        let asked = server.take_received();
        let questions = asked.iter().filter(|request| request.header("if-none-match").is_some()).count();
        (asked.len() - questions, questions)
    };
    let owned = Owned::configured(
        |config| {
            config.net.allow =
                AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks")
        },
        None,
    )
    .await;
    let source = json!({"source": server.url("/data.json")});
    let id = owned.dataset("Things", source, &[]).await;
    let refresh =
        async || parsed(&owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await);
    refresh().await;
    refresh().await;
    assert_eq!((owned.service.version_files().len(), asked()), (1, (1, 1)), "the file is shared without a transfer");
    damage(&newest(&owned.service));
    refresh().await;
    assert_eq!((owned.service.version_files().len(), asked()), (2, (1, 1)), "a conditional request, then a full one");
    let fresh = owned.service.open_instance(|_| {}).await;
    let answer = fresh.get(&format!("/api/{id}/things/v3/?format=jsonl")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    fresh.get(&format!("/api/{id}/things/v1/?format=jsonl")).await.is_error(500);
}

#[tokio::test]
async fn damaged_version_is_not_cloned() {
    let owned = owned().await;
    let id = owned.dataset("Things", json!({}), &[&entities(1)]).await;
    parsed(&owned.clone(id, "A sound clone").await);
    parsed(&owned.save(id, 1, &entities(2)).await);
    let whole = damage(&newest(&owned.service));
    let refused = owned.clone(id, "A clone").await;
    refused.is_error(500);
    assert!(!refused.text().contains("versions/"), "{}", refused.text());
    // The service checks conditions that need no file before it reads one.
    owned.clone(id, "A sound clone").await.is_error(409);
    owned.clone(id + 100, "A clone").await.is_error(404);
    fs::write(newest(&owned.service), whole).expect("failed to restore the file");
    parsed(&owned.clone(id, "A clone").await);
}

#[tokio::test]
async fn damage_is_logged_once_with_all_datasets() {
    let owned = owned().await;
    let good = entities(1);
    let id = owned.dataset("Things", json!({}), &[&good, &good]).await;
    let clone =
        parsed(&owned.clone(id, "A clone").await)["dataset"]["dataset_id"].as_u64().expect("failed to find the ID");
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let fresh = owned.service.open_instance(|_| {}).await;
    let file = newest(&owned.service);
    let whole = damage(&file);
    let read = format!("/api/{id}/things/v1/?format=jsonl");
    for _ in 0..3 {
        fresh.get(&read).await.is_error(500);
    }
    // A background task logs the damage once. Further failed reads log nothing.
    let is_named = |line: &Value| line["fields"]["versions"].is_string();
    eventually("the damaged file is logged", async || log.lines().iter().any(is_named)).await;
    fresh.get(&read).await.is_error(500);
    let lines = log.take();
    let named: Vec<&Value> = lines.iter().filter(|line| is_named(line)).collect();
    let [line] = named.as_slice() else { panic!("{lines:?}") };
    assert_eq!(line["level"], json!("ERROR"));
    assert!(file.ends_with(line["fields"]["path"].as_str().expect("a path")), "{line}");
    assert!(line["fields"]["error"].as_str().expect("an error").contains("does not match its checksum"), "{line}");
    let versions = format!("dataset {id} \"Things\" v1, dataset {id} \"Things\" v2, dataset {clone} \"A clone\" v1");
    assert_eq!(line["fields"]["versions"], json!(versions));
    // After the repair, the file is read at once. After its deletion, the log calls it missing.
    fs::write(&file, whole).expect("failed to restore the file");
    assert_eq!(fresh.get(&read).await.status, 200);
    fs::remove_file(&file).expect("failed to remove the file");
    fresh.get(&read).await.is_error(500);
    let is_logged = async || log.lines().iter().any(|line| line.to_string().contains("the file is missing"));
    eventually("the missing file is logged", is_logged).await;
}

#[test]
fn failed_command_names_versions_of_damaged_file() {
    let machine = Machine::with_user();
    for text in ["{\"a\":1}\n", "{\"a\":1}\n{\"a\":2}\n"] {
        machine.write("small.jsonl", text);
        assert_eq!(machine.import("small.jsonl", &[]).status.code(), Some(0));
    }
    let files = strata_testing::files(&machine.path("strata-data/store/versions"));
    assert_eq!(files.len(), 2);
    for file in files {
        fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(100)).expect("cut");
    }
    // Regression test: most runs closed the catalog before they looked up the versions, and then reported an
    // unreachable database server.
    for _ in 0..5 {
        let output = machine.run(&["diff", "1", "1", "2"]);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).expect("text");
        let line = stderr.lines().find(|line| line.contains("its versions return 500")).unwrap_or(&stderr);
        assert!(line.contains("versions=") && line.contains("Small Things") && line.contains(" v1"), "{stderr}");
        assert!(!stderr.contains("\"unknown"), "{stderr}");
    }
}

#[test]
fn scrub_command_exits_1_and_lists_files_to_restore() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n{\"a\":2}\n");
    for name in ["Things", "Other Things"] {
        let imported = machine.run(&["import", "small.jsonl", "--name", name, "--owner", "ada@example.test"]);
        assert_eq!(imported.status.code(), Some(0));
    }
    let scrub = |arguments: &[&str], code: i32| {
        let output = machine.run(&[&["scrub"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let whole = scrub(&[], 0);
    assert!(whole.starts_with("read 2 files (") && whole.ends_with(" bytes): 0 damaged\n"), "{whole}");
    let files = strata_testing::files(&machine.path("strata-data/store"));
    damage(&files[0]);
    let name = format!("versions/{}", files[0].file_name().expect("a name").to_string_lossy());
    let other = format!("versions/{}", files[1].file_name().expect("a name").to_string_lossy());
    let report = scrub(&["--bytes-per-s", "1000000"], 1);
    let first = report.lines().next().expect("a line");
    assert!(first.starts_with(&format!("damaged {name}: ")), "{report}");
    assert!(first.ends_with(&format!("Things\" v1; {other} is intact and contains the same entities)")), "{report}");
    let report = scrub(&["--json"], 1);
    let lines: Vec<Value> =
        report.lines().map(|line| serde_json::from_str(line).expect("failed to parse JSON")).collect();
    assert_eq!((&lines[0]["path"], &lines[0]["intact_copy"]), (&json!(name), &json!(other)));
    assert_eq!((&lines[1]["files"], &lines[1]["damaged"]), (&json!(2), &json!(1)));
}

#[test]
fn server_scrubs_periodically() {
    let machine = Machine::with_user();
    for (name, text) in [("One", "{\"a\":1}\n"), ("Two", "{\"a\":2}\n"), ("Three", "{\"a\":3}\n")] {
        machine.write("small.jsonl", text);
        machine.run(&["import", "small.jsonl", "--name", name, "--owner", "ada@example.test"]);
    }
    let files = strata_testing::files(&machine.path("strata-data/store"));
    damage(&files[0]);
    let options = [("STRATA_SCRUB__INTERVAL_S", "1"), ("STRATA_SCRUB__BYTES_PER_S", "1000000")];
    let server = Server::start(&machine, &[], &options);
    let found = |server: &Server| {
        let (_, body) = get(&format!("{}/metrics", server.base_url), None);
        let value = |name: &str| -> f64 {
            let line = body.lines().find(|line| line.starts_with(&format!("{name} ")));
            line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0.0)
        };
        (value("strata_scrubbed_damaged_files_total"), value("strata_scrubbed_bytes_total"))
    };
    while found(&server).0 == 0.0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(found(&server).1 > 0.0);
}

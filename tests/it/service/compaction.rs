//! Compaction: a delta version with many extents gets a complete file in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use strata_config::Config;
use strata_service::AlternatePosition;
use strata_testing::maintenance::Depth;
use strata_testing::metrics::value;
use strata_testing::owned::{Owned, add_user, parsed};
use strata_testing::watched_store::{StoreRequest, Watch, WatchedStore};
use strata_testing::{Answer, TestService, eventually};
use strata_types::ids::DatasetId;
use strata_types::user::UserPlan;
use strata_types::version::{DatasetVersion, VersionNumber};
use tokio::sync::Semaphore;

const ENTITIES: usize = 30_000;

/// A list of which each round replaces every 25th entity. Two rounds result in more than 4,500 extents, 60 % of the
/// limit.
struct ChangingList {
    words: usize,
    entities: Vec<String>,
}

impl ChangingList {
    fn new(words: usize) -> ChangingList {
        let mut list = ChangingList { words, entities: Vec::new() };
        list.entities = (0..ENTITIES).map(|number| list.entity(number, 0)).collect();
        list
    }

    fn entity(&self, number: usize, round: usize) -> String {
        let words = format!("word{} ", number % 977).repeat(self.words);
        format!(r#"{{"id":{number},"round":{round},"kind":"k{}","words":"{words}"}}"#, number % 7)
    }

    fn change(&mut self, round: usize) {
        for number in (round * 5 % 25..ENTITIES).step_by(25) {
            self.entities[number] = self.entity(number, round);
        }
    }

    fn json(&self) -> String {
        format!("[{}]", self.entities.join(","))
    }

    fn lines(&self) -> String {
        lines(&self.entities)
    }
}

fn lines(entities: &[String]) -> String {
    entities.iter().map(|entity| format!("{entity}\n")).collect()
}

async fn version(owned: &Owned, dataset: u64, number: u64) -> DatasetVersion {
    let catalog = owned.service.catalog().await;
    let status = catalog.version(DatasetId::new(dataset), VersionNumber::new(number)).await;
    status.expect("missing version").version
}

/// Returns the paths of the bases of a version's file.
async fn bases(owned: &Owned, dataset: u64, number: u64) -> Vec<String> {
    let file = version(owned, dataset, number).await.file;
    let bases = owned.service.catalog().await.bases_of_file(file.id).await;
    bases.expect("failed to query catalog").into_iter().map(|base| base.path).collect()
}

async fn wait_for_complete_file(owned: &Owned, dataset: u64, number: u64) {
    eventually("version is not compacted", async || bases(owned, dataset, number).await.is_empty()).await;
}

/// Sweeps and returns the paths of the removed files.
async fn sweep(owned: &Owned, older_than: Duration) -> Vec<String> {
    let mut swept = Vec::new();
    let maintenance = &owned.service.services.maintenance;
    maintenance.sweep(older_than, &mut |file| swept.push(file.path.clone())).await.expect("failed to sweep");
    swept
}

/// A store whose writes need permits.
#[derive(Clone, Debug)]
struct WriteGate(Arc<Semaphore>);

#[async_trait]
impl Watch for WriteGate {
    async fn before(&self, request: StoreRequest<'_>) -> object_store::Result<()> {
        if matches!(request, StoreRequest::Put | StoreRequest::Upload) {
            self.0.acquire().await.expect("semaphore is closed").forget();
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scattered_changes_are_compacted() {
    let owned = Owned::sqlite().await;
    let mut list = ChangingList::new(4);
    let id = owned.dataset("Things", json!({}), &[&list.json()]).await;
    let mut expected = vec![list.lines()];
    for round in 1..=2 {
        list.change(round);
        owned.push(id, &list.json()).await;
        expected.push(list.lines());
    }
    wait_for_complete_file(&owned, id, 3).await;
    let compacted = version(&owned, id, 3).await.file;
    // Version 2 has about 2,400 extents, which are not worth a compaction.
    assert_eq!(bases(&owned, id, 2).await, [version(&owned, id, 1).await.file.path]);
    eventually("compaction is not counted", async || {
        value(&owned.service.metrics(), "strata_compactions_total{outcome=\"compacted\"}").is_some_and(|n| n >= 1.0)
    })
    .await;

    // The next refresh uses the complete file as its base, and its version has few extents again.
    list.change(3);
    owned.push(id, &list.json()).await;
    expected.push(list.lines());
    assert_eq!(bases(&owned, id, 4).await, [compacted.path]);

    // A refresh with the entities of a compacted version shares the complete file.
    let third = expected[2].lines().collect::<Vec<_>>().join(",");
    owned.push(id, &format!("[{third}]")).await;
    assert_eq!(version(&owned, id, 5).await.file.id, compacted.id);
    expected.push(expected[2].clone());

    // Nothing needs the replaced file, so that it is swept after its minimum age.
    assert_eq!(sweep(&owned, Duration::from_secs(3_600)).await, [""; 0]);
    let swept = sweep(&owned, Duration::ZERO).await;
    assert_eq!(swept.len(), 1, "{swept:?}");
    for (version, expected) in (1..).zip(&expected) {
        assert!(owned.lines(&format!("/api/{id}/things/v{version}/")).await == *expected, "v{version}");
    }
    let found = owned.service.check(Depth::Everything).await.findings;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_changes_no_responses() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let mut config = Config::default();
    config.data.directory = directory.path().to_owned();
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    // Nothing is cached that could be returned instead of the files.
    config.cache.response_bytes = 0;
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let gate = WriteGate(Arc::new(Semaphore::new(100)));
    let gated = WatchedStore { inner: objects.clone(), watch: gate.clone() };
    let service = TestService::open_with_store(&config, Arc::new(gated)).await;
    let (user, token) = add_user(&service, "ada@strata.test", UserPlan::Pro).await;
    let owned = Owned { service, user, token, _server: None };
    // Another process, whose writes need no permits.
    let service = TestService::open_with_store(&config, objects).await;
    let other = Owned { service, user: owned.user.clone(), token: owned.token.clone(), _server: None };

    // Long entities, so that an edit does not write the list in full.
    let mut list = ChangingList::new(75);
    let id = owned.dataset("Things", json!({}), &[&list.json()]).await;
    list.change(1);
    owned.push(id, &list.json()).await;
    list.change(2);
    gate.0.forget_permits(100);
    gate.0.add_permits(1);
    owned.push(id, &list.json()).await;
    let before = version(&owned, id, 3).await;
    let first_base = bases(&owned, id, 3).await.pop().expect("missing base");
    assert_eq!(first_base, version(&owned, id, 1).await.file.path);

    // During the compaction, which waits for its permit, the version is read, edited, and cloned.
    let uris: Vec<String> = ["", "filter=round:2&sort=id:desc", "keywords=word12&limit=90", "format=csv&offset=29000"]
        .map(|query| format!("/api/{id}/things/v3/?{query}"))
        .into();
    let read = async || {
        let mut answers = Vec::new();
        for uri in &uris {
            let answer: Answer = owned.service.get(uri).await;
            assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
            let etag = answer.header("etag").expect("missing ETag").to_owned();
            answers.push((etag, answer.body));
        }
        answers
    };
    let answers = read().await;
    assert!(owned.lines(&format!("/api/{id}/things/v3/")).await == list.lines());
    let edit = |etag: &str, edits: &str| {
        format!(r#"{{"dataset_id":{id},"version":3,"etag":{},"edits":{edits}}}"#, json!(etag))
    };
    let etag = other.etag(id, 3).await;
    let body = edit(&etag, r#"[{"position":10,"remove":true},{"position":20,"set":{"id":-1}}]"#);
    parsed(&other.call("POST", "/dataset/alternate/edit", &body).await);
    let mut edited = list.entities.clone();
    edited[20] = r#"{"id":-1}"#.to_owned();
    edited.remove(10);
    let clone = parsed(&other.clone(id, "Clone").await)["dataset"]["dataset_id"].as_u64().expect("missing ID");
    let etag = other.etag(id, 3).await;
    let request = Request::get(format!("/api/{id}/things/v3/?format=jsonl")).body(Body::empty());
    let running = owned.service.respond(request.expect("failed to build request")).await;
    assert_eq!(version(&owned, id, 3).await.file, before.file, "the compaction waits");

    gate.0.add_permits(100);
    wait_for_complete_file(&owned, id, 3).await;
    let after = version(&owned, id, 3).await;
    assert_ne!(after.file.id, before.file.id);
    assert_eq!((&after.file.content_hash, after.created_at), (&before.file.content_hash, before.created_at));

    // The running read continues with the old file, which the sweep does not remove before its minimum age.
    assert_eq!(sweep(&owned, Duration::from_secs(3_600)).await, [""; 0]);
    let running = running.into_body().collect().await.expect("failed to read body").to_bytes();
    assert!(running == list.lines(), "the running read returned other entities");
    assert!(read().await == answers, "the responses or their ETags changed");

    // The alternate and the clone need the old file.
    assert_eq!(sweep(&owned, Duration::ZERO).await, [""; 0]);
    assert_eq!(owned.etag(id, 3).await, etag, "a compaction changes nothing for clients that edit");
    let alt = format!("/api/{id}/things/v3/alt/");
    assert!(owned.lines(&alt).await == lines(&edited));
    let find = async |position| {
        let found = owned.service.services.reads.find_in_alternate(&after, position).await;
        found.expect("failed to read").expect("missing position")
    };
    assert_eq!(find(9).await, AlternatePosition::Unchanged(9));
    assert_eq!(find(29_999).await, AlternatePosition::Unchanged(29_998));
    parsed(&owned.call("POST", "/dataset/alternate/edit", &edit(&etag, r#"[{"position":0,"remove":true}]"#)).await);
    edited.remove(0);
    assert!(owned.lines(&alt).await == lines(&edited));
    assert_eq!(version(&owned, clone, 1).await.file, before.file);
    assert!(owned.lines(&format!("/api/{clone}/clone/v1/")).await == list.lines());
    sweep(&owned, Duration::ZERO).await;
    let body = format!(r#"{{"dataset_id":{id},"version":3}}"#);
    parsed(&owned.call("DELETE", "/dataset/alternate/delete", &body).await);
    sweep(&owned, Duration::ZERO).await;
    assert!(owned.lines(&format!("/api/{clone}/clone/v1/")).await == list.lines());
    let found = owned.service.check(Depth::Everything).await.findings;
    assert!(found.is_empty(), "{found:?}");
}

/// Returns requests of all versions with random conditions, orders, pages, and formats.
fn random_uris(id: u64, random: &mut StdRng, count: usize) -> Vec<String> {
    let uri = |random: &mut StdRng| {
        let version = random.random_range(1..=3);
        let number = random.random_range(0..977);
        let condition = match random.random_range(0..5) {
            0 => format!("filter=k:k{}", number % 7),
            1 => format!("filter_gte=id:{}", number * 30),
            2 => format!("filter=round:{}&count=true", number % 3),
            3 => format!("keywords=word{number}"),
            _ => "total=true".to_owned(),
        };
        let order = ["", "&sort=id:desc", "&sort=round:asc", "&dedup=true&dedup_key=words"][random.random_range(0..4)];
        let format = ["json", "jsonl", "csv", "xml", "parquet"][random.random_range(0..5)];
        let offset = random.random_range(0..200);
        format!("/api/{id}/things/v{version}/?{condition}{order}&format={format}&offset={offset}&limit=300")
    };
    (0..count).map(|_| uri(random)).collect()
}

/// Reads the next frame of a body and appends its bytes. Returns false at the end of the body.
async fn read_frame(body: &mut Body, bytes: &mut Vec<u8>) -> bool {
    let Some(frame) = body.frame().await else { return false };
    bytes.extend_from_slice(frame.expect("failed to read body").data_ref().expect("a frame without data"));
    true
}

/// Slow downloads read the replaced file to its end, while sweeps run. Random requests of two processes get
/// the same responses before, during, and after the compaction and the removal of the replaced file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_unaffected_by_compaction_and_sweep() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let mut config = Config::default();
    config.data.directory = directory.path().to_owned();
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    // All requests read the files.
    config.cache.response_bytes = 0;
    config.cache.memory_bytes = Some(0);
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let gate = WriteGate(Arc::new(Semaphore::new(100)));
    let gated = WatchedStore { inner: objects.clone(), watch: gate.clone() };
    let service = TestService::open_with_store(&config, Arc::new(gated)).await;
    let (user, token) = add_user(&service, "ada@strata.test", UserPlan::Pro).await;
    let owned = Owned { service, user, token, _server: None };
    let other = TestService::open_with_store(&config, objects).await;

    let mut list = ChangingList::new(40);
    let id = owned.dataset("Things", json!({}), &[&list.json()]).await;
    list.change(1);
    owned.push(id, &list.json()).await;
    list.change(2);
    gate.0.forget_permits(100);
    gate.0.add_permits(1);
    owned.push(id, &list.json()).await;

    // The compaction waits for its permit.
    let replaced = version(&owned, id, 3).await.file;
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let uris = random_uris(id, &mut random, 40);
    let mut expected = Vec::new();
    for uri in &uris {
        let answer = owned.service.get(uri).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
        expected.push((answer.header("etag").map(str::to_owned), answer.body));
    }
    let mut downloads = Vec::new();
    for service in [&owned.service, &other] {
        let request = Request::get(format!("/api/{id}/things/v3/?format=jsonl")).body(Body::empty());
        let mut body = service.respond(request.expect("failed to build request")).await.into_body();
        let mut bytes = Vec::new();
        assert!(read_frame(&mut body, &mut bytes).await);
        downloads.push((body, bytes));
    }
    assert_eq!(version(&owned, id, 3).await.file, replaced, "the compaction waits");

    let is_done = AtomicBool::new(false);
    let requests = [const { AtomicUsize::new(0) }; 4];
    // Repeats random requests until the replaced file is removed.
    let read = async |reader: usize| {
        let mut random = StdRng::seed_from_u64(seed + reader as u64 + 1);
        while !is_done.load(Ordering::Relaxed) {
            let number = random.random_range(0..uris.len());
            let service = if reader.is_multiple_of(2) { &owned.service } else { &other };
            let answer = service.get(&uris[number]).await;
            let (etag, body) = &expected[number];
            let is_same = (answer.status, answer.whole, &answer.body) == (200, true, body);
            let is_same = is_same && answer.header("etag") == etag.as_deref();
            assert!(is_same, "{}, seed {seed}: {}", uris[number], answer.status);
            requests[reader].fetch_add(1, Ordering::Relaxed);
        }
    };
    // Waits until each reader has received another response.
    let more_requests = async || {
        let before: Vec<usize> = requests.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        eventually("the readers do not continue", async || {
            requests.iter().zip(&before).all(|(count, before)| count.load(Ordering::Relaxed) > *before)
        })
        .await;
    };
    let age = Duration::from_secs(config.sweep.older_than_s);
    let replace = async {
        more_requests().await;
        gate.0.add_permits(100);
        wait_for_complete_file(&owned, id, 3).await;
        assert_eq!(sweep(&owned, age).await, [""; 0], "the replaced file is not old enough");
        more_requests().await;
        for (body, bytes) in &mut downloads {
            let mut frames = 0;
            while read_frame(body, bytes).await {
                frames += 1;
                if frames % 16 == 0 {
                    assert_eq!(sweep(&owned, age).await, [""; 0]);
                }
            }
            assert!(*bytes == list.lines().into_bytes(), "a download has other bytes");
        }
        // Makes the replaced file old enough.
        let old = "UPDATE files SET unreferenced_since = 1 WHERE unreferenced_since IS NOT NULL";
        strata_testing::catalog::execute_in(directory.path(), old).await;
        assert_eq!(sweep(&owned, age).await, std::slice::from_ref(&replaced.path));
        more_requests().await;
        is_done.store(true, Ordering::Relaxed);
    };
    tokio::join!(replace, read(0), read(1), read(2), read(3));
    let found = owned.service.check(Depth::Everything).await.findings;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_stops_with_process() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let mut config = Config::default();
    config.data.directory = directory.path().to_owned();
    let gate = WriteGate(Arc::new(Semaphore::new(100)));
    let gated = WatchedStore { inner: Arc::new(InMemory::new()), watch: gate.clone() };
    let service = TestService::open_with_store(&config, Arc::new(gated)).await;
    let (user, token) = add_user(&service, "ada@strata.test", UserPlan::Pro).await;
    let owned = Owned { service, user, token, _server: None };
    let mut list = ChangingList::new(4);
    let id = owned.dataset("Things", json!({}), &[&list.json()]).await;
    list.change(1);
    owned.push(id, &list.json()).await;
    list.change(2);
    gate.0.forget_permits(100);
    gate.0.add_permits(1);
    owned.push(id, &list.json()).await;
    let stopping = owned.service.services.refreshes.finish_or_stop_refreshes(Duration::from_secs(600));
    tokio::time::timeout(Duration::from_secs(60), stopping).await.expect("waited for the compaction");
    assert_eq!(bases(&owned, id, 3).await.len(), 2);
    gate.0.add_permits(100);
}

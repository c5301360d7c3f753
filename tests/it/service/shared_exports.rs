//! Exports that servers share in the store: made once, the same bytes at all, and nothing lost when they are.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strata_config::{Config, Endpoint, StoreUrl};
use strata_testing::s3_server::S3Server;
use strata_testing::{Answer, TestService, eventually, files, metrics};
use strata_types::secret::Secret;

const EXPORT: &str = "/api/1/noise/v1/?format=parquet&total=true";

fn on(server: &S3Server, config: &mut Config) {
    config.store.url = Some(StoreUrl::try_from("s3://bucket/strata".to_owned()).expect("a URL"));
    config.store.endpoint = Some(Endpoint::try_from(server.endpoint()).expect("an endpoint"));
    config.store.region = Some("us-east-1".to_owned());
    config.store.access_key_id = Some("key".to_owned());
    config.store.secret_access_key = Some(Secret::from_stored("secret".to_owned()));
    config.store.allow_http = true;
    // One of several servers, though the catalog is a file.
    config.cluster.lost_after_s = 60;
}

/// Entities whose export is of several blocks and pieces: their texts do not compress well.
fn noise(entities: usize) -> String {
    let (mut state, mut text) = (1_u64, String::new());
    for number in 0..entities {
        let _ = write!(text, "{{\"number\":{number},\"text\":\"");
        for _ in 0..32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(text, "{:016x}", state ^ (state >> 29));
        }
        text.push_str("\"}\n");
    }
    text
}

/// A server with a dataset, and the store of both.
async fn first() -> (S3Server, TestService) {
    let server = S3Server::start().await;
    let service = TestService::configured(|config| on(&server, config)).await;
    service.import("Noise", &noise(20_000)).await;
    (server, service)
}

/// The exports in the store.
fn objects(server: &S3Server) -> Vec<PathBuf> {
    let folder = server.bucket().join("strata/shared-exports");
    if folder.exists() { files(&folder).into_iter().filter(|path| is_export(path)).collect() } else { Vec::new() }
}

fn is_export(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}

async fn one_object(server: &S3Server) -> PathBuf {
    eventually("the export is in the store", async || objects(server).len() == 1).await;
    objects(server).remove(0)
}

/// Takes the version files away: from here on no export can be made.
fn without_version_files(server: &S3Server) -> PathBuf {
    let (versions, aside) = (server.bucket().join("strata/versions"), server.bucket().join("aside"));
    std::fs::rename(&versions, &aside).expect("moved");
    aside
}

async fn whole(service: &TestService) -> Answer {
    let answer = service.get(EXPORT).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

async fn range(service: &TestService, range: &str, etag: &str) -> Answer {
    service.get_with(EXPORT, &[("range", range), ("if-range", etag)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_made_others_fetch() {
    let (server, one) = first().await;
    let made = whole(&one).await;
    assert!(made.body.len() > 5 << 20, "{}", made.body.len());
    let object = one_object(&server).await;
    let stored = std::fs::read(&object).expect("read");
    assert!(stored.starts_with(&made.body) && stored.len() - made.body.len() < 1_000);
    // Nobody can make it now.
    without_version_files(&server);
    let two = one.beside(|_| ()).await;
    let fetched = whole(&two).await;
    assert!(fetched.body == made.body);
    for name in ["etag", "x-total-count", "x-total-matches", "content-type", "content-disposition"] {
        assert_eq!(fetched.header(name), made.header(name), "{name}");
    }
    // A download goes on at a server that has nothing of it, with the length known at once.
    let (three, bytes) = (one.beside(|_| ()).await, made.body.len());
    let etag = made.header("etag").expect("an ETag");
    let part = range(&three, &format!("bytes={}-", bytes - 3_000_000), etag).await;
    assert_eq!((part.status, part.body.len()), (206, 3_000_000));
    assert_eq!(part.header("content-range"), Some(&*format!("bytes {}-{}/{bytes}", bytes - 3_000_000, bytes - 1)));
    assert!(part.body == made.body[bytes - 3_000_000..]);
    assert_eq!(range(&three, &format!("bytes={bytes}-"), etag).await.status, 416);
    // It is in its own cache by now.
    server.refuse(&["GET", "HEAD"]);
    assert!(whole(&three).await.body == made.body);
    server.refuse(&[]);
    // Without room of its own, a server passes it on.
    let small = one.beside(|config| config.cache.export_bytes = 1_000_000).await;
    assert!(whole(&small).await.body == made.body);
    // One that does not share has to make it.
    let alone = one.beside(|config| config.cache.shared_export_bytes = 0).await;
    assert_ne!(alone.get(EXPORT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_asked_at_once_store_one_object() {
    let (server, one) = first().await;
    let (two, three) = (one.beside(|_| ()).await, one.beside(|_| ()).await);
    let (a, b, c) = tokio::join!(whole(&one), whole(&two), whole(&three));
    assert!(a.body == b.body && a.body == c.body);
    one_object(&server).await;
    // What is small is not worth it.
    one.import("Small", "[{\"a\":1}]").await;
    assert_eq!(one.get("/api/2/small/v1/?format=parquet").await.status, 200);
    assert_eq!(objects(&server).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_is_damaged_or_gone_is_made_and_no_wrong_byte_is_sent() {
    let (server, one) = first().await;
    let made = whole(&one).await;
    let bytes = made.body.len();
    type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);
    let damages: [Damage<'_>; 6] = [
        // Before anything of it was sent, and after much was.
        &|object| object[5] ^= 1,
        &|object| object[bytes - 5] ^= 1,
        // Its checksums.
        &|object| object[bytes] ^= 1,
        &|object| object.truncate(bytes),
        &|object| object.truncate(bytes / 2),
        &|object| object.clear(),
    ];
    // A service that ends puts nothing into the store any more.
    let mut services = Vec::new();
    let path = one_object(&server).await;
    let stored = std::fs::read(&path).expect("read");
    let is_stored = async || std::fs::read(&path).is_ok_and(|object| object == stored);
    for (number, damage) in damages.iter().enumerate() {
        let mut object = stored.clone();
        damage(&mut object);
        std::fs::write(&path, object).expect("written");
        let other = one.beside(|_| ()).await;
        assert!(whole(&other).await.body == made.body, "{number}");
        // It is removed, and this server or the next one puts another one there.
        let next = one.beside(|_| ()).await;
        assert!(whole(&next).await.body == made.body, "{number}");
        eventually("a sound one is there", is_stored).await;
        services.extend([other, next]);
    }
    std::fs::remove_file(&path).expect("removed");
    let next = one.beside(|_| ()).await;
    assert!(whole(&next).await.body == made.body);
    eventually("another one is there", is_stored).await;
    // A store that refuses to take it costs nobody an answer.
    let other = "/api/1/noise/v1/?format=parquet&limit=19000";
    server.refuse(&["PUT", "POST"]);
    let (first, second) = (one.get(other).await, one.beside(|_| ()).await.get(other).await);
    assert_eq!((first.status, second.status), (200, 200));
    assert!(first.body == second.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_that_wait_for_a_store_that_stalls_are_made() {
    let (server, one) = first().await;
    // One more than are fetched at once.
    let paths: Vec<String> = (0..5).map(|more| format!("/api/1/noise/v1/?format=parquet&limit={}", 9 + more)).collect();
    let mut made = Vec::new();
    for path in &paths {
        made.push(one.get(path).await);
        eventually("the export is in the store", async || objects(&server).len() == made.len()).await;
    }
    let two = one.beside(|_| ()).await;
    server.stall("shared-exports");
    let asked = paths.iter().map(|path| Box::pin(two.get(path)));
    let (answer, number, others) = futures::future::select_all(asked).await;
    assert!(answer.status == 200 && answer.body == made[number].body);
    let rendering = two.get("/metrics").await;
    let busy = metrics::value(rendering.text(), "strata_shared_exports_total{outcome=\"busy\"}");
    assert!(busy.is_some_and(|busy| busy >= 1.0), "{busy:?}");
    drop(others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_that_are_old_are_swept() {
    let (server, one) = first().await;
    let made = whole(&one).await;
    let path = one_object(&server).await;
    let unknown = path.with_file_name("unknown.parquet");
    std::fs::write(&unknown, "named by nothing").expect("written");
    let swept = async |older_than: Duration| {
        let mut files = Vec::new();
        one.services.maintenance.sweep(older_than, &mut |file| files.push(file.clone())).await.expect("swept");
        let shared = files.into_iter().filter(|file| file.path.starts_with("shared-exports/"));
        shared.map(|file| (file.reason.name(), file.failure)).collect::<Vec<_>>()
    };
    assert_eq!(swept(Duration::from_secs(3_600)).await, []);
    assert!(path.exists() && unknown.exists());
    // Longer than a store's clock is coarse.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(swept(Duration::from_secs(1)).await, [("unused", None), ("unused", None)]);
    assert_eq!(objects(&server), Vec::<PathBuf>::new());
    // Who has it goes on serving it, and who has not makes it.
    assert!(whole(&one).await.body == made.body);
    assert!(whole(&one.beside(|_| ()).await).await.body == made.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_export_is_removed_when_space_is_full() {
    let (server, one) = first().await;
    let bytes = whole(&one).await.body.len() as u64;
    let oldest = one_object(&server).await;
    // Longer than a store's clock is coarse.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let small = one.beside(|config| config.cache.shared_export_bytes = 4 * bytes + 4_000).await;
    for stored in [2, 3, 4, 4] {
        assert!(oldest.exists());
        let path = format!("/api/1/noise/v1/?format=parquet&limit={}", 19_990 + objects(&server).len());
        assert_eq!(small.get(&path).await.status, 200);
        eventually("the export is in the store", async || objects(&server).len() == stored).await;
    }
    eventually("the oldest export is removed", async || !oldest.exists()).await;
    // An export that would take more than a quarter is not shared.
    let smaller = one.beside(|config| config.cache.shared_export_bytes = bytes).await;
    assert_eq!(smaller.get("/api/1/noise/v1/?format=parquet&limit=19000").await.status, 200);
    assert_eq!(objects(&server).len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_are_the_same_bytes_however_they_are_made() {
    let service = TestService::configured(|config| config.query.threads = 1).await;
    let mut entities = noise(3_000);
    for number in 0..30_000 {
        let _ = writeln!(entities, "{{\"n{}\":{number},\"text\":\"{}\"}}", number % 40, "ab".repeat(number % 300));
    }
    service.import("Noise", &entities).await;
    let mut expected: Vec<Answer> = Vec::new();
    let queries = ["", "&typed=true", "&sort=number:desc&limit=20000", "&keep_field=text"];
    for (threads, memory_bytes) in [(1, 1 << 30), (2, 1 << 30), (4, 1 << 30), (8, 400 << 20)] {
        let other = service
            .beside(|config| (config.query.threads, config.query.memory_bytes) = (threads, Some(memory_bytes)))
            .await;
        for (number, query) in queries.iter().enumerate() {
            let answer = other.get(&format!("/api/1/noise/v1/?format=parquet{query}")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            match expected.get(number) {
                None => expected.push(answer),
                Some(first) => assert!(answer.body == first.body, "{query} with {threads} threads"),
            }
        }
    }
}

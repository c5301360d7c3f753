//! Exports that servers share in the store: they are built once, have the same bytes on every server, and can be lost
//! safely.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strata_config::{Config, StoreEndpoint, StoreUrl};
use strata_testing::s3_server::S3Server;
use strata_testing::{Answer, TestService, eventually, files, metrics};
use strata_types::secret::Secret;

const EXPORT: &str = "/api/1/noise/v1/?format=parquet&total=true";

fn use_s3_store(server: &S3Server, config: &mut Config) {
    config.store.url = Some(StoreUrl::try_from("s3://bucket/strata".to_owned()).expect("failed to parse URL"));
    config.store.endpoint = Some(StoreEndpoint::try_from(server.endpoint()).expect("failed to parse endpoint"));
    config.store.region = Some("us-east-1".to_owned());
    config.store.access_key_id = Some("key".to_owned());
    config.store.secret_access_key = Some(Secret::from_stored("secret".to_owned()));
    config.store.allow_http = true;
    // Shares exports as one of several servers would, although the catalog is a file.
    config.cluster.lost_after_s = 60;
}

/// Returns entities whose export has several blocks and chunks, because their texts do not compress well.
fn incompressible_entities(entities: usize) -> String {
    let mut state = 1_u64;
    let mut text = String::new();
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

/// Starts a server with a dataset, and the S3 server of its store.
async fn start_first() -> (S3Server, TestService) {
    let server = S3Server::start().await;
    let service = TestService::configured(|config| use_s3_store(&server, config)).await;
    service.import("Noise", &incompressible_entities(20_000)).await;
    (server, service)
}

/// Returns the exports in the store.
fn stored_exports(server: &S3Server) -> Vec<PathBuf> {
    let folder = server.bucket().join("strata/shared-exports");
    if folder.exists() { files(&folder).into_iter().filter(|path| is_export(path)).collect() } else { Vec::new() }
}

fn is_export(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}

async fn wait_for_export(server: &S3Server) -> PathBuf {
    eventually("the export is in the store", async || stored_exports(server).len() == 1).await;
    stored_exports(server).remove(0)
}

/// Moves the version files away, so that no export can be built.
fn move_version_files(server: &S3Server) -> PathBuf {
    let versions = server.bucket().join("strata/versions");
    let aside = server.bucket().join("aside");
    std::fs::rename(&versions, &aside).expect("failed to move");
    aside
}

async fn get_export(service: &TestService) -> Answer {
    let answer = service.get(EXPORT).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

async fn get_range(service: &TestService, range: &str, etag: &str) -> Answer {
    service.get_with(EXPORT, &[("range", range), ("if-range", etag)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_export_is_downloaded_by_other_servers() {
    let (server, one) = start_first().await;
    let made = get_export(&one).await;
    assert!(made.body.len() > 5 << 20, "{}", made.body.len());
    let object = wait_for_export(&server).await;
    let stored = std::fs::read(&object).expect("failed to read");
    assert!(stored.starts_with(&made.body) && stored.len() - made.body.len() < 1_000);
    // No server can build the export now.
    move_version_files(&server);
    let two = one.open_instance(|_| ()).await;
    let fetched = get_export(&two).await;
    assert!(fetched.body == made.body);
    for name in ["etag", "x-total-count", "x-total-matches", "content-type", "content-disposition"] {
        assert_eq!(fetched.header(name), made.header(name), "{name}");
    }
    // A download continues on a server that has no part of the export, with a known length.
    let three = one.open_instance(|_| ()).await;
    let bytes = made.body.len();
    let etag = made.header("etag").expect("missing ETag");
    let part = get_range(&three, &format!("bytes={}-", bytes - 3_000_000), etag).await;
    assert_eq!((part.status, part.body.len()), (206, 3_000_000));
    assert_eq!(part.header("content-range"), Some(&*format!("bytes {}-{}/{bytes}", bytes - 3_000_000, bytes - 1)));
    assert!(part.body == made.body[bytes - 3_000_000..]);
    assert_eq!(get_range(&three, &format!("bytes={bytes}-"), etag).await.status, 416);
    // By now, the export is in the local cache.
    server.refuse(&["GET", "HEAD"]);
    assert!(get_export(&three).await.body == made.body);
    server.refuse(&[]);
    // A server without cache quota forwards the export.
    let small = one.open_instance(|config| config.cache.export_bytes = 1_000_000).await;
    assert!(get_export(&small).await.body == made.body);
    // A server that does not share exports must build it.
    let alone = one.open_instance(|config| config.cache.shared_export_bytes = 0).await;
    assert_ne!(alone.get(EXPORT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_exports_store_one_object() {
    let (server, one) = start_first().await;
    let two = one.open_instance(|_| ()).await;
    let three = one.open_instance(|_| ()).await;
    let (a, b, c) = tokio::join!(get_export(&one), get_export(&two), get_export(&three));
    assert!(a.body == b.body && a.body == c.body);
    wait_for_export(&server).await;
    // A small export is not shared.
    one.import("Small", "[{\"a\":1}]").await;
    assert_eq!(one.get("/api/2/small/v1/?format=parquet").await.status, 200);
    assert_eq!(stored_exports(&server).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_shared_export_is_rebuilt() {
    let (server, one) = start_first().await;
    let made = get_export(&one).await;
    let bytes = made.body.len();
    type ExportDamage<'a> = &'a dyn Fn(&mut Vec<u8>);
    let damages: [ExportDamage<'_>; 6] = [
        // Damage before the first byte was sent, and after many bytes were sent.
        &|object| object[5] ^= 1,
        &|object| object[bytes - 5] ^= 1,
        // Damage of the checksums.
        &|object| object[bytes] ^= 1,
        &|object| object.truncate(bytes),
        &|object| object.truncate(bytes / 2),
        &|object| object.clear(),
    ];
    // A stopped service uploads nothing.
    let mut services = Vec::new();
    let path = wait_for_export(&server).await;
    let stored = std::fs::read(&path).expect("failed to read");
    let is_stored = async || std::fs::read(&path).is_ok_and(|object| object == stored);
    for (number, damage) in damages.iter().enumerate() {
        let mut object = stored.clone();
        damage(&mut object);
        std::fs::write(&path, object).expect("failed to write");
        let other = one.open_instance(|_| ()).await;
        assert!(get_export(&other).await.body == made.body, "{number}");
        // The damaged export is removed, and this server or another one uploads it again.
        let next = one.open_instance(|_| ()).await;
        assert!(get_export(&next).await.body == made.body, "{number}");
        eventually("a sound one is there", is_stored).await;
        services.extend([other, next]);
    }
    std::fs::remove_file(&path).expect("failed to remove");
    let next = one.open_instance(|_| ()).await;
    assert!(get_export(&next).await.body == made.body);
    eventually("another one is there", is_stored).await;
    // If the store rejects the upload, the response is still complete.
    let other = "/api/1/noise/v1/?format=parquet&limit=19000";
    server.refuse(&["PUT", "POST"]);
    let first = one.get(other).await;
    let second = one.open_instance(|_| ()).await.get(other).await;
    assert_eq!((first.status, second.status), (200, 200));
    assert!(first.body == second.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_store_does_not_block_exports() {
    let (server, one) = start_first().await;
    // More exports than can be downloaded at the same time.
    let paths: Vec<String> = (0..5).map(|more| format!("/api/1/noise/v1/?format=parquet&limit={}", 9 + more)).collect();
    let mut made = Vec::new();
    for path in &paths {
        made.push(one.get(path).await);
        eventually("the export is in the store", async || stored_exports(&server).len() == made.len()).await;
    }
    let two = one.open_instance(|_| ()).await;
    server.stall("shared-exports");
    let requests = paths.iter().map(|path| Box::pin(two.get(path)));
    let (answer, number, others) = futures::future::select_all(requests).await;
    assert!(answer.status == 200 && answer.body == made[number].body);
    let rendering = two.get("/metrics").await;
    let busy = metrics::value(rendering.text(), "strata_shared_exports_total{outcome=\"busy\"}");
    assert!(busy.is_some_and(|busy| busy >= 1.0), "{busy:?}");
    drop(others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_shared_exports_are_swept() {
    let (server, one) = start_first().await;
    let made = get_export(&one).await;
    let path = wait_for_export(&server).await;
    let unknown = path.with_file_name("unknown.parquet");
    std::fs::write(&unknown, "named by nothing").expect("failed to write");
    let swept = async |older_than: Duration| {
        let mut files = Vec::new();
        one.services
            .maintenance
            .sweep(older_than, &mut |file| files.push(file.clone()))
            .await
            .expect("failed to sweep");
        let shared = files.into_iter().filter(|file| file.path.starts_with("shared-exports/"));
        shared.map(|file| (file.reason.name(), file.failure)).collect::<Vec<_>>()
    };
    assert_eq!(swept(Duration::from_secs(3_600)).await, []);
    assert!(path.exists() && unknown.exists());
    // Longer than the resolution of the store's clock.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(swept(Duration::from_secs(1)).await, [("unused", None), ("unused", None)]);
    assert_eq!(stored_exports(&server), Vec::<PathBuf>::new());
    // A server with a cached copy continues to serve the export; another server builds it.
    assert!(get_export(&one).await.body == made.body);
    assert!(get_export(&one.open_instance(|_| ()).await).await.body == made.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_export_is_removed_when_space_is_full() {
    let (server, one) = start_first().await;
    let bytes = get_export(&one).await.body.len() as u64;
    let oldest = wait_for_export(&server).await;
    // Longer than the resolution of the store's clock.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let small = one.open_instance(|config| config.cache.shared_export_bytes = 4 * bytes + 4_000).await;
    for stored in [2, 3, 4, 4] {
        assert!(oldest.exists());
        let path = format!("/api/1/noise/v1/?format=parquet&limit={}", 19_990 + stored_exports(&server).len());
        assert_eq!(small.get(&path).await.status, 200);
        eventually("the export is in the store", async || stored_exports(&server).len() == stored).await;
    }
    eventually("the oldest export is removed", async || !oldest.exists()).await;
    // An export that exceeds a quarter of the quota is not shared.
    let smaller = one.open_instance(|config| config.cache.shared_export_bytes = bytes).await;
    assert_eq!(smaller.get("/api/1/noise/v1/?format=parquet&limit=19000").await.status, 200);
    assert_eq!(stored_exports(&server).len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_bytes_are_deterministic() {
    let service = TestService::configured(|config| config.query.threads = 1).await;
    let mut entities = incompressible_entities(3_000);
    for number in 0..30_000 {
        let _ = writeln!(entities, "{{\"n{}\":{number},\"text\":\"{}\"}}", number % 40, "ab".repeat(number % 300));
    }
    service.import("Noise", &entities).await;
    let mut expected: Vec<Answer> = Vec::new();
    let queries = ["", "&typed=true", "&sort=number:desc&limit=20000", "&keep_field=text"];
    for (threads, memory_bytes) in [(1, 1 << 30), (2, 1 << 30), (4, 1 << 30), (8, 400 << 20)] {
        let other = service
            .open_instance(|config| (config.query.threads, config.query.memory_bytes) = (threads, Some(memory_bytes)))
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

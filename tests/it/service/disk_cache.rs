//! The disk cache in a service: after a restart, the service does not read ranges from S3 again.

use strata_config::{Config, StoreEndpoint, StoreUrl};
use strata_testing::s3_server::S3Server;
use strata_testing::{TestService, eventually, files};
use strata_types::secret::Secret;

pub(super) fn use_s3_store(server: &S3Server, config: &mut Config) {
    config.store.url = Some(StoreUrl::try_from("s3://bucket/strata".to_owned()).expect("failed to parse URL"));
    config.store.endpoint = Some(StoreEndpoint::try_from(server.endpoint()).expect("failed to parse endpoint"));
    config.store.region = Some("us-east-1".to_owned());
    config.store.access_key_id = Some("key".to_owned());
    config.store.secret_access_key = Some(Secret::from_stored("secret".to_owned()));
    config.store.allow_http = true;
    config.cache.disk_bytes = 64 << 20;
    config.cache.response_bytes = 0;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_reads_from_disk_cache() {
    const READS: [&str; 4] = [
        "/api/1/numbers/v1/?limit=20",
        "/api/1/numbers/v1/?filter=n:777",
        "/api/1/numbers/v1/?keywords=word1999&count=true",
        "/api/1/numbers/v1/?sort=n:desc&limit=5",
    ];
    let server = S3Server::start().await;
    let first = TestService::configured(|config| use_s3_store(&server, config)).await;
    let line = |number| format!("{{\"n\":{number},\"text\":\"word{number}\"}}\n");
    first.import("Numbers", &(0..3_000).map(line).collect::<String>()).await;
    let mut answers = Vec::new();
    for uri in READS {
        let answer = first.get(uri).await;
        assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
        answers.push(answer.body);
    }
    first.services.close().await;
    let cached_paths = files(&first.directory().join("cache"));
    assert!(cached_paths.iter().any(|path| path.extension() == Some("ranges".as_ref())), "{cached_paths:?}");

    let second = first.open_instance(|_| ()).await;
    let found = "strata_disk_cache_bytes";
    eventually("the cache finds the existing ranges", async || {
        strata_testing::metrics::value(&second.metrics(), found).is_some_and(|bytes| bytes > 0.0)
    })
    .await;
    server.refuse(&["GET", "HEAD"]);
    for (uri, expected) in READS.iter().zip(&answers) {
        let answer = second.get(uri).await;
        assert_eq!((answer.status, &answer.body), (200, expected), "{uri}: {}", answer.text());
    }
    server.refuse(&[]);
    // After its directory was removed, the cache works, too.
    std::fs::remove_dir_all(first.directory().join("cache")).expect("failed to remove");
    let third = first.open_instance(|config| config.cache.disk_bytes = 0).await;
    for service in [&second, &third] {
        assert_eq!(service.get("/api/1/numbers/v1/?offset=100&limit=7").await.status, 200);
    }
}

//! A store that accepts requests but never responds: reads fail after their timeout.

use std::time::Duration;

use strata_testing::TestService;
use strata_testing::s3_server::S3Server;

use super::disk_cache::use_s3_store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_of_hanging_store_times_out() {
    let server = S3Server::start().await;
    let first = TestService::configured(|config| use_s3_store(&server, config)).await;
    first.import("Numbers", &(0..2_000).map(|n| format!("{{\"n\":{n},\"t\":\"w{n}\"}}\n")).collect::<String>()).await;
    let fresh = async |opened: bool| {
        let service = first
            .open_instance(|config| {
                config.query.timeout_s = 1;
                config.store.retry_s = 600;
                config.cache.disk_bytes = 0;
                config.cache.memory_bytes = Some(0);
            })
            .await;
        if opened {
            assert_eq!(service.get("/api/1/numbers/v1/?limit=1").await.status, 200);
        }
        service
    };
    let services = [fresh(false).await, fresh(true).await];
    server.stall("versions");
    for service in &services {
        for query in ["limit=2", "filter=t:w7&count=true", "sort=t&limit=3", "format=csv&limit=9", "limit=1&total=true"]
        {
            let uri = format!("/api/1/numbers/v1/?{query}");
            // Longer than any request can take. A read that does not end fails the test.
            let answer = tokio::time::timeout(Duration::from_secs(60), service.get(&uri)).await.expect(query);
            assert_eq!(answer.status, 503, "{query}: {}", answer.text());
            assert!(answer.text().contains("stopped after 1 s"), "{query}: {}", answer.text());
        }
    }
}

//! `/readyz` proves that catalog and store can be written, names what cannot, and is no load.

use std::fs;
use std::time::Duration;

use sqlx::Connection;
use strata_testing::TestService;
use strata_testing::catalog::{connect, lock};

/// Answers are found anew after a second; a locked catalog is waited for as long.
async fn service() -> TestService {
    TestService::configured(|config| {
        config.server.ready_probe_s = 1;
        config.catalog.wait_s = 1;
    })
    .await
}

const HOLDS: Duration = Duration::from_millis(1_100);

/// Caches served readiness of a former moment.
#[tokio::test]
async fn health_and_metrics_are_not_stored() {
    let service = service().await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = service.get(path).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{path}");
    }
    for (method, path, status) in
        [("GET", "/no/such/path", 404), ("POST", "/healthz", 405), ("GET", "/api/1/x/v1", 404)]
    {
        service.send(method, path, None).await.is_error(status);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_written_is_named_until_it_can() {
    let service = service().await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let (store, away) = (service.directory().join("store"), service.directory().join("away"));
    fs::rename(&store, &away).expect("moved");
    fs::write(&store, "no directory").expect("written");
    tokio::time::sleep(HOLDS).await;
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    let text = "The service is not ready: the store is missing: ";
    assert!(answer.text().starts_with(text), "{}", answer.text());
    fs::remove_file(&store).expect("removed");
    fs::rename(&away, &store).expect("moved");
    tokio::time::sleep(HOLDS).await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    assert_eq!(fs::read_dir(&store).expect("readable").count(), 1, "the probe leaves nothing but whose store it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_that_cannot_be_written_is_named_until_it_can() {
    let service = service().await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let locked = lock(&service).await;
    tokio::time::sleep(HOLDS).await;
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    let text = "The service is not ready: cannot write to the metadata database: it is locked or too busy.";
    assert!(answer.text().starts_with(text), "{}", answer.text());
    locked.close().await.expect("closed");
    tokio::time::sleep(HOLDS).await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_however_many_cost_one_write() {
    let service = TestService::configured(|config| config.server.ready_probe_s = 60).await;
    let mut connection = connect(&service).await;
    let mut written = async || -> Vec<i64> {
        let sql = "SELECT written_at FROM write_probes";
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.expect("read")
    };
    assert!(written().await.is_empty(), "nothing is written before somebody asks");
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let first = written().await;
    assert_eq!(first.len(), 1);
    let asked = futures::future::join_all((0..200).map(|_| service.get("/readyz"))).await;
    assert!(asked.iter().all(|answer| answer.text() == "ok"));
    assert_eq!(written().await, first);
    // Only a stop is told at once.
    service.services.readiness.begin_draining();
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    assert!(answer.text().contains("shutting down"), "{}", answer.text());
}

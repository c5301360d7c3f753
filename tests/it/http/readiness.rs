//! `/readyz` checks that the catalog and the store are writable, reports failures, and costs little.

use std::fs;
use std::time::Duration;

use sqlx::Connection;
use strata_testing::TestService;
use strata_testing::catalog::{connect, lock};

/// Probe results expire after a second, and so does the wait for a locked catalog.
async fn service() -> TestService {
    TestService::configured(|config| {
        config.server.ready_probe_s = 1;
        config.catalog.wait_s = 1;
    })
    .await
}

const HOLDS: Duration = Duration::from_millis(1_100);

/// Regression: caches returned an old readiness.
#[tokio::test]
async fn health_and_metrics_are_not_cached() {
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
async fn readiness_reports_unwritable_store() {
    let service = service().await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let store = service.directory().join("store");
    let away = service.directory().join("away");
    fs::rename(&store, &away).expect("failed to move");
    fs::write(&store, "no directory").expect("failed to write");
    tokio::time::sleep(HOLDS).await;
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    let text = "The service is not ready: the store is missing: ";
    assert!(answer.text().starts_with(text), "{}", answer.text());
    fs::remove_file(&store).expect("failed to remove");
    fs::rename(&away, &store).expect("failed to move");
    tokio::time::sleep(HOLDS).await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    assert_eq!(
        fs::read_dir(&store).expect("not readable").count(),
        1,
        "the probe leaves nothing but whose store it is"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_reports_unwritable_catalog() {
    let service = service().await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let locked = lock(&service).await;
    tokio::time::sleep(HOLDS).await;
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    let text = "The service is not ready: cannot write to the metadata database: it is locked or too busy.";
    assert!(answer.text().starts_with(text), "{}", answer.text());
    locked.close().await.expect("failed to close");
    tokio::time::sleep(HOLDS).await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_probes_cause_one_write() {
    let service = TestService::configured(|config| config.server.ready_probe_s = 60).await;
    let mut connection = connect(&service).await;
    let mut written = async || -> Vec<i64> {
        let sql = "SELECT written_at FROM write_probes";
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.expect("failed to read")
    };
    assert!(written().await.is_empty(), "nothing is written before the first probe");
    assert_eq!(service.get("/readyz").await.text(), "ok");
    let first = written().await;
    assert_eq!(first.len(), 1);
    let answers = futures::future::join_all((0..200).map(|_| service.get("/readyz"))).await;
    assert!(answers.iter().all(|answer| answer.text() == "ok"));
    assert_eq!(written().await, first);
    // Only the start of a shutdown is reported at once.
    service.services.readiness.begin_draining();
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    assert!(answer.text().contains("shutting down"), "{}", answer.text());
}

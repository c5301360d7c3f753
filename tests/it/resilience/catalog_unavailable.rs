//! Tests of a catalog that is locked or unreachable. Reads continue where they can. All other calls return 503 with the
//! reason, and no process needs a restart.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use serde_json::json;
use sqlx::SqliteConnection;
use strata_config::{CatalogUrl, Config};
use strata_testing::catalog::{execute, integrity, lock};
use strata_testing::owned::log_in;
use strata_testing::postgres::Postgres;
use strata_testing::{Answer, OWNER, TestService};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::DatasetId;
use strata_types::user::UserPlan;

/// The error text if the database server is unreachable.
const UNREACHABLE: &str = "the database server is unreachable or not responding";

/// Longer than any call in these tests, but shorter than a hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A service whose catalog waits for at most one second, with a token and a session of its owner.
struct OutageFixture {
    service: TestService,
    token: String,
    cookie: String,
}

impl OutageFixture {
    async fn start(url: Option<String>) -> OutageFixture {
        OutageFixture::configured(url, |_| ()).await
    }

    async fn configured(url: Option<String>, change: impl FnOnce(&mut Config)) -> OutageFixture {
        let service = TestService::configured(|config| {
            config.catalog.url = url.map(|url| CatalogUrl::try_from(url).expect("failed to parse the URL"));
            config.catalog.wait_s = 1;
            config.catalog.statement_timeout_s = 2;
            config.server.ready_probe_s = 1;
            change(config);
        })
        .await;
        let added = service
            .services
            .accounts
            .add_user("b@strata.test", "battery staple", UserPlan::Pro, Some("ci"))
            .await
            .expect("failed to add");
        let token = format!("Bearer {}", added.expect("failed to find the token").expose());
        let cookie = log_in(&service, OWNER).await;
        OutageFixture { service, token, cookie }
    }

    async fn get(&self, uri: &str) -> Answer {
        tokio::time::timeout(HANG_TIMEOUT, self.service.get(uri)).await.expect("failed to get a response")
    }

    async fn owner_gets(&self, uri: &str) -> [Answer; 2] {
        let by_token = self.service.send("GET", uri, Some(&self.token));
        let headers = [("cookie", self.cookie.as_str())];
        let by_cookie = self.service.get_with(uri, &headers);
        tokio::time::timeout(HANG_TIMEOUT, async { [by_token.await, by_cookie.await] }).await.expect("answers")
    }

    async fn create(&self, name: &str) -> Answer {
        let body = json!({"name": name, "source": "push"}).to_string();
        let request = Request::post("/dataset/create")
            .header("content-type", "application/json")
            .header("authorization", &self.token)
            .body(Body::from(body))
            .expect("failed to build the request");
        tokio::time::timeout(HANG_TIMEOUT, self.service.call(request)).await.expect("failed to get a response")
    }

    async fn push(&self, dataset: DatasetId, body: Body) -> Answer {
        let request = Request::post(format!("/dataset/refresh?dataset_id={dataset}"))
            .header("content-type", "application/json")
            .header("authorization", &self.token)
            .body(body)
            .expect("failed to build the request");
        tokio::time::timeout(HANG_TIMEOUT, self.service.call(request)).await.expect("failed to get a response")
    }

    /// Creates a dataset of the owner that accepts pushes.
    async fn dataset(&self, name: &str) -> DatasetId {
        let created = self.create(name).await;
        let created: serde_json::Value = serde_json::from_slice(&created.body).expect("failed to parse JSON");
        DatasetId::new(created["dataset"]["dataset_id"].as_u64().expect("failed to find the ID"))
    }

    /// Repeats a request until the response has this status. Used to wait for a recovery.
    async fn wait_for_status(&self, uri: &str, status: u16) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.get(uri).await;
            if answer.status == status {
                return answer;
            }
            assert!(begun.elapsed() < HANG_TIMEOUT, "{uri}: {} {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Asserts that a response is a 503 error with the reason.
#[track_caller]
fn assert_503(answer: &Answer, reason: &str) {
    answer.is_error(503);
    assert!(answer.text().contains(&format!("The metadata database is unavailable: {reason}")), "{}", answer.text());
}

/// Asserts that a read returned 503 with the reason. Only the text of a read states when to retry.
#[track_caller]
fn assert_read_unavailable(answer: &Answer, reason: &str) {
    assert_503(answer, reason);
    assert!(answer.text().contains("Try again in") && answer.header("retry-after").is_none(), "{}", answer.text());
}

/// Asserts that a management call returned 503 with the reason and a `Retry-After` header.
#[track_caller]
fn assert_unavailable(answer: &Answer, reason: &str) {
    assert_503(answer, reason);
    let wait: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=30).contains(&wait), "{wait}");
}

/// Sets the last use of all tokens and sessions to so long ago that the service records their next use.
async fn used_long_ago(fixture: &OutageFixture) {
    let later = (chrono::Utc::now().timestamp() + 100_000) * 1_000_000;
    let sql = format!(
        "UPDATE api_tokens SET last_used_at = 1; UPDATE sessions SET expires_at = {later}, record_checksum = NULL;"
    );
    execute(&fixture.service, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_catalog_serves_reads_and_rejects_writes() {
    let fixture = OutageFixture::start(None).await;
    let imported = fixture.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    used_long_ago(&fixture).await;
    let locked = lock(&fixture.service).await;
    for uri in ["/session/me", "/dataset/list", "/token/list"] {
        for answer in fixture.owner_gets(uri).await {
            assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
        }
    }
    assert_eq!(fixture.get(&read).await.status, 200);
    assert_unavailable(&fixture.create("Others").await, "it is locked");
    // Many calls wait at the same time, not one after another.
    let all = futures::future::join_all((0..20).map(|_| fixture.create("Others"))).await;
    // Some calls of one user do not reach the catalog: they fail because all write permits are in use.
    for answer in all {
        answer.is_error(503);
        let text = answer.text();
        assert!(text.contains("it is locked") || text.contains("catalog.writes"), "{text}");
    }

    sqlx::Connection::close(locked).await.expect("failed to close the connection");
    assert_eq!(fixture.create("Others").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_records_are_written_after_lock_release() {
    let fixture = OutageFixture::start(None).await;
    let catalog = fixture.service.catalog().await;
    let user = catalog.user_by_email("b@strata.test").await.expect("a look-up").expect("the user").id;
    let used = async || {
        catalog.tokens_by_user(user).await.expect("failed to list tokens")[0].last_used_at.map(|used| used.timestamp())
    };
    used_long_ago(&fixture).await;
    let locked = lock(&fixture.service).await;
    assert_eq!(fixture.owner_gets("/session/me").await[0].status, 200);
    assert_eq!(used().await, Some(0));
    sqlx::Connection::close(locked).await.expect("failed to close the connection");
    let begun = Instant::now();
    while used().await == Some(0) {
        assert!(begun.elapsed() < HANG_TIMEOUT);
        fixture.owner_gets("/session/me").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_postgresql_row_returns_503() {
    let server = Postgres::shared();
    let url = server.create_database().await;
    let fixture = OutageFixture::start(Some(url.clone())).await;
    let mut other = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await.expect("failed to connect");
    sqlx::raw_sql("BEGIN; UPDATE users SET plan = plan").execute(&mut other).await.expect("the lock");
    assert_unavailable(&fixture.create("Things").await, "it is locked");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("failed to release the lock");
    assert_eq!(fixture.create("Things").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_postgresql_is_used_again() {
    let mut server = Postgres::own();
    let fixture = OutageFixture::start(Some(server.create_database().await)).await;
    let imported = fixture.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    let body = fixture.get(&read).await.body;
    assert_eq!(fixture.get("/readyz").await.text(), "ok");

    for round in 0..2 {
        server.crash();
        // Cached lookups are used for less than a second.
        assert_read_unavailable(&fixture.wait_for_status(&read, 503).await, UNREACHABLE);
        assert_unavailable(&fixture.create("Others").await, UNREACHABLE);
        for answer in fixture.owner_gets("/dataset/list").await {
            assert_unavailable(&answer, UNREACHABLE);
        }
        let answer = fixture.wait_for_status("/readyz", 503).await;
        let expected = format!("cannot write to the metadata database: {UNREACHABLE}");
        assert!(answer.text().contains(&expected), "{}", answer.text());
        assert_eq!(fixture.get("/healthz").await.text(), "ok");
        // Calls do not queue for an unreachable server: only one call at a time waits for it.
        let begun = Instant::now();
        let many = futures::future::join_all((0..40).map(|_| fixture.create("Others"))).await;
        many.iter().for_each(|answer| assert_unavailable(answer, UNREACHABLE));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());

        server.restart();
        assert_eq!(fixture.wait_for_status(&read, 200).await.body, body);
        fixture.wait_for_status("/readyz", 200).await;
        let created = fixture.create(&format!("Others {round}")).await;
        assert_eq!(created.status, 200, "{}", created.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_postgresql_times_out_and_recovers() {
    let server = Postgres::own();
    let fixture = OutageFixture::start(Some(server.create_database().await)).await;
    // This opens several connections, which are idle afterwards.
    futures::future::join_all((0..8).map(|_| fixture.owner_gets("/dataset/list"))).await;
    server.freeze();
    // Callers that disconnect in the middle of a call do not use up connections.
    for _ in 0..20 {
        let left = tokio::time::timeout(Duration::from_millis(20), fixture.create("Others")).await;
        assert!(left.is_err());
    }
    assert_unavailable(&fixture.create("Others").await, "");
    assert_unavailable(&fixture.create("Others").await, "");
    server.thaw();
    let begun = Instant::now();
    loop {
        let answer = fixture.create("Afterwards").await;
        // The dataset was created now, or by an earlier attempt that timed out.
        if matches!(answer.status, 200 | 409) {
            break;
        }
        assert!(begun.elapsed() < HANG_TIMEOUT, "{}", answer.text());
    }
    let all = futures::future::join_all((0..40).map(|_| fixture.owner_gets("/dataset/list"))).await;
    assert!(all.iter().flatten().all(|answer| answer.status == 200));
}

/// Returns a body of one entity that ends when the sender is dropped.
fn slow_body() -> (Body, tokio::sync::oneshot::Sender<()>) {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let begin = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"[{\"a\":1}"))]);
    let rest = futures::stream::once(async move {
        let _ = ended.await;
        Ok(Bytes::from_static(b"]"))
    });
    (Body::from_stream(futures::StreamExt::chain(begin, rest)), end)
}

/// A push during which the catalog was locked. The push failed, and the catalog has no record of its end.
struct InterruptedPush {
    fixture: OutageFixture,
    dataset: DatasetId,
    locked: SqliteConnection,
}

impl InterruptedPush {
    async fn start() -> InterruptedPush {
        let fixture = OutageFixture::start(None).await;
        let dataset = fixture.dataset("Pushed").await;
        let catalog = fixture.service.catalog().await;
        let (body, end) = slow_body();
        let cut = async {
            while catalog.attempts(dataset, None, 10).await.expect("failed to list attempts").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let locked = lock(&fixture.service).await;
            drop(end);
            locked
        };
        let (answer, locked) = tokio::join!(fixture.push(dataset, body), cut);
        assert_unavailable(&answer, "it is locked");
        InterruptedPush { fixture, dataset, locked }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_push_frees_dataset_after_outage() {
    let InterruptedPush { fixture, dataset, locked } = InterruptedPush::start().await;
    // No other push can take over the dataset yet.
    assert_unavailable(&fixture.push(dataset, Body::from("[]")).await, "it is locked");
    sqlx::Connection::close(locked).await.expect("failed to close the connection");
    // The end of the attempt is recorded by the next push or earlier.
    let pushed = fixture.push(dataset, Body::from("[{\"a\":2}]")).await;
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let catalog = fixture.service.catalog().await;
    let outcomes: Vec<_> = catalog
        .attempts(dataset, None, 10)
        .await
        .expect("failed to list attempts")
        .into_iter()
        .map(|attempt| format!("{:?}", attempt.outcome))
        .collect();
    assert!(
        outcomes.len() == 2 && outcomes[0].contains("Published") && outcomes[1].contains("is locked"),
        "{outcomes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_outcome_is_recorded_after_outage() {
    let InterruptedPush { fixture, dataset, locked } = InterruptedPush::start().await;
    sqlx::Connection::close(locked).await.expect("failed to close the connection");
    let catalog = fixture.service.catalog().await;
    let begun = Instant::now();
    while catalog.attempts(dataset, None, 10).await.expect("failed to list attempts")[0].finished_at.is_none() {
        // The lease itself would last for a minute.
        assert!(begun.elapsed() < HANG_TIMEOUT / 2);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leases_are_free_after_restart() {
    for lives in [false, true] {
        let fixture = OutageFixture::start(None).await;
        let dataset = fixture.dataset("Pushed").await;
        let catalog = fixture.service.catalog().await;
        // The lease belongs to a process that is dead, or that this process cannot see.
        let lease = Duration::from_secs(3_600);
        let held = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "held", lease).await.expect("free");
        let other = match lives {
            true => Some(fixture.service.open_instance(|_| ()).await),
            false => None,
        };
        let background = fixture.service.services.start_background();
        let begun = Instant::now();
        let free = loop {
            let pushed = fixture.push(dataset, Body::from("[{\"a\":1}]")).await;
            match pushed.status {
                200 => break true,
                409 if lives && begun.elapsed() > Duration::from_secs(2) => break false,
                409 => assert!(begun.elapsed() < HANG_TIMEOUT, "{}", pushed.text()),
                _ => panic!("{}", pushed.text()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(free, !lives);
        let ended = catalog.fail_refresh(held.attempt, "no").await;
        assert_eq!(ended.is_ok(), lives, "{ended:?}");
        background.finish(Duration::from_secs(5)).await;
        drop(other);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_postgresql_is_reported_at_once() {
    let mut server = Postgres::own();
    let url = server.create_database().await;
    let fixture = OutageFixture::configured(Some(url.clone()), |config| config.catalog.wait_s = 60).await;
    let imported = fixture.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    server.crash();
    let begun = Instant::now();
    assert_read_unavailable(&fixture.wait_for_status(&read, 503).await, UNREACHABLE);
    assert_unavailable(&fixture.create("Others").await, UNREACHABLE);
    for answer in futures::future::join_all((0..40).map(|_| fixture.create("Others"))).await {
        assert_unavailable(&answer, UNREACHABLE);
    }
    let opened = integrity(&url).await;
    assert!(opened.len() == 1 && opened[0].contains(UNREACHABLE), "{opened:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    server.restart();
    fixture.wait_for_status(&read, 200).await;
    assert_eq!(fixture.create("Others").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_or_replaced_database_is_reported() {
    const MISSING: &str = "the database or one of its tables is missing";
    let server = Postgres::shared();
    let url = server.create_database().await;
    let fixture = OutageFixture::start(Some(url.clone())).await;
    let imported = fixture.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    for sql in ["DROP DATABASE {} WITH (FORCE)", "CREATE DATABASE {}"] {
        server.execute_on(&url, sql).await;
        assert_read_unavailable(&fixture.wait_for_status(&read, 503).await, MISSING);
        assert_unavailable(&fixture.create("Others").await, MISSING);
        let ready = fixture.wait_for_status("/readyz", 503).await;
        assert!(ready.text().contains(MISSING), "{}", ready.text());
    }
}

//! A catalog that cannot be written, or not be reached: reading goes on where it can, everything else is told 503 and
//! why, and nothing needs a restart.

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
use strata_types::user::Plan;

/// What is said of a server that is not there.
const GONE: &str = "the database server is unreachable or not responding";

/// Longer than anything here takes, shorter than a hang.
const HANG: Duration = Duration::from_secs(60);

/// A service whose catalog waits a second, with a token and a session of its owner.
struct Owned {
    service: TestService,
    token: String,
    cookie: String,
}

impl Owned {
    async fn start(url: Option<String>) -> Owned {
        Owned::configured(url, |_| ()).await
    }

    async fn configured(url: Option<String>, change: impl FnOnce(&mut Config)) -> Owned {
        let service = TestService::configured(|config| {
            config.catalog.url = url.map(|url| CatalogUrl::try_from(url).expect("a URL"));
            config.catalog.wait_s = 1;
            config.catalog.statement_timeout_s = 2;
            config.server.ready_probe_s = 1;
            change(config);
        })
        .await;
        let added = service
            .services
            .accounts
            .add_user("b@strata.test", "battery staple", Plan::Pro, Some("ci"))
            .await
            .expect("added");
        let token = format!("Bearer {}", added.expect("a token").expose());
        let cookie = log_in(&service, OWNER).await;
        Owned { service, token, cookie }
    }

    async fn get(&self, uri: &str) -> Answer {
        tokio::time::timeout(HANG, self.service.get(uri)).await.expect("an answer")
    }

    async fn owner_gets(&self, uri: &str) -> [Answer; 2] {
        let by_token = self.service.send("GET", uri, Some(&self.token));
        let headers = [("cookie", self.cookie.as_str())];
        let by_cookie = self.service.get_with(uri, &headers);
        tokio::time::timeout(HANG, async { [by_token.await, by_cookie.await] }).await.expect("answers")
    }

    async fn create(&self, name: &str) -> Answer {
        let body = json!({"name": name, "source": "push"}).to_string();
        let request = Request::post("/dataset/create")
            .header("content-type", "application/json")
            .header("authorization", &self.token)
            .body(Body::from(body))
            .expect("a request");
        tokio::time::timeout(HANG, self.service.call(request)).await.expect("an answer")
    }

    async fn push(&self, dataset: DatasetId, body: Body) -> Answer {
        let request = Request::post(format!("/dataset/refresh?dataset_id={dataset}"))
            .header("content-type", "application/json")
            .header("authorization", &self.token)
            .body(body)
            .expect("a request");
        tokio::time::timeout(HANG, self.service.call(request)).await.expect("an answer")
    }

    /// A dataset of the token's owner, which takes what is pushed.
    async fn dataset(&self, name: &str) -> DatasetId {
        let created = self.create(name).await;
        let created: serde_json::Value = serde_json::from_slice(&created.body).expect("JSON");
        DatasetId::new(created["dataset"]["dataset_id"].as_u64().expect("an id"))
    }

    /// Asks until it is answered so; how a service recovers.
    async fn soon(&self, uri: &str, status: u16) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.get(uri).await;
            if answer.status == status {
                return answer;
            }
            assert!(begun.elapsed() < HANG, "{uri}: {} {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A 503 that says why.
#[track_caller]
fn refused(answer: &Answer, reason: &str) {
    answer.is_error(503);
    assert!(answer.text().contains(&format!("The metadata database is unavailable: {reason}")), "{}", answer.text());
}

/// That of a read, which says in the text alone when to come again.
#[track_caller]
fn read_refused(answer: &Answer, reason: &str) {
    refused(answer, reason);
    assert!(answer.text().contains("Try again in") && answer.header("retry-after").is_none(), "{}", answer.text());
}

/// A 503 of management that says why, and when to come again.
#[track_caller]
fn unavailable(answer: &Answer, reason: &str) {
    refused(answer, reason);
    let wait: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=30).contains(&wait), "{wait}");
}

/// Sets when tokens and sessions were used last so long ago that their next use is to be recorded.
async fn used_long_ago(owned: &Owned) {
    let later = (owned_now() + 100_000) * 1_000_000;
    let sql = format!(
        "UPDATE api_tokens SET last_used_at = 1; UPDATE sessions SET expires_at = {later}, record_checksum = NULL;"
    );
    execute(&owned.service, &sql).await;
}

fn owned_now() -> i64 {
    chrono::Utc::now().timestamp()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_while_another_process_locks_the_catalog_and_writing_is_503() {
    let owned = Owned::start(None).await;
    let imported = owned.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    used_long_ago(&owned).await;
    let locked = lock(&owned.service).await;
    for uri in ["/session/me", "/dataset/list", "/token/list"] {
        for answer in owned.owner_gets(uri).await {
            assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
        }
    }
    assert_eq!(owned.get(&read).await.status, 200);
    unavailable(&owned.create("Others").await, "it is locked");
    // Many at once wait together, not one after another.
    let all = futures::future::join_all((0..20).map(|_| owned.create("Others"))).await;
    // Of one user not all reach the catalog: the others are told that its writes are in use.
    for answer in all {
        answer.is_error(503);
        let text = answer.text();
        assert!(text.contains("it is locked") || text.contains("catalog.writes"), "{text}");
    }

    sqlx::Connection::close(locked).await.expect("closed");
    assert_eq!(owned.create("Others").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_recorded_while_the_catalog_was_locked_is_recorded_afterwards() {
    let owned = Owned::start(None).await;
    let catalog = owned.service.catalog().await;
    let user = catalog.user_by_email("b@strata.test").await.expect("a look-up").expect("the user").id;
    let used = async || catalog.tokens(user).await.expect("tokens")[0].last_used_at.map(|used| used.timestamp());
    used_long_ago(&owned).await;
    let locked = lock(&owned.service).await;
    assert_eq!(owned.owner_gets("/session/me").await[0].status, 200);
    assert_eq!(used().await, Some(0));
    sqlx::Connection::close(locked).await.expect("closed");
    let begun = Instant::now();
    while used().await == Some(0) {
        assert!(begun.elapsed() < HANG);
        owned.owner_gets("/session/me").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_another_process_locks_is_503_under_postgresql_too() {
    let server = Postgres::shared();
    let url = server.create_database().await;
    let owned = Owned::start(Some(url.clone())).await;
    let mut other = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await.expect("a connection");
    sqlx::raw_sql("BEGIN; UPDATE users SET plan = plan").execute(&mut other).await.expect("the lock");
    unavailable(&owned.create("Things").await, "it is locked");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("released");
    assert_eq!(owned.create("Things").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_server_that_goes_and_comes_back_needs_no_restart_of_the_service() {
    let mut server = Postgres::own();
    let owned = Owned::start(Some(server.create_database().await)).await;
    let imported = owned.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    let body = owned.get(&read).await.body;
    assert_eq!(owned.get("/readyz").await.text(), "ok");

    for round in 0..2 {
        server.crash();
        // What was looked up just before is used for less than a second.
        read_refused(&owned.soon(&read, 503).await, GONE);
        unavailable(&owned.create("Others").await, GONE);
        for answer in owned.owner_gets("/dataset/list").await {
            unavailable(&answer, GONE);
        }
        let answer = owned.soon("/readyz", 503).await;
        let expected = format!("cannot write to the metadata database: {GONE}");
        assert!(answer.text().contains(&expected), "{}", answer.text());
        assert_eq!(owned.get("/healthz").await.text(), "ok");
        // Nobody queues behind a server that is gone: of these, one at a time waits.
        let begun = Instant::now();
        let many = futures::future::join_all((0..40).map(|_| owned.create("Others"))).await;
        many.iter().for_each(|answer| unavailable(answer, GONE));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());

        server.restart();
        assert_eq!(owned.soon(&read, 200).await.body, body);
        owned.soon("/readyz", 200).await;
        let created = owned.create(&format!("Others {round}")).await;
        assert_eq!(created.status, 200, "{}", created.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_server_that_hangs_is_given_up_and_found_again() {
    let server = Postgres::own();
    let owned = Owned::start(Some(server.create_database().await)).await;
    // Several connections are open and idle.
    futures::future::join_all((0..8).map(|_| owned.owner_gets("/dataset/list"))).await;
    server.freeze();
    // Callers that leave in the middle take no connection with them.
    for _ in 0..20 {
        let left = tokio::time::timeout(Duration::from_millis(20), owned.create("Others")).await;
        assert!(left.is_err());
    }
    unavailable(&owned.create("Others").await, "");
    unavailable(&owned.create("Others").await, "");
    server.thaw();
    let begun = Instant::now();
    loop {
        let answer = owned.create("Afterwards").await;
        // Created by a try that was given up, or now.
        if matches!(answer.status, 200 | 409) {
            break;
        }
        assert!(begun.elapsed() < HANG, "{}", answer.text());
    }
    let all = futures::future::join_all((0..40).map(|_| owned.owner_gets("/dataset/list"))).await;
    assert!(all.iter().flatten().all(|answer| answer.status == 200));
}

/// A body of one entity that ends when the sender goes.
fn slow_body() -> (Body, tokio::sync::oneshot::Sender<()>) {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let begin = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"[{\"a\":1}"))]);
    let rest = futures::stream::once(async move {
        let _ = ended.await;
        Ok(Bytes::from_static(b"]"))
    });
    (Body::from_stream(futures::StreamExt::chain(begin, rest)), end)
}

/// A push whose catalog was locked before its body was whole: it was refused, and its end is not recorded.
struct Cut {
    owned: Owned,
    dataset: DatasetId,
    locked: SqliteConnection,
}

impl Cut {
    async fn off() -> Cut {
        let owned = Owned::start(None).await;
        let dataset = owned.dataset("Pushed").await;
        let catalog = owned.service.catalog().await;
        let (body, end) = slow_body();
        let cut = async {
            while catalog.attempts(dataset, None, 10).await.expect("attempts").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let locked = lock(&owned.service).await;
            drop(end);
            locked
        };
        let (answer, locked) = tokio::join!(owned.push(dataset, body), cut);
        unavailable(&answer, "it is locked");
        Cut { owned, dataset, locked }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_the_catalog_cut_off_holds_its_dataset_no_longer_than_the_catalog_is_away() {
    let Cut { owned, dataset, locked } = Cut::off().await;
    // Nobody can take it over yet.
    unavailable(&owned.push(dataset, Body::from("[]")).await, "it is locked");
    sqlx::Connection::close(locked).await.expect("closed");
    // The attempt's end is recorded by the next one, or before it.
    let pushed = owned.push(dataset, Body::from("[{\"a\":2}]")).await;
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let catalog = owned.service.catalog().await;
    let told: Vec<_> = catalog
        .attempts(dataset, None, 10)
        .await
        .expect("attempts")
        .into_iter()
        .map(|attempt| format!("{:?}", attempt.outcome))
        .collect();
    assert!(told.len() == 2 && told[0].contains("Published") && told[1].contains("is locked"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_push_is_recorded_when_the_catalog_is_back_though_nobody_asks() {
    let Cut { owned, dataset, locked } = Cut::off().await;
    sqlx::Connection::close(locked).await.expect("closed");
    let catalog = owned.service.catalog().await;
    let begun = Instant::now();
    while catalog.attempts(dataset, None, 10).await.expect("attempts")[0].finished_at.is_none() {
        // The lease would last for a minute.
        assert!(begun.elapsed() < HANG / 2);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_held_is_free_at_the_next_start_unless_another_one_lives() {
    for lives in [false, true] {
        let owned = Owned::start(None).await;
        let dataset = owned.dataset("Pushed").await;
        let catalog = owned.service.catalog().await;
        // Whoever has it is no more, or is not to be seen here.
        let lease = Duration::from_secs(3_600);
        let held = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "held", lease).await.expect("free");
        let other = match lives {
            true => Some(owned.service.beside(|_| ()).await),
            false => None,
        };
        let background = owned.service.services.start_background();
        let begun = Instant::now();
        let free = loop {
            let pushed = owned.push(dataset, Body::from("[{\"a\":1}]")).await;
            match pushed.status {
                200 => break true,
                409 if lives && begun.elapsed() > Duration::from_secs(2) => break false,
                409 => assert!(begun.elapsed() < HANG, "{}", pushed.text()),
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
async fn a_postgresql_server_that_is_stopped_is_named_at_once_however_long_calls_may_wait() {
    let mut server = Postgres::own();
    let url = server.create_database().await;
    let owned = Owned::configured(Some(url.clone()), |config| config.catalog.wait_s = 60).await;
    let imported = owned.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    server.crash();
    let begun = Instant::now();
    read_refused(&owned.soon(&read, 503).await, GONE);
    unavailable(&owned.create("Others").await, GONE);
    for answer in futures::future::join_all((0..40).map(|_| owned.create("Others"))).await {
        unavailable(&answer, GONE);
    }
    let opened = integrity(&url).await;
    assert!(opened.len() == 1 && opened[0].contains(GONE), "{opened:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    server.restart();
    owned.soon(&read, 200).await;
    assert_eq!(owned.create("Others").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_dropped_or_replaced_is_named() {
    const MISSING: &str = "the database or one of its tables is missing";
    let server = Postgres::shared();
    let url = server.create_database().await;
    let owned = Owned::start(Some(url.clone())).await;
    let imported = owned.service.import("Things", r#"[{"a":1}]"#).await;
    let read = format!("/api/{}/things/latest/", imported.dataset_id);
    for sql in ["DROP DATABASE {} WITH (FORCE)", "CREATE DATABASE {}"] {
        server.execute_on(&url, sql).await;
        read_refused(&owned.soon(&read, 503).await, MISSING);
        unavailable(&owned.create("Others").await, MISSING);
        let ready = owned.soon("/readyz", 503).await;
        assert!(ready.text().contains(MISSING), "{}", ready.text());
    }
}

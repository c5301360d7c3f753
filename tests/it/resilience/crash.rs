//! Tests that kill the binary at every crash point of a refresh, an alternate save, a rollback, and a compaction, and
//! at random moments in between. After a restart, the state is the complete state before or after the action, and no
//! webhook is sent twice.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::SqlitePool;
use strata_testing::files;
use strata_testing::http_client;
use strata_testing::loopback_server::{LoopbackServer, ok};
use strata_testing::machine::{Machine, Server, crash_points, succeeded};

/// The signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// The action during which the process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CrashAction {
    Refresh,
    SaveAlternate,
    RollBack,
    /// A refresh whose version is compacted.
    Compact,
}

/// A crash point with the expected result.
#[derive(Clone, Copy, Debug)]
struct CrashCase {
    point: &'static str,
    action: CrashAction,
    /// Whether the action took effect.
    done: bool,
    /// Whether the webhook of the new version is delivered, before or after the crash.
    posted: bool,
}

const fn case(point: &'static str, action: CrashAction, done: bool, posted: bool) -> CrashCase {
    CrashCase { point, action, done, posted }
}

const CASES: [CrashCase; 16] = [
    case("refresh.leased", CrashAction::Refresh, false, false),
    case("refresh.spooled", CrashAction::Refresh, false, false),
    case("file.writing", CrashAction::Refresh, false, false),
    case("file.written", CrashAction::Refresh, false, false),
    case("publish.uncommitted", CrashAction::Refresh, false, false),
    case("publish.committed", CrashAction::Refresh, true, true),
    // A claimed delivery is never sent again, even if it was not sent at all.
    case("delivery.claimed", CrashAction::Refresh, true, false),
    case("delivery.sent", CrashAction::Refresh, true, true),
    case("file.writing", CrashAction::SaveAlternate, false, false),
    case("file.written", CrashAction::SaveAlternate, false, false),
    case("alternate.uncommitted", CrashAction::SaveAlternate, false, false),
    case("alternate.committed", CrashAction::SaveAlternate, true, false),
    case("rollback.uncommitted", CrashAction::RollBack, false, false),
    case("rollback.committed", CrashAction::RollBack, true, false),
    case("compact.uncommitted", CrashAction::Compact, false, false),
    case("compact.committed", CrashAction::Compact, true, false),
];

#[test]
fn every_crash_point_has_a_case() {
    let covered: BTreeSet<&str> = CASES.iter().map(|case| case.point).collect();
    assert_eq!(covered, crash_points().collect());
}

#[tokio::test]
async fn killed_refresh_creates_one_version_or_none() {
    check(CrashAction::Refresh).await;
}

#[tokio::test]
async fn killed_alternate_save_is_complete_or_undone() {
    check(CrashAction::SaveAlternate).await;
}

#[tokio::test]
async fn killed_rollback_is_complete_or_undone() {
    check(CrashAction::RollBack).await;
}

/// Entities of a version of which every 9th is new in each version: more than 4,096 extents.
const COMPACTED_ENTITIES: u64 = 20_000;

fn scattered_entities(version: u64) -> String {
    let entity = |number: u64| {
        let round = if number.is_multiple_of(9) { version } else { 0 };
        format!(r#"{{"id":{number},"round":{round},"words":"the words of an entity of a long list"}}"#)
    };
    format!("[{}]", (0..COMPACTED_ENTITIES).map(entity).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn killed_compaction_is_complete_or_undone() {
    for case in CASES.into_iter().filter(|case| case.action == CrashAction::Compact) {
        let fixture = CrashFixture::with_source(scattered_entities).await;
        let mut server = fixture.serve(Some(case.point));
        // The compaction can kill the server before the response to the refresh.
        fixture.act(&server, case.action).await;
        assert_eq!(server.ended_by(), Some(SIGKILL), "{case:?}");
        fixture.let_time_pass().await;
        assert_eq!(fixture.is_complete(2).await, case.done, "{case:?}");

        let server = fixture.serve(None);
        let expected = |version| serde_json::from_str::<Value>(&scattered_entities(version)).expect("failed to parse");
        assert!(fixture.read_without_source(&server, 2).await == expected(2), "{case:?}");
        // The next version is compacted, too.
        let answer = fixture.act(&server, case.action).await.expect("failed to get a response");
        assert_eq!(answer["version"]["version_number"], json!(3), "{case:?}: {answer}");
        let until = Instant::now() + Duration::from_secs(120);
        while !fixture.is_complete(3).await {
            assert!(Instant::now() < until, "{case:?}: {}", server.errors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for version in 1..=3 {
            let entities = fixture.read_without_source(&server, version).await;
            assert!(entities == expected(version), "{case:?}: v{version}");
        }
        let (code, errors) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        fixture.assert_swept().await;
    }
}

async fn check(action: CrashAction) {
    for case in CASES.into_iter().filter(|case| case.action == action) {
        let fixture = CrashFixture::new().await;
        let mut server = fixture.serve(Some(case.point));
        let answer = fixture.act(&server, action).await;
        assert_eq!(server.ended_by(), Some(SIGKILL), "{case:?}");
        // A response does not wait for its deliveries, so that it can precede a crash in a delivery.
        assert!(answer.is_none() || case.point.starts_with("delivery"), "{case:?}: {answer:?}");
        fixture.let_time_pass().await;

        let server = fixture.serve(None);
        let mut posted: Vec<u64> = vec![1];
        let done = |action| case.action == action && case.done;
        let latest = if done(CrashAction::Refresh) { 2 } else { 1 };
        if case.posted {
            posted.push(2);
        }
        let view = fixture.view(&server).await;
        assert_eq!(view["latest_version"], json!(latest), "{case:?}");
        assert_eq!(view["pinned"], json!(done(CrashAction::RollBack)), "{case:?}");
        let alternate = if done(CrashAction::SaveAlternate) { "new" } else { "old" };
        assert_eq!(fixture.read(&server, "v1/alt").await, json!([{"alternate": alternate}]), "{case:?}");

        // The next refresh succeeds.
        let answer = fixture.act(&server, CrashAction::Refresh).await.expect("failed to get a response");
        assert_eq!(answer["version"]["version_number"], json!(latest + 1), "{case:?}: {answer}");
        posted.push(latest + 1);
        fixture.assert_final_state(server, latest + 1, &posted).await;
    }
}

#[tokio::test]
async fn repeated_kills_lose_and_duplicate_nothing() {
    const KILLS: u64 = 6;
    let fixture = CrashFixture::new().await;
    let mut answered = 1;
    for round in 0..KILLS {
        let mut server = fixture.serve(None);
        let refreshing = async {
            // The highest version number that a client has received.
            let mut latest = 0;
            loop {
                match fixture.act(&server, CrashAction::Refresh).await {
                    Some(answer) => latest = answer["version"]["version_number"].as_u64().unwrap_or(latest),
                    None => return latest,
                }
            }
        };
        // The moment of the kill differs between rounds, so that it hits different steps.
        let mut refreshing = Box::pin(refreshing);
        tokio::select! {
            _ = &mut refreshing => panic!("the refresh ended before the kill: {}", server.errors()),
            () = tokio::time::sleep(Duration::from_millis(150 + 67 * round)) => {}
        }
        drop(refreshing);
        let before = fixture.latest(&server).await;
        server.kill();
        answered = before.max(answered);
        fixture.let_time_pass().await;
    }
    let server = fixture.serve(None);
    let latest = fixture.latest(&server).await;
    assert!(latest >= answered, "{latest} of {answered}");
    let posts = fixture.posted();
    let distinct: BTreeSet<u64> = posts.iter().copied().collect();
    assert_eq!(distinct.len(), posts.len(), "a webhook was sent twice: {posts:?}");
    let answer = fixture.act(&server, CrashAction::Refresh).await.expect("failed to get a response");
    assert_eq!(answer["version"]["version_number"], json!(latest + 1), "{answer}");
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
    let posts = fixture.posted();
    let distinct: BTreeSet<u64> = posts.iter().copied().collect();
    assert_eq!(distinct.len(), posts.len(), "a webhook was sent twice: {posts:?}");
    assert!(distinct.contains(&(latest + 1)));
    let server = fixture.serve(None);
    fixture.assert_readable(&server, latest + 1).await;
    server.stop("-TERM");
    fixture.assert_swept().await;
}

/// A machine with an owner and a dataset. The dataset has one version with an alternate, and the webhook of this
/// version has been sent.
struct CrashFixture {
    machine: Machine,
    token: String,
    receiver: LoopbackServer,
    _source: LoopbackServer,
    client: reqwest::Client,
}

impl CrashFixture {
    async fn new() -> CrashFixture {
        CrashFixture::with_source(|number| format!("[{{\"n\":{number}}}]")).await
    }

    /// `entities` returns the source of a version.
    async fn with_source(entities: impl Fn(u64) -> String + Send + Sync + 'static) -> CrashFixture {
        let machine = Machine::new();
        let arguments = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"];
        let token = succeeded(&machine.run_with_input(&arguments, "correct horse\n"));
        let token = token.lines().last().expect("failed to find the token").to_owned();
        let number = AtomicU64::new(0);
        let source = LoopbackServer::start(move |_| {
            let number = number.fetch_add(1, Ordering::SeqCst) + 1;
            ok("Content-Type: application/json\r\n", entities(number).as_bytes())
        });
        let url = source.url("/");
        let receiver = LoopbackServer::start(|_| ok("", b""));
        let client = http_client().build().expect("failed to build the client");
        let fixture = CrashFixture { machine, token, receiver, _source: source, client };
        let server = fixture.serve(None);
        let create = json!({"name": "Crashing", "source": url});
        let created = fixture.post(&server, "/dataset/create", &create).await.expect("failed to get a response");
        assert_eq!(created["dataset"]["dataset_id"], json!(1), "{created}");
        let register = json!({"dataset_id": 1, "url": fixture.receiver.url("/hook")});
        fixture.post(&server, "/webhook/register", &register).await.expect("failed to get a response");
        fixture.act(&server, CrashAction::Refresh).await.expect("failed to get a response");
        let save = json!({"dataset_id": 1, "version": 1, "entities": [{"alternate": "old"}]});
        fixture.post(&server, "/dataset/alternate/save", &save).await.expect("failed to get a response");
        let (code, errors) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(fixture.posted(), [1], "the webhook was not sent before the end");
        fixture
    }

    fn serve(&self, crash_at: Option<&str>) -> Server {
        let mut environment = vec![("STRATA_NET__ALLOW", "127.0.0.0/8"), ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")];
        environment.extend(crash_at.map(|point| ("CRASH_AT", point)));
        Server::start(&self.machine, &[], &environment)
    }

    /// Returns the response to a successful call; `None` if the server ended before the response.
    async fn post(&self, server: &Server, path: &str, body: &Value) -> Option<Value> {
        let request = self.client.post(format!("{}{path}", server.base_url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.ok()?;
        let status = answer.status();
        let text = answer.text().await.ok()?;
        assert_eq!(status.as_u16(), 200, "{path}: {text}");
        Some(serde_json::from_str(&text).expect("failed to parse JSON"))
    }

    async fn act(&self, server: &Server, action: CrashAction) -> Option<Value> {
        let (path, body) = match action {
            CrashAction::Refresh | CrashAction::Compact => ("/dataset/refresh", json!({"dataset_id": 1})),
            CrashAction::SaveAlternate => {
                let entities = json!([{"alternate": "new"}]);
                ("/dataset/alternate/save", json!({"dataset_id": 1, "version": 1, "entities": entities}))
            }
            CrashAction::RollBack => ("/dataset/rollback", json!({"dataset_id": 1, "version_number": 1})),
        };
        self.post(server, path, &body).await
    }

    async fn get(&self, server: &Server, path: &str) -> Value {
        let answer = self.client.get(format!("{}{path}", server.base_url)).bearer_auth(&self.token).send().await;
        let answer = answer.expect("failed to get a response");
        let status = answer.status();
        let text = answer.text().await.expect("failed to read the body");
        assert_eq!(status.as_u16(), 200, "{path}: {text}");
        serde_json::from_str(&text).expect("failed to parse JSON")
    }

    async fn view(&self, server: &Server) -> Value {
        self.get(server, "/dataset/view?dataset_id=1").await["dataset"].clone()
    }

    async fn latest(&self, server: &Server) -> u64 {
        self.view(server).await["latest_version"].as_u64().expect("failed to create the version")
    }

    async fn read(&self, server: &Server, version: &str) -> Value {
        self.get(server, &format!("/api/1/crashing/{version}")).await
    }

    /// Returns the entities of a version without `_source`, which a refresh adds.
    async fn read_without_source(&self, server: &Server, version: u64) -> Value {
        self.read(server, &format!("v{version}/?drop_field=_source")).await
    }

    /// Returns the version numbers that the webhook receiver has received, in order.
    fn posted(&self) -> Vec<u64> {
        let event =
            |body: &[u8]| serde_json::from_slice::<Value>(body).expect("failed to parse JSON")["version"].as_u64();
        let mut versions: Vec<u64> = self
            .receiver
            .received()
            .iter()
            .map(|request| event(&request.body).expect("failed to create the version"))
            .collect();
        versions.sort_unstable();
        versions
    }

    async fn catalog(&self) -> SqlitePool {
        let path = self.machine.path("strata-data/catalog.sqlite");
        SqlitePool::connect(&format!("sqlite://{}", path.display())).await.expect("failed to open the catalog")
    }

    /// Returns whether the file of a version has no bases.
    async fn is_complete(&self, version: i64) -> bool {
        let catalog = self.catalog().await;
        let sql = "SELECT COUNT(*) FROM versions v JOIN file_bases b ON b.file_id = v.file_id
                   WHERE v.dataset_id = 1 AND v.version_number = ?";
        let (bases,): (i64,) =
            sqlx::query_as(sql).bind(version).fetch_one(&catalog).await.expect("failed to run the SQL statement");
        catalog.close().await;
        bases == 0
    }

    /// Lets the leases of dead processes expire.
    async fn let_time_pass(&self) {
        let catalog = self.catalog().await;
        for table in ["refresh_leases", "file_reservations"] {
            let sql = format!("UPDATE {table} SET expires_at = 1");
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&catalog).await.expect("failed to run the SQL statement");
        }
        catalog.close().await;
    }

    /// Asserts that every version is listed once and readable, and that no attempt is still running.
    async fn assert_readable(&self, server: &Server, latest: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        let view = loop {
            let view = self.view(server).await;
            let open = |attempt: &Value| attempt["finished_at"].is_null();
            if !view["last_attempts"].as_array().expect("failed to list attempts").iter().any(open) {
                break view;
            }
            assert!(Instant::now() < until, "{view}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let versions = view["versions"].as_array().expect("versions");
        let numbers: Vec<_> = versions.iter().map(|version| version["version_number"].as_u64()).collect();
        assert_eq!(numbers, (1..=latest).rev().map(Some).collect::<Vec<_>>());
        let active = versions.iter().filter(|version| version["is_active"] == json!(true)).count();
        assert_eq!(active, 1, "{view}");
        for number in 1..=latest {
            let entities = self.read(server, &format!("v{number}/")).await;
            assert_eq!(entities.as_array().map(Vec::len), Some(1), "v{number}: {entities}");
        }
    }

    /// Asserts all invariants after the last action, and stops the server.
    async fn assert_final_state(&self, server: Server, latest: u64, posted: &[u64]) {
        self.assert_readable(&server, latest).await;
        let (code, errors) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(self.posted(), posted);
        self.assert_swept().await;
    }

    /// Asserts that, after a sweep, the store contains exactly the recorded files, and that all of them are readable.
    async fn assert_swept(&self) {
        succeeded(&self.machine.run(&["sweep", "--offline", "--older-than", "0s"]));
        succeeded(&self.machine.run(&["check"]));
        let catalog = self.catalog().await;
        let recorded: Vec<(String,)> = sqlx::query_as("SELECT path FROM files")
            .fetch_all(&catalog)
            .await
            .expect("failed to run the SQL statement");
        let reserved: Vec<(String,)> = sqlx::query_as("SELECT path FROM file_reservations")
            .fetch_all(&catalog)
            .await
            .expect("failed to run the SQL statement");
        catalog.close().await;
        assert_eq!(reserved, []);
        let store = self.machine.path("strata-data/store");
        let recorded: BTreeSet<PathBuf> = recorded.into_iter().map(|(path,)| store.join(path)).collect();
        assert_eq!(files(&store).into_iter().collect::<BTreeSet<_>>(), recorded);
        assert_eq!(files(&self.machine.path("strata-data/tmp")), Vec::<PathBuf>::new());
    }
}

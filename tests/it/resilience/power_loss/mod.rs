//! Tests that acknowledged changes survive a power failure. The test records every disk write of the real binary and
//! replays the trace up to each sync and each response. For each of these moments, it builds the disks that a power
//! failure could leave ([`disk`]). On each disk, the service must start, have every acknowledged change byte for byte,
//! have other changes completely or not at all, find no damage, and accept the next version.
//!
//! `STRATA_POWER_LOSSES` sets the number of disks to test (default [`DEFAULT_DISKS`]; `all` for every disk).

mod disk;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_config::Config;
use strata_testing::faultfs::{FaultFs, FileOperation, TraceEvent};
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::maintenance::Depth;
use strata_testing::{TestService, http_client};

use disk::{Disk, Image, Loss};

/// The default number of tested disks.
const DEFAULT_DISKS: usize = 120;

/// The number of random disks at each moment, in addition to the six deterministic ones.
const RANDOM_DISKS: u64 = 4;

/// The state of the dataset as a client sees it.
#[derive(Clone, Debug, Default, PartialEq)]
struct DatasetState {
    exists: bool,
    /// The entities of each version.
    versions: Vec<Value>,
    /// The entities of the alternate of version 1.
    alternate: Option<Value>,
    /// The number of the active version.
    active: Option<u64>,
}

/// One change that a client requested.
struct RequestedChange {
    name: &'static str,
    /// The positions in the trace before the request and after its response.
    requested_at: u64,
    answered_at: u64,
    state: DatasetState,
}

/// A recorded trace with the changes that clients requested.
struct RecordedRun {
    trace: Vec<TraceEvent>,
    /// The position after which the user's token was acknowledged.
    user_added: u64,
    token: String,
    changes: Vec<RequestedChange>,
    /// The positions at which the backup started and ended, and the state that it contains.
    backup: (u64, u64, DatasetState),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: cuts the power at every write"]
async fn acknowledged_changes_survive_power_loss() {
    let run = record().await;
    let moments = moments(&run);
    let disks = disks(&run, &moments);
    let wanted = match std::env::var("STRATA_POWER_LOSSES").ok().as_deref() {
        Some("all") => usize::MAX,
        Some(number) => number.parse().expect("STRATA_POWER_LOSSES is a number or `all`"),
        None => DEFAULT_DISKS,
    };
    // The tested disks are spread over the whole run.
    let step = disks.len().div_ceil(wanted.max(1)).max(1);
    let mut tried = 0;
    for (position, loss, image) in disks.iter().step_by(step) {
        let what = format!("{loss:?} at {position} ({})", run.describe(*position));
        run.check(*position, image, &what).await;
        tried += 1;
    }
    println!("{tried} of {} disks, {} moments, {} events", disks.len(), moments.len(), run.trace.len());
    assert!(tried >= DEFAULT_DISKS.min(disks.len()) / 2, "{tried}");
}

/// An HTTP client of one server.
struct OwnerClient<'a> {
    base_url: &'a str,
    token: &'a str,
    client: reqwest::Client,
}

impl OwnerClient<'_> {
    async fn post(&self, path: &str, body: Value) -> Value {
        self.send(reqwest::Method::POST, path, body).await
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Value) -> Value {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(self.token);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await;
        let answer = answer.expect("failed to get a response");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("failed to read the body");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("failed to parse JSON")
    }
}

/// Returns entities that differ between versions.
fn entities(number: u64) -> Value {
    let entity = |n: u64| json!({"version": number, "n": n, "text": format!("text {number} {n} ").repeat(20)});
    Value::Array((0..=number * 7).map(entity).collect())
}

/// Runs the service from its first start to a backup, and records all operations on its disk.
async fn record() -> RecordedRun {
    let machine = Machine::new();
    let faults = FaultFs::below(&machine.path("disk")).traced();
    std::fs::create_dir(machine.path("disk")).expect("failed to create the directory");
    let data = ["--data", "disk/data"];
    let mut add =
        machine.command(&[&["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"][..], &data].concat());
    add.envs(faults.environment()).stdin(std::process::Stdio::piped());
    add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = add.spawn().expect("failed to run the binary");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"correct horse\n").expect("written");
    let token = succeeded(&child.wait_with_output().expect("it ends"));
    let token = token.lines().last().expect("failed to find the token").to_owned();
    let user_added = faults.position();

    let mut changes: Vec<RequestedChange> = Vec::new();
    let mut state = DatasetState::default();
    // Two servers run one after the other, so that the catalog is closed and opened in between.
    for round in 0..2 {
        let server = faults.serve(&machine, &data, &[]);
        let client = OwnerClient {
            base_url: &server.base_url,
            token: &token,
            client: http_client().build().expect("failed to build the client"),
        };
        let actions: &[&str] = match round {
            0 => &["create", "publish", "publish", "alternate", "rollback"],
            _ => &["unpin", "alternate", "publish", "delete alternate", "alternate"],
        };
        for name in actions {
            let requested_at = faults.position();
            act(name, &client, &mut state, changes.len() as u64).await;
            changes.push(RequestedChange { name, requested_at, answered_at: faults.position(), state: state.clone() });
        }
        if round == 1 {
            // The sweep deletes replaced alternates while the server runs.
            succeeded(&faults.run(&machine, &["sweep", "--data", "disk/data", "--offline", "--older-than", "0s"]));
        }
        end(server);
    }
    let requested_at = faults.position();
    succeeded(&faults.run(&machine, &["backup", "disk/deep/copy", "--copy", "--data", "disk/data"]));
    let backup = (requested_at, faults.position(), state);
    RecordedRun { trace: faults.trace(), user_added, token, changes, backup }
}

fn end(server: Server) {
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
}

async fn act(name: &str, client: &OwnerClient<'_>, state: &mut DatasetState, number: u64) {
    match name {
        "create" => {
            client.post("/dataset/create", json!({"name": "Things", "source": "push"})).await;
            state.exists = true;
        }
        "publish" => {
            let version = state.versions.len() as u64 + 1;
            client.post("/dataset/refresh", json!({"dataset_id": 1, "entities": entities(version)})).await;
            state.versions.push(entities(version));
            state.active = Some(version);
        }
        "alternate" => {
            let entities = json!([{"alternate": number}]);
            let body = json!({"dataset_id": 1, "version": 1, "entities": entities});
            client.post("/dataset/alternate/save", body).await;
            state.alternate = Some(entities);
        }
        "delete alternate" => {
            let body = json!({"dataset_id": 1, "version": 1});
            client.send(reqwest::Method::DELETE, "/dataset/alternate/delete", body).await;
            state.alternate = None;
        }
        "rollback" => {
            client.post("/dataset/rollback", json!({"dataset_id": 1, "version_number": 1})).await;
            state.active = Some(1);
        }
        "unpin" => {
            client.post("/dataset/unpin", json!({"dataset_id": 1})).await;
            state.active = Some(state.versions.len() as u64);
        }
        other => panic!("no action {other}"),
    }
}

/// Returns the positions at which the power fails: before and after each sync, and at each response.
fn moments(run: &RecordedRun) -> BTreeSet<u64> {
    let mut moments = BTreeSet::from([0]);
    let mut before = 0;
    for event in &run.trace {
        if matches!(event.operation, FileOperation::Sync { .. } | FileOperation::SyncDirectory { .. }) {
            moments.extend([before, event.end]);
        }
        before = event.end;
    }
    moments.extend(run.changes.iter().flat_map(|change| [change.requested_at, change.answered_at]));
    moments.extend([run.user_added, run.backup.0, run.backup.1]);
    moments
}

/// Returns each distinct disk that a power failure can leave at one of the moments.
fn disks(run: &RecordedRun, moments: &BTreeSet<u64>) -> Vec<(u64, Loss, Image)> {
    let mut disks = Vec::new();
    let mut disk = Disk::new();
    let mut events = run.trace.iter().peekable();
    let mut known = HashSet::new();
    for moment in moments {
        while let Some(event) = events.next_if(|event| event.end <= *moment) {
            disk.apply(event);
        }
        let kinds =
            [Loss::Everything, Loss::Nothing, Loss::Content, Loss::ContentButLengths, Loss::Names, Loss::LastSectors];
        for loss in
            kinds.into_iter().chain((0..RANDOM_DISKS).map(|number| Loss::Random(moment * RANDOM_DISKS + number)))
        {
            let mut image = disk.image_after(loss);
            // SQLite rebuilds this file after a power failure. Its content is memory-mapped, so that the trace does not
            // contain it.
            image.retain(|path, _| !path.ends_with("-shm"));
            let mut hash = DefaultHasher::new();
            // The same disk can be correct before a response and wrong after it, so the acknowledged changes are part
            // of the hash.
            (run.progress_key(*moment), &image).hash(&mut hash);
            if known.insert(hash.finish()) {
                disks.push((*moment, loss, image));
            }
        }
    }
    disks
}

impl RecordedRun {
    /// Returns a number that identifies the changes that were requested and acknowledged before a position.
    fn progress_key(&self, position: u64) -> usize {
        let answered = self.changes.iter().filter(|change| change.answered_at <= position).count();
        let begun = self.changes.iter().filter(|change| change.requested_at <= position).count();
        (answered * 100 + begun) * 10
            + usize::from(self.user_added <= position) * 2
            + usize::from(self.backup.1 <= position)
    }

    /// Describes the changes around a position, for messages.
    fn describe(&self, position: u64) -> String {
        let change =
            self.changes.iter().find(|change| change.requested_at < position && position <= change.answered_at);
        let name = change.map_or("nothing", |change| change.name);
        let shown = |event: &TraceEvent| match &event.operation {
            FileOperation::Write { path, offset, data } => format!("write of {} at {offset} of {path}", data.len()),
            other => format!("{other:?}"),
        };
        let last = self.trace.iter().rev().find(|event| event.end <= position).map_or_else(String::new, shown);
        format!("during {name}, after {last}")
    }

    /// Starts the service on an image and compares its state with the possible states.
    async fn check(&self, position: u64, image: &Image, what: &str) {
        let directory = tempfile::tempdir().expect("failed to create a directory");
        disk::write(image, directory.path());
        let done = self.changes.iter().take_while(|change| change.answered_at <= position).last();
        let before = done.map_or_else(DatasetState::default, |change| change.state.clone());
        let under_way =
            self.changes.iter().find(|change| change.requested_at <= position && position < change.answered_at);
        let mut possible = vec![before];
        possible.extend(under_way.map(|change| change.state.clone()));
        let data = directory.path().join("data");
        if position < self.user_added {
            // Before the user is acknowledged, the service only has to start.
            open(&data).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        } else {
            self.check_data(&data, &possible, what).await;
        }

        let (_, complete, held) = &self.backup;
        let copy = directory.path().join("deep/copy");
        if position >= *complete || (copy.join("catalog.sqlite").exists() && !copy.join("INCOMPLETE-BACKUP").exists()) {
            assert!(copy.join("catalog.sqlite").exists(), "{what}: the backup is missing");
            self.check_data(&copy, std::slice::from_ref(held), &format!("the backup, {what}")).await;
        } else if copy.join("INCOMPLETE-BACKUP").exists() {
            let opened = open(&copy).await.err();
            assert!(opened.as_ref().is_some_and(|error| error.contains("an incomplete backup")), "{what}: {opened:?}");
        }
    }

    /// Asserts that a data directory has one of the possible states, is undamaged, and accepts the next version.
    async fn check_data(&self, directory: &Path, possible: &[DatasetState], what: &str) {
        let service = open(directory).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let state = self.read_state(&service, what).await;
        assert!(possible.contains(&state), "{what}: {state:?} is none of {possible:?}");
        let checked = service.try_check(Depth::Everything).await;
        let checked = checked.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(checked.damaged, 0, "{what}: {:?}", checked.findings);
        if state.exists {
            let next = state.versions.len() as u64 + 1;
            // Leases from before the power failure would expire by themselves.
            expire_leases(directory).await;
            let body = json!({"dataset_id": 1, "entities": entities(next)});
            let (status, text) = self.call(&service, "POST", "/dataset/refresh", body.to_string()).await;
            assert_eq!(status, 200, "{what}: {text}");
            let (status, text) = self.call(&service, "GET", &format!("/api/1/things/v{next}/"), String::new()).await;
            let read: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{what}: {status} {text}"));
            assert_eq!(read, entities(next), "{what}");
        }
    }

    async fn read_state(&self, service: &TestService, what: &str) -> DatasetState {
        let (status, text) = self.call(service, "GET", "/dataset/view?dataset_id=1", String::new()).await;
        if status == 404 {
            return DatasetState::default();
        }
        assert_eq!(status, 200, "{what}: {text}");
        let dataset = serde_json::from_str::<Value>(&text).expect("failed to parse JSON")["dataset"].clone();
        let latest = dataset["latest_version"].as_u64().unwrap_or(0);
        let mut state =
            DatasetState { exists: true, active: dataset["active_version"].as_u64(), ..DatasetState::default() };
        for number in 1..=latest {
            let (status, text) = self.call(service, "GET", &format!("/api/1/things/v{number}/"), String::new()).await;
            assert_eq!(status, 200, "{what}: version {number}: {text}");
            state.versions.push(serde_json::from_str(&text).expect("failed to parse JSON"));
        }
        if latest > 0 {
            let (status, text) = self.call(service, "GET", "/api/1/things/v1/alt/", String::new()).await;
            assert!(status == 200 || status == 404, "{what}: the alternate: {status} {text}");
            state.alternate = (status == 200).then(|| serde_json::from_str(&text).expect("failed to parse JSON"));
        }
        state
    }

    async fn call(&self, service: &TestService, method: &str, uri: &str, body: String) -> (u16, String) {
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let answer = service.call(request.body(Body::from(body)).expect("failed to build the request")).await;
        assert!(answer.whole, "{uri}");
        (answer.status, answer.text().to_owned())
    }
}

async fn open(directory: &Path) -> Result<TestService, String> {
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.query.threads = 1;
    config.limits.public_per_minute = 0;
    config.limits.private_per_minute = 0;
    TestService::open(&config).await
}

async fn expire_leases(directory: &Path) {
    let url = format!("sqlite://{}", directory.join("catalog.sqlite").display());
    let catalog = sqlx::SqlitePool::connect(&url).await.expect("failed to open the catalog");
    sqlx::query("UPDATE refresh_leases SET expires_at = 1")
        .execute(&catalog)
        .await
        .expect("failed to run the SQL statement");
    catalog.close().await;
}

//! Tests that acknowledged changes survive a power failure. The test records every disk write of the real binary and
//! replays the trace up to each sync and each response. For each of these moments, it builds the disks that a power
//! failure could leave ([`disk`]). On each disk, the service must start, have every acknowledged change byte for byte,
//! have other changes completely or not at all, sweep only unused files, find no damage, and accept the next version.
//!
//! `STRATA_POWER_LOSSES` sets the number of disks to test (default [`DEFAULT_DISKS`] or [`DEFAULT_DELTA_DISKS`]; `all`
//! for every disk).

mod disk;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::iter::Peekable;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_config::Config;
use strata_testing::faultfs::{FaultFs, FileOperation, TraceEvent};
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::maintenance::Depth;
use strata_testing::{TestService, eventually, http_client, metrics};

use disk::{Disk, Image, Loss};

/// The default number of tested disks.
const DEFAULT_DISKS: usize = 120;

/// Like [`DEFAULT_DISKS`], for delta versions, whose lists are long.
const DEFAULT_DELTA_DISKS: usize = 50;

/// The arguments of commands that set the data directory.
const DATA: [&str; 2] = ["--data", "disk/data"];

/// The number of random disks at each moment, in addition to the six deterministic ones.
const RANDOM_DISKS: u64 = 4;

/// The state of the dataset as a client sees it.
#[derive(Clone, Debug, Default, PartialEq)]
struct DatasetState {
    exists: bool,
    versions: Vec<ListDigest>,
    /// The entities of the alternate of version 1.
    alternate: Option<Value>,
    /// The number of the active version.
    active: Option<u64>,
}

/// The number of entities of a list and the hash of their texts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ListDigest {
    entities: usize,
    hash: u64,
}

impl ListDigest {
    /// `lines` are the texts of the entities, each followed by a line feed.
    fn new(lines: &str) -> ListDigest {
        let mut hasher = DefaultHasher::new();
        lines.hash(&mut hasher);
        ListDigest { entities: lines.lines().count(), hash: hasher.finish() }
    }
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
    backup: Option<(u64, u64, DatasetState)>,
    /// Returns the texts of the entities of a version.
    entities: fn(u64) -> Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: cuts the power at every write"]
async fn acknowledged_changes_survive_power_loss() {
    record().await.check_disks(DEFAULT_DISKS).await;
}

/// The power fails while delta versions are written, while two of them are compacted, and while files are swept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: cuts the power at every write"]
async fn delta_versions_survive_power_loss() {
    for _ in 0..5 {
        if let Some(run) = record_delta_versions().await {
            return run.check_disks(DEFAULT_DELTA_DISKS).await;
        }
    }
    panic!("the replaced file of a version never became a base of the next version");
}

/// An HTTP client of one server.
struct OwnerClient<'a> {
    base_url: &'a str,
    token: &'a str,
    client: reqwest::Client,
}

impl<'a> OwnerClient<'a> {
    fn new(server: &'a Server, token: &'a str) -> OwnerClient<'a> {
        let client = http_client().build().expect("failed to build the client");
        OwnerClient { base_url: &server.base_url, token, client }
    }

    async fn wait_for_compaction(&self) {
        eventually("no version was compacted", async || {
            let answer = self.client.get(format!("{}/metrics", self.base_url)).send().await;
            let text = answer.expect("failed to get a response").text().await.expect("failed to read the body");
            metrics::value(&text, "strata_compactions_total{outcome=\"compacted\"}").is_some_and(|count| count >= 1.0)
        })
        .await;
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.send(reqwest::Method::POST, path, body).await
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Value) -> Value {
        self.send_text(method, path, body.to_string()).await
    }

    async fn send_text(&self, method: reqwest::Method, path: &str, body: String) -> Value {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(self.token);
        let answer = request.header("content-type", "application/json").body(body).send().await;
        let answer = answer.expect("failed to get a response");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("failed to read the body");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("failed to parse JSON")
    }
}

/// Returns entities that differ between versions.
fn entities(number: u64) -> Vec<String> {
    let entity = |n: u64| {
        let text = format!("text {number} {n} ").repeat(20);
        format!(r#"{{"n":{n},"text":"{text}","version":{number}}}"#)
    };
    (0..=number * 7).map(entity).collect()
}

/// Returns the entities of a long list. Each version is a delta version of the previous one. Versions 2 and 5 have so
/// many extents that they are compacted. Version 3 has fewer extents, because it lacks the end of the list.
fn scattered_entities(number: u64) -> Vec<String> {
    let round = |n: u64| match number {
        2.. if n.is_multiple_of(9) => 2,
        3.. if n == 1 => 3,
        4.. if n == 5 => 4,
        5.. if n % 9 == 4 && n < 1_500 => 5,
        6.. if n == 7 => number,
        _ => 0,
    };
    let entity = |n: u64| {
        let words = "these are the words of an entity of a long list";
        format!(r#"{{"n":{n},"round":{},"words":"{words}"}}"#, round(n))
    };
    (0..if number <= 2 { 24_000 } else { 18_000 }).map(entity).collect()
}

fn lines(entities: &[String]) -> String {
    entities.iter().map(|entity| format!("{entity}\n")).collect()
}

/// Returns the body of a request that creates the next version of dataset 1.
fn refresh_body(entities: &[String]) -> String {
    format!(r#"{{"dataset_id":1,"entities":[{}]}}"#, entities.join(","))
}

/// Starts recording and adds a user. Returns the user's token.
fn start_recording() -> (Machine, FaultFs, String) {
    let machine = Machine::new();
    let faults = FaultFs::below(&machine.path("disk")).traced();
    std::fs::create_dir(machine.path("disk")).expect("failed to create the directory");
    let mut add =
        machine.command(&[&["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"][..], &DATA].concat());
    add.envs(faults.environment()).stdin(std::process::Stdio::piped());
    add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = add.spawn().expect("failed to run the binary");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"correct horse\n").expect("written");
    let token = succeeded(&child.wait_with_output().expect("it ends"));
    let token = token.lines().last().expect("failed to find the token").to_owned();
    (machine, faults, token)
}

/// Runs the service from its first start to a backup, and records all operations on its disk.
async fn record() -> RecordedRun {
    let (machine, faults, token) = start_recording();
    let user_added = faults.position();
    let mut changes: Vec<RequestedChange> = Vec::new();
    let mut state = DatasetState::default();
    // Two servers run one after the other, so that the catalog is closed and opened in between.
    for round in 0..2 {
        let server = faults.serve(&machine, &DATA, &[]);
        let client = OwnerClient::new(&server, &token);
        let actions: &[&str] = match round {
            0 => &["create", "publish", "publish", "alternate", "rollback"],
            _ => &["unpin", "alternate", "publish", "delete alternate", "alternate"],
        };
        for name in actions {
            let requested_at = faults.position();
            act(name, &client, &mut state, changes.len() as u64, entities).await;
            changes.push(RequestedChange { name, requested_at, answered_at: faults.position(), state: state.clone() });
        }
        if round == 1 {
            // The sweep deletes replaced alternates while the server runs.
            sweep(&machine, &faults);
        }
        end(server);
    }
    let requested_at = faults.position();
    succeeded(&faults.run(&machine, &["backup", "disk/deep/copy", "--copy", "--data", "disk/data"]));
    let backup = Some((requested_at, faults.position(), state));
    RecordedRun { trace: faults.trace(), user_added, token, changes, backup, entities }
}

/// Records the refreshes, compactions, and sweeps of a dataset with [`scattered_entities`]. Returns `None` if version 2
/// was compacted before version 3 used its first file.
async fn record_delta_versions() -> Option<RecordedRun> {
    let (machine, faults, token) = start_recording();
    let user_added = faults.position();
    let mut changes: Vec<RequestedChange> = Vec::new();
    let mut state = DatasetState::default();
    for (actions, files) in [(&["create", "publish", "publish", "publish"][..], 4), (&["publish", "publish"], 6)] {
        let server = faults.serve(&machine, &DATA, &[]);
        let client = OwnerClient::new(&server, &token);
        for name in actions {
            let requested_at = faults.position();
            act(name, &client, &mut state, changes.len() as u64, scattered_entities).await;
            changes.push(RequestedChange { name, requested_at, answered_at: faults.position(), state: state.clone() });
        }
        client.wait_for_compaction().await;
        end(server);
        sweep(&machine, &faults);
        // The file of each version, and the first file of version 2, which is a base of later versions. The first file
        // of version 5 was removed.
        if strata_testing::files(&machine.path("disk/data/store/versions")).len() != files {
            return None;
        }
    }
    Some(RecordedRun { trace: faults.trace(), user_added, token, changes, backup: None, entities: scattered_entities })
}

fn sweep(machine: &Machine, faults: &FaultFs) {
    succeeded(&faults.run(machine, &[&["sweep", "--offline", "--older-than", "0s"][..], &DATA].concat()));
}

fn end(server: Server) {
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
}

async fn act(
    name: &str,
    client: &OwnerClient<'_>,
    state: &mut DatasetState,
    number: u64,
    entities: fn(u64) -> Vec<String>,
) {
    match name {
        "create" => {
            client.post("/dataset/create", json!({"name": "Things", "source": "push"})).await;
            state.exists = true;
        }
        "publish" => {
            let version = state.versions.len() as u64 + 1;
            let entities = entities(version);
            client.send_text(reqwest::Method::POST, "/dataset/refresh", refresh_body(&entities)).await;
            state.versions.push(ListDigest::new(&lines(&entities)));
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
    moments.insert(run.user_added);
    moments.extend(run.backup.iter().flat_map(|(started, ended, _)| [*started, *ended]));
    moments
}

/// Returns each distinct disk that a power failure can leave at one of the moments, in the order of the moments.
fn disks(run: &RecordedRun, moments: &BTreeSet<u64>) -> Vec<(u64, Loss)> {
    let mut disks = Vec::new();
    let mut replay = DiskReplay::new(run);
    let mut known = HashSet::new();
    for moment in moments {
        let kinds =
            [Loss::Everything, Loss::Nothing, Loss::Content, Loss::ContentButLengths, Loss::Names, Loss::LastSectors];
        for loss in
            kinds.into_iter().chain((0..RANDOM_DISKS).map(|number| Loss::Random(moment * RANDOM_DISKS + number)))
        {
            let image = replay.image_after(*moment, loss);
            let mut hash = DefaultHasher::new();
            // The same disk can be correct before a response and wrong after it, so the acknowledged changes are part
            // of the hash.
            (run.progress_key(*moment), &image).hash(&mut hash);
            if known.insert(hash.finish()) {
                disks.push((*moment, loss));
            }
        }
    }
    disks
}

/// Builds images at ascending moments.
struct DiskReplay<'r> {
    disk: Disk,
    events: Peekable<std::slice::Iter<'r, TraceEvent>>,
}

impl DiskReplay<'_> {
    fn new(run: &RecordedRun) -> DiskReplay<'_> {
        DiskReplay { disk: Disk::new(), events: run.trace.iter().peekable() }
    }

    fn image_after(&mut self, moment: u64, loss: Loss) -> Image {
        while let Some(event) = self.events.next_if(|event| event.end <= moment) {
            self.disk.apply(event);
        }
        let mut image = self.disk.image_after(loss);
        // SQLite rebuilds this file after a power failure. Its content is memory-mapped, so that the trace does not
        // contain it.
        image.retain(|path, _| !path.ends_with("-shm"));
        image
    }
}

impl RecordedRun {
    /// Checks disks that are spread over the whole run: `count` of them, or as `STRATA_POWER_LOSSES` says.
    async fn check_disks(&self, count: usize) {
        let moments = moments(self);
        let disks = disks(self, &moments);
        let wanted = match std::env::var("STRATA_POWER_LOSSES").ok().as_deref() {
            Some("all") => usize::MAX,
            Some(number) => number.parse().expect("STRATA_POWER_LOSSES is a number or `all`"),
            None => count,
        };
        let step = disks.len().div_ceil(wanted.max(1)).max(1);
        let mut tried = 0;
        let mut replay = DiskReplay::new(self);
        for (position, loss) in disks.iter().step_by(step) {
            let what = format!("{loss:?} at {position} ({})", self.describe(*position));
            self.check(*position, &replay.image_after(*position, *loss), &what).await;
            tried += 1;
        }
        println!("{tried} of {} disks, {} moments, {} events", disks.len(), moments.len(), self.trace.len());
        assert!(tried >= wanted.min(disks.len()) / 2, "{tried}");
    }

    /// Returns a number that identifies the changes that were requested and acknowledged before a position.
    fn progress_key(&self, position: u64) -> usize {
        let answered = self.changes.iter().filter(|change| change.answered_at <= position).count();
        let begun = self.changes.iter().filter(|change| change.requested_at <= position).count();
        (answered * 100 + begun) * 10
            + usize::from(self.user_added <= position) * 2
            + usize::from(self.backup.as_ref().is_some_and(|(_, ended, _)| *ended <= position))
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

        let Some((_, complete, held)) = &self.backup else { return };
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
        // The sweep completes what an interrupted sweep began, and removes no file that a version needs.
        let swept = service.services.maintenance.sweep(Duration::ZERO, &mut |_| ()).await;
        swept.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let state = self.read_state(&service, what).await;
        assert!(possible.contains(&state), "{what}: {state:?} is none of {possible:?}");
        let checked = service.try_check(Depth::Everything).await;
        let checked = checked.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(checked.damaged, 0, "{what}: {:?}", checked.findings);
        if state.exists {
            let next = state.versions.len() as u64 + 1;
            // Leases from before the power failure would expire by themselves.
            expire_leases(directory).await;
            let entities = (self.entities)(next);
            let (status, text) = self.call(&service, "POST", "/dataset/refresh", refresh_body(&entities)).await;
            assert_eq!(status, 200, "{what}: {text}");
            assert_eq!(self.read_version(&service, next, what).await, ListDigest::new(&lines(&entities)), "{what}");
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
            state.versions.push(self.read_version(service, number, what).await);
        }
        if latest > 0 {
            let (status, text) = self.call(service, "GET", "/api/1/things/v1/alt/", String::new()).await;
            assert!(status == 200 || status == 404, "{what}: the alternate: {status} {text}");
            state.alternate = (status == 200).then(|| serde_json::from_str(&text).expect("failed to parse JSON"));
        }
        state
    }

    async fn read_version(&self, service: &TestService, number: u64, what: &str) -> ListDigest {
        let uri = format!("/api/1/things/v{number}/?format=jsonl");
        let (status, text) = self.call(service, "GET", &uri, String::new()).await;
        assert_eq!(status, 200, "{what}: version {number}: {text}");
        ListDigest::new(&text)
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

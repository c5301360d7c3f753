//! The power fails: what the real binary has done to its disk is recorded, and replayed up to every sync and every
//! answer, each time with the disks that can be left then. On each the service starts, has all that was acknowledged,
//! byte for byte, has the rest whole or not at all, finds no damage, and takes the next version.
//!
//! `STRATA_POWER_LOSSES` is the number of disks to try (default [`DISKS`]; `all` for every one).

mod disk;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_config::Config;
use strata_testing::faultfs::{Event, FaultFs, Operation};
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::maintenance::Depth;
use strata_testing::{TestService, http_client};

use disk::{Disk, Image, Loss};

/// Disks that are tried unless the environment says otherwise.
const DISKS: usize = 120;

/// Random disks at each moment, beside the six of which each is of its own kind.
const RANDOM: u64 = 4;

/// What a client sees of the dataset.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// Whether the dataset is there.
    exists: bool,
    /// The entities of each version.
    versions: Vec<Value>,
    /// Those of the alternate of version 1.
    alternate: Option<Value>,
    /// The active version.
    active: Option<u64>,
}

/// A change that was asked for.
struct Step {
    name: &'static str,
    /// Positions in the trace: before the request, and after its answer.
    asked: u64,
    answered: u64,
    /// What is seen afterwards.
    seen: Seen,
}

/// A recorded history.
struct History {
    trace: Vec<Event>,
    /// When the token was there.
    user_added: u64,
    token: String,
    steps: Vec<Step>,
    /// When the backup began and when it was done, and what it holds.
    backup: (u64, u64, Seen),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: cuts the power at every write"]
async fn what_was_acknowledged_outlives_a_power_failure_at_any_moment() {
    let history = record().await;
    let moments = moments(&history);
    let disks = disks(&history, &moments);
    let wanted = match std::env::var("STRATA_POWER_LOSSES").ok().as_deref() {
        Some("all") => usize::MAX,
        Some(number) => number.parse().expect("STRATA_POWER_LOSSES is a number or `all`"),
        None => DISKS,
    };
    // Spread over the whole history.
    let step = disks.len().div_ceil(wanted.max(1)).max(1);
    let mut tried = 0;
    for (position, loss, image) in disks.iter().step_by(step) {
        let what = format!("{loss:?} at {position} ({})", history.around(*position));
        history.check(*position, image, &what).await;
        tried += 1;
    }
    println!("{tried} of {} disks, {} moments, {} events", disks.len(), moments.len(), history.trace.len());
    assert!(tried >= DISKS.min(disks.len()) / 2, "{tried}");
}

/// A client of a server.
struct Client<'a> {
    base_url: &'a str,
    token: &'a str,
    client: reqwest::Client,
}

impl Client<'_> {
    async fn post(&self, path: &str, body: Value) -> Value {
        self.send(reqwest::Method::POST, path, body).await
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Value) -> Value {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(self.token);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await;
        let answer = answer.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("a body"));
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// Entities of which each version has others.
fn entities(number: u64) -> Value {
    let entity = |n: u64| json!({"version": number, "n": n, "text": format!("text {number} {n} ").repeat(20)});
    Value::Array((0..=number * 7).map(entity).collect())
}

/// Everything that is done to a disk, from the first start to a backup.
async fn record() -> History {
    let machine = Machine::new();
    let faults = FaultFs::below(&machine.path("disk")).traced();
    std::fs::create_dir(machine.path("disk")).expect("made");
    let data = ["--data", "disk/data"];
    let mut add =
        machine.command(&[&["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"][..], &data].concat());
    add.envs(faults.environment()).stdin(std::process::Stdio::piped());
    add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = add.spawn().expect("the binary runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"correct horse\n").expect("written");
    let token = succeeded(&child.wait_with_output().expect("it ends"));
    let token = token.lines().last().expect("a token").to_owned();
    let user_added = faults.position();

    let mut steps: Vec<Step> = Vec::new();
    let mut seen = Seen::default();
    // Two servers, one after the other: the catalog is closed and opened in between.
    for round in 0..2 {
        let server = faults.serve(&machine, &data, &[]);
        let client =
            Client { base_url: &server.base_url, token: &token, client: http_client().build().expect("a client") };
        let actions: &[&str] = match round {
            0 => &["create", "publish", "publish", "alternate", "rollback"],
            _ => &["unpin", "alternate", "publish", "delete alternate", "alternate"],
        };
        for name in actions {
            let asked = faults.position();
            act(name, &client, &mut seen, steps.len() as u64).await;
            steps.push(Step { name, asked, answered: faults.position(), seen: seen.clone() });
        }
        if round == 1 {
            // Replaced alternates go while the server runs.
            succeeded(&faults.run(&machine, &["sweep", "--data", "disk/data", "--offline", "--older-than", "0s"]));
        }
        end(server);
    }
    let asked = faults.position();
    succeeded(&faults.run(&machine, &["backup", "disk/deep/copy", "--copy", "--data", "disk/data"]));
    let backup = (asked, faults.position(), seen);
    History { trace: faults.trace(), user_added, token, steps, backup }
}

fn end(server: Server) {
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
}

async fn act(name: &str, client: &Client<'_>, seen: &mut Seen, number: u64) {
    match name {
        "create" => {
            client.post("/dataset/create", json!({"name": "Things", "source": "push"})).await;
            seen.exists = true;
        }
        "publish" => {
            let version = seen.versions.len() as u64 + 1;
            client.post("/dataset/refresh", json!({"dataset_id": 1, "entities": entities(version)})).await;
            seen.versions.push(entities(version));
            seen.active = Some(version);
        }
        "alternate" => {
            let entities = json!([{"alternate": number}]);
            let body = json!({"dataset_id": 1, "version": 1, "entities": entities});
            client.post("/dataset/alternate/save", body).await;
            seen.alternate = Some(entities);
        }
        "delete alternate" => {
            let body = json!({"dataset_id": 1, "version": 1});
            client.send(reqwest::Method::DELETE, "/dataset/alternate/delete", body).await;
            seen.alternate = None;
        }
        "rollback" => {
            client.post("/dataset/rollback", json!({"dataset_id": 1, "version_number": 1})).await;
            seen.active = Some(1);
        }
        "unpin" => {
            client.post("/dataset/unpin", json!({"dataset_id": 1})).await;
            seen.active = Some(seen.versions.len() as u64);
        }
        other => panic!("no action {other}"),
    }
}

/// The positions at which the power fails: before and after each sync, and at each answer.
fn moments(history: &History) -> BTreeSet<u64> {
    let mut moments = BTreeSet::from([0]);
    let mut before = 0;
    for event in &history.trace {
        if matches!(event.operation, Operation::Sync { .. } | Operation::SyncDirectory { .. }) {
            moments.extend([before, event.end]);
        }
        before = event.end;
    }
    moments.extend(history.steps.iter().flat_map(|step| [step.asked, step.answered]));
    moments.extend([history.user_added, history.backup.0, history.backup.1]);
    moments
}

/// Every disk that can be left at one of the moments, once.
fn disks(history: &History, moments: &BTreeSet<u64>) -> Vec<(u64, Loss, Image)> {
    let mut disks = Vec::new();
    let mut disk = Disk::new();
    let mut events = history.trace.iter().peekable();
    let mut known = HashSet::new();
    for moment in moments {
        while let Some(event) = events.next_if(|event| event.end <= *moment) {
            disk.apply(event);
        }
        let kinds =
            [Loss::Everything, Loss::Nothing, Loss::Content, Loss::ContentButLengths, Loss::Names, Loss::LastSectors];
        for loss in kinds.into_iter().chain((0..RANDOM).map(|number| Loss::Random(moment * RANDOM + number))) {
            let mut image = disk.after(loss);
            // Made anew by SQLite after a power failure; its content is mapped, and not in the trace.
            image.retain(|path, _| !path.ends_with("-shm"));
            let mut hash = DefaultHasher::new();
            // The same disk can be right before an answer and wrong after it.
            (history.known_by(*moment), &image).hash(&mut hash);
            if known.insert(hash.finish()) {
                disks.push((*moment, loss, image));
            }
        }
    }
    disks
}

impl History {
    /// What had been acknowledged at a moment, as a number.
    fn known_by(&self, position: u64) -> usize {
        let answered = self.steps.iter().filter(|step| step.answered <= position).count();
        let begun = self.steps.iter().filter(|step| step.asked <= position).count();
        (answered * 100 + begun) * 10
            + usize::from(self.user_added <= position) * 2
            + usize::from(self.backup.1 <= position)
    }

    /// What was going on, for messages.
    fn around(&self, position: u64) -> String {
        let step = self.steps.iter().find(|step| step.asked < position && position <= step.answered);
        let step = step.map_or("nothing", |step| step.name);
        let shown = |event: &Event| match &event.operation {
            Operation::Write { path, offset, data } => format!("write of {} at {offset} of {path}", data.len()),
            other => format!("{other:?}"),
        };
        let last = self.trace.iter().rev().find(|event| event.end <= position).map_or_else(String::new, shown);
        format!("during {step}, after {last}")
    }

    /// Starts the service on an image and compares.
    async fn check(&self, position: u64, image: &Image, what: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        disk::write(image, directory.path());
        let done = self.steps.iter().take_while(|step| step.answered <= position).last();
        let before = done.map_or_else(Seen::default, |step| step.seen.clone());
        let under_way = self.steps.iter().find(|step| step.asked <= position && position < step.answered);
        let mut possible = vec![before];
        possible.extend(under_way.map(|step| step.seen.clone()));
        let data = directory.path().join("data");
        if position < self.user_added {
            // Nothing is promised but that it starts.
            open(&data).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        } else {
            self.check_data(&data, &possible, what).await;
        }

        let (_, complete, held) = &self.backup;
        let copy = directory.path().join("deep/copy");
        if position >= *complete || (copy.join("catalog.sqlite").exists() && !copy.join("INCOMPLETE-BACKUP").exists()) {
            assert!(copy.join("catalog.sqlite").exists(), "{what}: the backup is gone");
            self.check_data(&copy, std::slice::from_ref(held), &format!("the backup, {what}")).await;
        } else if copy.join("INCOMPLETE-BACKUP").exists() {
            let opened = open(&copy).await.err();
            assert!(opened.as_ref().is_some_and(|error| error.contains("an incomplete backup")), "{what}: {opened:?}");
        }
    }

    /// A data directory holds one of the possible states, undamaged, and takes the next version.
    async fn check_data(&self, directory: &Path, possible: &[Seen], what: &str) {
        let service = open(directory).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let seen = self.see(&service, what).await;
        assert!(possible.contains(&seen), "{what}: {seen:?} is none of {possible:?}");
        let checked = service.try_check(Depth::Everything).await;
        let checked = checked.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(checked.damaged, 0, "{what}: {:?}", checked.findings);
        if seen.exists {
            let next = seen.versions.len() as u64 + 1;
            // Leases of the time before the failure run out by themselves.
            expire_leases(directory).await;
            let body = json!({"dataset_id": 1, "entities": entities(next)});
            let (status, text) = self.call(&service, "POST", "/dataset/refresh", body.to_string()).await;
            assert_eq!(status, 200, "{what}: {text}");
            let (status, text) = self.call(&service, "GET", &format!("/api/1/things/v{next}/"), String::new()).await;
            let read: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{what}: {status} {text}"));
            assert_eq!(read, entities(next), "{what}");
        }
    }

    async fn see(&self, service: &TestService, what: &str) -> Seen {
        let (status, text) = self.call(service, "GET", "/dataset/view?dataset_id=1", String::new()).await;
        if status == 404 {
            return Seen::default();
        }
        assert_eq!(status, 200, "{what}: {text}");
        let dataset = serde_json::from_str::<Value>(&text).expect("JSON")["dataset"].clone();
        let latest = dataset["latest_version"].as_u64().unwrap_or(0);
        let mut seen = Seen { exists: true, active: dataset["active_version"].as_u64(), ..Seen::default() };
        for number in 1..=latest {
            let (status, text) = self.call(service, "GET", &format!("/api/1/things/v{number}/"), String::new()).await;
            assert_eq!(status, 200, "{what}: version {number}: {text}");
            seen.versions.push(serde_json::from_str(&text).expect("JSON"));
        }
        if latest > 0 {
            let (status, text) = self.call(service, "GET", "/api/1/things/v1/alt/", String::new()).await;
            assert!(status == 200 || status == 404, "{what}: the alternate: {status} {text}");
            seen.alternate = (status == 200).then(|| serde_json::from_str(&text).expect("JSON"));
        }
        seen
    }

    async fn call(&self, service: &TestService, method: &str, uri: &str, body: String) -> (u16, String) {
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let answer = service.call(request.body(Body::from(body)).expect("a request")).await;
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
    let catalog = sqlx::SqlitePool::connect(&url).await.expect("the catalog");
    sqlx::query("UPDATE refresh_leases SET expires_at = 1").execute(&catalog).await.expect("SQL");
    catalog.close().await;
}

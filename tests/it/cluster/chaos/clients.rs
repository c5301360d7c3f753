//! Clients that send requests during attacks, and record requests and responses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use strata_reference::parquet::typed_cells;

use crate::cluster::harness::{ClusterResponse, ServiceClient};
use crate::cluster::history::{
    Call, CallHistory, CallOutcome, Disturbance, DisturbedPart, ElapsedMicros, HistoryEvent, ReadOutcome, TargetVersion,
};
use crate::cluster::seeded_random::SeededRandom;

/// The first versions, which get alternates.
pub const ALTERNATES: u64 = 2;

const MAX_ENTITIES: u64 = 2_000;

/// A content number that no client has published.
const GARBLED: u64 = u64::MAX;

/// A run with its recorded history.
pub struct ChaosRun {
    pub dataset: u64,
    start: Instant,
    is_over: AtomicBool,
    /// Number of the last content, and the greatest acknowledged version.
    contents: AtomicU64,
    versions: AtomicU64,
    history: Mutex<CallHistory>,
}

impl ChaosRun {
    pub fn new(dataset: u64) -> ChaosRun {
        ChaosRun {
            dataset,
            start: Instant::now(),
            is_over: AtomicBool::default(),
            contents: AtomicU64::default(),
            versions: AtomicU64::default(),
            history: Mutex::default(),
        }
    }

    pub fn now(&self) -> ElapsedMicros {
        u64::try_from(self.start.elapsed().as_micros()).expect("no such long run")
    }

    /// Stops all clients.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut CallHistory)) {
        change(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records an event that ends now.
    pub fn add(&self, start: ElapsedMicros, event: HistoryEvent) {
        let call = Call { start, end: self.now(), event };
        self.change(|history| history.calls.push(call));
    }

    /// Records a disturbance that ends now.
    pub fn record_disturbance(&self, start: ElapsedMicros, part: DisturbedPart) {
        let disturbance = Disturbance { start, end: self.now(), part };
        self.change(|history| history.disturbances.push(disturbance));
    }

    /// Records a version that exists at the end.
    pub fn list(&self, number: u64, content: u64, size: u64) {
        self.change(|history| history.listed.push((number, content, size)));
    }

    pub fn history(&self) -> CallHistory {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn content(&self) -> u64 {
        self.contents.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reads without recording the request.
    pub async fn read_unrecorded(&self, client: &ServiceClient, target: TargetVersion, format: &str) -> ReadOutcome {
        let place = match target {
            TargetVersion::Active => "active".to_owned(),
            TargetVersion::Latest => "latest".to_owned(),
            TargetVersion::Version(number) => format!("v{number}"),
            TargetVersion::Alternate(target) => format!("v{target}/alt"),
        };
        let path = format!("/api/{}/chaos/{place}/?format={format}", self.dataset);
        client.get(&path).await.map_or(ReadOutcome::Error(0), |reply| saw(&reply, format))
    }

    /// Sends random reads repeatedly.
    pub async fn read_repeatedly(self: Arc<Self>, client: ServiceClient, mut random: SeededRandom) {
        while self.is_running() {
            let latest = self.versions.load(Ordering::Relaxed);
            let target = match random.below(6) {
                0 | 1 => TargetVersion::Active,
                2 => TargetVersion::Latest,
                3 => TargetVersion::Alternate(1 + random.below(ALTERNATES)),
                // Possibly the next version, which does not exist yet.
                _ => TargetVersion::Version(1 + random.below(latest + 1)),
            };
            let format = *random.choose(&["jsonl", "jsonl", "json", "parquet"]);
            let start = self.now();
            let saw = self.read_unrecorded(&client, target, format).await;
            self.add(start, HistoryEvent::Read { target, saw });
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Creates a version with new content.
    pub async fn publish(&self, client: &ServiceClient, size: u64) -> CallOutcome<u64> {
        let content = self.content();
        let body = json!({"dataset_id": self.dataset, "entities": entities(content, size)});
        let start = self.now();
        let reply = client.post("/dataset/refresh", &body).await;
        let outcome = match outcome(reply.as_ref()) {
            CallOutcome::Done(()) => {
                let created = reply.expect("a response").json();
                CallOutcome::Done(created["version"]["version_number"].as_u64().expect("a number"))
            }
            CallOutcome::Refused => CallOutcome::Refused,
            CallOutcome::Unknown => CallOutcome::Unknown,
        };
        self.add(start, HistoryEvent::Publish { content, size, outcome });
        if let CallOutcome::Done(number) = outcome {
            self.versions.fetch_max(number, Ordering::Relaxed);
        }
        outcome
    }

    /// Creates versions repeatedly.
    pub async fn publish_repeatedly(self: Arc<Self>, client: ServiceClient, mut random: SeededRandom) {
        while self.is_running() {
            self.publish(&client, 1 + random.below(MAX_ENTITIES)).await;
            tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
        }
    }

    /// Rolls back and unpins repeatedly.
    pub async fn pin_repeatedly(self: Arc<Self>, client: ServiceClient, mut random: SeededRandom) {
        while self.is_running() {
            let latest = self.versions.load(Ordering::Relaxed);
            let version = (random.below(2) == 0).then(|| 1 + random.below(latest));
            let (path, body) = match version {
                Some(number) => ("/dataset/rollback", json!({"dataset_id": self.dataset, "version_number": number})),
                None => ("/dataset/unpin", json!({"dataset_id": self.dataset})),
            };
            let start = self.now();
            let outcome = outcome(client.post(path, &body).await.as_ref());
            self.add(start, HistoryEvent::Pin { version, outcome });
            tokio::time::sleep(Duration::from_millis(50 + random.below(400))).await;
        }
    }

    /// Saves and deletes alternates repeatedly.
    pub async fn edit_alternates_repeatedly(self: Arc<Self>, client: ServiceClient, mut random: SeededRandom) {
        while self.is_running() {
            let version = 1 + random.below(ALTERNATES);
            let content = (random.below(3) > 0).then(|| (self.content(), 1 + random.below(MAX_ENTITIES)));
            let mut body = json!({"dataset_id": self.dataset, "version": version});
            let (method, path) = match content {
                Some((content, size)) => {
                    body["entities"] = entities(content, size);
                    (Method::POST, "/dataset/alternate/save")
                }
                None => (Method::DELETE, "/dataset/alternate/delete"),
            };
            let start = self.now();
            let outcome = outcome(client.call(method, path, &body).await.as_ref());
            self.add(start, HistoryEvent::Alternate { version, content, outcome });
            tokio::time::sleep(Duration::from_millis(50 + random.below(400))).await;
        }
    }
}

/// Returns what the caller knows about a call. A server error can occur after the call had its effect.
fn outcome(reply: Option<&ClusterResponse>) -> CallOutcome {
    match reply {
        Some(reply) if reply.is_ok() => CallOutcome::Done(()),
        Some(reply) if (400..500).contains(&reply.status) => CallOutcome::Refused,
        _ => CallOutcome::Unknown,
    }
}

/// Returns entities that contain their content number.
fn entities(content: u64, size: u64) -> Value {
    let entity = |number: u64| {
        let mixed = (number + content).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        json!({"c": content, "n": number, "t": format!("{mixed:016x}").repeat(6)})
    };
    (0..size).map(entity).collect()
}

/// Classifies a response.
fn saw(reply: &ClusterResponse, format: &str) -> ReadOutcome {
    match reply.status {
        _ if !reply.whole => ReadOutcome::Truncated,
        200 => {
            let version = reply.header("x-dataset-version").and_then(|text| text.strip_prefix('v')?.parse().ok());
            let contents = contents(reply, format);
            let content = contents.first().copied().unwrap_or(GARBLED);
            let is_uniform = contents.iter().all(|other| *other == content);
            let content = if is_uniform { content } else { GARBLED };
            ReadOutcome::Whole { version: version.unwrap_or(0), content, size: contents.len() as u64 }
        }
        404 => ReadOutcome::Nothing,
        status => ReadOutcome::Error(status),
    }
}

/// Returns the content number of each entity.
fn contents(reply: &ClusterResponse, format: &str) -> Vec<u64> {
    let content_of = |entity: &Value| entity["c"].as_u64().unwrap_or(GARBLED);
    match format {
        "jsonl" => {
            let lines = reply.body.split_inclusive(|byte| *byte == b'\n');
            lines.map(|line| serde_json::from_slice(line).map_or(GARBLED, |entity| content_of(&entity))).collect()
        }
        "json" => {
            let entities: Vec<Value> = serde_json::from_slice(&reply.body).unwrap_or_default();
            entities.iter().map(content_of).collect()
        }
        _ => {
            let (columns, rows) = typed_cells(&reply.body);
            let column = columns.iter().position(|(name, _)| name == "c").expect("the column");
            let cell = |row: &Vec<Option<String>>| row[column].as_ref().and_then(|cell| cell.parse().ok());
            rows.iter().map(|row| cell(row).unwrap_or(GARBLED)).collect()
        }
    }
}

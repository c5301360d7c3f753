//! What clients do while servers are attacked, and what they are told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use strata_reference::parquet::typed_cells;

use crate::cluster::dice::Dice;
use crate::cluster::harness::{Door, Reply};
use crate::cluster::history::{Call, Disturbance, Event, History, Outcome, Part, Place, Saw, Time};

/// Versions that get alternates: the first ones.
pub const ALTERNATES: u64 = 2;

/// The most entities of a version.
const ENTITIES: u64 = 2_000;

/// Content that nobody has published.
const GARBLED: u64 = u64::MAX;

/// A run and its history.
pub struct Run {
    pub dataset: u64,
    begun: Instant,
    over: AtomicBool,
    /// How many contents were made, and the greatest version that was acknowledged.
    contents: AtomicU64,
    versions: AtomicU64,
    history: Mutex<History>,
}

impl Run {
    pub fn new(dataset: u64) -> Run {
        Run {
            dataset,
            begun: Instant::now(),
            over: AtomicBool::default(),
            contents: AtomicU64::default(),
            versions: AtomicU64::default(),
            history: Mutex::default(),
        }
    }

    pub fn now(&self) -> Time {
        u64::try_from(self.begun.elapsed().as_micros()).expect("no such long run")
    }

    /// Lets all clients end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut History)) {
        change(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records what ends now.
    pub fn add(&self, began: Time, event: Event) {
        let call = Call { began, ended: self.now(), event };
        self.change(|history| history.calls.push(call));
    }

    /// Records that something was disturbed until now.
    pub fn disturbed(&self, began: Time, part: Part) {
        let disturbance = Disturbance { began, ended: self.now(), part };
        self.change(|history| history.disturbances.push(disturbance));
    }

    /// Records a version that is there in the end.
    pub fn list(&self, number: u64, content: u64, size: u64) {
        self.change(|history| history.listed.push((number, content, size)));
    }

    pub fn history(&self) -> History {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn content(&self) -> u64 {
        self.contents.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What is there, without a record of it.
    pub async fn look(&self, door: &Door, of: Place, format: &str) -> Saw {
        let place = match of {
            Place::Active => "active".to_owned(),
            Place::Latest => "latest".to_owned(),
            Place::Version(number) => format!("v{number}"),
            Place::Alternate(of) => format!("v{of}/alt"),
        };
        let path = format!("/api/{}/chaos/{place}/?format={format}", self.dataset);
        door.get(&path).await.map_or(Saw::Error(0), |reply| saw(&reply, format))
    }

    /// Reads anything, time and again.
    pub async fn reads(self: Arc<Self>, door: Door, mut dice: Dice) {
        while self.goes_on() {
            let latest = self.versions.load(Ordering::Relaxed);
            let of = match dice.below(6) {
                0 | 1 => Place::Active,
                2 => Place::Latest,
                3 => Place::Alternate(1 + dice.below(ALTERNATES)),
                // Perhaps the next one, which is not there yet.
                _ => Place::Version(1 + dice.below(latest + 1)),
            };
            let format = *dice.one(&["jsonl", "jsonl", "json", "parquet"]);
            let began = self.now();
            let saw = self.look(&door, of, format).await;
            self.add(began, Event::Read { of, saw });
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Makes a version with new content.
    pub async fn publish(&self, door: &Door, size: u64) -> Outcome<u64> {
        let content = self.content();
        let body = json!({"dataset_id": self.dataset, "entities": entities(content, size)});
        let began = self.now();
        let reply = door.post("/dataset/refresh", &body).await;
        let outcome = match outcome(reply.as_ref()) {
            Outcome::Done(()) => {
                let told = reply.expect("it was answered").json();
                Outcome::Done(told["version"]["version_number"].as_u64().expect("a number"))
            }
            Outcome::Refused => Outcome::Refused,
            Outcome::Unknown => Outcome::Unknown,
        };
        self.add(began, Event::Publish { content, size, outcome });
        if let Outcome::Done(number) = outcome {
            self.versions.fetch_max(number, Ordering::Relaxed);
        }
        outcome
    }

    /// Makes versions, time and again.
    pub async fn publishes(self: Arc<Self>, door: Door, mut dice: Dice) {
        while self.goes_on() {
            self.publish(&door, 1 + dice.below(ENTITIES)).await;
            tokio::time::sleep(Duration::from_millis(50 + dice.below(200))).await;
        }
    }

    /// Rolls back, and ends that, time and again.
    pub async fn pins(self: Arc<Self>, door: Door, mut dice: Dice) {
        while self.goes_on() {
            let latest = self.versions.load(Ordering::Relaxed);
            let version = (dice.below(2) == 0).then(|| 1 + dice.below(latest));
            let (path, body) = match version {
                Some(number) => ("/dataset/rollback", json!({"dataset_id": self.dataset, "version_number": number})),
                None => ("/dataset/unpin", json!({"dataset_id": self.dataset})),
            };
            let began = self.now();
            let outcome = outcome(door.post(path, &body).await.as_ref());
            self.add(began, Event::Pin { version, outcome });
            tokio::time::sleep(Duration::from_millis(50 + dice.below(400))).await;
        }
    }

    /// Saves and deletes alternates, time and again.
    pub async fn alternates(self: Arc<Self>, door: Door, mut dice: Dice) {
        while self.goes_on() {
            let version = 1 + dice.below(ALTERNATES);
            let content = (dice.below(3) > 0).then(|| (self.content(), 1 + dice.below(ENTITIES)));
            let mut body = json!({"dataset_id": self.dataset, "version": version});
            let (method, path) = match content {
                Some((content, size)) => {
                    body["entities"] = entities(content, size);
                    (Method::POST, "/dataset/alternate/save")
                }
                None => (Method::DELETE, "/dataset/alternate/delete"),
            };
            let began = self.now();
            let outcome = outcome(door.call(method, path, &body).await.as_ref());
            self.add(began, Event::Alternate { version, content, outcome });
            tokio::time::sleep(Duration::from_millis(50 + dice.below(400))).await;
        }
    }
}

/// What a caller knows of a call. An error of the service's own may have come after the call had its effect.
fn outcome(reply: Option<&Reply>) -> Outcome {
    match reply {
        Some(reply) if reply.is_ok() => Outcome::Done(()),
        Some(reply) if (400..500).contains(&reply.status) => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

/// Entities that all tell which content they are of.
fn entities(content: u64, size: u64) -> Value {
    let entity = |number: u64| {
        let mixed = (number + content).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        json!({"c": content, "n": number, "t": format!("{mixed:016x}").repeat(6)})
    };
    (0..size).map(entity).collect()
}

/// What a reader makes of an answer.
fn saw(reply: &Reply, format: &str) -> Saw {
    match reply.status {
        _ if !reply.whole => Saw::Cut,
        200 => {
            let version = reply.header("x-dataset-version").and_then(|text| text.strip_prefix('v')?.parse().ok());
            let contents = contents(reply, format);
            let content = contents.first().copied().unwrap_or(GARBLED);
            let one = contents.iter().all(|other| *other == content);
            let content = if one { content } else { GARBLED };
            Saw::Whole { version: version.unwrap_or(0), content, size: contents.len() as u64 }
        }
        404 => Saw::Nothing,
        status => Saw::Error(status),
    }
}

/// The content that each entity of an answer tells.
fn contents(reply: &Reply, format: &str) -> Vec<u64> {
    let of = |entity: &Value| entity["c"].as_u64().unwrap_or(GARBLED);
    match format {
        "jsonl" => {
            let lines = reply.body.split_inclusive(|byte| *byte == b'\n');
            lines.map(|line| serde_json::from_slice(line).map_or(GARBLED, |entity| of(&entity))).collect()
        }
        "json" => {
            let entities: Vec<Value> = serde_json::from_slice(&reply.body).unwrap_or_default();
            entities.iter().map(of).collect()
        }
        _ => {
            let (columns, rows) = typed_cells(&reply.body);
            let column = columns.iter().position(|(name, _)| name == "c").expect("the column");
            let cell = |row: &Vec<Option<String>>| row[column].as_ref().and_then(|cell| cell.parse().ok());
            rows.iter().map(|row| cell(row).unwrap_or(GARBLED)).collect()
        }
    }
}

//! What clients asked of one dataset and what they were told, and whether one service could have told them that.
//!
//! A [`History`] is plain data. [`History::violations`] judges it, by these rules:
//!
//! 1. Versions are numbered from 1 without a gap. Each comes from one call that published it, and no call made two. A
//!    version whose making was acknowledged is there. Of two calls, one of which began when the other was acknowledged,
//!    the later one has the greater number.
//! 2. An answer that looks whole is whole, and is that of the version it names.
//! 3. `active`, `latest` and an alternate are those of some moment between a second before the read began
//!    (docs/reference/api/index.md, Caching) and its end. A call without an answer may have had its effect at any
//!    moment since.
//! 4. Each version has at most one delivery to the webhook.
//! 5. An answer is cut only where a server was disturbed at the time, and an error is answered only where a part that
//!    all servers need was.

mod tests;

use std::collections::{BTreeMap, BTreeSet};

/// Microseconds since the run began.
pub type Time = u64;

/// How long a read may not see a change that was acknowledged.
pub const STALE: Time = 1_000_000;

/// What a caller knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T = ()> {
    /// It was acknowledged.
    Done(T),
    /// It was refused, and has changed nothing.
    Refused,
    /// It failed, or its answer was lost: it may have been done, or be done yet.
    Unknown,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Active,
    Latest,
    Version(u64),
    Alternate(u64),
}

/// What a reader was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw {
    /// An answer that looks whole: the version that it names, which content it holds, and how much of it.
    Whole { version: u64, content: u64, size: u64 },
    /// That it does not exist.
    Nothing,
    /// An answer that ended before its end, as the reader could tell.
    Cut,
    /// An error of this status.
    Error(u16),
}

/// What was asked, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new version with this content, of which there is this much; the number that it got.
    Publish {
        content: u64,
        size: u64,
        outcome: Outcome<u64>,
    },
    /// A rollback to a version, or its end.
    Pin {
        version: Option<u64>,
        outcome: Outcome,
    },
    /// An alternate of a version, or its removal.
    Alternate {
        version: u64,
        content: Option<(u64, u64)>,
        outcome: Outcome,
    },
    Read {
        of: Place,
        saw: Saw,
    },
    /// What the receiver of the webhook got.
    Delivery {
        version: u64,
    },
}

/// An event, from the first moment of it to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub began: Time,
    pub ended: Time,
    pub event: Event,
}

/// What was disturbed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One server.
    Node,
    /// What all servers need: the catalog or the store.
    Shared,
}

/// A disturbance, until everything works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbance {
    pub began: Time,
    pub ended: Time,
    pub part: Part,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    pub disturbances: Vec<Disturbance>,
    /// The versions that are there in the end: number, content and how much of it.
    pub listed: Vec<(u64, u64, u64)>,
}

/// What is wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    LostVersion,
    DoubledVersion,
    InventedVersion,
    DisorderedVersions,
    WrongAnswer,
    CutTakenForWhole,
    StaleRead,
    DeliveredTwice,
    DeliveredInVain,
    UnexplainedFailure,
}

/// That something is wrong, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    pub told: String,
}

impl History {
    /// What no service that keeps its promises tells; empty when all is well.
    pub fn violations(&self) -> Vec<Violation> {
        let mut judge = Judge { history: self, found: Vec::new() };
        judge.versions();
        judge.order();
        judge.deliveries();
        for call in &self.calls {
            judge.read(call);
        }
        judge.found
    }
}

struct Judge<'h> {
    history: &'h History,
    found: Vec<Violation>,
}

/// A state that something may have, and from when to when it was brought about.
#[derive(Clone, Copy)]
struct Write<T> {
    began: Time,
    /// When it was acknowledged, if it was.
    acknowledged: Option<Time>,
    state: T,
}

/// The states that a read may see: those whose making had begun, unless a later one was acknowledged long enough
/// before.
fn possible<T: Copy>(first: T, writes: &[Write<T>], read: &Call) -> Vec<T> {
    let first = Write { began: 0, acknowledged: Some(0), state: first };
    let all = || std::iter::once(&first).chain(writes);
    let seen_by_now = |write: &Write<T>| write.acknowledged.is_some_and(|at| at.saturating_add(STALE) <= read.began);
    let replaced = |write: &Write<T>| {
        let Some(done) = write.acknowledged else { return false };
        all().any(|later| later.began >= done && later.acknowledged != Some(0) && seen_by_now(later))
    };
    all().filter(|write| write.began <= read.ended && !replaced(write)).map(|write| write.state).collect()
}

impl Judge<'_> {
    fn add(&mut self, kind: Kind, told: String) {
        self.found.push(Violation { kind, told });
    }

    /// The content of a version in the end.
    fn listed(&self, version: u64) -> Option<(u64, u64)> {
        let found = self.history.listed.iter().find(|(number, ..)| *number == version);
        found.map(|(_, content, size)| (*content, *size))
    }

    fn publishes(&self) -> impl Iterator<Item = (&Call, u64, u64, Outcome<u64>)> {
        self.history.calls.iter().filter_map(|call| match call.event {
            Event::Publish { content, size, outcome } => Some((call, content, size, outcome)),
            _ => None,
        })
    }

    fn versions(&mut self) {
        let mut found = Vec::new();
        let listed = &self.history.listed;
        for expected in 1..=listed.len() as u64 {
            if !listed.iter().any(|(number, ..)| *number == expected) {
                found.push((Kind::LostVersion, format!("there is no version {expected} of {}", listed.len())));
            }
        }
        let mut numbers = BTreeSet::new();
        let mut contents: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, content, _) in listed {
            if !numbers.insert(*number) {
                found.push((Kind::DoubledVersion, format!("version {number} is listed twice")));
            }
            if let Some(other) = contents.insert(*content, *number) {
                found.push((Kind::DoubledVersion, format!("versions {other} and {number} both hold {content}")));
            }
            let made = self.publishes().find(|(_, published, ..)| published == content);
            match made {
                None => found.push((Kind::InventedVersion, format!("nobody published {content}, version {number}"))),
                Some((.., Outcome::Refused)) => {
                    found.push((Kind::InventedVersion, format!("{content}, version {number}, was refused")));
                }
                Some(_) => {}
            }
        }
        let mut acknowledged = BTreeMap::new();
        for (_, content, _, outcome) in self.publishes() {
            let Outcome::Done(number) = outcome else { continue };
            if let Some(other) = acknowledged.insert(number, content) {
                found.push((Kind::DoubledVersion, format!("{other} and {content} were both told to be {number}")));
            }
            if self.listed(number).map(|(content, _)| content) != Some(content) {
                found.push((Kind::LostVersion, format!("{content} is not version {number}, as was acknowledged")));
            }
        }
        found.into_iter().for_each(|(kind, told)| self.add(kind, told));
    }

    fn order(&mut self) {
        let done: Vec<_> = self
            .publishes()
            .filter_map(|(call, _, _, outcome)| match outcome {
                Outcome::Done(number) => Some((call.began, call.ended, number)),
                _ => None,
            })
            .collect();
        for (_, ended, number) in &done {
            for (began, _, other) in &done {
                if began >= ended && other < number {
                    let told = format!("version {other} was asked for after {number} was acknowledged");
                    self.add(Kind::DisorderedVersions, told);
                }
            }
        }
    }

    fn deliveries(&mut self) {
        let mut delivered = BTreeSet::new();
        let deliveries = self.history.calls.iter().filter_map(|call| match call.event {
            Event::Delivery { version } => Some(version),
            _ => None,
        });
        for version in deliveries.collect::<Vec<_>>() {
            if !delivered.insert(version) {
                self.add(Kind::DeliveredTwice, format!("the webhook got version {version} twice"));
            }
            if self.listed(version).is_none() {
                self.add(Kind::DeliveredInVain, format!("the webhook got version {version}, which is not there"));
            }
        }
    }

    fn read(&mut self, call: &Call) {
        let Event::Read { of, saw } = call.event else { return };
        match saw {
            Saw::Cut | Saw::Error(_) => self.failure(call, saw == Saw::Cut),
            Saw::Whole { version, content, size } => {
                let contents = match of {
                    Place::Alternate(of) if of == version => self.alternates(of, call).into_iter().flatten().collect(),
                    Place::Version(number) if number != version => Vec::new(),
                    Place::Alternate(_) => Vec::new(),
                    _ => self.content_of(version, call).into_iter().collect::<Vec<_>>(),
                };
                match contents.iter().find(|(expected, _)| *expected == content) {
                    Some((_, whole)) if size < *whole => {
                        let told = format!("{size} of {whole} of version {version} as if it were all: {call:?}");
                        self.add(Kind::CutTakenForWhole, told);
                    }
                    Some((_, whole)) if size == *whole => self.place(call, of, Some(version)),
                    // An alternate that was there before, or will be.
                    None if matches!(of, Place::Alternate(_)) && self.was_alternate(version, content) => {
                        self.add(Kind::StaleRead, format!("one of {contents:?} was to be seen: {call:?}"));
                    }
                    _ => self.add(Kind::WrongAnswer, format!("it was to be one of {contents:?}: {call:?}")),
                }
            }
            Saw::Nothing => self.place(call, of, None),
        }
    }

    /// Whether a read may have found this version, or none, where it looked.
    fn place(&mut self, call: &Call, of: Place, saw: Option<u64>) {
        let allowed = match (of, saw) {
            (Place::Active, saw) => self.active(call).contains(&saw),
            (Place::Latest, saw) => self.latest(call).contains(&saw),
            // Its content has been judged.
            (Place::Version(_) | Place::Alternate(_), Some(_)) => true,
            (Place::Version(number), None) => self.latest(call).iter().any(|latest| *latest < Some(number)),
            (Place::Alternate(number), None) => self.alternates(number, call).contains(&None),
        };
        if !allowed {
            self.add(Kind::StaleRead, format!("it can no longer or not yet be so: {call:?}"));
        }
    }

    /// The content of a version, if it can have been there at the end of a read.
    fn content_of(&self, version: u64, read: &Call) -> Option<(u64, u64)> {
        let (content, size) = self.listed(version)?;
        let made = self.publishes().find(|(_, published, ..)| *published == content);
        made.is_some_and(|(call, ..)| call.began <= read.ended).then_some((content, size))
    }

    /// The numbers that may be the highest for a read.
    fn latest(&self, read: &Call) -> Vec<Option<u64>> {
        // Whoever was told of a number: all up to it are there.
        let least = self.publishes().filter_map(|(call, _, _, outcome)| match outcome {
            Outcome::Done(number) if call.ended.saturating_add(STALE) <= read.began => Some(number),
            _ => None,
        });
        let least = least.max();
        let numbers = self.history.listed.iter().map(|(number, ..)| *number);
        let begun = numbers.filter(|number| self.content_of(*number, read).is_some());
        std::iter::once(None).chain(begun.map(Some)).filter(|number| *number >= least).collect()
    }

    /// The versions that may be active for a read.
    fn active(&self, read: &Call) -> Vec<Option<u64>> {
        let writes: Vec<Write<Option<u64>>> = self
            .history
            .calls
            .iter()
            .filter_map(|call| match call.event {
                Event::Pin { version, outcome } => write(call, version, outcome),
                _ => None,
            })
            .collect();
        let pins = possible(None, &writes, read);
        let pinned = pins.iter().filter(|pin| pin.is_some()).copied();
        let latest = if pins.contains(&None) { self.latest(read) } else { Vec::new() };
        pinned.chain(latest).collect()
    }

    /// The alternates of a version that a read may find.
    fn alternates(&self, of: u64, read: &Call) -> Vec<Option<(u64, u64)>> {
        let writes: Vec<_> = self.alternate_writes(of).collect();
        possible(None, &writes, read)
    }

    fn alternate_writes(&self, of: u64) -> impl Iterator<Item = Write<Option<(u64, u64)>>> {
        self.history.calls.iter().filter_map(move |call| match call.event {
            Event::Alternate { version, content, outcome } if version == of => write(call, content, outcome),
            _ => None,
        })
    }

    fn was_alternate(&self, of: u64, content: u64) -> bool {
        self.alternate_writes(of).any(|write| write.state.is_some_and(|(written, _)| written == content))
    }

    fn failure(&mut self, call: &Call, cut: bool) {
        let explains = |disturbance: &&Disturbance| {
            let then = disturbance.began <= call.ended && call.began <= disturbance.ended;
            then && (cut || disturbance.part == Part::Shared)
        };
        if self.history.disturbances.iter().find(explains).is_none() {
            self.add(Kind::UnexplainedFailure, format!("nothing was disturbed that explains it: {call:?}"));
        }
    }
}

fn write<T>(call: &Call, state: T, outcome: Outcome) -> Option<Write<T>> {
    let acknowledged = match outcome {
        Outcome::Refused => return None,
        Outcome::Done(()) => Some(call.ended),
        Outcome::Unknown => None,
    };
    Some(Write { began: call.began, acknowledged, state })
}

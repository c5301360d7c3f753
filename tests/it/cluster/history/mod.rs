//! Checks that the recorded requests and responses for one dataset are possible for a correct service.
//!
//! [`CallHistory::violations`] checks a [`CallHistory`] with these rules:
//!
//! 1. Versions are numbered from 1 without a gap. Each version comes from exactly one call, and each acknowledged
//!    version exists. If one call started after another was acknowledged, it has the greater number.
//! 2. A response that looks complete is complete, and has the content of the version in its headers.
//! 3. The result for `active`, `latest` or an alternate is correct for some moment from one second before the start of
//!    the read (docs/reference/api/index.md, Caching) to its end. A call without a response can have had its effect at
//!    any time since its start.
//! 4. Each version has at most one webhook.
//! 5. Responses are truncated only while a node is disturbed, and errors occur only while a shared service is
//!    disturbed.

mod tests;

use std::collections::{BTreeMap, BTreeSet};

/// Microseconds since the start of the run.
pub type ElapsedMicros = u64;

/// Maximum time for which a read can miss an acknowledged change.
pub const MAX_STALENESS: ElapsedMicros = 1_000_000;

/// What the caller knows about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome<T = ()> {
    Done(T),
    /// The call was rejected, and changed nothing.
    Refused,
    /// The call failed without a response: it may have had its effect, or may still have it.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetVersion {
    Active,
    Latest,
    Version(u64),
    Alternate(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A response that looks complete: its version, its content number, and its number of entities.
    Whole { version: u64, content: u64, size: u64 },
    /// Status 404.
    Nothing,
    /// A truncated response.
    Truncated,
    /// Another error status.
    Error(u16),
}

/// A request and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// The creation of a version with `size` entities. The outcome contains the version number.
    Publish {
        content: u64,
        size: u64,
        outcome: CallOutcome<u64>,
    },
    /// A rollback to a version, or `None` to unpin.
    Pin {
        version: Option<u64>,
        outcome: CallOutcome,
    },
    /// A save of an alternate (content number and size), or its removal.
    Alternate {
        version: u64,
        content: Option<(u64, u64)>,
        outcome: CallOutcome,
    },
    Read {
        target: TargetVersion,
        saw: ReadOutcome,
    },
    /// A received webhook.
    Delivery {
        version: u64,
    },
}

/// An event with its start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub start: ElapsedMicros,
    pub end: ElapsedMicros,
    pub event: HistoryEvent,
}

/// A part of the cluster that was disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisturbedPart {
    Node,
    /// The metadata database or the store, which all nodes need.
    Shared,
}

/// A disturbance, which ends when everything works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbance {
    pub start: ElapsedMicros,
    pub end: ElapsedMicros,
    pub part: DisturbedPart,
}

#[derive(Clone, Debug, Default)]
pub struct CallHistory {
    pub calls: Vec<Call>,
    pub disturbances: Vec<Disturbance>,
    /// The versions that exist at the end: number, content number and size.
    pub listed: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    LostVersion,
    DuplicateVersion,
    InventedVersion,
    VersionsOutOfOrder,
    WrongResponse,
    UndetectedTruncation,
    StaleRead,
    DeliveredTwice,
    DeliveredWithoutVersion,
    UnexplainedFailure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    pub message: String,
}

impl CallHistory {
    /// Returns the violations of the rules; empty for a consistent history.
    pub fn violations(&self) -> Vec<Violation> {
        let mut checker = HistoryChecker { history: self, violations: Vec::new() };
        checker.check_versions();
        checker.check_order();
        checker.check_deliveries();
        for call in &self.calls {
            checker.check_read(call);
        }
        checker.violations
    }
}

struct HistoryChecker<'h> {
    history: &'h CallHistory,
    violations: Vec<Violation>,
}

/// A change of a state, with its start and its acknowledgment.
#[derive(Clone, Copy)]
struct StateChange<T> {
    start: ElapsedMicros,
    acknowledged: Option<ElapsedMicros>,
    state: T,
}

/// Returns the states that a read can see: all states whose change had started, unless a later change was acknowledged
/// long enough before the read.
fn possible_states<T: Copy>(first: T, writes: &[StateChange<T>], read: &Call) -> Vec<T> {
    let first = StateChange { start: 0, acknowledged: Some(0), state: first };
    let all = || std::iter::once(&first).chain(writes);
    let must_be_visible = |write: &StateChange<T>| {
        write.acknowledged.is_some_and(|time| time.saturating_add(MAX_STALENESS) <= read.start)
    };
    let replaced = |write: &StateChange<T>| {
        let Some(done) = write.acknowledged else { return false };
        all().any(|later| later.start >= done && later.acknowledged != Some(0) && must_be_visible(later))
    };
    all().filter(|write| write.start <= read.end && !replaced(write)).map(|write| write.state).collect()
}

impl HistoryChecker<'_> {
    fn add(&mut self, kind: ViolationKind, message: String) {
        self.violations.push(Violation { kind, message });
    }

    /// Returns the content number and size of a version at the end.
    fn listed(&self, version: u64) -> Option<(u64, u64)> {
        let found = self.history.listed.iter().find(|(number, ..)| *number == version);
        found.map(|(_, content, size)| (*content, *size))
    }

    fn publishes(&self) -> impl Iterator<Item = (&Call, u64, u64, CallOutcome<u64>)> {
        self.history.calls.iter().filter_map(|call| match call.event {
            HistoryEvent::Publish { content, size, outcome } => Some((call, content, size, outcome)),
            _ => None,
        })
    }

    fn check_versions(&mut self) {
        let mut found = Vec::new();
        let listed = &self.history.listed;
        for expected in 1..=listed.len() as u64 {
            if !listed.iter().any(|(number, ..)| *number == expected) {
                found.push((ViolationKind::LostVersion, format!("version {expected} of {} is missing", listed.len())));
            }
        }
        let mut numbers = BTreeSet::new();
        let mut contents: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, content, _) in listed {
            if !numbers.insert(*number) {
                found.push((ViolationKind::DuplicateVersion, format!("version {number} is listed twice")));
            }
            if let Some(other) = contents.insert(*content, *number) {
                found.push((
                    ViolationKind::DuplicateVersion,
                    format!("versions {other} and {number} both have content {content}"),
                ));
            }
            let published = self.publishes().find(|(_, published, ..)| published == content);
            match published {
                None => found.push((
                    ViolationKind::InventedVersion,
                    format!("no call published content {content} of version {number}"),
                )),
                Some((.., CallOutcome::Refused)) => {
                    found.push((
                        ViolationKind::InventedVersion,
                        format!("the call for content {content} of version {number} was rejected"),
                    ));
                }
                Some(_) => {}
            }
        }
        let mut acknowledged = BTreeMap::new();
        for (_, content, _, outcome) in self.publishes() {
            let CallOutcome::Done(number) = outcome else { continue };
            if let Some(other) = acknowledged.insert(number, content) {
                found.push((
                    ViolationKind::DuplicateVersion,
                    format!("contents {other} and {content} were both acknowledged as version {number}"),
                ));
            }
            if self.listed(number).map(|(content, _)| content) != Some(content) {
                found.push((
                    ViolationKind::LostVersion,
                    format!(
                        "content {content} was acknowledged as version {number}, but the version has other content"
                    ),
                ));
            }
        }
        found.into_iter().for_each(|(kind, message)| self.add(kind, message));
    }

    fn check_order(&mut self) {
        let done: Vec<_> = self
            .publishes()
            .filter_map(|(call, _, _, outcome)| match outcome {
                CallOutcome::Done(number) => Some((call.start, call.end, number)),
                _ => None,
            })
            .collect();
        for (_, end, number) in &done {
            for (start, _, other) in &done {
                if start >= end && other < number {
                    let message = format!("the call for version {other} started after {number} was acknowledged");
                    self.add(ViolationKind::VersionsOutOfOrder, message);
                }
            }
        }
    }

    fn check_deliveries(&mut self) {
        let mut delivered = BTreeSet::new();
        let deliveries = self.history.calls.iter().filter_map(|call| match call.event {
            HistoryEvent::Delivery { version } => Some(version),
            _ => None,
        });
        for version in deliveries.collect::<Vec<_>>() {
            if !delivered.insert(version) {
                self.add(ViolationKind::DeliveredTwice, format!("the webhook got version {version} twice"));
            }
            if self.listed(version).is_none() {
                self.add(
                    ViolationKind::DeliveredWithoutVersion,
                    format!("the webhook got version {version}, which does not exist"),
                );
            }
        }
    }

    fn check_read(&mut self, call: &Call) {
        let HistoryEvent::Read { target, saw } = call.event else { return };
        match saw {
            ReadOutcome::Truncated | ReadOutcome::Error(_) => self.check_failure(call, saw == ReadOutcome::Truncated),
            ReadOutcome::Whole { version, content, size } => {
                let contents = match target {
                    TargetVersion::Alternate(target) if target == version => {
                        self.alternates(target, call).into_iter().flatten().collect()
                    }
                    TargetVersion::Version(number) if number != version => Vec::new(),
                    TargetVersion::Alternate(_) => Vec::new(),
                    _ => self.content_of(version, call).into_iter().collect::<Vec<_>>(),
                };
                match contents.iter().find(|(expected, _)| *expected == content) {
                    Some((_, whole)) if size < *whole => {
                        let message =
                            format!("{size} of {whole} entities of version {version} look complete: {call:?}");
                        self.add(ViolationKind::UndetectedTruncation, message);
                    }
                    Some((_, whole)) if size == *whole => self.check_target(call, target, Some(version)),
                    // An earlier or a later alternate.
                    None if matches!(target, TargetVersion::Alternate(_)) && self.was_alternate(version, content) => {
                        self.add(ViolationKind::StaleRead, format!("expected one of {contents:?}: {call:?}"));
                    }
                    _ => self.add(ViolationKind::WrongResponse, format!("expected one of {contents:?}: {call:?}")),
                }
            }
            ReadOutcome::Nothing => self.check_target(call, target, None),
        }
    }

    /// Checks that a read could find this version, or none, at its target.
    fn check_target(&mut self, call: &Call, target: TargetVersion, saw: Option<u64>) {
        let allowed = match (target, saw) {
            (TargetVersion::Active, saw) => self.active(call).contains(&saw),
            (TargetVersion::Latest, saw) => self.latest(call).contains(&saw),
            // The content has already been checked.
            (TargetVersion::Version(_) | TargetVersion::Alternate(_), Some(_)) => true,
            (TargetVersion::Version(number), None) => self.latest(call).iter().any(|latest| *latest < Some(number)),
            (TargetVersion::Alternate(number), None) => self.alternates(number, call).contains(&None),
        };
        if !allowed {
            self.add(ViolationKind::StaleRead, format!("the result is too old or too new: {call:?}"));
        }
    }

    /// Returns the content number and size of a version, if the version can have existed at the end of a read.
    fn content_of(&self, version: u64, read: &Call) -> Option<(u64, u64)> {
        let (content, size) = self.listed(version)?;
        let published = self.publishes().find(|(_, published, ..)| *published == content);
        published.is_some_and(|(call, ..)| call.start <= read.end).then_some((content, size))
    }

    /// Returns the version numbers that can be the latest for a read.
    fn latest(&self, read: &Call) -> Vec<Option<u64>> {
        // An acknowledged number proves that all versions up to it exist.
        let min_latest = self.publishes().filter_map(|(call, _, _, outcome)| match outcome {
            CallOutcome::Done(number) if call.end.saturating_add(MAX_STALENESS) <= read.start => Some(number),
            _ => None,
        });
        let min_latest = min_latest.max();
        let numbers = self.history.listed.iter().map(|(number, ..)| *number);
        let begun = numbers.filter(|number| self.content_of(*number, read).is_some());
        std::iter::once(None).chain(begun.map(Some)).filter(|number| *number >= min_latest).collect()
    }

    /// Returns the versions that can be active for a read.
    fn active(&self, read: &Call) -> Vec<Option<u64>> {
        let writes: Vec<StateChange<Option<u64>>> = self
            .history
            .calls
            .iter()
            .filter_map(|call| match call.event {
                HistoryEvent::Pin { version, outcome } => state_change(call, version, outcome),
                _ => None,
            })
            .collect();
        let pins = possible_states(None, &writes, read);
        let pinned = pins.iter().filter(|pin| pin.is_some()).copied();
        let latest = if pins.contains(&None) { self.latest(read) } else { Vec::new() };
        pinned.chain(latest).collect()
    }

    /// Returns the alternates of a version that a read can find.
    fn alternates(&self, number: u64, read: &Call) -> Vec<Option<(u64, u64)>> {
        let writes: Vec<_> = self.alternate_writes(number).collect();
        possible_states(None, &writes, read)
    }

    fn alternate_writes(&self, number: u64) -> impl Iterator<Item = StateChange<Option<(u64, u64)>>> {
        self.history.calls.iter().filter_map(move |call| match call.event {
            HistoryEvent::Alternate { version, content, outcome } if version == number => {
                state_change(call, content, outcome)
            }
            _ => None,
        })
    }

    fn was_alternate(&self, number: u64, content: u64) -> bool {
        self.alternate_writes(number).any(|write| write.state.is_some_and(|(written, _)| written == content))
    }

    fn check_failure(&mut self, call: &Call, is_truncated: bool) {
        let explains = |disturbance: &&Disturbance| {
            let overlaps = disturbance.start <= call.end && call.start <= disturbance.end;
            overlaps && (is_truncated || disturbance.part == DisturbedPart::Shared)
        };
        if self.history.disturbances.iter().find(explains).is_none() {
            self.add(ViolationKind::UnexplainedFailure, format!("no disturbance explains the failure: {call:?}"));
        }
    }
}

fn state_change<T>(call: &Call, state: T, outcome: CallOutcome) -> Option<StateChange<T>> {
    let acknowledged = match outcome {
        CallOutcome::Refused => return None,
        CallOutcome::Done(()) => Some(call.end),
        CallOutcome::Unknown => None,
    };
    Some(StateChange { start: call.start, acknowledged, state })
}

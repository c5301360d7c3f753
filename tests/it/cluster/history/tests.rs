//! Tests of the history checker: it accepts all histories of a correct model, and detects injected faults.

use super::{
    Call, CallHistory, CallOutcome, Disturbance, DisturbedPart, ElapsedMicros, HistoryEvent, MAX_STALENESS,
    ReadOutcome, TargetVersion, ViolationKind,
};
use crate::cluster::seeded_random::SeededRandom;

/// Entities of each content.
const SIZE: u64 = 8;

/// A model of a correct service, with overlapping calls and stale reads within the allowed time.
struct ServiceModel {
    random: SeededRandom,
    now: ElapsedMicros,
    history: CallHistory,
    /// All states, each with its start.
    states: Vec<(ElapsedMicros, ModelState)>,
    contents: u64,
}

#[derive(Clone, Default)]
struct ModelState {
    versions: Vec<u64>,
    pin: Option<u64>,
    alternate: Option<u64>,
}

impl ServiceModel {
    /// Returns the history of a run with `calls` calls.
    fn run(seed: u64, calls: u64) -> CallHistory {
        let mut model = ServiceModel {
            random: SeededRandom::new(seed),
            now: 1,
            history: CallHistory::default(),
            states: vec![(0, ModelState::default())],
            contents: 0,
        };
        for _ in 0..calls {
            model.step();
        }
        let last = model.state().versions.clone();
        model.history.listed = (1..).zip(last).map(|(number, content)| (number, content, SIZE)).collect();
        model.history
    }

    fn state(&self) -> &ModelState {
        &self.states.last().expect("the first one").1
    }

    /// Records a call that starts before the current time and ends after it.
    fn call(&mut self, event: HistoryEvent) {
        let start = self.now.saturating_sub(1 + self.random.below(300_000));
        // Later calls have their effect after this call.
        let end = self.now + self.random.below(300_000);
        self.history.calls.push(Call { start, end, event });
    }

    fn outcome<T>(&mut self, done: T) -> (CallOutcome<T>, bool) {
        match self.random.below(10) {
            0 => (CallOutcome::Refused, false),
            1 => (CallOutcome::Unknown, false),
            2 => (CallOutcome::Unknown, true),
            _ => (CallOutcome::Done(done), true),
        }
    }

    fn content(&mut self) -> u64 {
        self.contents += 1;
        self.contents
    }

    fn step(&mut self) {
        self.now += 1 + self.random.below(500_000);
        let mut state = self.state().clone();
        match self.random.below(9) {
            0 | 1 => {
                let content = self.content();
                let (outcome, happens) = self.outcome(state.versions.len() as u64 + 1);
                if happens {
                    state.versions.push(content);
                }
                self.call(HistoryEvent::Publish { content, size: SIZE, outcome });
            }
            2 => {
                let versions = state.versions.len() as u64;
                let version =
                    (versions > 0 && self.random.below(2) == 0).then(|| 1 + self.random.below(versions.max(1)));
                let (outcome, happens) = self.outcome(());
                if happens {
                    state.pin = version;
                }
                self.call(HistoryEvent::Pin { version, outcome });
            }
            3 if !state.versions.is_empty() => {
                let content = (self.random.below(3) > 0).then(|| self.content());
                let (outcome, happens) = self.outcome(());
                if happens {
                    state.alternate = content;
                }
                let content = content.map(|content| (content, SIZE));
                self.call(HistoryEvent::Alternate { version: 1, content, outcome });
            }
            4 if !state.versions.is_empty() => {
                let version = state.versions.len() as u64;
                let sent = |call: &Call| call.event == HistoryEvent::Delivery { version };
                if !self.history.calls.iter().any(sent) {
                    self.call(HistoryEvent::Delivery { version });
                }
            }
            _ => self.read(),
        }
        self.states.push((self.now, state));
    }

    /// Reads a state of at most the maximum staleness.
    fn read(&mut self) {
        let start = self.now.saturating_sub(self.random.below(200_000));
        let from = start.saturating_sub(MAX_STALENESS - 1);
        let first = self.states.iter().rposition(|(start, _)| *start <= from).unwrap_or(0);
        let seen = first + self.random.below((self.states.len() - first) as u64) as usize;
        let state = self.states[seen].1.clone();
        let latest = state.versions.len() as u64;
        let (target, version) = match self.random.below(4) {
            0 => (TargetVersion::Active, state.pin.unwrap_or(latest)),
            1 => (TargetVersion::Latest, latest),
            2 => (TargetVersion::Alternate(1), 1),
            _ => {
                let number = 1 + self.random.below(latest + 2);
                (TargetVersion::Version(number), if number <= latest { number } else { 0 })
            }
        };
        let saw = match (target, self.random.below(20)) {
            (_, 0) => ReadOutcome::Truncated,
            (_, 1) => ReadOutcome::Error(503),
            (TargetVersion::Alternate(_), _) => match state.alternate {
                Some(content) => ReadOutcome::Whole { version: 1, content, size: SIZE },
                None => ReadOutcome::Nothing,
            },
            _ if version == 0 => ReadOutcome::Nothing,
            _ => ReadOutcome::Whole { version, content: state.versions[version as usize - 1], size: SIZE },
        };
        if matches!(saw, ReadOutcome::Truncated | ReadOutcome::Error(_)) {
            let disturbance = Disturbance { start: self.now, end: self.now, part: DisturbedPart::Shared };
            self.history.disturbances.push(disturbance);
        }
        self.history.calls.push(Call { start, end: self.now, event: HistoryEvent::Read { target, saw } });
    }
}

#[track_caller]
fn violation_kinds(history: &CallHistory) -> Vec<ViolationKind> {
    let mut kinds: Vec<ViolationKind> = history.violations().into_iter().map(|violation| violation.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn correct_history_is_accepted() {
    let mut reads = 0;
    for seed in 0..400 {
        let history = ServiceModel::run(seed, 120);
        assert_eq!(history.violations(), [], "seed {seed}");
        reads += history.calls.iter().filter(|call| matches!(call.event, HistoryEvent::Read { .. })).count();
    }
    assert!(reads > 10_000, "{reads}");
}

const SECOND: ElapsedMicros = 1_000_000;

fn call(start: ElapsedMicros, end: ElapsedMicros, event: HistoryEvent) -> Call {
    Call { start: start * SECOND, end: end * SECOND, event }
}

fn publish(content: u64, outcome: CallOutcome<u64>) -> HistoryEvent {
    HistoryEvent::Publish { content, size: SIZE, outcome }
}

fn pin(version: Option<u64>) -> HistoryEvent {
    HistoryEvent::Pin { version, outcome: CallOutcome::Done(()) }
}

fn saw(target: TargetVersion, version: u64, content: u64) -> HistoryEvent {
    HistoryEvent::Read { target, saw: ReadOutcome::Whole { version, content, size: SIZE } }
}

/// Returns a history without violations: three versions, a rollback, an alternate, reads, and webhooks.
fn consistent_history() -> CallHistory {
    CallHistory {
        calls: vec![
            call(1, 2, publish(10, CallOutcome::Done(1))),
            call(3, 4, publish(20, CallOutcome::Unknown)),
            call(5, 6, publish(30, CallOutcome::Done(3))),
            call(8, 9, pin(Some(1))),
            call(12, 13, saw(TargetVersion::Active, 1, 10)),
            call(12, 13, saw(TargetVersion::Latest, 3, 30)),
            call(12, 13, saw(TargetVersion::Version(2), 2, 20)),
            call(
                14,
                15,
                HistoryEvent::Alternate { version: 1, content: Some((11, SIZE)), outcome: CallOutcome::Done(()) },
            ),
            call(17, 18, saw(TargetVersion::Alternate(1), 1, 11)),
            call(19, 20, HistoryEvent::Alternate { version: 1, content: None, outcome: CallOutcome::Done(()) }),
            call(22, 23, HistoryEvent::Read { target: TargetVersion::Alternate(1), saw: ReadOutcome::Nothing }),
            call(2, 2, HistoryEvent::Delivery { version: 1 }),
            call(6, 6, HistoryEvent::Delivery { version: 3 }),
        ],
        disturbances: vec![Disturbance { start: 3 * SECOND, end: 5 * SECOND, part: DisturbedPart::Node }],
        listed: vec![(3, 30, SIZE), (2, 20, SIZE), (1, 10, SIZE)],
    }
}

/// Applies a change to the consistent history, and checks that a violation of the expected kind is detected.
#[track_caller]
fn check_detected(change: impl FnOnce(&mut CallHistory), expected: ViolationKind) {
    let mut history = consistent_history();
    assert_eq!(violation_kinds(&history), []);
    change(&mut history);
    let kinds = violation_kinds(&history);
    assert!(kinds.contains(&expected), "expected {expected:?}, not {kinds:?}");
}

#[test]
fn lost_version_is_detected() {
    check_detected(|history| history.listed.truncate(2), ViolationKind::LostVersion);
    check_detected(|history| history.listed.retain(|(number, ..)| *number != 2), ViolationKind::LostVersion);
    // The version exists, but with the content of another version.
    check_detected(|history| history.listed[0].1 = 20, ViolationKind::LostVersion);
}

#[test]
fn duplicate_version_is_detected() {
    check_detected(|history| history.listed.push((4, 20, SIZE)), ViolationKind::DuplicateVersion);
    check_detected(|history| history.listed.push((3, 40, SIZE)), ViolationKind::DuplicateVersion);
    check_detected(
        |history| history.calls[2].event = publish(30, CallOutcome::Done(1)),
        ViolationKind::DuplicateVersion,
    );
}

#[test]
fn invented_version_is_detected() {
    check_detected(|history| history.listed.push((4, 40, SIZE)), ViolationKind::InventedVersion);
    check_detected(
        |history| history.calls[1].event = publish(20, CallOutcome::Refused),
        ViolationKind::InventedVersion,
    );
}

#[test]
fn versions_out_of_order_are_detected() {
    let swap = |history: &mut CallHistory| {
        history.calls[0].event = publish(10, CallOutcome::Done(3));
        history.calls[2].event = publish(30, CallOutcome::Done(1));
        history.listed = vec![(3, 10, SIZE), (2, 20, SIZE), (1, 30, SIZE)];
    };
    check_detected(swap, ViolationKind::VersionsOutOfOrder);
}

#[test]
fn stale_read_after_rollback_is_detected() {
    let late = |start| call(start, start + 1, saw(TargetVersion::Active, 3, 30));
    check_detected(|history| history.calls.push(late(10)), ViolationKind::StaleRead);
    // Within a second after the acknowledgment, a read can still find the old state; before the call, it must.
    let mut history = consistent_history();
    history.calls.push(Call { start: 9 * SECOND + MAX_STALENESS - 1, ..late(9) });
    history.calls.push(late(7));
    assert_eq!(violation_kinds(&history), []);
    check_detected(
        |history| history.calls.push(call(7, 7, saw(TargetVersion::Active, 1, 10))),
        ViolationKind::StaleRead,
    );
    // A rollback without a response may or may not have happened.
    let mut history = consistent_history();
    history.calls[3].event = HistoryEvent::Pin { version: Some(1), outcome: CallOutcome::Unknown };
    history.calls.extend([late(10), late(30), call(40, 41, saw(TargetVersion::Active, 1, 10))]);
    assert_eq!(violation_kinds(&history), []);
    // A rejected rollback has not happened.
    history.calls[3].event = HistoryEvent::Pin { version: Some(1), outcome: CallOutcome::Refused };
    assert_eq!(violation_kinds(&history), [ViolationKind::StaleRead]);
}

#[test]
fn other_stale_reads_are_detected() {
    check_detected(
        |history| history.calls.push(call(8, 9, saw(TargetVersion::Latest, 2, 20))),
        ViolationKind::StaleRead,
    );
    check_detected(
        |history| history.calls.push(call(22, 23, saw(TargetVersion::Alternate(1), 1, 11))),
        ViolationKind::StaleRead,
    );
    let not_found = |target| HistoryEvent::Read { target, saw: ReadOutcome::Nothing };
    check_detected(
        |history| history.calls.push(call(17, 18, not_found(TargetVersion::Alternate(1)))),
        ViolationKind::StaleRead,
    );
    check_detected(
        |history| history.calls.push(call(17, 18, not_found(TargetVersion::Version(2)))),
        ViolationKind::StaleRead,
    );
    check_detected(
        |history| history.calls.push(call(17, 18, not_found(TargetVersion::Active))),
        ViolationKind::StaleRead,
    );
}

#[test]
fn wrong_response_is_detected() {
    check_detected(
        |history| history.calls.push(call(12, 13, saw(TargetVersion::Version(2), 2, 30))),
        ViolationKind::WrongResponse,
    );
    check_detected(
        |history| history.calls.push(call(12, 13, saw(TargetVersion::Version(2), 3, 30))),
        ViolationKind::WrongResponse,
    );
    // A version before the call that created it.
    check_detected(
        |history| history.calls.push(call(4, 4, saw(TargetVersion::Version(3), 3, 30))),
        ViolationKind::WrongResponse,
    );
    let more = ReadOutcome::Whole { version: 2, content: 20, size: SIZE + 1 };
    let more = HistoryEvent::Read { target: TargetVersion::Version(2), saw: more };
    check_detected(|history| history.calls.push(call(12, 13, more)), ViolationKind::WrongResponse);
}

#[test]
fn undetected_truncation_is_detected() {
    let truncated = ReadOutcome::Whole { version: 2, content: 20, size: SIZE - 1 };
    let read = HistoryEvent::Read { target: TargetVersion::Version(2), saw: truncated };
    check_detected(|history| history.calls.push(call(4, 4, read)), ViolationKind::UndetectedTruncation);
}

#[test]
fn duplicate_or_wrong_webhook_is_detected() {
    check_detected(
        |history| history.calls.push(call(50, 50, HistoryEvent::Delivery { version: 3 })),
        ViolationKind::DeliveredTwice,
    );
    check_detected(
        |history| history.calls.push(call(50, 50, HistoryEvent::Delivery { version: 4 })),
        ViolationKind::DeliveredWithoutVersion,
    );
}

#[test]
fn unexplained_failure_is_detected() {
    let failed = |saw| HistoryEvent::Read { target: TargetVersion::Latest, saw };
    check_detected(
        |history| history.calls.push(call(6, 7, failed(ReadOutcome::Truncated))),
        ViolationKind::UnexplainedFailure,
    );
    check_detected(
        |history| history.calls.push(call(6, 7, failed(ReadOutcome::Error(500)))),
        ViolationKind::UnexplainedFailure,
    );
    // A killed node truncates its responses, but the other nodes must respond to further requests.
    check_detected(
        |history| history.calls.push(call(4, 4, failed(ReadOutcome::Error(503)))),
        ViolationKind::UnexplainedFailure,
    );
    let mut history = consistent_history();
    history.calls.push(call(4, 4, failed(ReadOutcome::Truncated)));
    history.disturbances.push(Disturbance { start: 6 * SECOND, end: 7 * SECOND, part: DisturbedPart::Shared });
    history.calls.push(call(6, 7, failed(ReadOutcome::Error(503))));
    assert_eq!(violation_kinds(&history), []);
}

/// Faults must also be detected in long runs with many other calls.
#[test]
fn fault_in_a_long_run_is_detected() {
    for seed in 0..100 {
        let history = ServiceModel::run(seed, 200);
        let acknowledged =
            |call: &&Call| matches!(call.event, HistoryEvent::Publish { outcome: CallOutcome::Done(_), .. });
        let Some(last) = history.calls.iter().rfind(acknowledged).copied() else { continue };
        let HistoryEvent::Publish { content, outcome: CallOutcome::Done(number), .. } = last.event else { continue };
        let after = last.end + MAX_STALENESS;

        let mut lost = history.clone();
        lost.listed.retain(|(_, listed, _)| *listed != content);
        assert!(violation_kinds(&lost).contains(&ViolationKind::LostVersion), "seed {seed}");

        let mut doubled = history.clone();
        doubled.listed.push((history.listed.len() as u64 + 1, content, SIZE));
        assert!(violation_kinds(&doubled).contains(&ViolationKind::DuplicateVersion), "seed {seed}");

        let mut stale = history.clone();
        let (_, before, _) = *history.listed.iter().find(|(listed, ..)| *listed + 1 == number).unwrap_or(&(0, 0, 0));
        if number > 1 {
            let event = saw(TargetVersion::Latest, number - 1, before);
            stale.calls.push(Call { start: after, end: after, event });
            assert_eq!(violation_kinds(&stale), [ViolationKind::StaleRead], "seed {seed}");
        }

        let mut twice = history.clone();
        for _ in 0..2 {
            twice.calls.push(Call { start: after, end: after, event: HistoryEvent::Delivery { version: number } });
        }
        assert_eq!(violation_kinds(&twice), [ViolationKind::DeliveredTwice], "seed {seed}");
    }
}

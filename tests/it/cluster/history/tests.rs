//! Tests of the history checker: it accepts all histories of a correct model, and detects injected faults.

use super::{
    Call, Disturbance, DisturbedPart, Event, History, MAX_STALENESS, Outcome, ReadOutcome, ReadTarget, Time,
    ViolationKind,
};
use crate::cluster::seeded_random::SeededRandom;

/// Entities of each content.
const SIZE: u64 = 8;

/// A model of a correct service, with overlapping calls and stale reads within the allowed time.
struct Model {
    random: SeededRandom,
    now: Time,
    history: History,
    /// All states, each with its start.
    states: Vec<(Time, State)>,
    contents: u64,
}

#[derive(Clone, Default)]
struct State {
    versions: Vec<u64>,
    pin: Option<u64>,
    alternate: Option<u64>,
}

impl Model {
    /// Returns the history of a run with `calls` calls.
    fn run(seed: u64, calls: u64) -> History {
        let mut model = Model {
            random: SeededRandom::new(seed),
            now: 1,
            history: History::default(),
            states: vec![(0, State::default())],
            contents: 0,
        };
        for _ in 0..calls {
            model.step();
        }
        let last = model.state().versions.clone();
        model.history.listed = (1..).zip(last).map(|(number, content)| (number, content, SIZE)).collect();
        model.history
    }

    fn state(&self) -> &State {
        &self.states.last().expect("the first one").1
    }

    /// Records a call that starts before the current time and ends after it.
    fn call(&mut self, event: Event) {
        let start = self.now.saturating_sub(1 + self.random.below(300_000));
        // Later calls have their effect after this call.
        let end = self.now + self.random.below(300_000);
        self.history.calls.push(Call { start, end, event });
    }

    fn outcome<T>(&mut self, done: T) -> (Outcome<T>, bool) {
        match self.random.below(10) {
            0 => (Outcome::Refused, false),
            1 => (Outcome::Unknown, false),
            2 => (Outcome::Unknown, true),
            _ => (Outcome::Done(done), true),
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
                self.call(Event::Publish { content, size: SIZE, outcome });
            }
            2 => {
                let versions = state.versions.len() as u64;
                let version =
                    (versions > 0 && self.random.below(2) == 0).then(|| 1 + self.random.below(versions.max(1)));
                let (outcome, happens) = self.outcome(());
                if happens {
                    state.pin = version;
                }
                self.call(Event::Pin { version, outcome });
            }
            3 if !state.versions.is_empty() => {
                let content = (self.random.below(3) > 0).then(|| self.content());
                let (outcome, happens) = self.outcome(());
                if happens {
                    state.alternate = content;
                }
                let content = content.map(|content| (content, SIZE));
                self.call(Event::Alternate { version: 1, content, outcome });
            }
            4 if !state.versions.is_empty() => {
                let version = state.versions.len() as u64;
                let sent = |call: &Call| call.event == Event::Delivery { version };
                if !self.history.calls.iter().any(sent) {
                    self.call(Event::Delivery { version });
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
            0 => (ReadTarget::Active, state.pin.unwrap_or(latest)),
            1 => (ReadTarget::Latest, latest),
            2 => (ReadTarget::Alternate(1), 1),
            _ => {
                let number = 1 + self.random.below(latest + 2);
                (ReadTarget::Version(number), if number <= latest { number } else { 0 })
            }
        };
        let saw = match (target, self.random.below(20)) {
            (_, 0) => ReadOutcome::Truncated,
            (_, 1) => ReadOutcome::Error(503),
            (ReadTarget::Alternate(_), _) => match state.alternate {
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
        self.history.calls.push(Call { start, end: self.now, event: Event::Read { target, saw } });
    }
}

#[track_caller]
fn violation_kinds(history: &History) -> Vec<ViolationKind> {
    let mut kinds: Vec<ViolationKind> = history.violations().into_iter().map(|violation| violation.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn correct_history_is_accepted() {
    let mut reads = 0;
    for seed in 0..400 {
        let history = Model::run(seed, 120);
        assert_eq!(history.violations(), [], "seed {seed}");
        reads += history.calls.iter().filter(|call| matches!(call.event, Event::Read { .. })).count();
    }
    assert!(reads > 10_000, "{reads}");
}

const SECOND: Time = 1_000_000;

fn call(start: Time, end: Time, event: Event) -> Call {
    Call { start: start * SECOND, end: end * SECOND, event }
}

fn publish(content: u64, outcome: Outcome<u64>) -> Event {
    Event::Publish { content, size: SIZE, outcome }
}

fn pin(version: Option<u64>) -> Event {
    Event::Pin { version, outcome: Outcome::Done(()) }
}

fn saw(target: ReadTarget, version: u64, content: u64) -> Event {
    Event::Read { target, saw: ReadOutcome::Whole { version, content, size: SIZE } }
}

/// Returns a history without violations: three versions, a rollback, an alternate, reads, and webhooks.
fn consistent_history() -> History {
    History {
        calls: vec![
            call(1, 2, publish(10, Outcome::Done(1))),
            call(3, 4, publish(20, Outcome::Unknown)),
            call(5, 6, publish(30, Outcome::Done(3))),
            call(8, 9, pin(Some(1))),
            call(12, 13, saw(ReadTarget::Active, 1, 10)),
            call(12, 13, saw(ReadTarget::Latest, 3, 30)),
            call(12, 13, saw(ReadTarget::Version(2), 2, 20)),
            call(14, 15, Event::Alternate { version: 1, content: Some((11, SIZE)), outcome: Outcome::Done(()) }),
            call(17, 18, saw(ReadTarget::Alternate(1), 1, 11)),
            call(19, 20, Event::Alternate { version: 1, content: None, outcome: Outcome::Done(()) }),
            call(22, 23, Event::Read { target: ReadTarget::Alternate(1), saw: ReadOutcome::Nothing }),
            call(2, 2, Event::Delivery { version: 1 }),
            call(6, 6, Event::Delivery { version: 3 }),
        ],
        disturbances: vec![Disturbance { start: 3 * SECOND, end: 5 * SECOND, part: DisturbedPart::Node }],
        listed: vec![(3, 30, SIZE), (2, 20, SIZE), (1, 10, SIZE)],
    }
}

/// Applies a change to the consistent history, and checks that a violation of the expected kind is detected.
#[track_caller]
fn check_detected(change: impl FnOnce(&mut History), expected: ViolationKind) {
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
    check_detected(|history| history.calls[2].event = publish(30, Outcome::Done(1)), ViolationKind::DuplicateVersion);
}

#[test]
fn invented_version_is_detected() {
    check_detected(|history| history.listed.push((4, 40, SIZE)), ViolationKind::InventedVersion);
    check_detected(|history| history.calls[1].event = publish(20, Outcome::Refused), ViolationKind::InventedVersion);
}

#[test]
fn versions_out_of_order_are_detected() {
    let swap = |history: &mut History| {
        history.calls[0].event = publish(10, Outcome::Done(3));
        history.calls[2].event = publish(30, Outcome::Done(1));
        history.listed = vec![(3, 10, SIZE), (2, 20, SIZE), (1, 30, SIZE)];
    };
    check_detected(swap, ViolationKind::VersionsOutOfOrder);
}

#[test]
fn stale_read_after_rollback_is_detected() {
    let late = |start| call(start, start + 1, saw(ReadTarget::Active, 3, 30));
    check_detected(|history| history.calls.push(late(10)), ViolationKind::StaleRead);
    // Within a second after the acknowledgment, a read can still find the old state; before the call, it must.
    let mut history = consistent_history();
    history.calls.push(Call { start: 9 * SECOND + MAX_STALENESS - 1, ..late(9) });
    history.calls.push(late(7));
    assert_eq!(violation_kinds(&history), []);
    check_detected(|history| history.calls.push(call(7, 7, saw(ReadTarget::Active, 1, 10))), ViolationKind::StaleRead);
    // A rollback without a response may or may not have happened.
    let mut history = consistent_history();
    history.calls[3].event = Event::Pin { version: Some(1), outcome: Outcome::Unknown };
    history.calls.extend([late(10), late(30), call(40, 41, saw(ReadTarget::Active, 1, 10))]);
    assert_eq!(violation_kinds(&history), []);
    // A rejected rollback has not happened.
    history.calls[3].event = Event::Pin { version: Some(1), outcome: Outcome::Refused };
    assert_eq!(violation_kinds(&history), [ViolationKind::StaleRead]);
}

#[test]
fn other_stale_reads_are_detected() {
    check_detected(|history| history.calls.push(call(8, 9, saw(ReadTarget::Latest, 2, 20))), ViolationKind::StaleRead);
    check_detected(
        |history| history.calls.push(call(22, 23, saw(ReadTarget::Alternate(1), 1, 11))),
        ViolationKind::StaleRead,
    );
    let not_found = |target| Event::Read { target, saw: ReadOutcome::Nothing };
    check_detected(
        |history| history.calls.push(call(17, 18, not_found(ReadTarget::Alternate(1)))),
        ViolationKind::StaleRead,
    );
    check_detected(
        |history| history.calls.push(call(17, 18, not_found(ReadTarget::Version(2)))),
        ViolationKind::StaleRead,
    );
    check_detected(|history| history.calls.push(call(17, 18, not_found(ReadTarget::Active))), ViolationKind::StaleRead);
}

#[test]
fn wrong_response_is_detected() {
    check_detected(
        |history| history.calls.push(call(12, 13, saw(ReadTarget::Version(2), 2, 30))),
        ViolationKind::WrongResponse,
    );
    check_detected(
        |history| history.calls.push(call(12, 13, saw(ReadTarget::Version(2), 3, 30))),
        ViolationKind::WrongResponse,
    );
    // A version before the call that created it.
    check_detected(
        |history| history.calls.push(call(4, 4, saw(ReadTarget::Version(3), 3, 30))),
        ViolationKind::WrongResponse,
    );
    let more = ReadOutcome::Whole { version: 2, content: 20, size: SIZE + 1 };
    let more = Event::Read { target: ReadTarget::Version(2), saw: more };
    check_detected(|history| history.calls.push(call(12, 13, more)), ViolationKind::WrongResponse);
}

#[test]
fn undetected_truncation_is_detected() {
    let truncated = ReadOutcome::Whole { version: 2, content: 20, size: SIZE - 1 };
    let read = Event::Read { target: ReadTarget::Version(2), saw: truncated };
    check_detected(|history| history.calls.push(call(4, 4, read)), ViolationKind::UndetectedTruncation);
}

#[test]
fn duplicate_or_wrong_webhook_is_detected() {
    check_detected(
        |history| history.calls.push(call(50, 50, Event::Delivery { version: 3 })),
        ViolationKind::DeliveredTwice,
    );
    check_detected(
        |history| history.calls.push(call(50, 50, Event::Delivery { version: 4 })),
        ViolationKind::DeliveredWithoutVersion,
    );
}

#[test]
fn unexplained_failure_is_detected() {
    let failed = |saw| Event::Read { target: ReadTarget::Latest, saw };
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
        let history = Model::run(seed, 200);
        let acknowledged = |call: &&Call| matches!(call.event, Event::Publish { outcome: Outcome::Done(_), .. });
        let Some(last) = history.calls.iter().rfind(acknowledged).copied() else { continue };
        let Event::Publish { content, outcome: Outcome::Done(number), .. } = last.event else { continue };
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
            let event = saw(ReadTarget::Latest, number - 1, before);
            stale.calls.push(Call { start: after, end: after, event });
            assert_eq!(violation_kinds(&stale), [ViolationKind::StaleRead], "seed {seed}");
        }

        let mut twice = history.clone();
        for _ in 0..2 {
            twice.calls.push(Call { start: after, end: after, event: Event::Delivery { version: number } });
        }
        assert_eq!(violation_kinds(&twice), [ViolationKind::DeliveredTwice], "seed {seed}");
    }
}

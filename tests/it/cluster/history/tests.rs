//! The judge judged: whatever a service that keeps its promises may tell is accepted, and a planted fault is not.

use super::{Call, Disturbance, Event, History, Kind, Outcome, Part, Place, STALE, Saw, Time};
use crate::cluster::dice::Dice;

/// How much each content has.
const SIZE: u64 = 8;

/// A service in one place, whose calls overlap and whose reads may be late, as they may.
struct Model {
    dice: Dice,
    now: Time,
    history: History,
    /// Every state since the beginning: when it was reached, the versions, the pin, and the alternate of version 1.
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
    /// A run of so many calls.
    fn run(seed: u64, calls: u64) -> History {
        let mut model = Model {
            dice: Dice::of(seed),
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

    /// From before now until after it.
    fn call(&mut self, event: Event) {
        let began = self.now.saturating_sub(1 + self.dice.below(300_000));
        // The effect of a later call comes after this one's.
        let ended = self.now + self.dice.below(300_000);
        self.history.calls.push(Call { began, ended, event });
    }

    fn outcome<T>(&mut self, done: T) -> (Outcome<T>, bool) {
        match self.dice.below(10) {
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
        self.now += 1 + self.dice.below(500_000);
        let mut state = self.state().clone();
        match self.dice.below(9) {
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
                let version = (versions > 0 && self.dice.below(2) == 0).then(|| 1 + self.dice.below(versions.max(1)));
                let (outcome, happens) = self.outcome(());
                if happens {
                    state.pin = version;
                }
                self.call(Event::Pin { version, outcome });
            }
            3 if !state.versions.is_empty() => {
                let content = (self.dice.below(3) > 0).then(|| self.content());
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

    /// A read of a state that is at most so old as one may be.
    fn read(&mut self) {
        let began = self.now.saturating_sub(self.dice.below(200_000));
        let from = began.saturating_sub(STALE - 1);
        let first = self.states.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let seen = first + self.dice.below((self.states.len() - first) as u64) as usize;
        let state = self.states[seen].1.clone();
        let latest = state.versions.len() as u64;
        let (of, version) = match self.dice.below(4) {
            0 => (Place::Active, state.pin.unwrap_or(latest)),
            1 => (Place::Latest, latest),
            2 => (Place::Alternate(1), 1),
            _ => {
                let number = 1 + self.dice.below(latest + 2);
                (Place::Version(number), if number <= latest { number } else { 0 })
            }
        };
        let saw = match (of, self.dice.below(20)) {
            (_, 0) => Saw::Cut,
            (_, 1) => Saw::Error(503),
            (Place::Alternate(_), _) => match state.alternate {
                Some(content) => Saw::Whole { version: 1, content, size: SIZE },
                None => Saw::Nothing,
            },
            _ if version == 0 => Saw::Nothing,
            _ => Saw::Whole { version, content: state.versions[version as usize - 1], size: SIZE },
        };
        if matches!(saw, Saw::Cut | Saw::Error(_)) {
            let disturbance = Disturbance { began: self.now, ended: self.now, part: Part::Shared };
            self.history.disturbances.push(disturbance);
        }
        self.history.calls.push(Call { began, ended: self.now, event: Event::Read { of, saw } });
    }
}

#[track_caller]
fn found(history: &History) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = history.violations().into_iter().map(|violation| violation.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn what_one_service_may_tell_is_accepted() {
    let mut reads = 0;
    for seed in 0..400 {
        let history = Model::run(seed, 120);
        assert_eq!(history.violations(), [], "seed {seed}");
        reads += history.calls.iter().filter(|call| matches!(call.event, Event::Read { .. })).count();
    }
    assert!(reads > 10_000, "{reads}");
}

const SECOND: Time = 1_000_000;

fn call(began: Time, ended: Time, event: Event) -> Call {
    Call { began: began * SECOND, ended: ended * SECOND, event }
}

fn publish(content: u64, outcome: Outcome<u64>) -> Event {
    Event::Publish { content, size: SIZE, outcome }
}

fn pin(version: Option<u64>) -> Event {
    Event::Pin { version, outcome: Outcome::Done(()) }
}

fn saw(of: Place, version: u64, content: u64) -> Event {
    Event::Read { of, saw: Saw::Whole { version, content, size: SIZE } }
}

/// Three versions, a rollback to the first, an alternate of it, reads of all, and each delivered: all is well.
fn well() -> History {
    History {
        calls: vec![
            call(1, 2, publish(10, Outcome::Done(1))),
            call(3, 4, publish(20, Outcome::Unknown)),
            call(5, 6, publish(30, Outcome::Done(3))),
            call(8, 9, pin(Some(1))),
            call(12, 13, saw(Place::Active, 1, 10)),
            call(12, 13, saw(Place::Latest, 3, 30)),
            call(12, 13, saw(Place::Version(2), 2, 20)),
            call(14, 15, Event::Alternate { version: 1, content: Some((11, SIZE)), outcome: Outcome::Done(()) }),
            call(17, 18, saw(Place::Alternate(1), 1, 11)),
            call(19, 20, Event::Alternate { version: 1, content: None, outcome: Outcome::Done(()) }),
            call(22, 23, Event::Read { of: Place::Alternate(1), saw: Saw::Nothing }),
            call(2, 2, Event::Delivery { version: 1 }),
            call(6, 6, Event::Delivery { version: 3 }),
        ],
        disturbances: vec![Disturbance { began: 3 * SECOND, ended: 5 * SECOND, part: Part::Node }],
        listed: vec![(3, 30, SIZE), (2, 20, SIZE), (1, 10, SIZE)],
    }
}

/// What is found when this is changed in what was well.
#[track_caller]
fn planted(change: impl FnOnce(&mut History), expected: Kind) {
    let mut history = well();
    assert_eq!(found(&history), []);
    change(&mut history);
    let found = found(&history);
    assert!(found.contains(&expected), "{expected:?} is to be found, not {found:?}");
}

#[test]
fn a_lost_version_is_found() {
    planted(|history| history.listed.truncate(2), Kind::LostVersion);
    planted(|history| history.listed.retain(|(number, ..)| *number != 2), Kind::LostVersion);
    // The number is there, and another's content.
    planted(|history| history.listed[0].1 = 20, Kind::LostVersion);
}

#[test]
fn a_doubled_version_is_found() {
    planted(|history| history.listed.push((4, 20, SIZE)), Kind::DoubledVersion);
    planted(|history| history.listed.push((3, 40, SIZE)), Kind::DoubledVersion);
    planted(|history| history.calls[2].event = publish(30, Outcome::Done(1)), Kind::DoubledVersion);
}

#[test]
fn a_version_that_nobody_made_is_found() {
    planted(|history| history.listed.push((4, 40, SIZE)), Kind::InventedVersion);
    planted(|history| history.calls[1].event = publish(20, Outcome::Refused), Kind::InventedVersion);
}

#[test]
fn versions_in_another_order_than_their_calls_are_found() {
    let swap = |history: &mut History| {
        history.calls[0].event = publish(10, Outcome::Done(3));
        history.calls[2].event = publish(30, Outcome::Done(1));
        history.listed = vec![(3, 10, SIZE), (2, 20, SIZE), (1, 30, SIZE)];
    };
    planted(swap, Kind::DisorderedVersions);
}

#[test]
fn a_stale_read_after_an_acknowledged_rollback_is_found() {
    let late = |began| call(began, began + 1, saw(Place::Active, 3, 30));
    planted(|history| history.calls.push(late(10)), Kind::StaleRead);
    // Within the second after it was acknowledged, a read may still find it; before it was asked for, it must.
    let mut history = well();
    history.calls.push(Call { began: 9 * SECOND + STALE - 1, ..late(9) });
    history.calls.push(late(7));
    assert_eq!(found(&history), []);
    planted(|history| history.calls.push(call(7, 7, saw(Place::Active, 1, 10))), Kind::StaleRead);
    // A rollback without an answer may have happened, or not.
    let mut history = well();
    history.calls[3].event = Event::Pin { version: Some(1), outcome: Outcome::Unknown };
    history.calls.extend([late(10), late(30), call(40, 41, saw(Place::Active, 1, 10))]);
    assert_eq!(found(&history), []);
    // One that was refused has not.
    history.calls[3].event = Event::Pin { version: Some(1), outcome: Outcome::Refused };
    assert_eq!(found(&history), [Kind::StaleRead]);
}

#[test]
fn other_stale_reads_are_found() {
    planted(|history| history.calls.push(call(8, 9, saw(Place::Latest, 2, 20))), Kind::StaleRead);
    planted(|history| history.calls.push(call(22, 23, saw(Place::Alternate(1), 1, 11))), Kind::StaleRead);
    let nothing = |of| Event::Read { of, saw: Saw::Nothing };
    planted(|history| history.calls.push(call(17, 18, nothing(Place::Alternate(1)))), Kind::StaleRead);
    planted(|history| history.calls.push(call(17, 18, nothing(Place::Version(2)))), Kind::StaleRead);
    planted(|history| history.calls.push(call(17, 18, nothing(Place::Active))), Kind::StaleRead);
}

#[test]
fn a_wrong_answer_is_found() {
    planted(|history| history.calls.push(call(12, 13, saw(Place::Version(2), 2, 30))), Kind::WrongAnswer);
    planted(|history| history.calls.push(call(12, 13, saw(Place::Version(2), 3, 30))), Kind::WrongAnswer);
    // A version before it was asked for.
    planted(|history| history.calls.push(call(4, 4, saw(Place::Version(3), 3, 30))), Kind::WrongAnswer);
    let more = Saw::Whole { version: 2, content: 20, size: SIZE + 1 };
    let more = Event::Read { of: Place::Version(2), saw: more };
    planted(|history| history.calls.push(call(12, 13, more)), Kind::WrongAnswer);
}

#[test]
fn a_cut_answer_that_is_taken_for_whole_is_found() {
    let cut = Saw::Whole { version: 2, content: 20, size: SIZE - 1 };
    let read = Event::Read { of: Place::Version(2), saw: cut };
    planted(|history| history.calls.push(call(4, 4, read)), Kind::CutTakenForWhole);
}

#[test]
fn a_webhook_that_is_sent_twice_or_for_nothing_is_found() {
    planted(|history| history.calls.push(call(50, 50, Event::Delivery { version: 3 })), Kind::DeliveredTwice);
    planted(|history| history.calls.push(call(50, 50, Event::Delivery { version: 4 })), Kind::DeliveredInVain);
}

#[test]
fn a_failure_that_nothing_explains_is_found() {
    let failed = |saw| Event::Read { of: Place::Latest, saw };
    planted(|history| history.calls.push(call(6, 7, failed(Saw::Cut))), Kind::UnexplainedFailure);
    planted(|history| history.calls.push(call(6, 7, failed(Saw::Error(500)))), Kind::UnexplainedFailure);
    // One server that is gone cuts what it was sending. Others answer all else.
    planted(|history| history.calls.push(call(4, 4, failed(Saw::Error(503)))), Kind::UnexplainedFailure);
    let mut history = well();
    history.calls.push(call(4, 4, failed(Saw::Cut)));
    history.disturbances.push(Disturbance { began: 6 * SECOND, ended: 7 * SECOND, part: Part::Shared });
    history.calls.push(call(6, 7, failed(Saw::Error(503))));
    assert_eq!(found(&history), []);
}

/// Faults in long runs, too, where much else happens at the same time.
#[test]
fn a_fault_in_a_long_run_is_found() {
    for seed in 0..100 {
        let well = Model::run(seed, 200);
        let acknowledged = |call: &&Call| matches!(call.event, Event::Publish { outcome: Outcome::Done(_), .. });
        let Some(last) = well.calls.iter().rfind(acknowledged).copied() else { continue };
        let Event::Publish { content, outcome: Outcome::Done(number), .. } = last.event else { continue };
        let after = last.ended + STALE;

        let mut lost = well.clone();
        lost.listed.retain(|(_, listed, _)| *listed != content);
        assert!(found(&lost).contains(&Kind::LostVersion), "seed {seed}");

        let mut doubled = well.clone();
        doubled.listed.push((well.listed.len() as u64 + 1, content, SIZE));
        assert!(found(&doubled).contains(&Kind::DoubledVersion), "seed {seed}");

        let mut stale = well.clone();
        let (_, before, _) = *well.listed.iter().find(|(listed, ..)| *listed + 1 == number).unwrap_or(&(0, 0, 0));
        if number > 1 {
            let event = saw(Place::Latest, number - 1, before);
            stale.calls.push(Call { began: after, ended: after, event });
            assert_eq!(found(&stale), [Kind::StaleRead], "seed {seed}");
        }

        let mut twice = well.clone();
        for _ in 0..2 {
            twice.calls.push(Call { began: after, ended: after, event: Event::Delivery { version: number } });
        }
        assert_eq!(found(&twice), [Kind::DeliveredTwice], "seed {seed}");
    }
}

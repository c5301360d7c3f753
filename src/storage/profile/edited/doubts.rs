//! Minima and maxima that do not follow from a profile, and what settles them: the values of the list.
//!
//! A doubt takes the extremes of parts of the list, each with the place of the part in it. Statistics of a part tell
//! whether it is worth a look ([`Doubt::may_be_in`]).

use std::cmp::Ordering;

use crate::document::{NumericValue, Scalar};
use crate::storage::profile::min_max::{Cut, NumberMinMax, StringMinMax};
use crate::storage::profile::stored::{PathRecord, ValueRecord, value};
use crate::storage::profile::values::ScalarType;

/// Below this, each value of a double is that double: integers beyond may share one.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The minimum of the numbers.
    NumberMin,
    /// The maximum of the numbers.
    NumberMax,
    /// The minimum of the strings.
    StringMin,
    /// The maximum of the strings.
    StringMax,
}

impl Extreme {
    pub(super) const ALL: [Extreme; 4] =
        [Extreme::NumberMin, Extreme::NumberMax, Extreme::StringMin, Extreme::StringMax];

    /// Whether it is of numbers, and not of strings.
    pub fn is_of_numbers(self) -> bool {
        matches!(self, Extreme::NumberMin | Extreme::NumberMax)
    }

    /// Whether it is a minimum.
    pub fn is_min(self) -> bool {
        matches!(self, Extreme::NumberMin | Extreme::StringMin)
    }

    /// An ordering in which this extreme is the least.
    pub(super) fn oriented(self, ordering: Ordering) -> Ordering {
        if self.is_min() { ordering } else { ordering.reverse() }
    }

    pub(super) fn of(self, record: &mut PathRecord) -> &mut Option<ValueRecord> {
        match self {
            Extreme::NumberMin => &mut record.number_min,
            Extreme::NumberMax => &mut record.number_max,
            Extreme::StringMin => &mut record.string_min,
            Extreme::StringMax => &mut record.string_max,
        }
    }
}

/// A value that none is beyond, as far as it is known.
#[derive(Clone, Debug)]
pub(super) enum Limit {
    Number(NumericValue),
    /// As it is told. A string that is told alike is told alike as the extreme.
    String(ValueRecord),
}

/// The minima and maxima of some entities at a path.
#[derive(Default)]
pub struct Extremes {
    numbers: NumberMinMax,
    strings: StringMinMax,
}

impl Extremes {
    /// Adds a scalar, in the order of the list.
    pub fn add(&mut self, scalar: Scalar<'_>) {
        match scalar {
            Scalar::Number(text) => self.numbers.add(text),
            Scalar::String(text) => self.strings.add(text),
            Scalar::Null | Scalar::Bool(_) => {}
        }
    }

    pub fn add_number(&mut self, text: &str) {
        self.numbers.add(text);
    }

    /// Adds a string without escapes.
    pub fn add_string(&mut self, text: &[u8]) {
        self.strings.add_unescaped(text);
    }

    fn get(&self, extreme: Extreme) -> Option<Found> {
        let end = usize::from(!extreme.is_min());
        match extreme.is_of_numbers() {
            true => self.numbers.min_max.as_ref().map(|min_max| {
                let (number, shown) = &min_max[end];
                Found::Number(number.clone(), shown.clone())
            }),
            false => self.strings.min_max.as_ref().map(|min_max| Found::String(min_max[end].clone())),
        }
    }
}

/// An extreme of some entities.
#[derive(Clone, Debug)]
enum Found {
    Number(NumericValue, Cut),
    String(Cut),
}

impl Found {
    fn told(&self) -> ValueRecord {
        match self {
            Found::Number(_, shown) => value(ScalarType::Number, shown),
            Found::String(shown) => value(ScalarType::String, shown),
        }
    }
}

/// What is known of the values of a part of the list without a look at them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistics<'a> {
    /// It has none of the type.
    None,
    Unknown,
    /// The nearest double of none of its numbers is beyond this one.
    Number(f64),
    /// None of its strings is beyond this one.
    String(&'a [u8]),
}

/// A minimum or maximum that does not follow.
#[derive(Clone, Debug)]
pub struct Doubt {
    keys: Vec<String>,
    path: String,
    extreme: Extreme,
    limit: Option<Limit>,
    /// What was found so far, and the place of the part that it is in.
    best: Option<(Found, usize)>,
}

impl Doubt {
    pub(super) fn new(keys: &[String], path: &str, extreme: Extreme, limit: Option<Limit>) -> Doubt {
        Doubt { keys: keys.to_vec(), path: path.to_owned(), extreme, limit, best: None }
    }

    /// The keys of the path.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    pub fn extreme(&self) -> Extreme {
        self.extreme
    }

    /// Takes what a part of the list has. A part may be given twice: what is given last of it replaces what equals it.
    pub fn take(&mut self, place: usize, extremes: &Extremes) {
        let Some(found) = extremes.get(self.extreme) else { return };
        let is_better = self.best.as_ref().is_none_or(|(best, at)| {
            let ordering = match (&found, best) {
                (Found::Number(found, _), Found::Number(best, _)) => found.cmp(best),
                (Found::String(found), Found::String(best)) => found.cmp(best),
                _ => Ordering::Equal,
            };
            // Of equal numbers the first is told.
            self.extreme.oriented(ordering).then(place.cmp(at)).is_le()
        });
        if is_better {
            self.best = Some((found, place));
        }
    }

    /// Forgets what it has taken.
    pub fn forget(&mut self) {
        self.best = None;
    }

    /// Whether nothing can be beyond what was found. Another number may equal it.
    pub fn is_met(&self) -> bool {
        match (&self.limit, &self.best) {
            (Some(Limit::Number(limit)), Some((Found::Number(found, _), _))) => found == limit,
            (Some(Limit::String(limit)), Some((found, _))) => found.told() == *limit,
            _ => false,
        }
    }

    /// Whether a part at this place of the list, which was not taken yet, may hold the extreme.
    pub fn may_be_in(&self, place: usize, statistics: Statistics<'_>) -> bool {
        let Some((best, at)) = &self.best else { return statistics != Statistics::None };
        if self.is_met() && (!self.extreme.is_of_numbers() || place > *at) {
            return false;
        }
        match (statistics, best) {
            (Statistics::None, _) => false,
            (Statistics::Number(double), Found::Number(number, _)) => {
                let ordering = double.partial_cmp(&number.double()).map(|ordering| self.extreme.oriented(ordering));
                match ordering {
                    Some(Ordering::Greater) => false,
                    Some(Ordering::Equal) => double.abs() >= EXACT || place <= *at,
                    Some(Ordering::Less) | None => true,
                }
            }
            // Of what is cut, as much is known as is shown: one that is as long as that alone is below.
            (Statistics::String(bound), Found::String(best)) => match self.extreme.is_min() {
                true => bound < &*best.bytes || (best.cut && bound == &*best.bytes),
                false => bound > &*best.bytes,
            },
            _ => true,
        }
    }

    /// Which of two parts is looked at first: that of which nothing is known, then that which may be farther out.
    pub fn order(&self, one: Statistics<'_>, other: Statistics<'_>) -> Ordering {
        let rank = |statistics| match statistics {
            Statistics::Unknown => 0,
            Statistics::Number(_) => 1,
            Statistics::String(_) => 2,
            Statistics::None => 3,
        };
        let farther = match (one, other) {
            (Statistics::Number(one), Statistics::Number(other)) => one.total_cmp(&other),
            (Statistics::String(one), Statistics::String(other)) => one.cmp(other),
            _ => Ordering::Equal,
        };
        rank(one).cmp(&rank(other)).then(self.extreme.oriented(farther))
    }

    /// Writes what was found into the profile; `None` where nothing was.
    pub(super) fn settle(&self, records: &mut [PathRecord]) -> Option<()> {
        let record = records.iter_mut().find(|record| record.path == self.path)?;
        *self.extreme.of(record) = Some(self.best.as_ref()?.0.told());
        Some(())
    }
}

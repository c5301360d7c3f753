//! The minima and maxima of a path after edits, as far as they follow from those before.
//!
//! What comes is known, and so is the least of it. A value that goes may be the minimum, and nothing tells whether
//! another one equals it. Of equal numbers the first is told, with its spelling, so that one that moves leaves doubts,
//! too. Where a minimum does not follow, nothing below a known value can be it: that is where a search ends.

use std::cmp::Ordering;

use super::delta::Delta;
use super::doubts::{Doubt, Extreme, Limit};
use super::values::Counted;
use crate::document::{NumericValue, Text};
use crate::storage::profile::min_max::{Cut, number};
use crate::storage::profile::stored::{PathRecord, ValueRecord, value};
use crate::storage::profile::values::ScalarType;

/// A minimum or a maximum after edits.
enum After {
    Same,
    Is(ValueRecord),
    /// One that does not follow. Where there is a limit, none is beyond it.
    Doubtful(Option<Limit>),
}

/// Changes the minima and maxima of a path with these keys, whose types are counted as they are after edits, and says
/// which are in doubt; `None` where the profile before contradicts the edits.
pub(super) fn change_bounds(
    record: &mut PathRecord,
    keys: &[String],
    delta: &Delta,
    counted: Option<&Counted>,
    doubts: &mut Vec<Doubt>,
) -> Option<()> {
    for extreme in Extreme::ALL {
        let (count, more) = match extreme.is_of_numbers() {
            true => (record.types.number, delta.numbers),
            false => (record.types.string, delta.strings),
        };
        if count == 0 {
            *extreme.of(record) = None;
            continue;
        }
        let known = extreme.of(record).as_ref();
        if known.is_some() != (count.checked_add_signed(-more)? > 0) {
            return None;
        }
        let after = match extreme.is_of_numbers() {
            true => of_numbers(known, delta, extreme, counted)?,
            false => of_strings(known, delta, extreme, counted)?,
        };
        match after {
            After::Same => {}
            After::Is(told) => *extreme.of(record) = Some(told),
            After::Doubtful(limit) => doubts.push(Doubt::new(keys, &record.path, extreme, limit)),
        }
    }
    Some(())
}

fn of_numbers(
    known: Option<&ValueRecord>,
    delta: &Delta,
    extreme: Extreme,
    counted: Option<&Counted>,
) -> Option<After> {
    // Of those that came the least, and whether it has several spellings.
    let mut least: Option<(NumericValue, ValueRecord)> = None;
    let mut is_ambiguous = false;
    for (text, more) in delta.of_type(ScalarType::Number) {
        if more < 0 {
            continue;
        }
        let text = std::str::from_utf8(text).ok()?;
        let (number, told) = (number(text)?, value(ScalarType::Number, &Cut::of_number(text)));
        match least.as_ref().map(|(least, _)| extreme.oriented(number.cmp(least))) {
            None | Some(Ordering::Less) => (least, is_ambiguous) = (Some((number, told)), false),
            Some(Ordering::Equal) => is_ambiguous |= least.as_ref().is_some_and(|(_, least)| *least != told),
            Some(Ordering::Greater) => {}
        }
    }
    let of_those = |(number, told): (NumericValue, ValueRecord)| match is_ambiguous {
        true => After::Doubtful(Some(Limit::Number(number))),
        false => After::Is(told),
    };
    let Some(known) = known else { return least.map(of_those) };
    if !delta.moves_numbers() {
        return Some(After::Same);
    }
    let spelled = known.value.to_string();
    let Some(bound) = NumericValue::parse(&spelled).filter(|_| !known.cut) else {
        return Some(After::Doubtful(None));
    };
    if let Some(least) = least
        && extreme.oriented(least.0.cmp(&bound)).is_lt()
    {
        return Some(of_those(least));
    }
    let mut is_doubtful = false;
    let [gone, came] = &delta.moved;
    for text in gone {
        match extreme.oriented(number(text)?.cmp(&bound)) {
            Ordering::Less => return None,
            Ordering::Equal => is_doubtful = true,
            Ordering::Greater => {}
        }
    }
    // One that is spelled alike changes nothing, even where it is the first now.
    is_doubtful |= came.iter().any(|text| {
        number(text).is_some_and(|number| number == bound)
            && value(ScalarType::Number, &Cut::of_number(text)).value != known.value
    });
    match is_doubtful && !counted.is_some_and(|counted| counted.holds(ScalarType::Number, spelled.as_bytes())) {
        true => Some(After::Doubtful(Some(Limit::Number(bound)))),
        false => Some(After::Same),
    }
}

fn of_strings(
    known: Option<&ValueRecord>,
    delta: &Delta,
    extreme: Extreme,
    counted: Option<&Counted>,
) -> Option<After> {
    let texts = || delta.of_type(ScalarType::String).map(|(text, more)| (Cut::of_string(Text::new(text)), more));
    let came = texts().filter(|(_, more)| *more > 0).map(|(cut, _)| cut);
    let least = came.reduce(|one, other| if extreme.oriented(other.cmp(&one)).is_lt() { other } else { one });
    let Some(known) = known else { return least.map(|least| After::Is(value(ScalarType::String, &least))) };
    if let Some(least) = least {
        match order(&least, known).map(|ordering| extreme.oriented(ordering)) {
            None => return Some(After::Doubtful(None)),
            Some(Ordering::Less) => return Some(After::Is(value(ScalarType::String, &least))),
            Some(Ordering::Equal | Ordering::Greater) => {}
        }
    }
    for (gone, _) in texts().filter(|(_, more)| *more < 0) {
        match order(&gone, known).map(|ordering| extreme.oriented(ordering)) {
            Some(Ordering::Greater) => {}
            Some(Ordering::Less) => return None,
            Some(Ordering::Equal) | None => {
                let stays = !gone.cut && counted.is_some_and(|counted| counted.holds(ScalarType::String, &gone.bytes));
                if !stays {
                    return Some(After::Doubtful(Some(Limit::String(known.clone()))));
                }
            }
        }
    }
    Some(After::Same)
}

/// How a string compares with one of which as much is known as is shown; `None` where that does not tell.
fn order(string: &Cut, shown: &ValueRecord) -> Option<Ordering> {
    let known = shown.value.as_str()?.as_bytes();
    if !shown.cut {
        return Some((&*string.bytes, string.cut).cmp(&(known, false)));
    }
    let common = known.len().min(string.bytes.len());
    match string.bytes[..common].cmp(&known[..common]) {
        Ordering::Equal if string.bytes.len() < known.len() && !string.cut => Some(Ordering::Less),
        Ordering::Equal => None,
        ordering => Some(ordering),
    }
}

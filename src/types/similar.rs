//! Finds the known name that is nearest to a misspelt one.

use strsim::osa_distance;

/// Longer names are not compared, because the work grows with the square of the length.
const COMPARED_CHARACTERS: usize = 64;

/// The shortest beginning of a name that counts as near.
const BEGINNING_CHARACTERS: usize = 3;

/// The nearest known name. It is the one with the fewest differences, if they are few for the length of the name. A
/// difference is a character that is missing, added, replaced, or swapped with its neighbour. Case does not count. If
/// there is none, it is the shortest name that begins with the given one. Of several the first. `None` if none is near.
///
/// Where a known name is the beginning of the given one up to a `_`, it is nearer than names of which all that follows
/// the `_` would be other characters: for `filter_eq` it is `filter`, not `filter_gt`.
///
/// Costs a few microseconds for each known name of about the same length.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = lower(name)?;
    let mut beginning: Option<(usize, &str)> = None;
    let length = name.chars().count();
    let most = match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let mut found: Option<((usize, usize), &str)> = None;
    for other in known {
        let Some(compared) = lower(other) else { continue };
        let compared_length = compared.chars().count();
        let is_beginning = name.strip_prefix(&compared).is_some_and(|rest| rest.starts_with('_'));
        if is_beginning
            && compared_length >= BEGINNING_CHARACTERS
            && beginning.is_none_or(|(longest, _)| longest < compared_length)
        {
            beginning = Some((compared_length, other));
        }
        let distance = match compared_length.abs_diff(length) <= most {
            true => osa_distance(&name, &compared),
            false => usize::MAX,
        };
        let rank = match distance {
            distance if distance <= most => (distance, 0),
            _ if length >= BEGINNING_CHARACTERS && compared.starts_with(&name) => (most + 1, compared_length),
            _ => continue,
        };
        if found.is_none_or(|(best, _)| rank < best) {
            found = Some((rank, other));
        }
    }
    let ((distance, _), found) = found?;
    let is_longer = lower(found).is_some_and(|found| found.starts_with(&name));
    match beginning {
        Some((beginning_length, beginning)) if !is_longer && distance >= length - beginning_length - 1 => {
            Some(beginning)
        }
        _ => Some(found),
    }
}

/// A question for the nearest known name, after a space. Empty if none is near.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |nearest| format!(" did you mean {nearest}?"))
}

/// A name in lower case; `None` for one too long to be compared.
fn lower(name: &str) -> Option<String> {
    name.chars().nth(COMPARED_CHARACTERS).is_none().then(|| name.to_lowercase())
}

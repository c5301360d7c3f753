//! Suggestions for misspelled names.

use strsim::osa_distance;

/// Limit of the length of compared names. The work of a comparison grows with the square of the length.
const MAX_COMPARED_CHARACTERS: usize = 64;

const MIN_PREFIX_CHARACTERS: usize = 3;

/// Returns the known name with the fewest differences, if they are few for the length of `name`. A difference is a
/// missing, added, replaced, or swapped character; case does not count. Otherwise returns the shortest known name that
/// starts with `name`. The first of equally similar names wins.
///
/// If a known name is the beginning of `name` up to a `_`, it is preferred to names that share nothing after the `_`:
/// for `filter_eq`, the result is `filter`, not `filter_gt`. Costs a few microseconds per known name of similar length.
pub fn find_similar_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = lowercase_if_short(name)?;
    let mut prefix: Option<(usize, &str)> = None;
    let length = name.chars().count();
    let max_distance = match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let mut nearest: Option<((usize, usize), &str)> = None;
    for other in known {
        let Some(compared) = lowercase_if_short(other) else { continue };
        let compared_length = compared.chars().count();
        let is_prefix = name.strip_prefix(&compared).is_some_and(|rest| rest.starts_with('_'));
        if is_prefix
            && compared_length >= MIN_PREFIX_CHARACTERS
            && prefix.is_none_or(|(longest, _)| longest < compared_length)
        {
            prefix = Some((compared_length, other));
        }
        let distance = match compared_length.abs_diff(length) <= max_distance {
            true => osa_distance(&name, &compared),
            false => usize::MAX,
        };
        let rank = match distance {
            distance if distance <= max_distance => (distance, 0),
            _ if length >= MIN_PREFIX_CHARACTERS && compared.starts_with(&name) => (max_distance + 1, compared_length),
            _ => continue,
        };
        if nearest.is_none_or(|(best, _)| rank < best) {
            nearest = Some((rank, other));
        }
    }
    let ((distance, _), nearest) = nearest?;
    let is_longer = lowercase_if_short(nearest).is_some_and(|nearest| nearest.starts_with(&name));
    match prefix {
        Some((prefix_length, prefix)) if !is_longer && distance >= length - prefix_length - 1 => Some(prefix),
        _ => Some(nearest),
    }
}

/// Formats the most similar name as a question after a space. Returns an empty string if there is none.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    find_similar_name(name, known).map_or_else(String::new, |nearest| format!(" did you mean {nearest}?"))
}

fn lowercase_if_short(name: &str) -> Option<String> {
    name.chars().nth(MAX_COMPARED_CHARACTERS).is_none().then(|| name.to_lowercase())
}

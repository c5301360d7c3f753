//! Which of some known names a misspelt one was meant to be.

/// Longer names than this are not compared: the work grows with the square of the length.
const COMPARED_CHARACTERS: usize = 64;

/// Shortest beginning of a name that stands for the name.
const BEGINNING_CHARACTERS: usize = 3;

/// The known name that is nearest: the one with the fewest characters that are missing, too many, another, or swapped
/// with their neighbour, whatever their case, if those are few for the length of the name; else the shortest one of which
/// the name is the beginning. The first one of several. `None` where none is close.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let characters: Vec<char> = name.chars().take(COMPARED_CHARACTERS + 1).flat_map(char::to_lowercase).collect();
    if characters.len() > COMPARED_CHARACTERS {
        return None;
    }
    let most = match characters.len() {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let is_beginning = |other: &[char]| characters.len() >= BEGINNING_CHARACTERS && other.starts_with(&characters);
    let mut found: Option<((usize, usize), &str)> = None;
    for other in known {
        let compared: Vec<char> = other.chars().take(COMPARED_CHARACTERS + 1).flat_map(char::to_lowercase).collect();
        let rank = match distance(&characters, &compared, most) {
            Some(distance) => (distance, 0),
            None if is_beginning(&compared) => (most + 1, compared.len()),
            None => continue,
        };
        if found.is_none_or(|(best, _)| rank < best) {
            found = Some((rank, other));
        }
    }
    found.map(|(_, name)| name)
}

/// How many characters of two texts differ, if at most `most` do.
fn distance(one: &[char], other: &[char], most: usize) -> Option<usize> {
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    // Three rows of the table of distances between beginnings of both.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, character) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, compared) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(character != compared);
            let mut least = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *character == other[column - 1] && one[row - 1] == *compared {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut last, current);
    }
    last.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        let known = ["limit", "filter", "filter_contains", "keep_field", "keywords", "dataset_id", "v1", "v2", "alt"];
        for (name, meant) in [
            ("limt", Some("limit")),
            ("lmit", Some("limit")),
            ("ilmit", Some("limit")),
            ("LIMIT", Some("limit")),
            ("fliter", Some("filter")),
            ("keepfield", Some("keep_field")),
            ("filter_contain", Some("filter_contains")),
            ("keyword", Some("keywords")),
            ("dataset", Some("dataset_id")),
            ("v3", None),
            ("a", None),
            ("", None),
            ("page", None),
            ("country", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), ["x"]), None);
        assert_eq!(nearest("regoin", ["name", "region", "regions"]), Some("region"));
    }
}

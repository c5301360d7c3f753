//! The neighbors of an entity in a list. A form contains them, so that strata can tell whether an entity that is no
//! longer there was changed or removed: the former list is not stored.

use sha2::{Digest, Sha256};

const HASH_BYTES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// For example, because it is too large to be read.
    #[default]
    Unknown,
    /// The list begins or ends there.
    End,
    /// The hash of the entity's canonical text.
    Entity(String),
}

impl Neighbour {
    pub(super) fn new(entity: &[u8]) -> Neighbour {
        Neighbour::Entity(hex::encode(&Sha256::digest(entity)[..HASH_BYTES]))
    }

    fn parse(text: &str) -> Neighbour {
        match text {
            "end" => Neighbour::End,
            hash if hash.len() == 2 * HASH_BYTES => Neighbour::Entity(hash.to_owned()),
            _ => Neighbour::Unknown,
        }
    }

    fn text(&self) -> &str {
        match self {
            Neighbour::Unknown => "unknown",
            Neighbour::End => "end",
            Neighbour::Entity(hash) => hash,
        }
    }

    fn is(&self, other: &Neighbour) -> bool {
        *self != Neighbour::Unknown && self == other
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbours {
    pub(super) before: Neighbour,
    pub(super) behind: Neighbour,
}

/// What happened to an entity that is not where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has moved at most.
    Same,
    /// Another entity is between its neighbors.
    Changed,
    /// Its neighbors are next to each other.
    Removed,
    /// Its neighbors have changed, too.
    Unknown,
}

impl Neighbours {
    /// Parses the field of a form.
    pub(super) fn parse(text: &str) -> Neighbours {
        let (before, behind) = text.split_once(' ').unwrap_or_default();
        Neighbours { before: Neighbour::parse(before), behind: Neighbour::parse(behind) }
    }

    /// The text of its field.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.before.text(), self.behind.text())
    }

    /// The fate of the entity that was between these neighbors, if `there`, with the neighbors `now`, is at its
    /// position instead. A list that is shorter than before has rather lost an entity.
    pub(super) fn fate(&self, there: &Neighbour, now: &Neighbours, is_shorter: bool) -> Fate {
        if !self.before.is(&now.before) {
            return Fate::Unknown;
        }
        let is_changed = matches!(there, Neighbour::Entity(_)) && self.behind.is(&now.behind);
        match (self.behind.is(there), is_changed) {
            (true, is_changed) if is_shorter || !is_changed => Fate::Removed,
            (_, true) => Fate::Changed,
            _ => Fate::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The neighbours of a place of a list of letters.
    fn beside(list: &str, at: usize) -> Neighbours {
        let letters = list.as_bytes();
        let behind = letters.get(at + 1).map_or(Neighbour::End, |letter| Neighbour::new(&[*letter]));
        let before = at.checked_sub(1).map_or(Neighbour::End, |before| Neighbour::new(&[letters[before]]));
        Neighbours { before, behind: if at < list.len() { behind } else { Neighbour::Unknown } }
    }

    #[test]
    fn entity_fate_follows_from_its_neighbors() {
        for (before, at, now, there, fate) in [
            ("abc", 1, "aXc", 1, Fate::Changed),
            ("abc", 1, "ac", 1, Fate::Removed),
            ("abc", 0, "Xbc", 0, Fate::Changed),
            ("abc", 0, "bc", 0, Fate::Removed),
            ("abc", 2, "abX", 2, Fate::Changed),
            ("abc", 2, "ab", 2, Fate::Removed),
            ("a", 0, "", 0, Fate::Removed),
            ("a", 0, "X", 0, Fate::Changed),
            ("abc", 1, "xaXc", 2, Fate::Changed),
            ("abc", 1, "xac", 2, Fate::Removed),
            ("abc", 1, "axXc", 1, Fate::Unknown),
            ("abc", 1, "XYZ", 1, Fate::Unknown),
            ("abc", 1, "XY", 1, Fate::Unknown),
            // Its neighbours are equal to each other.
            ("abaa", 1, "aaa", 1, Fate::Removed),
            ("abaa", 1, "aaaa", 1, Fate::Changed),
        ] {
            let was = Neighbours::parse(&beside(before, at).text());
            assert_eq!(was, beside(before, at));
            let letter = now.as_bytes().get(there).map_or(Neighbour::End, |letter| Neighbour::new(&[*letter]));
            let is_shorter = now.len() < before.len();
            assert_eq!(was.fate(&letter, &beside(now, there), is_shorter), fate, "{before} {now}");
        }
        for text in ["", "x", "unknown unknown", "end", "x y"] {
            let was = Neighbours::parse(text);
            assert_eq!(was, Neighbours::default(), "{text}");
            assert_eq!(was.fate(&Neighbour::End, &was, true), Fate::Unknown, "{text}");
        }
    }
}

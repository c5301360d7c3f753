//! What stands before and behind an entity of a list. A form holds it, so that of an entity that is not there any more
//! it can be told whether somebody has changed it, or removed it. The list of before is not kept.

use sha2::{Digest, Sha256};

/// Bytes of a hash that tell entities apart.
const HASH_BYTES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// It is not known, such as where it is too large to be read.
    #[default]
    Unknown,
    /// The list begins or ends there.
    End,
    /// An entity with this hash of its canonical text.
    Entity(String),
}

impl Neighbour {
    pub(super) fn of(entity: &[u8]) -> Neighbour {
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

    /// Whether both are known, and one.
    fn is(&self, other: &Neighbour) -> bool {
        *self != Neighbour::Unknown && self == other
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) before: Neighbour,
    pub(super) behind: Neighbour,
}

/// What became of an entity that is not where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is there, and has moved at most.
    Same,
    /// Another one is between its neighbours.
    Changed,
    /// Its neighbours are beside each other.
    Removed,
    /// Its neighbours have changed, too.
    Unknown,
}

impl Beside {
    /// The one of a field of a form.
    pub(super) fn parse(text: &str) -> Beside {
        let (before, behind) = text.split_once(' ').unwrap_or_default();
        Beside { before: Neighbour::parse(before), behind: Neighbour::parse(behind) }
    }

    /// The text of its field.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.before.text(), self.behind.text())
    }

    /// What became of the entity that stood between these, if it is the one that `there` is instead of: an entity of a
    /// list, or its end, beside which `now` stands. A list that is shorter than before has rather lost an entity.
    pub(super) fn fate(&self, there: &Neighbour, now: &Beside, is_shorter: bool) -> Fate {
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
    fn beside(list: &str, at: usize) -> Beside {
        let letters = list.as_bytes();
        let behind = letters.get(at + 1).map_or(Neighbour::End, |letter| Neighbour::of(&[*letter]));
        let before = at.checked_sub(1).map_or(Neighbour::End, |before| Neighbour::of(&[letters[before]]));
        Beside { before, behind: if at < list.len() { behind } else { Neighbour::Unknown } }
    }

    #[test]
    fn it_is_told_whether_an_entity_was_changed_or_removed() {
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
            let was = Beside::parse(&beside(before, at).text());
            assert_eq!(was, beside(before, at));
            let letter = now.as_bytes().get(there).map_or(Neighbour::End, |letter| Neighbour::of(&[*letter]));
            let is_shorter = now.len() < before.len();
            assert_eq!(was.fate(&letter, &beside(now, there), is_shorter), fate, "{before} {now}");
        }
        for text in ["", "x", "unknown unknown", "end", "x y"] {
            let was = Beside::parse(text);
            assert_eq!(was, Beside::default(), "{text}");
            assert_eq!(was.fate(&Neighbour::End, &was, true), Fate::Unknown, "{text}");
        }
    }
}

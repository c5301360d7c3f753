//! Search text to entries, and a needle to what the entries of a row that holds it must be like.
//!
//! Bytes are of three kinds: *breaks* (up to 0x20, and 0xFF), *word* bytes (ASCII letters and digits, and all other
//! bytes from 0x80) and *marks* (the rest). A text is cut on both sides of each break, and between a mark and a word
//! byte that follows it. The pieces without breaks are its **entries**: a word with the marks behind it, or marks
//! alone.
//!
//! `see https://example.org/c++ (1)` has the entries `see`, `https://`, `example.`, `org/`, `c++`, `(`, `1)`.
//!
//! Two neighbouring bytes decide whether there is a cut between them. So a needle is cut at the same places as every
//! text that holds it, and only its first and last piece may be parts of longer entries. That is all that a plan says:
//!
//! - a needle of one piece lies within an entry, and every entry that holds it holds the needle: the plan is exact;
//! - of several pieces, the first is the end of an entry, the last the start of one, others are whole. A break beside a
//!   piece ends the entry there. Rows that have all of these are candidates: the pieces may stand elsewhere in them;
//! - a needle without a piece says nothing: the search text has to be scanned.
//!
//! Entries are of three [classes](Class), by their word. A needle's bytes tell which classes its entries may have.

use strata_json::for_each_piece;

use crate::layout::SEPARATOR;

/// Pieces of a plan. More would hardly leave fewer rows.
const PIECES: usize = 16;

/// Hexadecimal words have at least so many bytes.
const HEXADECIMAL_BYTES: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Break,
    Mark,
    Word,
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Mark; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            0..=0x20 | SEPARATOR => Kind::Break,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => Kind::Word,
            _ => Kind::Mark,
        };
        byte += 1;
    }
    kinds
};

#[inline]
fn kind(byte: u8) -> Kind {
    KINDS[usize::from(byte)]
}

#[inline]
pub fn entries<'t>(text: &'t [u8], mut entry: impl FnMut(&'t [u8])) {
    for_each_piece(text, |start, end| entry(text.get(start..end).unwrap_or_default()));
}

/// What an entry's word is: entries of a class are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Anything else; marks alone, too.
    Words = 0,
    Digits = 1,
    /// Hexadecimal digits alone: at least four, with a letter and a decimal digit.
    Hexadecimal = 2,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Words, Class::Digits, Class::Hexadecimal];

    #[inline]
    pub fn of(entry: &[u8]) -> Class {
        // Most words show with their first byte that they are no numbers.
        if entry.first().is_none_or(|byte| !is_hexadecimal(*byte)) {
            return Class::Words;
        }
        let (word, _) = split_marks(entry);
        if !word.iter().all(|byte| is_hexadecimal(*byte)) {
            return Class::Words;
        }
        let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
        if digits == word.len() {
            Class::Digits
        } else if digits > 0 && word.len() >= HEXADECIMAL_BYTES {
            Class::Hexadecimal
        } else {
            Class::Words
        }
    }
}

/// Folded text has no upper-case letters.
#[inline]
fn is_hexadecimal(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The word of an entry, or of a part of one, and the marks behind it.
fn split_marks(entry: &[u8]) -> (&[u8], &[u8]) {
    let word = entry.iter().position(|byte| kind(*byte) != Kind::Word).unwrap_or(entry.len());
    entry.split_at(word)
}

/// How a piece of a needle lies in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Within,
    Start,
    End,
    Whole,
}

/// A piece of a needle. A row that holds the needle has an entry that holds the piece at this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// There are some, without breaks.
    pub bytes: Vec<u8>,
    place: Place,
}

impl Piece {
    pub fn is_in(&self, entry: &[u8]) -> bool {
        match self.place {
            Place::Within => memchr::memmem::find(entry, &self.bytes).is_some(),
            Place::Start => entry.starts_with(&self.bytes),
            Place::End => entry.ends_with(&self.bytes),
            Place::Whole => entry == self.bytes,
        }
    }

    /// What to look for among entries that have a [`SEPARATOR`] before and behind each.
    pub fn pattern(&self) -> Vec<u8> {
        let before = matches!(self.place, Place::Start | Place::Whole).then_some(SEPARATOR);
        let behind = matches!(self.place, Place::End | Place::Whole).then_some(SEPARATOR);
        before.into_iter().chain(self.bytes.iter().copied()).chain(behind).collect()
    }

    pub fn may_be_in(&self, class: Class) -> bool {
        let (word, marks) = split_marks(&self.bytes);
        let starts = matches!(self.place, Place::Start | Place::Whole);
        let ends = matches!(self.place, Place::End | Place::Whole) || !marks.is_empty();
        if word.is_empty() {
            // The end of any entry, or an entry of marks.
            return !starts || class == Class::Words;
        }
        if starts && ends {
            return Class::of(word) == class;
        }
        match class {
            Class::Words => true,
            Class::Digits => word.iter().all(u8::is_ascii_digit),
            Class::Hexadecimal => word.iter().all(|byte| is_hexadecimal(*byte)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The rows with an entry that holds this piece are those that hold the needle.
    Exact(Piece),
    /// A row that holds the needle has an entry for each of these pieces, the longest first. There is one at least.
    Pieces(Vec<Piece>),
    /// The entries do not tell: the needle is empty or has breaks alone.
    Scan,
}

impl Plan {
    /// The plan of a needle: folded text. It may have separators: those of a whole text around it, say.
    pub fn of(needle: &[u8]) -> Plan {
        let mut pieces = Vec::new();
        let start = needle.as_ptr() as usize;
        entries(needle, |bytes| {
            let from = bytes.as_ptr() as usize - start;
            let place = match (from == 0, from + bytes.len() == needle.len()) {
                (true, true) => Place::Within,
                (true, false) => Place::End,
                (false, true) => Place::Start,
                (false, false) => Place::Whole,
            };
            pieces.push(Piece { bytes: bytes.to_vec(), place });
        });
        match pieces.as_slice() {
            [] => Plan::Scan,
            [only] if only.place == Place::Within => Plan::Exact(only.clone()),
            _ => {
                // By length, then so that equal pieces are neighbours.
                pieces.sort_by(|one, other| {
                    let key = |piece: &Piece| (std::cmp::Reverse(piece.bytes.len()), piece.place);
                    key(one).cmp(&key(other)).then_with(|| one.bytes.cmp(&other.bytes))
                });
                pieces.dedup();
                pieces.truncate(PIECES);
                Plan::Pieces(pieces)
            }
        }
    }

    pub fn pieces(&self) -> &[Piece] {
        match self {
            Plan::Exact(piece) => std::slice::from_ref(piece),
            Plan::Pieces(pieces) => pieces,
            Plan::Scan => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> Vec<String> {
        let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'|' { SEPARATOR } else { byte }).collect();
        let mut found = Vec::new();
        entries(&bytes, |entry| found.push(String::from_utf8_lossy(entry).into_owned()));
        found
    }

    #[test]
    fn texts_are_cut() {
        let check = |text, expected: &[&str]| assert_eq!(cut(text), expected, "{text}");
        check("", &[]);
        check("| \n |", &[]);
        check("see https://example.org/c++ (1)", &["see", "https://", "example.", "org/", "c++", "(", "1)"]);
        check("|long-term|-117.5|", &["long-", "term", "-", "117.", "5"]);
        check("|straße|東京.|", &["straße", "東京."]);
    }

    #[test]
    fn needles_are_planned() {
        let check = |needle: &str, expected: &str| {
            let needle: Vec<u8> = needle.bytes().map(|byte| if byte == b'|' { SEPARATOR } else { byte }).collect();
            let plan = Plan::of(&needle);
            let pieces = plan.pieces().iter().map(|piece| {
                let classes: String = Class::ALL
                    .iter()
                    .zip("wdh".chars())
                    .filter(|(class, _)| piece.may_be_in(**class))
                    .map(|(_, letter)| letter)
                    .collect();
                format!("{:?} {} {classes}", piece.place, String::from_utf8_lossy(&piece.bytes))
            });
            let pieces: Vec<String> = pieces.collect();
            let exact = if matches!(plan, Plan::Exact(_)) { "exact: " } else { "" };
            assert_eq!(format!("{exact}{}", pieces.join(", ")), expected, "{plan:?}");
        };
        check("", "");
        check(" \t", "");
        check("li", "exact: Within li w");
        check("deadbeef", "exact: Within deadbeef wh");
        check("2018", "exact: Within 2018 wdh");
        check("2018-", "exact: Within 2018- wdh");
        check("-", "exact: Within - wdh");
        check("https://", "exact: Within https:// w");
        check(" the ", "Whole the w");
        check("long-term", "End long- w, Start term w");
        check("www.example.org", "Whole example. w, End www. w, Start org w");
        check("2018-02-07", "End 2018- wdh, Whole 02- d, Start 07 wdh");
        check("|12a4|", "Whole 12a4 h");
        check("|12|", "Whole 12 d");
        check(" 12", "Start 12 wdh");
        check(" 12.", "Start 12. d");
        check("(1", "Start 1 wdh, End ( wdh");
        check(" (", "Start ( w");
        check("a a a", "Start a wh, End a wh, Whole a w");
    }

    fn classes_and_breaks() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(&b"aaeg129--. \x00\xC3\xBF"[..]), 0..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// A text that holds the needle has entries for all its pieces, of the classes that they may be in; one that
        /// does not has none if the plan is exact.
        #[test]
        fn plans_hold(texts in proptest::collection::vec(classes_and_breaks(), 0..4), needle in classes_and_breaks(), take in any::<(usize, usize)>(), of_text in any::<bool>(), whole in any::<bool>()) {
            let mut text = vec![SEPARATOR];
            for one in &texts {
                text.extend_from_slice(one);
                text.push(SEPARATOR);
            }
            // Needles that occur are of most interest.
            let mut needle = if of_text {
                let one = texts.first().cloned().unwrap_or_default();
                let from = take.0 % (one.len() + 1);
                one[from..from + take.1 % (one.len() - from + 1)].to_vec()
            } else {
                needle
            };
            if whole {
                needle.insert(0, SEPARATOR);
                needle.push(SEPARATOR);
            }
            let plan = Plan::of(&needle);
            let mut found = Vec::new();
            entries(&text, |entry| found.push(entry));
            let holds = memchr::memmem::find(&text, &needle).is_some();
            let has = |piece: &Piece| found.iter().any(|entry| piece.is_in(entry) && piece.may_be_in(Class::of(entry)));
            let candidate = plan.pieces().iter().all(has);
            prop_assert!(candidate || !holds, "{plan:?} {found:?}");
            if matches!(plan, Plan::Exact(_)) {
                prop_assert_eq!(candidate, holds);
            }
            for piece in plan.pieces() {
                let joined = [&[SEPARATOR], found.join(&SEPARATOR).as_slice(), &[SEPARATOR]].concat();
                let by_pattern = memchr::memmem::find(&joined, &piece.pattern()).is_some();
                prop_assert_eq!(by_pattern, found.iter().any(|entry| piece.is_in(entry)));
            }
        }

        /// Entries are all that is not a break, in order.
        #[test]
        fn entries_are_all_but_breaks(text in classes_and_breaks()) {
            let mut joined = Vec::new();
            entries(&text, |entry| joined.extend_from_slice(entry));
            let expected: Vec<u8> = text.iter().copied().filter(|byte| kind(*byte) != Kind::Break).collect();
            prop_assert_eq!(joined, expected);
        }
    }
}

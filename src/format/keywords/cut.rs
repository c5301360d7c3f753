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

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || (byte >= 0x80 && byte != SEPARATOR)
}

fn split_marks(entry: &[u8]) -> (&[u8], &[u8]) {
    let word = entry.iter().position(|byte| !is_word(*byte)).unwrap_or(entry.len());
    entry.split_at(word)
}

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

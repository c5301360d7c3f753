//! Tokenizer of the full text of entities, and the conversion of a needle into conditions on tokens.
//!
//! The full text of an entity consists of its folded scalars, each after a separator, and a final separator.
//!
//! Problem: a needle can start or end inside of a word, and can contain punctuation. Therefore, the tokens contain all
//! bytes of the text except separators, and a fragment of a needle can match a part of a token.
//!
//! The text is split around each separator, and between punctuation and a following word byte
//! ([`strata_json::for_each_token`]). The parts without separators are the **tokens**: a word with the punctuation
//! after it, or only punctuation.
//!
//! Example: the tokens of `see https://example.org/c++ (1)` are `see`, `https://`, `example.`, `org/`, `c++`, `(`,
//! `1)`. The needle `see https://ex` has three fragments: the end of a token (`see`), a whole token (`https://`), and
//! the start of a token (`ex`).
//!
//! Each split depends only on two adjacent bytes. Therefore, a needle is split in the same positions as each text that
//! contains it, and only its first and last fragment can be parts of longer tokens:
//!
//! - If a needle has one fragment, a row contains the needle if and only if one of its tokens does.
//! - If it has several fragments, the first one is the end of a token, the last one the start of a token, and the
//!   others are whole tokens. Rows with all of these tokens are candidates, because the tokens need not be adjacent.
//! - A needle without fragments requires a scan.
//!
//! Tokens have three [classes](TokenClass). The bytes of a fragment show which classes its tokens can have.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use super::hash_page::{MAX_HASH_DIGITS, parse_hash_digits};
use crate::layout::TEXT_SEPARATOR;

/// Max fragments of a needle in a query. More fragments would rarely exclude further rows.
const MAX_FRAGMENTS: usize = 16;
const MIN_HEX_TOKEN_BYTES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermQuery {
    /// A row matches if and only if one of its tokens contains the fragment.
    ExactFragment(TokenFragment),
    /// A row can match only if each fragment matches one of its tokens. At least one fragment, the longest first.
    Fragments(Vec<TokenFragment>),
    /// Tokens cannot decide: the needle is empty or contains only separators.
    Scan,
}

impl TermQuery {
    /// Creates the query for a case-folded needle, which may contain separators, for example around a whole string.
    pub fn from_needle(needle: &[u8]) -> TermQuery {
        let mut fragments = Vec::new();
        strata_json::for_each_token(needle, |start, end| {
            let anchor = match (start == 0, end == needle.len()) {
                (true, true) => FragmentAnchor::Substring,
                (true, false) => FragmentAnchor::Suffix,
                (false, true) => FragmentAnchor::Prefix,
                (false, false) => FragmentAnchor::WholeToken,
            };
            fragments.push(TokenFragment { bytes: needle[start..end].to_vec(), anchor });
        });
        match fragments.as_slice() {
            [] => TermQuery::Scan,
            [only] if only.anchor == FragmentAnchor::Substring => TermQuery::ExactFragment(only.clone()),
            _ => {
                // Longest first; equal fragments must be adjacent for `dedup`.
                fragments.sort_by(|left, right| left.sort_key().cmp(&right.sort_key()));
                fragments.dedup();
                fragments.truncate(MAX_FRAGMENTS);
                TermQuery::Fragments(fragments)
            }
        }
    }

    pub fn fragments(&self) -> &[TokenFragment] {
        match self {
            TermQuery::ExactFragment(fragment) => std::slice::from_ref(fragment),
            TermQuery::Fragments(fragments) => fragments,
            TermQuery::Scan => &[],
        }
    }
}

/// A part of a needle that a token of each matching row must contain, at the position given by `anchor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFragment {
    pub bytes: Vec<u8>,
    anchor: FragmentAnchor,
}

impl TokenFragment {
    pub fn matches(&self, token: &[u8]) -> bool {
        match self.anchor {
            FragmentAnchor::Substring => memchr::memmem::find(token, &self.bytes).is_some(),
            FragmentAnchor::Prefix => token.starts_with(&self.bytes),
            FragmentAnchor::Suffix => token.ends_with(&self.bytes),
            FragmentAnchor::WholeToken => token == self.bytes,
        }
    }

    pub fn matches_token_of(&self, text: &[u8]) -> bool {
        let mut found = false;
        strata_json::for_each_token(text, |start, end| found |= self.matches(&text[start..end]));
        found
    }

    /// Returns the bytes that find this fragment in a text of tokens with a [`TEXT_SEPARATOR`] around each of them.
    pub fn delimited_pattern(&self) -> Vec<u8> {
        let prefix = self.anchor.is_token_start().then_some(TEXT_SEPARATOR);
        let suffix = self.anchor.is_token_end().then_some(TEXT_SEPARATOR);
        prefix.into_iter().chain(self.bytes.iter().copied()).chain(suffix).collect()
    }

    pub fn may_match_class(&self, class: TokenClass) -> bool {
        let (word, punctuation) = split_at_punctuation(&self.bytes);
        let starts = self.anchor.is_token_start();
        let ends = self.anchor.is_token_end() || !punctuation.is_empty();
        if word.is_empty() {
            // The fragment matches the end of any token, or a token of punctuation.
            return !starts || class == TokenClass::Words;
        }
        if starts && ends {
            return TokenClass::from_token(word) == class;
        }
        match class {
            TokenClass::Words => true,
            TokenClass::Digits => word.iter().all(u8::is_ascii_digit),
            TokenClass::Hexadecimal => word.iter().all(|byte| is_hex_digit(*byte)),
        }
    }

    pub fn is_token_start(&self) -> bool {
        self.anchor.is_token_start()
    }

    /// Returns the first `digits` digits of the long hexadecimal tokens that the fragment can match, as a range of
    /// numbers. `None` if it is not the start of such a token.
    pub(super) fn hash_digits(&self, digits: usize) -> Option<RangeInclusive<u32>> {
        let given = self.bytes.get(..digits).unwrap_or(&self.bytes);
        let missing = digits.min(MAX_HASH_DIGITS).saturating_sub(given.len());
        if !self.anchor.is_token_start() || (missing > 0 && self.anchor.is_token_end()) {
            return None;
        }
        let missing_bits = 4 * missing as u32;
        let first = u64::from(parse_hash_digits(given)?) << missing_bits;
        Some(first as u32..=(first | ((1 << missing_bits) - 1)) as u32)
    }

    fn sort_key(&self) -> (Reverse<usize>, FragmentAnchor, &[u8]) {
        (Reverse(self.bytes.len()), self.anchor, self.bytes.as_slice())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FragmentAnchor {
    Substring,
    Prefix,
    Suffix,
    WholeToken,
}

impl FragmentAnchor {
    fn is_token_start(self) -> bool {
        matches!(self, FragmentAnchor::Prefix | FragmentAnchor::WholeToken)
    }

    fn is_token_end(self) -> bool {
        matches!(self, FragmentAnchor::Suffix | FragmentAnchor::WholeToken)
    }
}

/// Class of a token, determined by its word. Tokens of one class are stored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TokenClass {
    /// All tokens that are neither digits nor hexadecimal, including punctuation without a word.
    Words = 0,
    Digits = 1,
    /// At least four hexadecimal digits, including a letter and a decimal digit.
    Hexadecimal = 2,
}

impl TokenClass {
    pub const ALL: [TokenClass; 3] = [TokenClass::Words, TokenClass::Digits, TokenClass::Hexadecimal];

    #[inline]
    pub fn from_token(token: &[u8]) -> TokenClass {
        if token.first().is_none_or(|byte| !is_hex_digit(*byte)) {
            return TokenClass::Words;
        }
        let (word, _) = split_at_punctuation(token);
        if !word.iter().all(|byte| is_hex_digit(*byte)) {
            return TokenClass::Words;
        }
        let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
        if digits == word.len() {
            TokenClass::Digits
        } else if digits > 0 && word.len() >= MIN_HEX_TOKEN_BYTES {
            TokenClass::Hexadecimal
        } else {
            TokenClass::Words
        }
    }
}

/// Returns true for hexadecimal digits in full text, which is case-folded, so uppercase digits cannot occur.
#[inline]
fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || (byte >= 0x80 && byte != TEXT_SEPARATOR)
}

fn split_at_punctuation(token: &[u8]) -> (&[u8], &[u8]) {
    let word = token.iter().position(|byte| !is_word_byte(*byte)).unwrap_or(token.len());
    token.split_at(word)
}

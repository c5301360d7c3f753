//! Folding: what "case-insensitive" compares (docs/reference/paths-and-values.md, Case).
//!
//! Each character becomes its own Unicode lowercase mapping, without context, and final sigma becomes sigma. So a text
//! can be folded in parts. Folding twice is the same as folding once.

use std::sync::LazyLock;

use super::scan;
use super::text::{Part, Text};

pub fn fold(text: &str) -> String {
    text.chars().flat_map(fold_character).collect()
}

/// Appends `text`, folded. ASCII text costs little more than copying it.
pub fn fold_into(text: &str, out: &mut Vec<u8>) {
    fold_bytes(text.as_bytes(), out);
}

pub fn fold_text_into(text: Text<'_>, out: &mut Vec<u8>) {
    // Escaped characters have no case.
    text.for_each_part(|part| match part {
        Part::Plain(bytes) => fold_bytes(bytes, out),
        Part::Escaped(byte) => out.push(byte),
    });
}

fn fold_bytes(mut rest: &[u8], out: &mut Vec<u8>) {
    out.reserve(rest.len());
    let two_bytes: &[[u8; 2]] = &TWO_BYTES;
    loop {
        let (ascii, others) = rest.split_at(scan::ascii_length(rest));
        let start = out.len();
        out.extend_from_slice(ascii);
        out[start..].make_ascii_lowercase();
        rest = others;
        loop {
            let length = match rest.first() {
                None => return,
                Some(0x00..=0x7f) => break,
                Some(&first @ 0xc2..=0xdf) => {
                    let second = rest.get(1).map_or(0, |second| second & 0x3f);
                    let index = (usize::from(first & 0x1f) << 6 | usize::from(second)) - 0x80;
                    if let Some(folded) = two_bytes.get(index)
                        && folded[0] != 0
                    {
                        out.extend_from_slice(folded);
                        rest = rest.get(2..).unwrap_or_default();
                        continue;
                    }
                    2
                }
                Some(0xe0..=0xef) => 3,
                Some(_) => 4,
            };
            let (character, others) = rest.split_at(length.min(rest.len()));
            match std::str::from_utf8(character).ok().and_then(|text| text.chars().next()) {
                Some(value) if !has_no_case(value) => {
                    for folded in fold_character(value) {
                        out.extend_from_slice(folded.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
                _ => out.extend_from_slice(character),
            }
            rest = others;
        }
    }
}

fn fold_character(character: char) -> impl Iterator<Item = char> {
    character.to_lowercase().map(|lower| if lower == 'ς' { 'σ' } else { lower })
}

/// The characters of two bytes of UTF-8, from U+0080 on, folded; zeros where that is not one such character.
static TWO_BYTES: LazyLock<Vec<[u8; 2]>> = LazyLock::new(|| {
    let folded = |character: char| {
        let mut folded = [0; 2];
        let mut characters = fold_character(character);
        if let (Some(only), None) = (characters.next(), characters.next())
            && only.len_utf8() == folded.len()
        {
            only.encode_utf8(&mut folded);
        }
        folded
    };
    ('\u{80}'..='\u{7ff}').map(folded).collect()
});

/// Large blocks of characters without case. They need no look-up: Samaritan to Burmese, punctuation and signs, the CJK
/// scripts, Hangul, pictographs.
fn has_no_case(character: char) -> bool {
    matches!(
        character,
        '\u{0800}'..='\u{109f}' | '\u{2000}'..='\u{20ff}' | '\u{2e80}'..='\u{a63f}' | '\u{ac00}'..='\u{d7a3}' | '\u{1f000}'..='\u{1faff}'
    )
}

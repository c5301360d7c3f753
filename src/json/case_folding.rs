//! Case folding for case-insensitive comparisons (docs/reference/paths-and-values.md, Case).
//!
//! Each character becomes its Unicode lowercase mapping without context; final sigma becomes sigma. Therefore the parts
//! of a string can be folded separately, and folding is idempotent.

use std::sync::LazyLock;

use super::json_str::{JsonStr, JsonStrPart};
use super::scan;

pub fn fold_case(text: &str) -> String {
    text.chars().flat_map(fold_character).collect()
}

/// Appends the folded `text`. ASCII text costs little more than a copy.
pub fn fold_case_into(text: &str, out: &mut Vec<u8>) {
    fold_bytes(text.as_bytes(), out);
}

pub fn fold_json_str_into(text: JsonStr<'_>, out: &mut Vec<u8>) {
    // Escaped characters of a JSON string have no case.
    text.for_each_part(|part| match part {
        JsonStrPart::Plain(bytes) => fold_bytes(bytes, out),
        JsonStrPart::Escaped(byte) => out.push(byte),
    });
}

/// Like [`fold_case_into`], but copies invalid UTF-8.
pub fn fold_bytes(mut rest: &[u8], out: &mut Vec<u8>) {
    out.reserve(rest.len());
    let two_bytes: &[[u8; 2]] = &FOLDED_TWO_BYTE_CHARS;
    loop {
        let (ascii, others) = rest.split_at(scan::ascii_prefix_len(rest));
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

/// The folded UTF-8 of each two-byte character from U+0080; zeros if the folded form is not one two-byte character.
static FOLDED_TWO_BYTE_CHARS: LazyLock<Vec<[u8; 2]>> = LazyLock::new(|| {
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

/// Returns true for characters in large blocks without case, such as CJK scripts and punctuation, which need no lookup.
fn has_no_case(character: char) -> bool {
    matches!(
        character,
        '\u{0800}'..='\u{109f}' | '\u{2000}'..='\u{20ff}' | '\u{2e80}'..='\u{a63f}' | '\u{ac00}'..='\u{d7a3}' | '\u{1f000}'..='\u{1faff}'
    )
}

//! Where the keywords of a read stand in what is shown, found as the read finds them: in the texts of scalars,
//! regardless of case (docs/semantics.md, keywords). Keys are not searched.

use std::ops::Range;

use memchr::memmem::Finder;

use crate::document::{fold, fold_into};

/// Keywords that are looked for. Texts are searched once for each.
const KEYWORDS: usize = 20;

/// Keywords, folded.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Vec<Finder<'static>>);

impl Marks {
    pub(super) fn of(keywords: &[String]) -> Marks {
        Marks(keywords.iter().take(KEYWORDS).map(|word| Finder::new(&fold(word)).into_owned()).collect())
    }

    /// The parts of a text that are to be marked: in order, none touching another.
    pub(super) fn in_text(&self, text: &str) -> Vec<Range<usize>> {
        self.find(text.char_indices().map(|(start, character)| (start..start + character.len_utf8(), character)))
    }

    /// Those of a JSON text that may end early. A part of a string with escapes begins and ends beside them.
    pub(super) fn in_json(&self, json: &str) -> Vec<Range<usize>> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(first) = json.as_bytes().get(at).filter(|_| !self.0.is_empty()) {
            let start = at;
            match first {
                b'"' => {
                    let inside = start + 1..end_of_string(json, start + 1);
                    at = (inside.end + 1).min(json.len());
                    if !json[at..].trim_start().starts_with(':') {
                        found.extend(self.find(characters(json, inside)));
                    }
                }
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                    let length = json[start..].find([',', ']', '}', '\n', ' ']).unwrap_or(json.len() - start);
                    at = start + length;
                    let scalar = &json[start..at];
                    if scalar != "null" {
                        let parts = self.in_text(scalar).into_iter();
                        found.extend(parts.map(|part| start + part.start..start + part.end));
                    }
                }
                _ => at += 1,
            }
        }
        found
    }

    /// The places of keywords in characters, each of which has a place of its own.
    fn find(&self, characters: impl Iterator<Item = (Range<usize>, char)> + Clone) -> Vec<Range<usize>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut folded = Vec::new();
        for (_, character) in characters.clone() {
            fold_into(character.encode_utf8(&mut [0; 4]), &mut folded);
        }
        let mut found: Vec<Range<usize>> = Vec::new();
        for finder in &self.0 {
            found.extend(finder.find_iter(&folded).map(|at| at..at + finder.needle().len()));
        }
        found.sort_unstable_by_key(|part| part.start);
        // From places in the folded text to places in the text: a character is marked when a part of it is.
        let (mut parts, mut next, mut one) = (Vec::<Range<usize>>::new(), 0, Vec::new());
        let mut found = found.into_iter().peekable();
        let mut until = 0;
        for (place, character) in characters {
            one.clear();
            fold_into(character.encode_utf8(&mut [0; 4]), &mut one);
            let (start, end) = (next, next + one.len());
            next = end;
            while let Some(part) = found.next_if(|part| part.start < end) {
                until = until.max(part.end);
            }
            if start >= until {
                continue;
            }
            match parts.last_mut() {
                Some(last) if last.end == place.start => last.end = place.end,
                _ => parts.push(place),
            }
        }
        parts
    }
}

/// Where a string ends whose inside begins here: at its quote, or where the text ends.
fn end_of_string(json: &str, start: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    json.len()
}

/// The characters that the inside of a string stands for, each with its place. Canonical text has few escapes.
fn characters(json: &str, inside: Range<usize>) -> impl Iterator<Item = (Range<usize>, char)> + Clone {
    let mut at = inside.start;
    std::iter::from_fn(move || {
        let rest = json.get(at..inside.end)?;
        let first = rest.chars().next()?;
        let (character, length) = match first {
            '\\' => escape(rest),
            first => (first, first.len_utf8()),
        };
        let place = at..at + length;
        at = place.end;
        Some((place, character))
    })
}

/// The character of an escape, and the bytes of the escape.
fn escape(text: &str) -> (char, usize) {
    match text.as_bytes().get(1) {
        Some(b'u') => {
            let code = text.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            code.and_then(char::from_u32).map_or(('\\', 1), |character| (character, 6))
        }
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b't') => ('\t', 2),
        Some(b'"') => ('"', 2),
        Some(b'\\') => ('\\', 2),
        _ => ('\\', 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(keywords: &[&str]) -> Marks {
        Marks::of(&keywords.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    fn marked(text: &str, parts: &[Range<usize>]) -> String {
        let mut text = text.to_owned();
        for part in parts.iter().rev() {
            text.insert(part.end, ']');
            text.insert(part.start, '[');
        }
        text
    }

    #[test]
    fn keywords_are_found_regardless_of_case() {
        for (keywords, text, expected) in [
            (&["is"][..], "This IS it", "Th[is] [IS] it"),
            (&["ab", "bc"], "xabcx", "x[abc]x"),
            (&["ΣΟΣ"], "ο σοςσ", "ο [σος]σ"),
            (&["i"], "İ", "[İ]"),
            (&["é"], "CAFÉ", "CAF[É]"),
            (&["<b>"], "a<B>c", "a[<B>]c"),
            (&["no"], "yes", "yes"),
            (&[], "yes", "yes"),
        ] {
            assert_eq!(marked(text, &marks(keywords).in_text(text)), expected, "{keywords:?}");
        }
    }

    #[test]
    fn json_is_searched_in_the_texts_of_its_scalars() {
        for (keyword, json, expected) in [
            ("a", r#"{"a":"a","b":["xa",1]}"#, r#"{"a":"[a]","b":["x[a]",1]}"#),
            ("1", "{\"1\": 21,\n \"x\": 1}", "{\"1\": 2[1],\n \"x\": [1]}"),
            ("n", r#"["\n",null,"n"]"#, r#"["\n",null,"[n]"]"#),
            ("a\"b", r#"["xa\"by"]"#, r#"["x[a\"b]y"]"#),
            ("\u{1}b", r#"["\u0001b"]"#, r#"["[\u0001b]"]"#),
            ("true", "[true, false]", "[[true], false]"),
            ("cut", r#"{"x":"a cut"#, r#"{"x":"a [cut]"#),
            ("ü", r#"{"ü":"Ü"}"#, r#"{"ü":"[Ü]"}"#),
        ] {
            assert_eq!(marked(json, &marks(&[keyword]).in_json(json)), expected, "{keyword}");
        }
        for cut in ["\"a\\", "\"\\u00", "\"", "tru", "-"] {
            marks(&["a", "0"]).in_json(cut);
        }
    }
}

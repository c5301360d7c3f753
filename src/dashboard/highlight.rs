//! The hits of a read's keywords in the texts that a page shows, found as the read finds them: in the texts of scalars,
//! regardless of case (docs/reference/filters.md, keywords). Keys are not searched.

use std::ops::Range;

use memchr::memmem::{FindIter, Finder};
use strata_json::{fold, fold_into};

/// Keywords that are searched. Each costs one pass over a text.
const KEYWORDS: usize = 20;

/// Parts that are returned for a text. The texts on a page have fewer.
const PARTS: usize = 100_000;

const PART_BYTES: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Highlighter(Vec<Finder<'static>>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Syntax {
    Text,
    /// JSON that may be truncated. A part of a string with escapes begins and ends next to them.
    Json,
}

impl Highlighter {
    pub(super) fn new(keywords: &[String]) -> Highlighter {
        let mut folded: Vec<_> = keywords.iter().take(KEYWORDS).map(|word| fold(word)).collect();
        folded.sort_unstable();
        folded.dedup();
        Highlighter(folded.iter().filter(|word| !word.is_empty()).map(|word| Finder::new(word).into_owned()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of a text that are to be marked, in order. None touches another, unless it is longer than
    /// [`PART_BYTES`].
    pub(super) fn parts(&self, text: &str, syntax: Syntax) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        match syntax {
            _ if self.is_empty() => {}
            Syntax::Text => self.find_in_text(text, 0, &mut parts),
            Syntax::Json => self.find_in_json(text, &mut parts),
        }
        parts
    }

    fn find_in_text(&self, text: &str, start: usize, parts: &mut Vec<Range<usize>>) {
        let mut folded = Vec::new();
        fold_into(text, &mut folded);
        let characters = text.char_indices();
        self.find_hits(&folded, characters.map(|(at, one)| (start + at..start + at + one.len_utf8(), one)), parts);
    }

    fn find_in_json(&self, json: &str, parts: &mut Vec<Range<usize>>) {
        // Whether each open container is an object, and whether the next string is a key.
        let mut open = Vec::new();
        let mut key_next = false;
        let mut at = 0;
        while let Some(first) = json.as_bytes().get(at).filter(|_| parts.len() < PARTS) {
            let start = at;
            at += 1;
            match first {
                b'"' => {
                    let inside = start + 1..end_of_string(json, start + 1);
                    at = (inside.end + 1).min(json.len());
                    if !key_next {
                        self.find_in_string(json, inside, parts);
                    }
                }
                b'{' | b'[' => {
                    key_next = *first == b'{';
                    open.push(key_next);
                }
                b'}' | b']' => _ = open.pop(),
                b',' => key_next = open.last() == Some(&true),
                b':' => key_next = false,
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                    at = json[start..].find([',', ']', '}', '\n', ' ']).map_or(json.len(), |length| start + length);
                    let scalar = &json[start..at];
                    if scalar != "null" {
                        self.find_in_text(scalar, start, parts);
                    }
                }
                _ => {}
            }
        }
    }

    /// Searches the inside of a string of a JSON text.
    fn find_in_string(&self, json: &str, inside: Range<usize>, parts: &mut Vec<Range<usize>>) {
        let raw = &json[inside.clone()];
        if !raw.contains('\\') {
            return self.find_in_text(raw, inside.start, parts);
        }
        let text: String = characters(json, inside.clone()).map(|(_, one)| one).collect();
        let mut folded = Vec::new();
        fold_into(&text, &mut folded);
        self.find_hits(&folded, characters(json, inside), parts);
    }

    /// Appends the places of hits in characters, each of which has a place. `folded` is their text.
    fn find_hits(
        &self,
        folded: &[u8],
        characters: impl Iterator<Item = (Range<usize>, char)>,
        parts: &mut Vec<Range<usize>>,
    ) {
        let mut hits = Hits::new(&self.0, folded).peekable();
        // Maps offsets in the folded text to places: a character is marked if a part of it is hit.
        let mut end = 0;
        let mut until = 0;
        let mut one = Vec::new();
        let mut last_end = None;
        for (place, character) in characters {
            let length = match character.is_ascii() {
                true => 1,
                false => {
                    one.clear();
                    fold_into(character.encode_utf8(&mut [0; 4]), &mut one);
                    one.len()
                }
            };
            let start = end;
            end += length;
            while let Some(hit) = hits.next_if(|hit| hit.start < end) {
                until = until.max(hit.end);
            }
            if start >= until {
                if hits.peek().is_none() || parts.len() >= PARTS {
                    return;
                }
                continue;
            }
            match parts.last_mut() {
                Some(last) if last_end == Some(place.start) && last.len() < PART_BYTES => last.end = place.end,
                _ => parts.push(place.clone()),
            }
            last_end = Some(place.end);
        }
    }
}

/// The hits of all keywords in a folded text, in the order of their beginnings.
struct Hits<'f>(Vec<(FindIter<'f, 'f>, usize, Option<usize>)>);

impl<'f> Hits<'f> {
    fn new(finders: &'f [Finder<'static>], folded: &'f [u8]) -> Hits<'f> {
        let begun = finders.iter().map(|finder| {
            let mut places = finder.find_iter(folded);
            let first = places.next();
            (places, finder.needle().len(), first)
        });
        Hits(begun.filter(|(.., first)| first.is_some()).collect())
    }
}

impl Iterator for Hits<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let (places, length, first) = self.0.iter_mut().min_by_key(|(.., first)| first.unwrap_or(usize::MAX))?;
        let start = (*first)?;
        *first = places.next();
        Some(start..start + *length)
    }
}

/// The end of the string whose inside begins at `start`: its quote, or the end of the text.
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

/// The characters that the inside of a string stands for, with their places.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_text_number_of_parts_is_limited() {
        let marks = Highlighter::new(&["a".to_owned(), "A".to_owned()]);
        assert_eq!(marks.parts(&"a ".repeat(PARTS + 1), Syntax::Text).len(), PARTS);
    }

    /// As [`Highlighter::parts`], obviously: each character that has a part in a hit is marked.
    fn plainly(keywords: &[String], text: &str) -> Vec<Range<usize>> {
        let mut folded = Vec::new();
        let mut ends = Vec::new();
        for character in text.chars() {
            fold_into(&character.to_string(), &mut folded);
            ends.push(folded.len());
        }
        let mut is_hit = vec![false; folded.len()];
        for keyword in keywords {
            let keyword = fold(keyword);
            let mut at = 0;
            while !keyword.is_empty() && at + keyword.len() <= folded.len() {
                match folded[at..].starts_with(keyword.as_bytes()) {
                    true => {
                        is_hit[at..at + keyword.len()].fill(true);
                        at += keyword.len();
                    }
                    false => at += 1,
                }
            }
        }
        let mut parts = Vec::<Range<usize>>::new();
        let mut start = 0;
        for ((place, character), end) in text.char_indices().zip(ends) {
            let end_of_character = place + character.len_utf8();
            if is_hit[start..end].contains(&true) {
                match parts.last_mut() {
                    Some(last) if last.end == place => last.end = end_of_character,
                    _ => parts.push(place..end_of_character),
                }
            }
            start = end;
        }
        parts
    }

    fn texts() -> impl Strategy<Value = String> {
        "[aAbßẞİıiΣσς\"\\\\\n\u{1}🦀 ]{0,40}"
    }

    fn keywords() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[aAbßẞİıiΣσς\"\\\\\n🦀 ]{0,3}", 0..5)
    }

    /// The texts of the scalars of a document, in order; null has none.
    fn scalars(value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => out.push(text.clone()),
            serde_json::Value::Array(items) => items.iter().for_each(|item| scalars(item, out)),
            serde_json::Value::Object(members) => members.values().for_each(|value| scalars(value, out)),
            other => out.push(other.to_string()),
        }
    }

    proptest! {
        #[test]
        fn parts_of_text_equal_naive_search(keywords in keywords(), text in texts()) {
            prop_assert_eq!(Highlighter::new(&keywords).parts(&text, Syntax::Text), plainly(&keywords, &text));
        }

        #[test]
        fn parts_of_json_equal_parts_of_its_scalars(
            keywords in keywords(),
            texts in proptest::collection::vec((texts(), texts()), 0..4),
            number in any::<i16>(),
            pretty in any::<bool>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let members: serde_json::Map<String, serde_json::Value> = texts
                .iter()
                .map(|(key, text)| (key.clone(), serde_json::json!([text, {key: text}, null, true])))
                .collect();
            let document = serde_json::json!({"n": number, "of": members, "none": null});
            let json = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let json = json.expect("JSON");
            let marks = Highlighter::new(&keywords);
            let mut texts = Vec::new();
            scalars(&document, &mut texts);
            let expected: Vec<String> = texts
                .iter()
                .flat_map(|text| plainly(&keywords, text).into_iter().map(|part| text[part].to_owned()))
                .collect();
            let parts = marks.parts(&json, Syntax::Json);
            let found: Vec<String> = parts
                .iter()
                .map(|part| serde_json::from_str(&format!("\"{}\"", &json[part.clone()])).expect("a part of a string"))
                .collect();
            prop_assert_eq!(&found, &expected);
            // Truncated JSON has the same hits, except for an escape at its end.
            let cut = json.floor_char_boundary(cut.index(json.len()));
            for part in marks.parts(&json[..cut], Syntax::Json).iter().filter(|part| part.end + 6 <= cut) {
                prop_assert!(parts.iter().any(|whole| whole.start <= part.start && part.end <= whole.end), "{:?}", part);
            }
        }
    }
}

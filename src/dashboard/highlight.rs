//! Keyword highlighting. Matches are found as reads find them: in scalars, ignoring case, but not in keys
//! (docs/reference/filters.md, keywords). For example, the keyword `na` marks two ranges of `{"na":"BaNaNa"}`.

use std::ops::Range;

use memchr::memmem::{FindIter, Finder};
use strata_json::{fold_case, fold_case_into};

/// Limit of highlighted keywords, because each keyword costs one pass over a text.
const MAX_KEYWORDS: usize = 20;

const MAX_MATCH_RANGES: usize = 100_000;
const MAX_MATCH_RANGE_BYTES: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(super) struct KeywordHighlighter(Vec<Finder<'static>>);

/// How a text with highlighted keyword matches escapes characters.
#[derive(Clone, Copy, Debug)]
pub(super) enum EscapeSyntax {
    None,
    /// A JSON text, which can be truncated. A match within an escape such as `\u00e9` marks the whole escape.
    Json,
}

impl KeywordHighlighter {
    pub(super) fn new(keywords: &[String]) -> KeywordHighlighter {
        let mut folded: Vec<_> = keywords.iter().take(MAX_KEYWORDS).map(|word| fold_case(word)).collect();
        folded.sort_unstable();
        folded.dedup();
        let finders = folded.iter().filter(|word| !word.is_empty()).map(|word| Finder::new(word).into_owned());
        KeywordHighlighter(finders.collect())
    }

    pub(super) fn has_no_keywords(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges of keyword matches in a text, in order. Adjacent matches form one range, unless it exceeds
    /// [`MAX_MATCH_RANGE_BYTES`].
    pub(super) fn match_ranges(&self, text: &str, syntax: EscapeSyntax) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        match syntax {
            _ if self.has_no_keywords() => {}
            EscapeSyntax::None => self.find_in_text(text, 0, &mut ranges),
            EscapeSyntax::Json => self.find_in_json(text, &mut ranges),
        }
        ranges
    }

    fn find_in_text(&self, text: &str, start: usize, ranges: &mut Vec<Range<usize>>) {
        let mut folded = Vec::new();
        fold_case_into(text, &mut folded);
        let characters = text.char_indices();
        self.find_hits(&folded, characters.map(|(at, one)| (start + at..start + at + one.len_utf8(), one)), ranges);
    }

    fn find_in_json(&self, json: &str, ranges: &mut Vec<Range<usize>>) {
        // For each open container, the parser stores whether it is an object, and whether the next string is a key.
        let mut open = Vec::new();
        let mut key_next = false;
        let mut at = 0;
        while let Some(first) = json.as_bytes().get(at).filter(|_| ranges.len() < MAX_MATCH_RANGES) {
            let start = at;
            at += 1;
            match first {
                b'"' => {
                    let in_string = start + 1..find_string_end(json, start + 1);
                    at = (in_string.end + 1).min(json.len());
                    if !key_next {
                        self.find_in_string(json, in_string, ranges);
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
                        self.find_in_text(scalar, start, ranges);
                    }
                }
                _ => {}
            }
        }
    }

    /// Searches the keywords in a JSON string. The range `in_string` excludes the quotes.
    fn find_in_string(&self, json: &str, in_string: Range<usize>, ranges: &mut Vec<Range<usize>>) {
        let raw = &json[in_string.clone()];
        if !raw.contains('\\') {
            return self.find_in_text(raw, in_string.start, ranges);
        }
        let text: String = unescape_chars(json, in_string.clone()).map(|(_, character)| character).collect();
        let mut folded = Vec::new();
        fold_case_into(&text, &mut folded);
        self.find_hits(&folded, unescape_chars(json, in_string), ranges);
    }

    /// Appends the ranges of the characters that contain keyword matches. `folded` is `characters`, case-folded.
    fn find_hits(
        &self,
        folded: &[u8],
        characters: impl Iterator<Item = (Range<usize>, char)>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let mut hits = KeywordHits::new(&self.0, folded).peekable();
        // Case-folded offsets are mapped to source ranges. A partially matched character is marked as a whole.
        let mut end = 0;
        let mut until = 0;
        let mut folded_character = Vec::new();
        let mut last_end = None;
        for (range, character) in characters {
            let length = match character.is_ascii() {
                true => 1,
                false => {
                    folded_character.clear();
                    fold_case_into(character.encode_utf8(&mut [0; 4]), &mut folded_character);
                    folded_character.len()
                }
            };
            let start = end;
            end += length;
            while let Some(hit) = hits.next_if(|hit| hit.start < end) {
                until = until.max(hit.end);
            }
            if start >= until {
                if hits.peek().is_none() || ranges.len() >= MAX_MATCH_RANGES {
                    return;
                }
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last_end == Some(range.start) && last.len() < MAX_MATCH_RANGE_BYTES => {
                    last.end = range.end
                }
                _ => ranges.push(range.clone()),
            }
            last_end = Some(range.end);
        }
    }
}

struct KeywordHits<'f>(Vec<(FindIter<'f, 'f>, usize, Option<usize>)>);

impl<'f> KeywordHits<'f> {
    fn new(finders: &'f [Finder<'static>], folded: &'f [u8]) -> KeywordHits<'f> {
        let iterators = finders.iter().map(|finder| {
            let mut matches = finder.find_iter(folded);
            let first = matches.next();
            (matches, finder.needle().len(), first)
        });
        KeywordHits(iterators.filter(|(.., first)| first.is_some()).collect())
    }
}

impl Iterator for KeywordHits<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let (matches, length, first) = self.0.iter_mut().min_by_key(|(.., first)| first.unwrap_or(usize::MAX))?;
        let start = (*first)?;
        *first = matches.next();
        Some(start..start + *length)
    }
}

/// Returns the offset of the closing quote of the string that begins at `start`, or the end of a truncated text.
fn find_string_end(json: &str, start: usize) -> usize {
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

/// Returns the unescaped characters of a JSON string with their source ranges.
fn unescape_chars(json: &str, in_string: Range<usize>) -> impl Iterator<Item = (Range<usize>, char)> + Clone {
    let mut at = in_string.start;
    std::iter::from_fn(move || {
        let rest = json.get(at..in_string.end)?;
        let first = rest.chars().next()?;
        let (character, length) = match first {
            '\\' => parse_escape(rest),
            first => (first, first.len_utf8()),
        };
        let range = at..at + length;
        at = range.end;
        Some((range, character))
    })
}

fn parse_escape(text: &str) -> (char, usize) {
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
    fn match_ranges_are_limited() {
        let highlighter = KeywordHighlighter::new(&["a".to_owned(), "A".to_owned()]);
        assert_eq!(
            highlighter.match_ranges(&"a ".repeat(MAX_MATCH_RANGES + 1), EscapeSyntax::None).len(),
            MAX_MATCH_RANGES
        );
    }

    /// A naive algorithm for comparison: marks each character whose case-folded bytes intersect a match.
    fn naive_match_ranges(keywords: &[String], text: &str) -> Vec<Range<usize>> {
        let mut folded = Vec::new();
        let mut ends = Vec::new();
        for character in text.chars() {
            fold_case_into(&character.to_string(), &mut folded);
            ends.push(folded.len());
        }
        let mut is_hit = vec![false; folded.len()];
        for keyword in keywords {
            let keyword = fold_case(keyword);
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
        let mut ranges = Vec::<Range<usize>>::new();
        let mut start = 0;
        for ((start_of_character, character), end) in text.char_indices().zip(ends) {
            let end_of_character = start_of_character + character.len_utf8();
            if is_hit[start..end].contains(&true) {
                match ranges.last_mut() {
                    Some(last) if last.end == start_of_character => last.end = end_of_character,
                    _ => ranges.push(start_of_character..end_of_character),
                }
            }
            start = end;
        }
        ranges
    }

    fn texts() -> impl Strategy<Value = String> {
        "[aAbßẞİıiΣσς\"\\\\\n\u{1}🦀 ]{0,40}"
    }

    fn keywords() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[aAbßẞİıiΣσς\"\\\\\n🦀 ]{0,3}", 0..5)
    }

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
        fn text_ranges_equal_naive_ranges(keywords in keywords(), text in texts()) {
            prop_assert_eq!(KeywordHighlighter::new(&keywords).match_ranges(&text, EscapeSyntax::None), naive_match_ranges(&keywords, &text));
        }

        #[test]
        fn json_ranges_equal_scalar_ranges(
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
            let highlighter = KeywordHighlighter::new(&keywords);
            let mut texts = Vec::new();
            scalars(&document, &mut texts);
            let expected: Vec<String> = texts
                .iter()
                .flat_map(|text| naive_match_ranges(&keywords, text).into_iter().map(|part| text[part].to_owned()))
                .collect();
            let parts = highlighter.match_ranges(&json, EscapeSyntax::Json);
            let found: Vec<String> = parts
                .iter()
                .map(|part| serde_json::from_str(&format!("\"{}\"", &json[part.clone()])).expect("a part of a string"))
                .collect();
            prop_assert_eq!(&found, &expected);
            // Truncated JSON has the same matches as whole JSON, except for an escape at its end.
            let cut = json.floor_char_boundary(cut.index(json.len()));
            for part in highlighter.match_ranges(&json[..cut], EscapeSyntax::Json).iter().filter(|part| part.end + 6 <= cut) {
                prop_assert!(parts.iter().any(|whole| whole.start <= part.start && part.end <= whole.end), "{:?}", part);
            }
        }
    }
}

//! Where the keywords of a read stand in what is shown, found as the read finds them: in the texts of scalars,
//! regardless of case (docs/reference/filters.md, keywords). Keys are not searched.

use std::ops::{ControlFlow, Range};

use memchr::memmem::{FindIter, Finder};
use strata_json::{fold, fold_into};

/// Keywords that are looked for. Texts are searched once for each.
const KEYWORDS: usize = 20;

/// Bytes behind the beginning of the first hit of a text up to which others are told.
const NEAR_BYTES: usize = 1 << 10;

/// Bytes after which a part that goes on is told: nobody waits for its end.
const PART_BYTES: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Vec<Finder<'static>>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Syntax {
    Text,
    /// JSON that may end early. A part of a string with escapes begins and ends next to them.
    Json,
}

/// Is called with each part that is found, until it breaks.
type EachPart<'v> = &'v mut dyn FnMut(Range<usize>) -> ControlFlow<()>;

/// What is found in a whole text, of which a part is shown.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The first hit, and those near it.
    pub(super) near: Vec<Range<usize>>,
    /// Whether more bytes of it are hits than were said to be shown.
    pub(super) is_more: bool,
}

impl Marks {
    pub(super) fn of(keywords: &[String]) -> Marks {
        let mut folded: Vec<_> = keywords.iter().take(KEYWORDS).map(|word| fold(word)).collect();
        folded.sort_unstable();
        folded.dedup();
        Marks(folded.iter().filter(|word| !word.is_empty()).map(|word| Finder::new(word).into_owned()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of a text that are to be marked: in order, none touching another.
    pub(super) fn parts(&self, text: &str, syntax: Syntax) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let _ = self.visit_as(syntax, text, &mut |part| {
            parts.push(part);
            ControlFlow::Continue(())
        });
        parts
    }

    /// What is found in a text of which so many bytes of hits are shown. Costs the text up to where that is known.
    pub(super) fn find(&self, text: &str, syntax: Syntax, shown_bytes: usize) -> Found {
        let mut found = Found::default();
        let mut bytes = 0;
        let _ = self.visit_as(syntax, text, &mut |part| {
            bytes += part.len();
            found.is_more = bytes > shown_bytes;
            let is_near = found.near.first().is_none_or(|first| part.start < first.start + NEAR_BYTES);
            if is_near {
                found.near.push(part);
            }
            if found.is_more && !is_near { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    fn visit_as(&self, syntax: Syntax, text: &str, each: EachPart<'_>) -> ControlFlow<()> {
        match syntax {
            Syntax::Text => self.visit_text(text, 0, each),
            Syntax::Json => self.visit_json(text, each),
        }
    }

    fn visit_text(&self, text: &str, start: usize, each: EachPart<'_>) -> ControlFlow<()> {
        if self.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut folded = Vec::new();
        fold_into(text, &mut folded);
        let characters = text.char_indices();
        let places = characters.map(|(at, one)| (start + at..start + at + one.len_utf8(), one));
        self.visit(&folded, places, each)
    }

    fn visit_json(&self, json: &str, each: EachPart<'_>) -> ControlFlow<()> {
        // Whether each container that is open is an object, and whether a string that comes next is a key.
        let mut open = Vec::new();
        let mut key_next = false;
        let mut at = 0;
        while let Some(first) = json.as_bytes().get(at).filter(|_| !self.is_empty()) {
            let start = at;
            at += 1;
            match first {
                b'"' => {
                    let inside = start + 1..end_of_string(json, start + 1);
                    at = (inside.end + 1).min(json.len());
                    if !key_next {
                        self.visit_string(json, inside, each)?;
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
                    let length = json[start..].find([',', ']', '}', '\n', ' ']).unwrap_or(json.len() - start);
                    at = start + length;
                    let scalar = &json[start..at];
                    if scalar != "null" {
                        self.visit_text(scalar, start, each)?;
                    }
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// The inside of a string of a JSON text.
    fn visit_string(&self, json: &str, inside: Range<usize>, each: EachPart<'_>) -> ControlFlow<()> {
        let raw = &json[inside.clone()];
        if !raw.contains('\\') {
            return self.visit_text(raw, inside.start, each);
        }
        let text: String = characters(json, inside.clone()).map(|(_, one)| one).collect();
        let mut folded = Vec::new();
        fold_into(&text, &mut folded);
        self.visit(&folded, characters(json, inside), each)
    }

    /// The places of keywords in characters, each of which has a place of its own, in order. `folded` is their text.
    fn visit(
        &self,
        folded: &[u8],
        characters: impl Iterator<Item = (Range<usize>, char)>,
        each: EachPart<'_>,
    ) -> ControlFlow<()> {
        let mut hits = Hits::new(&self.0, folded).peekable();
        // From places in the folded text to places in the text: a character is marked when a part of it is.
        let mut end = 0;
        let mut until = 0;
        let mut one = Vec::new();
        let mut part: Option<Range<usize>> = None;
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
                if let Some(done) = part.take() {
                    each(done)?;
                }
                if hits.peek().is_none() {
                    return ControlFlow::Continue(());
                }
                continue;
            }
            match &mut part {
                Some(last) if last.end == place.start && last.len() < PART_BYTES => last.end = place.end,
                _ => {
                    if let Some(done) = part.replace(place) {
                        each(done)?;
                    }
                }
            }
        }
        part.map_or(ControlFlow::Continue(()), each)
    }
}

/// The places of all keywords in a folded text, by their beginnings.
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
            assert_eq!(marked(text, &marks(keywords).parts(text, Syntax::Text)), expected, "{keywords:?}");
        }
    }

    #[test]
    fn a_whole_text_is_searched_as_far_as_it_must_be() {
        let found = |words: &[&str], text: &str, shown| {
            let Found { near, is_more } = marks(words).find(text, Syntax::Text, shown);
            (near.first().cloned(), near.len(), is_more)
        };
        let far = format!("{}ab", "x".repeat(1 << 20));
        assert_eq!(found(&["AB"], &far, 0), (Some((1 << 20)..(1 << 20) + 2), 1, true));
        assert_eq!(found(&["ab"], &far, 2), (Some((1 << 20)..(1 << 20) + 2), 1, false));
        assert_eq!(found(&["no"], &far, 0), (None, 0, false));
        // Hits everywhere, of keywords that are the same but for their case.
        let many = "a".repeat(1 << 20);
        assert_eq!(found(&["a", "A", "a"], &many, 0), (Some(0..PART_BYTES), 1, true));
        let spaced = "a ".repeat(1 << 20);
        assert_eq!(found(&["a", "A"], &spaced, 9), (Some(0..1), NEAR_BYTES / 2, true));
        let json = format!(r#"{{"a":"{}","b":["ab"]}}"#, "x\\n".repeat(1 << 10));
        let Found { near, is_more } = marks(&["ab"]).find(&json, Syntax::Json, 0);
        assert_eq!((&json[near[0].clone()], near.len(), is_more), ("ab", 1, true));
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
            // What ends behind a key, or within one.
            ("key", r#"{"a":["key",{"key":1}],"key""#, r#"{"a":["[key]",{"key":1}],"key""#),
            ("key", r#"{"a":"key","a key"#, r#"{"a":"[key]","a key"#),
        ] {
            assert_eq!(marked(json, &marks(&[keyword]).parts(json, Syntax::Json)), expected, "{keyword}");
        }
        for cut in ["\"a\\", "\"\\u00", "\"", "tru", "-"] {
            marks(&["a", "0"]).parts(cut, Syntax::Json);
        }
    }

    /// As [`Marks::parts`], obviously: each character that has a part in a hit is marked.
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
        fn hits_are_those_that_are_obvious(keywords in keywords(), text in texts(), shown in 0_usize..20) {
            let marks = Marks::of(&keywords);
            let expected = plainly(&keywords, &text);
            prop_assert_eq!(marks.parts(&text, Syntax::Text), expected.clone());
            let Found { near, is_more } = marks.find(&text, Syntax::Text, shown);
            prop_assert_eq!(near, expected.clone());
            prop_assert_eq!(is_more, expected.iter().map(Range::len).sum::<usize>() > shown);
        }

        #[test]
        fn those_of_json_are_those_of_its_scalars(
            keywords in keywords(),
            texts in proptest::collection::vec((texts(), texts()), 0..4),
            number in any::<i16>(),
            pretty in any::<bool>(),
        ) {
            let members: serde_json::Map<String, serde_json::Value> = texts
                .iter()
                .map(|(key, text)| (key.clone(), serde_json::json!([text, {key: text}, null, true])))
                .collect();
            let document = serde_json::json!({"n": number, "of": members, "none": null});
            let json = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let json = json.expect("JSON");
            let marks = Marks::of(&keywords);
            let mut texts = Vec::new();
            scalars(&document, &mut texts);
            let expected: Vec<String> = texts
                .iter()
                .flat_map(|text| plainly(&keywords, text).into_iter().map(|part| text[part].to_owned()))
                .collect();
            let found: Vec<String> = marks
                .parts(&json, Syntax::Json)
                .into_iter()
                .map(|part| serde_json::from_str(&format!("\"{}\"", &json[part])).expect("a part of a string"))
                .collect();
            prop_assert_eq!(&found, &expected);
            let Found { near, .. } = marks.find(&json, Syntax::Json, 0);
            prop_assert_eq!(near.first().cloned(), marks.parts(&json, Syntax::Json).first().cloned());
        }
    }
}

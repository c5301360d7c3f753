//! A value as a cell of a table: all of it where it is short; otherwise its beginning, which unfolds.

use std::ops::Range;

use strata_json::{Cursor, JsonType, Scalar, members, pretty_within};

use crate::figures;
use crate::marks::{Marks, Syntax};
use crate::shown::Shown;

/// Characters of a value in a table. A longer text unfolds.
pub(super) const CELL_CHARACTERS: usize = 120;

/// Characters of a text that are shown before it unfolds.
const BEGINNING_CHARACTERS: usize = 90;

const LONG_CHARACTERS: usize = 2_000;

const NESTED_CHARACTERS: usize = 4_000;

/// Characters of what is shown of a nested value before it unfolds.
const PREVIEW_CHARACTERS: usize = 60;

/// Characters of what is shown around the first hit of a keyword, where that is not in the beginning.
const HIT_CHARACTERS: usize = 90;

pub(super) enum Cell {
    Missing,
    Null,
    Boolean(Shown),
    Number(Shown),
    Text(Shown),
    Nested(Shown),
    /// A long text, an object or an array, which unfolds.
    Folded(Box<Folded>),
}

pub(super) struct Folded {
    pub(super) beginning: Shown,
    /// The first hit of a keyword and what stands around it, where the beginning has none.
    pub(super) hit: Option<Shown>,
    pub(super) whole: Shown,
}

impl Cell {
    pub(super) fn is_marked(&self) -> bool {
        match self {
            Cell::Missing | Cell::Null => false,
            Cell::Boolean(shown) | Cell::Number(shown) | Cell::Text(shown) | Cell::Nested(shown) => shown.is_marked(),
            Cell::Folded(folded) => folded.beginning.is_marked() || folded.hit.is_some(),
        }
    }
}

/// A value as a cell, and the bytes that it takes.
pub(super) fn cell(value: &[u8], marks: &Marks) -> (Cell, usize) {
    let cell = match Scalar::read(value) {
        Some(Scalar::Null) => Cell::Null,
        Some(Scalar::Bool(value)) => {
            Cell::Boolean(Shown::whole(if value { "true" } else { "false" }).marking(marks, Syntax::Text).alone())
        }
        Some(Scalar::Number(text)) => Cell::Number(marked(Shown::new(text, CELL_CHARACTERS), text, marks)),
        Some(Scalar::String(text)) => text_cell(&text.unescape(), marks),
        None => nested_cell(value, marks),
    };
    let weight = match &cell {
        Cell::Number(shown) | Cell::Text(shown) | Cell::Nested(shown) => shown.weight(),
        Cell::Folded(folded) => {
            let Folded { beginning, hit, whole } = &**folded;
            beginning.weight() + hit.as_ref().map_or(0, Shown::weight) + whole.weight()
        }
        Cell::Missing | Cell::Null | Cell::Boolean(_) => 8,
    };
    (cell, weight)
}

fn text_cell(text: &str, marks: &Marks) -> Cell {
    let shown = Shown::linked(text, CELL_CHARACTERS);
    if !shown.is_cut() || shown.link.is_some() {
        return Cell::Text(marked(shown, text, marks));
    }
    let beginning = Shown::short(text, BEGINNING_CHARACTERS).marking(marks, Syntax::Text);
    folded(beginning, Shown::new(text, LONG_CHARACTERS), text, marks, Syntax::Text)
}

/// A text that does not unfold, of which this is shown.
fn marked(shown: Shown, text: &str, marks: &Marks) -> Shown {
    match shown.is_cut() && !marks.is_empty() {
        true => shown.searched(text, marks, Syntax::Text).0.alone(),
        false => shown.marking(marks, Syntax::Text).alone(),
    }
}

fn nested_cell(value: &[u8], marks: &Marks) -> Cell {
    let (beginning, is_whole) = preview(value, marks);
    // What unfolds needs several elements in each cell. Where nothing more would be seen, it is left out.
    if is_whole {
        return Cell::Nested(beginning.alone());
    }
    folded(beginning, pretty(value, NESTED_CHARACTERS), &String::from_utf8_lossy(value), marks, Syntax::Json)
}

/// A value that unfolds. The text around its first hit is shown unless the beginning has one.
fn folded(beginning: Shown, whole: Shown, text: &str, marks: &Marks, syntax: Syntax) -> Cell {
    let (whole, found) = whole.searched(text, marks, syntax);
    let is_told = beginning.is_marked() || found.near.is_empty();
    let hit = (!is_told).then(|| Shown::around(text, &found.near, HIT_CHARACTERS).alone());
    Cell::Folded(Box::new(Folded { beginning: beginning.alone(), hit, whole: whole.alone() }))
}

/// The beginning of an object or an array, `{common: "Aruba", … of 3 fields}`, and whether it is all of it.
fn preview(value: &[u8], marks: &Marks) -> (Shown, bool) {
    let mut cursor = Cursor::new(value);
    let is_object = cursor.peek() == Some(JsonType::Object);
    cursor.enter();
    let mut text = String::from(if is_object { "{" } else { "[" });
    let mut room = PREVIEW_CHARACTERS;
    let mut is_whole = true;
    let mut separator = "";
    let mut marked = Vec::new();
    loop {
        let key = if is_object { cursor.next_key() } else { None };
        if key.is_none() && (is_object || !cursor.next_element()) {
            break;
        }
        let mut part = key.map(|key| format!("{}: ", key.unescape())).unwrap_or_default();
        let value_here = cursor.skip_value();
        is_whole &= !matches!(value_here, [b'{' | b'[', _, _, ..]);
        match value_here {
            [b'{', _, _, ..] => part.push_str("{…}"),
            [b'[', _, _, ..] => part.push_str("[…]"),
            // No more of a long text than may be shown.
            value => {
                let scalar = String::from_utf8_lossy(&value[..value.len().min(4 * PREVIEW_CHARACTERS)]);
                let start = text.len() + separator.len() + part.len();
                let hits = marks.parts(&scalar, Syntax::Json).into_iter();
                marked.extend(hits.map(|hit| start + hit.start..start + hit.end));
                part.push_str(&scalar);
            }
        }
        let characters = part.chars().count() + separator.len();
        text.push_str(separator);
        if characters > room {
            // A first part is shown as far as it goes.
            if separator.is_empty() {
                text.extend(part.chars().take(room));
            }
            marked.retain(|hit: &Range<usize>| hit.end <= text.len());
            let all = summary(value);
            text.push_str(&format!("… of {}", all.trim_matches(['{', '}', '[', ']'])));
            is_whole = false;
            break;
        }
        text.push_str(&part);
        room -= characters;
        separator = ", ";
    }
    text.push(if is_object { '}' } else { ']' });
    (Shown::whole(&text).marked_at(marked), is_whole)
}

/// What an object or an array holds, in a few words.
pub(crate) fn summary(value: &[u8]) -> String {
    let mut cursor = Cursor::new(value);
    if cursor.peek() == Some(JsonType::Object) {
        return format!("{{{}}}", figures::counted(members(value).count() as u64, "field", "fields"));
    }
    cursor.enter();
    let items = std::iter::from_fn(|| cursor.next_element().then(|| cursor.skip_value()));
    format!("[{}]", figures::counted(items.count() as u64, "item", "items"))
}

/// A value as indented JSON, or its beginning.
pub(super) fn pretty(value: &[u8], characters: usize) -> Shown {
    let mut text = Vec::new();
    // What is cut anyway need not be laid out.
    let is_small = value.len() <= characters && pretty_within(value, 0, 8 * characters, &mut text);
    let text = if is_small { &text[..] } else { value };
    Shown::new(&String::from_utf8_lossy(text), characters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_value_is_seen_before_it_unfolds() {
        let many = format!("[{}1]", "1,".repeat(99));
        let cut = format!("{{a: \"{}… of 2 fields}}", "x".repeat(56));
        let long = format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(100));
        for (value, shown, is_all) in [
            (
                r#"{"common":"Aruba","n":1.50,"in":{"x":1},"of":[],"none":null}"#,
                r#"{common: "Aruba", n: 1.50, in: {…}, of: [], none: null}"#,
                false,
            ),
            ("[1,[2],{\"a\":1}]", "[1, […], {…}]", false),
            ("[1,[],{}]", "[1, [], {}]", true),
            ("[]", "[]", true),
            (r#"{"a":"<b>\u202e"}"#, r#"{a: "<b>\u202e"}"#, true),
            (many.as_str(), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … of 100 items]", false),
            (long.as_str(), cut.as_str(), false),
        ] {
            let (found, is_whole) = preview(value.as_bytes(), &Marks::default());
            assert_eq!((found.to_string(), is_whole), (Shown::whole(shown).to_string(), is_all));
        }
    }

    #[test]
    fn what_is_short_does_not_unfold() {
        let marks = |words: &[&str]| Marks::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let long = format!("\"{}\"", "y".repeat(CELL_CHARACTERS + 1));
        // What is looked for is behind all that unfolds.
        let ending = format!("\"{}z\"", "y".repeat(LONG_CHARACTERS));
        let cut = format!("{{\"a\":\"{}z\"}}", "y".repeat(NESTED_CHARACTERS));
        let folded_ys = format!("folded {}…", "y".repeat(BEGINNING_CHARACTERS));
        let ys = "y".repeat(30);
        let many_ys = format!("{}… of 1 field}}", "y".repeat(56));
        for (value, keywords, expected) in [
            ("\"x\"", &[][..], "text x"),
            ("[\"x\",1]", &[], "nested [&quot;x&quot;, 1]"),
            ("[\"x\",1]", &["X"], "nested [&quot;<mark>x</mark>&quot;, 1]"),
            ("{\"a\":{}}", &["a"], "nested {a: {}}"),
            ("{\"a\":\"a\"}", &["a"], "nested {a: &quot;<mark>a</mark>&quot;}"),
            ("[[1]]", &["2"], "folded [[…]]"),
            ("[[1],2,[2]]", &["2"], "folded [[…], <mark>2</mark>, […]]"),
            ("true", &["RU"], "boolean t<mark>ru</mark>e"),
            ("[[1],[12]]", &["2"], "folded [[…], […]], hit [[1],[1<mark>2</mark>]]"),
            (&long, &[], &folded_ys),
            (&long, &["z"], &folded_ys),
            (&ending, &["Z"], &format!("{folded_ys}, hit …{ys}<mark>z</mark>")),
            (&cut, &["z"], &format!("folded {{a: &quot;{many_ys}, hit …{ys}<mark>z</mark>&quot;}}")),
        ] {
            let told = match cell(value.as_bytes(), &marks(keywords)).0 {
                Cell::Text(shown) => format!("text {shown}"),
                Cell::Boolean(shown) => format!("boolean {shown}"),
                Cell::Nested(shown) => format!("nested {shown}"),
                Cell::Folded(folded) => {
                    let hit = folded.hit.as_ref().map(|hit| format!(", hit {hit}"));
                    format!("folded {}{}", folded.beginning, hit.unwrap_or_default())
                }
                _ => "another".to_owned(),
            };
            assert_eq!(told, expected, "{value} {keywords:?}");
        }
    }
}

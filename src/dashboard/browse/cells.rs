//! A value as a cell of a table: all of it if it is short; otherwise its beginning, which unfolds.

use std::ops::Range;

use strata_json::{Cursor, JsonType, Scalar, members, pretty_within};

use crate::format;
use crate::highlight::{Highlighter, Syntax};
use crate::safe_text::SafeText;

/// Characters of a value in a table. A longer text unfolds.
pub(super) const CELL_CHARACTERS: usize = 120;

/// Characters of the beginning of a text.
const BEGINNING_CHARACTERS: usize = 90;

const LONG_CHARACTERS: usize = 2_000;

const NESTED_CHARACTERS: usize = 4_000;

/// Characters of the beginning of a nested value.
const PREVIEW_CHARACTERS: usize = 60;

/// Characters around the first hit of a keyword.
const HIT_CHARACTERS: usize = 90;

pub(super) enum Cell {
    Missing,
    Null,
    Boolean(SafeText),
    Number(SafeText),
    Text(SafeText),
    Nested(SafeText),
    /// A long text, an object or an array, which unfolds.
    Folded(Box<Folded>),
}

pub(super) struct Folded {
    pub(super) beginning: SafeText,
    /// The first hit of a keyword and the text around it, if the beginning has none.
    pub(super) hit: Option<SafeText>,
    pub(super) whole: SafeText,
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

/// A value as a cell, and roughly the bytes of its HTML.
pub(super) fn cell(value: &[u8], marks: &Highlighter) -> (Cell, usize) {
    let cell = match Scalar::read(value) {
        Some(Scalar::Null) => Cell::Null,
        Some(Scalar::Bool(value)) => {
            Cell::Boolean(SafeText::whole(if value { "true" } else { "false" }).marking(marks, Syntax::Text).alone())
        }
        Some(Scalar::Number(text)) => Cell::Number(marked(SafeText::new(text, CELL_CHARACTERS), text, marks)),
        Some(Scalar::String(text)) => text_cell(&text.unescape(), marks),
        None => nested_cell(value, marks),
    };
    let weight = match &cell {
        Cell::Number(shown) | Cell::Text(shown) | Cell::Nested(shown) => shown.weight(),
        Cell::Folded(folded) => {
            let Folded { beginning, hit, whole } = &**folded;
            beginning.weight() + hit.as_ref().map_or(0, SafeText::weight) + whole.weight()
        }
        Cell::Missing | Cell::Null | Cell::Boolean(_) => 8,
    };
    (cell, weight)
}

fn text_cell(text: &str, marks: &Highlighter) -> Cell {
    let shown = SafeText::linked(text, CELL_CHARACTERS);
    if !shown.is_cut() || shown.link.is_some() {
        return Cell::Text(marked(shown, text, marks));
    }
    let beginning = SafeText::short(text, BEGINNING_CHARACTERS).marking(marks, Syntax::Text);
    folded(beginning, SafeText::new(text, LONG_CHARACTERS), text, marks, Syntax::Text)
}

/// A text that does not unfold.
fn marked(shown: SafeText, text: &str, marks: &Highlighter) -> SafeText {
    match shown.is_cut() && !marks.is_empty() {
        true => shown.searched(text, marks, Syntax::Text).0.alone(),
        false => shown.marking(marks, Syntax::Text).alone(),
    }
}

fn nested_cell(value: &[u8], marks: &Highlighter) -> Cell {
    let (beginning, is_whole) = preview(value, marks);
    if is_whole {
        return Cell::Nested(beginning.alone());
    }
    folded(beginning, pretty(value, NESTED_CHARACTERS), &String::from_utf8_lossy(value), marks, Syntax::Json)
}

fn folded(beginning: SafeText, whole: SafeText, text: &str, marks: &Highlighter, syntax: Syntax) -> Cell {
    let (whole, hits) = whole.searched(text, marks, syntax);
    let is_hit = !beginning.is_marked() && !hits.is_empty();
    let hit = is_hit.then(|| SafeText::around(text, &hits, HIT_CHARACTERS).alone());
    Cell::Folded(Box::new(Folded { beginning: beginning.alone(), hit, whole: whole.alone() }))
}

/// The beginning of an object or an array, such as `{common: "Aruba", … of 3 fields}`, and whether it is complete.
fn preview(value: &[u8], marks: &Highlighter) -> (SafeText, bool) {
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
    (SafeText::whole(&text).marked_at(marked), is_whole)
}

/// The number of fields or items of a value.
pub(crate) fn summary(value: &[u8]) -> String {
    let mut cursor = Cursor::new(value);
    if cursor.peek() == Some(JsonType::Object) {
        return format!("{{{}}}", format::counted(members(value).count() as u64, "field", "fields"));
    }
    cursor.enter();
    let items = std::iter::from_fn(|| cursor.next_element().then(|| cursor.skip_value()));
    format!("[{}]", format::counted(items.count() as u64, "item", "items"))
}

/// A value as indented JSON, or its beginning.
pub(super) fn pretty(value: &[u8], characters: usize) -> SafeText {
    let mut text = Vec::new();
    let is_small = value.len() <= characters && pretty_within(value, 0, 8 * characters, &mut text);
    let text = if is_small { &text[..] } else { value };
    SafeText::new(&String::from_utf8_lossy(text), characters)
}

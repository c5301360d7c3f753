//! A JSON value as a table cell. Short values are shown as a whole; longer ones as a preview that unfolds.

use std::ops::Range;

use strata_json::{JsonCursor, JsonScalar, JsonType, members, try_write_indented};

use crate::format;
use crate::highlight::{EscapeSyntax, KeywordHighlighter};
use crate::safe_text::SafeText;

pub(super) const MAX_CELL_CHARACTERS: usize = 120;
const MAX_TEXT_PREVIEW_CHARACTERS: usize = 90;
const MAX_UNFOLDED_TEXT_CHARACTERS: usize = 2_000;
const MAX_UNFOLDED_JSON_CHARACTERS: usize = 4_000;
const MAX_NESTED_PREVIEW_CHARACTERS: usize = 60;
const MAX_MATCH_EXCERPT_CHARACTERS: usize = 90;

pub(super) enum TableCell {
    Missing,
    Null,
    Boolean(SafeText),
    Number(SafeText),
    Text(SafeText),
    Nested(SafeText),
    Folded(Box<FoldedValue>),
}

pub(super) struct FoldedValue {
    pub(super) preview: SafeText,
    pub(super) match_excerpt: Option<SafeText>,
    pub(super) full_text: SafeText,
}

impl TableCell {
    pub(super) fn has_keyword_match(&self) -> bool {
        match self {
            TableCell::Missing | TableCell::Null => false,
            TableCell::Boolean(shown)
            | TableCell::Number(shown)
            | TableCell::Text(shown)
            | TableCell::Nested(shown) => shown.has_keyword_match(),
            TableCell::Folded(folded) => folded.preview.has_keyword_match() || folded.match_excerpt.is_some(),
        }
    }
}

pub(super) fn build_cell_and_html_bytes(value: &[u8], highlighter: &KeywordHighlighter) -> (TableCell, usize) {
    let cell = match JsonScalar::parse(value) {
        Some(JsonScalar::Null) => TableCell::Null,
        Some(JsonScalar::Bool(value)) => {
            let shown = SafeText::from_text(if value { "true" } else { "false" });
            TableCell::Boolean(shown.with_highlights(highlighter, EscapeSyntax::None).without_bdi())
        }
        Some(JsonScalar::Number(text)) => {
            TableCell::Number(highlight_unfolded_text(SafeText::new(text, MAX_CELL_CHARACTERS), text, highlighter))
        }
        Some(JsonScalar::String(text)) => build_text_cell(&text.unescape(), highlighter),
        None => build_nested_cell(value, highlighter),
    };
    let html_bytes = match &cell {
        TableCell::Number(shown) | TableCell::Text(shown) | TableCell::Nested(shown) => shown.estimated_html_bytes(),
        TableCell::Folded(folded) => {
            let FoldedValue { preview, match_excerpt, full_text } = &**folded;
            preview.estimated_html_bytes()
                + match_excerpt.as_ref().map_or(0, SafeText::estimated_html_bytes)
                + full_text.estimated_html_bytes()
        }
        TableCell::Missing | TableCell::Null | TableCell::Boolean(_) => 8,
    };
    (cell, html_bytes)
}

fn build_text_cell(text: &str, highlighter: &KeywordHighlighter) -> TableCell {
    let shown = SafeText::with_auto_link(text, MAX_CELL_CHARACTERS);
    if !shown.is_truncated() || shown.link.is_some() {
        return TableCell::Text(highlight_unfolded_text(shown, text, highlighter));
    }
    let preview =
        SafeText::with_ellipsis(text, MAX_TEXT_PREVIEW_CHARACTERS).with_highlights(highlighter, EscapeSyntax::None);
    build_folded_cell(preview, SafeText::new(text, MAX_UNFOLDED_TEXT_CHARACTERS), text, highlighter, EscapeSyntax::None)
}

fn highlight_unfolded_text(shown: SafeText, text: &str, highlighter: &KeywordHighlighter) -> SafeText {
    match shown.is_truncated() && !highlighter.has_no_keywords() {
        true => shown.with_matches_in(text, highlighter, EscapeSyntax::None).0.without_bdi(),
        false => shown.with_highlights(highlighter, EscapeSyntax::None).without_bdi(),
    }
}

fn build_nested_cell(value: &[u8], highlighter: &KeywordHighlighter) -> TableCell {
    let NestedPreview { text: preview, is_complete } = preview_nested(value, highlighter);
    if is_complete {
        return TableCell::Nested(preview.without_bdi());
    }
    let full_text = pretty_json(value, MAX_UNFOLDED_JSON_CHARACTERS);
    build_folded_cell(preview, full_text, &String::from_utf8_lossy(value), highlighter, EscapeSyntax::Json)
}

fn build_folded_cell(
    preview: SafeText,
    full_text: SafeText,
    text: &str,
    highlighter: &KeywordHighlighter,
    syntax: EscapeSyntax,
) -> TableCell {
    let (full_text, matches) = full_text.with_matches_in(text, highlighter, syntax);
    let has_excerpt = !preview.has_keyword_match() && !matches.is_empty();
    let match_excerpt =
        has_excerpt.then(|| SafeText::from_match_excerpt(text, &matches, MAX_MATCH_EXCERPT_CHARACTERS).without_bdi());
    let [preview, full_text] = [preview, full_text].map(SafeText::without_bdi);
    TableCell::Folded(Box::new(FoldedValue { preview, match_excerpt, full_text }))
}

struct NestedPreview {
    text: SafeText,
    is_complete: bool,
}

/// Returns a preview of an object or array, such as `{common: "Aruba", … of 3 fields}`.
fn preview_nested(value: &[u8], highlighter: &KeywordHighlighter) -> NestedPreview {
    let mut cursor = JsonCursor::new(value);
    let is_object = cursor.peek_type() == Some(JsonType::Object);
    cursor.enter();
    let mut text = String::from(if is_object { "{" } else { "[" });
    let mut characters_left = MAX_NESTED_PREVIEW_CHARACTERS;
    let mut is_complete = true;
    let mut separator = "";
    let mut marked_ranges = Vec::new();
    loop {
        let key = if is_object { cursor.next_key() } else { None };
        if key.is_none() && (is_object || !cursor.next_element()) {
            break;
        }
        let mut part = key.map(|key| format!("{}: ", key.unescape())).unwrap_or_default();
        let value_here = cursor.skip_value();
        is_complete &= !matches!(value_here, [b'{' | b'[', _, _, ..]);
        match value_here {
            [b'{', _, _, ..] => part.push_str("{…}"),
            [b'[', _, _, ..] => part.push_str("[…]"),
            value => {
                let scalar = String::from_utf8_lossy(&value[..value.len().min(4 * MAX_NESTED_PREVIEW_CHARACTERS)]);
                let start = text.len() + separator.len() + part.len();
                let matches = highlighter.match_ranges(&scalar, EscapeSyntax::Json).into_iter();
                marked_ranges.extend(matches.map(|found| start + found.start..start + found.end));
                part.push_str(&scalar);
            }
        }
        let characters = part.chars().count() + separator.len();
        text.push_str(separator);
        if characters > characters_left {
            if separator.is_empty() {
                text.extend(part.chars().take(characters_left));
            }
            marked_ranges.retain(|range: &Range<usize>| range.end <= text.len());
            let all = summarize_container(value);
            text.push_str(&format!("… of {}", all.trim_matches(['{', '}', '[', ']'])));
            is_complete = false;
            break;
        }
        text.push_str(&part);
        characters_left -= characters;
        separator = ", ";
    }
    text.push(if is_object { '}' } else { ']' });
    NestedPreview { text: SafeText::from_text(&text).with_marked_ranges(marked_ranges), is_complete }
}

/// Formats the number of members of an object or array: `{3 fields}` or `[1 item]`.
pub(crate) fn summarize_container(value: &[u8]) -> String {
    let mut cursor = JsonCursor::new(value);
    if cursor.peek_type() == Some(JsonType::Object) {
        return format!("{{{}}}", format::pluralize(members(value).count() as u64, "field", "fields"));
    }
    cursor.enter();
    let items = std::iter::from_fn(|| cursor.next_element().then(|| cursor.skip_value()));
    format!("[{}]", format::pluralize(items.count() as u64, "item", "items"))
}

/// Formats a value as indented JSON if that is short enough; otherwise as truncated compact JSON.
pub(super) fn pretty_json(value: &[u8], characters: usize) -> SafeText {
    let mut text = Vec::new();
    let is_small = value.len() <= characters && try_write_indented(value, 0, 8 * characters, &mut text);
    let text = if is_small { &text[..] } else { value };
    SafeText::new(&String::from_utf8_lossy(text), characters)
}

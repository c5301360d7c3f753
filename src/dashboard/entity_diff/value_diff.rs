//! Two values as HTML with the differences marked. For long strings, only the differing part is shown, with
//! [`CONTEXT_CHARACTERS`] on both sides.

use std::fmt::Write;

use strata_json::JsonScalar;

use crate::format;
use crate::safe_text::EscapedHtml;

const MAX_VALUE_CHARACTERS: usize = 1_000;
const CONTEXT_CHARACTERS: usize = 60;
const OLD_TAG: Option<&str> = Some("del");
const NEW_TAG: Option<&str> = Some("ins");

pub(super) fn difference_html(old: Option<&[u8]>, new: Option<&[u8]>) -> (Option<String>, Option<String>) {
    if let (Some(one), Some(other)) = (old, new)
        && let (Some(JsonScalar::String(one)), Some(JsonScalar::String(other))) =
            (JsonScalar::parse(one), JsonScalar::parse(other))
    {
        let [one, other] = [one, other].map(|text| text.unescape());
        let (prefix, suffix) = common_affix_bytes(&one, &other);
        return (
            Some(string_difference_html(&one, prefix, suffix, OLD_TAG)),
            Some(string_difference_html(&other, prefix, suffix, NEW_TAG)),
        );
    }
    (old.map(|value| value_html(value, OLD_TAG)), new.map(|value| value_html(value, NEW_TAG)))
}

/// Returns the lengths of the common prefix and suffix of two strings in bytes. Prefix and suffix do not overlap.
fn common_affix_bytes(old: &str, new: &str) -> (usize, usize) {
    let same = |(old, new): &(char, char)| old == new;
    let prefix = old.chars().zip(new.chars()).take_while(same).map(|(character, _)| character.len_utf8()).sum();
    let suffix = old[prefix..].chars().rev().zip(new[prefix..].chars().rev()).take_while(same);
    (prefix, suffix.map(|(character, _)| character.len_utf8()).sum())
}

fn empty_string_html(mark: Option<&str>) -> String {
    let mut html = "<span class=\"string\">".to_owned();
    push_truncated_text(&mut html, "\"\"", mark);
    html.push_str("</span>");
    html
}

/// Marks the middle of a string, without the first `prefix` and last `suffix` bytes, which the other string shares.
fn string_difference_html(text: &str, prefix: usize, suffix: usize, mark: Option<&str>) -> String {
    if text.is_empty() {
        return empty_string_html(mark);
    }
    let (start, rest) = text.split_at(prefix);
    let (changed, end) = rest.split_at(rest.len() - suffix);
    let from = start.char_indices().rev().nth(CONTEXT_CHARACTERS - 1).map_or(0, |(at, _)| at);
    let to = end.char_indices().nth(CONTEXT_CHARACTERS).map_or(end.len(), |(at, _)| at);
    let mut html = "<span class=\"string\">\"<bdi>".to_owned();
    let _ = write!(html, "{}{}", if from > 0 { "…" } else { "" }, EscapedHtml(&start[from..]));
    let is_truncated = push_truncated_text(&mut html, changed, mark);
    if !is_truncated {
        let _ = write!(html, "{}{}", EscapedHtml(&end[..to]), if to < end.len() { "…" } else { "" });
    }
    html.push_str("</bdi>\"</span>");
    push_truncation_note(&mut html, is_truncated, text.len());
    html
}

pub(super) fn value_html(value: &[u8], mark: Option<&str>) -> String {
    let (class, text) = match JsonScalar::parse(value) {
        Some(JsonScalar::String(text)) if text.raw().is_empty() => return empty_string_html(mark),
        Some(JsonScalar::String(text)) => ("string", text.unescape()),
        Some(JsonScalar::Number(text)) => ("number", text.into()),
        Some(JsonScalar::Bool(value)) => ("boolean", value.to_string().into()),
        Some(JsonScalar::Null) => ("null", "null".into()),
        None => ("nested", String::from_utf8_lossy(value)),
    };
    let quote = if class == "string" { "\"" } else { "" };
    let mut html = format!("<span class=\"{class}\">{quote}<bdi>");
    let is_truncated = push_truncated_text(&mut html, &text, mark);
    let _ = write!(html, "</bdi>{quote}</span>");
    push_truncation_note(&mut html, is_truncated, text.len());
    html
}

/// Appends a text, truncated if it is long, in the HTML element `mark` if set. Returns whether it was truncated.
fn push_truncated_text(html: &mut String, text: &str, mark: Option<&str>) -> bool {
    let end = text.char_indices().nth(MAX_VALUE_CHARACTERS).map(|(end, _)| end);
    let shown = EscapedHtml(&text[..end.unwrap_or(text.len())]);
    let _ = match mark.filter(|_| !text.is_empty()) {
        Some(tag) => write!(html, "<{tag}>{shown}</{tag}>"),
        None => write!(html, "{shown}"),
    };
    end.is_some()
}

fn push_truncation_note(html: &mut String, is_truncated: bool, bytes: usize) {
    if is_truncated {
        let _ = write!(html, "<span class=\"cut\">… shortened, {} in all</span>", format::byte_size(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_marked_and_escaped() {
        let string = |in_string: &str| format!("<span class=\"string\">\"<bdi>{in_string}</bdi>\"</span>");
        let number = |in_string: &str| format!("<span class=\"number\"><bdi>{in_string}</bdi></span>");
        let check = |old: &str, new: &str, expected: (String, String)| {
            let (one, other) = difference_html(Some(old.as_bytes()), Some(new.as_bytes()));
            assert_eq!((one.expect("one"), other.expect("other")), expected, "{old} {new}");
        };
        check("1", "2", (number("<del>1</del>"), number("<ins>2</ins>")));
        check("1", "\"1\"", (number("<del>1</del>"), string("<ins>1</ins>")));
        check(r#""abc""#, r#""axc""#, (string("a<del>b</del>c"), string("a<ins>x</ins>c")));
        check(r#""aa""#, r#""aaa""#, (string("aa"), string("aa<ins>a</ins>")));
        // Regression: a removed or added empty string was invisible.
        let quotes = |tag: &str| format!("<span class=\"string\"><{tag}>&quot;&quot;</{tag}></span>");
        check("\"\"", "null", (quotes("del"), "<span class=\"null\"><bdi><ins>null</ins></bdi></span>".to_owned()));
        check("\"a\"", "\"\"", (string("<del>a</del>"), quotes("ins")));
        let (old, _) = difference_html(Some(b"\"\""), None);
        assert_eq!(old, Some(quotes("del")));
        check(r#""é""#, r#""è""#, (string("<del>é</del>"), string("<ins>è</ins>")));
        check(r#""<i>""#, r#""<b>""#, (string("&lt;<del>i</del>&gt;"), string("&lt;<ins>b</ins>&gt;")));
        let long = |middle: &str| format!("\"{}{middle}{}\"", "x".repeat(500), "y".repeat(500));
        let marked = |in_string: &str| {
            string(&format!("…{}{in_string}{}…", "x".repeat(CONTEXT_CHARACTERS), "y".repeat(CONTEXT_CHARACTERS)))
        };
        check(&long("1"), &long("2"), (marked("<del>1</del>"), marked("<ins>2</ins>")));
        assert_eq!(value_html(b"null", None), "<span class=\"null\"><bdi>null</bdi></span>");
        let (old, new) = difference_html(None, Some(b"{\"a\":\"<script>\"}"));
        assert!(old.is_none() && !new.expect("a side").contains("<script>"));
    }
}

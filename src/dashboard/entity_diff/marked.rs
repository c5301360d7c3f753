//! Two values side by side as HTML, with the differences marked. If long texts differ in a part, the part is shown with
//! some characters around it.

use std::fmt::Write;

use strata_json::{JsonType, Scalar};

use crate::format;
use crate::safe_text::Escaped;

/// Characters of a value, and of equal text around a difference.
const CHARACTERS: usize = 1_000;
const AROUND: usize = 60;

const OLD: Option<&str> = Some("del");
const NEW: Option<&str> = Some("ins");

pub(super) fn different(old: Option<&[u8]>, new: Option<&[u8]>) -> (Option<String>, Option<String>) {
    if let (Some(one), Some(other)) = (old, new)
        && let (Some(Scalar::String(one)), Some(Scalar::String(other))) = (Scalar::read(one), Scalar::read(other))
    {
        let [one, other] = [one, other].map(|text| text.unescape());
        let (before, behind) = shared(&one, &other);
        return (Some(part(&one, before, behind, OLD)), Some(part(&other, before, behind, NEW)));
    }
    (old.map(|value| whole(value, OLD)), new.map(|value| whole(value, NEW)))
}

/// Bytes that two texts share at the beginning and at the end; no byte of either counts twice.
fn shared(one: &str, other: &str) -> (usize, usize) {
    let same = |(one, other): &(char, char)| one == other;
    let before = one.chars().zip(other.chars()).take_while(same).map(|(character, _)| character.len_utf8()).sum();
    let behind = one[before..].chars().rev().zip(other[before..].chars().rev()).take_while(same);
    (before, behind.map(|(character, _)| character.len_utf8()).sum())
}

/// An empty text, whose quotes are marked.
fn empty(mark: Option<&str>) -> String {
    let mut html = "<span class=\"string\">".to_owned();
    push(&mut html, "\"\"", mark);
    html.push_str("</span>");
    html
}

/// A text that shares so many bytes at both ends with the other one.
fn part(text: &str, before: usize, behind: usize, mark: Option<&str>) -> String {
    if text.is_empty() {
        return empty(mark);
    }
    let (start, rest) = text.split_at(before);
    let (between, end) = rest.split_at(rest.len() - behind);
    let from = start.char_indices().rev().nth(AROUND - 1).map_or(0, |(at, _)| at);
    let to = end.char_indices().nth(AROUND).map_or(end.len(), |(at, _)| at);
    let mut html = "<span class=\"string\">\"<bdi>".to_owned();
    let _ = write!(html, "{}{}", if from > 0 { "…" } else { "" }, Escaped(&start[from..]));
    let is_cut = push(&mut html, between, mark);
    if !is_cut {
        let _ = write!(html, "{}{}", Escaped(&end[..to]), if to < end.len() { "…" } else { "" });
    }
    html.push_str("</bdi>\"</span>");
    push_cut(&mut html, is_cut, text.len());
    html
}

pub(super) fn whole(value: &[u8], mark: Option<&str>) -> String {
    let (class, text) = match Scalar::read(value) {
        Some(Scalar::String(text)) if text.raw().is_empty() => return empty(mark),
        Some(Scalar::String(text)) => ("string", text.unescape()),
        Some(Scalar::Number(text)) => ("number", text.into()),
        Some(Scalar::Bool(value)) => ("boolean", value.to_string().into()),
        Some(Scalar::Null) => ("null", "null".into()),
        None => ("nested", String::from_utf8_lossy(value)),
    };
    let quote = if value.first().and_then(|first| JsonType::of(*first)) == Some(JsonType::String) { "\"" } else { "" };
    let mut html = format!("<span class=\"{class}\">{quote}<bdi>");
    let is_cut = push(&mut html, &text, mark);
    let _ = write!(html, "</bdi>{quote}</span>");
    push_cut(&mut html, is_cut, text.len());
    html
}

/// Appends the first characters of a text with its mark. Returns whether there are more.
fn push(html: &mut String, text: &str, mark: Option<&str>) -> bool {
    let end = text.char_indices().nth(CHARACTERS).map(|(end, _)| end);
    let shown = Escaped(&text[..end.unwrap_or(text.len())]);
    let _ = match mark.filter(|_| !text.is_empty()) {
        Some(tag) => write!(html, "<{tag}>{shown}</{tag}>"),
        None => write!(html, "{shown}"),
    };
    end.is_some()
}

fn push_cut(html: &mut String, is_cut: bool, bytes: usize) {
    if is_cut {
        let _ = write!(html, "<span class=\"cut\">… shortened, {} in all</span>", format::size(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_marked_and_escaped() {
        let string = |inside: &str| format!("<span class=\"string\">\"<bdi>{inside}</bdi>\"</span>");
        let number = |inside: &str| format!("<span class=\"number\"><bdi>{inside}</bdi></span>");
        let check = |old: &str, new: &str, expected: (String, String)| {
            let (one, other) = different(Some(old.as_bytes()), Some(new.as_bytes()));
            assert_eq!((one.expect("one"), other.expect("other")), expected, "{old} {new}");
        };
        check("1", "2", (number("<del>1</del>"), number("<ins>2</ins>")));
        check("1", "\"1\"", (number("<del>1</del>"), string("<ins>1</ins>")));
        check(r#""abc""#, r#""axc""#, (string("a<del>b</del>c"), string("a<ins>x</ins>c")));
        check(r#""aa""#, r#""aaa""#, (string("aa"), string("aa<ins>a</ins>")));
        // Nothing showed that a text which is gone, or has come, was empty.
        let quotes = |tag: &str| format!("<span class=\"string\"><{tag}>&quot;&quot;</{tag}></span>");
        check("\"\"", "null", (quotes("del"), "<span class=\"null\"><bdi><ins>null</ins></bdi></span>".to_owned()));
        check("\"a\"", "\"\"", (string("<del>a</del>"), quotes("ins")));
        let (old, _) = different(Some(b"\"\""), None);
        assert_eq!(old, Some(quotes("del")));
        check(r#""é""#, r#""è""#, (string("<del>é</del>"), string("<ins>è</ins>")));
        check(r#""<i>""#, r#""<b>""#, (string("&lt;<del>i</del>&gt;"), string("&lt;<ins>b</ins>&gt;")));
        let long = |middle: &str| format!("\"{}{middle}{}\"", "x".repeat(500), "y".repeat(500));
        let marked = |inside: &str| string(&format!("…{}{inside}{}…", "x".repeat(AROUND), "y".repeat(AROUND)));
        check(&long("1"), &long("2"), (marked("<del>1</del>"), marked("<ins>2</ins>")));
        assert_eq!(whole(b"null", None), "<span class=\"null\"><bdi>null</bdi></span>");
        let (old, new) = different(None, Some(b"{\"a\":\"<script>\"}"));
        assert!(old.is_none() && !new.expect("a side").contains("<script>"));
    }
}

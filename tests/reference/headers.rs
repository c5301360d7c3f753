//! Conditional, range and content negotiation headers (RFC 9110).

use std::ops::Range;

/// A requested byte range.
#[derive(Debug)]
pub enum RequestedRange {
    Between(u128, u128),
    Last(u128),
}

impl RequestedRange {
    /// Resolves the range for a body of this length; `None` if the range is not satisfiable.
    pub fn resolve(&self, length: u64) -> Option<Range<u64>> {
        let length = u128::from(length);
        let (start, end) = match *self {
            RequestedRange::Between(first, last) => (first, length.min(last.saturating_add(1))),
            RequestedRange::Last(count) => (length - count.min(length), length),
        };
        let narrow = |number: u128| u64::try_from(number).expect("range exceeds body");
        (start < end).then(|| narrow(start)..narrow(end))
    }
}

/// Returns the only requested range if all conditions are true. Otherwise, the entire body is returned.
pub fn range(ranges: &[&[u8]], conditions: &[&[u8]], etag: &[u8]) -> Option<RequestedRange> {
    let ([range], [] | [_]) = (ranges, conditions) else { return None };
    if conditions.iter().any(|condition| *condition != etag) {
        return None;
    }
    let range = visible(range)?;
    let equals = range.find('=')?;
    if !range[..equals].trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let items: Vec<&str> = range[equals + 1..]
        .split(',')
        .map(|item| item.trim_matches([' ', '\t']))
        .filter(|item| !item.is_empty())
        .collect();
    let [item] = items.as_slice() else { return None };
    let dash = item.find('-')?;
    let first = &item[..dash];
    let last = &item[dash + 1..];
    if first.is_empty() {
        return Some(RequestedRange::Last(digits(last)?));
    }
    let first = digits(first)?;
    let last = if last.is_empty() { u128::MAX } else { digits(last)? };
    // Numbers beyond the maximum of the service have the same effect.
    let cut = |number: u128| number.min(u128::from(u64::MAX));
    (cut(first) <= cut(last)).then_some(RequestedRange::Between(cut(first), last))
}

/// Returns true if `If-None-Match` contains the tag or is `*`.
pub fn is_held(lines: &[&[u8]], etag: &[u8]) -> bool {
    let text: Vec<String> = lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let etag = String::from_utf8_lossy(etag);
    text.iter().any(|line| line.trim_matches([' ', '\t']) == "*" || tags(line).contains(&etag.as_ref()))
}

/// Returns the quoted tags of a line up to its first syntax error.
fn tags(line: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let quoted = rest.strip_prefix("W/").unwrap_or(rest);
        let Some(end) = quoted.strip_prefix('"').and_then(|inner| inner.find('"')) else { return tags };
        let (tag, after) = quoted.split_at(end + 2);
        rest = after.trim_start_matches([' ', '\t']);
        if tag.contains(' ') || !(rest.is_empty() || rest.starts_with(',')) {
            return tags;
        }
        tags.push(tag);
    }
}

/// Returns the name of the coding of the response.
pub fn coding(lines: &[&[u8]]) -> &'static str {
    let mut weights: Vec<(String, u32)> = Vec::new();
    for item in lines.iter().filter_map(|line| visible(line)).flat_map(|line| line.split(',')) {
        let trim = |text: &str| text.trim_matches([' ', '\t']).to_ascii_lowercase();
        let parts: Vec<String> = item.split(';').map(trim).collect();
        let weight = match parts.as_slice() {
            [_] => Some(1_000),
            [_, weight] => weight.strip_prefix("q=").and_then(thousandths),
            _ => None,
        };
        let name = if parts[0] == "x-gzip" { "gzip" } else { parts[0].as_str() };
        if let Some(weight) = weight.filter(|_| weights.iter().all(|(known, _)| known != name)) {
            weights.push((name.to_owned(), weight));
        }
    }
    let weight = |name: &str| weights.iter().find(|(known, _)| known == name).map(|(_, weight)| *weight);
    let mut best = ("identity", weight("identity").unwrap_or(0));
    // `max_by` returns the last of several equally good codings.
    for name in ["gzip", "br", "zstd"] {
        let weight = weight(name).or_else(|| weight("*")).unwrap_or(0);
        if weight > 0 && weight >= best.1 {
            best = (name, weight);
        }
    }
    best.0
}

fn thousandths(text: &str) -> Option<u32> {
    let (whole, decimals) = match text.find('.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, ""),
    };
    if decimals.len() > 3 || !decimals.chars().all(|character| character.is_ascii_digit()) {
        return None;
    }
    let mut number = 0;
    for place in 0..3 {
        number =
            number * 10 + decimals[place.min(decimals.len())..].chars().next().map_or(0, |digit| digit as u32 - 48);
    }
    match whole {
        "0" => Some(number),
        "1" if number == 0 => Some(1_000),
        _ => None,
    }
}

/// Returns the value of a header if it is text.
fn visible(value: &[u8]) -> Option<&str> {
    let text = value.iter().all(|byte| *byte == b'\t' || (b' '..=b'~').contains(byte));
    text.then(|| std::str::from_utf8(value).expect("not ASCII"))
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.bytes().fold(0_u128, |sum, byte| sum.saturating_mul(10).saturating_add(u128::from(byte - b'0'))))
}

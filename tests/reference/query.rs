//! Query strings (docs/reference/query-semantics.md, Parameters).

use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, ReadRequest, ResponseFormat, SortField};

use super::path;

/// The implemented parameters. Queries with other parameters of the service are not checked.
const KNOWN: [&str; 27] = [
    "include_source",
    "denull",
    "keep_field",
    "drop_field",
    "filter",
    "filter_contains",
    "filter_gt",
    "filter_gte",
    "filter_lt",
    "filter_lte",
    "keywords",
    "keywords_mode",
    "sort",
    "dedup",
    "dedup_key",
    "sample",
    "seed",
    "offset",
    "limit",
    "flatten",
    "format",
    "typed",
    "pretty",
    "count",
    "total",
    "alt",
    "strict",
];

/// Returns the request and the unknown names, or the name of the invalid parameter (empty if it has no name). Returns
/// `None` if the query has a parameter of the service (`is_parameter`) that is not implemented here.
pub fn parse(query: &str, is_parameter: impl Fn(&str) -> bool) -> Option<Result<(ReadRequest, Vec<String>), String>> {
    if query.len() > 32 * 1024 {
        return Some(Err(String::new()));
    }
    let mut request = ReadRequest::default();
    let mut seen: Vec<String> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    let mut is_unnamed = false;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode(name) else { return Some(Err(String::new())) };
        let named = if KNOWN.contains(&name.as_str()) { name.clone() } else { String::new() };
        let Some(value) = decode(value) else { return Some(Err(named)) };
        if named.is_empty() {
            if is_parameter(&name) {
                return None;
            }
            is_unnamed |= name.is_empty();
            if !name.is_empty() && !unknown.contains(&name) {
                unknown.push(name);
            }
            continue;
        }
        let repeats = ["keep_field", "drop_field", "keywords", "dedup_key"];
        if !(repeats.contains(&named.as_str()) || named.starts_with("filter")) && seen.contains(&named) {
            return Some(Err(named));
        }
        seen.push(named.clone());
        if set(&mut request, &named, &value).is_none() {
            return Some(Err(named));
        }
    }
    if request.seed.is_some() && request.sample.is_none() {
        return Some(Err("seed".to_owned()));
    }
    let lists = [request.keep_fields.len(), request.drop_fields.len(), request.dedup_key.len(), request.keywords.len()];
    let items = lists.iter().sum::<usize>()
        + request.filters.len()
        + request.contains_filters.len()
        + request.range_filters().count();
    let is_refused = items > 1_000 || (request.strict && (is_unnamed || !unknown.is_empty()));
    Some(if is_refused { Err(String::new()) } else { Ok((request, unknown)) })
}

fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).ok()
}

/// Sets a parameter; `None` if the value is invalid.
fn set(request: &mut ReadRequest, name: &str, value: &str) -> Option<()> {
    match name {
        "include_source" => request.include_source = boolean(value)?,
        "denull" => request.denull = boolean(value)?,
        "dedup" => request.dedup = boolean(value)?,
        "flatten" => request.flatten = boolean(value)?,
        "pretty" => request.pretty = boolean(value)?,
        "count" => request.count = boolean(value)?,
        "alt" => request.alt = boolean(value)?,
        "strict" => request.strict = boolean(value)?,
        "total" => request.total = boolean(value)?,
        "typed" => request.typed = boolean(value)?,
        "seed" => request.seed = Some(integer(value)?),
        "sample" => request.sample = Some(integer(value)?),
        "offset" => request.offset = integer(value)?,
        "limit" => request.limit = Some(integer(value)?),
        "keep_field" => request.keep_fields.extend(paths(value)?),
        "drop_field" => request.drop_fields.extend(paths(value)?),
        "dedup_key" => request.dedup_key.extend(paths(value)?),
        "filter" => request.filters.push(condition(value)?),
        "filter_contains" => request.contains_filters.push(condition(value)?),
        "filter_gt" => request.range_filters[0].push(condition(value)?),
        "filter_gte" => request.range_filters[1].push(condition(value)?),
        "filter_lt" => request.range_filters[2].push(condition(value)?),
        "filter_lte" => request.range_filters[3].push(condition(value)?),
        "keywords" => {
            let words = value.split(',').map(|word| word.trim_matches([' ', '\t']));
            request.keywords.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
        "keywords_mode" => {
            request.keywords_mode = match value {
                "or" => KeywordsMode::Or,
                "and" => KeywordsMode::And,
                _ => return None,
            }
        }
        "format" => request.format = ResponseFormat::ALL.into_iter().find(|format| format.name() == value)?,
        "sort" => {
            let (field, descending) = match value.rfind(':').map(|colon| (&value[..colon], &value[colon..])) {
                None => (value, false),
                Some((field, ":asc")) => (field, false),
                Some((field, ":desc")) => (field, true),
                Some(_) => return None,
            };
            request.sort = Some(SortField { field: field.to_owned(), descending });
            return (!field.is_empty()).then_some(());
        }
        _ => unreachable!("all known names are above"),
    }
    Some(())
}

fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn integer(value: &str) -> Option<u64> {
    let mut number = 0_u64;
    for character in value.chars() {
        let digit = character.to_digit(10).filter(|_| character.is_ascii())?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!value.is_empty()).then_some(number)
}

fn paths(value: &str) -> Option<Vec<FieldPath>> {
    path::parse_list(value).into_iter().map(checked).collect()
}

fn condition(value: &str) -> Option<PathValue> {
    let (keys, value) = path::parse_prefix(value)?;
    Some(PathValue { path: checked(keys)?, value: value.to_owned() })
}

fn checked(keys: Vec<String>) -> Option<FieldPath> {
    if keys.len() > 128 { None } else { FieldPath::from_keys(keys).ok() }
}

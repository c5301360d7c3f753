//! Entities as text in the editor. The text preserves the spelling of numbers and the order of keys. Invisible
//! characters of the entity are escaped in the text.

use std::collections::{BTreeSet, HashMap};

use strata_http::page_support::quote_for_page;
use strata_json::{JsonCursor, ValueScanner};
use strata_types::invisible_text::format_escapes_as_code_points;
use strata_types::limits::MAX_EDITOR_TEXT_BYTES;

use crate::format;
use crate::query_params::parse_whole_number;
use crate::safe_text::escape_invisible_json;

/// Returns an entity as text for the editor. The text is indented if the indented text fits into the editor; the result
/// is `None` if neither form fits. Each entity that a page shows fits, because escapes at most triple its length.
pub(super) fn to_editor_text(entity: &[u8]) -> Option<String> {
    let mut pretty = Vec::new();
    let is_pretty = strata_json::try_write_indented(entity, 0, MAX_EDITOR_TEXT_BYTES, &mut pretty);
    let escaped = |text: &[u8]| {
        let text = escape_invisible_json(std::str::from_utf8(text).ok()?);
        (text.len() <= MAX_EDITOR_TEXT_BYTES).then_some(text)
    };
    let indented = if is_pretty { escaped(&pretty) } else { None };
    indented.or_else(|| escaped(entity))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntityTextError {
    pub(super) location: Option<String>,
    pub(super) problem: String,
}

impl EntityTextError {
    fn for_offset(text: &str, offset: Option<usize>, problem: String) -> EntityTextError {
        let location = offset.map(|offset| {
            let before = &text.as_bytes()[..offset.min(text.len())];
            let line = memchr::memchr_iter(b'\n', before).count() + 1;
            let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
            let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
            format!("Line {}, column {}", format::group_thousands(line as u64), format::group_thousands(column as u64))
        });
        EntityTextError { location, problem }
    }

    fn for_text(problem: impl Into<String>) -> EntityTextError {
        EntityTextError { location: None, problem: problem.into() }
    }

    pub(super) fn to_sentence(&self) -> String {
        let problem = format_escapes_as_code_points(&self.problem);
        match &self.location {
            Some(location) => format!("{location}: {problem}."),
            None => format!("{problem}."),
        }
    }
}

fn check_length(text: &str) -> Result<(), EntityTextError> {
    if text.len() <= MAX_EDITOR_TEXT_BYTES {
        return Ok(());
    }
    let length = format::group_thousands(text.len() as u64);
    let limit = format::group_thousands(MAX_EDITOR_TEXT_BYTES as u64);
    Err(EntityTextError::for_text(format!(
        "The text is {length} bytes long, but the editor accepts at most {limit}. For longer texts, use POST \
         /dataset/alternate/edit"
    )))
}

pub(super) fn parse_entity(text: &str) -> Result<Vec<u8>, EntityTextError> {
    check_length(text)?;
    let mut entity = Vec::new();
    strata_json::canonicalize(text.as_bytes(), &mut entity)
        .map_err(|error| EntityTextError::for_offset(text, error.offset(), error.message_without_offset()))?;
    Ok(entity)
}

pub(super) fn parse_entities(text: &str) -> Result<Vec<Vec<u8>>, EntityTextError> {
    check_length(text)?;
    let whitespace = text.len() - text.trim_start_matches([' ', '\n', '\r', '\t']).len();
    if text.as_bytes().get(whitespace) != Some(&b'[') {
        return Ok(vec![parse_entity(text)?]);
    }
    // Text after the JSON array is an error. In the object below, it could become further members.
    if let Ok(Some(end)) = ValueScanner::new().feed(text.as_bytes())
        && !text[end..].trim_matches([' ', '\n', '\r', '\t']).is_empty()
    {
        return Err(EntityTextError::for_offset(text, Some(end), "text after the end of the array".to_owned()));
    }
    const ENVELOPE_PREFIX: &str = "{\"entities\":";
    let envelope = format!("{ENVELOPE_PREFIX}{text}}}");
    let mut message = Vec::new();
    strata_json::canonicalize_envelope(envelope.as_bytes(), 3, &mut message).map_err(|error| {
        let offset = error.offset().map(|offset| offset.saturating_sub(ENVELOPE_PREFIX.len()));
        EntityTextError::for_offset(text, offset, error.message_without_offset())
    })?;
    let mut cursor = JsonCursor::new(strata_json::find_member(&message, "entities").unwrap_or(b"[]"));
    cursor.enter();
    let mut entities = Vec::new();
    while cursor.next_element() {
        let mut entity = Vec::new();
        strata_json::canonicalize(cursor.skip_value(), &mut entity).map_err(|error| {
            let problem = error.message_without_offset();
            EntityTextError::for_text(format!("Entity {} of the array: {problem}", entities.len() + 1))
        })?;
        entities.push(entity);
    }
    if entities.is_empty() {
        return Err(EntityTextError::for_text("The array must contain at least one entity"));
    }
    Ok(entities)
}

pub(super) struct MergedEntity {
    pub(super) entity: Vec<u8>,
    /// The top-level fields that both users changed differently. The merged entity contains the values of `mine`.
    pub(super) conflicts: Vec<String>,
}

/// Merges the changes of two users to an entity, by top-level field: applies the changes from `base` to `mine` to
/// `theirs`. All entities must be canonical JSON.
pub(super) fn merge_entities(base: &[u8], theirs: &[u8], mine: &[u8]) -> MergedEntity {
    let [base_fields, their_fields, my_fields] = [base, theirs, mine].map(fields_by_name);
    let mut conflicts = Vec::new();
    let mut is_mine = |name: &str| {
        let [base, theirs, mine] = [&base_fields, &their_fields, &my_fields].map(|fields| fields.get(name));
        if base != mine && base != theirs && mine != theirs {
            conflicts.push(name.to_owned());
        }
        base != mine
    };
    let mut members: Vec<Vec<u8>> = Vec::new();
    for (name, value, text) in members_with_text(theirs) {
        match (is_mine(&name), my_fields.get(&name)) {
            (false, _) => members.push(text.to_vec()),
            (true, Some(my_value)) => members.push([&text[..text.len() - value.len()], my_value].concat()),
            (true, None) => {}
        }
    }
    for (name, _, text) in members_with_text(mine) {
        // Fields that the other user has removed stay removed unless this user has changed them.
        if !their_fields.contains_key(&name) && is_mine(&name) {
            members.push(text.to_vec());
        }
    }
    MergedEntity { entity: [&b"{"[..], &members.join(&b','), b"}"].concat(), conflicts }
}

fn fields_by_name(entity: &[u8]) -> HashMap<String, &[u8]> {
    strata_json::members(entity).map(|(name, value)| (name.unescape().into_owned(), value)).collect()
}

fn members_with_text(entity: &[u8]) -> Vec<(String, &[u8], &[u8])> {
    let start_of = |part: &[u8]| part.as_ptr().addr() - entity.as_ptr().addr();
    let members = strata_json::members(entity).map(|(name, value)| {
        let span = start_of(name.raw()) - 1..start_of(value) + value.len();
        (name.unescape().into_owned(), value, &entity[span])
    });
    members.collect()
}

/// Parses positions and ranges such as `3, 7-9`. Returns them in ascending order without duplicates, at most `max`.
pub(super) fn parse_positions(text: &str, max: usize) -> Result<Vec<u64>, String> {
    const VALID: &str = "valid: whole numbers and ranges, such as 3, 7-9";
    let wrong = |item: &str| format!("{} is not a position; {VALID}", quote_for_page(item));
    let too_many = || format!("Too many positions; valid: at most {}", format::group_thousands(max as u64));
    let mut positions = BTreeSet::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let [Some(first), Some(last)] = [first, last].map(|item| parse_whole_number(item.trim())) else {
            return Err(wrong(item));
        };
        if first > last {
            return Err(wrong(item));
        }
        if first == u64::MAX {
            return Err(format!("{} is larger than any position; {VALID}", quote_for_page(item)));
        }
        if last - first >= max as u64 {
            return Err(too_many());
        }
        positions.extend(first..=last);
        if positions.len() > max {
            return Err(too_many());
        }
    }
    match positions.is_empty() {
        true => Err(format!("No position is specified; {VALID}")),
        false => Ok(positions.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use strata_types::limits::MAX_PAGE_ENTITY_BYTES;

    #[test]
    fn page_entity_fits_into_the_editor() {
        let filled = |before: &str, item: &str, after: &str| {
            let items = (MAX_PAGE_ENTITY_BYTES - before.len() - after.len()) / item.len();
            format!("{before}{}{after}", item.repeat(items))
        };
        for (json, is_indented) in [
            (filled("{\"a\":\"", "x", "\"}"), true),
            (filled("{\"a\":\"", "\u{85}", "\"}"), true),
            // Each number of this array has its own line with deep indentation, so the indented text is too long.
            (filled(&format!("{{\"a\":{}0", "[".repeat(100)), ",1", &format!("{}}}", "]".repeat(100))), false),
        ] {
            let text = to_editor_text(json.as_bytes()).expect("a text");
            assert_eq!(text.starts_with("{\n"), is_indented, "{}", &text[..20]);
            assert!(parse_entity(&text).expect("an entity") == json.as_bytes());
        }
    }

    #[test]
    fn merge_applies_my_changes_to_theirs() {
        let check = |base: &str, theirs: &str, mine: &str, expected: &str, conflicts: &[&str]| {
            let merged = merge_entities(base.as_bytes(), theirs.as_bytes(), mine.as_bytes());
            assert_eq!(String::from_utf8(merged.entity).expect("a text"), expected);
            assert_eq!(merged.conflicts, conflicts, "{theirs} {mine}");
        };
        let base = r#"{"a":1,"b":2,"c":3}"#;
        check(base, r#"{"a":9,"b":2,"c":3}"#, r#"{"a":1,"b":8,"c":3}"#, r#"{"a":9,"b":8,"c":3}"#, &[]);
        check(base, r#"{"a":1,"c":3,"d":4}"#, r#"{"a":1,"b":2,"e":5}"#, r#"{"a":1,"d":4,"e":5}"#, &[]);
        check(base, r#"{"a":9,"b":2,"c":3}"#, r#"{"a":7,"b":2,"c":3}"#, r#"{"a":7,"b":2,"c":3}"#, &["a"]);
        check(base, r#"{"b":2,"c":3}"#, r#"{"a":7,"b":2,"c":3}"#, r#"{"b":2,"c":3,"a":7}"#, &["a"]);
        check(base, base, r#"{"x\"y":1}"#, r#"{"x\"y":1}"#, &[]);
        check("{}", r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":1}"#, &[]);
    }

    #[test]
    fn positions_are_numbers_and_ranges() {
        assert_eq!(parse_positions(" 7-9, 3,3 ,8", 10), Ok(vec![3, 7, 8, 9]));
        assert_eq!(parse_positions("0-9", 10).map(|list| list.len()), Ok(10));
        let problem = |text: &str| parse_positions(text, 10).expect_err(text);
        assert!(problem("").starts_with("No position"));
        assert!(problem("99999999999999999999").contains("is larger than any position"));
        for text in ["a", "9-7", "-1"] {
            assert!(problem(text).starts_with(&format!("{text:?} is not a position")), "{}", problem(text));
        }
        for text in ["0-10", "0-99999999999999999999999", "1-5,11-16"] {
            assert!(problem(text).contains("at most 10"), "{}", problem(text));
        }
    }
}

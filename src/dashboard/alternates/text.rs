//! Entities as texts that people edit. Numbers keep their text and keys their order. Invisible characters are escapes
//! in the text, and characters in the entity.

use std::collections::{BTreeSet, HashMap};

use strata_http::visit::quoted;
use strata_json::{Cursor, ValueScanner};
use strata_types::limits::EDITOR_BYTES;
use strata_types::text::with_names;

use crate::format;
use crate::query::whole_number;
use crate::safe_text::escaped_json;

/// The text of an entity, indented unless that makes it too long; `None` if it is too long for the editor. The editor
/// accepts each entity that a page shows: escapes make a text at most three times as long.
pub(super) fn editable(entity: &[u8]) -> Option<String> {
    let mut pretty = Vec::new();
    let is_pretty = strata_json::pretty_within(entity, 0, EDITOR_BYTES, &mut pretty);
    let escaped = |text: &[u8]| {
        let text = escaped_json(std::str::from_utf8(text).ok()?);
        (text.len() <= EDITOR_BYTES).then_some(text)
    };
    let indented = if is_pretty { escaped(&pretty) } else { None };
    indented.or_else(|| escaped(entity))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// For example, `Line 3, column 7`.
    pub(super) place: Option<String>,
    pub(super) problem: String,
}

impl Mistake {
    fn at(text: &str, offset: Option<usize>, problem: String) -> Mistake {
        let place = offset.map(|offset| {
            let before = &text.as_bytes()[..offset.min(text.len())];
            let line = memchr::memchr_iter(b'\n', before).count() + 1;
            let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
            let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
            format!("Line {}, column {}", format::grouped(line as u64), format::grouped(column as u64))
        });
        Mistake { place, problem }
    }

    fn whole(problem: impl Into<String>) -> Mistake {
        Mistake { place: None, problem: problem.into() }
    }

    pub(super) fn text(&self) -> String {
        let problem = with_names(&self.problem);
        match &self.place {
            Some(place) => format!("{place}: {problem}."),
            None => format!("{problem}."),
        }
    }
}

fn check_length(text: &str) -> Result<(), Mistake> {
    if text.len() <= EDITOR_BYTES {
        return Ok(());
    }
    let given = format::grouped(text.len() as u64);
    let limit = format::grouped(EDITOR_BYTES as u64);
    Err(Mistake::whole(format!(
        "The text is {given} bytes long, but the editor accepts at most {limit}. For longer texts, use POST \
         /dataset/alternate/edit"
    )))
}

pub(super) fn entity(text: &str) -> Result<Vec<u8>, Mistake> {
    check_length(text)?;
    let mut entity = Vec::new();
    strata_json::canonicalize(text.as_bytes(), &mut entity)
        .map_err(|error| Mistake::at(text, error.offset(), error.problem()))?;
    Ok(entity)
}

/// The entities of a text: an object, or an array of objects.
pub(super) fn entities(text: &str) -> Result<Vec<Vec<u8>>, Mistake> {
    check_length(text)?;
    let blanks = text.len() - text.trim_start_matches([' ', '\n', '\r', '\t']).len();
    if text.as_bytes().get(blanks) != Some(&b'[') {
        return Ok(vec![entity(text)?]);
    }
    // The array must end where the text does: otherwise the rest would be read as a part of the object around it.
    if let Ok(Some(end)) = ValueScanner::new().feed(text.as_bytes())
        && !text[end..].trim_matches([' ', '\n', '\r', '\t']).is_empty()
    {
        return Err(Mistake::at(text, Some(end), "text after the end of the array".to_owned()));
    }
    const BEFORE: &str = "{\"entities\":";
    let around = format!("{BEFORE}{text}}}");
    let mut message = Vec::new();
    // Entities that nest too deep are reported below.
    strata_json::canonicalize_message(around.as_bytes(), 3, &mut message).map_err(|error| {
        let offset = error.offset().map(|offset| offset.saturating_sub(BEFORE.len()));
        Mistake::at(text, offset, error.problem())
    })?;
    let mut cursor = Cursor::new(strata_json::member(&message, "entities").unwrap_or(b"[]"));
    cursor.enter();
    let mut entities = Vec::new();
    while cursor.next_element() {
        let value = cursor.skip_value();
        let mut entity = Vec::new();
        strata_json::canonicalize(value, &mut entity).map_err(|error| {
            Mistake::whole(format!("Entity {} of the array: {}", entities.len() + 1, error.problem()))
        })?;
        entities.push(entity);
    }
    if entities.is_empty() { Err(Mistake::whole("The array must contain at least one entity")) } else { Ok(entities) }
}

pub(super) struct Merged {
    pub(super) entity: Vec<u8>,
    /// The fields that both have changed in different ways. They are as in `mine`.
    pub(super) conflicts: Vec<String>,
}

/// Applies the changes from `base` to `mine` to `theirs`, by top-level field. All are canonical.
pub(super) fn merge(base: &[u8], theirs: &[u8], mine: &[u8]) -> Merged {
    let [all_before, all_there, all_now] = [base, theirs, mine].map(by_name);
    let mut conflicts = Vec::new();
    let mut is_mine = |name: &str| {
        let [before, there, now] = [&all_before, &all_there, &all_now].map(|fields| fields.get(name));
        if before != now && before != there && now != there {
            conflicts.push(name.to_owned());
        }
        before != now
    };
    let mut members: Vec<Vec<u8>> = Vec::new();
    for (name, value, text) in spans(theirs) {
        match (is_mine(&name), all_now.get(&name)) {
            (false, _) => members.push(text.to_vec()),
            (true, Some(now)) => members.push([&text[..text.len() - value.len()], now].concat()),
            (true, None) => {}
        }
    }
    for (name, _, text) in spans(mine) {
        // Fields that they have removed stay removed unless they are changed here.
        if !all_there.contains_key(&name) && is_mine(&name) {
            members.push(text.to_vec());
        }
    }
    Merged { entity: [&b"{"[..], &members.join(&b','), b"}"].concat(), conflicts }
}

fn by_name(entity: &[u8]) -> HashMap<String, &[u8]> {
    strata_json::members(entity).map(|(name, value)| (name.unescape().into_owned(), value)).collect()
}

/// The members of an entity: name, value, and the text of both.
fn spans(entity: &[u8]) -> Vec<(String, &[u8], &[u8])> {
    let start_of = |part: &[u8]| part.as_ptr().addr() - entity.as_ptr().addr();
    let members = strata_json::members(entity).map(|(name, value)| {
        let span = start_of(name.raw()) - 1..start_of(value) + value.len();
        (name.unescape().into_owned(), value, &entity[span])
    });
    members.collect()
}

/// Positions of a list: `3, 7-9`, each once, ascending.
pub(super) fn positions(text: &str, most: usize) -> Result<Vec<u64>, String> {
    const VALID: &str = "valid: whole numbers and ranges, such as 3, 7-9";
    let wrong = |item: &str| format!("{} is not a position; {VALID}", quoted(item));
    let too_many = || format!("Too many positions; valid: at most {}", format::grouped(most as u64));
    let mut positions = BTreeSet::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let [Some(first), Some(last)] = [first, last].map(|item| whole_number(item.trim())) else {
            return Err(wrong(item));
        };
        if first > last {
            return Err(wrong(item));
        }
        if first == u64::MAX {
            return Err(format!("{} is larger than any position; {VALID}", quoted(item)));
        }
        if last - first >= most as u64 {
            return Err(too_many());
        }
        positions.extend(first..=last);
        if positions.len() > most {
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

    use strata_types::limits::PAGE_BYTES;

    #[test]
    fn entity_of_a_page_fits_into_the_editor() {
        let filled = |before: &str, item: &str, after: &str| {
            let items = (PAGE_BYTES - before.len() - after.len()) / item.len();
            format!("{before}{}{after}", item.repeat(items))
        };
        for (json, is_indented) in [
            (filled("{\"a\":\"", "x", "\"}"), true),
            // Escapes of three times their bytes.
            (filled("{\"a\":\"", "\u{85}", "\"}"), true),
            // Each on a line of its own, behind many blanks.
            (filled(&format!("{{\"a\":{}0", "[".repeat(100)), ",1", &format!("{}}}", "]".repeat(100))), false),
        ] {
            let text = editable(json.as_bytes()).expect("a text");
            assert_eq!(text.starts_with("{\n"), is_indented, "{}", &text[..20]);
            assert!(entity(&text).expect("an entity") == json.as_bytes());
        }
    }

    #[test]
    fn merge_applies_my_changes_to_theirs() {
        let check = |base: &str, theirs: &str, mine: &str, expected: &str, conflicts: &[&str]| {
            let merged = merge(base.as_bytes(), theirs.as_bytes(), mine.as_bytes());
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
        assert_eq!(positions(" 7-9, 3,3 ,8", 10), Ok(vec![3, 7, 8, 9]));
        assert_eq!(positions("0-9", 10).map(|list| list.len()), Ok(10));
        let problem = |text: &str| positions(text, 10).expect_err(text);
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

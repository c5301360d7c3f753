//! Entities as texts that people edit. Numbers keep their text and keys their order. Characters that nobody would see
//! are escapes in the text; they are characters again in the entity.

use std::collections::{BTreeSet, HashMap};

use strata_http::visit::quoted;
use strata_json::{Cursor, ValueScanner};
use strata_types::limits::EDITOR_BYTES;
use strata_types::text::with_names;

use crate::figures;
use crate::query::whole_number;
use crate::shown::escaped_json;

/// The text of an entity, indented unless that makes it too long; `None` where the editor does not take it. It takes
/// each that a page shows: escapes make no text more than three times as long.
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
    /// `Line 3, column 7`, where it is at one place.
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
            format!("Line {}, column {}", figures::grouped(line as u64), figures::grouped(column as u64))
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
    let given = figures::grouped(text.len() as u64);
    let limit = figures::grouped(EDITOR_BYTES as u64);
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
    // The array must end where the text does: otherwise what follows would be read as a part of what is around it.
    if let Ok(Some(end)) = ValueScanner::new().feed(text.as_bytes())
        && !text[end..].trim_matches([' ', '\n', '\r', '\t']).is_empty()
    {
        return Err(Mistake::at(text, Some(end), "text after the end of the array".to_owned()));
    }
    const BEFORE: &str = "{\"entities\":";
    let around = format!("{BEFORE}{text}}}");
    let mut message = Vec::new();
    // An entity that nests too deep is told of below.
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
    /// The fields that both have changed, each in another way. They are as in `mine`.
    pub(super) conflicts: Vec<String>,
}

/// What `mine` has made of `base`, made of `theirs` instead, field by field at the top level. All are canonical.
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
        // What they have taken away stays away unless it is changed here.
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
    let too_many = || format!("Too many positions; valid: at most {}", figures::grouped(most as u64));
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
    fn a_text_that_is_edited_becomes_the_same_entity_again() {
        for json in [
            r#"{"b":1.0,"a":-0,"e":1E400,"n":12345678901234567890123}"#,
            "{\"odd\":\"\u{202e}x\u{200b}\u{85}\u{feff}\u{fffe}\u{1fffe}\",\"z\":\"👩\u{200d}👧\",\"k\u{202e}\":[]}",
            r#"{"t":"</textarea><script>","q":"\"\\\n\u0000"}"#,
            "{}",
        ] {
            let text = editable(json.as_bytes()).expect("a text");
            assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{85}', '\u{feff}', '\u{fffe}']), "{text}");
            for sent in [text.clone(), text.replace('\n', "\r\n")] {
                assert_eq!(String::from_utf8(entity(&sent).expect("an entity")).expect("a text"), json);
            }
        }
        assert!(editable(format!("{{\"a\":\"{}\"}}", "x".repeat(EDITOR_BYTES)).as_bytes()).is_none());
    }

    #[test]
    fn what_a_page_shows_is_edited() {
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
    fn a_mistake_tells_its_line_and_column() {
        let told = |text: &str| entity(text).expect_err("a mistake").text();
        assert_eq!(told("{\r\n  \"a\": 1,\r\n  \"é\": x\r\n}"), "Line 3, column 8: expected a value, found 'x'.");
        assert!(told("[1]").contains("this is an array"), "{}", told("[1]"));
        assert!(told("").starts_with("Line 1, column 1: "), "{}", told(""));
        assert!(told("{}\n{}").starts_with("Line 2, column 1: text after"), "{}", told("{}\n{}"));
        assert!(told(&" ".repeat(EDITOR_BYTES + 1)).contains("the editor accepts at most 6,291,456"));
        let told = |text: &str| entities(text).expect_err("a mistake").text();
        assert_eq!(told("[\n{\"a\":x}]"), "Line 2, column 6: expected a value, found 'x'.");
        assert_eq!(told("[{}], \"b\": {}"), "Line 1, column 5: text after the end of the array.");
        assert_eq!(told("[{}] }"), "Line 1, column 5: text after the end of the array.");
        assert!(told("[{},7]").starts_with("Entity 2 of the array: an entity must be a JSON object"));
        assert!(told("[{}").starts_with("Line 1, column 4: "), "{}", told("[{}"));
        assert!(told(" [] ").contains("at least one entity"));
        assert_eq!(entities(" [ {\"a\":1}, {} ] ").expect("entities"), [&b"{\"a\":1}"[..], b"{}"]);
        assert_eq!(entities("{\"a\":1,\"a\":2}").expect("entities"), [b"{\"a\":2}"]);
    }

    #[test]
    fn changes_are_made_again_on_what_another_one_made() {
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
        for (text, told) in [
            ("", "No position"),
            ("a", "\"a\" is not a position"),
            ("9-7", "\"9-7\" is not a position"),
            ("-1", "\"-1\" is not a position"),
            ("99999999999999999999", "\"99999999999999999999\" is larger than any position"),
            ("0-10", "at most 10"),
            ("0-99999999999999999999999", "at most 10"),
            ("1-5,11-16", "at most 10"),
        ] {
            let problem = positions(text, 10).expect_err(text);
            assert!(problem.contains(told), "{text}: {problem}");
        }
    }
}

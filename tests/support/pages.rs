//! Documentation pages, from which tests read tables and examples.

use std::fs;
use std::path::Path;

pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the text of a page such as `docs/reference/query-semantics.md`.
pub fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// Returns the trimmed text between two texts of a page.
#[track_caller]
pub fn between(path: &str, begin: &str, end: &str) -> String {
    let text = page(path);
    let found = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let Some((found, _)) = found else { panic!("{path} must contain {begin} and, after it, {end}") };
    found.trim().to_owned()
}

/// Returns the contents of the code block between the marks of a page.
#[track_caller]
pub fn block(path: &str, mark: &str) -> String {
    let text = between(path, &format!("<!-- {mark}:begin -->"), &format!("<!-- {mark}:end -->"));
    let code = text.trim_start_matches("```").trim_end_matches("```");
    // The first line contains the language.
    code.split_once('\n').expect("missing lines").1.to_owned()
}

/// Compares the table between the marks of a page with the generated one.
#[track_caller]
pub fn check_table(path: &str, mark: &str, expected: &str) {
    let begin = format!("<!-- {mark}:begin -->");
    let end = format!("<!-- {mark}:end -->");
    let found = between(path, &begin, &end);
    assert_eq!(found, expected.trim(), "{path}, between {begin} and {end}, should be:\n\n{expected}");
}

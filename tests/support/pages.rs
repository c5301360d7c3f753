//! The pages of the documentation, from which tests take tables and examples.

use std::fs;
use std::path::Path;

/// The root of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The text of a page, such as `docs/reference/query-semantics.md`.
pub fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// What a page holds between two texts, without the white space at its ends.
#[track_caller]
pub fn between(path: &str, begin: &str, end: &str) -> String {
    let text = page(path);
    let held = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let Some((held, _)) = held else { panic!("{path} must hold {begin} and, after it, {end}") };
    held.trim().to_owned()
}

/// A block of code that a page holds between its marks, without the marks of code.
#[track_caller]
pub fn block(path: &str, mark: &str) -> String {
    let text = between(path, &format!("<!-- {mark}:begin -->"), &format!("<!-- {mark}:end -->"));
    let code = text.trim_start_matches("```").trim_end_matches("```");
    // The first line names the language.
    code.split_once('\n').expect("lines").1.to_owned()
}

/// Compares the table that a page holds between its marks with the one that the code gives.
#[track_caller]
pub fn check_table(path: &str, mark: &str, expected: &str) {
    let (begin, end) = (format!("<!-- {mark}:begin -->"), format!("<!-- {mark}:end -->"));
    let held = between(path, &begin, &end);
    assert_eq!(held, expected.trim(), "{path}, between {begin} and {end}, should be:\n\n{expected}");
}

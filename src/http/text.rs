//! Text from a request, made fit to be shown in a response or a log line: short, on one line, in quotation marks. JSON
//! that is not a string gets no quotation marks, because it would look like a string.

use strata_types::text::is_invisible;

const SHOWN_CHARACTERS: usize = 100;

/// The text in quotation marks, up to its first 100 characters (then `…`). Characters that could break the line or
/// change its direction are escaped as `\u{…}`.
pub(super) fn quoted(text: &str) -> String {
    shown_between("\"", text)
}

/// Like [`quoted`], without the marks: a number, or other JSON that brings its own.
pub(super) fn shown(json: &str) -> String {
    shown_between("", json)
}

fn shown_between(mark: &str, text: &str) -> String {
    let mut shown = mark.to_owned();
    let mut characters = text.chars();
    for character in characters.by_ref().take(SHOWN_CHARACTERS) {
        match is_invisible(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown.push_str(mark);
    shown.extend(characters.next().map(|_| '…'));
    shown
}

/// The text, or its first characters and `…` if it has more of them.
pub(super) fn beginning(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_on_one_line() {
        for (text, expected) in [
            ("", "\"\""),
            ("Köln \\. \"x\"", "\"Köln \\. \"x\"\""),
            ("a\r\nb\0\u{1b}[31m", "\"a\\u{d}\\u{a}b\\u{0}\\u{1b}[31m\""),
            ("\u{202e}x\u{2028}", "\"\\u{202e}x\\u{2028}\""),
        ] {
            assert_eq!(quoted(text), expected);
            assert_eq!(shown(text), expected[1..expected.len() - 1]);
        }
        let longest = "ä".repeat(SHOWN_CHARACTERS);
        assert_eq!(quoted(&longest), format!("\"{longest}\""));
        assert_eq!(quoted(&format!("{longest}b")), format!("\"{longest}\"…"));
        assert_eq!(shown(&format!("{longest}b")), format!("{longest}…"));
    }
}

//! Request text for responses and log lines: truncated, on one line, in quotation marks. JSON that is not a string gets
//! no quotation marks, because it would look like a string.

use strata_types::invisible_text::is_invisible;

const MAX_DISPLAY_CHARACTERS: usize = 100;

/// Quotes the first 100 characters of a text, followed by `…` if there are more. Characters that could break the line
/// or change its direction are escaped as `\u{…}`.
pub(super) fn quote_for_display(text: &str) -> String {
    escape_and_truncate("\"", text)
}

/// Like [`quote_for_display`], without quotation marks: for numbers and for JSON that already has them.
pub(super) fn escape_for_display(json: &str) -> String {
    escape_and_truncate("", json)
}

fn escape_and_truncate(mark: &str, text: &str) -> String {
    let mut escaped = mark.to_owned();
    let mut characters = text.chars();
    for character in characters.by_ref().take(MAX_DISPLAY_CHARACTERS) {
        match is_invisible(character) {
            true => escaped.extend(character.escape_unicode()),
            false => escaped.push(character),
        }
    }
    escaped.push_str(mark);
    escaped.extend(characters.next().map(|_| '…'));
    escaped
}

pub(super) fn truncate_with_ellipsis(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_text_is_one_line() {
        for (text, expected) in [
            ("", "\"\""),
            ("Köln \\. \"x\"", "\"Köln \\. \"x\"\""),
            ("a\r\nb\0\u{1b}[31m", "\"a\\u{d}\\u{a}b\\u{0}\\u{1b}[31m\""),
            ("\u{202e}x\u{2028}", "\"\\u{202e}x\\u{2028}\""),
        ] {
            assert_eq!(quote_for_display(text), expected);
            assert_eq!(escape_for_display(text), expected[1..expected.len() - 1]);
        }
        let longest = "ä".repeat(MAX_DISPLAY_CHARACTERS);
        assert_eq!(quote_for_display(&longest), format!("\"{longest}\""));
        assert_eq!(quote_for_display(&format!("{longest}b")), format!("\"{longest}\"…"));
        assert_eq!(escape_for_display(&format!("{longest}b")), format!("{longest}…"));
    }
}

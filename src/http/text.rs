//! Text from a request, made fit to be shown in an answer or a log line: short, on one line, in quotation marks. JSON
//! that is no text has none, since it would look like text in them.

use std::fmt::{self, Write};

use strata_types::text::is_invisible;

const SHOWN_CHARACTERS: usize = 100;

/// Displays `text` in quotation marks, at most its first 100 characters (then `…`), with whatever could break the line
/// or change its direction escaped as `\u{…}`.
pub(super) fn quoted(text: &str) -> Shown<'_> {
    Shown { text, mark: "\"" }
}

/// As [`quoted`], without the marks: a number, or other JSON that brings its own.
pub(super) fn shown(json: &str) -> Shown<'_> {
    Shown { text: json, mark: "" }
}

pub(super) struct Shown<'a> {
    text: &'a str,
    mark: &'static str,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.mark)?;
        let mut rest = self.text.chars();
        for character in rest.by_ref().take(SHOWN_CHARACTERS) {
            if is_invisible(character) {
                write!(formatter, "{}", character.escape_unicode())?;
            } else {
                formatter.write_char(character)?;
            }
        }
        formatter.write_str(self.mark)?;
        if rest.next().is_some() {
            formatter.write_char('…')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_text_on_one_line() {
        for (text, expected) in [
            ("", "\"\""),
            ("Köln \\. \"x\"", "\"Köln \\. \"x\"\""),
            ("a\r\nb\0\u{1b}[31m", "\"a\\u{d}\\u{a}b\\u{0}\\u{1b}[31m\""),
            ("\u{202e}x\u{2028}", "\"\\u{202e}x\\u{2028}\""),
        ] {
            assert_eq!(quoted(text).to_string(), expected);
            assert_eq!(shown(text).to_string(), expected[1..expected.len() - 1]);
        }
    }

    #[test]
    fn shows_the_beginning_of_long_text() {
        let exact = "ä".repeat(SHOWN_CHARACTERS);
        assert_eq!(quoted(&exact).to_string(), format!("\"{exact}\""));
        assert_eq!(quoted(&format!("{exact}b")).to_string(), format!("\"{exact}\"…"));
        assert_eq!(shown(&"1".repeat(200)).to_string(), format!("{}…", "1".repeat(SHOWN_CHARACTERS)));
    }
}

//! Text from a request, made fit to be shown in an answer or a log line: short, on one line, in quotation marks.

use std::fmt::{self, Write};

use crate::model::text::is_invisible;

/// Most characters of the original that are shown.
const SHOWN_CHARACTERS: usize = 100;

/// Displays `text` in quotation marks, at most its first 100 characters (then `…`), with whatever could break the line
/// or change its direction escaped as `\u{…}`.
pub(super) fn quoted(text: &str) -> Quoted<'_> {
    Quoted { text }
}

/// See [`quoted`].
pub(super) struct Quoted<'a> {
    text: &'a str,
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_char('"')?;
        let mut rest = self.text.chars();
        for character in rest.by_ref().take(SHOWN_CHARACTERS) {
            if is_invisible(character) {
                write!(formatter, "{}", character.escape_unicode())?;
            } else {
                formatter.write_char(character)?;
            }
        }
        formatter.write_char('"')?;
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
        }
    }

    #[test]
    fn shows_the_beginning_of_long_text() {
        let exact = "ä".repeat(SHOWN_CHARACTERS);
        assert_eq!(quoted(&exact).to_string(), format!("\"{exact}\""));
        assert_eq!(quoted(&format!("{exact}b")).to_string(), format!("\"{exact}\"…"));
    }
}

//! Values and paths of hostile entities in texts: truncated, and on one line.

use strata_types::field_path::FieldPath;
use strata_types::invisible_text::is_invisible;

const MAX_VALUE_CHARACTERS: usize = 80;
const MAX_PATH_CHARACTERS: usize = 60;

/// Returns the beginning of a text, followed by `…` if there is more. Invisible characters are escaped as `\u{…}`.
pub(crate) fn truncate(text: &str, max_characters: usize) -> String {
    let mut excerpt = String::new();
    let mut length = 0;
    for character in text.chars() {
        let escaped: String = match is_invisible(character) {
            true => character.escape_unicode().collect(),
            false => character.into(),
        };
        length += escaped.chars().count();
        if length > max_characters {
            excerpt.push('…');
            break;
        }
        excerpt.push_str(&escaped);
    }
    excerpt
}

/// Returns a value as JSON.
pub(crate) fn quote_value(json: &[u8]) -> String {
    // A value can have megabytes, and each character has at most four bytes.
    let beginning = &json[..json.len().min(4 * (MAX_VALUE_CHARACTERS + 1))];
    truncate(&String::from_utf8_lossy(beginning), MAX_VALUE_CHARACTERS)
}

pub(crate) fn quote_path(path: &FieldPath) -> String {
    format!("`{}`", truncate(&path.to_string(), MAX_PATH_CHARACTERS))
}

pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", truncate(name, MAX_PATH_CHARACTERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(quote_value(b"\"a\""), "\"a\"");
        assert_eq!(quote_value("\"\u{202e}\u{2028}\"".as_bytes()), "\"\\u{202e}\\u{2028}\"");
        let long = quote_value("ä".repeat(1_000).as_bytes());
        assert_eq!(long, format!("{}…", "ä".repeat(MAX_VALUE_CHARACTERS)));
        let hostile = quote_value("\u{202e}".repeat(1_000).as_bytes());
        assert!(hostile.chars().count() <= MAX_VALUE_CHARACTERS + 1, "{hostile}");
    }
}

//! Text for people.

use std::borrow::Cow;

/// The characters that must be escaped so that a text stays on its line and reads as it is: control characters, line
/// separators, marks that reorder text, and the byte order mark.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061C}'
                | '\u{200B}'..='\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{2069}'
                | '\u{FEFF}'
                | '\u{FFF9}'..='\u{FFFB}'
        )
}

/// A text for a page: where it has the escape of such a character, as answers and log lines do, it names the character
/// as pages do, `U+202E`.
pub fn with_names(text: &str) -> Cow<'_, str> {
    const ESCAPE: &str = "\\u{";
    let mut named = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(ESCAPE) {
        let escaped = after.split_once('}').and_then(|(digits, after)| {
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
            char::from_u32(number).filter(|character| is_invisible(*character)).map(|_| (number, after))
        });
        named.push_str(before);
        rest = match escaped {
            Some((number, after)) => {
                named.push_str(&format!("U+{number:04X}"));
                after
            }
            None => {
                named.push_str(ESCAPE);
                after
            }
        };
    }
    match named.is_empty() {
        true => Cow::Borrowed(rest),
        false => Cow::Owned(named + rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_names() {
        for (text, named) in [
            ("", ""),
            ("plain", "plain"),
            ("\\u{202e}", "U+202E"),
            ("a \"x\\u{0}y\\u{200b}\" b", "a \"xU+0000yU+200B\" b"),
            ("\\u{61} \\u{} \\u{202e \\u{110000} \\u{+9}", "\\u{61} \\u{} \\u{202e \\u{110000} \\u{+9}"),
            ("\\u{\\u{feff}", "\\u{U+FEFF"),
        ] {
            assert_eq!(with_names(text), named, "{text}");
        }
    }
}

//! Text for people.

use std::borrow::Cow;

/// The characters that must be escaped so that a text stays on its line and reads as it is: control characters, line
/// separators, marks that reorder text, and all others that leave no mark and take no room, or look like a blank and
/// are none. Variation selectors stay: without them, many emoji and Mongolian letters are others.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{00AD}'
                | '\u{034F}'
                | '\u{061C}'
                | '\u{115F}'..='\u{1160}'
                | '\u{17B4}'..='\u{17B5}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{FEFF}'
                | '\u{FFA0}'
                | '\u{FFF0}'..='\u{FFFB}'
                | '\u{1BCA0}'..='\u{1BCA3}'
                | '\u{1D173}'..='\u{1D17A}'
                | '\u{E0000}'..='\u{E0FFF}'
        )
}

/// The characters of a text, each with whether it is invisible and no part of what people see: joiners make other words
/// and emoji of what they join, and the tags behind a black flag make the flag of a region, such as Wales.
pub fn with_invisible(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    const BLACK_FLAG: char = '\u{1F3F4}';
    let mut in_flag = false;
    text.chars().map(move |character| {
        let is_tag = matches!(character, '\u{E0020}'..='\u{E007F}');
        in_flag = character == BLACK_FLAG || in_flag && is_tag;
        let is_part = in_flag || matches!(character, '\u{200C}' | '\u{200D}');
        (character, is_invisible(character) && !is_part)
    })
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
    fn what_leaves_no_mark_is_told_from_what_makes_another_picture() {
        let hidden = |text: &str| -> String {
            with_invisible(text).filter(|(_, is_invisible)| *is_invisible).map(|(character, _)| character).collect()
        };
        let unseen = "\u{0}\n\u{AD}\u{34F}\u{115F}\u{1160}\u{17B4}\u{17B5}\u{180E}\u{200B}\u{202E}\u{206A}\u{206F}\u{2800}\
                      \u{3164}\u{FEFF}\u{FFA0}\u{FFF0}\u{FFFB}\u{1BCA0}\u{1BCA3}\u{1D173}\u{1D17A}\u{E0001}\u{E0067}\
                      \u{E0100}\u{E0FFF}";
        for unseen in unseen.chars() {
            assert_eq!(hidden(&format!("a{unseen}b")), unseen.to_string(), "{unseen:?}");
        }
        let wales = "\u{1F3F4}\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}";
        for seen in ["a b\u{A0}", "❤\u{FE0F}", "ᠠ\u{180B}\u{180F}", "👩\u{200D}🚀", "ab\u{FFFC}\u{FFFD}", wales]
        {
            assert_eq!(hidden(seen), "", "{seen}");
        }
        // Behind anything else, or after another character, tags are a text that nobody sees.
        assert_eq!(hidden(&format!("{wales}x\u{E0067}👩\u{E0062}")), "\u{E0067}\u{E0062}");
        assert_eq!(hidden("\u{1F3F4}\u{E0001}"), "\u{E0001}");
    }

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

//! Detection of characters that people cannot see.

use std::borrow::Cow;

/// Returns true for characters that must be escaped so that a text stays on its line and is readable: control
/// characters, line separators, bidirectional controls, characters without a glyph, and characters that look like a
/// space. Variation selectors are not escaped, because many emoji and Mongolian letters need them.
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

/// Returns the characters of a text, and whether each one is invisible. Joiners do not count, and neither do the tags
/// that turn a black flag into the flag of a region, such as Wales.
pub fn flag_invisible(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    const BLACK_FLAG: char = '\u{1F3F4}';
    let mut in_flag = false;
    text.chars().map(move |character| {
        let is_tag = matches!(character, '\u{E0020}'..='\u{E007F}');
        in_flag = character == BLACK_FLAG || in_flag && is_tag;
        let is_part = in_flag || matches!(character, '\u{200C}' | '\u{200D}');
        (character, is_invisible(character) && !is_part)
    })
}

/// Replaces escapes of invisible characters (`\u{202e}`) by the form of web pages (`U+202E`).
pub fn format_escapes_as_code_points(text: &str) -> Cow<'_, str> {
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
        let (form, after) = match escaped {
            Some((number, after)) => (format!("U+{number:04X}"), after),
            None => (ESCAPE.to_owned(), after),
        };
        named.push_str(&form);
        rest = after;
    }
    match named.is_empty() {
        true => Cow::Borrowed(rest),
        false => Cow::Owned(named + rest),
    }
}

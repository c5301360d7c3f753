//! Text that is shown to people.

/// Control characters, line separators, marks that reorder text, and the byte order mark: what must be escaped in a
/// text that is to stay on its line and read as it is.
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

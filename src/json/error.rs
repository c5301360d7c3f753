//! Errors of untrusted text that is not a valid entity.

/// The reason why a text is not an entity. Offsets are in bytes, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("an entity must be a JSON object, but this is {found}")]
    NotAnObject {
        /// Type of the value that should be an object, with its article: `an array`, `null`.
        found: &'static str,
    },
    #[error("byte {offset}: invalid UTF-8")]
    NotUtf8 { offset: usize },
    #[error("byte {offset}: expected {expected}, found the end of the text")]
    UnexpectedEnd { offset: usize, expected: &'static str },
    #[error("byte {offset}: expected {expected}, found {found:?}")]
    UnexpectedCharacter { offset: usize, found: char, expected: &'static str },
    #[error("byte {offset}: invalid JSON number")]
    InvalidNumber { offset: usize },
    #[error("byte {offset}: invalid JSON escape")]
    InvalidEscape { offset: usize },
    #[error("byte {offset}: unpaired surrogate")]
    LoneSurrogate { offset: usize },
    #[error("byte {offset}: a control character (0x{byte:02x}) in a string must be escaped")]
    ControlCharacter { offset: usize, byte: u8 },
    #[error("byte {offset}: nested deeper than {limit} levels", limit = super::MAX_NESTING_DEPTH)]
    TooDeep { offset: usize },
    #[error("byte {offset}: text after the end of the object")]
    TrailingText { offset: usize },
}

impl DocumentError {
    pub fn offset(&self) -> Option<usize> {
        match self {
            DocumentError::NotAnObject { .. } => None,
            DocumentError::NotUtf8 { offset }
            | DocumentError::UnexpectedEnd { offset, .. }
            | DocumentError::UnexpectedCharacter { offset, .. }
            | DocumentError::InvalidNumber { offset }
            | DocumentError::InvalidEscape { offset }
            | DocumentError::LoneSurrogate { offset }
            | DocumentError::ControlCharacter { offset, .. }
            | DocumentError::TooDeep { offset }
            | DocumentError::TrailingText { offset } => Some(*offset),
        }
    }

    /// Returns true if the text is not JSON, false if it is JSON but not an entity, and `None` if neither is certain.
    pub fn is_syntax_error(&self) -> Option<bool> {
        match self {
            DocumentError::NotAnObject { .. } => None,
            DocumentError::LoneSurrogate { .. } | DocumentError::TooDeep { .. } => Some(false),
            _ => Some(true),
        }
    }

    pub fn message_without_offset(&self) -> String {
        let text = self.to_string();
        match (self.offset(), text.split_once(": ")) {
            (Some(_), Some((_, problem))) => problem.to_owned(),
            _ => text,
        }
    }
}

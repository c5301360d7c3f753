//! Why a text is not an entity.

/// The error in a JSON text, with the byte at which it is, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is JSON, or begins like it, but not an object.
    #[error("an entity must be a JSON object, but this is {found}")]
    NotAnObject {
        /// What it is, with its article: `an array`, `null`.
        found: &'static str,
    },
    #[error("byte {offset}: invalid UTF-8")]
    NotUtf8 { offset: usize },
    #[error("byte {offset}: expected {expected}, found the end of the text")]
    Ends { offset: usize, expected: &'static str },
    #[error("byte {offset}: expected {expected}, found {found:?}")]
    Unexpected { offset: usize, found: char, expected: &'static str },
    /// A number is not written as JSON writes numbers (`01`, `+1`, `.5`, `1.`).
    #[error("byte {offset}: invalid JSON number")]
    Number { offset: usize },
    #[error("byte {offset}: invalid JSON escape")]
    Escape { offset: usize },
    /// A `\u` escape names half of a surrogate pair.
    #[error("byte {offset}: unpaired surrogate")]
    LoneSurrogate { offset: usize },
    #[error("byte {offset}: a control character (0x{byte:02x}) in a string must be escaped")]
    ControlCharacter { offset: usize, byte: u8 },
    #[error("byte {offset}: nested deeper than {limit} levels", limit = super::MAX_DEPTH)]
    TooDeep { offset: usize },
    #[error("byte {offset}: text after the end of the object")]
    TrailingText { offset: usize },
}

impl DocumentError {
    /// The byte at which it is, from 0; `None` where the text as a whole is no entity.
    pub fn offset(&self) -> Option<usize> {
        match self {
            DocumentError::NotAnObject { .. } => None,
            DocumentError::NotUtf8 { offset }
            | DocumentError::Ends { offset, .. }
            | DocumentError::Unexpected { offset, .. }
            | DocumentError::Number { offset }
            | DocumentError::Escape { offset }
            | DocumentError::LoneSurrogate { offset }
            | DocumentError::ControlCharacter { offset, .. }
            | DocumentError::TooDeep { offset }
            | DocumentError::TrailingText { offset } => Some(*offset),
        }
    }

    /// Whether the text is no JSON at all, not JSON that no entity may be; unknown where all that is known is that it
    /// is no object.
    pub fn is_not_json(&self) -> Option<bool> {
        match self {
            DocumentError::NotAnObject { .. } => None,
            // JSON's grammar allows both.
            DocumentError::LoneSurrogate { .. } | DocumentError::TooDeep { .. } => Some(false),
            DocumentError::NotUtf8 { .. }
            | DocumentError::Ends { .. }
            | DocumentError::Unexpected { .. }
            | DocumentError::Number { .. }
            | DocumentError::Escape { .. }
            | DocumentError::ControlCharacter { .. }
            | DocumentError::TrailingText { .. } => Some(true),
        }
    }

    /// What is wrong, without the byte at which it is.
    pub fn problem(&self) -> String {
        let text = self.to_string();
        match (self.offset(), text.split_once(": ")) {
            (Some(_), Some((_, problem))) => problem.to_owned(),
            _ => text,
        }
    }
}

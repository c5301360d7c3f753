//! Paths into an entity, such as `stock.berlin` or `a\.b`, and lists of paths.
//!
//! A path is split at `.`. A backslash before `.`, `,`, `:`, `\`, a space, or a tab makes this character part of a key.
//! Any other backslash is literal (docs/reference/paths-and-values.md, Paths).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The keys from the top of an entity to a value. Serializes as a list of keys.
///
/// - There is at least one key. A single key is not empty, because it could not be written. `a..b` is valid.
/// - [`Display`](fmt::Display) writes the escaped form, which parses to an equal path, even within a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct FieldPath(Vec<String>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    #[error("the path is empty: it must name a field, such as `name` or `stock.berlin`")]
    Empty,
    #[error("the colon is missing: use the form `path:value`, with `\\:` for a colon in a field name")]
    MissingColon,
}

impl FieldPath {
    /// Parses one path. Commas, colons, and spaces can be escaped, but do not have to be.
    pub fn parse(text: &str) -> Result<FieldPath, FieldPathError> {
        FieldPath::from_characters(unescape_characters(text))
    }

    pub fn is_nested_path(text: &str) -> bool {
        FieldPath::parse(text).is_ok_and(|path| path.keys().len() > 1)
    }

    /// Parses a comma-separated list. Ignores empty items, and unescaped spaces and tabs around items.
    pub fn parse_list(text: &str) -> Vec<FieldPath> {
        let characters: Vec<PathCharacter> = unescape_characters(text).collect();
        characters
            .split(|character| character.is_unescaped(','))
            .filter_map(|item| FieldPath::from_characters(trim_unescaped(item).iter().copied()).ok())
            .collect()
    }

    /// Formats a list that [`FieldPath::parse_list`] parses to the same paths.
    pub fn format_list(paths: &[FieldPath]) -> String {
        paths.iter().map(FieldPath::to_string).collect::<Vec<_>>().join(",")
    }

    /// Splits `path:value` at the first unescaped colon. The value is not unescaped.
    pub fn parse_path_value(text: &str) -> Result<(FieldPath, &str), FieldPathError> {
        let colon = unescape_characters(text)
            .find(|character| character.is_unescaped(':'))
            .ok_or(FieldPathError::MissingColon)?;
        let path = FieldPath::parse(&text[..colon.offset])?;
        Ok((path, &text[colon.offset + 1..]))
    }

    /// Creates a path from keys, outermost first. Returns [`FieldPathError::Empty`] for no key, or for one empty key.
    pub fn from_keys<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Result<FieldPath, FieldPathError> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        match keys.as_slice() {
            [] => Err(FieldPathError::Empty),
            [only] if only.is_empty() => Err(FieldPathError::Empty),
            _ => Ok(FieldPath(keys)),
        }
    }

    pub fn keys(&self) -> &[String] {
        &self.0
    }

    fn from_characters(characters: impl Iterator<Item = PathCharacter>) -> Result<FieldPath, FieldPathError> {
        let mut keys = vec![String::new()];
        for character in characters {
            if character.is_unescaped('.') {
                keys.push(String::new());
            } else if let Some(key) = keys.last_mut() {
                key.push(character.value);
            }
        }
        FieldPath::from_keys(keys)
    }
}

impl TryFrom<Vec<String>> for FieldPath {
    type Error = FieldPathError;

    fn try_from(keys: Vec<String>) -> Result<FieldPath, FieldPathError> {
        FieldPath::from_keys(keys)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;

        let last_key = self.0.len() - 1;
        for (number, key) in self.0.iter().enumerate() {
            if number > 0 {
                formatter.write_char('.')?;
            }
            for (offset, character) in key.char_indices() {
                let first = number == 0 && offset == 0;
                let last = number == last_key && offset + character.len_utf8() == key.len();
                // Parsing a list of paths trims only the ends of its items, so spaces within an item need no escape.
                let escape = match character {
                    '.' | ',' | ':' | '\\' => true,
                    ' ' | '\t' => first || last,
                    _ => false,
                };
                if escape {
                    formatter.write_char('\\')?;
                }
                formatter.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct PathCharacter {
    offset: usize,
    value: char,
    escaped: bool,
}

impl PathCharacter {
    fn is_unescaped(self, value: char) -> bool {
        !self.escaped && self.value == value
    }
}

fn unescape_characters(text: &str) -> impl Iterator<Item = PathCharacter> + '_ {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (offset, value) = rest.next()?;
        if value == '\\' {
            let escapable = |next: &(usize, char)| matches!(next.1, '.' | ',' | ':' | '\\' | ' ' | '\t');
            if let Some((_, value)) = rest.next_if(escapable) {
                return Some(PathCharacter { offset, value, escaped: true });
            }
        }
        Some(PathCharacter { offset, value, escaped: false })
    })
}

fn trim_unescaped(item: &[PathCharacter]) -> &[PathCharacter] {
    let is_text = |character: &PathCharacter| !character.is_unescaped(' ') && !character.is_unescaped('\t');
    let start = item.iter().position(is_text).unwrap_or(item.len());
    let end = item.iter().rposition(is_text).map_or(start, |last| last + 1);
    &item[start..end]
}

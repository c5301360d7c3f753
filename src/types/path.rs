//! Paths into an entity: `stock.berlin`, `a\.b`, and lists of them.
//!
//! A path is text split at `.`. A backslash before `.` `,` `:` `\` or a blank makes that character part of a key. Any
//! other backslash stands for itself (docs/reference/paths-and-values.md, Paths). A blank is a space or a tab.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path: the keys from the top of an entity inwards.
///
/// - There is at least one key.
/// - It can be written. A single empty key has no spelling, so it is no path. An empty key among others (`a..b`) is
///   valid.
/// - [`Display`](fmt::Display) writes the escaped form, which parses to an equal path, alone and in a list.
///
/// As data it is the list of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct Path(Vec<String>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty: it must name a field, such as `name` or `stock.berlin`")]
    Empty,
    /// A `path:value` has no unescaped colon.
    #[error("the colon is missing: use the form `path:value`, with `\\:` for a colon in a field name")]
    NoColon,
}

impl Path {
    /// Parses one path. Commas, colons and blanks need no escape here, but may have one.
    pub fn parse(text: &str) -> Result<Path, PathError> {
        Path::from_characters(characters(text))
    }

    /// Whether a text is a path that leads below the top level.
    pub fn is_deep(text: &str) -> bool {
        Path::parse(text).is_ok_and(|path| path.keys().len() > 1)
    }

    /// Parses a comma-separated list, perhaps of nothing. Unescaped blanks around items and empty items are dropped.
    pub fn parse_list(text: &str) -> Vec<Path> {
        let characters: Vec<Character> = characters(text).collect();
        characters
            .split(|character| character.is_plain(','))
            .filter_map(|item| Path::from_characters(trim(item).iter().copied()).ok())
            .collect()
    }

    /// A list that [`Path::parse_list`] parses to these paths.
    pub fn list(paths: &[Path]) -> String {
        paths.iter().map(Path::to_string).collect::<Vec<_>>().join(",")
    }

    /// Splits `path:value` at the first unescaped colon. The value is everything after it, as it stands.
    pub fn parse_prefix(text: &str) -> Result<(Path, &str), PathError> {
        let colon = characters(text).find(|character| character.is_plain(':')).ok_or(PathError::NoColon)?;
        let path = Path::parse(&text[..colon.offset])?;
        Ok((path, &text[colon.offset + 1..]))
    }

    /// The path with these keys, outermost first; [`PathError::Empty`] for no key and for the lone empty key.
    pub fn from_keys<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Result<Path, PathError> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        match keys.as_slice() {
            [] => Err(PathError::Empty),
            [only] if only.is_empty() => Err(PathError::Empty),
            _ => Ok(Path(keys)),
        }
    }

    /// The keys, outermost first; at least one.
    pub fn keys(&self) -> &[String] {
        &self.0
    }

    fn from_characters(characters: impl Iterator<Item = Character>) -> Result<Path, PathError> {
        let mut keys = vec![String::new()];
        for character in characters {
            if character.is_plain('.') {
                keys.push(String::new());
            } else if let Some(key) = keys.last_mut() {
                key.push(character.value);
            }
        }
        Path::from_keys(keys)
    }
}

impl TryFrom<Vec<String>> for Path {
    type Error = PathError;

    fn try_from(keys: Vec<String>) -> Result<Path, PathError> {
        Path::from_keys(keys)
    }
}

impl From<Path> for Vec<String> {
    fn from(path: Path) -> Vec<String> {
        path.0
    }
}

impl fmt::Display for Path {
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
                // A list trims only blanks at the ends, so inner blanks need no escape.
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

/// One character of a path's text, its escape resolved.
#[derive(Clone, Copy)]
struct Character {
    /// Where its spelling starts, in bytes.
    offset: usize,
    value: char,
    escaped: bool,
}

impl Character {
    /// Whether this is `value` with its special meaning.
    fn is_plain(self, value: char) -> bool {
        !self.escaped && self.value == value
    }
}

fn characters(text: &str) -> impl Iterator<Item = Character> + '_ {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (offset, value) = rest.next()?;
        if value == '\\' {
            let escapable = |next: &(usize, char)| matches!(next.1, '.' | ',' | ':' | '\\' | ' ' | '\t');
            if let Some((_, value)) = rest.next_if(escapable) {
                return Some(Character { offset, value, escaped: true });
            }
        }
        Some(Character { offset, value, escaped: false })
    })
}

/// `item` without the unescaped blanks at its ends.
fn trim(item: &[Character]) -> &[Character] {
    let is_text = |character: &Character| !character.is_plain(' ') && !character.is_plain('\t');
    let start = item.iter().position(is_text).unwrap_or(item.len());
    let end = item.iter().rposition(is_text).map_or(start, |last| last + 1);
    &item[start..end]
}

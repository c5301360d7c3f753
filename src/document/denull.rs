//! Removes nulls and empty strings (docs/semantics.md, denull).

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType};

/// Appends the entity without the nulls and empty strings in its objects and arrays, at every depth. An array that
/// becomes empty is removed too, from the inside out. An array that came empty stays. So does every object, also the
/// entity itself.
///
/// An entity without any is copied at once.
pub fn denull(document: &[u8], out: &mut Vec<u8>) {
    out.reserve(document.len());
    // Either may stand inside a string. The slow way then finds nothing to remove.
    let may_change =
        memchr::memmem::find(document, b"null").is_some() || memchr::memmem::find(document, b"\"\"").is_some();
    if !may_change || !write_value(&mut Cursor::new(document), 1, out) {
        out.extend_from_slice(document);
    }
}

/// Appends what is left of the value that comes next, at level `depth`, and says whether anything is.
fn write_value(cursor: &mut Cursor<'_>, depth: usize, out: &mut Vec<u8>) -> bool {
    match cursor.peek() {
        Some(JsonType::Object) if depth <= MAX_DEPTH => write_object(cursor, depth, out),
        Some(JsonType::Array) if depth <= MAX_DEPTH => return write_array(cursor, depth, out),
        _ => {
            let value = cursor.skip_value();
            if value == b"null" || value == b"\"\"" {
                return false;
            }
            out.extend_from_slice(value);
        }
    }
    true
}

fn write_object(cursor: &mut Cursor<'_>, depth: usize, out: &mut Vec<u8>) {
    cursor.enter();
    out.push(b'{');
    let first = out.len();
    while let Some(key) = cursor.next_key() {
        let before = out.len();
        if before > first {
            out.push(b',');
        }
        out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
        if !write_value(cursor, depth + 1, out) {
            out.truncate(before);
        }
    }
    out.push(b'}');
}

fn write_array(cursor: &mut Cursor<'_>, depth: usize, out: &mut Vec<u8>) -> bool {
    cursor.enter();
    let start = out.len();
    out.push(b'[');
    let first = out.len();
    let mut came_empty = true;
    while cursor.next_element() {
        came_empty = false;
        let before = out.len();
        if before > first {
            out.push(b',');
        }
        if !write_value(cursor, depth + 1, out) {
            out.truncate(before);
        }
    }
    if out.len() == first && !came_empty {
        out.truncate(start);
        return false;
    }
    out.push(b']');
    true
}

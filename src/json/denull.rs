//! Removes nulls and empty strings (docs/reference/select-fields.md, denull).

use super::cursor::Cursor;
use super::rewrite::{Rules, write_rest};
use super::text::Text;

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
    if !may_change || !write_rest(&mut Cursor::new(document), Denull, 1, out) {
        out.extend_from_slice(document);
    }
}

#[derive(Clone, Copy)]
struct Denull;

impl Rules for Denull {
    const REMOVES_EMPTIED_ARRAYS: bool = true;

    fn member(self, _: Text<'_>) -> Option<Denull> {
        Some(self)
    }

    fn keeps(self, value: &[u8]) -> bool {
        value != b"null" && value != b"\"\""
    }
}

//! Removes nulls and empty strings (docs/reference/select-fields.md, denull).

use super::cursor::JsonCursor;
use super::json_str::JsonStr;
use super::rewrite::{RewriteRules, write_rewritten};

/// Appends the entity without the nulls and empty strings in its objects and arrays, at every depth. An array that
/// becomes empty is removed, too, from the inside out. Arrays that were empty before and all objects remain.
pub fn remove_nulls(document: &[u8], out: &mut Vec<u8>) {
    out.reserve(document.len());
    let may_change =
        memchr::memmem::find(document, b"null").is_some() || memchr::memmem::find(document, b"\"\"").is_some();
    if !may_change || !write_rewritten(&mut JsonCursor::new(document), RemoveNullsRules, 1, out) {
        out.extend_from_slice(document);
    }
}

#[derive(Clone, Copy)]
struct RemoveNullsRules;

impl RewriteRules for RemoveNullsRules {
    const REMOVE_EMPTIED_ARRAYS: bool = true;

    fn for_member(self, _: JsonStr<'_>) -> Option<RemoveNullsRules> {
        Some(self)
    }

    fn can_keep(self, value: &[u8]) -> bool {
        value != b"null" && value != b"\"\""
    }
}

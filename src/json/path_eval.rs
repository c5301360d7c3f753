//! Evaluates one path on an entity (docs/reference/paths-and-values.md, Paths), and skips all other values.
//!
//! A key selects a member of an object. On an array, the key applies to every element, including the elements of nested
//! arrays. Keys do not repeat in an object, so the rest of an object is skipped after a match.

use std::ops::ControlFlow;

use strata_types::field_path::FieldPath;

use super::MAX_NESTING_DEPTH;
use super::cursor::{JsonCursor, JsonScalar, JsonType};
use super::json_str::JsonStr;

/// Calls `visit` with every scalar at `path`, in document order, until it breaks. A path to an array visits its
/// elements, including the elements of nested arrays. A path to an object visits nothing.
pub fn visit_scalars_at<'a>(
    document: &'a [u8],
    path: &FieldPath,
    mut visit: impl FnMut(JsonScalar<'a>) -> ControlFlow<()>,
) {
    let _ = visit_matches(document, path, &mut |cursor| visit_nested_scalars(cursor, &mut visit));
}

/// Calls `visit` with the text of every value at `path`, in document order, until it breaks. An object or an array at
/// the end of the path is one value (docs/reference/sort-and-dedup.md, dedup).
pub fn visit_values_at<'a>(document: &'a [u8], path: &FieldPath, mut visit: impl FnMut(&'a [u8]) -> ControlFlow<()>) {
    let _ = visit_matches(document, path, &mut |cursor| visit(cursor.skip_value()));
}

/// Calls `visit` with every scalar at any depth, in document order, until it breaks.
pub fn visit_all_scalars<'a>(document: &'a [u8], mut visit: impl FnMut(JsonScalar<'a>) -> ControlFlow<()>) {
    for token in JsonCursor::new(document) {
        if let Some(scalar) = token.as_scalar()
            && visit(scalar).is_break()
        {
            return;
        }
    }
}

pub fn find_member<'a>(document: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut cursor = JsonCursor::new(document);
    cursor.enter();
    seek_key(&mut cursor, key).then(|| cursor.skip_value())
}

/// Iterates over the top-level members and the text of their values, in document order.
pub fn members(document: &[u8]) -> impl Iterator<Item = (JsonStr<'_>, &[u8])> {
    let mut cursor = JsonCursor::new(document);
    cursor.enter();
    std::iter::from_fn(move || {
        let key = cursor.next_key()?;
        Some((key, cursor.skip_value()))
    })
}

fn visit_matches<'a>(
    document: &'a [u8],
    path: &FieldPath,
    visit: &mut impl FnMut(&mut JsonCursor<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut cursor = JsonCursor::new(document);
    cursor.enter();
    match path.keys() {
        [first, rest @ ..] if seek_key(&mut cursor, first) => visit_matches_inside(&mut cursor, rest, 2, visit),
        _ => ControlFlow::Continue(()),
    }
}

/// Like [`visit_matches`], but for the next value of the cursor. An object or array is at nesting level `depth`.
fn visit_matches_inside<'a>(
    cursor: &mut JsonCursor<'a>,
    keys: &[String],
    depth: usize,
    visit: &mut impl FnMut(&mut JsonCursor<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let [first, rest @ ..] = keys else { return visit(cursor) };
    match cursor.peek_type() {
        Some(JsonType::Object) if depth <= MAX_NESTING_DEPTH => {
            cursor.enter();
            if seek_key(cursor, first) {
                visit_matches_inside(cursor, rest, depth + 1, visit)?;
                cursor.leave();
            }
        }
        Some(JsonType::Array) if depth <= MAX_NESTING_DEPTH => {
            cursor.enter();
            while cursor.next_element() {
                visit_matches_inside(cursor, keys, depth + 1, visit)?;
            }
        }
        _ => {
            cursor.skip_value();
        }
    }
    ControlFlow::Continue(())
}

pub(super) fn visit_nested_scalars<'a>(
    cursor: &mut JsonCursor<'a>,
    visit: &mut impl FnMut(JsonScalar<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // The depth of nested arrays is counted without recursion, so that no text can exhaust the stack.
    let mut depth = 0;
    loop {
        if depth > 0 && !cursor.next_element() {
            depth -= 1;
        } else if cursor.peek_type() == Some(JsonType::Array) {
            cursor.enter();
            depth += 1;
        } else if let Some(scalar) = next_scalar_or_skip(cursor) {
            visit(scalar)?;
        }
        if depth == 0 {
            return ControlFlow::Continue(());
        }
    }
}

#[inline]
pub(super) fn next_scalar_or_skip<'a>(cursor: &mut JsonCursor<'a>) -> Option<JsonScalar<'a>> {
    let scalar = cursor.next_scalar();
    if scalar.is_none() {
        cursor.skip_value();
    }
    scalar
}

/// Moves to the value of the member `key` in the current object. If there is none, leaves the object and returns false.
#[inline]
fn seek_key(cursor: &mut JsonCursor<'_>, key: &str) -> bool {
    while let Some(candidate) = cursor.next_key() {
        if candidate.eq_str(key) {
            return true;
        }
        cursor.skip_value();
    }
    false
}

//! Finds the values that a path reaches in an entity (docs/reference/paths-and-values.md, Paths), and skips everything
//! else.
//!
//! A key applied to an object takes that member. Applied to an array, it is applied to every element, also of nested
//! arrays. Applied to a scalar, it finds nothing. Keys do not repeat in an object. So after a found member, the rest of
//! an object is skipped at once, and at the top it is not read.

use std::ops::ControlFlow;

use strata_types::path::Path;

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType, Scalar};
use super::text::Text;

/// Calls `visit` with every scalar that `path` reaches, in document order, until it breaks. A path that ends in an
/// array fans out over its elements, also of nested arrays. A path that ends in an object reaches no scalar.
pub fn reach<'a>(document: &'a [u8], path: &Path, mut visit: impl FnMut(Scalar<'a>) -> ControlFlow<()>) {
    let _ = search(document, path, &mut |cursor| fan_out(cursor, &mut visit));
}

/// Calls `visit` with the text of every value that `path` reaches, in document order, until it breaks. An object or an
/// array at the end of the path is one value (docs/reference/sort-and-dedup.md, dedup).
pub fn reach_values<'a>(document: &'a [u8], path: &Path, mut visit: impl FnMut(&'a [u8]) -> ControlFlow<()>) {
    let _ = search(document, path, &mut |cursor| visit(cursor.skip_value()));
}

/// Calls `visit` with every scalar at any depth, in document order, until it breaks.
pub fn scalars<'a>(document: &'a [u8], mut visit: impl FnMut(Scalar<'a>) -> ControlFlow<()>) {
    for token in Cursor::new(document) {
        if let Some(scalar) = token.scalar()
            && visit(scalar).is_break()
        {
            return;
        }
    }
}

/// The text of the value of a top-level member, if there is one of that name.
pub fn member<'a>(document: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut cursor = Cursor::new(document);
    cursor.enter();
    find_key(&mut cursor, key).then(|| cursor.skip_value())
}

/// The top-level members of an entity, each with the text of its value, in document order.
pub fn members(document: &[u8]) -> impl Iterator<Item = (Text<'_>, &[u8])> {
    let mut cursor = Cursor::new(document);
    cursor.enter();
    std::iter::from_fn(move || {
        let key = cursor.next_key()?;
        Some((key, cursor.skip_value()))
    })
}

/// Calls `found` with a cursor before every value that `path` reaches in the entity.
fn search<'a>(
    document: &'a [u8],
    path: &Path,
    found: &mut impl FnMut(&mut Cursor<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut cursor = Cursor::new(document);
    let [first, rest @ ..] = path.keys() else { return ControlFlow::Continue(()) };
    cursor.enter();
    if find_key(&mut cursor, first) { descend(&mut cursor, rest, 2, found) } else { ControlFlow::Continue(()) }
}

/// The same for the value that comes next, at level `depth` if it has one. Steps over that value.
fn descend<'a>(
    cursor: &mut Cursor<'a>,
    keys: &[String],
    depth: usize,
    found: &mut impl FnMut(&mut Cursor<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let [first, rest @ ..] = keys else { return found(cursor) };
    match cursor.peek() {
        Some(JsonType::Object) if depth <= MAX_DEPTH => {
            cursor.enter();
            if find_key(cursor, first) {
                descend(cursor, rest, depth + 1, found)?;
                cursor.leave();
            }
        }
        Some(JsonType::Array) if depth <= MAX_DEPTH => {
            cursor.enter();
            while cursor.next_element() {
                descend(cursor, keys, depth + 1, found)?;
            }
        }
        _ => {
            cursor.skip_value();
        }
    }
    ControlFlow::Continue(())
}

/// Visits the scalars of the value that comes next: itself, or those of an array at any nesting.
pub(super) fn fan_out<'a>(
    cursor: &mut Cursor<'a>,
    visit: &mut impl FnMut(Scalar<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match cursor.peek() {
        Some(JsonType::Array) => {
            cursor.enter();
            // Nested arrays are told apart by counting, which bounds the stack over any text.
            let mut depth = 1;
            while depth > 0 {
                if !cursor.next_element() {
                    depth -= 1;
                } else if cursor.peek() == Some(JsonType::Array) {
                    cursor.enter();
                    depth += 1;
                } else if let Some(scalar) = scalar_or_skip(cursor) {
                    visit(scalar)?;
                }
            }
        }
        _ => {
            if let Some(scalar) = scalar_or_skip(cursor) {
                visit(scalar)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Steps over the value that comes next, and returns it if it is a scalar.
#[inline]
pub(super) fn scalar_or_skip<'a>(cursor: &mut Cursor<'a>) -> Option<Scalar<'a>> {
    let scalar = cursor.next_scalar();
    if scalar.is_none() {
        cursor.skip_value();
    }
    scalar
}

/// Inside an object: returns whether there is a member of that name; its value then comes next. If not, steps out.
#[inline]
fn find_key(cursor: &mut Cursor<'_>, key: &str) -> bool {
    while let Some(found) = cursor.next_key() {
        if found.eq_str(key) {
            return true;
        }
        cursor.skip_value();
    }
    false
}

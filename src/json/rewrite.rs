//! Removes members and values from an entity in one pass. The key order is unchanged, and empty objects remain.

use super::MAX_NESTING_DEPTH;
use super::cursor::{JsonCursor, JsonType};
use super::json_str::JsonStr;

pub(super) trait RewriteRules: Copy {
    /// Whether an array is removed if the array loses all of its elements.
    const REMOVE_EMPTIED_ARRAYS: bool = false;

    /// Returns the rules for the value of the member `key`, or `None` to remove the member.
    fn for_member(self, key: JsonStr<'_>) -> Option<Self>;

    /// Returns the maximum number of members that an object can keep. The walk ends after the last one.
    fn max_members(self) -> usize {
        usize::MAX
    }

    /// Returns whether a scalar or another value that is copied as a whole remains.
    fn can_keep(self, value: &[u8]) -> bool;

    fn is_identity(self) -> bool {
        false
    }
}

/// Appends the parts of the next value, at nesting level `depth`, that the rules keep. Returns false if none remain.
pub(super) fn write_rewritten<R: RewriteRules>(
    cursor: &mut JsonCursor<'_>,
    rules: R,
    depth: usize,
    out: &mut Vec<u8>,
) -> bool {
    let json_type = if depth > MAX_NESTING_DEPTH || rules.is_identity() { None } else { cursor.peek_type() };
    let start = out.len();
    match json_type {
        Some(JsonType::Object) => {
            cursor.enter();
            out.push(b'{');
            let mut remaining = rules.max_members();
            while let Some(key) = cursor.next_key() {
                let Some(rules) = rules.for_member(key) else {
                    cursor.skip_value();
                    continue;
                };
                let before = out.len();
                if before > start + 1 {
                    out.push(b',');
                }
                out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
                if !write_rewritten(cursor, rules, depth + 1, out) {
                    out.truncate(before);
                }
                remaining -= 1;
                if remaining == 0 {
                    // The rest of the top-level object need not be skipped, because nothing follows the object.
                    if depth > 1 {
                        cursor.leave();
                    }
                    break;
                }
            }
            out.push(b'}');
        }
        Some(JsonType::Array) => {
            cursor.enter();
            out.push(b'[');
            let mut was_empty = true;
            while cursor.next_element() {
                was_empty = false;
                let before = out.len();
                if before > start + 1 {
                    out.push(b',');
                }
                if !write_rewritten(cursor, rules, depth + 1, out) {
                    out.truncate(before);
                }
            }
            if R::REMOVE_EMPTIED_ARRAYS && out.len() == start + 1 && !was_empty {
                out.truncate(start);
                return false;
            }
            out.push(b']');
        }
        _ => {
            let value = cursor.skip_value();
            if !rules.can_keep(value) {
                return false;
            }
            out.extend_from_slice(value);
        }
    }
    true
}

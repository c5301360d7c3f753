//! Writes what rules leave of an entity, in one pass. Key order stays, and so does every object that becomes empty.

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType};
use super::text::Text;

/// The rules for one value.
pub(super) trait Rules: Copy {
    /// Whether an array is removed that loses all of its elements.
    const REMOVES_EMPTIED_ARRAYS: bool = false;

    /// The rules for the value of this member; `None` removes the member.
    fn member(self, key: Text<'_>) -> Option<Self>;

    /// How many members of an object can stay at most. The walk ends at the last of them.
    fn max_members(self) -> usize {
        usize::MAX
    }

    /// Whether a value without members and elements stays.
    fn keeps(self, value: &[u8]) -> bool;

    /// Whether any value stays unchanged.
    fn change_nothing(self) -> bool {
        false
    }
}

/// Appends the rest of the next value, at level `depth`, and returns whether there is any.
pub(super) fn write_rest<R: Rules>(cursor: &mut Cursor<'_>, rules: R, depth: usize, out: &mut Vec<u8>) -> bool {
    let json_type = if depth > MAX_DEPTH || rules.change_nothing() { None } else { cursor.peek() };
    let start = out.len();
    match json_type {
        Some(JsonType::Object) => {
            cursor.enter();
            out.push(b'{');
            let mut left = rules.max_members();
            while let Some(key) = cursor.next_key() {
                let Some(rules) = rules.member(key) else {
                    cursor.skip_value();
                    continue;
                };
                let before = out.len();
                if before > start + 1 {
                    out.push(b',');
                }
                out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
                if !write_rest(cursor, rules, depth + 1, out) {
                    out.truncate(before);
                }
                left -= 1;
                if left == 0 {
                    // Nothing comes after the entity.
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
                if !write_rest(cursor, rules, depth + 1, out) {
                    out.truncate(before);
                }
            }
            if R::REMOVES_EMPTIED_ARRAYS && out.len() == start + 1 && !was_empty {
                out.truncate(start);
                return false;
            }
            out.push(b']');
        }
        _ => {
            let value = cursor.skip_value();
            if !rules.keeps(value) {
                return false;
            }
            out.extend_from_slice(value);
        }
    }
    true
}

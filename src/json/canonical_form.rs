//! A form of JSON values that is equal exactly if the values are equal: objects regardless of key order, numbers by
//! value, and strings exactly (docs/reference/sort-and-dedup.md, dedup).
//!
//! The form is canonical text with the members of each object in the order of their keys' bytes, and with each number
//! in the unique form of [`NumericValue`]: `{"b":1.0,"a":2}` becomes `{"a":2,"b":1}`. One pass writes the members in
//! input order, and sorts them when the object closes if they are out of order.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::MAX_NESTING_DEPTH;
use super::cursor::{JsonCursor, JsonType};
use super::number::NumericValue;

/// The first bytes of a SHA-256. Two values that differ have equal hashes with a probability of 2⁻¹²⁸.
pub type EntityHash = [u8; 16];

pub fn truncate_sha256(hash: Sha256) -> EntityHash {
    let hash: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|index| hash[index])
}

/// Writes the canonical forms of JSON values. The buffers are reused between values.
#[derive(Debug, Default)]
pub struct CanonicalFormWriter {
    form: Vec<u8>,
    /// The members of all open objects, outermost first.
    members: Vec<SortableMember>,
    sort_buffer: Vec<u8>,
}

/// The position of a member in the output. The quoted key ends before the colon, at `key_end`.
#[derive(Clone, Copy, Debug)]
struct SortableMember {
    prefix: u64,
    start: usize,
    key_end: usize,
    end: usize,
}

impl SortableMember {
    #[inline]
    fn compare_keys(&self, other: &SortableMember, out: &[u8]) -> Ordering {
        let key = |member: &SortableMember| &out[member.start..member.key_end];
        self.prefix.cmp(&other.prefix).then_with(|| key(self).cmp(key(other)))
    }
}

/// Returns the first eight bytes of `text` as a number that has the same order as the bytes.
#[inline]
pub fn sortable_prefix(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

impl CanonicalFormWriter {
    pub fn write(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.members.clear();
        self.write_value(&mut JsonCursor::new(value), 1, None, out);
    }

    /// Returns the hash of an entity's canonical form without the top-level `_source`. Used by `dedup` and diffs.
    pub fn hash_without_source_field(&mut self, document: &[u8]) -> EntityHash {
        let mut form = std::mem::take(&mut self.form);
        form.clear();
        self.members.clear();
        self.write_value(&mut JsonCursor::new(document), 1, Some("_source"), &mut form);
        let hash = truncate_sha256(Sha256::new_with_prefix(&form));
        self.form = form;
        hash
    }

    /// Appends the canonical form of the next value, at nesting level `depth`. Omits the object member `skip_key`.
    fn write_value(&mut self, cursor: &mut JsonCursor<'_>, depth: usize, skip_key: Option<&str>, out: &mut Vec<u8>) {
        match cursor.peek_type() {
            Some(JsonType::Object) if depth <= MAX_NESTING_DEPTH => self.write_object(cursor, depth, skip_key, out),
            Some(JsonType::Array) if depth <= MAX_NESTING_DEPTH => {
                cursor.enter();
                out.push(b'[');
                let first = out.len();
                while cursor.next_element() {
                    if out.len() > first {
                        out.push(b',');
                    }
                    self.write_value(cursor, depth + 1, None, out);
                }
                out.push(b']');
            }
            Some(JsonType::Number) => write_number(cursor.skip_value(), out),
            _ => out.extend_from_slice(cursor.skip_value()),
        }
    }

    fn write_object(&mut self, cursor: &mut JsonCursor<'_>, depth: usize, skip_key: Option<&str>, out: &mut Vec<u8>) {
        let first_member = self.members.len();
        cursor.enter();
        out.push(b'{');
        let first = out.len();
        let mut in_order = true;
        while let Some(key) = cursor.next_key() {
            if skip_key.is_some_and(|skip_key| key.eq_str(skip_key)) {
                cursor.skip_value();
                continue;
            }
            if out.len() > first {
                out.push(b',');
            }
            let start = out.len();
            out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
            let key_end = out.len() - 1;
            let member = SortableMember { prefix: sortable_prefix(key.raw()), start, key_end, end: key_end };
            if let [.., last] = &self.members[first_member..] {
                in_order &= last.compare_keys(&member, out).is_lt();
            }
            self.members.push(member);
            self.write_value(cursor, depth + 1, None, out);
            if let Some(member) = self.members.last_mut() {
                member.end = out.len();
            }
        }
        if !in_order {
            self.sort_members(first_member, first, out);
        }
        self.members.truncate(first_member);
        out.push(b'}');
    }

    /// Sorts an object's members, which are `members` from index `first_member`. Their text in `out` starts at `first`.
    fn sort_members(&mut self, first_member: usize, first: usize, out: &mut Vec<u8>) {
        let members = &mut self.members[first_member..];
        members.sort_unstable_by(|left, right| left.compare_keys(right, out));
        self.sort_buffer.clear();
        for (number, member) in members.iter().enumerate() {
            if number > 0 {
                self.sort_buffer.push(b',');
            }
            self.sort_buffer.extend_from_slice(&out[member.start..member.end]);
        }
        out.truncate(first);
        out.extend_from_slice(&self.sort_buffer);
    }
}

fn write_number(text: &[u8], out: &mut Vec<u8>) {
    // An integer of up to 18 characters fits 64 bits, so its canonical form is its digits. Only zero has two spellings.
    if text.len() <= 18 && text != b"-0" && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        out.extend_from_slice(text);
        return;
    }
    match std::str::from_utf8(text).ok().and_then(NumericValue::parse) {
        Some(value) => value.write_canonical(out),
        None => out.extend_from_slice(text),
    }
}

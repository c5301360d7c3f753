//! Bytes that are equal exactly when two JSON values are (docs/reference/sort-and-dedup.md, dedup): objects whatever
//! the order of their keys, numbers by numeric value, strings exactly.
//!
//! The form is the canonical text with the members of every object in the order of their keys' bytes, and with each
//! number in the one form of its value ([`NumericValue`]). It is made in one pass. An object's members are written as
//! they come. If they are out of order, they are sorted when the object closes.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType};
use super::number::NumericValue;

/// Writes canonical forms, with working memory that is kept from one value to the next.
#[derive(Debug, Default)]
pub struct CanonicalForm {
    form: Vec<u8>,
    /// The members so far of the objects that are open, outermost first.
    members: Vec<MemberSpan>,
    ordered: Vec<u8>,
}

/// Where a member stands in the output. Its key, in quotes, ends before the colon at `key_end`.
#[derive(Clone, Copy, Debug)]
struct MemberSpan {
    /// The first bytes of the key, which order most keys.
    prefix: u64,
    start: usize,
    key_end: usize,
    end: usize,
}

impl MemberSpan {
    #[inline]
    fn compare(&self, other: &MemberSpan, out: &[u8]) -> Ordering {
        let key = |member: &MemberSpan| &out[member.start..member.key_end];
        self.prefix.cmp(&other.prefix).then_with(|| key(self).cmp(key(other)))
    }
}

/// The first eight bytes of a text as a number that orders as they do.
#[inline]
pub fn prefix(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

impl CanonicalForm {
    pub fn write(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.members.clear();
        self.value(&mut Cursor::new(value), 1, None, out);
    }

    /// The SHA-256 of an entity's canonical form without its top-level `_source`. It is the key of `dedup`, and a diff
    /// compares it first.
    pub fn hash(&mut self, document: &[u8]) -> [u8; 32] {
        let mut form = std::mem::take(&mut self.form);
        form.clear();
        self.members.clear();
        self.value(&mut Cursor::new(document), 1, Some("_source"), &mut form);
        let hash = Sha256::digest(&form).into();
        self.form = form;
        hash
    }

    /// Appends the form of the value that comes next, at level `depth`; of an object without the member `except`.
    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize, except: Option<&str>, out: &mut Vec<u8>) {
        match cursor.peek() {
            Some(JsonType::Object) if depth <= MAX_DEPTH => self.object(cursor, depth, except, out),
            Some(JsonType::Array) if depth <= MAX_DEPTH => {
                cursor.enter();
                out.push(b'[');
                let first = out.len();
                while cursor.next_element() {
                    if out.len() > first {
                        out.push(b',');
                    }
                    self.value(cursor, depth + 1, None, out);
                }
                out.push(b']');
            }
            Some(JsonType::Number) => write_number(cursor.skip_value(), out),
            _ => out.extend_from_slice(cursor.skip_value()),
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'_>, depth: usize, except: Option<&str>, out: &mut Vec<u8>) {
        let first_member = self.members.len();
        cursor.enter();
        out.push(b'{');
        let first = out.len();
        let mut in_order = true;
        while let Some(key) = cursor.next_key() {
            if except.is_some_and(|except| key.eq_str(except)) {
                cursor.skip_value();
                continue;
            }
            if out.len() > first {
                out.push(b',');
            }
            let start = out.len();
            out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
            let key_end = out.len() - 1;
            let member = MemberSpan { prefix: prefix(key.raw()), start, key_end, end: key_end };
            if let [.., last] = &self.members[first_member..] {
                in_order &= last.compare(&member, out).is_lt();
            }
            self.members.push(member);
            self.value(cursor, depth + 1, None, out);
            if let Some(member) = self.members.last_mut() {
                member.end = out.len();
            }
        }
        if !in_order {
            self.put_in_order(first_member, first, out);
        }
        self.members.truncate(first_member);
        out.push(b'}');
    }

    /// Sorts the members from number `first_member` on, which stand at the end of `out` from `first` on.
    fn put_in_order(&mut self, first_member: usize, first: usize, out: &mut Vec<u8>) {
        let members = &mut self.members[first_member..];
        members.sort_unstable_by(|left, right| left.compare(right, out));
        self.ordered.clear();
        for (number, member) in members.iter().enumerate() {
            if number > 0 {
                self.ordered.push(b',');
            }
            self.ordered.extend_from_slice(&out[member.start..member.end]);
        }
        out.truncate(first);
        out.extend_from_slice(&self.ordered);
    }
}

fn write_number(text: &[u8], out: &mut Vec<u8>) {
    // Up to 18 digits are an integer of 64 bits. Its form is its digits. Only zero has two spellings.
    if text.len() <= 18 && text != b"-0" && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        out.extend_from_slice(text);
        return;
    }
    match std::str::from_utf8(text).ok().and_then(NumericValue::parse) {
        Some(value) => value.write_canonical(out),
        None => out.extend_from_slice(text),
    }
}

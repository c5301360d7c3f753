//! `flatten=true`: any format that keeps nested objects, given entities without any (decisions, section 3, rule 12).
//!
//! Entities repeat their keys: a [`Shape`] knows the names, which are spelled out once.

use std::convert::Infallible;
use std::ops::Range;

use super::Encode;
use super::columns::Names;
use super::pool::Pool;
use super::shape::{Name, Place, Shape};

/// Bytes of learned names above which they are dropped. One entity may exceed them.
const MOST_NAME_BYTES: usize = 16 << 20;

/// Flattens each entity before `E` writes it.
pub(super) struct Flattened<E> {
    inner: E,
    memory: Pool<Memory>,
}

impl<E> Flattened<E> {
    pub fn new(inner: E) -> Flattened<E> {
        Flattened { inner, memory: Pool::default() }
    }
}

impl<E: Encode> Encode for Flattened<E> {
    fn begin(&self, empty: bool, out: &mut Vec<u8>) {
        self.inner.begin(empty, out);
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) {
        self.memory.with(|memory| self.inner.entity(memory.flatten(document), first, out));
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        self.inner.end(empty, out);
    }
}

#[derive(Debug, Default)]
struct Memory {
    shape: Shape,
    members: Members,
    flat: Vec<u8>,
}

/// The members of the entity in hand, each with a number that its name keeps.
#[derive(Debug, Default)]
struct Members {
    /// The names with what surrounds them in JSON: `"name":`.
    keys: Names,
    /// For each name, where its value is in the document; empty where it has none.
    values: Vec<Range<usize>>,
    /// The names with a value, in order of first appearance.
    order: Vec<u32>,
}

impl Memory {
    fn flatten(&mut self, document: &[u8]) -> &[u8] {
        if self.members.keys.bytes() > MOST_NAME_BYTES {
            *self = Memory::default();
        }
        let Memory { shape, members, flat } = self;
        let Ok(()) = shape.walk(document, members);
        flat.clear();
        flat.push(b'{');
        for (number, name) in members.order.drain(..).enumerate() {
            if number > 0 {
                flat.push(b',');
            }
            flat.extend_from_slice(members.keys.list()[name as usize].as_bytes());
            let value = std::mem::take(&mut members.values[name as usize]);
            write_value(&document[value], flat);
        }
        flat.push(b'}');
        flat
    }
}

impl Place for Members {
    type Error = Infallible;

    fn column(&mut self, name: Name<'_>) -> Result<u32, Infallible> {
        let key = format!("\"{}\":", String::from_utf8_lossy(&name.spell_escaped()));
        let number = self.keys.find_or_insert(key);
        self.values.resize(self.keys.list().len(), 0..0);
        Ok(number)
    }

    #[inline]
    fn cell(&mut self, column: u32, start: usize, value: &[u8]) {
        let cell = &mut self.values[column as usize];
        if cell.start == cell.end {
            self.order.push(column);
        }
        *cell = start..start + value.len();
    }
}

/// Appends a scalar as it is, an array as a string with its text.
#[inline]
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    if value.first() != Some(&b'[') {
        return out.extend_from_slice(value);
    }
    out.push(b'"');
    let mut rest = value;
    // Canonical text has no control characters of its own.
    while let Some(stop) = memchr::memchr2(b'"', b'\\', rest) {
        out.extend_from_slice(&rest[..stop]);
        out.extend_from_slice(&[b'\\', rest[stop]]);
        rest = &rest[stop + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

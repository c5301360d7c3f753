//! `flatten=true` for formats with nested objects (docs/reference/select-fields.md, flatten).
//!
//! Entities repeat their keys, so a [`Shape`] contains the flattened names.

use strata_json::{Name, Names, Place, Shape};

use super::pool::Pool;
use super::row::Cells;
use super::{Encode, EntityBound, EntityTooLarge};

/// Names are dropped beyond these limits, because a body with a slow client keeps its names for each thread. A single
/// entity can exceed them, up to its bound.
const MAX_NAME_BYTES: usize = 2 << 20;
const MAX_NAMES: usize = 1 << 15;

pub(super) struct Flattened<E> {
    inner: E,
    memory: Pool<Memory>,
    bound: EntityBound,
}

impl<E> Flattened<E> {
    pub(super) fn new(inner: E, bound: EntityBound) -> Flattened<E> {
        Flattened { inner, memory: Pool::default(), bound }
    }
}

impl<E: Encode> Encode for Flattened<E> {
    fn begin(&self, empty: bool, out: &mut Vec<u8>) {
        self.inner.begin(empty, out);
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        self.memory.with(|memory| {
            let written =
                memory.flatten(document, self.bound).and_then(|()| self.inner.entity(&memory.flat, first, out));
            memory.free_large_memory();
            written
        })
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        self.inner.end(empty, out);
    }
}

#[derive(Debug, Default)]
struct Memory {
    shape: Shape,
    /// The names as JSON keys: `"name":`.
    keys: Names,
    /// The members of the current entity, by the number of their name.
    cells: Cells,
    flat: Vec<u8>,
}

impl Memory {
    fn free_large_memory(&mut self) {
        let Memory { keys, flat, .. } = &*self;
        if keys.bytes() > MAX_NAME_BYTES || keys.list().len() > MAX_NAMES || flat.capacity() > MAX_NAME_BYTES {
            *self = Memory::default();
        }
    }

    fn flatten(&mut self, document: &[u8], bound: EntityBound) -> Result<(), EntityTooLarge> {
        let Memory { shape, keys, cells, flat } = self;
        let mut placing = Placing { keys, cells, name_bytes: 0, document_bytes: document.len(), bound };
        if let Err(error) = shape.walk(document, &mut placing) {
            // The shape contains columns without a name.
            *self = Memory::default();
            return Err(error);
        }
        flat.clear();
        flat.push(b'{');
        for (number, name) in cells.filled.drain(..).enumerate() {
            if number > 0 {
                flat.push(b',');
            }
            flat.extend_from_slice(keys.list()[name as usize].as_bytes());
            let value = std::mem::take(&mut cells.by_column[name as usize]);
            write_value(&document[value], flat);
        }
        flat.push(b'}');
        bound.check(document.len(), flat.len())
    }
}

struct Placing<'m> {
    keys: &'m mut Names,
    cells: &'m mut Cells,
    name_bytes: usize,
    document_bytes: usize,
    bound: EntityBound,
}

impl Place for Placing<'_> {
    type Error = EntityTooLarge;

    fn column(&mut self, name: Name<'_>) -> Result<u32, EntityTooLarge> {
        // Checked before it is spelled out.
        self.name_bytes += name.escaped_bytes();
        self.bound.check(self.document_bytes, self.name_bytes)?;
        let key = format!("\"{}\":", String::from_utf8_lossy(&name.spell_escaped()));
        let number = self.keys.find_or_insert(key);
        self.cells.by_column.resize(self.keys.list().len(), 0..0);
        Ok(number)
    }

    #[inline]
    fn cell(&mut self, column: u32, start: usize, value: &[u8]) {
        self.cells.set(column, start, value);
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

//! `flatten=true` for formats with nested objects (docs/reference/select-fields.md, flatten).
//!
//! Entities repeat their keys, so an [`EntityFlattener`] caches the flattened names.

use strata_json::{CellSink, EntityFlattener, FlattenedKey, UniqueNames};

use super::buffer_pool::BufferPool;
use super::row_buffer::RowCells;
use super::{EncodedSizeLimit, EntityTooLarge, ListContents, ListElement, TextEncoder};

/// Limits for the flattened names in one of an encoder's buffers, which exist until a slow client has received the
/// body. A single entity can exceed the limits, up to its size limit.
const MAX_CACHED_NAME_BYTES: usize = 2 << 20;
const MAX_CACHED_NAMES: usize = 1 << 15;

pub(super) struct FlatteningEncoder<E> {
    inner: E,
    buffers: BufferPool<FlattenBuffers>,
    size_limit: EncodedSizeLimit,
}

impl<E> FlatteningEncoder<E> {
    pub(super) fn new(inner: E, size_limit: EncodedSizeLimit) -> FlatteningEncoder<E> {
        FlatteningEncoder { inner, buffers: BufferPool::default(), size_limit }
    }
}

impl<E: TextEncoder> TextEncoder for FlatteningEncoder<E> {
    fn write_header(&self, contents: ListContents, out: &mut Vec<u8>) {
        self.inner.write_header(contents, out);
    }

    fn write_entity(&self, document: &[u8], element: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        self.buffers.with_buffer(|buffers| {
            let written = buffers
                .flatten(document, self.size_limit)
                .and_then(|()| self.inner.write_entity(&buffers.flattened, element, out));
            buffers.free_large_buffers();
            written
        })
    }

    fn write_footer(&self, contents: ListContents, out: &mut Vec<u8>) {
        self.inner.write_footer(contents, out);
    }
}

#[derive(Debug, Default)]
struct FlattenBuffers {
    flattener: EntityFlattener,
    keys: UniqueNames,
    /// The cells of the current entity, by the number of their flattened name.
    cells: RowCells,
    flattened: Vec<u8>,
}

impl FlattenBuffers {
    fn free_large_buffers(&mut self) {
        let FlattenBuffers { keys, flattened, .. } = &*self;
        if keys.name_bytes() > MAX_CACHED_NAME_BYTES
            || keys.as_slice().len() > MAX_CACHED_NAMES
            || flattened.capacity() > MAX_CACHED_NAME_BYTES
        {
            *self = FlattenBuffers::default();
        }
    }

    fn flatten(&mut self, document: &[u8], size_limit: EncodedSizeLimit) -> Result<(), EntityTooLarge> {
        let FlattenBuffers { flattener, keys, cells, flattened } = self;
        let mut sink = FlatObjectSink { keys, cells, name_bytes: 0, document_bytes: document.len(), size_limit };
        if let Err(error) = flattener.flatten(document, &mut sink) {
            // After an error, the flattener can contain columns whose name was not stored, so all buffers are replaced.
            *self = FlattenBuffers::default();
            return Err(error);
        }
        flattened.clear();
        flattened.push(b'{');
        for (number, name) in cells.filled_columns.drain(..).enumerate() {
            if number > 0 {
                flattened.push(b',');
            }
            flattened.extend_from_slice(keys.as_slice()[name as usize].as_bytes());
            let value = std::mem::take(&mut cells.ranges_by_column[name as usize]);
            write_flattened_value(&document[value], flattened);
        }
        flattened.push(b'}');
        size_limit.check_size(document.len(), flattened.len())
    }
}

struct FlatObjectSink<'m> {
    keys: &'m mut UniqueNames,
    cells: &'m mut RowCells,
    name_bytes: usize,
    document_bytes: usize,
    size_limit: EncodedSizeLimit,
}

impl CellSink for FlatObjectSink<'_> {
    type Error = EntityTooLarge;

    fn resolve_column_number(&mut self, name: FlattenedKey<'_>) -> Result<u32, EntityTooLarge> {
        // The size of all names is checked before the next name is allocated.
        self.name_bytes += name.max_escaped_bytes();
        self.size_limit.check_size(self.document_bytes, self.name_bytes)?;
        let key = format!("\"{}\":", String::from_utf8_lossy(&name.to_escaped()));
        let number = self.keys.find_or_insert(key);
        self.cells.ranges_by_column.resize(self.keys.as_slice().len(), 0..0);
        Ok(number)
    }

    #[inline]
    fn write_cell(&mut self, column: u32, start: usize, value: &[u8]) {
        self.cells.set_cell(column, start, value);
    }
}

/// Appends a flattened value: a scalar unchanged, and an array as a string with the text of the array.
#[inline]
fn write_flattened_value(value: &[u8], out: &mut Vec<u8>) {
    if value.first() != Some(&b'[') {
        return out.extend_from_slice(value);
    }
    out.push(b'"');
    let mut rest = value;
    // Only quotes and backslashes need escapes, because canonical text contains no unescaped control characters.
    while let Some(stop) = memchr::memchr2(b'"', b'\\', rest) {
        out.extend_from_slice(&rest[..stop]);
        out.extend_from_slice(&[b'\\', rest[stop]]);
        rest = &rest[stop + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

//! `format=csv`, `format=tsv`: a header and a row for each flattened entity (docs/reference/formats.md, csv and tsv).
//!
//! Quoting follows RFC 4180. A cell is quoted only if it contains the delimiter, a quote, CR or LF. Canonical text
//! contains these only in known places, so most cells cost one search and one copy. An otherwise empty line is `""`.

use std::ops::Range;
use std::sync::Arc;

use strata_json::{JsonStr, JsonStrPart, TableColumnNames, find_either_byte};

use super::buffer_pool::BufferPool;
use super::row_buffer::RowBuffer;
use super::{EntityTooLarge, ListContents, ListElement, TextEncoder};

pub(super) struct DelimitedEncoder {
    delimiter: u8,
    columns: Arc<TableColumnNames>,
    row_buffers: BufferPool<RowBuffer>,
}

impl DelimitedEncoder {
    pub(super) fn new(delimiter: u8, columns: Arc<TableColumnNames>) -> DelimitedEncoder {
        DelimitedEncoder { delimiter, columns, row_buffers: BufferPool::default() }
    }

    fn end_record(&self, start: usize, out: &mut Vec<u8>) {
        if out.len() == start && self.columns.len() == 1 {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    #[inline]
    fn write_cell(&self, document: &[u8], range: Range<usize>, out: &mut Vec<u8>) {
        let value = &document[range.clone()];
        match value {
            [b'"', text @ .., b'"'] => {
                // Canonical text escapes line breaks and quotes, so the search for a backslash also finds them.
                let end = range.end - 1;
                let stop = find_either_byte(document, range.start + 1, end, [b'\\', self.delimiter]);
                if stop == end {
                    return out.extend_from_slice(text);
                }
                if find_either_byte(document, stop, end, [b'\\'; 2]) == end {
                    out.push(b'"');
                    out.extend_from_slice(text);
                    out.push(b'"');
                } else {
                    self.write_escaped_cell(JsonStr::new(text), out);
                }
            }
            [b'n', ..] => {}
            [b'[', ..] if find_either_byte(document, range.start, range.end, [b'"', self.delimiter]) < range.end => {
                out.push(b'"');
                for (number, part) in value.split(|&byte| byte == b'"').enumerate() {
                    out.extend_from_slice(if number > 0 { b"\"\"" } else { b"" });
                    out.extend_from_slice(part);
                }
                out.push(b'"');
            }
            _ => out.extend_from_slice(value),
        }
    }

    fn write_escaped_cell(&self, text: JsonStr<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut needs_quotes = false;
        out.push(b'"');
        text.for_each_part(|part| match part {
            JsonStrPart::Plain(bytes) => {
                needs_quotes = needs_quotes || memchr::memchr(self.delimiter, bytes).is_some();
                out.extend_from_slice(bytes);
            }
            JsonStrPart::Escaped(b'"') => {
                needs_quotes = true;
                out.extend_from_slice(b"\"\"");
            }
            JsonStrPart::Escaped(byte) => {
                needs_quotes |= matches!(byte, b'\n' | b'\r') || byte == self.delimiter;
                out.push(byte);
            }
        });
        match needs_quotes {
            true => out.push(b'"'),
            false => _ = out.remove(start),
        }
    }

    fn write_column_name(&self, name: &str, out: &mut Vec<u8>) {
        if name.bytes().any(|byte| matches!(byte, b'"' | b'\n' | b'\r') || byte == self.delimiter) {
            out.extend_from_slice(format!("\"{}\"", name.replace('"', "\"\"")).as_bytes());
        } else {
            out.extend_from_slice(name.as_bytes());
        }
    }
}

impl TextEncoder for DelimitedEncoder {
    fn write_header(&self, _: ListContents, out: &mut Vec<u8>) {
        let start = out.len();
        for (number, name) in self.columns.names().iter().enumerate() {
            if number > 0 {
                out.push(self.delimiter);
            }
            self.write_column_name(name, out);
        }
        self.end_record(start, out);
    }

    fn write_entity(&self, document: &[u8], _: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        let start = out.len();
        self.row_buffers.with_buffer(|row| {
            for (number, cell) in row.flatten_to_cells(document, &self.columns).ranges_by_column.iter().enumerate() {
                if number > 0 {
                    out.push(self.delimiter);
                }
                if !cell.is_empty() {
                    self.write_cell(document, cell.clone(), out);
                }
            }
        });
        self.end_record(start, out);
        Ok(())
    }
}

//! `format=csv` and `format=tsv`: a header and a row per flattened entity (docs/reference/formats.md, csv and tsv).
//!
//! Quoting follows RFC 4180. A cell is quoted only if it holds the delimiter, a quote, CR or LF. Canonical text tells
//! where these can occur, so most cells cost one search and one copy. A record that would be an empty line is `""`.

use std::ops::Range;
use std::sync::Arc;

use strata_json::{Columns, Part, Text, find_either};

use super::pool::Pool;
use super::row::Row;
use super::{Encode, EntityTooLarge};

pub(super) struct Delimited {
    delimiter: u8,
    columns: Arc<Columns>,
    rows: Pool<Row>,
}

impl Delimited {
    pub(super) fn new(delimiter: u8, columns: Arc<Columns>) -> Delimited {
        Delimited { delimiter, columns, rows: Pool::default() }
    }

    fn end_record(&self, start: usize, out: &mut Vec<u8>) {
        if out.len() == start && self.columns.len() == 1 {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    /// Appends the text of a scalar or an array of the document.
    #[inline]
    fn cell(&self, document: &[u8], place: Range<usize>, out: &mut Vec<u8>) {
        let value = &document[place.clone()];
        match value {
            [b'"', text @ .., b'"'] => {
                // Other characters that need quotes are escaped in canonical text.
                let end = place.end - 1;
                let stop = find_either(document, place.start + 1, end, [b'\\', self.delimiter]);
                if stop == end {
                    return out.extend_from_slice(text);
                }
                if find_either(document, stop, end, [b'\\'; 2]) == end {
                    out.push(b'"');
                    out.extend_from_slice(text);
                    out.push(b'"');
                } else {
                    self.escaped_cell(Text::new(text), out);
                }
            }
            [b'n', ..] => {}
            [b'[', ..] if find_either(document, place.start, place.end, [b'"', self.delimiter]) < place.end => {
                out.push(b'"');
                for (number, piece) in value.split(|&byte| byte == b'"').enumerate() {
                    out.extend_from_slice(if number > 0 { b"\"\"" } else { b"" });
                    out.extend_from_slice(piece);
                }
                out.push(b'"');
            }
            _ => out.extend_from_slice(value),
        }
    }

    fn escaped_cell(&self, text: Text<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut needs_quotes = false;
        out.push(b'"');
        text.for_each_part(|part| match part {
            Part::Plain(bytes) => {
                needs_quotes = needs_quotes || memchr::memchr(self.delimiter, bytes).is_some();
                out.extend_from_slice(bytes);
            }
            Part::Escaped(b'"') => {
                needs_quotes = true;
                out.extend_from_slice(b"\"\"");
            }
            Part::Escaped(byte) => {
                needs_quotes |= matches!(byte, b'\n' | b'\r') || byte == self.delimiter;
                out.push(byte);
            }
        });
        match needs_quotes {
            true => out.push(b'"'),
            false => {
                out.remove(start);
            }
        }
    }

    fn name(&self, name: &str, out: &mut Vec<u8>) {
        if name.bytes().any(|byte| matches!(byte, b'"' | b'\n' | b'\r') || byte == self.delimiter) {
            out.extend_from_slice(format!("\"{}\"", name.replace('"', "\"\"")).as_bytes());
        } else {
            out.extend_from_slice(name.as_bytes());
        }
    }
}

impl Encode for Delimited {
    fn begin(&self, _: bool, out: &mut Vec<u8>) {
        let start = out.len();
        for (number, name) in self.columns.names().iter().enumerate() {
            if number > 0 {
                out.push(self.delimiter);
            }
            self.name(name, out);
        }
        self.end_record(start, out);
    }

    fn entity(&self, document: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        let start = out.len();
        self.rows.with(|row| {
            for (number, cell) in row.place(document, &self.columns).by_column.iter().enumerate() {
                if number > 0 {
                    out.push(self.delimiter);
                }
                if !cell.is_empty() {
                    self.cell(document, cell.clone(), out);
                }
            }
        });
        self.end_record(start, out);
        Ok(())
    }
}

//! Decodes CSV and TSV: a header line with the column names, then one entity per row. Cells are strings unless types
//! are inferred. The grammar is RFC 4180 with a choice of delimiters. A quoted cell starts and ends with a quote, and
//! contains quotes as `""`. In other cells, a quote is an ordinary character; a warning reports the first such line.
//! For example, `1, "x, y"` has three cells, because the second one starts with a space. Rows end with `\n`, `\r\n`, or
//! `\r`. Blank lines are skipped (a row with one empty cell is `""`). Rows with a wrong number of cells, text after a
//! closing quote, and unclosed quotes are errors; lenient readers would shift cells or swallow the rest of the file.
//! With type inference, a cell that is exactly a JSON number, `true`, or `false` becomes that value, and an empty cell
//! becomes null, also in quotes. Nothing is trimmed. Columns with the same name give one key, at the position of the
//! first column with the value of the last one, like duplicate keys of a JSON object.

use std::collections::HashMap;
use std::ops::Range;

use strata_json::{is_number, write_json_string};
use strata_types::source::guess_delimiter;

use super::EntityDecoder;
use super::entity_writer::EntityWriter;
use super::error::{SourceError, SourcePosition, quote_name};
use super::source_input::ReadWindow;

const ENCODING_HINT: &str = ": save the table as UTF-8, or convert it, for example with `iconv -f latin1 -t utf-8`";
const MAX_REPORTED_COLUMNS: usize = 5;

pub(super) struct DelimitedDecoder {
    window: ReadWindow,
    writer: EntityWriter,
    delimiter: u8,
    max_columns: usize,
    infers_types: bool,
    columns: Vec<DelimitedColumn>,
    /// The indexes of cells that are in no entity, because a later column has the same name.
    hidden_cells: Vec<usize>,
    warnings: Vec<String>,
    has_warned_of_quote: bool,
    column_count: usize,
    row_count: u64,
    line: u64,
    cells: Vec<CellSpan>,
    cell_text: Vec<u8>,
    entity: Vec<u8>,
}

/// A header column: its key in the entities, its cell index, and how many cells were inferred as numbers and strings.
struct DelimitedColumn {
    key: Vec<u8>,
    cell: usize,
    number_count: u64,
    string_count: u64,
}

#[derive(Debug, Clone)]
struct CellSpan {
    text: Range<usize>,
    has_doubled_quotes: bool,
}

impl DelimitedDecoder {
    pub(super) fn try_new(
        window: ReadWindow,
        writer: EntityWriter,
        delimiter: u8,
        max_columns: usize,
        infers_types: bool,
    ) -> Result<Self, SourceError> {
        let mut decoder = Self {
            window,
            writer,
            delimiter,
            max_columns,
            infers_types,
            columns: Vec::new(),
            hidden_cells: Vec::new(),
            warnings: Vec::new(),
            has_warned_of_quote: false,
            column_count: 0,
            row_count: 0,
            line: 1,
            cells: Vec::new(),
            cell_text: Vec::new(),
            entity: Vec::new(),
        };
        decoder.read_header()?;
        Ok(decoder)
    }

    fn read_header(&mut self) -> Result<(), SourceError> {
        let Some(row) = self.read_row().map_err(into_header_error)? else {
            return Err(SourceError::invalid_document("the table is empty: its first line must name the columns"));
        };
        self.column_count = row.cell_count;
        if self.column_count > self.max_columns {
            let reason = format!("the table has more than sources.max_columns ({}) columns", self.max_columns);
            return Err(SourceError::TooLarge { position: None, reason });
        }
        let bytes = &self.window.unread()[..row.length_bytes];
        let mut columns_by_key: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut unnamed = Vec::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let name = decode_cell(bytes, cell, &mut self.cell_text)
                .ok_or_else(|| SourceError::invalid_document(format!("the header line is not UTF-8{ENCODING_HINT}")))?;
            if name.is_empty() {
                unnamed.push(index + 1);
            }
            let mut key = Vec::with_capacity(name.len() + 3);
            write_json_string(name, &mut key);
            key.push(b':');
            match columns_by_key.get(&key) {
                Some(&column) => self.hidden_cells.push(std::mem::replace(&mut self.columns[column].cell, index)),
                None => {
                    columns_by_key.insert(key.clone(), self.columns.len());
                    self.columns.push(DelimitedColumn { key, cell: index, number_count: 0, string_count: 0 });
                }
            }
        }
        if let Some(hidden) = self.hidden_cells.first().and_then(|cell| self.cells.get(*cell))
            && let Some(name) = decode_cell(bytes, hidden, &mut self.cell_text)
        {
            let name = quote_name(name);
            self.warnings.push(format!(
                "Several columns of the table are named {name}. Entities contain only the values of the last one."
            ));
        }
        self.warnings.extend(unnamed_columns_warning(&unnamed));
        if let [_] = self.cells.as_slice()
            && let Some(name) = decode_cell(bytes, &self.cells[0], &mut self.cell_text)
            && let Some(found) = guess_delimiter(name)
        {
            let expected = delimiter_name(self.delimiter);
            self.warnings.push(format!(
                "The table has only one column, and its name contains {found}. In this format, only {expected} \
                 separate cells."
            ));
        }
        self.warn_of_stray_quote(row);
        self.consume_row(row);
        Ok(())
    }

    /// Fills the window until it starts with a whole nonblank row. Returns the row's extent; `None` after the last row.
    fn read_row(&mut self) -> Result<Option<RowSpan>, SourceError> {
        loop {
            let limit_bytes = self.writer.max_entity_bytes;
            let unread = self.window.unread();
            let position = SourcePosition { item: self.row_count + 1, line: Some(self.line), column: None };
            let is_at_end = self.window.is_at_end;
            match parse_row(unread, self.delimiter, is_at_end, self.max_columns, &mut self.cells) {
                RowParse::Row(row) if row.length_bytes > limit_bytes.saturating_add(2) => {
                    return Err(SourceError::entity_too_large(position, limit_bytes));
                }
                RowParse::Row(row) if row.is_blank => self.consume_row(row),
                RowParse::Row(row) => return Ok(Some(row)),
                RowParse::End => return Ok(None),
                RowParse::Malformed(reason) => return Err(SourceError::invalid_item(position, reason)),
                RowParse::Incomplete if unread.len() > limit_bytes.saturating_add(2) => {
                    return Err(SourceError::entity_too_large(position, limit_bytes));
                }
                RowParse::Incomplete => _ = self.window.fill()?,
            }
        }
    }

    fn warn_of_stray_quote(&mut self, row: RowSpan) {
        if self.has_warned_of_quote {
            return;
        }
        if let Some(cell) = find_stray_quote(&self.window.unread()[..row.length_bytes], &self.cells) {
            self.has_warned_of_quote = true;
            let delimiters = delimiter_name(self.delimiter);
            self.warnings.push(format!(
                "On line {}, cell {} contains a quote but does not begin with one. strata treats such a quote as text, \
                 so {delimiters} after it still separate cells. To quote a cell, begin it with a quote, without a \
                 space before the quote.",
                self.line,
                cell + 1,
            ));
        }
    }

    fn consume_row(&mut self, row: RowSpan) {
        self.line += row.line_count;
        self.window.consume(row.length_bytes);
    }
}

impl EntityDecoder for DelimitedDecoder {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn next_entity(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        let Some(row) = self.read_row()? else {
            // The columns are taken, so that later calls do not report the warnings again.
            let columns = std::mem::take(&mut self.columns);
            self.warnings.extend(mixed_type_warnings(&columns));
            return Ok(false);
        };
        self.row_count += 1;
        let position = SourcePosition { item: self.row_count, line: Some(self.line), column: None };
        if row.cell_count != self.column_count {
            let quote = find_stray_quote(&self.window.unread()[..row.length_bytes], &self.cells);
            let hint = quote.map(|cell| {
                format!("; the quote in cell {} has no effect, because the cell does not begin with a quote", cell + 1)
            });
            let reason = format!(
                "the row has {} {}, but the header has {}{}",
                row.cell_count,
                if row.cell_count == 1 { "cell" } else { "cells" },
                self.column_count,
                hint.unwrap_or_default(),
            );
            return Err(SourceError::invalid_item(position, reason));
        }
        self.warn_of_stray_quote(row);
        let bytes = &self.window.unread()[..row.length_bytes];
        let not_utf8 =
            |cell: usize| SourceError::invalid_item(position, format!("cell {} is not UTF-8{ENCODING_HINT}", cell + 1));
        for &cell in &self.hidden_cells {
            decode_cell(bytes, &self.cells[cell], &mut self.cell_text).ok_or_else(|| not_utf8(cell))?;
        }
        self.entity.clear();
        self.entity.push(b'{');
        for (index, column) in self.columns.iter_mut().enumerate() {
            if index > 0 {
                self.entity.push(b',');
            }
            self.entity.extend_from_slice(&column.key);
            let cell = &self.cells[column.cell];
            let text = decode_cell(bytes, cell, &mut self.cell_text).ok_or_else(|| not_utf8(column.cell))?;
            match self.infers_types {
                true => match write_inferred_value(text, &mut self.entity) {
                    InferredType::Number => column.number_count += 1,
                    InferredType::String => column.string_count += 1,
                    InferredType::Other => {}
                },
                false => write_json_string(text, &mut self.entity),
            }
        }
        self.entity.push(b'}');
        self.writer.write_canonical(&self.entity, position, out)?;
        self.consume_row(row);
        Ok(true)
    }
}

#[derive(Debug, Clone, Copy)]
struct RowSpan {
    length_bytes: usize,
    /// The number of line ends in the row, including those in quoted cells.
    line_count: u64,
    cell_count: usize,
    is_blank: bool,
}

enum RowParse {
    Row(RowSpan),
    End,
    Incomplete,
    Malformed(String),
}

/// Finds the cells of the row at the start of `bytes`. `is_at_end` means that no more bytes follow.
fn parse_row(bytes: &[u8], delimiter: u8, is_at_end: bool, max_cells: usize, cells: &mut Vec<CellSpan>) -> RowParse {
    cells.clear();
    if bytes.is_empty() {
        return if is_at_end { RowParse::End } else { RowParse::Incomplete };
    }
    let mut position = 0;
    let mut line_count = 0;
    let mut cell_count = 0;
    loop {
        let (cell, end);
        if bytes.get(position) == Some(&b'"') {
            let text_start = position + 1;
            let mut has_doubled_quotes = false;
            let mut search = text_start;
            loop {
                let Some(distance) = memchr::memchr(b'"', &bytes[search..]) else {
                    let reason = "a quote is opened but never closed";
                    return if is_at_end { RowParse::Malformed(reason.to_owned()) } else { RowParse::Incomplete };
                };
                let quote = search + distance;
                match bytes.get(quote + 1) {
                    Some(b'"') => {
                        has_doubled_quotes = true;
                        search = quote + 2;
                    }
                    None if !is_at_end => return RowParse::Incomplete,
                    _ => {
                        end = quote + 1;
                        break;
                    }
                }
            }
            let text = text_start..end - 1;
            line_count += count_line_ends(&bytes[text.clone()]);
            cell = CellSpan { text, has_doubled_quotes };
        } else {
            let distance = memchr::memchr3(delimiter, b'\n', b'\r', &bytes[position..]);
            end = match distance {
                Some(distance) => position + distance,
                None if is_at_end => bytes.len(),
                None => return RowParse::Incomplete,
            };
            cell = CellSpan { text: position..end, has_doubled_quotes: false };
        }
        if cells.len() < max_cells {
            cells.push(cell);
        }
        cell_count += 1;
        let length_bytes = match bytes.get(end) {
            Some(&byte) if byte == delimiter => {
                position = end + 1;
                continue;
            }
            Some(b'\n') => end + 1,
            Some(b'\r') => match bytes.get(end + 1) {
                Some(b'\n') => end + 2,
                None if !is_at_end => return RowParse::Incomplete,
                _ => end + 1,
            },
            None => end,
            Some(&byte) => return RowParse::Malformed(text_after_quote_error(byte, delimiter)),
        };
        return RowParse::Row(RowSpan { length_bytes, line_count: line_count + 1, cell_count, is_blank: end == 0 });
    }
}

fn text_after_quote_error(byte: u8, delimiter: u8) -> String {
    let mut reason = "there is text after the closing quote of a cell".to_owned();
    if let Some(found) = guess_delimiter(char::from(byte).encode_utf8(&mut [0; 4])) {
        let expected = delimiter_name(delimiter);
        reason.push_str(&format!(": the cells seem to be separated by {found}, but must be separated by {expected}"));
    }
    reason
}

fn delimiter_name(delimiter: u8) -> &'static str {
    if delimiter == b'\t' { "tabs" } else { "commas" }
}

/// Returns the index of the first cell that contains a quote but does not start with one.
fn find_stray_quote(row: &[u8], cells: &[CellSpan]) -> Option<usize> {
    memchr::memchr(b'"', row)?;
    cells.iter().position(|cell| {
        let is_quoted = cell.text.start.checked_sub(1).is_some_and(|before| row[before] == b'"');
        !is_quoted && memchr::memchr(b'"', &row[cell.text.clone()]).is_some()
    })
}

/// Counts the line ends in a quoted cell like an editor: `\r\n` is one.
fn count_line_ends(text: &[u8]) -> u64 {
    memchr::memchr2_iter(b'\n', b'\r', text)
        .filter(|&position| text[position] == b'\n' || text.get(position + 1) != Some(&b'\n'))
        .count() as u64
}

/// Returns the unquoted text of a cell, using `scratch` if quotes must be removed; `None` if it is not UTF-8.
fn decode_cell<'a>(row: &'a [u8], cell: &CellSpan, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
    let raw = &row[cell.text.clone()];
    if !cell.has_doubled_quotes {
        return std::str::from_utf8(raw).ok();
    }
    scratch.clear();
    let mut rest = raw;
    while let Some(quote) = memchr::memchr(b'"', rest) {
        scratch.extend_from_slice(&rest[..=quote]);
        // A quoted cell contains each quote twice, so the second quote is skipped.
        rest = &rest[quote + 2..];
    }
    scratch.extend_from_slice(rest);
    std::str::from_utf8(scratch).ok()
}

enum InferredType {
    Number,
    String,
    Other,
}

fn write_inferred_value(text: &str, out: &mut Vec<u8>) -> InferredType {
    let (json, inferred) = match text {
        "" => ("null", InferredType::Other),
        "true" | "false" => (text, InferredType::Other),
        _ if is_number(text) => (text, InferredType::Number),
        _ => {
            write_json_string(text, out);
            return InferredType::String;
        }
    };
    out.extend_from_slice(json.as_bytes());
    inferred
}

/// Returns warnings for the first columns with both numbers and strings. Postal codes are an example: if they start
/// with 0, they are not JSON numbers.
fn mixed_type_warnings(columns: &[DelimitedColumn]) -> impl Iterator<Item = String> {
    let mixed = columns.iter().filter(|column| column.number_count > 0 && column.string_count > 0);
    let others = mixed.clone().count().saturating_sub(MAX_REPORTED_COLUMNS);
    let others = (others > 0).then(|| match others {
        1 => "1 more column contains both numbers and strings.".to_owned(),
        _ => format!("{others} more columns contain both numbers and strings."),
    });
    let warnings = mixed.take(MAX_REPORTED_COLUMNS).map(
        |DelimitedColumn { key, number_count: numbers, string_count: strings, .. }| {
            let name: String = serde_json::from_slice(&key[..key.len() - 1]).unwrap_or_default();
            let name = quote_name(&name);
            format!(
                "In the column {name}, {numbers} {} and {strings} {}. Ranges and sorts treat numbers and strings as \
             different types.",
                if *numbers == 1 { "cell is a number" } else { "cells are numbers" },
                if *strings == 1 { "is a string" } else { "are strings" },
            )
        },
    );
    warnings.chain(others)
}

/// Returns the warning for columns without a name, by their numbers from 1. An empty key is not a valid path.
fn unnamed_columns_warning(columns: &[usize]) -> Option<String> {
    let (subject, verb, object) = match columns {
        [] => return None,
        [_] => ("Column", "has", "it"),
        _ => ("Columns", "have", "them"),
    };
    let numbers: Vec<String> = columns.iter().take(MAX_REPORTED_COLUMNS).map(ToString::to_string).collect();
    let numbers = numbers.join(", ");
    let more = if columns.len() > MAX_REPORTED_COLUMNS { ", …" } else { "" };
    Some(format!(
        "{subject} {numbers}{more} of the table {verb} no name, so filters and sorts cannot refer to {object}. Name \
         {object} in the header line, or omit {object} (in pandas, use to_csv with index=False)."
    ))
}

fn into_header_error(error: SourceError) -> SourceError {
    let in_header = |reason: String| format!("the header line: {reason}");
    match error {
        SourceError::InvalidDocument { reason, .. } => SourceError::invalid_document(in_header(reason)),
        SourceError::TooLarge { reason, .. } => SourceError::TooLarge { position: None, reason: in_header(reason) },
        other => other,
    }
}

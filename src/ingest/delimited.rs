//! Decodes CSV and TSV: a header line of names, then one entity per row, every cell a string unless types
//! are inferred.
//!
//! The grammar is RFC 4180's with a choice of delimiter: a cell that begins with a quote ends with one, and `""` inside
//! stands for one quote; elsewhere a quote is a character like any other, and a warning names the first line with one.
//! For example, `1, "x, y"` has three cells, because the second one begins with a space. Rows end with `\n`, `\r\n`
//! or `\r`; blank lines are skipped (a row of one empty cell is `""`). A row with more or fewer cells than the header,
//! text after a closing quote, and a quote that is never closed are bad: in these cases lenient readers shift cells or
//! swallow the rest of the file.
//!
//! With `infers`, a cell whose text is exactly a JSON number, `true` or `false` is that, and an empty one null; in
//! quotes or not, since quotes are no part of a cell's text. Nothing is trimmed.
//!
//! Two columns of one name give the entity one key, at the first one's position with the last one's
//! cell, as two equal keys of a JSON object do (docs/reference/paths-and-values.md, Entities and values).

use std::collections::HashMap;
use std::ops::Range;

use strata_json::{is_number, write_string};
use strata_types::source::foreign_delimiter;

use super::Decode;
use super::entity::EntityWriter;
use super::error::{Place, SourceError, quoted_name};
use super::input::Window;

/// What to do with a table in another encoding, as spreadsheets write them.
const CONVERT: &str = ": save the table as UTF-8, or convert it, for example with `iconv -f latin1 -t utf-8`";

const NUMBERED_COLUMNS: usize = 5;

pub(super) struct DelimitedDecoder {
    window: Window,
    writer: EntityWriter,
    delimiter: u8,
    columns_max: usize,
    infers: bool,
    columns: Vec<Column>,
    /// The cells that no entity shows, because a later column has the same name.
    hidden: Vec<usize>,
    warnings: Vec<String>,
    has_warned_of_quote: bool,
    width: usize,
    rows: u64,
    /// The line on which the unread part of the window begins, from 1.
    line: u64,
    cells: Vec<Cell>,
    cell_text: Vec<u8>,
    entity: Vec<u8>,
}

/// One key of the entities, and which cell of the row is its value. Numbers and texts count inferred cells.
struct Column {
    key: Vec<u8>,
    cell: usize,
    numbers: u64,
    texts: u64,
}

#[derive(Debug, Clone)]
struct Cell {
    text: Range<usize>,
    has_doubled_quotes: bool,
}

impl DelimitedDecoder {
    pub(super) fn try_new(
        window: Window,
        writer: EntityWriter,
        delimiter: u8,
        columns_max: usize,
        infers: bool,
    ) -> Result<Self, SourceError> {
        let mut decoder = Self {
            window,
            writer,
            delimiter,
            columns_max,
            infers,
            columns: Vec::new(),
            hidden: Vec::new(),
            warnings: Vec::new(),
            has_warned_of_quote: false,
            width: 0,
            rows: 0,
            line: 1,
            cells: Vec::new(),
            cell_text: Vec::new(),
            entity: Vec::new(),
        };
        decoder.read_header()?;
        Ok(decoder)
    }

    fn read_header(&mut self) -> Result<(), SourceError> {
        let Some(row) = self.next_row().map_err(in_header)? else {
            return Err(SourceError::document("the table is empty: its first line must name the columns"));
        };
        self.width = row.cells;
        if self.width > self.columns_max {
            let reason = format!("the table has more than sources.max_columns ({}) columns", self.columns_max);
            return Err(SourceError::TooLarge { place: None, reason });
        }
        let bytes = &self.window.unread()[..row.length];
        let mut columns_by_key: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut nameless = Vec::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let name = cell_text(bytes, cell, &mut self.cell_text)
                .ok_or_else(|| SourceError::document(format!("the header line is not UTF-8{CONVERT}")))?;
            if name.is_empty() {
                nameless.push(index + 1);
            }
            let mut key = Vec::with_capacity(name.len() + 3);
            write_string(name, &mut key);
            key.push(b':');
            match columns_by_key.get(&key) {
                Some(&column) => self.hidden.push(std::mem::replace(&mut self.columns[column].cell, index)),
                None => {
                    columns_by_key.insert(key.clone(), self.columns.len());
                    self.columns.push(Column { key, cell: index, numbers: 0, texts: 0 });
                }
            }
        }
        if let Some(twice) = self.hidden.first().and_then(|cell| self.cells.get(*cell))
            && let Some(name) = cell_text(bytes, twice, &mut self.cell_text)
        {
            let name = quoted_name(name);
            self.warnings.push(format!(
                "Several columns of the table are named {name}. Entities contain only the values of the last one."
            ));
        }
        self.warnings.extend(without_names(&nameless));
        if let [_] = self.cells.as_slice()
            && let Some(name) = cell_text(bytes, &self.cells[0], &mut self.cell_text)
            && let Some(found) = foreign_delimiter(name)
        {
            let wanted = delimiter_name(self.delimiter);
            self.warnings.push(format!(
                "The table has only one column, and its name contains {found}. In this format, only {wanted} separate \
                 cells."
            ));
        }
        self.warn_of_quote(row);
        self.consume(row);
        Ok(())
    }

    /// Makes the window begin with a whole row that is not blank, and finds its cells; none at the end.
    fn next_row(&mut self) -> Result<Option<Row>, SourceError> {
        loop {
            let limit_bytes = self.writer.limit_bytes;
            let unread = self.window.unread();
            let place = Place { item: self.rows + 1, line: Some(self.line), column: None };
            let ended = self.window.ended;
            match parse_row(unread, self.delimiter, ended, self.columns_max, &mut self.cells) {
                Parsed::Row(row) if row.length > limit_bytes.saturating_add(2) => {
                    return Err(SourceError::too_large(place, limit_bytes));
                }
                Parsed::Row(row) => {
                    if row.is_blank {
                        self.consume(row);
                        continue;
                    }
                    return Ok(Some(row));
                }
                Parsed::End => return Ok(None),
                Parsed::Bad(reason) => return Err(SourceError::item(place, reason)),
                Parsed::Incomplete if unread.len() > limit_bytes.saturating_add(2) => {
                    return Err(SourceError::too_large(place, limit_bytes));
                }
                Parsed::Incomplete => {
                    self.window.fill()?;
                }
            }
        }
    }

    fn warn_of_quote(&mut self, row: Row) {
        if self.has_warned_of_quote {
            return;
        }
        if let Some(cell) = quote_inside_cell(&self.window.unread()[..row.length], &self.cells) {
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

    fn consume(&mut self, row: Row) {
        self.line += row.lines;
        self.window.consume(row.length);
    }
}

impl Decode for DelimitedDecoder {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        let Some(row) = self.next_row()? else {
            // Only the first call reports them.
            let columns = std::mem::take(&mut self.columns);
            self.warnings.extend(of_two_types(&columns));
            return Ok(false);
        };
        self.rows += 1;
        let place = Place { item: self.rows, line: Some(self.line), column: None };
        if row.cells != self.width {
            let quote = quote_inside_cell(&self.window.unread()[..row.length], &self.cells);
            let hint = quote.map(|cell| {
                format!("; the quote in cell {} has no effect, because the cell does not begin with a quote", cell + 1)
            });
            let reason = format!(
                "the row has {} {}, but the header has {}{}",
                row.cells,
                if row.cells == 1 { "cell" } else { "cells" },
                self.width,
                hint.unwrap_or_default(),
            );
            return Err(SourceError::item(place, reason));
        }
        self.warn_of_quote(row);
        let bytes = &self.window.unread()[..row.length];
        let not_utf8 = |cell: usize| SourceError::item(place, format!("cell {} is not UTF-8{CONVERT}", cell + 1));
        for &cell in &self.hidden {
            cell_text(bytes, &self.cells[cell], &mut self.cell_text).ok_or_else(|| not_utf8(cell))?;
        }
        self.entity.clear();
        self.entity.push(b'{');
        for (index, column) in self.columns.iter_mut().enumerate() {
            if index > 0 {
                self.entity.push(b',');
            }
            self.entity.extend_from_slice(&column.key);
            let cell = &self.cells[column.cell];
            let text = cell_text(bytes, cell, &mut self.cell_text).ok_or_else(|| not_utf8(column.cell))?;
            match self.infers {
                true => match write_inferred(text, &mut self.entity) {
                    Inferred::Number => column.numbers += 1,
                    Inferred::Text => column.texts += 1,
                    Inferred::Other => {}
                },
                false => write_string(text, &mut self.entity),
            }
        }
        self.entity.push(b'}');
        self.writer.write_canonical(&self.entity, place, out)?;
        self.consume(row);
        Ok(true)
    }
}

#[derive(Debug, Clone, Copy)]
struct Row {
    length: usize,
    /// Line ends in it, those in quoted cells too.
    lines: u64,
    cells: usize,
    is_blank: bool,
}

enum Parsed {
    Row(Row),
    End,
    Incomplete,
    Bad(String),
}

/// Finds the cells of the row that `bytes` begins with. `ended` says that nothing follows.
fn parse_row(bytes: &[u8], delimiter: u8, ended: bool, cells_max: usize, cells: &mut Vec<Cell>) -> Parsed {
    cells.clear();
    if bytes.is_empty() {
        return if ended { Parsed::End } else { Parsed::Incomplete };
    }
    let mut position = 0;
    let mut lines = 0;
    let mut count = 0;
    loop {
        let (cell, end);
        if bytes.get(position) == Some(&b'"') {
            let text_start = position + 1;
            let mut has_doubled_quotes = false;
            let mut search = text_start;
            loop {
                let Some(distance) = memchr::memchr(b'"', &bytes[search..]) else {
                    let reason = "a quote is opened but never closed";
                    return if ended { Parsed::Bad(reason.to_owned()) } else { Parsed::Incomplete };
                };
                let quote = search + distance;
                match bytes.get(quote + 1) {
                    Some(b'"') => {
                        has_doubled_quotes = true;
                        search = quote + 2;
                    }
                    None if !ended => return Parsed::Incomplete,
                    _ => {
                        end = quote + 1;
                        break;
                    }
                }
            }
            let text = text_start..end - 1;
            lines += line_ends(&bytes[text.clone()]);
            cell = Cell { text, has_doubled_quotes };
        } else {
            let distance = memchr::memchr3(delimiter, b'\n', b'\r', &bytes[position..]);
            end = match distance {
                Some(distance) => position + distance,
                None if ended => bytes.len(),
                None => return Parsed::Incomplete,
            };
            cell = Cell { text: position..end, has_doubled_quotes: false };
        }
        if cells.len() < cells_max {
            cells.push(cell);
        }
        count += 1;
        let length = match bytes.get(end) {
            Some(&byte) if byte == delimiter => {
                position = end + 1;
                continue;
            }
            Some(b'\n') => end + 1,
            Some(b'\r') => match bytes.get(end + 1) {
                Some(b'\n') => end + 2,
                None if !ended => return Parsed::Incomplete,
                _ => end + 1,
            },
            None => end,
            Some(&byte) => return Parsed::Bad(text_after_quote(byte, delimiter)),
        };
        return Parsed::Row(Row { length, lines: lines + 1, cells: count, is_blank: end == 0 });
    }
}

fn text_after_quote(byte: u8, delimiter: u8) -> String {
    let mut reason = "there is text after the closing quote of a cell".to_owned();
    if let Some(found) = foreign_delimiter(char::from(byte).encode_utf8(&mut [0; 4])) {
        let wanted = delimiter_name(delimiter);
        reason.push_str(&format!(": the cells seem to be separated by {found}, but must be separated by {wanted}"));
    }
    reason
}

fn delimiter_name(delimiter: u8) -> &'static str {
    if delimiter == b'\t' { "tabs" } else { "commas" }
}

/// The index of the first cell that has a quote, but does not begin with one.
fn quote_inside_cell(row: &[u8], cells: &[Cell]) -> Option<usize> {
    memchr::memchr(b'"', row)?;
    cells.iter().position(|cell| {
        let is_quoted = cell.text.start.checked_sub(1).is_some_and(|before| row[before] == b'"');
        !is_quoted && memchr::memchr(b'"', &row[cell.text.clone()]).is_some()
    })
}

/// Line ends in a quoted cell, counted as editors count them.
fn line_ends(text: &[u8]) -> u64 {
    memchr::memchr2_iter(b'\n', b'\r', text)
        .filter(|&position| text[position] == b'\n' || text.get(position + 1) != Some(&b'\n'))
        .count() as u64
}

/// A cell's text, unquoted; none when it is not UTF-8. `scratch` holds it when it had to be copied.
fn cell_text<'a>(row: &'a [u8], cell: &Cell, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
    let raw = &row[cell.text.clone()];
    if !cell.has_doubled_quotes {
        return std::str::from_utf8(raw).ok();
    }
    scratch.clear();
    let mut rest = raw;
    while let Some(quote) = memchr::memchr(b'"', rest) {
        scratch.extend_from_slice(&rest[..=quote]);
        // Every quote inside is one of a pair.
        rest = &rest[quote + 2..];
    }
    scratch.extend_from_slice(rest);
    std::str::from_utf8(scratch).ok()
}

enum Inferred {
    Number,
    Text,
    Other,
}

fn write_inferred(text: &str, out: &mut Vec<u8>) -> Inferred {
    let (json, inferred) = match text {
        "" => ("null", Inferred::Other),
        "true" | "false" => (text, Inferred::Other),
        _ if is_number(text) => (text, Inferred::Number),
        _ => {
            write_string(text, out);
            return Inferred::Text;
        }
    };
    out.extend_from_slice(json.as_bytes());
    inferred
}

/// A warning for each of the first few columns with numbers and texts, as postal codes that begin with 0 are.
fn of_two_types(columns: &[Column]) -> impl Iterator<Item = String> {
    let mixed = columns.iter().filter(|column| column.numbers > 0 && column.texts > 0);
    let others = mixed.clone().count().saturating_sub(NUMBERED_COLUMNS);
    let others = (others > 0).then(|| match others {
        1 => "1 more column contains both numbers and strings.".to_owned(),
        _ => format!("{others} more columns contain both numbers and strings."),
    });
    let told = mixed.take(NUMBERED_COLUMNS).map(|Column { key, numbers, texts, .. }| {
        let name: String = serde_json::from_slice(&key[..key.len() - 1]).unwrap_or_default();
        let name = quoted_name(&name);
        format!(
            "In the column {name}, {numbers} {} and {texts} {}. Ranges and sorts treat numbers and strings as \
             different types.",
            if *numbers == 1 { "cell is a number" } else { "cells are numbers" },
            if *texts == 1 { "is a string" } else { "are strings" },
        )
    });
    told.chain(others)
}

/// The warning for columns whose header is empty, by their numbers from 1. An empty key alone is no path.
fn without_names(columns: &[usize]) -> Option<String> {
    let (subject, verb, object) = match columns {
        [] => return None,
        [_] => ("Column", "has", "it"),
        _ => ("Columns", "have", "them"),
    };
    let numbers: Vec<String> = columns.iter().take(NUMBERED_COLUMNS).map(ToString::to_string).collect();
    let numbers = numbers.join(", ");
    let more = if columns.len() > NUMBERED_COLUMNS { ", …" } else { "" };
    Some(format!(
        "{subject} {numbers}{more} of the table {verb} no name, so filters and sorts cannot refer to {object}. Name \
         {object} in the header line, or omit {object} (in pandas, use to_csv with index=False)."
    ))
}

/// An error in the header line has no item.
fn in_header(error: SourceError) -> SourceError {
    match error {
        SourceError::BadDocument { reason, .. } => SourceError::document(format!("the header line: {reason}")),
        SourceError::TooLarge { reason, .. } => {
            SourceError::TooLarge { place: None, reason: format!("the header line: {reason}") }
        }
        other => other,
    }
}

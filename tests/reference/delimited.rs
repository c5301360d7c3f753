//! CSV and TSV sources (RFC 4180; docs/reference/import-semantics.md), parsed byte by byte, with optional type
//! inference.

use super::value::{Value, set};

/// Returns the entities as compact JSON; in case of an error, the entities before the error.
pub fn entities(table: &[u8], delimiter: u8, infers_types: bool) -> Result<Vec<String>, Vec<String>> {
    let value = |cell| if infers_types { inferred(cell) } else { Value::String(cell) };
    let mut rows = DelimitedRows { rest: table, delimiter };
    let mut found = Vec::new();
    let Some(Some(names)) = rows.next() else { return Err(found) };
    let Some(names) = texts(names) else { return Err(found) };
    for row in rows {
        let cells = row.and_then(texts).filter(|cells| cells.len() == names.len());
        let Some(cells) = cells else { return Err(found) };
        let mut members = Vec::new();
        for (name, cell) in names.iter().zip(cells) {
            set(&mut members, name.clone(), value(cell));
        }
        found.push(Value::Object(members).write());
    }
    Ok(found)
}

/// Infers the type of a cell: an exact number, `true` or `false`; an empty cell is null.
fn inferred(cell: String) -> Value {
    match cell.as_str() {
        "" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match Value::parse(&cell) {
            // The text must have no surrounding spaces.
            Ok(Value::Number(text)) if text == cell => Value::Number(text),
            _ => Value::String(cell),
        },
    }
}

fn texts(cells: Vec<Vec<u8>>) -> Option<Vec<String>> {
    cells.into_iter().map(|cell| String::from_utf8(cell).ok()).collect()
}

struct DelimitedRows<'a> {
    rest: &'a [u8],
    delimiter: u8,
}

impl DelimitedRows<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }
}

impl Iterator for DelimitedRows<'_> {
    /// The cells of a row; `None` if the row is invalid.
    type Item = Option<Vec<Vec<u8>>>;

    fn next(&mut self) -> Option<Option<Vec<Vec<u8>>>> {
        while let [b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let mut cells = Vec::new();
        loop {
            let mut cell = Vec::new();
            let after = if self.rest.first() == Some(&b'"') {
                self.take();
                loop {
                    match self.take() {
                        None => return Some(None),
                        Some(b'"') if self.rest.first() == Some(&b'"') => {
                            self.take();
                            cell.push(b'"');
                        }
                        Some(b'"') => break self.take(),
                        Some(byte) => cell.push(byte),
                    }
                }
            } else {
                loop {
                    match self.take() {
                        Some(byte) if byte != self.delimiter && byte != b'\n' && byte != b'\r' => cell.push(byte),
                        other => break other,
                    }
                }
            };
            cells.push(cell);
            match after {
                Some(byte) if byte == self.delimiter => {}
                // A line feed after a carriage return is skipped with the empty lines before the next row.
                None | Some(b'\n' | b'\r') => return Some(Some(cells)),
                Some(_) => return Some(None),
            }
        }
    }
}

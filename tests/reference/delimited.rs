//! CSV and TSV as sources (RFC 4180; docs/reference/import-semantics.md, Sources), one byte after the other, with the
//! types of cells where they are inferred.

use super::value::{Value, set};

/// The entities, as compact JSON; with an error, those before it.
pub fn entities(table: &[u8], delimiter: u8, infers: bool) -> Result<Vec<String>, Vec<String>> {
    let value = |cell| if infers { inferred(cell) } else { Value::String(cell) };
    let mut rows = Rows { rest: table, delimiter };
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

/// A cell that is exactly a number, `true` or `false` is that; an empty one is null.
fn inferred(cell: String) -> Value {
    match cell.as_str() {
        "" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match Value::parse(&cell) {
            // No blanks around it.
            Ok(Value::Number(text)) if text == cell => Value::Number(text),
            _ => Value::String(cell),
        },
    }
}

fn texts(cells: Vec<Vec<u8>>) -> Option<Vec<String>> {
    cells.into_iter().map(|cell| String::from_utf8(cell).ok()).collect()
}

struct Rows<'a> {
    rest: &'a [u8],
    delimiter: u8,
}

impl Rows<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }
}

impl Iterator for Rows<'_> {
    /// A row's cells; none if it is bad.
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
                // A line feed after a carriage return is taken with the blank lines before the next row.
                None | Some(b'\n' | b'\r') => return Some(Some(cells)),
                Some(_) => return Some(None),
            }
        }
    }
}

//! One level out of many: nested objects as dotted names (decisions, section 3, rule 12).
//!
//! A member of an object is named `parent.field`. A non-empty array whose elements are all objects is spread out, the
//! fields of element `i` being named `parent_i_field`; any other array is one cell, its compact JSON. An empty object has
//! no cell. Where two sources give one name, the first position and the last value stay.

use super::MAX_DEPTH;
use super::cursor::{Cursor, Kind, Scalar};
use super::keys::{KeyHashes, Winners};
use super::text::{Text, escape_one, write_key};

/// The value under a flattened name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as its text.
    Number(&'a str),
    /// A string.
    String(Text<'a>),
    /// An array, as its canonical text. In JSON it is a string with this content.
    Array(&'a [u8]),
}

/// Appends the entity flattened, as one canonical object. For many entities, a [`Flattener`] spares allocations.
pub fn flatten(document: &[u8], out: &mut Vec<u8>) {
    Flattener::default().flatten(document, out);
}

/// Calls `visit` with every name and cell of the flattened entity, in order; no name twice. For many entities, a
/// [`Flattener`] spares allocations.
pub fn flatten_cells<'a>(document: &'a [u8], visit: impl FnMut(Text<'_>, Cell<'a>)) {
    Flattener::default().cells(document, visit);
}

/// [`flatten`] and [`flatten_cells`] with their working memory kept from one entity to the next.
///
/// Names are spelled out in full, so that an entity of many fields below long names needs more memory than its text, at
/// worst their product.
#[derive(Debug, Default)]
pub struct Flattener {
    /// The name of the value in hand, in canonical escapes.
    name: Vec<u8>,
    /// The names of the cells, one after the other.
    names: Vec<u8>,
    cells: Vec<FoundCell>,
    hashes: KeyHashes,
    winners: Winners,
    /// Whether a name may be there twice.
    suspect: bool,
}

/// Where a cell's name ends in `names` (it begins where the one before ends), and its value in the entity.
#[derive(Clone, Copy, Debug)]
struct FoundCell {
    name_end: usize,
    value_start: usize,
    value_end: usize,
}

impl Flattener {
    /// As the free function [`flatten`].
    pub fn flatten(&mut self, document: &[u8], out: &mut Vec<u8>) {
        out.reserve(document.len());
        out.push(b'{');
        let first = out.len();
        self.cells(document, |name, cell| {
            if out.len() > first {
                out.push(b',');
            }
            write_key(name, out);
            match cell {
                Cell::Null => out.extend_from_slice(b"null"),
                Cell::Bool(true) => out.extend_from_slice(b"true"),
                Cell::Bool(false) => out.extend_from_slice(b"false"),
                Cell::Number(text) => out.extend_from_slice(text.as_bytes()),
                Cell::String(text) => {
                    out.push(b'"');
                    out.extend_from_slice(text.raw());
                    out.push(b'"');
                }
                Cell::Array(json) => write_quoted(json, out),
            }
        });
        out.push(b'}');
    }

    /// As the free function [`flatten_cells`].
    pub fn cells<'a>(&mut self, document: &'a [u8], mut visit: impl FnMut(Text<'_>, Cell<'a>)) {
        self.collect(document);
        let name_of = |cells: &[FoundCell], cell: usize| {
            let start = if cell == 0 { 0 } else { cells[cell - 1].name_end };
            start..cells[cell].name_end
        };
        let Flattener { names, cells, winners, .. } = self;
        let winners = match self.suspect {
            true => winners.find(cells.len(), |cell| &names[name_of(cells, cell)]),
            false => None,
        };
        for cell in 0..cells.len() {
            let winner = winners.map_or(Some(cell), |winners| winners[cell]);
            if let Some(winner) = winner {
                let value = &document[cells[winner].value_start..cells[winner].value_end];
                visit(Text::new(&names[name_of(cells, cell)]), Cell::of(value));
            }
        }
    }

    fn collect(&mut self, document: &[u8]) {
        self.name.clear();
        self.names.clear();
        self.cells.clear();
        self.hashes.truncate(0);
        self.suspect = false;
        let mut cursor = Cursor::new(document);
        if cursor.peek() == Some(Kind::Object) {
            self.members(&mut cursor, 1);
        }
    }

    /// Takes the members of the object that comes next, at level `depth`; `name` is what their names begin with.
    fn members(&mut self, cursor: &mut Cursor<'_>, depth: usize) {
        let parent_length = self.name.len();
        cursor.enter();
        while let Some(key) = cursor.next_key() {
            self.name.extend_from_slice(key.raw());
            self.value(cursor, depth + 1);
            self.name.truncate(parent_length);
        }
    }

    /// Takes the value that comes next, at level `depth` if it has one, under `name`.
    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize) {
        match cursor.peek() {
            Some(Kind::Object) if depth <= MAX_DEPTH => {
                self.name.push(b'.');
                self.members(cursor, depth);
            }
            Some(Kind::Array) if depth <= MAX_DEPTH && holds_objects_only(cursor.clone()) => {
                let parent_length = self.name.len();
                cursor.enter();
                let mut number = 0_usize;
                while cursor.next_element() {
                    write_number(number, &mut self.name);
                    self.members(cursor, depth + 1);
                    self.name.truncate(parent_length);
                    number += 1;
                }
            }
            _ => self.cell(cursor),
        }
    }

    fn cell(&mut self, cursor: &mut Cursor<'_>) {
        let value = cursor.skip_value();
        self.suspect |= self.hashes.may_repeat(0, &self.name);
        self.names.extend_from_slice(&self.name);
        let value_end = cursor.offset();
        self.cells.push(FoundCell { name_end: self.names.len(), value_start: value_end - value.len(), value_end });
    }
}

impl<'a> Cell<'a> {
    fn of(value: &'a [u8]) -> Cell<'a> {
        match Scalar::read(value) {
            Some(Scalar::Null) => Cell::Null,
            Some(Scalar::Bool(value)) => Cell::Bool(value),
            Some(Scalar::Number(text)) => Cell::Number(text),
            Some(Scalar::String(text)) => Cell::String(text),
            None => Cell::Array(value),
        }
    }
}

/// Appends `_number_`.
fn write_number(number: usize, name: &mut Vec<u8>) {
    name.push(b'_');
    match u8::try_from(number) {
        Ok(digit @ 0..10) => name.push(b'0' + digit),
        _ => name.extend_from_slice(number.to_string().as_bytes()),
    }
    name.push(b'_');
}

/// Whether the array that comes next has elements, and they are all objects.
fn holds_objects_only(mut cursor: Cursor<'_>) -> bool {
    cursor.enter();
    let mut any = false;
    while cursor.next_element() {
        if cursor.peek() != Some(Kind::Object) {
            return false;
        }
        cursor.skip_value();
        any = true;
    }
    any
}

/// Appends canonical text as a JSON string.
fn write_quoted(json: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = json;
    // Canonical text has no control characters of its own.
    while let Some(stop) = memchr::memchr2(b'"', b'\\', rest) {
        out.extend_from_slice(&rest[..stop]);
        escape_one(rest[stop], out);
        rest = &rest[stop + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

//! Entities as the rows of a table, or as JSON. Both end early where a page would become too large.

use std::collections::HashMap;

use super::Links;
use super::entities::Entities;
use crate::dashboard::figures;
use crate::dashboard::marks::Marks;
use crate::dashboard::shown::Shown;
use crate::document::{Cursor, JsonType, Scalar, members, pretty_within};
use crate::model::path::Path;

/// Columns of a table. Others are counted.
const COLUMNS: usize = 60;

/// Characters of a value in a table.
const CELL_CHARACTERS: usize = 240;

/// Characters of a nested value that unfolds.
const NESTED_CHARACTERS: usize = 4_000;

/// Characters of what is shown of a nested value before it unfolds.
const PREVIEW_CHARACTERS: usize = 60;

/// Characters of an entity as JSON.
const JSON_CHARACTERS: usize = 100_000;

/// Bytes of all that is shown.
const SHOWN_BYTES: usize = 1 << 20;

/// How entities are shown.
pub(super) struct Look<'a> {
    pub(super) links: &'a Links<'a>,
    /// Where each stands in the version, as far as that is known.
    pub(super) positions: &'a [u64],
    /// Where the first stands in the answer.
    pub(super) offset: u64,
    /// What is marked.
    pub(super) marks: Marks,
    /// The columns of a table that are asked for, in their order; none for all.
    pub(super) columns: Vec<String>,
}

/// A table of entities. Its columns are their top-level fields: those asked for, or all in the order of first
/// appearance.
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    /// Columns that are not shown because there are too many.
    pub(super) left_out: usize,
    /// Columns that are not shown because others were asked for.
    pub(super) hidden: usize,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Column {
    pub(super) name: Shown,
    /// The whole name, unless it is long.
    pub(super) key: Option<String>,
    /// What a click on its head leads to.
    pub(super) sort: Option<String>,
    /// `ascending`, `descending` or `none`.
    pub(super) order: &'static str,
}

pub(super) struct Row {
    pub(super) label: RowLabel,
    pub(super) cells: Vec<Cell>,
}

/// What names a row: where it stands in the version, with the entity's page; or its place in the answer.
pub(super) struct RowLabel {
    pub(super) text: String,
    pub(super) href: Option<String>,
}

pub(super) enum Cell {
    Missing,
    Null,
    Boolean(bool),
    Number(Shown),
    Text(Shown),
    /// What unfolds; at once where something in it is marked.
    Nested {
        preview: Shown,
        json: Shown,
    },
}

/// An entity as JSON.
pub(super) struct JsonRow {
    pub(super) label: RowLabel,
    pub(super) json: Shown,
}

impl Look<'_> {
    fn label(&self, index: usize) -> RowLabel {
        match self.positions.get(index) {
            Some(at) => RowLabel { text: figures::grouped(*at), href: Some(self.links.place.entity(*at)) },
            None => RowLabel { text: figures::grouped(self.offset.saturating_add(index as u64)), href: None },
        }
    }
}

impl Table {
    pub(super) fn new(entities: &Entities, look: &Look<'_>) -> Table {
        let mut names: Vec<String> = look.columns.iter().take(COLUMNS).cloned().collect();
        let chosen = names.len();
        let mut places: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let mut rows = Vec::new();
        let mut bytes = 0;
        for (index, entity) in entities.iter().enumerate() {
            let mut cells: Vec<(usize, Cell)> = Vec::new();
            for (key, value) in members(entity) {
                let key = key.unescape();
                let place = match places.get(&*key) {
                    Some(place) => *place,
                    None => {
                        places.insert(key.clone().into_owned(), names.len());
                        names.push(key.into_owned());
                        names.len() - 1
                    }
                };
                if place < if chosen > 0 { chosen } else { COLUMNS } {
                    let (cell, weight) = cell(value, &look.marks);
                    bytes += weight;
                    cells.push((place, cell));
                }
            }
            rows.push((look.label(index), cells));
            if bytes > SHOWN_BYTES {
                break;
            }
        }
        let (left_out, hidden) = match chosen {
            0 => (names.len().saturating_sub(COLUMNS), 0),
            chosen => (0, names.len() - chosen),
        };
        names.truncate(if chosen > 0 { chosen } else { COLUMNS });
        let row = |(label, found): (RowLabel, Vec<(usize, Cell)>)| {
            let mut cells: Vec<Cell> = names.iter().map(|_| Cell::Missing).collect();
            found.into_iter().for_each(|(place, cell)| cells[place] = cell);
            Row { label, cells }
        };
        let rows = rows.into_iter().map(row).collect();
        let columns = names.iter().map(|name| Column::new(name, look.links)).collect();
        Table { columns, left_out, hidden, rows }
    }
}

impl Column {
    fn new(name: &str, links: &Links<'_>) -> Column {
        let sorted = links.query.first("sort");
        let is = |direction: &str| sorted == Some(format!("{name}:{direction}").as_str());
        let (order, next) = match () {
            () if is("asc") || sorted == Some(name) => ("ascending", "desc"),
            () if is("desc") => ("descending", "asc"),
            () => ("none", "asc"),
        };
        // A sort takes a field of the entities, which a column of a nested one is not.
        let is_nested = links.query.first("flatten").is_some() && Path::is_deep(name);
        let sort = (!name.is_empty() && !is_nested).then(|| links.sorted(name, next)).flatten();
        let key = (name.len() <= CELL_CHARACTERS).then(|| name.to_owned());
        Column { name: Shown::beginning(name, CELL_CHARACTERS, false), key, sort, order }
    }
}

/// A value as a cell, and the bytes that it takes.
fn cell(value: &[u8], marks: &Marks) -> (Cell, usize) {
    let cell = match Scalar::read(value) {
        Some(Scalar::Null) => Cell::Null,
        Some(Scalar::Bool(value)) => Cell::Boolean(value),
        Some(Scalar::Number(text)) => Cell::Number(Shown::new(text, CELL_CHARACTERS).marking(marks).alone()),
        Some(Scalar::String(text)) => {
            Cell::Text(Shown::linked(&text.unescape(), CELL_CHARACTERS).marking(marks).alone())
        }
        None => {
            let json = pretty(value, NESTED_CHARACTERS).marking_json(marks).alone();
            Cell::Nested { preview: preview(value).alone(), json }
        }
    };
    let weight = match &cell {
        Cell::Number(shown) | Cell::Text(shown) => shown.weight(),
        Cell::Nested { preview, json } => preview.weight() + json.weight(),
        Cell::Missing | Cell::Null | Cell::Boolean(_) => 8,
    };
    (cell, weight)
}

/// The beginning of an object or an array on one line: `{common: "Aruba", … of 3 fields}`.
fn preview(value: &[u8]) -> Shown {
    let mut cursor = Cursor::new(value);
    let is_object = cursor.peek() == Some(JsonType::Object);
    cursor.enter();
    let mut text = String::from(if is_object { "{" } else { "[" });
    let mut room = PREVIEW_CHARACTERS;
    let mut separator = "";
    loop {
        let key = if is_object { cursor.next_key() } else { None };
        if key.is_none() && (is_object || !cursor.next_element()) {
            break;
        }
        let mut part = key.map(|key| format!("{}: ", key.unescape())).unwrap_or_default();
        match cursor.skip_value() {
            [b'{', _, _, ..] => part.push_str("{…}"),
            [b'[', _, _, ..] => part.push_str("[…]"),
            // No more of a long text than may be shown.
            value => part.push_str(&String::from_utf8_lossy(&value[..value.len().min(4 * PREVIEW_CHARACTERS)])),
        }
        let characters = part.chars().count() + separator.len();
        text.push_str(separator);
        if characters > room {
            // A first part is shown as far as it goes.
            if separator.is_empty() {
                text.extend(part.chars().take(room));
            }
            let all = summary(value);
            text.push_str(&format!("… of {}", all.trim_matches(['{', '}', '[', ']'])));
            break;
        }
        text.push_str(&part);
        room -= characters;
        separator = ", ";
    }
    text.push(if is_object { '}' } else { ']' });
    Shown::whole(&text)
}

/// What an object or an array holds, in a few words.
pub(in crate::dashboard) fn summary(value: &[u8]) -> String {
    let mut cursor = Cursor::new(value);
    let is_object = cursor.peek() == Some(JsonType::Object);
    cursor.enter();
    let mut number = 0;
    if is_object {
        while cursor.next_key().is_some() {
            cursor.skip_value();
            number += 1;
        }
        return format!("{{{}}}", figures::counted(number, "field", "fields"));
    }
    while cursor.next_element() {
        cursor.skip_value();
        number += 1;
    }
    format!("[{}]", figures::counted(number, "item", "items"))
}

/// A value as indented JSON, or its beginning.
fn pretty(value: &[u8], characters: usize) -> Shown {
    let mut text = Vec::new();
    // What is cut anyway need not be laid out.
    let is_small = value.len() <= characters && pretty_within(value, 0, 8 * characters, &mut text);
    let text = if is_small { &text[..] } else { value };
    Shown::new(&String::from_utf8_lossy(text), characters)
}

/// Entities as JSON.
pub(super) fn json(entities: &Entities, look: &Look<'_>) -> Vec<JsonRow> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for (index, entity) in entities.iter().enumerate() {
        let json = pretty(entity, JSON_CHARACTERS).marking_json(&look.marks);
        bytes += json.weight();
        rows.push(JsonRow { label: look.label(index), json });
        if bytes > SHOWN_BYTES {
            break;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_value_is_seen_before_it_unfolds() {
        let many = format!("[{}1]", "1,".repeat(99));
        let cut = format!("{{a: \"{}… of 2 fields}}", "x".repeat(56));
        let long = format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(100));
        for (value, shown) in [
            (
                r#"{"common":"Aruba","n":1.50,"in":{"x":1},"of":[],"none":null}"#,
                r#"{common: "Aruba", n: 1.50, in: {…}, of: [], none: null}"#,
            ),
            ("[1,[2],{\"a\":1}]", "[1, […], {…}]"),
            ("[]", "[]"),
            (r#"{"a":"<b>\u202e"}"#, r#"{a: "<b>\u202e"}"#),
            (many.as_str(), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … of 100 items]"),
            (long.as_str(), cut.as_str()),
        ] {
            assert_eq!(preview(value.as_bytes()).to_string(), Shown::whole(shown).to_string());
        }
    }
}

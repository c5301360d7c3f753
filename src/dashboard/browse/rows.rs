//! Entities as the rows of a table, or as JSON. Both end early if a page would become too large.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};
use strata_json::members;
use strata_types::path::Path;

use super::cells::{CELL_CHARACTERS, Cell, cell, pretty};
use super::entities::Entities;
use super::links::Links;
use super::widths;
use crate::format;
use crate::highlight::{Highlighter, Syntax};
use crate::safe_text::{SafeText, named_text};

pub(super) const TABLE_COLUMNS: usize = 60;

/// Digits that are visible in a window of a usual width.
const IN_SIGHT: usize = 60;

/// Columns that are moved into sight because of their hits.
const HIT_COLUMNS: usize = 3;

const NAME_CHARACTERS: usize = 40;

const JSON_CHARACTERS: usize = 100_000;

const SHOWN_BYTES: usize = 1 << 20;

pub(super) struct TableContext<'a> {
    pub(super) links: &'a Links<'a>,
    /// The positions of the entities in the version, as far as they are known.
    pub(super) positions: &'a [u64],
    /// The position of the first entity in the response.
    pub(super) offset: u64,
    pub(super) marks: Highlighter,
    /// The requested columns in their order; empty for all.
    pub(super) columns: Vec<String>,
}

/// A table of entities. Its columns are their top-level fields: the requested ones, or all in the order of first
/// appearance. The column that sorts, and those with the hits of most rows, are moved behind the first column if they
/// would be out of sight.
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) left_out: usize,
    /// Columns that are not shown because others were requested.
    pub(super) hidden: usize,
    pub(super) rows: Vec<Row>,
    /// The width of the column of positions in digits.
    pub(super) position_width: usize,
    /// Whether all columns fit if they have the same width: then they share the width of the page.
    pub(super) is_even: bool,
}

pub(super) struct Column {
    pub(super) name: SafeText,
    /// The whole name if it is shortened.
    pub(super) whole: Option<String>,
    /// A unique key: the name, or its hash.
    pub(super) key: String,
    pub(super) sort: Option<String>,
    /// `ascending`, `descending` or `none`.
    pub(super) order: &'static str,
    /// The width in digits, which names a class of the style sheet.
    pub(super) width: usize,
    /// Whether all values are numbers or null.
    pub(super) is_number: bool,
}

pub(super) struct Row {
    pub(super) label: RowLabel,
    pub(super) cells: Vec<Cell>,
}

/// The position of an entity in the version, with its page; or its place in the response.
pub(super) struct RowLabel {
    pub(super) text: String,
    pub(super) href: Option<String>,
}

pub(super) struct JsonRow {
    pub(super) label: RowLabel,
    pub(super) json: SafeText,
}

impl TableContext<'_> {
    pub(super) fn label(&self, index: usize) -> RowLabel {
        match self.positions.get(index) {
            Some(at) => RowLabel { text: format::grouped(*at), href: Some(self.links.place.entity(*at)) },
            None => RowLabel { text: format::grouped(self.offset.saturating_add(index as u64)), href: None },
        }
    }
}

impl Table {
    pub(super) fn new(entities: &Entities, look: &TableContext<'_>) -> Table {
        let mut names: Vec<String> = look.columns.iter().take(TABLE_COLUMNS).cloned().collect();
        let chosen = names.len();
        let mut places: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let sorted = look.links.sorted_field().filter(|_| chosen == 0);
        let most = if chosen > 0 { chosen } else { TABLE_COLUMNS };
        let hit = if chosen > 0 { None } else { first_hit(entities, &look.marks) };
        let is_late = |name: &str| sorted == Some(name) || hit.as_deref() == Some(name);
        let mut rows = Vec::new();
        let mut bytes = 0;
        // The columns with values that cannot be sorted, and those with others.
        let mut nested = HashSet::new();
        let mut scalar = HashSet::new();
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
                if place < most || is_late(&names[place]) {
                    let (cell, weight) = cell(value, &look.marks);
                    bytes += weight;
                    match value.first() {
                        Some(b'{' | b'[') => _ = nested.insert(names[place].clone()),
                        Some(b'n') | None => {}
                        Some(_) => _ = scalar.insert(names[place].clone()),
                    }
                    cells.push((place, cell));
                }
            }
            rows.push((look.label(index), cells));
            if bytes > SHOWN_BYTES {
                break;
            }
        }
        let (left_out, hidden) = match chosen {
            0 => (names.len().saturating_sub(TABLE_COLUMNS), 0),
            chosen => (0, names.len() - chosen),
        };
        // Late columns that are searched for replace the last ones.
        let late: Vec<usize> = (most..names.len()).filter(|place| is_late(&names[*place])).collect();
        let shown: Vec<usize> = (0..most.min(names.len()) - late.len()).chain(late).collect();
        let mut columns_of = vec![None; names.len()];
        shown.iter().enumerate().for_each(|(column, place)| columns_of[*place] = Some(column));
        let sorted = sorted.and_then(|sorted| columns_of[*places.get(sorted)?]);
        let names: Vec<String> = shown.into_iter().map(|place| std::mem::take(&mut names[place])).collect();
        let rows = rows.into_iter().map(|(label, found)| {
            let mut cells: Vec<Cell> = names.iter().map(|_| Cell::Missing).collect();
            for (place, cell) in found {
                if let Some(column) = columns_of[place] {
                    cells[column] = cell;
                }
            }
            Row { label, cells }
        });
        let rows: Vec<Row> = rows.collect();
        let columns = names.iter().enumerate().map(|(place, name)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(place));
            Column {
                width: widths::for_column(name, cells.clone()),
                is_number: are_numbers(cells),
                ..Column::new(name, nested.contains(name) && !scalar.contains(name), look.links)
            }
        });
        let columns: Vec<Column> = columns.collect();
        let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
        let is_even = widest * columns.len() <= IN_SIGHT;
        let position_width = widths::for_positions(rows.iter().map(|row| row.label.text.as_str()));
        let mut table = Table { columns, left_out, hidden, rows, position_width, is_even };
        if chosen == 0 {
            table.bring_into_sight(sorted);
        }
        table
    }

    fn bring_into_sight(&mut self, sorted: Option<usize>) {
        let mut to = 1;
        if let Some(from) = sorted {
            to += usize::from(self.bring(from, to));
        }
        for _ in 0..HIT_COLUMNS {
            let in_sight = (0..self.columns.len()).take_while(|column| self.is_in_sight(*column)).count().max(to);
            let out_of_sight = |row: &&Row| !row.cells[..in_sight.min(row.cells.len())].iter().any(Cell::is_marked);
            let mut hits = vec![0_usize; self.columns.len()];
            for row in self.rows.iter().filter(out_of_sight) {
                row.cells.iter().zip(&mut hits).for_each(|(cell, hits)| *hits += usize::from(cell.is_marked()));
            }
            let best = (0..hits.len()).rev().max_by_key(|column| hits[*column]);
            match best.filter(|column| hits[*column] > 0) {
                Some(from) if self.bring(from, to) => to += 1,
                _ => break,
            }
        }
    }

    fn is_in_sight(&self, column: usize) -> bool {
        self.columns.iter().take(column + 1).map(|column| column.width).sum::<usize>() <= IN_SIGHT
    }

    /// Moves a column forward if it is out of sight.
    fn bring(&mut self, from: usize, to: usize) -> bool {
        if from <= to || from >= self.columns.len() || self.is_in_sight(from) {
            return false;
        }
        self.columns[to..=from].rotate_right(1);
        self.rows.iter_mut().for_each(|row| row.cells[to..=from].rotate_right(1));
        true
    }
}

fn first_hit(entities: &Entities, marks: &Highlighter) -> Option<String> {
    if marks.is_empty() {
        return None;
    }
    let is_hit = |value: &[u8]| !marks.parts(&String::from_utf8_lossy(value), Syntax::Json).is_empty();
    let mut fields = entities.iter().flat_map(members);
    fields.find(|(_, value)| is_hit(value)).map(|(key, _)| key.unescape().into_owned())
}

fn are_numbers<'a>(cells: impl Iterator<Item = &'a Cell>) -> bool {
    let mut values = cells.filter(|cell| !matches!(cell, Cell::Missing | Cell::Null)).peekable();
    values.peek().is_some() && values.all(|cell| matches!(cell, Cell::Number(_)))
}

impl Column {
    fn new(name: &str, is_nested: bool, links: &Links<'_>) -> Column {
        let (order, next) = match links.query.first("sort").filter(|_| links.sorted_field() == Some(name)) {
            None => ("none", "asc"),
            Some(sort) if sort.ends_with(":desc") => ("descending", "asc"),
            Some(_) => ("ascending", "desc"),
        };
        // A sort requires a top-level field of the entities.
        let is_nested = is_nested || links.query.first("flatten").is_some() && Path::is_deep(name);
        let sort = (!name.is_empty() && !is_nested).then(|| links.sorted(name, next)).flatten();
        // Browsers replace some characters, and names can be too long for an attribute.
        let is_kept = |character: char| !character.is_control() && character != char::REPLACEMENT_CHARACTER;
        let key = match name.len() <= CELL_CHARACTERS && name.chars().all(is_kept) {
            true => name.to_owned(),
            false => hex::encode(Sha256::digest(name)),
        };
        let whole = (name.chars().count() > NAME_CHARACTERS).then(|| named_text(name));
        let name = SafeText::short(name, NAME_CHARACTERS);
        Column { name, whole, key, sort, order, width: 0, is_number: false }
    }
}

pub(super) fn json(entities: &Entities, look: &TableContext<'_>) -> Vec<JsonRow> {
    let mut rows = Vec::new();
    let mut bytes = 0;
    for (index, entity) in entities.iter().enumerate() {
        let json = pretty(entity, JSON_CHARACTERS);
        let json = match json.is_cut() && !look.marks.is_empty() {
            true => json.searched(&String::from_utf8_lossy(entity), &look.marks, Syntax::Json).0,
            false => json.marking(&look.marks, Syntax::Json),
        };
        bytes += json.weight();
        rows.push(JsonRow { label: look.label(index), json });
        if bytes > SHOWN_BYTES {
            break;
        }
    }
    rows
}

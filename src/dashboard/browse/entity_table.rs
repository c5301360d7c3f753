//! Entities as rows of a table or as JSON. Both are truncated if the page would become too large.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};
use strata_json::members;
use strata_types::field_path::FieldPath;

use super::cells::{MAX_CELL_CHARACTERS, TableCell, build_cell_and_html_bytes, pretty_json};
use super::column_widths;
use super::links::BrowseLinks;
use super::page_entities::PageEntities;
use crate::format;
use crate::highlight::{EscapeSyntax, KeywordHighlighter};
use crate::safe_text::{SafeText, name_invisible_chars};

pub(super) const MAX_TABLE_COLUMNS: usize = 60;

/// The width of a table, in digits, that is visible in a browser window of common size.
const VISIBLE_WIDTH_DIGITS: usize = 60;

const MAX_MOVED_MATCH_COLUMNS: usize = 3;
const MAX_COLUMN_NAME_CHARACTERS: usize = 40;
const MAX_JSON_CHARACTERS: usize = 100_000;
const MAX_ROWS_HTML_BYTES: usize = 1 << 20;

pub(super) struct TableContext<'a> {
    pub(super) links: &'a BrowseLinks<'a>,
    pub(super) positions: &'a [u64],
    pub(super) offset: u64,
    pub(super) highlighter: KeywordHighlighter,
    /// The columns that the request names; empty if it requests all columns.
    pub(super) requested_columns: Vec<String>,
}

/// A table of entities. Its columns are top-level fields: the requested ones, or all in the order of first appearance.
/// The sorted column and the columns with the most matches move behind the first column if they would not be visible.
pub(super) struct EntityTable {
    pub(super) columns: Vec<TableColumn>,
    pub(super) omitted_columns: usize,
    pub(super) hidden_columns: usize,
    pub(super) rows: Vec<TableRow>,
    pub(super) position_width: usize,
    /// Whether all columns of the table fit into the page if they have equal widths.
    pub(super) has_equal_widths: bool,
}

pub(super) struct TableColumn {
    pub(super) name: SafeText,
    pub(super) full_name: Option<String>,
    /// The name of the column, or its hash if the name is not suitable for an HTML attribute.
    pub(super) key: String,
    pub(super) sort: Option<String>,
    pub(super) order: &'static str,
    pub(super) width: usize,
    /// Whether all values of the column are numbers or null, and at least one is a number.
    pub(super) is_number: bool,
}

pub(super) struct TableRow {
    pub(super) label: RowLabel,
    pub(super) cells: Vec<TableCell>,
}

/// The label of a table row: the position of the entity in the version, with the URL of the entity's page, or the
/// number of the entity in the result.
pub(super) struct RowLabel {
    pub(super) text: String,
    pub(super) href: Option<String>,
}

pub(super) struct JsonRow {
    pub(super) label: RowLabel,
    pub(super) json: SafeText,
}

impl TableContext<'_> {
    pub(super) fn row_label(&self, index: usize) -> RowLabel {
        match self.positions.get(index) {
            Some(at) => RowLabel { text: format::group_thousands(*at), href: Some(self.links.urls.entity_url(*at)) },
            None => RowLabel { text: format::group_thousands(self.offset.saturating_add(index as u64)), href: None },
        }
    }
}

impl EntityTable {
    pub(super) fn new(entities: &PageEntities, context: &TableContext<'_>) -> EntityTable {
        let mut names: Vec<String> = context.requested_columns.iter().take(MAX_TABLE_COLUMNS).cloned().collect();
        let requested_count = names.len();
        let mut indexes: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let sorted = context.links.sorted_field().filter(|_| requested_count == 0);
        let max_columns = if requested_count > 0 { requested_count } else { MAX_TABLE_COLUMNS };
        let first_match =
            if requested_count > 0 { None } else { find_first_matching_field(entities, &context.highlighter) };
        let is_late = |name: &str| sorted == Some(name) || first_match.as_deref() == Some(name);
        let mut rows = Vec::new();
        let mut bytes = 0;
        // A column can be sorted unless all its values are objects or arrays.
        let mut nested_columns = HashSet::new();
        let mut scalar_columns = HashSet::new();
        for (index, entity) in entities.iter().enumerate() {
            let mut cells: Vec<(usize, TableCell)> = Vec::new();
            for (key, value) in members(entity) {
                let key = key.unescape();
                let column = indexes.get(&*key).copied().unwrap_or_else(|| {
                    indexes.insert(key.clone().into_owned(), names.len());
                    names.push(key.into_owned());
                    names.len() - 1
                });
                if column < max_columns || is_late(&names[column]) {
                    let (cell, html_bytes) = build_cell_and_html_bytes(value, &context.highlighter);
                    bytes += html_bytes;
                    match value.first() {
                        Some(b'{' | b'[') => _ = nested_columns.insert(names[column].clone()),
                        Some(b'n') | None => {}
                        Some(_) => _ = scalar_columns.insert(names[column].clone()),
                    }
                    cells.push((column, cell));
                }
            }
            rows.push((context.row_label(index), cells));
            if bytes > MAX_ROWS_HTML_BYTES {
                break;
            }
        }
        let (omitted_columns, hidden_columns) = match requested_count {
            0 => (names.len().saturating_sub(MAX_TABLE_COLUMNS), 0),
            requested_count => (0, names.len() - requested_count),
        };
        // A column beyond the maximum replaces one of the last columns if it has the sorted field or the first match.
        let late: Vec<usize> = (max_columns..names.len()).filter(|index| is_late(&names[*index])).collect();
        let shown: Vec<usize> = (0..max_columns.min(names.len()) - late.len()).chain(late).collect();
        let mut column_indexes = vec![None; names.len()];
        shown.iter().enumerate().for_each(|(column, index)| column_indexes[*index] = Some(column));
        let sorted = sorted.and_then(|sorted| column_indexes[*indexes.get(sorted)?]);
        let names: Vec<String> = shown.into_iter().map(|index| std::mem::take(&mut names[index])).collect();
        let rows = rows.into_iter().map(|(label, values)| {
            let mut cells: Vec<TableCell> = names.iter().map(|_| TableCell::Missing).collect();
            for (index, cell) in values {
                if let Some(column) = column_indexes[index] {
                    cells[column] = cell;
                }
            }
            TableRow { label, cells }
        });
        let rows: Vec<TableRow> = rows.collect();
        let columns = names.iter().enumerate().map(|(index, name)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(index));
            TableColumn {
                width: column_widths::column_width(name, cells.clone()),
                is_number: has_only_numbers(cells),
                ..TableColumn::new(name, nested_columns.contains(name) && !scalar_columns.contains(name), context.links)
            }
        });
        let columns: Vec<TableColumn> = columns.collect();
        let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
        let has_equal_widths = widest * columns.len() <= VISIBLE_WIDTH_DIGITS;
        let position_width = column_widths::position_column_width(rows.iter().map(|row| row.label.text.as_str()));
        let mut table =
            EntityTable { columns, omitted_columns, hidden_columns, rows, position_width, has_equal_widths };
        if requested_count == 0 {
            table.move_relevant_columns_forward(sorted);
        }
        table
    }

    fn move_relevant_columns_forward(&mut self, sorted: Option<usize>) {
        let mut to = 1;
        if let Some(from) = sorted {
            to += usize::from(self.move_hidden_column_forward(from, to));
        }
        for _ in 0..MAX_MOVED_MATCH_COLUMNS {
            let in_sight = (0..self.columns.len()).take_while(|column| self.is_column_visible(*column)).count().max(to);
            let out_of_sight =
                |row: &&TableRow| !row.cells[..in_sight.min(row.cells.len())].iter().any(TableCell::has_keyword_match);
            let mut hits = vec![0_usize; self.columns.len()];
            for row in self.rows.iter().filter(out_of_sight) {
                row.cells.iter().zip(&mut hits).for_each(|(cell, hits)| *hits += usize::from(cell.has_keyword_match()));
            }
            let best = (0..hits.len()).rev().max_by_key(|column| hits[*column]);
            match best.filter(|column| hits[*column] > 0) {
                Some(from) if self.move_hidden_column_forward(from, to) => to += 1,
                _ => break,
            }
        }
    }

    fn is_column_visible(&self, column: usize) -> bool {
        self.columns.iter().take(column + 1).map(|column| column.width).sum::<usize>() <= VISIBLE_WIDTH_DIGITS
    }

    /// Moves a table column forward, unless it is already visible without scrolling. Returns whether it was moved.
    fn move_hidden_column_forward(&mut self, from: usize, to: usize) -> bool {
        if from <= to || from >= self.columns.len() || self.is_column_visible(from) {
            return false;
        }
        self.columns[to..=from].rotate_right(1);
        self.rows.iter_mut().for_each(|row| row.cells[to..=from].rotate_right(1));
        true
    }
}

fn find_first_matching_field(entities: &PageEntities, highlighter: &KeywordHighlighter) -> Option<String> {
    if highlighter.has_no_keywords() {
        return None;
    }
    let is_hit =
        |value: &[u8]| !highlighter.match_ranges(&String::from_utf8_lossy(value), EscapeSyntax::Json).is_empty();
    let mut fields = entities.iter().flat_map(members);
    fields.find(|(_, value)| is_hit(value)).map(|(key, _)| key.unescape().into_owned())
}

fn has_only_numbers<'a>(cells: impl Iterator<Item = &'a TableCell>) -> bool {
    let mut values = cells.filter(|cell| !matches!(cell, TableCell::Missing | TableCell::Null)).peekable();
    values.peek().is_some() && values.all(|cell| matches!(cell, TableCell::Number(_)))
}

impl TableColumn {
    fn new(name: &str, is_nested: bool, links: &BrowseLinks<'_>) -> TableColumn {
        let (order, next) = match links.query.first("sort").filter(|_| links.sorted_field() == Some(name)) {
            None => ("none", "asc"),
            Some(sort) if sort.ends_with(":desc") => ("descending", "asc"),
            Some(_) => ("ascending", "desc"),
        };
        let is_nested = is_nested || links.query.first("flatten").is_some() && FieldPath::is_nested_path(name);
        let sort = (!name.is_empty() && !is_nested).then(|| links.sort_url(name, next)).flatten();
        // A hash replaces a name that is too long for an attribute, or that has characters that browsers would change.
        let is_unchanged = |character: char| !character.is_control() && character != char::REPLACEMENT_CHARACTER;
        let key = match name.len() <= MAX_CELL_CHARACTERS && name.chars().all(is_unchanged) {
            true => name.to_owned(),
            false => hex::encode(Sha256::digest(name)),
        };
        let full_name = (name.chars().count() > MAX_COLUMN_NAME_CHARACTERS).then(|| name_invisible_chars(name));
        let name = SafeText::with_ellipsis(name, MAX_COLUMN_NAME_CHARACTERS);
        TableColumn { name, full_name, key, sort, order, width: 0, is_number: false }
    }
}

pub(super) fn build_json_rows(entities: &PageEntities, context: &TableContext<'_>) -> Vec<JsonRow> {
    let mut rows = Vec::new();
    let mut bytes = 0;
    for (index, entity) in entities.iter().enumerate() {
        let json = pretty_json(entity, MAX_JSON_CHARACTERS);
        let json = match json.is_truncated() && !context.highlighter.has_no_keywords() {
            true => json.with_matches_in(&String::from_utf8_lossy(entity), &context.highlighter, EscapeSyntax::Json).0,
            false => json.with_highlights(&context.highlighter, EscapeSyntax::Json),
        };
        bytes += json.estimated_html_bytes();
        rows.push(JsonRow { label: context.row_label(index), json });
        if bytes > MAX_ROWS_HTML_BYTES {
            break;
        }
    }
    rows
}

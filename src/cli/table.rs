//! Text tables that are printed page by page, so that only one page is in memory.

use serde::Serialize;
use strata_types::invisible_text::is_invisible;
use unicode_width::UnicodeWidthStr;

use super::error::CliError;
use super::{print_stdout, to_json_line};

pub(super) const PAGE_ROWS: u32 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnAlign {
    Left,
    Right,
}

pub(super) type TextTableColumn<R> = (&'static str, ColumnAlign, fn(&R) -> String);

/// A table whose columns are as wide as their widest cell so far. East Asian characters can be two columns wide.
pub(super) struct TextTable<R: 'static> {
    columns: &'static [TextTableColumn<R>],
    widths: Vec<usize>,
    is_header_printed: bool,
}

impl<R: Serialize> TextTable<R> {
    pub(super) fn new(columns: &'static [TextTableColumn<R>]) -> Self {
        TextTable { columns, widths: columns.iter().map(|(name, ..)| name.len()).collect(), is_header_printed: false }
    }

    pub(super) fn print(&mut self, rows: &[R], json: bool) -> Result<(), CliError> {
        print_stdout(&match json {
            true => rows.iter().map(to_json_line).collect::<Result<String, CliError>>()?,
            false => self.format_page(rows),
        })
    }

    fn format_page(&mut self, rows: &[R]) -> String {
        let header =
            (!self.is_header_printed).then(|| self.columns.iter().map(|(name, ..)| (*name).to_owned()).collect());
        let cells = rows.iter().map(|row| self.columns.iter().map(|(.., cell)| cell(row)).collect());
        let lines: Vec<Vec<String>> = header.into_iter().chain(cells).collect();
        self.is_header_printed = true;
        for line in &lines {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.width());
            }
        }
        lines.iter().map(|line| self.format_line(line)).collect()
    }

    fn format_line(&self, row: &[String]) -> String {
        let cells = row.iter().zip(self.columns).zip(&self.widths).map(|((cell, (_, align, _)), width)| {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                ColumnAlign::Left => format!("{cell}{padding}"),
                ColumnAlign::Right => format!("{padding}{cell}"),
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    }
}

pub(super) fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// Escapes control characters in a user's text, which could move the cursor.
pub(super) fn escape_control_characters(text: &str) -> String {
    let escaped = |character: char| match is_invisible(character) {
        true => character.escape_unicode().collect(),
        false => character.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_below_their_names() {
        const COLUMNS: &[TextTableColumn<[&str; 2]>] = &[
            ("ID", ColumnAlign::Right, |row| row[0].to_owned()),
            ("SLUG", ColumnAlign::Left, |row| row[1].to_owned()),
            ("FROZEN", ColumnAlign::Left, |_| "no".to_owned()),
        ];
        let mut table = TextTable::new(COLUMNS);
        let page = table.format_page(&[["1", "straße"], ["1234", "b"]]);
        assert_eq!(page, "  ID  SLUG    FROZEN\n   1  straße  no\n1234  b       no\n");
        assert_eq!(table.format_page(&[["5", "c"]]), "   5  c       no\n");
        assert_eq!(table.format_page(&[]), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        const COLUMNS: &[TextTableColumn<&str>] = &[
            ("E-MAIL", ColumnAlign::Left, |email| (*email).to_owned()),
            ("PLAN", ColumnAlign::Right, |_| "pro".to_owned()),
        ];
        let page = TextTable::new(COLUMNS).format_page(&["利用者@example.test", "사용자@x", "ａ@x", "e\u{301}@x"]);
        let expected = "E-MAIL               PLAN\n利用者@example.test   pro\n사용자@x              pro\n\
                        ａ@x                  pro\ne\u{301}@x                   pro\n";
        assert_eq!(page, expected);
    }
}

//! Tables of text, printed page by page, so that not all rows are in memory.

use serde::Serialize;
use strata_types::text::is_invisible;
use unicode_width::UnicodeWidthStr;

use super::error::CliError;
use super::{json_line, print};

/// Rows of a page.
pub(super) const PAGE: u32 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// The name of a column, its alignment, and the text of a row in it.
pub(super) type Column<R> = (&'static str, Align, fn(&R) -> String);

/// A table whose columns are as wide as their widest cell so far. A Chinese, Japanese or Korean character takes two
/// columns of a terminal.
pub(super) struct Table<R: 'static> {
    columns: &'static [Column<R>],
    widths: Vec<usize>,
    headed: bool,
}

impl<R: Serialize> Table<R> {
    pub(super) fn new(columns: &'static [Column<R>]) -> Self {
        Table { columns, widths: columns.iter().map(|(name, ..)| name.len()).collect(), headed: false }
    }

    /// Prints the next rows, or a line of JSON for each.
    pub(super) fn print(&mut self, rows: &[R], json: bool) -> Result<(), CliError> {
        print(&match json {
            true => rows.iter().map(json_line).collect::<Result<String, CliError>>()?,
            false => self.page(rows),
        })
    }

    /// The lines of the next rows, the first ones below the names of the columns.
    fn page(&mut self, rows: &[R]) -> String {
        let header = (!self.headed).then(|| self.columns.iter().map(|(name, ..)| (*name).to_owned()).collect());
        let cells = rows.iter().map(|row| self.columns.iter().map(|(.., cell)| cell(row)).collect());
        let lines: Vec<Vec<String>> = header.into_iter().chain(cells).collect();
        self.headed = true;
        for line in &lines {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.width());
            }
        }
        lines.iter().map(|line| self.line(line)).collect()
    }

    fn line(&self, row: &[String]) -> String {
        let cells = row.iter().zip(self.columns).zip(&self.widths).map(|((cell, (_, align, _)), width)| {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                Align::Left => format!("{cell}{padding}"),
                Align::Right => format!("{padding}{cell}"),
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    }
}

pub(super) fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// A text of a user without control characters, which could move the cursor.
pub(super) fn visible(text: &str) -> String {
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
        const COLUMNS: &[Column<[&str; 2]>] = &[
            ("ID", Align::Right, |row| row[0].to_owned()),
            ("SLUG", Align::Left, |row| row[1].to_owned()),
            ("FROZEN", Align::Left, |_| "no".to_owned()),
        ];
        let mut table = Table::new(COLUMNS);
        let page = table.page(&[["1", "straße"], ["1234", "b"]]);
        assert_eq!(page, "  ID  SLUG    FROZEN\n   1  straße  no\n1234  b       no\n");
        assert_eq!(table.page(&[["5", "c"]]), "   5  c       no\n");
        assert_eq!(table.page(&[]), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        const COLUMNS: &[Column<&str>] =
            &[("E-MAIL", Align::Left, |email| (*email).to_owned()), ("PLAN", Align::Right, |_| "pro".to_owned())];
        let page = Table::new(COLUMNS).page(&["利用者@example.test", "사용자@x", "ａ@x", "e\u{301}@x"]);
        let expected = "E-MAIL               PLAN\n利用者@example.test   pro\n사용자@x              pro\n\
                        ａ@x                  pro\ne\u{301}@x                   pro\n";
        assert_eq!(page, expected);
    }
}

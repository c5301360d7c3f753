//! Tables of text, page by page: as many rows as there are need not be held.

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::error::CliError;
use super::{json_line, print};
use crate::model::text::is_invisible;

/// Rows that are read and printed at a time.
pub(super) const PAGE: u32 = 500;

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A table whose columns are as wide as the widest cell so far. Widths are columns of a terminal, of which a character
/// of Chinese, Japanese or Korean takes two.
pub(super) struct Table<const N: usize> {
    columns: [(&'static str, Align); N],
    widths: [usize; N],
    headed: bool,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(columns: [(&'static str, Align); N]) -> Self {
        Table { columns, widths: columns.map(|(name, _)| name.len()), headed: false }
    }

    /// Prints the next rows, or a line of JSON for each.
    pub(super) fn print<L: Serialize>(
        &mut self,
        lines: Vec<L>,
        json: bool,
        cells: impl Fn(L) -> [String; N],
    ) -> Result<(), CliError> {
        print(&match json {
            true => lines.iter().map(json_line).collect::<Result<String, CliError>>()?,
            false => self.page(lines.into_iter().map(cells).collect()),
        })
    }

    /// The lines of the next rows, the first ones below the names of the columns.
    fn page(&mut self, rows: Vec<[String; N]>) -> String {
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let header = (!self.headed).then(|| self.columns.map(|(name, _)| name.to_owned()));
        self.headed = true;
        header.iter().chain(&rows).map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &[String; N]) -> String {
        let cells = row.iter().zip(&self.columns).zip(self.widths).map(|((cell, (_, align)), width)| {
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

/// A text of a user, which may hold what moves the cursor.
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
        let mut table = Table::new([("ID", Align::Right), ("SLUG", Align::Left), ("FROZEN", Align::Left)]);
        let row = |id: &str, slug: &str| [id.to_owned(), slug.to_owned(), "no".to_owned()];
        let page = table.page(vec![row("1", "straße"), row("1234", "b")]);
        assert_eq!(page, "  ID  SLUG    FROZEN\n   1  straße  no\n1234  b       no\n");
        assert_eq!(table.page(vec![row("5", "c")]), "   5  c       no\n");
        assert_eq!(table.page(Vec::new()), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new([("E-MAIL", Align::Left), ("PLAN", Align::Right)]);
        let row = |email: &str| [email.to_owned(), "pro".to_owned()];
        let page = table.page(vec![row("利用者@example.test"), row("사용자@x"), row("ａ@x"), row("e\u{301}@x")]);
        let expected = "E-MAIL               PLAN\n利用者@example.test   pro\n사용자@x              pro\n\
                        ａ@x                  pro\ne\u{301}@x                   pro\n";
        assert_eq!(page, expected);
    }
}

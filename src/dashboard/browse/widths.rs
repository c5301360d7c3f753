//! The widths of the columns of a table: classes of the style sheet.
//!
//! With them, a browser lays the table out at once. Otherwise it would measure every cell first, and squeeze the
//! columns of a narrow window until long texts make tall rows.

use super::cells::Cell;
use crate::safe_text::SafeText;

/// Widths of columns in digits. The style sheet has a class for each.
const WIDTHS: [usize; 11] = [4, 6, 8, 11, 14, 17, 20, 24, 29, 36, 46];

/// A text up to this width is on one line. A longer one can wrap.
const LINE: usize = 29;

/// The width at which the name of a column wraps.
const NAME: usize = 17;

/// The triangle before a value that unfolds.
const MARK: usize = 3;

pub(super) fn for_column<'a>(name: &str, cells: impl Iterator<Item = &'a Cell>) -> usize {
    let widest = cells.map(needed).max().unwrap_or(0);
    fitting(widest.max((name.chars().count() + 2).min(NAME)))
}

pub(super) fn for_positions<'a>(labels: impl Iterator<Item = &'a str>) -> usize {
    fitting(labels.map(str::len).max().unwrap_or(0))
}

fn fitting(needed: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= needed).unwrap_or(WIDTHS[WIDTHS.len() - 1])
}

fn needed(cell: &Cell) -> usize {
    match cell {
        Cell::Missing => 0,
        Cell::Null | Cell::Boolean(_) => 5,
        Cell::Number(number) => number.columns(),
        Cell::Text(text) | Cell::Nested(text) => wrapped(text),
        Cell::Folded(folded) => {
            let hit = folded.hit.as_ref().map_or(0, wrapped);
            (wrapped(&folded.beginning).max(hit) + MARK).max(LINE)
        }
    }
}

fn wrapped(text: &SafeText) -> usize {
    // Letters are narrower than digits.
    let columns = (text.columns() * 7).div_ceil(8);
    if columns <= LINE { columns } else { (columns / 2).max(LINE) }
}

//! Column widths. The server estimates them and assigns classes of the style sheet, so that browsers need not measure
//! every cell before they lay out the table, and do not squeeze columns of long texts in a narrow window.

use super::cells::TableCell;
use crate::safe_text::SafeText;

const COLUMN_WIDTHS_DIGITS: [usize; 11] = [4, 6, 8, 11, 14, 17, 20, 24, 29, 36, 46];

const MAX_LINE_DIGITS: usize = 29;
const NAME_WRAP_DIGITS: usize = 17;

/// The width of the triangle before a value that unfolds.
const FOLD_MARK_DIGITS: usize = 3;

pub(super) fn column_width<'a>(name: &str, cells: impl Iterator<Item = &'a TableCell>) -> usize {
    let widest = cells.map(cell_width).max().unwrap_or(0);
    round_up_width(widest.max((name.chars().count() + 2).min(NAME_WRAP_DIGITS)))
}

pub(super) fn position_column_width<'a>(labels: impl Iterator<Item = &'a str>) -> usize {
    round_up_width(labels.map(str::len).max().unwrap_or(0))
}

fn round_up_width(needed: usize) -> usize {
    let class = COLUMN_WIDTHS_DIGITS.partition_point(|width| *width < needed);
    COLUMN_WIDTHS_DIGITS[class.min(COLUMN_WIDTHS_DIGITS.len() - 1)]
}

fn cell_width(cell: &TableCell) -> usize {
    match cell {
        TableCell::Missing => 0,
        TableCell::Null | TableCell::Boolean(_) => 5,
        TableCell::Number(number) => number.display_width(),
        TableCell::Text(text) | TableCell::Nested(text) => wrapped_text_width(text),
        TableCell::Folded(folded) => {
            let hit = folded.match_excerpt.as_ref().map_or(0, wrapped_text_width);
            (wrapped_text_width(&folded.preview).max(hit) + FOLD_MARK_DIGITS).max(MAX_LINE_DIGITS)
        }
    }
}

fn wrapped_text_width(text: &SafeText) -> usize {
    // Column widths are measured in digits, which are wider than letters: 8 letters count as 7 digits.
    let columns = (text.display_width() * 7).div_ceil(8);
    if columns <= MAX_LINE_DIGITS { columns } else { (columns / 2).max(MAX_LINE_DIGITS) }
}

//! How wide the columns of a table are: classes of the style sheet.
//!
//! A browser that is told lays the table out at once. Otherwise it would measure every cell first, and squeeze the
//! columns of a narrow window until long texts make tall rows.

use super::cells::Cell;
use crate::shown::Shown;

/// Widths of columns in digits. The style sheet has a class for each.
const WIDTHS: [usize; 11] = [4, 6, 8, 11, 14, 17, 20, 24, 29, 36, 46];

/// A text up to this width stands on one line. A longer one may take three.
const LINE: usize = 29;

/// Of the name of a column, if it is longer: it wraps, too.
const NAME: usize = 17;

/// What unfolds has a mark before it.
const MARK: usize = 3;

/// That of a column: as wide as its widest cell, and its name.
pub(super) fn of_column<'a>(name: &str, cells: impl Iterator<Item = &'a Cell>) -> usize {
    let widest = cells.map(needed).max().unwrap_or(0);
    fitting(widest.max((name.chars().count() + 2).min(NAME)))
}

/// That of the column of the positions.
pub(super) fn of_positions<'a>(labels: impl Iterator<Item = &'a str>) -> usize {
    fitting(labels.map(str::len).max().unwrap_or(0))
}

/// The first width that is enough, or the widest.
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

fn wrapped(text: &Shown) -> usize {
    // Letters are narrower than digits.
    let columns = (text.columns() * 7).div_ceil(8);
    if columns <= LINE { columns } else { (columns / 2).max(LINE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browse::cells::Folded;

    #[test]
    fn the_style_sheet_has_a_rule_for_each_class() {
        let sheet = include_str!("../assets/style.css");
        for width in WIDTHS {
            assert!(sheet.contains(&format!(".w{width} {{ width: calc({width}ch + 1.4rem); }}")), "{width}");
        }
    }

    #[test]
    fn a_column_is_as_wide_as_its_cells_and_its_name() {
        let text = |length| Cell::Text(Shown::whole(&"x".repeat(length)));
        let number = |text: &str| Cell::Number(Shown::whole(text));
        let nested = |beginning| {
            Cell::Folded(Box::new(Folded { beginning: Shown::whole(beginning), hit: None, whole: Shown::whole("") }))
        };
        for (name, cells, expected) in [
            ("n", vec![number("1"), number("123")], 4),
            ("population", vec![number("1")], 14),
            ("a name that is longer than its values", vec![number("1")], 17),
            ("n", vec![text(20), Cell::Missing], 20),
            ("n", vec![text(40)], 29),
            ("n", vec![text(80)], 36),
            ("n", vec![text(120)], 46),
            ("n", vec![Cell::Text(Shown::whole("日本語日本語"))], 11),
            ("n", vec![nested("[[…]]")], 29),
        ] {
            assert_eq!(of_column(name, cells.iter()), expected, "{name}");
        }
        assert_eq!(of_positions(["0", "999,999"].into_iter()), 8);
        assert_eq!(of_positions([].into_iter()), 4);
    }
}

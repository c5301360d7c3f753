//! How wide the columns of a table are: classes of the style sheet.
//!
//! A browser that is told lays the table out at once. Otherwise it would measure every cell first, and squeeze the
//! columns of a narrow window until long texts make tall rows.

use super::cells::Cell;
use crate::shown::Shown;

/// Widths in digits, each with the class that the style sheet has for it.
const CLASSES: [(usize, &str); 11] = [
    (4, "w4"),
    (6, "w6"),
    (8, "w8"),
    (11, "w11"),
    (14, "w14"),
    (17, "w17"),
    (20, "w20"),
    (24, "w24"),
    (29, "w29"),
    (36, "w36"),
    (46, "w46"),
];

/// A text up to this width stands on one line. A longer one may take three.
const LINE: usize = 29;

/// Of the name of a column, if it is longer: it wraps, too.
const NAME: usize = 17;

/// What unfolds has a mark before it.
const MARK: usize = 3;

/// That of a column: as wide as its widest cell, and its name.
pub(super) fn of_column<'a>(name: &str, cells: impl Iterator<Item = &'a Cell>) -> &'static str {
    let widest = cells.map(needed).max().unwrap_or(0);
    class(widest.max((name.chars().count() + 2).min(NAME)))
}

/// That of the column of the positions.
pub(super) fn of_positions<'a>(labels: impl Iterator<Item = &'a str>) -> &'static str {
    class(labels.map(str::len).max().unwrap_or(0))
}

/// How many digits have room in a column of a class.
pub(super) fn digits(class: &str) -> usize {
    CLASSES.iter().find(|(_, other)| *other == class).map_or(0, |(width, _)| *width)
}

/// The first that has room, or the widest.
fn class(needed: usize) -> &'static str {
    let fitting = CLASSES.iter().find(|(width, _)| *width >= needed).or(CLASSES.last());
    fitting.map_or("", |(_, class)| class)
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
        for (width, class) in CLASSES {
            assert_eq!(class, format!("w{width}"));
            assert!(sheet.contains(&format!(".{class} {{ width: calc({width}ch + 1.4rem); }}")), "{class}");
        }
    }

    #[test]
    fn a_column_is_as_wide_as_its_cells_and_its_name() {
        let text = |length| Cell::Text(Shown::whole(&"x".repeat(length)));
        let number = |text: &str| Cell::Number(Shown::whole(text));
        let nested = |beginning| {
            let (beginning, whole) = (Shown::whole(beginning), Shown::whole(""));
            Cell::Folded(Box::new(Folded { beginning, hit: None, whole }))
        };
        for (name, cells, expected) in [
            ("n", vec![number("1"), number("123")], "w4"),
            ("population", vec![number("1")], "w14"),
            ("a name that is longer than its values", vec![number("1")], "w17"),
            ("n", vec![text(20), Cell::Missing], "w20"),
            ("n", vec![text(40)], "w29"),
            ("n", vec![text(80)], "w36"),
            ("n", vec![text(120)], "w46"),
            ("n", vec![Cell::Text(Shown::whole("日本語日本語"))], "w11"),
            ("n", vec![nested("[[…]]")], "w29"),
        ] {
            assert_eq!(of_column(name, cells.iter()), expected, "{name}");
        }
        assert_eq!(of_positions(["0", "999,999"].into_iter()), "w8");
        assert_eq!(of_positions([].into_iter()), "w4");
    }
}

//! A table that compares two entities path by path.

mod leaf_diff;
mod value_diff;

use askama::Template;
use askama::filters::HtmlSafe;

pub(super) use leaf_diff::{LeafEquality, PathStep, array_elements, path_without_indexes, visit_leaves};

use super::safe_text::SafeText;

const MAX_ENTITY_ROWS: usize = 500;
const MAX_PAGE_ROWS: usize = 4_000;
const MAX_PAGE_HTML_BYTES: usize = 2 << 20;
const MAX_PATH_CHARACTERS: usize = 300;

pub(super) struct ComparisonBudget {
    rows_left: usize,
    bytes_left: usize,
}

impl ComparisonBudget {
    pub(super) fn for_page() -> ComparisonBudget {
        ComparisonBudget { rows_left: MAX_PAGE_ROWS, bytes_left: MAX_PAGE_HTML_BYTES }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownPaths {
    Changed,
    All,
}

#[derive(Template)]
#[template(path = "compared.html")]
pub(super) struct EntityComparison {
    caption: String,
    old: Option<String>,
    new: Option<String>,
    rows: Vec<ComparisonRow>,
    omitted_rows: usize,
    pub(super) changed_count: usize,
}

impl HtmlSafe for EntityComparison {}

struct ComparisonRow {
    path: SafeText,
    kind: &'static str,
    old: Option<String>,
    new: Option<String>,
}

impl EntityComparison {
    /// Compares two entities, or lists the values of one entity if the other is `None`.
    pub(super) fn new(
        caption: String,
        titles: [&str; 2],
        [old, new]: [Option<&[u8]>; 2],
        equality: LeafEquality,
        paths: ShownPaths,
        budget: &mut ComparisonBudget,
    ) -> EntityComparison {
        let mut rows = Vec::new();
        let mut omitted_rows = 0;
        let mut changed_count = 0;
        visit_leaves(old, new, equality, &mut |steps, leaf| {
            changed_count += usize::from(!leaf.is_equal);
            if leaf.is_equal && paths == ShownPaths::Changed {
                return;
            }
            if rows.len() >= MAX_ENTITY_ROWS || budget.rows_left == 0 || budget.bytes_left == 0 {
                omitted_rows += 1;
                return;
            }
            let plain_html = |side: Option<&[u8]>| side.map(|value| value_diff::value_html(value, None));
            let (old, new) = match leaf.is_equal {
                true => (plain_html(leaf.old), plain_html(leaf.new)),
                false => value_diff::difference_html(leaf.old, leaf.new),
            };
            let kind = match (leaf.is_equal, &old, &new) {
                (true, ..) => "same",
                (false, None, _) => "added",
                (false, _, None) => "removed",
                (false, ..) => "changed",
            };
            let path = SafeText::new(&leaf_diff::path_with_indexes(steps), MAX_PATH_CHARACTERS);
            let bytes: usize = [&old, &new].iter().map(|side| side.as_ref().map_or(0, String::len)).sum();
            budget.rows_left -= 1;
            budget.bytes_left = budget.bytes_left.saturating_sub(path.estimated_html_bytes() + bytes);
            rows.push(ComparisonRow { path, kind, old, new });
        });
        let old = old.map(|_| titles[0].to_owned());
        let new = new.map(|_| titles[1].to_owned());
        EntityComparison { caption, old, new, rows, omitted_rows, changed_count }
    }

    pub(super) fn has_no_rows(&self) -> bool {
        self.rows.is_empty() && self.omitted_rows == 0
    }
}

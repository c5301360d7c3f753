//! Two entities side by side, path by path, with what differs marked.

mod leaves;
mod marked;

use askama::Template;
use askama::filters::HtmlSafe;

pub(super) use leaves::{Equality, Step, elements, leaves, path};

use super::safe_text::SafeText;

/// Paths of an entity, and of a page.
const ROWS: usize = 500;
const PAGE_ROWS: usize = 4_000;

/// Bytes of the HTML of a page.
const PAGE_HTML: usize = 2 << 20;

const PATH_CHARACTERS: usize = 300;

pub(super) struct Room {
    rows: usize,
    bytes: usize,
}

impl Room {
    pub(super) fn for_page() -> Room {
        Room { rows: PAGE_ROWS, bytes: PAGE_HTML }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    Changed,
    All,
}

#[derive(Template)]
#[template(path = "compared.html")]
pub(super) struct Compared {
    caption: String,
    /// The title of each side; a side without the entity has no column.
    old: Option<String>,
    new: Option<String>,
    rows: Vec<Row>,
    left_out: usize,
    pub(super) changed: usize,
}

impl HtmlSafe for Compared {}

struct Row {
    path: SafeText,
    /// A class and its name: `changed`, `added`, `removed`, `same`.
    kind: &'static str,
    old: Option<String>,
    new: Option<String>,
}

impl Compared {
    /// Compares two entities, or shows one that the other side lacks.
    pub(super) fn new(
        caption: String,
        titles: [&str; 2],
        [old, new]: [Option<&[u8]>; 2],
        equality: Equality,
        paths: Paths,
        room: &mut Room,
    ) -> Compared {
        let mut rows = Vec::new();
        let mut left_out = 0;
        let mut changed = 0;
        leaves(old, new, equality, &mut |steps, leaf| {
            changed += usize::from(!leaf.is_equal);
            if leaf.is_equal && paths == Paths::Changed {
                return;
            }
            if rows.len() >= ROWS || room.rows == 0 || room.bytes == 0 {
                left_out += 1;
                return;
            }
            let (old, new) = match leaf.is_equal {
                true => {
                    (leaf.old.map(|value| marked::whole(value, None)), leaf.new.map(|value| marked::whole(value, None)))
                }
                false => marked::different(leaf.old, leaf.new),
            };
            let kind = match (leaf.is_equal, &old, &new) {
                (true, ..) => "same",
                (false, None, _) => "added",
                (false, _, None) => "removed",
                (false, ..) => "changed",
            };
            let path = SafeText::new(&leaves::way(steps), PATH_CHARACTERS);
            let bytes: usize = [&old, &new].iter().map(|side| side.as_ref().map_or(0, String::len)).sum();
            room.rows -= 1;
            room.bytes = room.bytes.saturating_sub(path.weight() + bytes);
            rows.push(Row { path, kind, old, new });
        });
        Compared {
            caption,
            old: old.map(|_| titles[0].to_owned()),
            new: new.map(|_| titles[1].to_owned()),
            rows,
            left_out,
            changed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.left_out == 0
    }
}

//! Two entities side by side, path by path, with what differs marked.

mod leaves;
mod marked;

use askama::Template;
use askama::filters::HtmlSafe;

pub(super) use leaves::{Equality, Step, leaves, path};

use super::shown::Shown;

/// Paths of an entity, and all that a page shows.
const ROWS: usize = 500;
const PAGE_ROWS: usize = 4_000;

/// Bytes of the HTML of all that a page shows.
const PAGE_HTML: usize = 2 << 20;

const PATH_CHARACTERS: usize = 300;

pub(super) struct Room {
    rows: usize,
    bytes: usize,
}

impl Room {
    pub(super) fn of_page() -> Room {
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
    /// What each side is called; none for one that lacks the entity, which has no column.
    old: Option<String>,
    new: Option<String>,
    rows: Vec<Row>,
    left_out: usize,
    pub(super) changed: usize,
}

impl HtmlSafe for Compared {}

struct Row {
    path: Shown,
    /// A class, and what is told of it: `changed`, `added`, `removed`, `same`.
    kind: &'static str,
    old: Option<String>,
    new: Option<String>,
}

/// What the two sides are called, and what the table is.
pub(super) struct Titles<'a> {
    pub(super) caption: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
}

impl Compared {
    /// Two entities, or one that the other side lacks, as far as there is room.
    pub(super) fn new(
        titles: &Titles<'_>,
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
                true => (leaf.old.map(marked::equal), leaf.new.map(marked::equal)),
                false => marked::different(leaf.old, leaf.new),
            };
            let kind = match (leaf.is_equal, &old, &new) {
                (true, ..) => "same",
                (false, None, _) => "added",
                (false, _, None) => "removed",
                (false, ..) => "changed",
            };
            let path = Shown::new(&leaves::way(steps), PATH_CHARACTERS);
            let bytes: usize = [&old, &new].iter().map(|side| side.as_ref().map_or(0, String::len)).sum();
            room.rows -= 1;
            room.bytes = room.bytes.saturating_sub(path.weight() + bytes);
            rows.push(Row { path, kind, old, new });
        });
        Compared {
            caption: titles.caption.to_owned(),
            old: old.map(|_| titles.old.to_owned()),
            new: new.map(|_| titles.new.to_owned()),
            rows,
            left_out,
            changed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.left_out == 0
    }
}

//! An entity as a tree of HTML: objects and arrays unfold, scalars have their type's look.

use std::fmt::{self, Write};

use strata_json::{Cursor, JsonType, Scalar, Text};

use super::browse::summary;
use super::shown::Shown;

const NODES: usize = 5_000;

const BYTES: usize = 1 << 20;

/// Characters of a key and of a value.
const KEY_CHARACTERS: usize = 200;
const VALUE_CHARACTERS: usize = 10_000;

const OPEN_LEVELS: usize = 2;

#[derive(Default)]
pub(super) struct Tree {
    pub(super) html: String,
    nodes: usize,
}

impl Tree {
    pub(super) fn new(entity: &[u8]) -> Tree {
        let mut tree = Tree::default();
        tree.members(&mut Cursor::new(entity), 0);
        tree
    }

    /// Whether the tree contains the whole entity.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes < NODES && self.html.len() < BYTES
    }

    /// Writing to a string cannot fail.
    fn write(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.html.write_fmt(text);
    }

    /// The members of the object, or the elements of the array, that comes next. No deeper than entities nest.
    fn members(&mut self, cursor: &mut Cursor<'_>, level: usize) {
        let is_object = cursor.peek() == Some(JsonType::Object);
        cursor.enter();
        self.html.push_str("<dl class=\"tree\">");
        let mut index = 0;
        loop {
            let key = match is_object {
                true => cursor.next_key().map(Key::Name),
                false => cursor.next_element().then_some(Key::Index(index)),
            };
            let Some(key) = key else { break };
            if !self.is_whole() {
                cursor.skip_value();
                continue;
            }
            index += 1;
            self.nodes += 1;
            self.node(key, cursor, level);
        }
        self.html.push_str("</dl>");
    }

    fn node(&mut self, key: Key<'_>, cursor: &mut Cursor<'_>, level: usize) {
        match key {
            Key::Name(key) => {
                let key = Shown::beginning(&key.unescape(), KEY_CHARACTERS, false);
                self.write(format_args!("<div><dt>{key}</dt>"));
            }
            Key::Index(index) => self.write(format_args!("<div><dt class=\"index\">{index}</dt>")),
        }
        self.html.push_str("<dd>");
        if matches!(cursor.peek(), Some(JsonType::Object | JsonType::Array)) {
            let summary = summary(cursor.clone().skip_value());
            let open = if level + 1 < OPEN_LEVELS { " open" } else { "" };
            self.write(format_args!("<details{open}><summary>{summary}</summary>"));
            self.members(cursor, level + 1);
            self.html.push_str("</details>");
        } else {
            let value = cursor.skip_value();
            match Scalar::read(value) {
                // Nothing would be seen of it.
                Some(Scalar::String(text)) if text.unescape().is_empty() => {
                    self.html.push_str("<span class=\"string\">\"\"</span>");
                }
                Some(Scalar::String(text)) => {
                    let text = Shown::linked(&text.unescape(), VALUE_CHARACTERS);
                    self.write(format_args!("<span class=\"string\">{text}</span>"));
                }
                Some(Scalar::Number(text)) => {
                    self.write(format_args!("<span class=\"number\">{}</span>", Shown::new(text, VALUE_CHARACTERS)));
                }
                Some(Scalar::Bool(value)) => self.write(format_args!("<span class=\"boolean\">{value}</span>")),
                Some(Scalar::Null) | None => self.html.push_str("<span class=\"null\">null</span>"),
            }
        }
        self.html.push_str("</dd></div>");
    }
}

enum Key<'a> {
    Name(Text<'a>),
    Index(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_every_value_and_escapes_it() {
        let tree = Tree::new(br#"{"a":1.0,"<i>":{"x":[null,true,{"deep":"<script>"}]},"empty":[],"none":"","":1}"#);
        assert!(tree.is_whole());
        let html = tree.html;
        for part in [
            "<dt><bdi>a</bdi></dt><dd><span class=\"number\"><bdi>1.0</bdi></span></dd>",
            "<dt><bdi>&lt;i&gt;</bdi></dt><dd><details open><summary>{1 field}</summary>",
            "<dt class=\"index\">0</dt><dd><span class=\"null\">null</span></dd>",
            "<bdi>&lt;script&gt;</bdi>",
            "<dt><bdi>none</bdi></dt><dd><span class=\"string\">\"\"</span></dd>",
            "<dt><bdi>(empty)</bdi></dt><dd><span class=\"number\"><bdi>1</bdi></span></dd>",
            "<summary>[0 items]</summary><dl class=\"tree\"></dl>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("<script>") && !html.contains("<i>"));
    }

    #[test]
    fn a_large_tree_ends_early_and_is_still_well_formed() {
        let mut entity = br#"{"a":["#.to_vec();
        entity.extend((0..2 * NODES).flat_map(|_| *b"{\"b\":[1]},"));
        entity.pop();
        entity.extend(b"]}");
        let tree = Tree::new(&entity);
        assert!(!tree.is_whole());
        let html = tree.html;
        for tag in ["dl", "div", "details", "dd", "dt"] {
            let count = |pattern: String| html.matches(&pattern).count();
            assert_eq!(count(format!("<{tag}")), count(format!("</{tag}>")), "{tag}");
        }
    }
}

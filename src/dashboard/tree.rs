//! An entity as a tree of HTML, in which objects and arrays unfold.

use std::fmt::{self, Write};

use strata_json::{Cursor, JsonType, Scalar};

use super::browse::summary;
use super::safe_text::SafeText;

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

    pub(super) fn is_whole(&self) -> bool {
        self.nodes < NODES && self.html.len() < BYTES
    }

    /// Writing to a string cannot fail.
    fn write(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.html.write_fmt(text);
    }

    /// Writes the members of the object or the elements of the array at the cursor. Recurses at most as deep as
    /// entities nest.
    fn members(&mut self, cursor: &mut Cursor<'_>, level: usize) {
        let is_object = cursor.peek() == Some(JsonType::Object);
        cursor.enter();
        self.html.push_str("<dl class=\"tree\">");
        let mut index = 0;
        loop {
            let name = match is_object {
                true => cursor
                    .next_key()
                    .map(|key| format!("<dt>{}</dt>", SafeText::beginning(&key.unescape(), KEY_CHARACTERS, false))),
                false => cursor.next_element().then(|| format!("<dt class=\"index\">{index}</dt>")),
            };
            let Some(name) = name else { break };
            if !self.is_whole() {
                cursor.skip_value();
                continue;
            }
            index += 1;
            self.nodes += 1;
            self.write(format_args!("<div>{name}<dd>"));
            self.value(cursor, level);
            self.html.push_str("</dd></div>");
        }
        self.html.push_str("</dl>");
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, level: usize) {
        if matches!(cursor.peek(), Some(JsonType::Object | JsonType::Array)) {
            let summary = summary(cursor.clone().skip_value());
            let open = if level + 1 < OPEN_LEVELS { " open" } else { "" };
            self.write(format_args!("<details{open}><summary>{summary}</summary>"));
            self.members(cursor, level + 1);
            return self.html.push_str("</details>");
        }
        match Scalar::read(cursor.skip_value()) {
            Some(Scalar::String(text)) if text.unescape().is_empty() => {
                self.html.push_str("<span class=\"string\">\"\"</span>");
            }
            Some(Scalar::String(text)) => {
                let text = SafeText::linked(&text.unescape(), VALUE_CHARACTERS);
                self.write(format_args!("<span class=\"string\">{text}</span>"));
            }
            Some(Scalar::Number(text)) => {
                self.write(format_args!("<span class=\"number\">{}</span>", SafeText::new(text, VALUE_CHARACTERS)));
            }
            Some(Scalar::Bool(value)) => self.write(format_args!("<span class=\"boolean\">{value}</span>")),
            Some(Scalar::Null) | None => self.html.push_str("<span class=\"null\">null</span>"),
        }
    }
}

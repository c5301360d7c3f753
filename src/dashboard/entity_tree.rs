//! An entity as nested HTML lists. Objects and arrays can be unfolded.

use std::fmt::{self, Write};

use strata_json::{JsonCursor, JsonScalar, JsonType};

use super::browse::summarize_container;
use super::safe_text::SafeText;

const MAX_NODES: usize = 5_000;
const MAX_HTML_BYTES: usize = 1 << 20;
const MAX_KEY_CHARACTERS: usize = 200;
const MAX_VALUE_CHARACTERS: usize = 10_000;
const INITIALLY_OPEN_LEVELS: usize = 2;

#[derive(Default)]
pub(super) struct EntityTreeHtml {
    pub(super) html: String,
    node_count: usize,
}

impl EntityTreeHtml {
    pub(super) fn new(entity: &[u8]) -> EntityTreeHtml {
        let mut tree = EntityTreeHtml::default();
        tree.write_members_html(&mut JsonCursor::new(entity), 0);
        tree
    }

    pub(super) fn is_complete(&self) -> bool {
        self.node_count < MAX_NODES && self.html.len() < MAX_HTML_BYTES
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.html.write_fmt(text);
    }

    /// Writes the members of the object or array at the cursor. The nesting limit of entities limits the recursion.
    fn write_members_html(&mut self, cursor: &mut JsonCursor<'_>, level: usize) {
        let is_object = cursor.peek_type() == Some(JsonType::Object);
        cursor.enter();
        self.html.push_str("<dl class=\"tree\">");
        let mut index = 0;
        loop {
            let name = match is_object {
                true => cursor.next_key().map(|key| {
                    format!("<dt>{}</dt>", SafeText::from_prefix(&key.unescape(), MAX_KEY_CHARACTERS, false))
                }),
                false => cursor.next_element().then(|| format!("<dt class=\"index\">{index}</dt>")),
            };
            let Some(name) = name else { break };
            if !self.is_complete() {
                cursor.skip_value();
                continue;
            }
            index += 1;
            self.node_count += 1;
            self.write(format_args!("<div>{name}<dd>"));
            self.write_value_html(cursor, level);
            self.html.push_str("</dd></div>");
        }
        self.html.push_str("</dl>");
    }

    fn write_value_html(&mut self, cursor: &mut JsonCursor<'_>, level: usize) {
        if matches!(cursor.peek_type(), Some(JsonType::Object | JsonType::Array)) {
            let summary = summarize_container(cursor.clone().skip_value());
            let open = if level + 1 < INITIALLY_OPEN_LEVELS { " open" } else { "" };
            self.write(format_args!("<details{open}><summary>{summary}</summary>"));
            self.write_members_html(cursor, level + 1);
            return self.html.push_str("</details>");
        }
        match JsonScalar::parse(cursor.skip_value()) {
            Some(JsonScalar::String(text)) if text.unescape().is_empty() => {
                self.html.push_str("<span class=\"string\">\"\"</span>");
            }
            Some(JsonScalar::String(text)) => {
                let text = SafeText::with_auto_link(&text.unescape(), MAX_VALUE_CHARACTERS);
                self.write(format_args!("<span class=\"string\">{text}</span>"));
            }
            Some(JsonScalar::Number(text)) => {
                self.write(format_args!("<span class=\"number\">{}</span>", SafeText::new(text, MAX_VALUE_CHARACTERS)));
            }
            Some(JsonScalar::Bool(value)) => self.write(format_args!("<span class=\"boolean\">{value}</span>")),
            Some(JsonScalar::Null) | None => self.html.push_str("<span class=\"null\">null</span>"),
        }
    }
}

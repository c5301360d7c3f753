//! `format=xml`: `<dataset>` of one `<entity>` each (docs/reference/formats.md, xml).
//!
//! Fields are elements, in order. An array is an element of elements: the outer tag is the plural of the field's name,
//! the inner tag the singular. There is no white space between elements or after the declaration. An element without
//! content (null, an empty string, array or object) is written `<tag/>`. Text keeps every character that XML 1.0 can
//! hold. Any other becomes U+FFFD. A carriage return becomes `&#13;`, because parsers would make it a line feed.
//!
//! quick-xml writes each tag once; then its bytes are copied ([`TagMemory`]). An event for each element would double
//! the time (`benches/reads`, export as XML).

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, Event};
use strata_json::{Cursor, JsonType, MAX_DEPTH, Part, Scalar, Text, find_markup};

use super::pool::Pool;
use super::tag::{Tag, TagMemory, Tags};
use super::{Encode, EntityBound, EntityTooLarge};

/// Most bytes of text that are escaped at a time.
const PIECE_BYTES: usize = 64 << 10;

pub(super) struct Xml {
    dataset: Tags,
    entity: Tag,
    /// The tag of elements without a field name: those of an array directly inside an array.
    item: Tag,
    fields: Pool<TagMemory>,
    bound: EntityBound,
}

impl Xml {
    pub(super) fn new(bound: EntityBound) -> Xml {
        let [entity, item] = ["entity", "item"].map(|name| Tag::Once(Tags::new(name)));
        Xml { dataset: Tags::new("dataset"), entity, item, fields: Pool::default(), bound }
    }
}

impl Encode for Xml {
    fn begin(&self, empty: bool, out: &mut Vec<u8>) {
        // A vector takes all that is written.
        let _ = Writer::new(&mut *out).write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        out.extend_from_slice(if empty { self.dataset.empty() } else { self.dataset.start() });
    }

    fn entity(&self, document: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        let start = out.len();
        let limit_bytes = self.bound.bytes(document.len());
        self.fields.with(|fields| {
            fields.make_room();
            let most = start.saturating_add(limit_bytes);
            let mut walk = Walk { cursor: Cursor::new(document), fields, item: &self.item, out, most };
            walk.element(&self.entity, &self.item, 1);
        });
        if out.len() - start <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        if !empty {
            out.extend_from_slice(self.dataset.end());
        }
    }
}

struct Walk<'w, 'd> {
    cursor: Cursor<'d>,
    fields: &'w mut TagMemory,
    item: &'w Tag,
    out: &'w mut Vec<u8>,
    /// Length of the output at which the walk stops, because the entity is too large.
    most: usize,
}

impl Walk<'_, '_> {
    /// Writes the next value, at level `depth`. The elements of an array have the tag `item`.
    fn element(&mut self, tag: &Tag, item: &Tag, depth: usize) {
        let start = self.out.len();
        self.out.extend_from_slice(self.fields.get(tag).start());
        let content = self.out.len();
        match self.cursor.peek() {
            Some(JsonType::Object) if depth <= MAX_DEPTH => {
                self.cursor.enter();
                while self.has_room()
                    && let Some(name) = &self.cursor.next_key()
                {
                    self.field(name, depth + 1);
                }
            }
            Some(JsonType::Array) if depth <= MAX_DEPTH => {
                self.cursor.enter();
                while self.has_room() && self.cursor.next_element() {
                    self.element(item, self.item, depth + 1);
                }
            }
            _ => self.scalar(),
        }
        let tags = self.fields.get(tag);
        if self.out.len() == content {
            self.out.truncate(start);
            self.out.extend_from_slice(tags.empty());
        } else {
            self.out.extend_from_slice(tags.end());
        }
    }

    fn field(&mut self, name: &Text<'_>, depth: usize) {
        if self.cursor.peek() == Some(JsonType::Array) {
            let [array, element] = self.fields.array(name);
            self.element(&array, &element, depth);
        } else {
            let tag = self.fields.field(name);
            self.element(&tag, self.item, depth);
        }
    }

    fn has_room(&self) -> bool {
        self.out.len() <= self.most
    }

    fn scalar(&mut self) {
        match self.cursor.next_scalar() {
            Some(Scalar::String(text)) => text.for_each_part(|part| match part {
                Part::Plain(text) => write_text(text, self.out),
                Part::Escaped(character) => write_text(&[character], self.out),
            }),
            Some(Scalar::Number(text)) => self.out.extend_from_slice(text.as_bytes()),
            Some(Scalar::Bool(value)) => self.out.extend_from_slice(if value { b"true" } else { b"false" }),
            Some(Scalar::Null) => {}
            // Text that is not canonical must not stop the loops above from ending.
            None => {
                self.cursor.skip_value();
            }
        }
    }
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let plain = plain_length(text);
    out.extend_from_slice(&text[..plain]);
    if plain < text.len() {
        write_escaped(&String::from_utf8_lossy(&text[plain..]), out);
    }
}

/// Escapes in pieces, because escaping copies.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        out.extend_from_slice(escaped(piece).as_bytes());
        rest = after;
    }
}

/// The length of the text up to the first character that is escaped or replaced.
fn plain_length(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let stop = find_markup(text, at);
        match &text[stop..] {
            [0xef, 0xbf, 0xbe | 0xbf, ..] => return stop,
            [b'\t' | b'\n' | 0xef, ..] => at = stop + 1,
            _ => return stop,
        }
    }
}

/// Escapes markup and carriage returns, and replaces characters that XML cannot hold.
fn escaped(text: &str) -> Cow<'_, str> {
    let text = match text.contains(|character| !is_character(character)) {
        true => Cow::Owned(text.replace(|character| !is_character(character), "\u{fffd}")),
        false => Cow::Borrowed(text),
    };
    match partial_escape(text) {
        text if text.contains('\r') => Cow::Owned(text.replace('\r', "&#13;")),
        text => text,
    }
}

/// Whether XML 1.0 can hold the character (fifth edition, production 2).
fn is_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

//! `format=xml`: `<dataset>` of one `<entity>` each (docs/semantics.md, xml).
//!
//! Fields are elements, in order. An array is an element of elements: the outer tag is the plural of the field's name,
//! the inner tag the singular. There is no white space between elements or after the declaration. An element without
//! content (null, an empty string, array or object) is written `<tag/>`. Text keeps every character that XML 1.0 can
//! hold. Any other becomes U+FFFD. A carriage return becomes `&#13;`, because parsers would make it a line feed.

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use strata_json::{Cursor, JsonType, MAX_DEPTH, Scalar, Text, find_markup};

use super::pool::Pool;
use super::tag::{ArrayTagsMemory, tag};
use super::{Encode, EntityBound, EntityTooLarge};

const DATASET: &str = "dataset";
const ENTITY: &str = "entity";

/// The tag of elements without a field name: those of an array directly inside an array.
const ITEM: &str = "item";

/// Most bytes of text that are escaped at a time.
const PIECE_BYTES: usize = 64 << 10;

/// One element per entity.
pub(super) struct Xml {
    array_tags: Pool<ArrayTagsMemory>,
    bound: EntityBound,
}

impl Xml {
    pub(super) fn new(bound: EntityBound) -> Xml {
        Xml { array_tags: Pool::default(), bound }
    }
}

impl Encode for Xml {
    fn begin(&self, empty: bool, out: &mut Vec<u8>) {
        write(out, Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        let dataset = BytesStart::new(DATASET);
        write(out, if empty { Event::Empty(dataset) } else { Event::Start(dataset) });
    }

    fn entity(&self, document: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        let start = out.len();
        let limit_bytes = self.bound.bytes(document.len());
        self.array_tags.with(|array_tags| {
            let most = start.saturating_add(limit_bytes);
            let mut walk = Walk { cursor: Cursor::new(document), array_tags, out, most };
            walk.element(ENTITY, ITEM, 1);
        });
        if out.len() - start <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        if !empty {
            write(out, Event::End(BytesEnd::new(DATASET)));
        }
    }
}

struct Walk<'w, 'd> {
    cursor: Cursor<'d>,
    array_tags: &'w mut ArrayTagsMemory,
    out: &'w mut Vec<u8>,
    /// Length of the output at which the walk stops, because the entity is too large.
    most: usize,
}

impl<'d> Walk<'_, 'd> {
    /// Writes the value that comes next, which has level `depth` if it is an object or array. Elements of an array have
    /// the tag `item`.
    fn element(&mut self, tag: &str, item: &str, depth: usize) {
        match self.cursor.peek() {
            Some(JsonType::Object) if depth <= MAX_DEPTH => {
                self.cursor.enter();
                let mut next = self.cursor.next_key();
                self.wrapped(tag, next.is_none(), |walk| {
                    while let Some(name) = next {
                        walk.field(name, depth + 1);
                        next = if walk.has_room() { walk.cursor.next_key() } else { None };
                    }
                });
            }
            Some(JsonType::Array) if depth <= MAX_DEPTH => {
                self.cursor.enter();
                let mut has_next = self.cursor.next_element();
                self.wrapped(tag, !has_next, |walk| {
                    while has_next {
                        walk.element(item, ITEM, depth + 1);
                        has_next = walk.has_room() && walk.cursor.next_element();
                    }
                });
            }
            _ => {
                let text = self.scalar();
                self.wrapped(tag, text.is_empty(), |walk| write_text(walk.out, &text));
            }
        }
    }

    fn field(&mut self, name: Text<'d>, depth: usize) {
        if self.cursor.peek() == Some(JsonType::Array) {
            let tags = self.array_tags.get(name);
            self.element(&tags.array, &tags.element, depth);
        } else {
            self.element(&tag(name), ITEM, depth);
        }
    }

    fn has_room(&self) -> bool {
        self.out.len() <= self.most
    }

    /// Writes an element, and `content` in it unless it is empty.
    fn wrapped(&mut self, tag: &str, is_empty: bool, content: impl FnOnce(&mut Self)) {
        let start = BytesStart::new(tag);
        if is_empty {
            return write(self.out, Event::Empty(start));
        }
        write(self.out, Event::Start(start));
        content(self);
        write(self.out, Event::End(BytesEnd::new(tag)));
    }

    /// The text of the scalar that comes next.
    fn scalar(&mut self) -> Cow<'d, str> {
        match self.cursor.next_scalar() {
            Some(Scalar::String(text)) => text.unescape(),
            Some(Scalar::Number(text)) => Cow::Borrowed(text),
            Some(Scalar::Bool(value)) => Cow::Borrowed(if value { "true" } else { "false" }),
            Some(Scalar::Null) => Cow::Borrowed(""),
            // Text that is not canonical must not stop the loops above from ending.
            None => {
                self.cursor.skip_value();
                Cow::Borrowed("")
            }
        }
    }
}

fn write(out: &mut Vec<u8>, event: Event<'_>) {
    // A vector takes all that is written.
    let _ = Writer::new(out).write_event(event);
}

/// Writes text as the content of an element: in pieces, because what has to be escaped is copied.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        write(out, Event::Text(BytesText::from_escaped(escape(piece))));
        rest = after;
    }
}

/// Escapes markup and carriage returns, and replaces characters that XML cannot hold.
fn escape(text: &str) -> Cow<'_, str> {
    if find_markup(text.as_bytes(), 0) == text.len() {
        return Cow::Borrowed(text);
    }
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

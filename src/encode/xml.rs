//! `format=xml`: `<dataset>` with an `<entity>` for each entity (docs/reference/formats.md, xml).
//!
//! Fields are elements, in order. An array is an element of elements: the outer tag is the plural of the field's name,
//! the inner tag the singular. There is no white space between elements or after the declaration. An element without
//! content (null, an empty string, array or object) is written `<tag/>`. Characters that XML 1.0 does not allow become
//! U+FFFD. A carriage return becomes `&#13;`, because parsers would change it to a line feed.
//!
//! quick-xml writes each tag once; then its bytes are copied ([`TagCache`]). An event for each element would double the
//! time (`benches/reads`, export as XML).

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, Event};
use strata_json::{JsonCursor, JsonScalar, JsonStr, JsonStrPart, JsonType, MAX_NESTING_DEPTH, find_xml_special};

use super::buffer_pool::BufferPool;
use super::xml_tags::{ElementTags, TagCache, TagRef};
use super::{EncodedSizeLimit, EntityTooLarge, ListContents, ListElement, TextEncoder};

const ESCAPE_CHUNK_BYTES: usize = 64 << 10;

pub(super) struct XmlEncoder {
    dataset_tags: ElementTags,
    entity_tag: TagRef,
    /// The tag of elements without a field name: elements of an array directly inside an array.
    item_tag: TagRef,
    tag_caches: BufferPool<TagCache>,
    size_limit: EncodedSizeLimit,
}

impl XmlEncoder {
    pub(super) fn new(size_limit: EncodedSizeLimit) -> XmlEncoder {
        let dataset_tags = ElementTags::new("dataset");
        let [entity_tag, item_tag] = ["entity", "item"].map(|name| TagRef::Owned(ElementTags::new(name)));
        XmlEncoder { dataset_tags, entity_tag, item_tag, tag_caches: BufferPool::default(), size_limit }
    }
}

impl TextEncoder for XmlEncoder {
    fn write_header(&self, contents: ListContents, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = Writer::new(&mut *out).write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        out.extend_from_slice(match contents {
            ListContents::Empty => self.dataset_tags.empty_element_tag(),
            ListContents::NonEmpty => self.dataset_tags.start_tag(),
        });
    }

    fn write_entity(&self, document: &[u8], _: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        let start = out.len();
        let limit_bytes = self.size_limit.max_bytes_for(document.len());
        self.tag_caches.with_buffer(|tag_cache| {
            tag_cache.clear_if_full();
            let max_out_len = start.saturating_add(limit_bytes);
            let cursor = JsonCursor::new(document);
            let mut walk = XmlEntityWriter { cursor, tag_cache, item_tag: &self.item_tag, out, max_out_len };
            walk.write_element(&self.entity_tag, &self.item_tag, 1);
        });
        if out.len() - start <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }

    fn write_footer(&self, contents: ListContents, out: &mut Vec<u8>) {
        if contents == ListContents::NonEmpty {
            out.extend_from_slice(self.dataset_tags.end_tag());
        }
    }
}

struct XmlEntityWriter<'w, 'd> {
    cursor: JsonCursor<'d>,
    tag_cache: &'w mut TagCache,
    item_tag: &'w TagRef,
    out: &'w mut Vec<u8>,
    /// The output length at which writing stops, because the encoded entity is too large.
    max_out_len: usize,
}

impl XmlEntityWriter<'_, '_> {
    /// Writes the next value of the document, at nesting level `depth`, as an element with the tag `tag`. The elements
    /// of an array have the tag `item`.
    fn write_element(&mut self, tag: &TagRef, item: &TagRef, depth: usize) {
        let start = self.out.len();
        self.out.extend_from_slice(self.tag_cache.get(tag).start_tag());
        let content = self.out.len();
        match self.cursor.peek_type() {
            Some(JsonType::Object) if depth <= MAX_NESTING_DEPTH => {
                self.cursor.enter();
                while self.is_within_limit()
                    && let Some(name) = &self.cursor.next_key()
                {
                    self.write_field_element(name, depth + 1);
                }
            }
            Some(JsonType::Array) if depth <= MAX_NESTING_DEPTH => {
                self.cursor.enter();
                while self.is_within_limit() && self.cursor.next_element() {
                    self.write_element(item, self.item_tag, depth + 1);
                }
            }
            _ => self.write_scalar(),
        }
        let tags = self.tag_cache.get(tag);
        if self.out.len() == content {
            self.out.truncate(start);
            self.out.extend_from_slice(tags.empty_element_tag());
        } else {
            self.out.extend_from_slice(tags.end_tag());
        }
    }

    fn write_field_element(&mut self, name: &JsonStr<'_>, depth: usize) {
        if self.cursor.peek_type() == Some(JsonType::Array) {
            let [array, element] = self.tag_cache.array_and_element_tags(name);
            self.write_element(&array, &element, depth);
        } else {
            let tag = self.tag_cache.field_tag(name);
            self.write_element(&tag, self.item_tag, depth);
        }
    }

    fn is_within_limit(&self) -> bool {
        self.out.len() <= self.max_out_len
    }

    fn write_scalar(&mut self) {
        match self.cursor.next_scalar() {
            Some(JsonScalar::String(text)) => text.for_each_part(|part| match part {
                JsonStrPart::Plain(text) => write_text(text, self.out),
                JsonStrPart::Escaped(character) => write_text(&[character], self.out),
            }),
            Some(JsonScalar::Number(text)) => self.out.extend_from_slice(text.as_bytes()),
            Some(JsonScalar::Bool(value)) => self.out.extend_from_slice(if value { b"true" } else { b"false" }),
            Some(JsonScalar::Null) => {}
            // Skipping the value ensures that the cursor advances, even if the text is not canonical.
            None => _ = self.cursor.skip_value(),
        }
    }
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let plain = unescaped_prefix_len(text);
    out.extend_from_slice(&text[..plain]);
    if plain < text.len() {
        write_escaped(&String::from_utf8_lossy(&text[plain..]), out);
    }
}

/// Escapes text in chunks, because the escape function copies its input.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at(rest.floor_char_boundary(ESCAPE_CHUNK_BYTES));
        out.extend_from_slice(escape_text(chunk).as_bytes());
        rest = others;
    }
}

/// Returns the length of the text before the first character that must be escaped or replaced.
fn unescaped_prefix_len(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let stop = find_xml_special(text, at);
        match &text[stop..] {
            [0xef, 0xbf, 0xbe | 0xbf, ..] => return stop,
            [b'\t' | b'\n' | 0xef, ..] => at = stop + 1,
            _ => return stop,
        }
    }
}

/// Escapes markup and carriage returns, and replaces characters that XML does not allow.
fn escape_text(text: &str) -> Cow<'_, str> {
    let text = match text.contains(|character| !is_xml_character(character)) {
        true => Cow::Owned(text.replace(|character| !is_xml_character(character), "\u{fffd}")),
        false => Cow::Borrowed(text),
    };
    match partial_escape(text) {
        text if text.contains('\r') => Cow::Owned(text.replace('\r', "&#13;")),
        text => text,
    }
}

/// Whether XML 1.0 allows the character (fifth edition, production 2).
fn is_xml_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

//! The tags of XML: of fields, and of arrays and their elements (docs/reference/formats.md, xml).

use hashbrown::HashMap;
use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use strata_json::Text;

use super::xml_names;

/// How many elements can have their tags remembered.
const REMEMBERED_TAGS: usize = 4096;

/// Longest name, in bytes, of a field whose tags are remembered.
const REMEMBERED_NAME_BYTES: usize = 128;

/// The tags of an element, as quick-xml writes them: `<a>`, `</a>` and `<a/>`.
#[derive(Debug)]
pub(super) struct Tags {
    bytes: Box<[u8]>,
    start_length: usize,
    end: usize,
}

impl Tags {
    pub(super) fn new(name: &str) -> Tags {
        let mut bytes = Vec::with_capacity(3 * name.len() + 8);
        let mut write = |event| {
            // A vector takes all that is written.
            let _ = Writer::new(&mut bytes).write_event(event);
            bytes.len()
        };
        let start_length = write(Event::Start(BytesStart::new(name)));
        let end = write(Event::End(BytesEnd::new(name)));
        write(Event::Empty(BytesStart::new(name)));
        Tags { bytes: bytes.into(), start_length, end }
    }

    #[inline]
    pub(super) fn start(&self) -> &[u8] {
        &self.bytes[..self.start_length]
    }

    #[inline]
    pub(super) fn end(&self) -> &[u8] {
        &self.bytes[self.start_length..self.end]
    }

    #[inline]
    pub(super) fn empty(&self) -> &[u8] {
        &self.bytes[self.end..]
    }
}

/// The tags of an element, as an index of [`TagMemory`] or by value.
#[derive(Debug)]
pub(super) enum Tag {
    Remembered(usize),
    Once(Tags),
}

/// The tags of fields, remembered: most fields of an entity have the names of the entity before, and the plural of an
/// English word needs a few dozen regular expressions.
#[derive(Debug, Default)]
pub(super) struct TagMemory {
    tags: Vec<Tags>,
    /// Where those of a field are, by the field's name in JSON.
    fields: Places<usize>,
    /// Where those of an array are: around it, and around each of its elements.
    arrays: Places<[usize; 2]>,
}

type Places<T> = HashMap<Box<[u8]>, T, foldhash::fast::RandomState>;

impl TagMemory {
    /// Forgets all tags if there is no room for more. Between two calls, each tag stays at its place.
    pub(super) fn make_room(&mut self) {
        if self.tags.len() >= REMEMBERED_TAGS {
            *self = TagMemory::default();
        }
    }

    #[inline]
    pub(super) fn get<'a>(&'a self, tag: &'a Tag) -> &'a Tags {
        match tag {
            Tag::Remembered(place) => &self.tags[*place],
            Tag::Once(tags) => tags,
        }
    }

    #[inline]
    pub(super) fn field(&mut self, name: &Text<'_>) -> Tag {
        if let Some(place) = self.fields.get(name.raw()) {
            return Tag::Remembered(*place);
        }
        let tags = Tags::new(&sanitized(&name.unescape()));
        if !self.has_room(name) {
            return Tag::Once(tags);
        }
        let place = self.remember(tags);
        self.fields.insert(name.raw().into(), place);
        Tag::Remembered(place)
    }

    /// The tags of an array (the plural of the name) and of its elements (the singular), which are different.
    pub(super) fn array(&mut self, name: &Text<'_>) -> [Tag; 2] {
        if let Some(places) = self.arrays.get(name.raw()) {
            return places.map(Tag::Remembered);
        }
        let unescaped = name.unescape();
        let mut array = sanitized(&pluralizer::pluralize(&unescaped, 2, false));
        let element = sanitized(&pluralizer::pluralize(&unescaped, 1, false));
        if array == element {
            array.push('s');
        }
        let tags = [array, element].map(|name| Tags::new(&name));
        if !self.has_room(name) {
            return tags.map(Tag::Once);
        }
        let places = tags.map(|tags| self.remember(tags));
        self.arrays.insert(name.raw().into(), places);
        places.map(Tag::Remembered)
    }

    fn has_room(&self, name: &Text<'_>) -> bool {
        self.tags.len() < REMEMBERED_TAGS && name.raw().len() <= REMEMBERED_NAME_BYTES
    }

    fn remember(&mut self, tags: Tags) -> usize {
        self.tags.push(tags);
        self.tags.len() - 1
    }
}

/// The field's name as that of an element.
fn sanitized(name: &str) -> String {
    let to_tag = |character: char| if xml_names::is_alphanumeric(character) { character } else { '_' };
    let first = name.chars().next().map(to_tag);
    let needs_prefix = first.is_none_or(|first| first != '_' && !xml_names::is_letter(first));
    needs_prefix.then_some('_').into_iter().chain(name.chars().map(to_tag)).collect()
}

//! The XML tags of fields, and of arrays and their elements (docs/reference/formats.md, xml).

use hashbrown::HashMap;
use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use strata_json::JsonStr;

use super::xml_names;

const MAX_CACHED_TAGS: usize = 4096;

/// The maximum length of a field name whose tags are cached.
const MAX_CACHED_NAME_BYTES: usize = 128;

/// The XML tags of an element, as quick-xml writes them: `<a>`, `</a>` and `<a/>`.
#[derive(Debug)]
pub(super) struct ElementTags {
    bytes: Box<[u8]>,
    end_tag_offset: usize,
    empty_tag_offset: usize,
}

impl ElementTags {
    pub(super) fn new(name: &str) -> ElementTags {
        let mut bytes = Vec::with_capacity(3 * name.len() + 8);
        let mut write = |event| {
            // Writing to a vector cannot fail.
            let _ = Writer::new(&mut bytes).write_event(event);
            bytes.len()
        };
        let end_tag_offset = write(Event::Start(BytesStart::new(name)));
        let end = write(Event::End(BytesEnd::new(name)));
        write(Event::Empty(BytesStart::new(name)));
        ElementTags { bytes: bytes.into(), end_tag_offset, empty_tag_offset: end }
    }

    #[inline]
    pub(super) fn start_tag(&self) -> &[u8] {
        &self.bytes[..self.end_tag_offset]
    }

    #[inline]
    pub(super) fn end_tag(&self) -> &[u8] {
        &self.bytes[self.end_tag_offset..self.empty_tag_offset]
    }

    #[inline]
    pub(super) fn empty_element_tag(&self) -> &[u8] {
        &self.bytes[self.empty_tag_offset..]
    }
}

/// The XML tags of an element: an index in the cache of tags, or the tags themselves if they are not cached.
#[derive(Debug)]
pub(super) enum TagRef {
    Cached(usize),
    Owned(ElementTags),
}

/// Caches the tags of fields: most fields of an entity have the names of the previous entity, and pluralizing an
/// English word needs a few dozen regular expressions.
#[derive(Debug, Default)]
pub(super) struct TagCache {
    tags: Vec<ElementTags>,
    /// For each field name in JSON, the index of the field's tags in `tags`.
    index_by_field: TagIndexMap<usize>,
    /// For each field name in JSON, the indexes in `tags` for an array and for the elements of the array.
    indexes_by_array: TagIndexMap<[usize; 2]>,
}

type TagIndexMap<T> = HashMap<Box<[u8]>, T, foldhash::fast::RandomState>;

impl TagCache {
    /// Empties the cache if it is full. Indexes stay valid until the next call.
    pub(super) fn clear_if_full(&mut self) {
        if self.tags.len() >= MAX_CACHED_TAGS {
            *self = TagCache::default();
        }
    }

    #[inline]
    pub(super) fn get<'a>(&'a self, tag: &'a TagRef) -> &'a ElementTags {
        match tag {
            TagRef::Cached(index) => &self.tags[*index],
            TagRef::Owned(tags) => tags,
        }
    }

    #[inline]
    pub(super) fn field_tag(&mut self, name: &JsonStr<'_>) -> TagRef {
        if let Some(index) = self.index_by_field.get(name.raw()) {
            return TagRef::Cached(*index);
        }
        let tags = ElementTags::new(&to_xml_name(&name.unescape()));
        if !self.can_cache(name) {
            return TagRef::Owned(tags);
        }
        let index = self.insert(tags);
        self.index_by_field.insert(name.raw().into(), index);
        TagRef::Cached(index)
    }

    /// Returns the tags of an array field: the plural of `name` for the array, a different singular for its elements.
    pub(super) fn array_and_element_tags(&mut self, name: &JsonStr<'_>) -> [TagRef; 2] {
        if let Some(indexes) = self.indexes_by_array.get(name.raw()) {
            return indexes.map(TagRef::Cached);
        }
        let unescaped = name.unescape();
        let mut array = to_xml_name(&pluralizer::pluralize(&unescaped, 2, false));
        let element = to_xml_name(&pluralizer::pluralize(&unescaped, 1, false));
        if array == element {
            array.push('s');
        }
        let tags = [array, element].map(|name| ElementTags::new(&name));
        if !self.can_cache(name) {
            return tags.map(TagRef::Owned);
        }
        let indexes = tags.map(|tags| self.insert(tags));
        self.indexes_by_array.insert(name.raw().into(), indexes);
        indexes.map(TagRef::Cached)
    }

    fn can_cache(&self, name: &JsonStr<'_>) -> bool {
        self.tags.len() < MAX_CACHED_TAGS && name.raw().len() <= MAX_CACHED_NAME_BYTES
    }

    fn insert(&mut self, tags: ElementTags) -> usize {
        self.tags.push(tags);
        self.tags.len() - 1
    }
}

fn to_xml_name(name: &str) -> String {
    let to_tag = |character: char| if xml_names::is_alphanumeric(character) { character } else { '_' };
    let first = name.chars().next().map(to_tag);
    let needs_prefix = first.is_none_or(|first| first != '_' && !xml_names::is_letter(first));
    needs_prefix.then_some('_').into_iter().chain(name.chars().map(to_tag)).collect()
}

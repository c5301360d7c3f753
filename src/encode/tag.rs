//! Field names to XML tags (docs/semantics.md, xml).

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use strata_json::Text;

use super::xml_names;

/// Most field names whose [`ArrayTags`] are remembered. Above this, all are forgotten.
const MOST_REMEMBERED: usize = 4096;

/// Longest field name, in bytes, whose tags are remembered.
const LONGEST_REMEMBERED: usize = 128;

/// The tag of a field. Most names are tags already.
pub(super) fn tag(name: Text<'_>) -> Cow<'_, str> {
    let text = name.unescape();
    match text.as_bytes() {
        [first, ..] if !first.is_ascii_digit() && text.bytes().all(|byte| IS_TAG[usize::from(byte)]) => text,
        _ => Cow::Owned(sanitized(&text)),
    }
}

/// For each byte, whether it is a character that a tag may hold.
const IS_TAG: [bool; 256] = {
    let mut is_tag = [false; 256];
    let mut byte = 0;
    while byte < 0x80 {
        is_tag[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    is_tag
};

fn sanitized(name: &str) -> String {
    let to_tag = |character: char| if xml_names::is_alphanumeric(character) { character } else { '_' };
    let first = name.chars().next().map(to_tag);
    let needs_prefix = first.is_none_or(|first| first != '_' && !xml_names::is_letter(first));
    needs_prefix.then_some('_').into_iter().chain(name.chars().map(to_tag)).collect()
}

/// The tags of a field that is an array: around it, and around each of its elements.
#[derive(Debug)]
pub(super) struct ArrayTags {
    /// The English plural of the name.
    pub array: Box<str>,
    /// The English singular of the name, unlike the plural.
    pub element: Box<str>,
}

impl ArrayTags {
    fn new(name: &str) -> ArrayTags {
        let mut array = sanitized(&pluralizer::pluralize(name, 2, false));
        let element = sanitized(&pluralizer::pluralize(name, 1, false));
        if array == element {
            array.push('s');
        }
        ArrayTags { array: array.into(), element: element.into() }
    }
}

/// The tags of arrays, remembered, because English needs a few dozen regular expressions.
#[derive(Debug, Default)]
pub(super) struct ArrayTagsMemory(HashMap<Box<[u8]>, Arc<ArrayTags>, foldhash::fast::RandomState>);

impl ArrayTagsMemory {
    /// The tags of the array field `name`.
    pub(super) fn get(&mut self, name: Text<'_>) -> Arc<ArrayTags> {
        if let Some(tags) = self.0.get(name.raw()) {
            return tags.clone();
        }
        let tags = Arc::new(ArrayTags::new(&name.unescape()));
        if name.raw().len() <= LONGEST_REMEMBERED {
            if self.0.len() >= MOST_REMEMBERED {
                self.0.clear();
            }
            self.0.insert(name.raw().into(), tags.clone());
        }
        tags
    }
}

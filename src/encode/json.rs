//! `format=json`: an array, indented or compact. `format=jsonl`: a compact entity on each line
//! (docs/reference/formats.md, json and jsonl). With `count=true`, an object replaces the entities.

use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::version::{VersionNumber, VersionVariant};

use super::{EncodedSizeLimit, EntityTooLarge, ListContents, ListElement, TextEncoder};

/// `pretty=true`: indented by two spaces, without a final line feed.
pub(super) struct PrettyJsonEncoder(pub EncodedSizeLimit);

impl TextEncoder for PrettyJsonEncoder {
    fn write_header(&self, _: ListContents, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn write_entity(&self, document: &[u8], element: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        write_indented_separator(element, out);
        let limit_bytes = self.0.max_bytes_for(document.len());
        match strata_json::try_write_indented(document, 1, limit_bytes, out) {
            true => Ok(()),
            false => Err(EntityTooLarge { limit_bytes }),
        }
    }

    fn write_footer(&self, contents: ListContents, out: &mut Vec<u8>) {
        out.extend_from_slice(match contents {
            ListContents::Empty => b"]",
            ListContents::NonEmpty => b"\n]",
        });
    }
}

/// Writes an entity that is already indented as an element of an array, for `pretty=true`.
pub fn write_indented_entity(text: &[u8], element: ListElement, out: &mut Vec<u8>) {
    write_indented_separator(element, out);
    out.extend_from_slice(text);
}

fn write_indented_separator(element: ListElement, out: &mut Vec<u8>) {
    out.extend_from_slice(match element {
        ListElement::First => b"\n  ",
        ListElement::Later => b",\n  ",
    });
}

pub(super) struct CompactJsonEncoder;

impl TextEncoder for CompactJsonEncoder {
    fn write_header(&self, _: ListContents, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn write_entity(&self, document: &[u8], element: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        if element == ListElement::Later {
            out.push(b',');
        }
        out.extend_from_slice(document);
        Ok(())
    }

    fn write_footer(&self, _: ListContents, out: &mut Vec<u8>) {
        out.push(b']');
    }
}

pub(super) struct JsonLinesEncoder;

impl TextEncoder for JsonLinesEncoder {
    fn write_entity(&self, document: &[u8], _: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        out.extend_from_slice(document);
        out.push(b'\n');
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonLayout {
    Compact,
    Indented,
}

impl JsonLayout {
    pub fn from_request(request: &ReadRequest) -> JsonLayout {
        if request.pretty { JsonLayout::Indented } else { JsonLayout::Compact }
    }
}

/// Formats `{"count":…,"dataset_id":…,"version":N,"alt":…}`.
pub fn format_count_response(
    count: u64,
    dataset: DatasetId,
    version: VersionNumber,
    variant: VersionVariant,
    layout: JsonLayout,
) -> String {
    let alt = variant.is_alternate();
    match layout {
        JsonLayout::Indented => format!(
            "{{\n  \"count\": {count},\n  \"dataset_id\": {dataset},\n  \"version\": {version},\n  \"alt\": {alt}\n}}"
        ),
        JsonLayout::Compact => {
            format!("{{\"count\":{count},\"dataset_id\":{dataset},\"version\":{version},\"alt\":{alt}}}")
        }
    }
}

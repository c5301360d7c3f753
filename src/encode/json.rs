//! `format=json`: one array, indented or compact; `format=jsonl`: a compact entity on every line, each line ended
//! (docs/reference/formats.md, json and jsonl). With `count=true`, one object in place of the entities.

use strata_types::ids::DatasetId;
use strata_types::version::VersionNumber;

use super::{Encode, EntityBound, EntityTooLarge};

/// `pretty=true`: two spaces per level, no final line feed.
pub(super) struct Pretty(pub EntityBound);

impl Encode for Pretty {
    fn begin(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        indent(first, out);
        let limit_bytes = self.0.bytes(document.len());
        match strata_json::pretty_within(document, 1, limit_bytes, out) {
            true => Ok(()),
            false => Err(EntityTooLarge { limit_bytes }),
        }
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if empty { b"]" } else { b"\n]" });
    }
}

/// Writes an entity as `pretty=true` does, given that it is indented as an element of an array.
pub fn indented_entity(text: &[u8], first: bool, out: &mut Vec<u8>) {
    indent(first, out);
    out.extend_from_slice(text);
}

fn indent(first: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if first { b"\n  " } else { b",\n  " });
}

pub(super) struct Compact;

impl Encode for Compact {
    fn begin(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        if !first {
            out.push(b',');
        }
        out.extend_from_slice(document);
        Ok(())
    }

    fn end(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b']');
    }
}

pub(super) struct Jsonl;

impl Encode for Jsonl {
    fn entity(&self, document: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        out.extend_from_slice(document);
        out.push(b'\n');
        Ok(())
    }
}

/// `{"count":…,"dataset_id":…,"version":N,"alt":…}`, indented when `pretty`.
pub fn count(count: u64, dataset: DatasetId, version: VersionNumber, alt: bool, pretty: bool) -> String {
    if pretty {
        format!(
            "{{\n  \"count\": {count},\n  \"dataset_id\": {dataset},\n  \"version\": {version},\n  \"alt\": {alt}\n}}"
        )
    } else {
        format!("{{\"count\":{count},\"dataset_id\":{dataset},\"version\":{version},\"alt\":{alt}}}")
    }
}

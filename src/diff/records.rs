//! Changes as JSON: records are written from the documents when they are asked for.
//!
//! A record is compact, in the field order of docs/reference/diffs.md, Diffs. Entities and values stand in it byte for
//! byte. `source` is the text of `_source` (docs/reference/paths-and-values.md, Text of a scalar): `""` where it is
//! missing or null, and the JSON text of an object or array. A pair whose `_source`s are spelled differently has that
//! of v1.

use std::io::Write;
use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};
use strata_format::reader::VersionReader;
use strata_json::{CanonicalForm, JsonType, Text};
use strata_query::fetch::pages::Pages;
use strata_query::fields::SOURCE;
use strata_store::StorageError;

use super::by_row_group;
use super::changes::Change;

/// Bytes of documents of one version that are in memory at once; one document may have more.
const DOCUMENT_BYTES: usize = 8 << 20;

/// Calls `each` with the records of changes, in their order, until it breaks. Returns how many it was called with.
pub async fn for_each(
    readers: &[VersionReader; 2],
    changes: &[Change],
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<usize, StorageError> {
    let mut writer = RecordWriter::default();
    let mut record = Vec::new();
    let mut done = 0;
    let mut group = changes.len();
    while done < changes.len() {
        let now = &changes[done..changes.len().min(done + group)];
        let most = if now.len() == 1 { usize::MAX } else { DOCUMENT_BYTES };
        let v1 = Documents::read(&readers[0], now.iter().map(|change| change.v1()), most).await?;
        let v2 = Documents::read(&readers[1], now.iter().map(|change| change.v2()), most).await?;
        let Some((v1, v2)) = v1.zip(v2) else {
            group = now.len() / 2;
            continue;
        };
        for (place, change) in now.iter().enumerate() {
            record.clear();
            writer.write(*change, v1.get(place), v2.get(place), &mut record);
            done += 1;
            if each(&record).is_break() {
                return Ok(done);
            }
        }
        group = now.len() * 2;
    }
    Ok(done)
}

struct Documents {
    bytes: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl Documents {
    /// Reads those that are wanted, each page once; `None` where they have more than `most` bytes.
    async fn read(
        reader: &VersionReader,
        positions: impl Iterator<Item = Option<u64>>,
        most: usize,
    ) -> Result<Option<Documents>, StorageError> {
        let mut order = Vec::new();
        let mut spans = Vec::new();
        for (place, position) in positions.enumerate() {
            spans.push(None);
            order.extend(position.map(|position| (position, place)));
        }
        order.sort_unstable();
        let mut bytes = Vec::new();
        for (number, places) in by_row_group(reader, &order, |(position, _)| *position) {
            let wanted = &order[places];
            let row = |position: u64| (position - reader.row_groups()[number].first) as usize;
            let [first, last] =
                [wanted.first(), wanted.last()].map(|one| one.map_or(0, |(position, _)| row(*position)));
            // Pages in between are fetched along where most of them are wanted.
            let mut pages = match wanted.len() * 2 > last - first {
                true => Pages::contiguous(reader, number, last + 1),
                false => Pages::scattered(reader, number),
            };
            for (position, place) in wanted {
                let from = bytes.len();
                bytes.extend_from_slice(pages.document(row(*position)).await?);
                spans[*place] = Some((from, bytes.len()));
                if bytes.len() > most {
                    return Ok(None);
                }
            }
        }
        Ok(Some(Documents { bytes, spans }))
    }

    fn get(&self, place: usize) -> Option<&[u8]> {
        self.spans[place].map(|(start, end)| &self.bytes[start..end])
    }
}

#[derive(Default)]
struct RecordWriter {
    canonical: CanonicalForm,
    forms: [Vec<u8>; 2],
}

impl RecordWriter {
    fn write(&mut self, change: Change, v1: Option<&[u8]>, v2: Option<&[u8]>, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = write!(out, r#"{{"id":"{change}","change_type":"{}","source":"#, change.change_type().name());
        write_source(v1.or(v2).and_then(|entity| strata_json::member(entity, SOURCE)), out);
        for (key, entity) in [("v1", v1), ("v2", v2)] {
            let _ = write!(out, r#","{key}":"#);
            out.extend_from_slice(entity.unwrap_or(b"null"));
        }
        out.extend_from_slice(br#","field_diffs":["#);
        if let (Some(v1), Some(v2)) = (v1, v2) {
            self.write_field_diffs(v1, v2, out);
        }
        out.extend_from_slice(b"]}");
    }

    /// The fields that differ, in v1's order, then those of v2 alone.
    fn write_field_diffs(&mut self, v1: &[u8], v2: &[u8], out: &mut Vec<u8>) {
        let others: HashMap<&[u8], &[u8]> = strata_json::members(v2).map(|(name, value)| (name.raw(), value)).collect();
        let mut first = true;
        let mut write = |name: Text<'_>, one: Option<&[u8]>, other: Option<&[u8]>| {
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            out.extend_from_slice(br#"{"field":""#);
            out.extend_from_slice(name.raw());
            out.extend_from_slice(br#"","v1":"#);
            out.extend_from_slice(one.unwrap_or(b"null"));
            out.extend_from_slice(br#","v2":"#);
            out.extend_from_slice(other.unwrap_or(b"null"));
            out.push(b'}');
        };
        let mut in_v1 = HashSet::new();
        for (name, value) in strata_json::members(v1) {
            in_v1.insert(name.raw());
            let other = others.get(name.raw()).copied();
            if !name.eq_str(SOURCE) && !other.is_some_and(|other| self.are_equal(value, other)) {
                write(name, Some(value), other);
            }
        }
        for (name, value) in strata_json::members(v2) {
            if !name.eq_str(SOURCE) && !in_v1.contains(name.raw()) {
                write(name, None, Some(value));
            }
        }
    }

    fn are_equal(&mut self, one: &[u8], other: &[u8]) -> bool {
        if one == other {
            return true;
        }
        let [form, other_form] = &mut self.forms;
        form.clear();
        other_form.clear();
        self.canonical.write(one, form);
        self.canonical.write(other, other_form);
        form == other_form
    }
}

fn write_source(value: Option<&[u8]>, out: &mut Vec<u8>) {
    let json_type = value.and_then(|value| JsonType::of(*value.first()?));
    match (json_type, value) {
        (Some(JsonType::String), Some(value)) => out.extend_from_slice(value),
        (None | Some(JsonType::Null), _) | (_, None) => out.extend_from_slice(b"\"\""),
        // Canonical text is UTF-8.
        (_, Some(value)) => strata_json::write_string(&String::from_utf8_lossy(value), out),
    }
}

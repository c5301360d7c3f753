//! Encodes the changes of a diff as JSON records, which are built from the documents on each request.
//!
//! ```json
//! {"id":"m0-2","change_type":"modified","source":"a","v1":{…},"v2":{…},"field_diffs":[{"field":"x","v1":1,"v2":2}]}
//! ```
//!
//! Records are compact JSON. Entities and values are copied byte for byte. `source` is the text of `_source`: `""` if
//! `_source` is missing or null, and JSON text if it is an object or array. If the two versions spell it differently,
//! the record has the spelling of v1.

use std::io::Write;
use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};
use strata_format::reader::VersionReader;
use strata_json::{CanonicalFormWriter, JsonStr, JsonType};
use strata_query::fetch::document_page_reader::DocumentPageReader;
use strata_query::fields::SOURCE_FIELD;
use strata_store::StorageError;

use super::changes::DiffChange;
use super::group_by_row_group;

/// Maximum bytes of documents per version in memory at once, unless a single document is larger.
const DOCUMENT_BATCH_BYTES: usize = 8 << 20;

/// Calls `each` with the record of each change, in order, until `each` breaks. Returns the number of calls.
pub async fn for_each_record(
    readers: &[VersionReader; 2],
    changes: &[DiffChange],
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<usize, StorageError> {
    let mut writer = ChangeRecordWriter::default();
    let mut record = Vec::new();
    let mut done = 0;
    let mut batch_size = changes.len();
    while done < changes.len() {
        let batch = &changes[done..changes.len().min(done + batch_size)];
        let max_bytes = if batch.len() == 1 { usize::MAX } else { DOCUMENT_BATCH_BYTES };
        let v1 = DocumentBatch::read(&readers[0], batch.iter().map(|change| change.v1()), max_bytes).await?;
        let v2 = DocumentBatch::read(&readers[1], batch.iter().map(|change| change.v2()), max_bytes).await?;
        let Some((v1, v2)) = v1.zip(v2) else {
            batch_size = batch.len() / 2;
            continue;
        };
        for (index, change) in batch.iter().enumerate() {
            record.clear();
            writer.write_record(*change, v1.get(index), v2.get(index), &mut record);
            done += 1;
            if each(&record).is_break() {
                return Ok(done);
            }
        }
        batch_size = batch.len() * 2;
    }
    Ok(done)
}

struct DocumentBatch {
    bytes: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl DocumentBatch {
    /// Reads the documents at `positions`, each document page once. Returns `None` if they exceed `max_bytes`.
    async fn read(
        reader: &VersionReader,
        positions: impl Iterator<Item = Option<u64>>,
        max_bytes: usize,
    ) -> Result<Option<DocumentBatch>, StorageError> {
        let mut order = Vec::new();
        let mut spans = Vec::new();
        for (index, position) in positions.enumerate() {
            spans.push(None);
            order.extend(position.map(|position| (position, index)));
        }
        order.sort_unstable();
        let mut bytes = Vec::new();
        for (row_group, range) in group_by_row_group(reader, &order, |(position, _)| *position) {
            let requested = &order[range];
            let row = |position: u64| (position - reader.row_groups()[row_group].first_position) as usize;
            let [first, last] =
                [requested.first(), requested.last()].map(|entry| entry.map_or(0, |(position, _)| row(*position)));
            // If most rows of a range are requested, one contiguous read of the range is cheaper than many small ones.
            let mut pages = match requested.len() * 2 > last - first {
                true => DocumentPageReader::for_contiguous_rows(reader, row_group, last + 1),
                false => DocumentPageReader::for_scattered_rows(reader, row_group),
            };
            for (position, index) in requested {
                let start = bytes.len();
                bytes.extend_from_slice(pages.document(row(*position)).await?);
                spans[*index] = Some((start, bytes.len()));
                if bytes.len() > max_bytes {
                    return Ok(None);
                }
            }
        }
        Ok(Some(DocumentBatch { bytes, spans }))
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        self.spans[index].map(|(start, end)| &self.bytes[start..end])
    }
}

#[derive(Default)]
struct ChangeRecordWriter {
    canonical: CanonicalFormWriter,
    canonical_buffers: [Vec<u8>; 2],
}

impl ChangeRecordWriter {
    fn write_record(&mut self, change: DiffChange, v1: Option<&[u8]>, v2: Option<&[u8]>, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = write!(out, r#"{{"id":"{change}","change_type":"{}","source":"#, change.change_type().name());
        write_source_as_string(v1.or(v2).and_then(|entity| strata_json::find_member(entity, SOURCE_FIELD)), out);
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

    /// Writes the fields in which two entities differ, in the order of v1, and then the fields that only v2 has.
    fn write_field_diffs(&mut self, v1: &[u8], v2: &[u8], out: &mut Vec<u8>) {
        let v2_fields: HashMap<_, _> = strata_json::members(v2).map(|(name, value)| (name.raw(), value)).collect();
        let mut first = true;
        let mut write = |name: JsonStr<'_>, v1: Option<&[u8]>, v2: Option<&[u8]>| {
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            out.extend_from_slice(br#"{"field":""#);
            out.extend_from_slice(name.raw());
            out.extend_from_slice(br#"","v1":"#);
            out.extend_from_slice(v1.unwrap_or(b"null"));
            out.extend_from_slice(br#","v2":"#);
            out.extend_from_slice(v2.unwrap_or(b"null"));
            out.push(b'}');
        };
        let mut in_v1 = HashSet::new();
        for (name, value) in strata_json::members(v1) {
            in_v1.insert(name.raw());
            let v2_value = v2_fields.get(name.raw()).copied();
            if !name.eq_str(SOURCE_FIELD) && !v2_value.is_some_and(|other| self.are_canonically_equal(value, other)) {
                write(name, Some(value), v2_value);
            }
        }
        for (name, value) in strata_json::members(v2) {
            if !name.eq_str(SOURCE_FIELD) && !in_v1.contains(name.raw()) {
                write(name, None, Some(value));
            }
        }
    }

    fn are_canonically_equal(&mut self, v1: &[u8], v2: &[u8]) -> bool {
        if v1 == v2 {
            return true;
        }
        let [v1_canonical, v2_canonical] = &mut self.canonical_buffers;
        v1_canonical.clear();
        v2_canonical.clear();
        self.canonical.write(v1, v1_canonical);
        self.canonical.write(v2, v2_canonical);
        v1_canonical == v2_canonical
    }
}

fn write_source_as_string(value: Option<&[u8]>, out: &mut Vec<u8>) {
    let json_type = value.and_then(|value| JsonType::from_first_byte(*value.first()?));
    match (json_type, value) {
        (Some(JsonType::String), Some(value)) => out.extend_from_slice(value),
        (None | Some(JsonType::Null), _) | (_, None) => out.extend_from_slice(b"\"\""),
        // The conversion to a string loses nothing, because canonical JSON text is valid UTF-8.
        (_, Some(value)) => strata_json::write_json_string(&String::from_utf8_lossy(value), out),
    }
}

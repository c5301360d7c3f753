//! Detects the format of a source from, in this order: the requested format, the extension of the file name (without
//! `.gz` or `.zst`), the `Content-Type`, and the content. An ambiguous source is an error that explains how to specify
//! the format, as is content that starts with the signature of an unsupported or another format.

use serde::de::IgnoredAny;
use strata_json::ValueScanner;
use strata_types::source::SourceFormat;

use super::envelope::ENTITIES_FIELD;
use super::error::SourceError;

/// The number of content bytes, after leading whitespace, that are compared with signatures.
const SIGNATURE_BYTES: usize = 32;

/// The number of content bytes, including leading whitespace, within which signatures are searched.
const MAX_SNIFFED_BYTES: usize = 1024;

const HTML_REASON: &str =
    "it is an HTML page, perhaps a login page or an error page; valid: json, jsonl, csv, tsv, parquet";

const XML_REASON: &str = "it is XML or HTML, which cannot be imported; valid: json, jsonl, csv, tsv, parquet";
const PARQUET_REASON: &str = "it is Parquet; set `format` to parquet";
const JSON_REASON: &str = "it looks like JSON; set `format` to json, or to jsonl if each line is an object";

const UTF_16_REASON: &str =
    "it is UTF-16: save it as UTF-8, or convert it, for example with `iconv -f utf-16 -t utf-8`";

const FOREIGN_SIGNATURES: [(&[u8], &str); 7] = [
    (b"\xff\xfe", UTF_16_REASON),
    (b"\xfe\xff", UTF_16_REASON),
    (b"PK\x05\x06", "it is an empty ZIP archive"),
    (b"PK\x03\x04", "it is a ZIP archive, such as a spreadsheet (xlsx, ods): export the sheet as csv"),
    (b"\xd0\xcf\x11\xe0", "it is an old Office document, such as a spreadsheet (xls): export the sheet as csv"),
    (b"SQLite format 3\0", "it is an SQLite database: export a table as csv or jsonl"),
    (b"ARROW1\0", "it is an Arrow file (Feather): convert it to parquet"),
];

pub(super) struct FormatEvidence<'a> {
    pub(super) requested: Option<SourceFormat>,
    pub(super) file_name: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) has_records_path: bool,
    /// The start of the decompressed content without a byte order mark. It has the bytes that [`is_enough_to_detect`]
    /// requires and, without a requested format, the first line and one more character, up to the entity size limit.
    pub(super) head: &'a [u8],
}

pub(super) fn detect_format(evidence: &FormatEvidence<'_>) -> Result<SourceFormat, SourceError> {
    let announced = evidence
        .file_name
        .and_then(format_from_name)
        .or_else(|| evidence.content_type.and_then(SourceFormat::from_content_type));
    let declared = evidence.requested.or(announced);
    if let Some(reason) = content_rejection_reason(evidence.head, declared) {
        return Err(SourceError::invalid_document(match declared {
            Some(declared) => format!("the source cannot be read as {declared}: {reason}"),
            None => format!("the format cannot be detected from the content: {reason}"),
        }));
    }
    let format = match (evidence.requested, announced) {
        (Some(requested), _) => requested,
        // Files with one object per line (JSON Lines) are often named `.json`, and served with the type of JSON.
        (None, Some(SourceFormat::Json)) if !evidence.has_records_path && has_object_per_line(evidence.head) => {
            SourceFormat::Jsonl
        }
        (None, Some(announced)) => announced,
        (None, None) => format_from_content(evidence.head, evidence.has_records_path)?,
    };
    if evidence.has_records_path && format != SourceFormat::Json {
        return Err(SourceError::invalid_document(format!(
            "a records path applies only to json sources, but the format is {format}"
        )));
    }
    Ok(format)
}

pub(super) fn format_from_name(name: &str) -> Option<SourceFormat> {
    let lower = name.to_ascii_lowercase();
    let stem = [".gz", ".gzip", ".zst", ".zstd"].iter().find_map(|suffix| lower.strip_suffix(suffix)).unwrap_or(&lower);
    let (_, extension) = stem.rsplit_once('.')?;
    match extension {
        "json" | "geojson" => Some(SourceFormat::Json),
        "jsonl" | "ndjson" => Some(SourceFormat::Jsonl),
        "csv" => Some(SourceFormat::Csv),
        "tsv" | "tab" => Some(SourceFormat::Tsv),
        "parquet" => Some(SourceFormat::Parquet),
        _ => None,
    }
}

/// Returns whether `content` is long enough to detect unsupported content, given the requested format.
pub(super) fn is_enough_to_detect(content: &[u8], requested: Option<SourceFormat>) -> bool {
    let text = content.trim_ascii_start();
    let is_enough = match text.first() {
        // In a CSV or TSV file, a bracket might be the start of the first cell.
        Some(b'{' | b'[') if matches!(requested, Some(SourceFormat::Csv | SourceFormat::Tsv)) => {
            text.len() >= SIGNATURE_BYTES || memchr::memchr2(b'\n', b'\r', text).is_some()
        }
        Some(b'{' | b'[') => true,
        // To distinguish markup from a table, the whole first line is needed: a delimiter can be anywhere in it.
        Some(b'<') => text.len() >= SIGNATURE_BYTES && text.contains(&b'\n'),
        _ => text.len() >= SIGNATURE_BYTES,
    };
    content.len() >= MAX_SNIFFED_BYTES || is_enough
}

/// Returns the reason to reject the content: an unsupported format, or Parquet or JSON although another format was
/// declared. Markup is rejected if no format was declared, or if the first line of a declared table has no delimiter.
fn content_rejection_reason(content: &[u8], declared: Option<SourceFormat>) -> Option<&'static str> {
    // Only a fixed number of bytes is examined, so that the result does not depend on how many have arrived.
    let content = &content[..content.len().min(MAX_SNIFFED_BYTES)];
    let whole = content.trim_ascii_start();
    let text = &whole[..whole.len().min(SIGNATURE_BYTES)];
    if begins_with_word(text, b"<!doctype html") || begins_with_word(text, b"<html") {
        return Some(HTML_REASON);
    }
    let is_delimited = |delimiter| first_line(whole).contains(&delimiter);
    let is_markup = begins_with_tag(text) || text.starts_with(b"<!--");
    let may_be_markup = match declared {
        None => true,
        Some(SourceFormat::Csv) => !is_delimited(b','),
        Some(SourceFormat::Tsv) => !is_delimited(b'\t'),
        Some(_) => false,
    };
    if begins_with_word(text, b"<?xml") || (may_be_markup && is_markup) {
        return Some(XML_REASON);
    }
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    if !matches!(declared, None | Some(SourceFormat::Parquet))
        && is_parquet(content)
        && content.get(4).is_some_and(|byte| !is_text(byte))
    {
        return Some(PARQUET_REASON);
    }
    if matches!(declared, Some(SourceFormat::Csv | SourceFormat::Tsv)) && is_json(text) {
        return Some(JSON_REASON);
    }
    FOREIGN_SIGNATURES.iter().find_map(|(magic, reason)| content.starts_with(magic).then_some(*reason))
}

pub(super) fn is_parquet(content: &[u8]) -> bool {
    content.starts_with(b"PAR1") || content.starts_with(b"PARE")
}

fn begins_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        && text.get(word.len()).is_none_or(|end| end.is_ascii_whitespace() || matches!(end, b'>' | b'/'))
}

/// Returns whether `text` starts with a tag of HTML or XML: `<`, a name, and a character that can follow the name.
fn begins_with_tag(text: &[u8]) -> bool {
    let [b'<', first, rest @ ..] = text else { return false };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.');
    let end = rest.iter().copied().find(|byte| !is_name(*byte));
    first.is_ascii_alphabetic() && end.is_none_or(|end| matches!(end, b'>' | b'/' | b' ' | b'\r' | b'\n'))
}

/// Returns whether the first line is JSON: an object, the start of an array of objects, or only brackets.
fn is_json(content: &[u8]) -> bool {
    let line = first_line(content).trim_ascii_end();
    let is_whole = line.len() < content.len();
    let items = line.strip_prefix(b"[");
    let list = items.is_some();
    let object = items.map_or(line, <[u8]>::trim_ascii_start);
    if list && serde_json::from_slice::<IgnoredAny>(line).is_ok() {
        return true;
    }
    match object.strip_prefix(b"{").map(<[u8]>::trim_ascii_start) {
        Some([b'"', members @ ..]) => list || has_colon_after_key(members),
        Some(b"" | b"}" | b"},") => true,
        Some(_) => false,
        None => list && is_whole && matches!(object, b"" | b"]"),
    }
}

fn has_colon_after_key(members: &[u8]) -> bool {
    memchr::memchr_iter(b'"', members).any(|at| members[at + 1..].trim_ascii_start().starts_with(b":"))
}

fn format_from_content(content: &[u8], has_records_path: bool) -> Result<SourceFormat, SourceError> {
    if is_parquet(content) {
        return Ok(SourceFormat::Parquet);
    }
    match content.trim_ascii_start().first() {
        None if content.is_empty() => Err(ambiguous_format_error("the source is empty")),
        None => Err(ambiguous_format_error("its beginning contains only whitespace")),
        Some(b'[') => Ok(SourceFormat::Json),
        Some(b'{') if has_records_path => Ok(SourceFormat::Json),
        // An object over several lines is one JSON document. If it is unusable, the JSON decoder reports what to do.
        Some(b'{') if !is_object(first_line(content)) => Ok(SourceFormat::Json),
        // A push body on one line is a JSON document, too. As JSON Lines, it would become one entity.
        Some(b'{') if is_push_body(content.trim_ascii()) => Ok(SourceFormat::Json),
        Some(b'{') => Ok(SourceFormat::Jsonl),
        _ if first_line(content).contains(&0) => Err(ambiguous_format_error("it is binary, but not Parquet")),
        Some(_) => table_format_from_header(first_line(content)),
    }
}

/// Returns the table format whose delimiter occurs outside quotes in the header line.
fn table_format_from_header(header: &[u8]) -> Result<SourceFormat, SourceError> {
    let has_unquoted = |delimiter: u8| {
        let mut in_quotes = false;
        header.iter().any(|byte| {
            in_quotes ^= *byte == b'"';
            !in_quotes && *byte == delimiter
        })
    };
    match (has_unquoted(b','), has_unquoted(b'\t')) {
        (true, false) => Ok(SourceFormat::Csv),
        (false, true) => Ok(SourceFormat::Tsv),
        (true, true) => Err(ambiguous_format_error("its first line has both commas and tabs")),
        // As CSV, a table with semicolons would have one column.
        (false, false) if has_unquoted(b';') => Err(SourceError::invalid_document(
            "the format cannot be detected from the content: its first line has semicolons, but only commas (csv) and \
             tabs (tsv) separate cells; replace the semicolons with commas or tabs",
        )),
        (false, false) => Err(ambiguous_format_error("its first line has neither a comma nor a tab")),
    }
}

fn ambiguous_format_error(reason: &str) -> SourceError {
    SourceError::invalid_document(format!(
        "the format cannot be detected from the content ({reason}); set `format` to json, jsonl, csv, tsv, or parquet"
    ))
}

/// Returns whether the first line is an object and another follows. A single object might contain an array of entities.
pub fn has_object_per_line(content: &[u8]) -> bool {
    let content = content.trim_ascii_start();
    let line = first_line(content);
    is_object(line) && content[line.len()..].trim_ascii_start().starts_with(b"{")
}

pub(super) fn has_only_entities_array(object: &[u8]) -> bool {
    // The substring search avoids parsing most objects.
    memchr::memmem::find(object, ENTITIES_FIELD.as_bytes()).is_some()
        && parse_push_members(object).is_some_and(|members| members.has_entities && members.member_count == 1)
}

/// Returns whether a document is one line with an object that has a `dataset_id` and an array `entities`.
fn is_push_body(document: &[u8]) -> bool {
    first_line(document).len() == document.len()
        && parse_push_members(document).is_some_and(|members| members.has_dataset_id && members.has_entities)
}

struct PushMembers {
    has_dataset_id: bool,
    has_entities: bool,
    member_count: usize,
}

fn parse_push_members(object: &[u8]) -> Option<PushMembers> {
    let mut canonical = Vec::new();
    strata_json::canonicalize(object, &mut canonical).ok()?;
    let mut members = PushMembers { has_dataset_id: false, has_entities: false, member_count: 0 };
    for (key, value) in strata_json::members(&canonical) {
        members.member_count += 1;
        members.has_dataset_id |= key.eq_str("dataset_id");
        members.has_entities |= key.eq_str(ENTITIES_FIELD) && value.starts_with(b"[");
    }
    Some(members)
}

/// Returns whether the brackets of a line form one object. The rest of its syntax is not checked.
fn is_object(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{") && matches!(ValueScanner::new().feed(line), Ok(Some(end)) if end == line.len())
}

fn first_line(content: &[u8]) -> &[u8] {
    let content = content.trim_ascii_start();
    memchr::memchr2(b'\n', b'\r', content).map_or(content, |length| &content[..length])
}

//! Decides which format a source has: the one that was asked for; or that of the file name's extension (without `.gz`
//! or `.zst`), the `Content-Type`, or the content. An ambiguous source is an error that says how to name the format. So
//! is one that begins as something that is no source, or as Parquet where another format is named.

use serde::de::IgnoredAny;
use strata_json::ValueScanner;
use strata_types::source::SourceFormat;

use super::envelope::ENTITIES;
use super::error::SourceError;

/// Bytes of the content after its first blanks that tell whether it is foreign: more than the longest magic number has.
const HEAD_BYTES: usize = 32;

/// Bytes of the content, with its first blanks, beyond which that is not looked for.
const LOOKED_AT_BYTES: usize = 1024;

const HTML: &str = "it is an HTML page, perhaps a login page or an error page; valid: json, jsonl, csv, tsv, parquet";

const XML: &str = "it is XML or HTML, which cannot be imported; valid: json, jsonl, csv, tsv, parquet";

const PARQUET: &str = "it is Parquet; set `format` to parquet";

const JSON: &str = "it looks like JSON; set `format` to json, or to jsonl if each line is an object";

const UTF_16: &str = "it is UTF-16: save it as UTF-8, or convert it, for example with `iconv -f utf-16 -t utf-8`";

const FOREIGN: [(&[u8], &str); 7] = [
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (b"PK\x05\x06", "it is an empty ZIP archive"),
    (b"PK\x03\x04", "it is a ZIP archive, such as a spreadsheet (xlsx, ods): export the sheet as csv"),
    (b"\xd0\xcf\x11\xe0", "it is an old Office document, such as a spreadsheet (xls): export the sheet as csv"),
    (b"SQLite format 3\0", "it is an SQLite database: export a table as csv or jsonl"),
    (b"ARROW1\0", "it is an Arrow file (Feather): convert it to parquet"),
];

pub(super) struct Evidence<'a> {
    pub(super) asked: Option<SourceFormat>,
    /// The file name, or the last segment of the URL's path.
    pub(super) name: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) has_records_path: bool,
    /// The start of the decompressed content without its byte order mark: all of it, or at least what [`has_head`] asks
    /// for; where no format was asked for, its first line and one character after it, too, or as much of that as an
    /// entity may have.
    pub(super) content: &'a [u8],
}

pub(super) fn detect(evidence: &Evidence<'_>) -> Result<SourceFormat, SourceError> {
    let announced =
        evidence.name.and_then(by_name).or_else(|| evidence.content_type.and_then(SourceFormat::of_content_type));
    let named = evidence.asked.or(announced);
    if let Some(what) = foreign(evidence.content, named) {
        return Err(SourceError::document(match named {
            Some(named) => format!("the source cannot be read as {named}: {what}"),
            None => format!("the format cannot be detected from the content: {what}"),
        }));
    }
    let format =
        match (evidence.asked, announced) {
            (Some(asked), _) => asked,
            // Files of one object per line are often called `.json`, and served as such.
            (None, Some(SourceFormat::Json)) if !evidence.has_records_path => {
                if has_objects_as_lines(evidence.content) { SourceFormat::Jsonl } else { SourceFormat::Json }
            }
            (None, Some(announced)) => announced,
            (None, None) => by_content(evidence.content, evidence.has_records_path)?,
        };
    if evidence.has_records_path && format != SourceFormat::Json {
        return Err(SourceError::document(format!(
            "a records path applies only to json sources, but the format is {format}"
        )));
    }
    Ok(format)
}

pub(super) fn by_name(name: &str) -> Option<SourceFormat> {
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

/// Whether the content that has come is enough to tell whether it is foreign to the format that is asked for.
pub(super) fn has_head(content: &[u8], asked: Option<SourceFormat>) -> bool {
    let text = content.trim_ascii_start();
    let is_enough = match text.first() {
        // What a table begins with as JSON does.
        Some(b'{' | b'[') if matches!(asked, Some(SourceFormat::Csv | SourceFormat::Tsv)) => {
            text.len() >= HEAD_BYTES || memchr::memchr2(b'\n', b'\r', text).is_some()
        }
        Some(b'{' | b'[') => true,
        // A delimiter of a table may come anywhere on the line.
        Some(b'<') => text.len() >= HEAD_BYTES && text.contains(&b'\n'),
        _ => text.len() >= HEAD_BYTES,
    };
    content.len() >= LOOKED_AT_BYTES || is_enough
}

/// What the content is by its beginning, and what to do, where that is none of the formats, or Parquet although another
/// one is named. A tag or a comment of markup counts where none is named, and where a table is named but no delimiter
/// comes on its line, as far as this looks.
fn foreign(content: &[u8], named: Option<SourceFormat>) -> Option<&'static str> {
    // However much has come, the same bytes decide.
    let content = &content[..content.len().min(LOOKED_AT_BYTES)];
    let whole = content.trim_ascii_start();
    let text = &whole[..whole.len().min(HEAD_BYTES)];
    if begins_with_word(text, b"<!doctype html") || begins_with_word(text, b"<html") {
        return Some(HTML);
    }
    let is_delimited = |delimiter| first_line(whole).contains(&delimiter);
    let is_markup = begins_with_tag(text) || text.starts_with(b"<!--");
    let may_be_markup = match named {
        None => true,
        Some(SourceFormat::Csv) => !is_delimited(b','),
        Some(SourceFormat::Tsv) => !is_delimited(b'\t'),
        Some(_) => false,
    };
    if begins_with_word(text, b"<?xml") || (may_be_markup && is_markup) {
        return Some(XML);
    }
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    if !matches!(named, None | Some(SourceFormat::Parquet))
        && is_parquet(content)
        && content.get(4).is_some_and(|byte| !is_text(byte))
    {
        return Some(PARQUET);
    }
    if matches!(named, Some(SourceFormat::Csv | SourceFormat::Tsv)) && is_json(text) {
        return Some(JSON);
    }
    FOREIGN.iter().find_map(|(magic, what)| content.starts_with(magic).then_some(*what))
}

pub(super) fn is_parquet(content: &[u8]) -> bool {
    content.starts_with(b"PAR1") || content.starts_with(b"PARE")
}

/// Whether a text begins with this word of markup, in any case, and the word ends there.
fn begins_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        && text.get(word.len()).is_none_or(|end| end.is_ascii_whitespace() || matches!(end, b'>' | b'/'))
}

/// Whether a text begins with a tag: a name that markup ends, and no delimiter of a table.
fn begins_with_tag(text: &[u8]) -> bool {
    let [b'<', first, rest @ ..] = text else { return false };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.');
    let end = rest.iter().copied().find(|byte| !is_name(*byte));
    first.is_ascii_alphabetic() && end.is_none_or(|end| matches!(end, b'>' | b'/' | b' ' | b'\r' | b'\n'))
}

/// Whether the first line is JSON: an object, the beginning of an array of objects, or only brackets.
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
        Some([]) => true,
        Some(b"}" | b"},") => true,
        Some(_) => false,
        None => list && is_whole && matches!(object, b"" | b"]"),
    }
}

fn has_colon_after_key(members: &[u8]) -> bool {
    memchr::memchr_iter(b'"', members).any(|at| members[at + 1..].trim_ascii_start().starts_with(b":"))
}

fn by_content(content: &[u8], has_records_path: bool) -> Result<SourceFormat, SourceError> {
    if is_parquet(content) {
        return Ok(SourceFormat::Parquet);
    }
    match content.trim_ascii_start().first() {
        None if content.is_empty() => Err(ambiguous("the source is empty")),
        None => Err(ambiguous("its beginning contains only whitespace")),
        Some(b'[') => Ok(SourceFormat::Json),
        Some(b'{') if has_records_path => Ok(SourceFormat::Json),
        // An object that does not end with its line is one document. Its decoder says what to do.
        Some(b'{') if !is_object(first_line(content)) => Ok(SourceFormat::Json),
        // So is the lone body of a push: as a line it would become one entity.
        Some(b'{') if is_lone_push(content.trim_ascii()) => Ok(SourceFormat::Json),
        Some(b'{') => Ok(SourceFormat::Jsonl),
        _ if first_line(content).contains(&0) => Err(ambiguous("it is binary, but not Parquet")),
        Some(_) => by_delimiter(first_line(content)),
    }
}

/// The table format whose delimiter the header line has outside quotes.
fn by_delimiter(header: &[u8]) -> Result<SourceFormat, SourceError> {
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
        (true, true) => Err(ambiguous("its first line has both commas and tabs")),
        // Named csv, it would become one column.
        (false, false) if has_unquoted(b';') => Err(SourceError::document(
            "the format cannot be detected from the content: its first line has semicolons, but only commas (csv) and \
             tabs (tsv) separate cells; replace the semicolons with commas or tabs",
        )),
        (false, false) => Err(ambiguous("its first line has neither a comma nor a tab")),
    }
}

fn ambiguous(reason: &str) -> SourceError {
    SourceError::document(format!(
        "the format cannot be detected from the content ({reason}); set `format` to json, jsonl, csv, tsv, or parquet"
    ))
}

/// Whether the first line is an object, and what follows begins with another one. A lone object on one line does not
/// count, for a document that holds its records in an array somewhere looks the same.
pub fn has_objects_as_lines(content: &[u8]) -> bool {
    let content = content.trim_ascii_start();
    let line = first_line(content);
    is_object(line) && content[line.len()..].trim_ascii_start().starts_with(b"{")
}

pub(super) fn is_list_of_entities(object: &[u8]) -> bool {
    // Most objects have no such key, and are not parsed.
    memchr::memmem::find(object, ENTITIES.as_bytes()).is_some()
        && members_of_push(object).is_some_and(|members| members.has_entities && members.count == 1)
}

/// Whether a document is one line: an object with a `dataset_id` and a list of `entities`.
fn is_lone_push(document: &[u8]) -> bool {
    first_line(document).len() == document.len()
        && members_of_push(document).is_some_and(|members| members.has_id && members.has_entities)
}

/// The members of an object that the body of a push has, and how many there are.
struct Members {
    has_id: bool,
    has_entities: bool,
    count: usize,
}

fn members_of_push(object: &[u8]) -> Option<Members> {
    let mut canonical = Vec::new();
    strata_json::canonicalize(object, &mut canonical).ok()?;
    let mut members = Members { has_id: false, has_entities: false, count: 0 };
    for (key, value) in strata_json::members(&canonical) {
        members.count += 1;
        members.has_id |= key.eq_str("dataset_id");
        members.has_entities |= key.eq_str(ENTITIES) && value.starts_with(b"[");
    }
    Some(members)
}

/// Whether a line is one object by its brackets; its decoder checks the rest.
fn is_object(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{") && matches!(ValueScanner::new().feed(line), Ok(Some(end)) if end == line.len())
}

fn first_line(content: &[u8]) -> &[u8] {
    let content = content.trim_ascii_start();
    memchr::memchr2(b'\n', b'\r', content).map_or(content, |length| &content[..length])
}

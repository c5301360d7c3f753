//! Decodes a JSON document whose records are the elements of one array: the document, or the array at a path.
//!
//! 1. Enter the objects on the path, skipping the members before the next key of the path.
//! 2. Split the array: find the end of each element by its brackets, then parse and canonicalize it as one entity.
//! 3. Leave the objects, skipping their remaining members, and require that nothing follows the document.
//!
//! A duplicate key on the path is an error, because the entities of the first one have already been returned. Values
//! that are not on the path are skipped by their brackets, without buffering them.

use serde::de::IgnoredAny;
use strata_json::{JsonCursor, JsonScalar, ValueScanner};
use strata_types::field_path::FieldPath;

use super::EntityDecoder;
use super::entity_writer::EntityWriter;
use super::envelope::{ENTITIES_FIELD, EnvelopeFields, EnvelopeValue};
use super::error::{SourceError, SourcePosition};
use super::source_input::ReadWindow;

const MAX_SUGGESTED_ARRAYS: usize = 3;

/// The maximum size of a records path that an error message suggests. Paths with control characters are not suggested.
const MAX_SUGGESTED_PATH_BYTES: usize = 60;
const MAX_LITERAL_BYTES: usize = 1024;
const OBJECT_NOT_ARRAY_REASON: &str = "the document is an object, not an array";

pub(super) struct JsonDecoder {
    window: ReadWindow,
    writer: EntityWriter,
    records_path: Vec<String>,
    /// The fields to return in addition to the entities if the document is a push body; `None` for other documents.
    envelope: Option<EnvelopeFields>,
    state: JsonDecoderState,
    item_count: u64,
    position: TextPosition,
}

/// A position in the JSON text. Lines and columns (in characters) start at 1.
#[derive(Debug, Clone, Copy)]
struct TextPosition {
    line: u64,
    column: u64,
}

impl TextPosition {
    /// Returns the position of the byte at `offset` in `text`. `self` is the position of the first byte of `text`.
    fn locate(self, item: u64, text: &[u8], offset: usize) -> SourcePosition {
        let TextPosition { line, column } = self.advance(&text[..offset.min(text.len())]);
        SourcePosition { item, line: Some(line), column: Some(column) }
    }

    fn advance(self, bytes: &[u8]) -> TextPosition {
        // A UTF-8 character is counted by its first byte.
        let characters = |bytes: &[u8]| bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count() as u64;
        match memchr::memrchr(b'\n', bytes) {
            None => TextPosition { column: self.column + characters(bytes), ..self },
            Some(last) => TextPosition {
                line: self.line + memchr::memchr_iter(b'\n', bytes).count() as u64,
                column: 1 + characters(&bytes[last + 1..]),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonDecoderState {
    Start,
    Items,
    End,
}

impl JsonDecoder {
    /// Creates a decoder. Without `records_path`, the document must be the array. With `envelope`, it is a pushed body.
    pub(super) fn new(
        window: ReadWindow,
        writer: EntityWriter,
        records_path: Option<&FieldPath>,
        envelope: Option<EnvelopeFields>,
    ) -> Self {
        let records_path = match envelope {
            Some(_) => vec![ENTITIES_FIELD.to_owned()],
            None => records_path.map(|path| path.keys().to_vec()).unwrap_or_default(),
        };
        let position = TextPosition { line: 1, column: 1 };
        Self { window, writer, records_path, envelope, state: JsonDecoderState::Start, item_count: 0, position }
    }

    fn consume(&mut self, count: usize) {
        self.position = self.position.advance(&self.window.unread()[..count]);
        self.window.consume(count);
    }

    fn source_position(&self, offset: usize) -> SourcePosition {
        self.position.locate(self.item_count + 1, self.window.unread(), offset)
    }

    fn document_error(&self, reason: String) -> SourceError {
        match self.envelope {
            Some(_) => SourceError::InvalidBody { reason },
            None => SourceError::invalid_document(reason),
        }
    }

    fn enter_records_array(&mut self) -> Result<(), SourceError> {
        for level in 0..self.records_path.len() {
            match self.peek_byte()? {
                Some(b'{') => self.consume(1),
                found => return Err(self.wrong_type_error(level, found, "an object")),
            }
            self.seek_records_path_key(level)?;
        }
        match self.peek_byte()? {
            Some(b'[') => self.consume(1),
            found => return Err(self.wrong_type_error(self.records_path.len(), found, "an array")),
        }
        Ok(())
    }

    /// Advances to the value of the records path's key at `level`, within the current object.
    fn seek_records_path_key(&mut self, level: usize) -> Result<(), SourceError> {
        if self.peek_byte()? == Some(b'}') {
            return Err(self.missing_path_error(level));
        }
        while !self.read_member_unless_on_path(level)? {
            if !self.advance_to_next_member()? {
                return Err(self.missing_path_error(level));
            }
        }
        Ok(())
    }

    fn leave_records_array(&mut self) -> Result<(), SourceError> {
        for level in (0..self.records_path.len()).rev() {
            while self.advance_to_next_member()? {
                if self.read_member_unless_on_path(level)? {
                    return Err(self.document_error(match self.envelope {
                        Some(_) => format!("the member {ENTITIES_FIELD} occurs twice"),
                        None => format!("the key at the records path {} occurs twice", self.path_prefix(level + 1)),
                    }));
                }
            }
            self.consume(1);
        }
        match self.peek_byte()? {
            None => Ok(()),
            found => Err(self.unexpected_byte_error(found, "the end of the document")),
        }
    }

    /// Consumes the comma after a member. Returns `false` at the closing brace.
    fn advance_to_next_member(&mut self) -> Result<bool, SourceError> {
        match self.peek_byte()? {
            Some(b',') => self.consume(1),
            Some(b'}') => return Ok(false),
            found => return Err(self.unexpected_byte_error(found, "a comma or a closing brace")),
        }
        Ok(true)
    }

    /// Consumes an object member and stores its value if the field is requested. If the member is on the records path,
    /// consumes only its key and returns `true`.
    fn read_member_unless_on_path(&mut self, level: usize) -> Result<bool, SourceError> {
        match self.peek_byte()? {
            Some(b'"') => {}
            found => return Err(self.unexpected_byte_error(found, "a key in quotes")),
        }
        let canonical = self.read_scalar()?;
        let mut cursor = JsonCursor::new(&canonical);
        cursor.enter();
        let mut is_on_path = false;
        let mut field_index = None;
        if let Some(JsonScalar::String(key)) = cursor.next_key().and_then(|_| cursor.next_scalar()) {
            is_on_path = key.eq_str(&self.records_path[level]);
            if let Some(fields) = self.envelope.as_ref().filter(|_| !is_on_path) {
                let index = fields.find_field_index(|name| key.eq_str(name));
                field_index =
                    Some(index.ok_or_else(|| self.document_error(fields.unknown_field_error(&key.unescape())))?);
            }
        }
        match self.peek_byte()? {
            Some(b':') => self.consume(1),
            found => return Err(self.unexpected_byte_error(found, "a colon")),
        }
        match field_index {
            Some(index) => self.read_envelope_field(index)?,
            None if is_on_path => {}
            None => self.skip_value()?,
        }
        Ok(is_on_path)
    }

    fn read_envelope_field(&mut self, index: usize) -> Result<(), SourceError> {
        let value =
            match self.peek_byte()?.and_then(|byte| matches!(byte, b'{' | b'[').then(|| value_kind(byte)).flatten()) {
                Some(kind) => {
                    self.skip_value()?;
                    EnvelopeValue::Nested(kind)
                }
                None => EnvelopeValue::Scalar(self.read_scalar()?),
            };
        if let Some(fields) = &self.envelope {
            fields.set(index, value);
        }
        Ok(())
    }

    fn skip_value(&mut self) -> Result<(), SourceError> {
        if !matches!(self.peek_byte()?, Some(b'{' | b'[')) {
            return self.read_scalar().map(drop);
        }
        let mut scanner = ValueScanner::new();
        loop {
            let unread = self.window.unread();
            let length = scanner.feed(unread).map_err(|error| self.document_error(error.to_string()))?;
            self.consume(length.unwrap_or(unread.len()));
            if length.is_some() {
                return Ok(());
            }
            if !self.window.fill()? {
                return Err(self.unexpected_byte_error(None, "the end of an object or array"));
            }
        }
    }

    /// Consumes and validates a string, number, or literal. Returns it as the canonical object `{"":scalar}`.
    fn read_scalar(&mut self) -> Result<Vec<u8>, SourceError> {
        let length = self.scan_value(false)?;
        let mut object = b"{\"\":".to_vec();
        object.extend_from_slice(&self.window.unread()[..length]);
        object.push(b'}');
        let mut canonical = Vec::new();
        strata_json::canonicalize(&object, &mut canonical).map_err(|_| {
            let text = String::from_utf8_lossy(&self.window.unread()[..length]);
            let start: String = text.chars().take(40).collect();
            self.document_error(format!("invalid JSON outside the array of records: {start:?}"))
        })?;
        self.consume(length);
        Ok(canonical)
    }

    /// Returns the length of the value at the start of the window, which is filled until it contains the whole value.
    fn scan_value(&mut self, is_item: bool) -> Result<usize, SourceError> {
        let limit_bytes = self.writer.max_entity_bytes;
        let mut scanner = ValueScanner::new();
        let mut scanned_bytes = 0;
        loop {
            let unread = self.window.unread();
            let end = scanner.feed(&unread[scanned_bytes..]).map_err(|error| match is_item {
                true => SourceError::invalid_item(
                    self.source_position(error.offset().unwrap_or(0)),
                    error.message_without_offset(),
                ),
                false => self.document_error(error.to_string()),
            })?;
            if let Some(end) = end {
                return Ok(scanned_bytes + end);
            }
            scanned_bytes = unread.len();
            if scanned_bytes > limit_bytes {
                return Err(match is_item {
                    true => SourceError::entity_too_large(self.source_position(0), limit_bytes),
                    false => self.document_error(format!(
                        "a value outside the array of records is larger than limits.entity_bytes ({limit_bytes})"
                    )),
                });
            }
            if !self.window.fill()? {
                let is_complete = scanner.can_end();
                let reason = "the document ends in the middle of a value";
                return match is_item {
                    _ if is_complete => Ok(scanned_bytes),
                    true => Err(SourceError::invalid_item(self.source_position(0), reason)),
                    false => Err(self.document_error(reason.to_owned())),
                };
            }
        }
    }

    /// Consumes whitespace and returns the next byte without consuming it; `None` at the end.
    fn peek_byte(&mut self) -> Result<Option<u8>, SourceError> {
        loop {
            let unread = self.window.unread();
            let whitespace = unread.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            let found = unread.get(whitespace).copied();
            self.consume(whitespace);
            if found.is_some() || !self.window.fill()? {
                return Ok(found);
            }
        }
    }

    fn wrong_type_error(&mut self, level: usize, found: Option<u8>, expected: &str) -> SourceError {
        let Some(byte) = found else {
            return self.unexpected_byte_error(None, expected);
        };
        let kind = match self.can_begin_value(byte) {
            Ok(may_begin) => value_kind(byte).filter(|_| may_begin),
            Err(error) => return error,
        };
        let Some(kind) = kind else { return self.unexpected_byte_error(found, expected) };
        if self.envelope.is_some() {
            let name = if level > 0 { ENTITIES_FIELD } else { "the body" };
            return self.document_error(format!("{name} must be {expected}, but is {kind}"));
        }
        if level > 0 {
            let path = self.path_prefix(level);
            return SourceError::invalid_document(format!(
                "the value at the records path {path} is {kind}, not {expected}"
            ));
        }
        if !self.records_path.is_empty() || byte != b'{' {
            return SourceError::invalid_document(format!("the document is {kind}, not {expected}"));
        }
        if memchr::memmem::find(self.window.unread(), format!("\"{ENTITIES_FIELD}\"").as_bytes()).is_some() {
            return SourceError::invalid_document(format!(
                "{OBJECT_NOT_ARRAY_REASON}; it has the member `entities`. Set `records_path` to the path of the array, \
                 send only the array, or set `format` to jsonl if every line is an entity. To push such an object over \
                 HTTP, send it as application/json without a format. The object's first bracket must be within the \
                 first 65,536 bytes"
            ));
        }
        let arrays = find_object_arrays(self.window.unread()).join(" or ");
        let suggestion = if arrays.is_empty() { arrays } else { format!(" (did you mean {arrays}?)") };
        SourceError::invalid_document(format!(
            "{OBJECT_NOT_ARRAY_REASON}: set `records_path` to the path of the array of records{suggestion}, or set \
             `format` to jsonl if every line is an object"
        ))
    }

    /// Returns whether the window starts with a JSON value, and not with another word that starts with the same byte.
    fn can_begin_value(&mut self, byte: u8) -> Result<bool, SourceError> {
        if matches!(byte, b'{' | b'[' | b'"') {
            return Ok(true);
        }
        let is_path_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'}');
        loop {
            let unread = self.window.unread();
            let head = &unread[..unread.len().min(MAX_LITERAL_BYTES)];
            let end = head.iter().position(is_path_end);
            let length = end.unwrap_or(head.len());
            if end.is_some() || length == MAX_LITERAL_BYTES || !self.window.fill()? {
                let word = &self.window.unread()[..length];
                return Ok(serde_json::from_slice::<IgnoredAny>(word).is_ok());
            }
        }
    }

    fn missing_path_error(&self, level: usize) -> SourceError {
        self.document_error(match self.envelope {
            Some(_) => format!("the array {ENTITIES_FIELD} is missing"),
            None => format!("the document has no value at the records path {}", self.path_prefix(level + 1)),
        })
    }

    fn unexpected_byte_error(&self, found: Option<u8>, expected: &str) -> SourceError {
        let TextPosition { line, column } = self.position;
        let at = found.map_or_else(String::new, |_| format!(" (line {line}, column {column})"));
        let found = match found {
            None => "the document ends".to_owned(),
            Some(byte) if byte.is_ascii_graphic() => format!("found {:?}", char::from(byte)),
            Some(byte) => format!("found the byte 0x{byte:02x}"),
        };
        let after = if self.item_count == 0 { String::new() } else { format!(" after item {}", self.item_count) };
        self.document_error(format!("invalid JSON: expected {expected}{after}, but {found}{at}"))
    }

    fn path_prefix(&self, length: usize) -> String {
        FieldPath::from_keys(&self.records_path[..length]).map_or_else(|_| "\"\"".to_owned(), |path| path.to_string())
    }
}

impl EntityDecoder for JsonDecoder {
    fn next_entity(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        if self.state == JsonDecoderState::Start {
            self.enter_records_array()?;
            self.state = JsonDecoderState::Items;
        }
        if self.state == JsonDecoderState::End {
            return Ok(false);
        }
        let mut found = self.peek_byte()?;
        if found == Some(b']') {
            self.consume(1);
            self.leave_records_array()?;
            self.state = JsonDecoderState::End;
            return Ok(false);
        }
        if self.item_count > 0 {
            if found != Some(b',') {
                return Err(self.unexpected_byte_error(found, "a comma or a closing bracket"));
            }
            self.consume(1);
            found = self.peek_byte()?;
        }
        let length = match found {
            Some(b'{') => self.scan_value(true)?,
            Some(byte) if value_kind(byte).is_some() => 1,
            _ => return Err(self.unexpected_byte_error(found, "an item")),
        };
        // Not all of an invalid item is needed: one byte is enough to reject an item that is not an object.
        let item = &self.window.unread()[..length];
        let locate = |offset: usize| self.position.locate(self.item_count + 1, item, offset);
        self.writer.canonicalize_and_write(item, locate, out)?;
        self.consume(length);
        self.item_count += 1;
        Ok(true)
    }
}

/// Returns the paths of the first arrays of objects among the members of `object`, which might be truncated.
fn find_object_arrays(object: &[u8]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut rest = object.strip_prefix(b"{").unwrap_or_default();
    while paths.len() < MAX_SUGGESTED_ARRAYS {
        let Some((key, after)) = split_first_value(rest) else { break };
        let Some(after) = after.trim_ascii_start().strip_prefix(b":") else { break };
        let items = after.trim_ascii_start().strip_prefix(b"[");
        let has_objects = items.is_some_and(|items| items.trim_ascii_start().starts_with(b"{"));
        let path = serde_json::from_slice::<String>(key).ok().and_then(|key| FieldPath::from_keys([key]).ok());
        if let Some(path) = path.filter(|_| has_objects).map(|path| path.to_string())
            && path.len() <= MAX_SUGGESTED_PATH_BYTES
            && !path.contains(char::is_control)
            && !paths.contains(&path)
        {
            paths.push(path);
        }
        let Some((_, after)) = split_first_value(after) else { break };
        let Some(after) = after.trim_ascii_start().strip_prefix(b",") else { break };
        rest = after;
    }
    paths
}

/// Splits off the first JSON value of a text; `None` if the value is incomplete.
fn split_first_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = ValueScanner::new().feed(text).ok()??;
    text.split_at_checked(end)
}

/// Returns the kind of the JSON value that starts with `byte`, with an article, such as `an object`.
fn value_kind(byte: u8) -> Option<&'static str> {
    match byte {
        b'{' => Some("an object"),
        b'[' => Some("an array"),
        b'"' => Some("a string"),
        b'-' | b'0'..=b'9' => Some("a number"),
        b't' | b'f' => Some("a boolean"),
        b'n' => Some("null"),
        _ => None,
    }
}

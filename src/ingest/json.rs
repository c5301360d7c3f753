//! Decodes a JSON document whose records are the elements of one array: the document itself, or the array at a given
//! path inside objects.
//!
//! 1. Walk down: at each key of the path, enter the object, skip the members before the one of that name.
//! 2. Split the array: each element is found by its brackets, then checked and made canonical as one entity.
//! 3. Walk up: skip what follows the array in each object, and require that nothing follows the document.
//!
//! A key of the path that occurs twice in its object is an error, because the entities of the first one have been
//! returned already. Arrays and objects beside the path are skipped by their brackets, without being held in memory.

use serde::de::IgnoredAny;
use strata_json::{Cursor, Scalar, ValueScanner};
use strata_types::path::Path;

use super::Decode;
use super::entity::EntityWriter;
use super::envelope::{ENTITIES, EnvelopeFields, Value};
use super::error::{Place, SourceError};
use super::input::Window;

/// Arrays of objects that an error names, in place of the document that is none.
const NAMED_ARRAYS: usize = 3;

/// Most bytes of the path to one. Longer ones are left out, and those that are no line of text.
const NAMED_PATH_BYTES: usize = 60;

const WORD_BYTES: usize = 1024;

const OBJECT: &str = "the document is an object, not an array";

pub(super) struct JsonDecoder {
    window: Window,
    writer: EntityWriter,
    path: Vec<String>,
    /// The members beside the array that the caller wants, when the document is the body of a push.
    envelope: Option<EnvelopeFields>,
    state: State,
    items: u64,
    position: Position,
}

/// A place in the text, as editors tell it: lines and characters from 1.
#[derive(Debug, Clone, Copy)]
struct Position {
    line: u64,
    column: u64,
}

impl Position {
    const START: Position = Position { line: 1, column: 1 };

    /// The place of a byte of an item, if the text begins here.
    fn place(self, item: u64, text: &[u8], offset: usize) -> Place {
        let Position { line, column } = self.after(&text[..offset.min(text.len())]);
        Place { item, line: Some(line), column: Some(column) }
    }

    fn after(self, bytes: &[u8]) -> Position {
        // Counts the first bytes of characters.
        let characters = |bytes: &[u8]| bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count() as u64;
        match memchr::memrchr(b'\n', bytes) {
            None => Position { column: self.column + characters(bytes), ..self },
            Some(last) => Position {
                line: self.line + memchr::memchr_iter(b'\n', bytes).count() as u64,
                column: 1 + characters(&bytes[last + 1..]),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Items,
    End,
}

impl JsonDecoder {
    /// Reads nothing yet. Without `records_path`, the document must be the array. With `envelope`, it is a pushed body.
    pub(super) fn new(
        window: Window,
        writer: EntityWriter,
        records_path: Option<&Path>,
        envelope: Option<EnvelopeFields>,
    ) -> Self {
        let path = match envelope {
            Some(_) => vec![ENTITIES.to_owned()],
            None => records_path.map(|path| path.keys().to_vec()).unwrap_or_default(),
        };
        Self { window, writer, path, envelope, state: State::Start, items: 0, position: Position::START }
    }

    fn consume(&mut self, count: usize) {
        self.position = self.position.after(&self.window.unread()[..count]);
        self.window.consume(count);
    }

    fn place(&self, offset: usize) -> Place {
        self.position.place(self.items + 1, self.window.unread(), offset)
    }

    /// The document as a whole is bad, or the envelope around its entities.
    fn bad(&self, reason: String) -> SourceError {
        match self.envelope {
            Some(_) => SourceError::BadBody { reason },
            None => SourceError::document(reason),
        }
    }

    /// Steps to just after the bracket that opens the array.
    fn walk_down(&mut self) -> Result<(), SourceError> {
        for level in 0..self.path.len() {
            match self.peek()? {
                Some(b'{') => self.consume(1),
                found => return Err(self.misplaced(level, found, "an object")),
            }
            self.find_key(level)?;
        }
        match self.peek()? {
            Some(b'[') => self.consume(1),
            found => return Err(self.misplaced(self.path.len(), found, "an array")),
        }
        Ok(())
    }

    /// Inside an object: steps to the value of the path's key of that level.
    fn find_key(&mut self, level: usize) -> Result<(), SourceError> {
        if self.peek()? == Some(b'}') {
            return Err(self.missing(level));
        }
        while !self.pass_member(level)? {
            if !self.has_next_member()? {
                return Err(self.missing(level));
            }
        }
        Ok(())
    }

    fn walk_up(&mut self) -> Result<(), SourceError> {
        for level in (0..self.path.len()).rev() {
            while self.has_next_member()? {
                if self.pass_member(level)? {
                    return Err(self.bad(match self.envelope {
                        Some(_) => format!("the member {ENTITIES} occurs twice"),
                        None => format!("the key at the records path {} occurs twice", self.path_to(level + 1)),
                    }));
                }
            }
            self.consume(1);
        }
        match self.peek()? {
            None => Ok(()),
            found => Err(self.unexpected(found, "the end of the document")),
        }
    }

    /// Behind a member of an object: steps over the comma before the next one; false at the closing brace.
    fn has_next_member(&mut self) -> Result<bool, SourceError> {
        match self.peek()? {
            Some(b',') => self.consume(1),
            Some(b'}') => return Ok(false),
            found => return Err(self.unexpected(found, "a comma or a closing brace")),
        }
        Ok(true)
    }

    /// Steps over a member, and gives it to the envelope. Of the one on the path, true, it steps only over the key.
    fn pass_member(&mut self, level: usize) -> Result<bool, SourceError> {
        match self.peek()? {
            Some(b'"') => {}
            found => return Err(self.unexpected(found, "a key in quotes")),
        }
        let canonical = self.take_scalar()?;
        let mut cursor = Cursor::new(&canonical);
        cursor.enter();
        let mut is_on_path = false;
        let mut wanted = None;
        if let Some(Scalar::String(key)) = cursor.next_key().and_then(|_| cursor.next_scalar()) {
            is_on_path = key.eq_str(&self.path[level]);
            if let Some(fields) = self.envelope.as_ref().filter(|_| !is_on_path) {
                let index = fields.wants(|name| key.eq_str(name));
                wanted = Some(index.ok_or_else(|| self.bad(fields.unknown(&key.unescape())))?);
            }
        }
        match self.peek()? {
            Some(b':') => self.consume(1),
            found => return Err(self.unexpected(found, "a colon")),
        }
        match wanted {
            Some(index) => self.take_wanted(index)?,
            None if is_on_path => {}
            None => self.skip_value()?,
        }
        Ok(is_on_path)
    }

    fn take_wanted(&mut self, index: usize) -> Result<(), SourceError> {
        let value = match self.peek()?.and_then(|byte| matches!(byte, b'{' | b'[').then(|| kind_of(byte)).flatten()) {
            Some(kind) => {
                self.skip_value()?;
                Value::Nested(kind)
            }
            None => Value::Scalar(self.take_scalar()?),
        };
        if let Some(fields) = &self.envelope {
            fields.set(index, value);
        }
        Ok(())
    }

    fn skip_value(&mut self) -> Result<(), SourceError> {
        if !matches!(self.peek()?, Some(b'{' | b'[')) {
            return self.take_scalar().map(drop);
        }
        let mut scanner = ValueScanner::new();
        loop {
            let unread = self.window.unread();
            let length = scanner.feed(unread).map_err(|error| self.bad(error.to_string()))?;
            self.consume(length.unwrap_or(unread.len()));
            if length.is_some() {
                return Ok(());
            }
            if !self.window.fill()? {
                return Err(self.unexpected(None, "the end of an object or array"));
            }
        }
    }

    /// Steps over a checked string, number or literal, and gives it as the value of the one member of an object.
    fn take_scalar(&mut self) -> Result<Vec<u8>, SourceError> {
        let length = self.value_length(false)?;
        let mut object = b"{\"\":".to_vec();
        object.extend_from_slice(&self.window.unread()[..length]);
        object.push(b'}');
        let mut canonical = Vec::new();
        strata_json::canonicalize(&object, &mut canonical).map_err(|_| {
            let text = String::from_utf8_lossy(&self.window.unread()[..length]);
            let start: String = text.chars().take(40).collect();
            self.bad(format!("invalid JSON outside the array of records: {start:?}"))
        })?;
        self.consume(length);
        Ok(canonical)
    }

    /// The length of the value that the window begins with, reading on until it holds all of it.
    fn value_length(&mut self, is_item: bool) -> Result<usize, SourceError> {
        let limit_bytes = self.writer.limit_bytes;
        let mut scanner = ValueScanner::new();
        let mut scanned_bytes = 0;
        loop {
            let unread = self.window.unread();
            let end = scanner.feed(&unread[scanned_bytes..]).map_err(|error| match is_item {
                true => SourceError::item(self.place(error.offset().unwrap_or(0)), error.problem()),
                false => self.bad(error.to_string()),
            })?;
            if let Some(end) = end {
                return Ok(scanned_bytes + end);
            }
            scanned_bytes = unread.len();
            if scanned_bytes > limit_bytes {
                return Err(match is_item {
                    true => SourceError::too_large(self.place(0), limit_bytes),
                    false => self.bad(format!(
                        "a value outside the array of records is larger than limits.entity_bytes ({limit_bytes})"
                    )),
                });
            }
            if !self.window.fill()? {
                let is_whole = scanner.may_end();
                let cut = "the document ends in the middle of a value";
                return match is_item {
                    _ if is_whole => Ok(scanned_bytes),
                    true => Err(SourceError::item(self.place(0), cut)),
                    false => Err(self.bad(cut.to_owned())),
                };
            }
        }
    }

    /// The next byte that is not white space, which the window then begins with; none at the end.
    fn peek(&mut self) -> Result<Option<u8>, SourceError> {
        loop {
            let unread = self.window.unread();
            let blanks = unread.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            let found = unread.get(blanks).copied();
            self.consume(blanks);
            if found.is_some() || !self.window.fill()? {
                return Ok(found);
            }
        }
    }

    fn misplaced(&mut self, level: usize, found: Option<u8>, wanted: &str) -> SourceError {
        let Some(byte) = found else {
            return self.unexpected(None, wanted);
        };
        let kind = match self.may_begin_a_value(byte) {
            Ok(may_begin) => kind_of(byte).filter(|_| may_begin),
            Err(error) => return error,
        };
        let Some(kind) = kind else { return self.unexpected(found, wanted) };
        if self.envelope.is_some() {
            let what = if level > 0 { ENTITIES } else { "the body" };
            return self.bad(format!("{what} must be {wanted}, but is {kind}"));
        }
        if level > 0 {
            let place = self.path_to(level);
            return SourceError::document(format!("the value at the records path {place} is {kind}, not {wanted}"));
        }
        if !self.path.is_empty() || byte != b'{' {
            return SourceError::document(format!("the document is {kind}, not {wanted}"));
        }
        if memchr::memmem::find(self.window.unread(), format!("\"{ENTITIES}\"").as_bytes()).is_some() {
            return SourceError::document(format!(
                "{OBJECT}; it has the member `entities`. Set `records_path` to the path of the array, send only the \
                 array, or set `format` to jsonl if every line is an entity. To push such an object over HTTP, send \
                 it as application/json without a format. The object's first bracket must be within the first 65,536 \
                 bytes"
            ));
        }
        let meant = arrays_of_objects(self.window.unread()).join(" or ");
        let meant = if meant.is_empty() { meant } else { format!(" (did you mean {meant}?)") };
        SourceError::document(format!(
            "{OBJECT}: set `records_path` to the path of the array of records{meant}, or set `format` to jsonl if \
             every line is an object"
        ))
    }

    /// Whether what the window begins with can be a JSON value: other words begin with its letters and digits, too.
    fn may_begin_a_value(&mut self, byte: u8) -> Result<bool, SourceError> {
        if matches!(byte, b'{' | b'[' | b'"') {
            return Ok(true);
        }
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'}');
        loop {
            let unread = self.window.unread();
            let head = &unread[..unread.len().min(WORD_BYTES)];
            let end = head.iter().position(is_end);
            let length = end.unwrap_or(head.len());
            if end.is_some() || length == WORD_BYTES || !self.window.fill()? {
                let word = &self.window.unread()[..length];
                return Ok(serde_json::from_slice::<IgnoredAny>(word).is_ok());
            }
        }
    }

    fn missing(&self, level: usize) -> SourceError {
        match self.envelope {
            Some(_) => self.bad(format!("the array {ENTITIES} is missing")),
            None => self.bad(format!("the document has no value at the records path {}", self.path_to(level + 1))),
        }
    }

    /// The error for a byte that the window begins with, or for the end.
    fn unexpected(&self, found: Option<u8>, wanted: &str) -> SourceError {
        let Position { line, column } = self.position;
        let at = found.map_or_else(String::new, |_| format!(" (line {line}, column {column})"));
        let found = match found {
            None => "the document ends".to_owned(),
            Some(byte) if byte.is_ascii_graphic() => format!("found {:?}", char::from(byte)),
            Some(byte) => format!("found the byte 0x{byte:02x}"),
        };
        let after = if self.items == 0 { String::new() } else { format!(" after item {}", self.items) };
        self.bad(format!("invalid JSON: expected {wanted}{after}, but {found}{at}"))
    }

    fn path_to(&self, length: usize) -> String {
        Path::from_keys(&self.path[..length]).map_or_else(|_| "\"\"".to_owned(), |path| path.to_string())
    }
}

impl Decode for JsonDecoder {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        if self.state == State::Start {
            self.walk_down()?;
            self.state = State::Items;
        }
        if self.state == State::End {
            return Ok(false);
        }
        let mut found = self.peek()?;
        if found == Some(b']') {
            self.consume(1);
            self.walk_up()?;
            self.state = State::End;
            return Ok(false);
        }
        if self.items > 0 {
            if found != Some(b',') {
                return Err(self.unexpected(found, "a comma or a closing bracket"));
            }
            self.consume(1);
            found = self.peek()?;
        }
        let length = match found {
            Some(b'{') => self.value_length(true)?,
            Some(byte) if kind_of(byte).is_some() => 1,
            _ => return Err(self.unexpected(found, "an item")),
        };
        // An item that is not an object is refused by its first byte.
        let item = &self.window.unread()[..length];
        let locate = |offset: usize| self.position.place(self.items + 1, item, offset);
        self.writer.write_json(item, locate, out)?;
        self.consume(length);
        self.items += 1;
        Ok(true)
    }
}

/// The paths of the first arrays of objects among the members of an object, as far as its text goes.
fn arrays_of_objects(object: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = object.strip_prefix(b"{").unwrap_or_default();
    while found.len() < NAMED_ARRAYS {
        let Some((key, after)) = split_value(rest) else { break };
        let Some(after) = after.trim_ascii_start().strip_prefix(b":") else { break };
        let items = after.trim_ascii_start().strip_prefix(b"[");
        let is_meant = items.is_some_and(|items| items.trim_ascii_start().starts_with(b"{"));
        let path = serde_json::from_slice::<String>(key).ok().and_then(|key| Path::from_keys([key]).ok());
        if let Some(path) = path.filter(|_| is_meant).map(|path| path.to_string())
            && path.len() <= NAMED_PATH_BYTES
            && !path.contains(char::is_control)
            && !found.contains(&path)
        {
            found.push(path);
        }
        let Some((_, after)) = split_value(after) else { break };
        let Some(after) = after.trim_ascii_start().strip_prefix(b",") else { break };
        rest = after;
    }
    found
}

/// The value that a text begins with, and the text after it; none where the value goes on beyond the text.
fn split_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = ValueScanner::new().feed(text).ok()??;
    text.split_at_checked(end)
}

/// What kind of JSON value begins with `byte`, with its article.
fn kind_of(byte: u8) -> Option<&'static str> {
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

//! Parses the changes between two versions from a stream of bytes (docs/reference/changes.md). Entities are passed on
//! in parts, so that memory does not depend on their size.

use serde::Deserialize;
use strata_json::{DocumentError, ValueScanner};

use super::SyncError;

/// Maximum bytes of a line without its entities.
const MAX_HEAD_BYTES: usize = 1 << 10;

const SET_MARKER: &[u8] = b",\"set\":";
const INSERT_MARKER: &[u8] = b",\"insert\":[";
const POSITION_PREFIX: &[u8] = b"{\"position\":";
const REMOVE_SUFFIX: &[u8] = b",\"remove\":true}";

/// Receives the edits in order.
pub(crate) trait EditSink {
    /// The entity at a position of the old list is replaced by the entity that follows.
    fn begin_set(&mut self, position: u64) -> Result<(), SyncError>;

    fn remove(&mut self, position: u64) -> Result<(), SyncError>;

    /// The entities that follow are inserted before a position of the old list.
    fn begin_insert(&mut self, position: u64) -> Result<(), SyncError>;

    fn write_entity_part(&mut self, part: &[u8]) -> Result<(), SyncError>;

    fn end_entity(&mut self) -> Result<(), SyncError>;
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("line {line} is neither an edit nor the last line")]
    InvalidLine { line: u64 },
    #[error("line {line} contains an invalid entity")]
    InvalidEntity { line: u64, source: DocumentError },
    #[error("line {line} follows the last line")]
    AfterLastLine { line: u64 },
}

/// The last line of the changes, and the number of edits before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptSummary {
    pub(crate) version: u64,
    pub(crate) content_sha256: String,
    pub(crate) edit_count: u64,
}

#[derive(Deserialize)]
struct LastLine {
    version: u64,
    content_sha256: String,
}

#[derive(Default)]
pub(crate) struct EditParser {
    state: ParserState,
    edit_count: u64,
    summary: Option<ScriptSummary>,
}

enum ParserState {
    /// Before the entities of a line. Contains the bytes of the line so far.
    Head(Vec<u8>),
    Entity {
        scanner: ValueScanner,
        kind: EntityEdit,
    },
    AfterEntity(EntityEdit),
    /// After the brackets of the entities: the rest of the line.
    End(&'static [u8]),
}

#[derive(Clone, Copy)]
enum EntityEdit {
    Set,
    Insert,
}

impl Default for ParserState {
    fn default() -> ParserState {
        ParserState::Head(Vec::new())
    }
}

impl EditParser {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl EditSink) -> Result<(), SyncError> {
        while let Some(first) = bytes.first() {
            let used = match &mut self.state {
                ParserState::Head(_) => self.feed_head(bytes, sink)?,
                ParserState::Entity { .. } => self.feed_entity(bytes, sink)?,
                ParserState::AfterEntity(kind) => {
                    self.state = match (kind, first) {
                        (EntityEdit::Set, b'}') => ParserState::End(b"\n"),
                        (EntityEdit::Insert, b',') => new_entity(EntityEdit::Insert),
                        (EntityEdit::Insert, b']') => ParserState::End(b"}\n"),
                        _ => return Err(self.invalid_line().into()),
                    };
                    1
                }
                ParserState::End(rest) => {
                    let (Some(expected), rest) = (rest.first(), rest.get(1..).unwrap_or_default()) else {
                        return Err(self.invalid_line().into());
                    };
                    if first != expected {
                        return Err(self.invalid_line().into());
                    }
                    if rest.is_empty() {
                        self.edit_count += 1;
                    }
                    self.state = if rest.is_empty() { ParserState::default() } else { ParserState::End(rest) };
                    1
                }
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Returns the summary; `None` if the stream ended before the end of the last line.
    pub(crate) fn finish(self) -> Result<Option<ScriptSummary>, SyncError> {
        match self.state {
            ParserState::Head(head) if head.is_empty() => Ok(self.summary),
            _ if self.summary.is_some() => Err(ScriptError::AfterLastLine { line: self.edit_count + 2 }.into()),
            _ => Ok(None),
        }
    }

    fn invalid_line(&self) -> ScriptError {
        let line = self.edit_count + 1;
        if self.summary.is_some() {
            ScriptError::AfterLastLine { line: line + 1 }
        } else {
            ScriptError::InvalidLine { line }
        }
    }

    /// Reads the bytes before an entity, or a line without entities. Returns the number of bytes that were used.
    fn feed_head(&mut self, bytes: &[u8], sink: &mut impl EditSink) -> Result<usize, SyncError> {
        let ParserState::Head(head) = &mut self.state else { return Ok(0) };
        for (index, byte) in bytes.iter().enumerate() {
            head.push(*byte);
            let is_marker_end = matches!(byte, b'\n' | b':' | b'[');
            if is_marker_end && (*byte == b'\n' || head.ends_with(SET_MARKER) || head.ends_with(INSERT_MARKER)) {
                let head = std::mem::take(head);
                self.end_head(&head, sink)?;
                return Ok(index + 1);
            }
            if head.len() > MAX_HEAD_BYTES {
                return Err(self.invalid_line().into());
            }
        }
        Ok(bytes.len())
    }

    fn end_head(&mut self, head: &[u8], sink: &mut impl EditSink) -> Result<(), SyncError> {
        if self.summary.is_some() {
            return Err(self.invalid_line().into());
        }
        if let Some(position) = head.strip_suffix(SET_MARKER) {
            sink.begin_set(parse_position(position).ok_or_else(|| self.invalid_line())?)?;
            self.state = new_entity(EntityEdit::Set);
            return Ok(());
        }
        if let Some(position) = head.strip_suffix(INSERT_MARKER) {
            sink.begin_insert(parse_position(position).ok_or_else(|| self.invalid_line())?)?;
            self.state = new_entity(EntityEdit::Insert);
            return Ok(());
        }
        let line = head.strip_suffix(b"\n").unwrap_or(head);
        if let Some(position) = line.strip_suffix(REMOVE_SUFFIX) {
            sink.remove(parse_position(position).ok_or_else(|| self.invalid_line())?)?;
            self.edit_count += 1;
            return Ok(());
        }
        let LastLine { version, content_sha256 } = serde_json::from_slice(line).map_err(|_| self.invalid_line())?;
        self.summary = Some(ScriptSummary { version, content_sha256, edit_count: self.edit_count });
        Ok(())
    }

    fn feed_entity(&mut self, bytes: &[u8], sink: &mut impl EditSink) -> Result<usize, SyncError> {
        let line = self.edit_count + 1;
        let ParserState::Entity { scanner, kind } = &mut self.state else { return Ok(0) };
        let end = scanner.feed(bytes).map_err(|source| ScriptError::InvalidEntity { line, source })?;
        sink.write_entity_part(&bytes[..end.unwrap_or(bytes.len())])?;
        if end.is_some() {
            let kind = *kind;
            sink.end_entity()?;
            self.state = ParserState::AfterEntity(kind);
        }
        Ok(end.unwrap_or(bytes.len()))
    }
}

fn new_entity(kind: EntityEdit) -> ParserState {
    ParserState::Entity { scanner: ValueScanner::new(), kind }
}

fn parse_position(head: &[u8]) -> Option<u64> {
    std::str::from_utf8(head.strip_prefix(POSITION_PREFIX)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct EventLog(String);

    impl EditSink for EventLog {
        fn begin_set(&mut self, position: u64) -> Result<(), SyncError> {
            self.0 += &format!("set {position} ");
            Ok(())
        }

        fn remove(&mut self, position: u64) -> Result<(), SyncError> {
            self.0 += &format!("remove {position}\n");
            Ok(())
        }

        fn begin_insert(&mut self, position: u64) -> Result<(), SyncError> {
            self.0 += &format!("insert {position} ");
            Ok(())
        }

        fn write_entity_part(&mut self, part: &[u8]) -> Result<(), SyncError> {
            self.0 += std::str::from_utf8(part).expect("UTF-8");
            Ok(())
        }

        fn end_entity(&mut self) -> Result<(), SyncError> {
            self.0.push('\n');
            Ok(())
        }
    }

    fn parse(text: &[u8], part_bytes: usize) -> Result<(String, Option<ScriptSummary>), String> {
        let mut events = EventLog::default();
        let mut parser = EditParser::default();
        for part in text.chunks(part_bytes) {
            parser.feed(part, &mut events).map_err(|error| error.to_string())?;
        }
        let summary = parser.finish().map_err(|error| error.to_string())?;
        Ok((events.0, summary))
    }

    const SCRIPT: &str = concat!(
        "{\"position\":0,\"insert\":[{\"a\":\"}]\\\"\"},{}]}\n",
        "{\"position\":0,\"set\":{\"set\":[{\"position\":1}]}}\n",
        "{\"position\":7,\"remove\":true}\n",
        "{\"version\":4,\"since\":3,\"entity_count\":2,\"content_sha256\":\"00\"}\n",
    );

    proptest! {
        #[test]
        fn script_is_parsed_in_parts(part_bytes in 1..80_usize) {
            let (events, summary) = parse(SCRIPT.as_bytes(), part_bytes).expect("a valid script");
            let expected = "insert 0 {\"a\":\"}]\\\"\"}\n{}\nset 0 {\"set\":[{\"position\":1}]}\nremove 7\n";
            prop_assert_eq!(events, expected);
            let summary_expected = ScriptSummary { version: 4, content_sha256: "00".to_owned(), edit_count: 3 };
            prop_assert_eq!(summary, Some(summary_expected));
        }

        /// No prefix of a script is complete.
        #[test]
        fn truncated_script_has_no_summary(length in 0..SCRIPT.len()) {
            prop_assert_eq!(parse(&SCRIPT.as_bytes()[..length], 10).expect("a valid prefix").1, None);
        }
    }

    #[test]
    fn invalid_lines_are_rejected() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text.as_bytes(), 1_000).err().as_deref(), Some(expected), "{text}");
        };
        let not_list = |text: &str, line: u64| {
            check(
                text,
                &format!("the response is not a list of changes: line {line} is neither an edit nor the last line"),
            );
        };
        not_list("<html>\n", 1);
        not_list("\n", 1);
        not_list("{\"position\":-1,\"remove\":true}\n", 1);
        not_list("{\"position\":1,\"set\":{}\n", 1);
        not_list("{\"position\":1,\"remove\":true}\n{\"position\":x,\"set\":{}}\n", 2);
        not_list(&"x".repeat(2_000), 1);
        let last = "{\"version\":4,\"content_sha256\":\"00\"}\n";
        check(&format!("{last}{last}"), "the response is not a list of changes: line 2 follows the last line");
        check(&format!("{last}x"), "the response is not a list of changes: line 2 follows the last line");
        check("{\"position\":1,\"set\":]", "the response is not a list of changes: line 1 contains an invalid entity");
    }
}

//! Decodes JSON Lines: one object per line. Blank lines are skipped, and `\r\n` is a line end, too. Positions contain
//! both the number of the object and the line, which differ after a blank line.

use super::EntityDecoder;
use super::entity_writer::EntityWriter;
use super::error::{SourceError, SourcePosition};
use super::format_detection::has_only_entities_array;
use super::source_input::ReadWindow;

const LONE_ARRAY_WARNING: &str = "The source contains only one entity, whose only field is the array `entities`. \
     To import the items of this array as entities, set `records_path` to the path of the array, or push the object \
     as application/json.";

pub(super) struct JsonlDecoder {
    window: ReadWindow,
    writer: EntityWriter,
    item_count: u64,
    line_count: u64,
    begins_with_entities_array: bool,
    warnings: Vec<String>,
}

struct LineLengths {
    content: usize,
    with_line_end: usize,
}

impl JsonlDecoder {
    pub(super) fn new(window: ReadWindow, writer: EntityWriter) -> Self {
        Self { window, writer, item_count: 0, line_count: 0, begins_with_entities_array: false, warnings: Vec::new() }
    }

    /// Fills the window until it contains a whole line.
    fn buffer_line(&mut self) -> Result<Option<LineLengths>, SourceError> {
        let mut searched = 0;
        loop {
            let unread = self.window.unread();
            if let Some(length) = memchr::memchr(b'\n', &unread[searched..]) {
                let length = searched + length;
                return Ok(Some(LineLengths { content: length, with_line_end: length + 1 }));
            }
            searched = unread.len();
            if searched > self.writer.max_entity_bytes {
                let position =
                    SourcePosition { item: self.item_count + 1, line: Some(self.line_count + 1), column: None };
                return Err(SourceError::entity_too_large(position, self.writer.max_entity_bytes));
            }
            if !self.window.fill()? && self.window.is_at_end {
                return Ok((searched > 0).then_some(LineLengths { content: searched, with_line_end: searched }));
            }
        }
    }
}

/// Removes JSON whitespace around a line. A form feed is not JSON whitespace.
fn trim_json_whitespace(line: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    match (line.iter().position(is_text), line.iter().rposition(is_text)) {
        (Some(first), Some(last)) => &line[first..=last],
        _ => &[],
    }
}

impl EntityDecoder for JsonlDecoder {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn next_entity(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        while let Some(LineLengths { content, with_line_end }) = self.buffer_line()? {
            self.line_count += 1;
            let text = trim_json_whitespace(&self.window.unread()[..content]);
            if text.is_empty() {
                self.window.consume(with_line_end);
                continue;
            }
            self.item_count += 1;
            if self.item_count == 1 {
                self.begins_with_entities_array = has_only_entities_array(text);
            }
            let position = SourcePosition { item: self.item_count, line: Some(self.line_count), column: None };
            self.writer.canonicalize_and_write(text, |_| position, out)?;
            self.window.consume(with_line_end);
            return Ok(true);
        }
        if self.item_count == 1 && std::mem::take(&mut self.begins_with_entities_array) {
            self.warnings.push(LONE_ARRAY_WARNING.to_owned());
        }
        Ok(false)
    }
}

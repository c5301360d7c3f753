//! Decodes one JSON object per line.
//!
//! Blank lines are skipped and `\r\n` is fine. Positions count objects; the line is named beside them,
//! for the two differ once a line is blank.

use super::Decode;
use super::detect::is_list_of_entities;
use super::entity::EntityWriter;
use super::error::{Place, SourceError};
use super::input::Window;

const LONE_LIST: &str = "The source contains only one entity, whose only field is the array `entities`. To import the \
                         items of this array as entities, set `records_path` to the path of the array, or push the \
                         object as application/json.";

pub(super) struct JsonlDecoder {
    window: Window,
    writer: EntityWriter,
    items: u64,
    lines: u64,
    begins_with_list: bool,
    warnings: Vec<String>,
}

impl JsonlDecoder {
    pub(super) fn new(window: Window, writer: EntityWriter) -> Self {
        Self { window, writer, items: 0, lines: 0, begins_with_list: false, warnings: Vec::new() }
    }

    /// Makes the window hold a whole line; gives its length without and with the line end, or none at the end.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>, SourceError> {
        let mut searched = 0;
        loop {
            let unread = self.window.unread();
            if let Some(length) = memchr::memchr(b'\n', &unread[searched..]) {
                let length = searched + length;
                return Ok(Some((length, length + 1)));
            }
            searched = unread.len();
            if searched > self.writer.limit_bytes {
                let place = Place { item: self.items + 1, line: Some(self.lines + 1), column: None };
                return Err(SourceError::too_large(place, self.writer.limit_bytes));
            }
            if !self.window.fill()? && self.window.ended {
                return Ok((searched > 0).then_some((searched, searched)));
            }
        }
    }
}

/// A line without the blanks around its text. They are JSON's: a form feed is none.
fn without_blanks(line: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    match (line.iter().position(is_text), line.iter().rposition(is_text)) {
        (Some(first), Some(last)) => &line[first..=last],
        _ => &[],
    }
}

impl Decode for JsonlDecoder {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        while let Some((length, length_with_end)) = self.next_line()? {
            self.lines += 1;
            let text = without_blanks(&self.window.unread()[..length]);
            if text.is_empty() {
                self.window.consume(length_with_end);
                continue;
            }
            self.items += 1;
            if self.items == 1 {
                self.begins_with_list = is_list_of_entities(text);
            }
            let place = Place { item: self.items, line: Some(self.lines), column: None };
            self.writer.write_json(text, |_| place, out)?;
            self.window.consume(length_with_end);
            return Ok(true);
        }
        if self.items == 1 && std::mem::take(&mut self.begins_with_list) {
            self.warnings.push(LONE_LIST.to_owned());
        }
        Ok(false)
    }
}

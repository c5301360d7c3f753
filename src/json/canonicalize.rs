//! Converts untrusted JSON text to canonical text. All other modules of this crate require canonical text.
//!
//! Canonical text is one JSON object in valid UTF-8 without white space outside strings. Strings have canonical escapes
//! ([`super::JsonStr`]), keys are unique per object, numbers are unchanged, and depth is at most [`MAX_NESTING_DEPTH`].
//!
//! One pass validates and rewrites. `copied` is the position up to which the input has been written. It moves only
//! where input and output differ: at white space, an escape, or a duplicate key.

use super::MAX_NESTING_DEPTH;
use super::error::DocumentError;
use super::json_str::escape_byte_into;
use super::key_match::{DuplicateMemberResolver, KeyHashes};
use super::scan;

/// Appends `input`, which must be one JSON object, to `out` as canonical text. A duplicate key keeps its first position
/// and its last value (docs/reference/paths-and-values.md, Entities and values). On an error, `out` is unchanged.
pub fn canonicalize(input: &[u8], out: &mut Vec<u8>) -> Result<(), DocumentError> {
    JsonCanonicalizer::default().canonicalize(input, out)
}

/// Like [`canonicalize`], but for a message that contains entities: the nesting can be `extra_levels` deeper. The
/// caller must canonicalize the entities separately, which checks their depth.
pub fn canonicalize_envelope(input: &[u8], extra_levels: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
    JsonCanonicalizer::default().canonicalize_within(input, MAX_NESTING_DEPTH + extra_levels, out)
}

/// Like [`canonicalize`], with buffers that are reused between documents, which saves allocations.
#[derive(Debug, Default)]
pub struct JsonCanonicalizer {
    key_spans: Vec<KeySpan>,
    key_hashes: KeyHashes,
    duplicate_keys: DuplicateMemberResolver,
    object_buffer: Vec<u8>,
}

/// The quoted key of a member of an open object, as a range of the output.
#[derive(Clone, Copy, Debug)]
struct KeySpan {
    start: usize,
    end: usize,
}

impl JsonCanonicalizer {
    pub fn canonicalize(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), DocumentError> {
        self.canonicalize_within(input, MAX_NESTING_DEPTH, out)
    }

    fn canonicalize_within(&mut self, input: &[u8], max_depth: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
        let before = out.len();
        let result = self.parse_document(input, max_depth, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn parse_document(&mut self, input: &[u8], max_depth: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
        if simdutf8::basic::from_utf8(input).is_err()
            && let Err(error) = std::str::from_utf8(input)
        {
            return Err(DocumentError::NotUtf8 { offset: error.valid_up_to() });
        }
        self.key_spans.clear();
        self.key_hashes.truncate(0);
        out.reserve(input.len());
        let mut parser = CanonicalizingParser { input, max_depth, position: 0, copied: 0, out, scratch: self };
        parser.skip_whitespace();
        parser.parse_top_level_object()?;
        parser.copy_pending();
        parser.skip_whitespace();
        if parser.position < input.len() {
            return Err(DocumentError::TrailingText { offset: parser.position });
        }
        Ok(())
    }
}

struct CanonicalizingParser<'p> {
    input: &'p [u8],
    max_depth: usize,
    position: usize,
    /// All input before this position has been written to `out`, as far as the canonical text needs it.
    copied: usize,
    out: &'p mut Vec<u8>,
    scratch: &'p mut JsonCanonicalizer,
}

impl CanonicalizingParser<'_> {
    fn parse_top_level_object(&mut self) -> Result<(), DocumentError> {
        let found = match self.input.get(self.position) {
            Some(b'{') => return self.parse_object(1),
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(b't') if self.may_contain_literal("true") => "a boolean",
            Some(b'f') if self.may_contain_literal("false") => "a boolean",
            Some(b'n') if self.may_contain_literal("null") => "null",
            _ => return Err(self.unexpected("an object")),
        };
        Err(DocumentError::NotAnObject { found })
    }

    /// Returns true if the rest of the input starts with `word`, or is a truncated `word`.
    fn may_contain_literal(&self, word: &str) -> bool {
        let rest = &self.input[self.position..];
        match rest.strip_prefix(word.as_bytes()) {
            Some(after) => !after.first().is_some_and(u8::is_ascii_alphanumeric),
            None => word.as_bytes().starts_with(rest),
        }
    }

    fn parse_object(&mut self, depth: usize) -> Result<(), DocumentError> {
        self.check_depth(depth)?;
        self.position += 1;
        self.skip_whitespace();
        if self.consume_byte(b'}') {
            return Ok(());
        }
        let first = self.scratch.key_spans.len();
        let mut suspect = false;
        loop {
            if self.input.get(self.position) != Some(&b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            suspect |= self.parse_key_may_be_duplicate(first)?;
            self.skip_whitespace();
            if !self.consume_byte(b':') {
                return Err(self.unexpected("a colon"));
            }
            self.skip_whitespace();
            self.parse_value(depth)?;
            self.skip_whitespace();
            if self.consume_byte(b',') {
                self.skip_whitespace();
            } else if self.consume_byte(b'}') {
                break;
            } else {
                return Err(self.unexpected("a comma or a closing brace"));
            }
        }
        if suspect {
            self.deduplicate_members(first);
        }
        self.scratch.key_spans.truncate(first);
        self.scratch.key_hashes.truncate(first);
        Ok(())
    }

    fn parse_array(&mut self, depth: usize) -> Result<(), DocumentError> {
        self.check_depth(depth)?;
        self.position += 1;
        self.skip_whitespace();
        if self.consume_byte(b']') {
            return Ok(());
        }
        loop {
            self.parse_value(depth)?;
            self.skip_whitespace();
            if self.consume_byte(b',') {
                self.skip_whitespace();
            } else if self.consume_byte(b']') {
                return Ok(());
            } else {
                return Err(self.unexpected("a comma or a closing bracket"));
            }
        }
    }

    #[inline]
    fn parse_value(&mut self, depth: usize) -> Result<(), DocumentError> {
        match self.input.get(self.position) {
            Some(b'"') => self.parse_string(),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            Some(b'{') => self.parse_object(depth + 1),
            Some(b'[') => self.parse_array(depth + 1),
            Some(b't') => self.parse_literal(b"true"),
            Some(b'f') => self.parse_literal(b"false"),
            Some(b'n') => self.parse_literal(b"null"),
            Some(b'+' | b'.') => Err(DocumentError::InvalidNumber { offset: self.position }),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Parses a key of an object whose members start at index `first`. Returns true if the key can be a duplicate.
    fn parse_key_may_be_duplicate(&mut self, first: usize) -> Result<bool, DocumentError> {
        let input_start = self.position;
        let start = self.output_len_with_pending();
        self.parse_string()?;
        let member = KeySpan { start, end: self.output_len_with_pending() };
        self.scratch.key_spans.push(member);
        // A rewritten key is in the output. Any other key has its canonical spelling in the input.
        let key = if self.copied > input_start {
            &self.out[member.start + 1..member.end - 1]
        } else {
            &self.input[input_start + 1..self.position - 1]
        };
        Ok(self.scratch.key_hashes.push_may_be_duplicate(first, key))
    }

    #[inline]
    fn parse_string(&mut self) -> Result<(), DocumentError> {
        let start = self.position;
        self.position += 1;
        loop {
            self.position = scan::find_quote_backslash_or_control(self.input, self.position);
            match self.input.get(self.position) {
                Some(b'"') => {
                    self.position += 1;
                    if self.copied > start {
                        self.copy_pending();
                    }
                    return Ok(());
                }
                Some(b'\\') => self.parse_escape()?,
                Some(&byte) => return Err(DocumentError::ControlCharacter { offset: self.position, byte }),
                None => return Err(self.unexpected("a closing quote")),
            }
        }
    }

    fn parse_escape(&mut self) -> Result<(), DocumentError> {
        let character = match self.input.get(self.position + 1) {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.position += 2;
                return Ok(());
            }
            Some(b'/') => {
                self.copy_pending();
                self.copied += 1;
                self.position += 2;
                return Ok(());
            }
            Some(b'u') => self.parse_utf16_escape(self.position)?,
            _ => return Err(DocumentError::InvalidEscape { offset: self.position }),
        };
        let (character, length) = match character {
            0xd800..=0xdbff => {
                let lone = DocumentError::LoneSurrogate { offset: self.position };
                if self.input.get(self.position + 6..self.position + 8) != Some(b"\\u") {
                    return Err(lone);
                }
                let low = self.parse_utf16_escape(self.position + 6)?;
                if !(0xdc00..=0xdfff).contains(&low) {
                    return Err(lone);
                }
                (0x1_0000 + ((character - 0xd800) << 10 | (low - 0xdc00)), 12)
            }
            _ => (character, 6),
        };
        // Surrogate pairs have been decoded, so that only a lone low surrogate fails here.
        let character = char::from_u32(character).ok_or(DocumentError::LoneSurrogate { offset: self.position })?;
        self.copy_pending();
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() => escape_byte_into(byte, self.out),
            _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        self.position += length;
        self.copied = self.position;
        Ok(())
    }

    fn parse_utf16_escape(&self, at: usize) -> Result<u32, DocumentError> {
        let digits = self.input.get(at + 2..at + 6).unwrap_or_default();
        let unit = digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?));
        unit.filter(|_| digits.len() == 4).ok_or(DocumentError::InvalidEscape { offset: at })
    }

    #[inline]
    fn parse_number(&mut self) -> Result<(), DocumentError> {
        self.position =
            find_number_end(self.input, self.position).map_err(|offset| DocumentError::InvalidNumber { offset })?;
        match self.input.get(self.position) {
            // In `01`, `1.2.3`, and `1x`, the number is reported as invalid, and not the comma as missing.
            Some(b'0'..=b'9' | b'.' | b'+' | b'-' | b'a'..=b'z' | b'A'..=b'Z') => {
                Err(DocumentError::InvalidNumber { offset: self.position })
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn parse_literal(&mut self, literal: &'static [u8]) -> Result<(), DocumentError> {
        if self.input[self.position..].starts_with(literal) {
            self.position += literal.len();
            return Ok(());
        }
        Err(self.unexpected("a value"))
    }

    /// Merges duplicate keys of the object that has just been closed. Its members start at index `first`.
    #[cold]
    fn deduplicate_members(&mut self, first: usize) {
        self.copy_pending();
        let JsonCanonicalizer { key_spans: members, duplicate_keys: winners, object_buffer: object, .. } =
            &mut *self.scratch;
        let members = &members[first..];
        let out = &mut *self.out;
        let key = |member: usize| &out[members[member].start..members[member].end];
        let Some(winners) = winners.resolve(members.len(), key) else { return };
        object.clear();
        for (member, winner) in winners.iter().enumerate() {
            let Some(winner) = *winner else { continue };
            // A member's value extends from its colon to the comma before the next member, or to the closing brace.
            let value_end = members.get(winner + 1).map_or(out.len(), |next| next.start) - 1;
            object.push(b',');
            object.extend_from_slice(key(member));
            object.extend_from_slice(&out[members[winner].end..value_end]);
        }
        object.push(b'}');
        if let Some(brace) = object.first_mut() {
            *brace = b'{';
        }
        out.truncate(members[0].start - 1);
        out.extend_from_slice(object);
    }

    #[inline]
    fn check_depth(&self, depth: usize) -> Result<(), DocumentError> {
        if depth > self.max_depth { Err(DocumentError::TooDeep { offset: self.position }) } else { Ok(()) }
    }

    /// Returns the length that the output has once all input before the current position is written.
    #[inline]
    fn output_len_with_pending(&self) -> usize {
        self.out.len() + self.position - self.copied
    }

    fn copy_pending(&mut self) {
        self.out.extend_from_slice(&self.input[self.copied..self.position]);
        self.copied = self.position;
    }

    #[inline]
    fn consume_byte(&mut self, byte: u8) -> bool {
        let found = self.input.get(self.position) == Some(&byte);
        self.position += usize::from(found);
        found
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        if self.input.get(self.position).is_some_and(|&byte| byte <= b' ') {
            self.drop_whitespace();
        }
    }

    fn drop_whitespace(&mut self) {
        self.copy_pending();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.input.get(self.position) {
            self.position += 1;
        }
        self.copied = self.position;
    }

    #[cold]
    fn unexpected(&self, expected: &'static str) -> DocumentError {
        let offset = self.position.min(self.input.len());
        // The input is UTF-8, and the position is always at a character boundary.
        match String::from_utf8_lossy(&self.input[offset..self.input.len().min(offset + 4)]).chars().next() {
            Some(found) => DocumentError::UnexpectedCharacter { offset, found, expected },
            None => DocumentError::UnexpectedEnd { offset, expected },
        }
    }
}

/// Returns the end of the JSON number at `at`, or its first invalid position. The text after it is not checked.
#[inline]
pub(super) fn find_number_end(text: &[u8], mut at: usize) -> Result<usize, usize> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if text.get(at) == Some(&b'0') { at + 1 } else { find_digits_end(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = find_digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = find_digits_end(text, at)?;
    }
    Ok(at)
}

#[inline]
fn find_digits_end(text: &[u8], start: usize) -> Result<usize, usize> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == start { Err(at) } else { Ok(at) }
}

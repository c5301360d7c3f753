//! Turns untrusted JSON text into canonical text: the only entry into this module tree.
//!
//! Canonical text is one JSON object, valid UTF-8, without white space outside strings, every string in its canonical
//! escapes ([`super::Text`]), no key twice in an object, every number as it came, at most [`MAX_DEPTH`] levels.
//!
//! One pass validates and rewrites. Canonical parts are copied in long runs. `copied` is the input up to which
//! everything has been written. It moves only where input and output differ (white space, an escape, a repeated key).
//! Text that is canonical from end to end is one copy.

use super::MAX_DEPTH;
use super::error::DocumentError;
use super::keys::{KeyHashes, Winners};
use super::scan;
use super::text::escape_one;

/// Appends `input`, which must be one JSON object, to `out` as canonical compact text. A duplicate key keeps its first
/// position and its last value (docs/reference/paths-and-values.md, Entities and values).
///
/// On an error `out` is as before. For many documents, a [`Canonicalizer`] saves allocations.
pub fn canonicalize(input: &[u8], out: &mut Vec<u8>) -> Result<(), DocumentError> {
    Canonicalizer::default().canonicalize(input, out)
}

/// As [`canonicalize`], of a message around entities: objects and arrays may nest `around` levels deeper. The entities
/// in it are to be canonicalized by themselves, which tells whether they nest too deep.
pub fn canonicalize_message(input: &[u8], around: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
    Canonicalizer::default().canonicalize_within(input, MAX_DEPTH + around, out)
}

/// [`canonicalize`] with its working memory kept from one document to the next.
#[derive(Debug, Default)]
pub struct Canonicalizer {
    members: Vec<MemberSpan>,
    hashes: KeyHashes,
    winners: Winners,
    object: Vec<u8>,
}

/// A member of an open object: where its key stands in the output, with its quotes.
#[derive(Clone, Copy, Debug)]
struct MemberSpan {
    start: usize,
    end: usize,
}

impl Canonicalizer {
    pub fn canonicalize(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), DocumentError> {
        self.canonicalize_within(input, MAX_DEPTH, out)
    }

    fn canonicalize_within(&mut self, input: &[u8], levels: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
        let before = out.len();
        let result = self.run(input, levels, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn run(&mut self, input: &[u8], levels: usize, out: &mut Vec<u8>) -> Result<(), DocumentError> {
        if simdutf8::basic::from_utf8(input).is_err()
            && let Err(error) = std::str::from_utf8(input)
        {
            return Err(DocumentError::NotUtf8 { offset: error.valid_up_to() });
        }
        self.members.clear();
        self.hashes.truncate(0);
        out.reserve(input.len());
        let mut parser = Parser { input, levels, at: 0, copied: 0, out, memory: self };
        parser.skip_blanks();
        parser.object_at_top()?;
        parser.copy();
        parser.skip_blanks();
        if parser.at < input.len() {
            return Err(DocumentError::TrailingText { offset: parser.at });
        }
        Ok(())
    }
}

struct Parser<'p> {
    input: &'p [u8],
    /// To which objects and arrays may nest.
    levels: usize,
    at: usize,
    /// All needed input before this is in `out`.
    copied: usize,
    out: &'p mut Vec<u8>,
    memory: &'p mut Canonicalizer,
}

impl Parser<'_> {
    fn object_at_top(&mut self) -> Result<(), DocumentError> {
        let found = match self.input.get(self.at) {
            Some(b'{') => return self.object(1),
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(b't') if self.may_be("true") => "a boolean",
            Some(b'f') if self.may_be("false") => "a boolean",
            Some(b'n') if self.may_be("null") => "null",
            _ => return Err(self.unexpected("an object")),
        };
        Err(DocumentError::NotAnObject { found })
    }

    /// Whether the rest begins with this word, or is the beginning of it. Text that is no object may end there.
    fn may_be(&self, word: &str) -> bool {
        let rest = &self.input[self.at..];
        match rest.strip_prefix(word.as_bytes()) {
            Some(after) => !after.first().is_some_and(u8::is_ascii_alphanumeric),
            None => word.as_bytes().starts_with(rest),
        }
    }

    /// The object whose brace is next, itself at level `depth`.
    fn object(&mut self, depth: usize) -> Result<(), DocumentError> {
        self.check_depth(depth)?;
        self.at += 1;
        self.skip_blanks();
        if self.take(b'}') {
            return Ok(());
        }
        let first = self.memory.members.len();
        let mut suspect = false;
        loop {
            if self.input.get(self.at) != Some(&b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            suspect |= self.key(first)?;
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.unexpected("a colon"));
            }
            self.skip_blanks();
            self.value(depth)?;
            self.skip_blanks();
            if self.take(b',') {
                self.skip_blanks();
            } else if self.take(b'}') {
                break;
            } else {
                return Err(self.unexpected("a comma or a closing brace"));
            }
        }
        if suspect {
            self.merge_repeated_keys(first);
        }
        self.memory.members.truncate(first);
        self.memory.hashes.truncate(first);
        Ok(())
    }

    /// The array whose bracket is next, itself at level `depth`.
    fn array(&mut self, depth: usize) -> Result<(), DocumentError> {
        self.check_depth(depth)?;
        self.at += 1;
        self.skip_blanks();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.skip_blanks();
            if self.take(b',') {
                self.skip_blanks();
            } else if self.take(b']') {
                return Ok(());
            } else {
                return Err(self.unexpected("a comma or a closing bracket"));
            }
        }
    }

    #[inline]
    fn value(&mut self, depth: usize) -> Result<(), DocumentError> {
        match self.input.get(self.at) {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'+' | b'.') => Err(DocumentError::Number { offset: self.at }),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Reads the key whose quote is next, of an object whose first member is number `first`. True when it may repeat an
    /// earlier one.
    fn key(&mut self, first: usize) -> Result<bool, DocumentError> {
        let input_start = self.at;
        let start = self.written();
        self.string()?;
        let member = MemberSpan { start, end: self.written() };
        self.memory.members.push(member);
        // A rewritten string is in the output as a whole. Any other is in the input as it will be written.
        let inside = if self.copied > input_start {
            &self.out[member.start + 1..member.end - 1]
        } else {
            &self.input[input_start + 1..self.at - 1]
        };
        Ok(self.memory.hashes.may_repeat(first, inside))
    }

    #[inline]
    fn string(&mut self) -> Result<(), DocumentError> {
        let start = self.at;
        self.at += 1;
        loop {
            self.at = scan::string_stop(self.input, self.at);
            match self.input.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    if self.copied > start {
                        self.copy();
                    }
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(&byte) => return Err(DocumentError::ControlCharacter { offset: self.at, byte }),
                None => return Err(self.unexpected("a closing quote")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), DocumentError> {
        let character = match self.input.get(self.at + 1) {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                return Ok(());
            }
            Some(b'/') => {
                self.copy();
                self.copied += 1;
                self.at += 2;
                return Ok(());
            }
            Some(b'u') => self.escaped_unit(self.at)?,
            _ => return Err(DocumentError::Escape { offset: self.at }),
        };
        let (character, length) = match character {
            0xd800..=0xdbff => {
                let lone = DocumentError::LoneSurrogate { offset: self.at };
                if self.input.get(self.at + 6..self.at + 8) != Some(b"\\u") {
                    return Err(lone);
                }
                let low = self.escaped_unit(self.at + 6)?;
                if !(0xdc00..=0xdfff).contains(&low) {
                    return Err(lone);
                }
                (0x1_0000 + ((character - 0xd800) << 10 | (low - 0xdc00)), 12)
            }
            _ => (character, 6),
        };
        // After pairing, only low halves without a high one are left.
        let character = char::from_u32(character).ok_or(DocumentError::LoneSurrogate { offset: self.at })?;
        self.copy();
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() => escape_one(byte, self.out),
            _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        self.at += length;
        self.copied = self.at;
        Ok(())
    }

    /// The UTF-16 unit of the `\uXXXX` at `at`.
    fn escaped_unit(&self, at: usize) -> Result<u32, DocumentError> {
        let digits = self.input.get(at + 2..at + 6).unwrap_or_default();
        let unit = digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?));
        match unit {
            Some(unit) if digits.len() == 4 => Ok(unit),
            _ => Err(DocumentError::Escape { offset: at }),
        }
    }

    #[inline]
    fn number(&mut self) -> Result<(), DocumentError> {
        self.at = number_end(self.input, self.at).map_err(|offset| DocumentError::Number { offset })?;
        match self.input.get(self.at) {
            // `01`, `1.2.3`, `1x`: say that the number is wrong, not that a comma is missing.
            Some(b'0'..=b'9' | b'.' | b'+' | b'-' | b'a'..=b'z' | b'A'..=b'Z') => {
                Err(DocumentError::Number { offset: self.at })
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn literal(&mut self, literal: &'static [u8]) -> Result<(), DocumentError> {
        if self.input[self.at..].starts_with(literal) {
            self.at += literal.len();
            return Ok(());
        }
        Err(self.unexpected("a value"))
    }

    /// Rewrites the object that has just been closed if keys repeat; its members begin at number `first`.
    #[cold]
    fn merge_repeated_keys(&mut self, first: usize) {
        self.copy();
        let Canonicalizer { members, winners, object, .. } = &mut *self.memory;
        let members = &members[first..];
        let out = &mut *self.out;
        let key = |member: usize| &out[members[member].start..members[member].end];
        let Some(winners) = winners.find(members.len(), key) else { return };
        object.clear();
        for (member, winner) in winners.iter().enumerate() {
            let Some(winner) = *winner else { continue };
            // A value runs from its colon to before the comma of the next member, or to before the closing brace.
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
        if depth > self.levels { Err(DocumentError::TooDeep { offset: self.at }) } else { Ok(()) }
    }

    /// The length of the output once everything before `at` is written.
    #[inline]
    fn written(&self) -> usize {
        self.out.len() + self.at - self.copied
    }

    fn copy(&mut self) {
        self.out.extend_from_slice(&self.input[self.copied..self.at]);
        self.copied = self.at;
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let found = self.input.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    fn skip_blanks(&mut self) {
        if self.input.get(self.at).is_some_and(|&byte| byte <= b' ') {
            self.leave_out_blanks();
        }
    }

    fn leave_out_blanks(&mut self) {
        self.copy();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.input.get(self.at) {
            self.at += 1;
        }
        self.copied = self.at;
    }

    #[cold]
    fn unexpected(&self, expected: &'static str) -> DocumentError {
        let offset = self.at.min(self.input.len());
        // The input is UTF-8, and every step is a whole character.
        match String::from_utf8_lossy(&self.input[offset..self.input.len().min(offset + 4)]).chars().next() {
            Some(found) => DocumentError::Unexpected { offset, found, expected },
            None => DocumentError::Ends { offset, expected },
        }
    }
}

/// The end of the JSON number that starts at `at`, or the place where the text stops being a number. The text after the
/// number is not checked: `01` ends after the zero.
#[inline]
pub(super) fn number_end(text: &[u8], mut at: usize) -> Result<usize, usize> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits_end(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = digits_end(text, at)?;
    }
    Ok(at)
}

#[inline]
fn digits_end(text: &[u8], start: usize) -> Result<usize, usize> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == start { Err(at) } else { Ok(at) }
}

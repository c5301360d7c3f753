//! The bytes of a segment: where its sections lie, and how they are packed.
//!
//! All integers are little-endian. The sections follow each other in the order of [`Section::ALL`]. For each class the
//! dictionary, the texts and the checksums of the lists are neighbours, so that one request fetches them: a needle is
//! looked for in them before any list is read. Hexadecimal entries come last, since few needles need them.
//!
//! An empty section has no bytes. A dictionary and a section of texts are packed alike: the length of the text, the
//! number of varints, and the length of the first frame, in 32 bits each; then two Zstandard frames, the text and the
//! varints. The text is a [`SEPARATOR`], and one more behind each entry. The varints (LEB128) of a dictionary are the
//! number of rows of each entry, less 2. Those of texts are the bytes that each row has.
//!
//! A section of lists is cut into blocks of [`BLOCK_BYTES`]; the last may be shorter. The section of checksums has a
//! CRC-32 of 32 bits for each.

use std::ops::Range;

use strata_types::leb128;

use crate::keywords::Damaged;
use crate::keywords::cut::{Class, Plan};
use crate::keywords::postings::MAX_ROWS;
use crate::layout::SEPARATOR;
use crate::zstd_frame;

/// Bytes of lists that are read at once, at least, and that have a checksum of their own.
pub const BLOCK_BYTES: u32 = 32 << 10;

pub(super) const MAX_TEXT_BYTES: usize = 1 << 28;

/// Level for a dictionary: sorted entries gain from a little effort.
const DICTIONARY_LEVEL: i32 = 3;

/// Level for texts: much of them is hashes, which gain from none.
const TEXTS_LEVEL: i32 = 1;

/// Zstandard makes no byte into more than so many: damaged lengths are refused before memory is taken for them.
const MAX_RATIO: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Dictionary,
    Texts,
    Checksums,
    Lists,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Section {
    pub class: Class,
    pub part: Part,
}

impl Section {
    pub const ALL: [Section; 12] = [
        Section { class: Class::Words, part: Part::Dictionary },
        Section { class: Class::Words, part: Part::Texts },
        Section { class: Class::Words, part: Part::Checksums },
        Section { class: Class::Digits, part: Part::Dictionary },
        Section { class: Class::Digits, part: Part::Texts },
        Section { class: Class::Digits, part: Part::Checksums },
        Section { class: Class::Words, part: Part::Lists },
        Section { class: Class::Digits, part: Part::Lists },
        Section { class: Class::Hexadecimal, part: Part::Dictionary },
        Section { class: Class::Hexadecimal, part: Part::Texts },
        Section { class: Class::Hexadecimal, part: Part::Checksums },
        Section { class: Class::Hexadecimal, part: Part::Lists },
    ];
}

/// The lengths of the sections of one class, in bytes. That of the checksums follows from that of the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub dictionary: u32,
    pub texts: u32,
    pub lists: u32,
}

impl Lengths {
    fn of(self, part: Part) -> u64 {
        match part {
            Part::Dictionary => self.dictionary.into(),
            Part::Texts => self.texts.into(),
            Part::Checksums => 4 * u64::from(self.lists.div_ceil(BLOCK_BYTES)),
            Part::Lists => self.lists.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    rows: usize,
    lengths: [Lengths; 3],
}

impl Header {
    pub fn try_new(rows: usize, lengths: [Lengths; 3]) -> Result<Header, Damaged> {
        match rows <= MAX_ROWS {
            true => Ok(Header { rows, lengths }),
            false => Err(Damaged::new("header", "it has too many rows")),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn lengths(&self) -> &[Lengths; 3] {
        &self.lengths
    }

    pub fn bytes(&self) -> u64 {
        Section::ALL.iter().map(|section| self.length(*section)).sum()
    }

    fn length(&self, section: Section) -> u64 {
        self.lengths[section.class as usize].of(section.part)
    }

    pub fn range(&self, section: Section) -> Range<u64> {
        let before = Section::ALL.iter().take_while(|other| **other != section);
        let start: u64 = before.map(|other| self.length(*other)).sum();
        start..start + self.length(section)
    }

    /// Where the dictionary, the texts and the checksums of a class lie, from the segment's first byte.
    pub fn entries_range(&self, class: Class) -> Range<u64> {
        let start = self.range(Section { class, part: Part::Dictionary }).start;
        start..self.range(Section { class, part: Part::Checksums }).end
    }

    /// The classes that hold what a plan asks for; those without entries are left out. None for a scan.
    pub fn classes_needed(&self, plan: &Plan) -> impl Iterator<Item = Class> {
        let needed = |class: &Class| {
            !self.entries_range(*class).is_empty() && plan.pieces().iter().any(|piece| piece.may_be_in(*class))
        };
        Class::ALL.into_iter().filter(needed)
    }
}

/// Packs a text and numbers. `None` when they are too long to be read again, or compression fails.
pub(super) fn pack(part: Part, text: &[u8], numbers: impl ExactSizeIterator<Item = u32>) -> Option<Vec<u8>> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let count = numbers.len() as u32;
    let mut varints = Vec::with_capacity(numbers.len());
    numbers.for_each(|number| leb128::write(number, &mut varints));
    let mut compressor =
        zstd::bulk::Compressor::new(if part == Part::Dictionary { DICTIONARY_LEVEL } else { TEXTS_LEVEL }).ok()?;
    let text_frame = compressor.compress(text).ok()?;
    let numbers_frame = compressor.compress(&varints).ok()?;
    let mut packed = Vec::with_capacity(12 + text_frame.len() + numbers_frame.len());
    for length in [text.len() as u32, count, text_frame.len() as u32] {
        packed.extend_from_slice(&length.to_le_bytes());
    }
    packed.extend_from_slice(&text_frame);
    packed.extend_from_slice(&numbers_frame);
    Some(packed)
}

/// Unpacks what [`pack`] packed: the text, and so many numbers at most.
pub(super) fn unpack(part: &'static str, bytes: &[u8], max_count: usize) -> Result<(Vec<u8>, Vec<u32>), Damaged> {
    let damaged = |cause| Damaged::new(part, cause);
    if bytes.is_empty() {
        return Ok((vec![SEPARATOR], Vec::new()));
    }
    let (lengths, frames) = bytes.split_first_chunk::<12>().ok_or_else(|| damaged("it is truncated"))?;
    let mut lengths =
        lengths.chunks_exact(4).map(|bytes| bytes.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte)));
    let mut length = || lengths.next().unwrap_or_default();
    let text_bytes = length();
    let count = length();
    let frame_bytes = length();
    let (text_frame, numbers_frame) = frames.split_at_checked(frame_bytes).ok_or_else(|| damaged("it is truncated"))?;
    if text_bytes > MAX_TEXT_BYTES {
        return Err(damaged("its text is too large"));
    }
    if count > max_count {
        return Err(damaged("it contains too many integers"));
    }
    let decompress = |frame: &[u8], most: usize| {
        // Memory is taken for what the frame says that it holds.
        let size = zstd_frame::size(frame, most).filter(|size| size / MAX_RATIO <= frame.len());
        let size = size.ok_or_else(|| damaged("the size of a frame is invalid"))?;
        zstd_frame::decompress(frame, size).map_err(|_| damaged("it cannot be decompressed"))
    };
    let text = decompress(text_frame, text_bytes)?;
    if text.len() != text_bytes || text.first() != Some(&SEPARATOR) || text.last() != Some(&SEPARATOR) {
        return Err(damaged("its text is invalid"));
    }
    // 32 bits take at most five bytes, and a number at least one.
    let varints = decompress(numbers_frame, count * 5)?;
    if varints.len() < count {
        return Err(damaged("it contains the wrong number of integers"));
    }
    let mut numbers = Vec::with_capacity(count);
    let mut rest = &varints[..];
    for _ in 0..count {
        numbers.push(leb128::read_u32(&mut rest).ok_or_else(|| damaged("an integer is truncated or too large"))?);
    }
    if !rest.is_empty() {
        return Err(damaged("it contains the wrong number of integers"));
    }
    Ok((text, numbers))
}

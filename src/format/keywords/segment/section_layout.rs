//! The binary format of a segment: the order of its sections, and their encoding.
//!
//! All integers are little-endian. The sections follow each other in the order of [`SegmentSection::ALL`]. The
//! dictionary, row tokens, and checksums of a class are adjacent, so that one request fetches them: a search needs them
//! before it needs posting lists. Hexadecimal tokens come last, because few needles need them.
//!
//! An empty section has no bytes. A section of tokens consists of three 32-bit integers (the length of the text, the
//! number of varints, and the length of the first frame) and two Zstandard frames (the text and the varints). The text
//! is a [`TEXT_SEPARATOR`] and the tokens, each followed by a separator. The LEB128 varints of a dictionary are the row
//! counts of the tokens minus 2; the varints of row tokens are the number of bytes of each row.
//!
//! A postings section is divided into blocks of [`POSTING_BLOCK_BYTES`], the last of which may be shorter. The
//! checksums section contains a 32-bit CRC-32 for each block.

use std::ops::Range;

use strata_types::leb128;

use crate::keywords::KeywordIndexError;
use crate::keywords::postings::MAX_POSTING_ROWS;
use crate::keywords::tokenizer::{TermQuery, TokenClass};
use crate::layout::TEXT_SEPARATOR;
use crate::zstd_frame;

/// Size in bytes of the blocks of posting lists. A block is read as a whole and has a checksum.
pub const POSTING_BLOCK_BYTES: u32 = 32 << 10;
pub(super) const MAX_SECTION_TEXT_BYTES: usize = 1 << 28;
/// Zstandard level of dictionaries: sorted tokens compress better with a higher level.
const DICTIONARY_ZSTD_LEVEL: i32 = 3;
/// Zstandard level of row tokens, which are largely incompressible hashes.
const ROW_TOKENS_ZSTD_LEVEL: i32 = 1;
/// Max compression ratio of Zstandard. A frame that declares a larger size is rejected as damaged before an allocation.
const MAX_COMPRESSION_RATIO: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKind {
    Dictionary,
    RowTokens,
    Checksums,
    Postings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentSection {
    pub class: TokenClass,
    pub kind: SectionKind,
}

impl SegmentSection {
    pub const ALL: [SegmentSection; 12] = [
        SegmentSection { class: TokenClass::Words, kind: SectionKind::Dictionary },
        SegmentSection { class: TokenClass::Words, kind: SectionKind::RowTokens },
        SegmentSection { class: TokenClass::Words, kind: SectionKind::Checksums },
        SegmentSection { class: TokenClass::Digits, kind: SectionKind::Dictionary },
        SegmentSection { class: TokenClass::Digits, kind: SectionKind::RowTokens },
        SegmentSection { class: TokenClass::Digits, kind: SectionKind::Checksums },
        SegmentSection { class: TokenClass::Words, kind: SectionKind::Postings },
        SegmentSection { class: TokenClass::Digits, kind: SectionKind::Postings },
        SegmentSection { class: TokenClass::Hexadecimal, kind: SectionKind::Dictionary },
        SegmentSection { class: TokenClass::Hexadecimal, kind: SectionKind::RowTokens },
        SegmentSection { class: TokenClass::Hexadecimal, kind: SectionKind::Checksums },
        SegmentSection { class: TokenClass::Hexadecimal, kind: SectionKind::Postings },
    ];
}

/// Lengths of the sections of one token class, in bytes. The length of the checksums follows from the postings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionLengths {
    pub dictionary: u32,
    pub row_tokens: u32,
    pub postings: u32,
}

impl SectionLengths {
    fn section_bytes(self, kind: SectionKind) -> u64 {
        match kind {
            SectionKind::Dictionary => self.dictionary.into(),
            SectionKind::RowTokens => self.row_tokens.into(),
            SectionKind::Checksums => 4 * u64::from(self.postings.div_ceil(POSTING_BLOCK_BYTES)),
            SectionKind::Postings => self.postings.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    rows: usize,
    lengths: [SectionLengths; 3],
}

impl SegmentHeader {
    pub fn try_new(rows: usize, lengths: [SectionLengths; 3]) -> Result<SegmentHeader, KeywordIndexError> {
        match rows <= MAX_POSTING_ROWS {
            true => Ok(SegmentHeader { rows, lengths }),
            false => Err(KeywordIndexError::new("header", "it has too many rows")),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn section_lengths(&self) -> &[SectionLengths; 3] {
        &self.lengths
    }

    pub fn total_bytes(&self) -> u64 {
        SegmentSection::ALL.iter().map(|section| self.section_bytes(*section)).sum()
    }

    fn section_bytes(&self, section: SegmentSection) -> u64 {
        self.lengths[section.class as usize].section_bytes(section.kind)
    }

    pub fn section_range(&self, section: SegmentSection) -> Range<u64> {
        let before = SegmentSection::ALL.iter().take_while(|other| **other != section);
        let start: u64 = before.map(|other| self.section_bytes(*other)).sum();
        start..start + self.section_bytes(section)
    }

    pub fn token_range(&self, class: TokenClass) -> Range<u64> {
        let start = self.section_range(SegmentSection { class, kind: SectionKind::Dictionary }).start;
        start..self.section_range(SegmentSection { class, kind: SectionKind::Checksums }).end
    }

    pub fn required_classes(&self, query: &TermQuery) -> impl Iterator<Item = TokenClass> {
        let needed = |class: &TokenClass| {
            !self.token_range(*class).is_empty()
                && query.fragments().iter().any(|fragment| fragment.may_match_class(*class))
        };
        TokenClass::ALL.into_iter().filter(needed)
    }
}

/// Returns `None` if the text is too large or cannot be compressed.
pub(super) fn pack_section(
    kind: SectionKind,
    text: &[u8],
    numbers: impl ExactSizeIterator<Item = u32>,
) -> Option<Vec<u8>> {
    if text.len() > MAX_SECTION_TEXT_BYTES {
        return None;
    }
    // A text without tokens is a single separator.
    if text.len() == 1 {
        return Some(Vec::new());
    }
    let count = numbers.len() as u32;
    let mut varints = Vec::with_capacity(numbers.len());
    numbers.for_each(|number| leb128::write_varint(number, &mut varints));
    let level = if kind == SectionKind::Dictionary { DICTIONARY_ZSTD_LEVEL } else { ROW_TOKENS_ZSTD_LEVEL };
    let mut compressor = zstd::bulk::Compressor::new(level).ok()?;
    let text_frame = compressor.compress(text).ok()?;
    let numbers_frame = compressor.compress(&varints).ok()?;
    let mut packed = Vec::with_capacity(12 + text_frame.len() + numbers_frame.len());
    packed.extend([text.len() as u32, count, text_frame.len() as u32].into_iter().flat_map(u32::to_le_bytes));
    packed.extend_from_slice(&text_frame);
    packed.extend_from_slice(&numbers_frame);
    Some(packed)
}

/// Returns the text and at most `max_count` integers of a section. `part` is the name of the section in errors.
pub(super) fn unpack_section(
    part: &'static str,
    bytes: &[u8],
    max_count: usize,
) -> Result<(Vec<u8>, Vec<u32>), KeywordIndexError> {
    let damaged = |cause| KeywordIndexError::new(part, cause);
    if bytes.is_empty() {
        return Ok((vec![TEXT_SEPARATOR], Vec::new()));
    }
    let (lengths, frames) = bytes.split_first_chunk::<12>().ok_or_else(|| damaged("it is truncated"))?;
    let lengths = lengths.as_chunks::<4>().0;
    let [text_bytes, count, frame_bytes] = [0, 1, 2].map(|index| u32::from_le_bytes(lengths[index]) as usize);
    let (text_frame, numbers_frame) = frames.split_at_checked(frame_bytes).ok_or_else(|| damaged("it is truncated"))?;
    if text_bytes > MAX_SECTION_TEXT_BYTES {
        return Err(damaged("its text is too large"));
    }
    if count > max_count {
        return Err(damaged("it contains too many integers"));
    }
    let decompress = |frame: &[u8], max_bytes: usize| {
        // A Zstandard frame's size is checked first, because `decompress` allocates the declared size.
        let size =
            zstd_frame::content_size(frame, max_bytes).filter(|size| size / MAX_COMPRESSION_RATIO <= frame.len());
        let size = size.ok_or_else(|| damaged("the size of a frame is invalid"))?;
        zstd_frame::decompress(frame, size).map_err(|_| damaged("it cannot be decompressed"))
    };
    let text = decompress(text_frame, text_bytes)?;
    if text.len() != text_bytes || text.first() != Some(&TEXT_SEPARATOR) || text.last() != Some(&TEXT_SEPARATOR) {
        return Err(damaged("its text is invalid"));
    }
    let numbers = decode_varints(&decompress(numbers_frame, count * 5)?, count).map_err(damaged)?;
    Ok((text, numbers))
}

fn decode_varints(mut bytes: &[u8], count: usize) -> Result<Vec<u32>, &'static str> {
    if bytes.len() < count {
        return Err("it contains the wrong number of integers");
    }
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        numbers.push(leb128::read_varint_u32(&mut bytes).ok_or("an integer is truncated or too large")?);
    }
    if bytes.is_empty() { Ok(numbers) } else { Err("it contains the wrong number of integers") }
}

//! Checksums of the bytes that readers fetch from a version file.
//!
//! A flipped bit on a disk often decodes to a different valid value. Therefore, each part of a file has a CRC-32 in the
//! footer's metadata, and a reader compares the CRC-32 before it decodes the part:
//!
//! | Bytes | Checksum |
//! |---|---|
//! | each page of documents | under [`CHECKSUMS_KEY`] |
//! | each other column chunk: its dictionary and data pages | under [`CHECKSUMS_KEY`] |
//! | each bloom filter | under [`CHECKSUMS_KEY`] |
//! | the profile | the SHA-256 in its location |
//! | the footer index | covered by the footer checksum |
//! | the page indexes and the footer | under [`FOOTER_CHECKSUM_KEY`], whose own digits count as zeros |
//!
//! A checksum belongs to a position in the file. A valid page from another position therefore fails the check.
//!
//! The value under [`CHECKSUMS_KEY`] is text with 8 hexadecimal digits for each part, in the order of the row groups:
//! pages of documents, chunks of the other columns, bloom filters. The page checksums of Parquet are not enough: the
//! Arrow writer does not write them, and they cannot detect a page in the wrong position.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;

use crc32fast::Hasher;
use memchr::memmem;

use super::{Result, StorageError};

pub const CHECKSUMS_KEY: &str = "strata.checksums";
pub const FOOTER_CHECKSUM_KEY: &str = "strata.seal";
/// Prefix of the footer checksum's value. Readers search for it before they parse the footer.
const FOOTER_CHECKSUM_PREFIX: &[u8] = b"strata.seal:";
const OFFSET_HEX_DIGITS: usize = 16;
const CHECKSUM_HEX_DIGITS: usize = 8;

pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

pub fn verify_checksum(bytes: &[u8], expected: u32) -> Result<()> {
    if expected == crc32(bytes) { Ok(()) } else { Err(StorageError::checksum_mismatch()) }
}

pub fn parse_checksums(text: &str) -> Result<Vec<u32>> {
    let damaged = || StorageError::InvalidFile("its list of checksums is invalid".to_owned());
    let digits = text.as_bytes().chunks(CHECKSUM_HEX_DIGITS);
    let checksum = |digits: &[u8]| u32::try_from(parse_hex_digits(digits, CHECKSUM_HEX_DIGITS)?).ok();
    digits.map(|digits| checksum(digits).ok_or_else(damaged)).collect()
}

#[derive(Default)]
pub struct StreamingChecksums {
    offset: u64,
    hasher: Hasher,
    /// Offsets where announced parts begin (`false`) or end (`true`) and that `update` has not reached, ascending.
    boundaries: VecDeque<(u64, bool)>,
    announced_end: u64,
    checksums: Vec<u32>,
    encoded: String,
}

impl StreamingChecksums {
    /// Announces a part. Parts must be announced in file order, each before its first byte is passed to `update`.
    pub fn expect_range(&mut self, part: Range<u64>) {
        if self.announced_end < part.start {
            self.boundaries.push_back((part.start, false));
        }
        self.boundaries.push_back((part.end, true));
        self.announced_end = part.end;
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while let Some((boundary, is_end)) = self.boundaries.front().copied() {
            let length = usize::try_from(boundary - self.offset).unwrap_or(usize::MAX);
            if length > bytes.len() {
                break;
            }
            let (part, rest) = bytes.split_at(length);
            self.hasher.update(part);
            let checksum = std::mem::take(&mut self.hasher).finalize();
            if is_end {
                self.checksums.push(checksum);
            }
            (self.offset, bytes) = (boundary, rest);
            self.boundaries.pop_front();
        }
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
    }

    /// Returns the checksums of the announced parts, which must have passed, and `blooms`.
    pub fn finish_row_group(&mut self, blooms: &[u32]) -> Vec<u32> {
        let mut checksums = std::mem::take(&mut self.checksums);
        checksums.extend(blooms);
        for checksum in &checksums {
            let _ = write!(self.encoded, "{checksum:0CHECKSUM_HEX_DIGITS$x}");
        }
        checksums
    }

    pub fn take_encoded(&mut self) -> String {
        std::mem::take(&mut self.encoded)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterChecksum {
    /// Offset in the file of the first byte that the checksum covers. The last one is the end of the file.
    pub covered_from: u64,
    checksum: u32,
    digits_offset: usize,
}

impl FooterChecksum {
    /// Returns the value to write under [`FOOTER_CHECKSUM_KEY`] before the covered bytes exist: all digits are zero.
    pub fn placeholder(start: u64) -> String {
        format!(
            "{}{start:0OFFSET_HEX_DIGITS$x}:{:0CHECKSUM_HEX_DIGITS$x}",
            String::from_utf8_lossy(FOOTER_CHECKSUM_PREFIX),
            0
        )
    }

    pub fn bytes_after<'a>(&self, end: &'a [u8]) -> &'a [u8] {
        end.get(self.digits_offset + CHECKSUM_HEX_DIGITS..).unwrap_or_default()
    }

    /// Finds the last checksum in the end of a file. Entities cannot imitate it, because the writer writes it last.
    pub fn find(end: &[u8]) -> Option<FooterChecksum> {
        let offset = memmem::rfind(end, FOOTER_CHECKSUM_PREFIX)? + FOOTER_CHECKSUM_PREFIX.len();
        let digits = offset + OFFSET_HEX_DIGITS + 1;
        let start = parse_hex_digits(end.get(offset..)?, OFFSET_HEX_DIGITS)?;
        let checksum = u32::try_from(parse_hex_digits(end.get(digits..)?, CHECKSUM_HEX_DIGITS)?).ok()?;
        Some(FooterChecksum { covered_from: start, checksum, digits_offset: digits })
    }

    /// Returns whether the checksum is right for `end`, all bytes of the file from [`FooterChecksum::covered_from`] on.
    pub fn matches(&self, end: &[u8]) -> bool {
        self.compute(end) == Some(self.checksum)
    }

    /// Computes the checksum of `end` and overwrites the placeholder. Returns `false` if `end` contains no placeholder.
    #[must_use]
    pub fn fill_placeholder(end: &mut [u8]) -> bool {
        let Some((digits, checksum)) =
            FooterChecksum::find(end).and_then(|found| Some((found.digits_offset, found.compute(end)?)))
        else {
            return false;
        };
        let text = format!("{checksum:0CHECKSUM_HEX_DIGITS$x}");
        end[digits..digits + CHECKSUM_HEX_DIGITS].copy_from_slice(text.as_bytes());
        true
    }

    fn compute(&self, end: &[u8]) -> Option<u32> {
        let mut hasher = Hasher::new();
        hasher.update(end.get(..self.digits_offset)?);
        hasher.update(&[b'0'; CHECKSUM_HEX_DIGITS]);
        hasher.update(end.get(self.digits_offset + CHECKSUM_HEX_DIGITS..)?);
        Some(hasher.finalize())
    }
}

/// Faster than UTF-8 validation with `from_str_radix`; a footer contains many checksums.
fn parse_hex_digits(text: &[u8], digits: usize) -> Option<u64> {
    text.get(..digits)?.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

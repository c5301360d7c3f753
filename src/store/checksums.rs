//! Checksums of the bytes that readers fetch from a version file.
//!
//! A flipped bit on a disk often decodes to a different valid value. Therefore, each part of a file has a CRC-32 in the
//! footer's metadata, and a reader compares the CRC-32 before it decodes the part:
//!
//! | Bytes | Checksum |
//! |---|---|
//! | each page of documents | under [`CHECKSUMS_KEY`] |
//! | each other column chunk: its dictionary and data pages | under [`CHECKSUMS_KEY`] |
//! | the profile | the SHA-256 in its location |
//! | the footer index | covered by the footer checksum |
//! | the page indexes and the footer | under [`FOOTER_CHECKSUM_KEY`], whose own digits count as zeros |
//!
//! A checksum belongs to a position in the file. A valid page from another position therefore fails the check.
//!
//! The value under [`CHECKSUMS_KEY`] is text with 8 hexadecimal digits for each part, in the order of the row groups:
//! pages of documents, chunks of the other columns. The page checksums of Parquet are not enough: the Arrow writer does
//! not write them, and they cannot detect a page in the wrong position.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;

use crc32fast::Hasher;
use memchr::memmem;

use super::{Result, StorageError};

pub const CHECKSUMS_KEY: &str = "strata.checksums";
pub const FOOTER_CHECKSUM_KEY: &str = "strata.seal";
/// Prefix of the footer checksum's value. Readers search the end of a file for it before they parse the footer.
const FOOTER_CHECKSUM_PREFIX: &[u8] = b"strata.seal:";
const OFFSET_HEX_DIGITS: usize = 16;
const CHECKSUM_HEX_DIGITS: usize = 8;

pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Fails with [`StorageError::InvalidFile`] if the CRC-32 of `bytes` is not `expected`.
pub fn verify_checksum(bytes: &[u8], expected: u32) -> Result<()> {
    if expected == crc32(bytes) { Ok(()) } else { Err(StorageError::checksum_mismatch()) }
}

/// Parses the value under [`CHECKSUMS_KEY`]. Fails with [`StorageError::InvalidFile`] if the value is not a sequence of
/// numbers with 8 hexadecimal digits each.
pub fn parse_checksums(text: &str) -> Result<Vec<u32>> {
    let damaged = || StorageError::InvalidFile("its list of checksums is invalid".to_owned());
    let digits = text.as_bytes().chunks(CHECKSUM_HEX_DIGITS);
    let checksum = |digits: &[u8]| u32::try_from(parse_hex_digits(digits, CHECKSUM_HEX_DIGITS)?).ok();
    digits.map(|digits| checksum(digits).ok_or_else(damaged)).collect()
}

/// Computes the checksums of the parts of a file while the file is written, in chunks of any size.
#[derive(Default)]
pub struct StreamingChecksums {
    offset: u64,
    hasher: Hasher,
    /// Boundaries of announced parts that `update` has not reached, ascending.
    boundaries: VecDeque<PartBoundary>,
    announced_end: u64,
    checksums: Vec<u32>,
    encoded: String,
}

/// Offset in the file at which an announced part begins or ends.
#[derive(Clone, Copy)]
enum PartBoundary {
    Start(u64),
    End(u64),
}

impl PartBoundary {
    fn offset(self) -> u64 {
        match self {
            PartBoundary::Start(offset) | PartBoundary::End(offset) => offset,
        }
    }
}

impl StreamingChecksums {
    /// Announces a part that gets a checksum. Parts must be announced in file order, each before its first byte is
    /// passed to `update`.
    pub fn expect_range(&mut self, part: Range<u64>) {
        if self.announced_end < part.start {
            self.boundaries.push_back(PartBoundary::Start(part.start));
        }
        self.boundaries.push_back(PartBoundary::End(part.end));
        self.announced_end = part.end;
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while let Some(boundary) = self.boundaries.front().copied() {
            let length = usize::try_from(boundary.offset() - self.offset).unwrap_or(usize::MAX);
            if length > bytes.len() {
                break;
            }
            let (part, rest) = bytes.split_at(length);
            self.hasher.update(part);
            let checksum = std::mem::take(&mut self.hasher).finalize();
            if matches!(boundary, PartBoundary::End(_)) {
                self.checksums.push(checksum);
            }
            self.offset = boundary.offset();
            bytes = rest;
            self.boundaries.pop_front();
        }
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
    }

    /// Returns the checksums of the announced parts, all of which must have been passed to `update`.
    pub fn finish_row_group(&mut self) -> Vec<u32> {
        let checksums = std::mem::take(&mut self.checksums);
        for checksum in &checksums {
            let _ = write!(self.encoded, "{checksum:0CHECKSUM_HEX_DIGITS$x}");
        }
        checksums
    }

    /// Returns the value for [`CHECKSUMS_KEY`]: the checksums of all finished row groups.
    pub fn take_encoded(&mut self) -> String {
        std::mem::take(&mut self.encoded)
    }
}

/// The checksum at the end of a file, which covers itself: its digits count as zeros.
///
/// ```
/// # use strata_store::checksums::FooterChecksum;
/// let mut end = format!("footer {}", FooterChecksum::placeholder(4_096)).into_bytes();
/// assert!(FooterChecksum::write_checksum(&mut end));
/// let checksum = FooterChecksum::find(&end).unwrap();
/// assert_eq!(checksum.covered_from, 4_096);
/// assert!(checksum.matches(&end));
/// end[0] ^= 1;
/// assert!(!checksum.matches(&end));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterChecksum {
    /// Offset in the file of the first byte that the footer checksum covers. All following bytes of the file are
    /// covered, too.
    pub covered_from: u64,
    checksum: u32,
    /// Offset of the checksum's digits in the slice that was searched.
    digits_offset: usize,
}

impl FooterChecksum {
    /// Returns the value to write under [`FOOTER_CHECKSUM_KEY`] before the covered bytes exist: the digits of the
    /// checksum are zeros.
    pub fn placeholder(covered_from: u64) -> String {
        format!(
            "{}{covered_from:0OFFSET_HEX_DIGITS$x}:{:0CHECKSUM_HEX_DIGITS$x}",
            String::from_utf8_lossy(FOOTER_CHECKSUM_PREFIX),
            0
        )
    }

    /// Returns the bytes of `end` that follow the checksum. `end` must be the slice in which the checksum was found.
    pub fn bytes_after<'a>(&self, end: &'a [u8]) -> &'a [u8] {
        end.get(self.digits_offset + CHECKSUM_HEX_DIGITS..).unwrap_or_default()
    }

    /// Finds the last footer checksum in the end of a file. Entities cannot imitate it, because the writer writes it
    /// last.
    pub fn find(end: &[u8]) -> Option<FooterChecksum> {
        let offset = memmem::rfind(end, FOOTER_CHECKSUM_PREFIX)? + FOOTER_CHECKSUM_PREFIX.len();
        let digits = offset + OFFSET_HEX_DIGITS + 1;
        let covered_from = parse_hex_digits(end.get(offset..)?, OFFSET_HEX_DIGITS)?;
        let checksum = u32::try_from(parse_hex_digits(end.get(digits..)?, CHECKSUM_HEX_DIGITS)?).ok()?;
        Some(FooterChecksum { covered_from, checksum, digits_offset: digits })
    }

    /// Returns whether the checksum is right for `end`, all bytes of the file from [`FooterChecksum::covered_from`] on.
    pub fn matches(&self, end: &[u8]) -> bool {
        self.compute(end) == Some(self.checksum)
    }

    /// Computes the footer checksum of `file_end` and overwrites the placeholder. Returns `false` if there is no
    /// placeholder.
    #[must_use]
    pub fn write_checksum(file_end: &mut [u8]) -> bool {
        let Some((digits, checksum)) =
            FooterChecksum::find(file_end).and_then(|found| Some((found.digits_offset, found.compute(file_end)?)))
        else {
            return false;
        };
        let text = format!("{checksum:0CHECKSUM_HEX_DIGITS$x}");
        file_end[digits..digits + CHECKSUM_HEX_DIGITS].copy_from_slice(text.as_bytes());
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

/// Parses hexadecimal digits faster than `from_str_radix` after UTF-8 validation; a footer contains many checksums.
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

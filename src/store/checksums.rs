//! Checksums of everything that a read fetches from a version file.
//!
//! Damage on a disk does not announce itself: a flipped bit often decodes to another value. So each part of a file has
//! a CRC-32, kept in the footer's metadata and compared when the part is fetched, before it is decoded:
//!
//! | Bytes | Checksum |
//! |---|---|
//! | each page of documents | under [`CHECKSUMS_KEY`] |
//! | each other column chunk: its dictionary and data pages | under [`CHECKSUMS_KEY`] |
//! | each bloom filter | under [`CHECKSUMS_KEY`] |
//! | the profile | the SHA-256 of its location |
//! | the outline | behind the seal |
//! | the page indexes and the footer, up to the file's end | under [`SEAL_KEY`], where its own digits count as zeros |
//!
//! A checksum stands for a place, not only for bytes: a page from elsewhere, whole in itself, does not verify.
//!
//! The value under [`CHECKSUMS_KEY`] is text, 8 hexadecimal digits a part. Parts are in the order of the row groups; in
//! a row group the pages of documents come first, then the chunks of the other columns, then the bloom filters, both in
//! the order of the columns. Parquet's own page checksums are not used: the Arrow writer does not write them, and they
//! stay right for a page in the wrong place.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;

use crc32fast::Hasher;
use memchr::memmem;

use super::{Result, StorageError};

pub const CHECKSUMS_KEY: &str = "strata.checksums";

pub const SEAL_KEY: &str = "strata.seal";

/// The prefix of the seal's value, by which it is found before the footer is parsed.
const SEAL_MARK: &[u8] = b"strata.seal:";

const OFFSET_DIGITS: usize = 16;

const CHECKSUM_DIGITS: usize = 8;

/// The checksum of some bytes: CRC-32 as in Ethernet, gzip and Parquet.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

pub fn verify(bytes: &[u8], expected: u32) -> Result<()> {
    if expected == checksum(bytes) { Ok(()) } else { Err(StorageError::unverified()) }
}

pub fn parse_checksums(text: &str) -> Result<Vec<u32>> {
    let damaged = || StorageError::Layout("its list of checksums is invalid".to_owned());
    let digits = text.as_bytes().chunks(CHECKSUM_DIGITS);
    let checksum = |digits: &[u8]| u32::try_from(parse_hexadecimal(digits, CHECKSUM_DIGITS)?).ok();
    digits.map(|digits| checksum(digits).ok_or_else(damaged)).collect()
}

#[derive(Default)]
pub struct Tally {
    at: u64,
    running: Hasher,
    /// Where parts begin and end, in order, as far as bytes have not passed; `true` where one ends.
    cuts: VecDeque<(u64, bool)>,
    announced: u64,
    checksums: Vec<u32>,
    /// Checksums that come after those of the bytes that are still to pass.
    text: String,
}

impl Tally {
    /// Announces a part, before its first byte passes and after the parts before it.
    pub fn expect(&mut self, part: Range<u64>) {
        if self.announced < part.start {
            self.cuts.push_back((part.start, false));
        }
        self.cuts.push_back((part.end, true));
        self.announced = part.end;
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while let Some((cut, ends)) = self.cuts.front().copied() {
            let length = usize::try_from(cut - self.at).unwrap_or(usize::MAX);
            if length > bytes.len() {
                break;
            }
            let (part, rest) = bytes.split_at(length);
            self.running.update(part);
            let checksum = std::mem::take(&mut self.running).finalize();
            if ends {
                self.checksums.push(checksum);
            }
            (self.at, bytes) = (cut, rest);
            self.cuts.pop_front();
        }
        self.running.update(bytes);
        self.at += bytes.len() as u64;
    }

    /// Ends a row group all of whose announced parts have passed, and whose bloom filters have these checksums. Gives
    /// the checksums of all its parts.
    pub fn end_row_group(&mut self, blooms: &[u32]) -> Vec<u32> {
        let mut checksums = std::mem::take(&mut self.checksums);
        checksums.extend(blooms);
        for checksum in &checksums {
            // Writing to a text does not fail.
            let _ = write!(self.text, "{checksum:0CHECKSUM_DIGITS$x}");
        }
        checksums
    }

    pub fn text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    pub start: u64,
    checksum: u32,
    /// Where its digits stand among the bytes that it was found in.
    digits: usize,
}

impl Seal {
    /// The value under [`SEAL_KEY`] before the bytes are there that it covers.
    pub fn unset(start: u64) -> String {
        format!("{}{start:0OFFSET_DIGITS$x}:{:0CHECKSUM_DIGITS$x}", String::from_utf8_lossy(SEAL_MARK), 0)
    }

    /// What stands behind it, of the bytes that it was found in.
    pub fn behind<'a>(&self, end: &'a [u8]) -> &'a [u8] {
        end.get(self.digits + CHECKSUM_DIGITS..).unwrap_or_default()
    }

    /// Finds the seal in the end of a file. It is written last, so what entities hold cannot be mistaken for it.
    pub fn find(end: &[u8]) -> Option<Seal> {
        let offset = memmem::rfind(end, SEAL_MARK)? + SEAL_MARK.len();
        let digits = offset + OFFSET_DIGITS + 1;
        let start = parse_hexadecimal(end.get(offset..)?, OFFSET_DIGITS)?;
        let checksum = u32::try_from(parse_hexadecimal(end.get(digits..)?, CHECKSUM_DIGITS)?).ok()?;
        Some(Seal { start, checksum, digits })
    }

    /// Whether it was found in what it was made of: all bytes from [`Seal::start`] on.
    pub fn verifies(&self, end: &[u8]) -> bool {
        self.checksum_of(end) == Some(self.checksum)
    }

    /// Seals the end of a file that holds an unset seal. `false` when there is none.
    #[must_use]
    pub fn set(end: &mut [u8]) -> bool {
        let Some((digits, checksum)) = Seal::find(end).and_then(|seal| Some((seal.digits, seal.checksum_of(end)?)))
        else {
            return false;
        };
        let text = format!("{checksum:0CHECKSUM_DIGITS$x}");
        end[digits..digits + CHECKSUM_DIGITS].copy_from_slice(text.as_bytes());
        true
    }

    fn checksum_of(&self, end: &[u8]) -> Option<u32> {
        let mut running = Hasher::new();
        running.update(end.get(..self.digits)?);
        running.update(&[b'0'; CHECKSUM_DIGITS]);
        running.update(end.get(self.digits + CHECKSUM_DIGITS..)?);
        Some(running.finalize())
    }
}

/// The number that exactly so many lower-case hexadecimal digits begin with, 16 at most. A footer has many of them.
fn parse_hexadecimal(text: &[u8], digits: usize) -> Option<u64> {
    text.get(..digits)?.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

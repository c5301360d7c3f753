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
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;

use super::StorageError;

/// Where the checksums of the parts lie in the key-value metadata of the Parquet footer.
pub const CHECKSUMS_KEY: &str = "strata.checksums";

/// Where the seal lies there.
pub const SEAL_KEY: &str = "strata.seal";

/// The prefix of the seal's value, by which it is found before the footer is parsed.
const SEAL_MARK: &[u8] = b"strata.seal:";

/// Hexadecimal digits of an offset.
const OFFSET_DIGITS: usize = 16;

/// Hexadecimal digits of a checksum.
const CHECKSUM_DIGITS: usize = 8;

/// The checksum of some bytes: CRC-32 as in Ethernet, gzip and Parquet.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut running = Running::default();
    running.update(bytes);
    running.finish()
}

/// Compares bytes with their checksum.
pub(super) fn verify(bytes: &[u8], expected: Option<u32>) -> Result<(), StorageError> {
    match expected == Some(checksum(bytes)) {
        true => Ok(()),
        false => Err(StorageError::unverified()),
    }
}

/// A checksum of bytes that come one after the other.
#[derive(Clone, Default)]
pub(super) struct Running(Hasher);

impl Running {
    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all of them.
    pub(super) fn finish(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// The checksums of the parts of a file.
#[derive(Debug)]
pub(super) struct PartChecksums {
    checksums: Vec<u32>,
    row_groups: Vec<Places>,
}

/// Where the checksums of a row group begin.
#[derive(Debug)]
struct Places {
    pages: usize,
    columns: usize,
    blooms: usize,
}

impl PartChecksums {
    /// Reads what [`Tally::text`] wrote, of the file that has this metadata and these pages of documents.
    ///
    /// # Errors
    /// When there are not as many as the file has parts.
    pub(super) fn parse(
        text: &str,
        metadata: &ParquetMetaData,
        pages: &[Vec<PageLocation>],
    ) -> Result<PartChecksums, StorageError> {
        let damaged = || StorageError::Layout("its checksums are not those of its parts".to_owned());
        let mut checksums = Vec::with_capacity(text.len() / CHECKSUM_DIGITS);
        for digits in text.as_bytes().chunks(CHECKSUM_DIGITS) {
            checksums.push(u32::try_from(parse_hexadecimal(digits, CHECKSUM_DIGITS).ok_or_else(damaged)?).unwrap_or(0));
        }
        let mut row_groups = Vec::with_capacity(metadata.num_row_groups());
        let mut at = 0;
        for (number, row_group) in metadata.row_groups().iter().enumerate() {
            let first_page = at;
            let columns = first_page + pages.get(number).map_or(0, Vec::len);
            let blooms = columns + row_group.num_columns().saturating_sub(1);
            at = blooms + bloom_ranges(row_group).count();
            row_groups.push(Places { pages: first_page, columns, blooms });
        }
        match at == checksums.len() {
            true => Ok(PartChecksums { checksums, row_groups }),
            false => Err(damaged()),
        }
    }

    /// The checksum of a page of documents.
    pub(super) fn page(&self, row_group: usize, page: usize) -> Option<u32> {
        self.checksums.get(self.row_groups.get(row_group)?.pages + page).copied()
    }

    /// The checksum of a column's chunk; not of the documents'.
    pub(super) fn column(&self, row_group: usize, column: usize) -> Option<u32> {
        self.checksums.get(self.row_groups.get(row_group)?.columns + column.checked_sub(1)?).copied()
    }

    /// The checksum of a column's bloom filter, where the column has one.
    pub(super) fn bloom(&self, row_group: usize, column: usize, metadata: &RowGroupMetaData) -> Option<u32> {
        let place = bloom_ranges(metadata).position(|(with_one, _)| with_one == column)?;
        self.checksums.get(self.row_groups.get(row_group)?.blooms + place).copied()
    }

    /// Every part with its checksum, in the order of the file.
    pub(super) fn parts(&self, metadata: &ParquetMetaData, pages: &[Vec<PageLocation>]) -> Vec<(Range<u64>, u32)> {
        let row_groups = metadata.row_groups().iter().enumerate();
        let ranges = row_groups.flat_map(|(number, row_group)| {
            let columns = row_group.columns().iter().skip(1).map(|column| {
                let (start, length) = column.byte_range();
                start..start + length
            });
            page_ranges(pages, number).chain(columns).chain(bloom_ranges(row_group).map(|(_, range)| range))
        });
        let mut parts: Vec<_> = ranges.zip(self.checksums.iter().copied()).collect();
        parts.sort_by_key(|(range, _)| range.start);
        parts
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.checksums) + size_of_val(&*self.row_groups)
    }
}

/// Where the pages of documents of a row group lie. The reader has checked that they lie in the file.
fn page_ranges(pages: &[Vec<PageLocation>], row_group: usize) -> impl Iterator<Item = Range<u64>> {
    let pages = pages.get(row_group).map_or(&[][..], Vec::as_slice);
    pages.iter().map(|page| page.offset as u64..page.offset as u64 + page.compressed_page_size as u64)
}

/// Where the bloom filters of a row group lie, with their columns.
fn bloom_ranges(row_group: &RowGroupMetaData) -> impl Iterator<Item = (usize, Range<u64>)> {
    row_group.columns().iter().enumerate().filter_map(|(column, chunk)| {
        let (offset, length) = (chunk.bloom_filter_offset()? as u64, chunk.bloom_filter_length()? as u64);
        Some((column, offset..offset + length))
    })
}

/// Takes the checksums of a file's parts while its bytes pass.
#[derive(Default)]
pub(super) struct Tally {
    /// Bytes that have passed.
    at: u64,
    running: Running,
    /// Where parts begin and end, in order, as far as bytes have not passed; `true` where one ends.
    cuts: VecDeque<(u64, bool)>,
    /// Where the part ends that was announced last.
    announced: u64,
    checksums: Vec<u32>,
    /// Checksums that come after those of the bytes that are still to pass.
    text: String,
}

impl Tally {
    /// Announces a part, before its first byte passes and after the parts before it.
    pub(super) fn expect(&mut self, part: Range<u64>) {
        if self.announced < part.start {
            self.cuts.push_back((part.start, false));
        }
        self.cuts.push_back((part.end, true));
        self.announced = part.end;
    }

    /// Takes bytes that pass.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while let Some((cut, ends)) = self.cuts.front().copied() {
            let length = usize::try_from(cut - self.at).unwrap_or(usize::MAX);
            if length > bytes.len() {
                break;
            }
            let (part, rest) = bytes.split_at(length);
            self.running.update(part);
            let checksum = std::mem::take(&mut self.running).finish();
            if ends {
                self.checksums.push(checksum);
            }
            (self.at, bytes) = (cut, rest);
            self.cuts.pop_front();
        }
        self.running.update(bytes);
        self.at += bytes.len() as u64;
    }

    /// Ends a row group all of whose announced parts have passed, and whose bloom filters have these checksums.
    pub(super) fn end_row_group(&mut self, blooms: &[u32]) {
        for checksum in self.checksums.drain(..).chain(blooms.iter().copied()) {
            // Writing to a text does not fail.
            let _ = write!(self.text, "{checksum:0CHECKSUM_DIGITS$x}");
        }
    }

    /// The value under [`CHECKSUMS_KEY`].
    pub(super) fn text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// The checksum of a file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// Offset of the first byte that it covers.
    pub start: u64,
    checksum: u32,
    /// Where its digits stand among the bytes that it was found in.
    digits: usize,
}

impl Seal {
    /// The value under [`SEAL_KEY`] before the bytes are there that it covers.
    pub(super) fn unset(start: u64) -> String {
        format!("{}{start:0OFFSET_DIGITS$x}:{:0CHECKSUM_DIGITS$x}", String::from_utf8_lossy(SEAL_MARK), 0)
    }

    /// Finds the seal in the end of a file. It is written last, so what entities hold cannot be mistaken for it.
    pub(super) fn find(end: &[u8]) -> Option<Seal> {
        let offset = memmem::rfind(end, SEAL_MARK)? + SEAL_MARK.len();
        let digits = offset + OFFSET_DIGITS + 1;
        let start = parse_hexadecimal(end.get(offset..)?, OFFSET_DIGITS)?;
        let checksum = u32::try_from(parse_hexadecimal(end.get(digits..)?, CHECKSUM_DIGITS)?).ok()?;
        Some(Seal { start, checksum, digits })
    }

    /// Whether it was found in what it was made of: all bytes from [`Seal::start`] on.
    pub(super) fn verifies(&self, end: &[u8]) -> bool {
        self.checksum_of(end) == Some(self.checksum)
    }

    /// Seals the end of a file that holds an unset seal. `false` when there is none.
    #[must_use]
    pub(super) fn set(end: &mut [u8]) -> bool {
        let Some((digits, checksum)) = Seal::find(end).and_then(|seal| Some((seal.digits, seal.checksum_of(end)?)))
        else {
            return false;
        };
        let text = format!("{checksum:0CHECKSUM_DIGITS$x}");
        end[digits..digits + CHECKSUM_DIGITS].copy_from_slice(text.as_bytes());
        true
    }

    fn checksum_of(&self, end: &[u8]) -> Option<u32> {
        let mut running = Running::default();
        running.update(end.get(..self.digits)?);
        running.update(&[b'0'; CHECKSUM_DIGITS]);
        running.update(end.get(self.digits + CHECKSUM_DIGITS..)?);
        Some(running.finish())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_sums_announced_parts_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for step in [1, 7, 100, 1_000] {
            let mut tally = Tally::default();
            for part in [4..100, 100..101, 101..500, 700..1_000] {
                tally.expect(part);
            }
            bytes.chunks(step).for_each(|chunk| tally.update(chunk));
            tally.end_row_group(&[7]);
            // One that is announced when the bytes between it and the one before have passed.
            bytes.chunks(step).for_each(|chunk| tally.update(chunk));
            tally.expect(2_000..2_500);
            bytes[..600].chunks(step).for_each(|chunk| tally.update(chunk));
            tally.end_row_group(&[]);
            let parts = [&bytes[4..100], &bytes[100..101], &bytes[101..500], &bytes[700..]];
            let expected: String = parts.iter().map(|part| format!("{:08x}", checksum(part))).collect();
            let after = checksum(&bytes[..500]);
            assert_eq!(tally.text(), format!("{expected}00000007{after:08x}"), "{step}");
        }
    }

    #[test]
    fn a_seal_holds_for_its_bytes_alone() {
        let mut end = format!("strata.seal:not one{}strata 1.0", Seal::unset(77)).into_bytes();
        assert!(Seal::set(&mut end));
        let seal = Seal::find(&end).expect("a seal");
        assert_eq!((seal.start, seal.verifies(&end)), (77, true));
        for at in 0..end.len() {
            let mut other = end.clone();
            other[at] ^= 1;
            assert!(!Seal::find(&other).is_some_and(|seal| seal.verifies(&other)), "byte {at}");
        }
        assert!(!Seal::set(&mut b"strata.seal:00".to_vec()));
    }
}

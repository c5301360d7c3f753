//! Texts in Parquet's delta encodings, written out in full.
//!
//! The library's decoders believe the counts in such a page, and a text of a few bytes can repeat a megabyte before it.
//! So pages are first written in the plain encoding, within a bound.
//!
//! Source: the Parquet format, "Encodings", `DELTA_BINARY_PACKED` (5), `DELTA_LENGTH_BYTE_ARRAY` (6),
//! `DELTA_BYTE_ARRAY` (7).

use super::thrift::{Malformed, Walker};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeltaError {
    Malformed,
    TooLong,
}

impl From<Malformed> for DeltaError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The plain form of values in `DELTA_LENGTH_BYTE_ARRAY`, or with `has_prefixes` in `DELTA_BYTE_ARRAY`, after `head`:
/// at most `values_max` of them, all `limit_bytes` together; each after its length, unless all have the same
/// (`has_lengths`).
///
/// Reads the lengths twice and keeps none of them, so only the result is held.
pub(super) fn to_plain(
    head: &[u8],
    values: &[u8],
    has_prefixes: bool,
    has_lengths: bool,
    values_max: usize,
    limit_bytes: usize,
) -> Result<Vec<u8>, DeltaError> {
    // Each length is four bytes of the result, or costs time as if it were.
    let values_max = values_max.min(limit_bytes / 4);
    let (mut prefixes, prefixed, after) = match has_prefixes {
        true => {
            let prefixes = Lengths::new(values, values_max)?;
            let (total, end) = prefixes.clone().sum()?;
            (Some(prefixes), total, end)
        }
        false => (None, 0, 0),
    };
    let values = &values[after..];
    let mut suffixes = Lengths::new(values, values_max)?;
    if prefixes.as_ref().is_some_and(|prefixes| prefixes.left != suffixes.left) {
        return Err(DeltaError::Malformed);
    }
    let (suffixed, end) = suffixes.clone().sum()?;
    let lengths = 4 * suffixes.left as u64;
    let size = (head.len() as u64).checked_add(prefixed).and_then(|size| size.checked_add(suffixed + lengths));
    let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= limit_bytes);
    let mut plain = Vec::with_capacity(size.ok_or(DeltaError::TooLong)?);
    plain.extend_from_slice(head);
    let mut data = &values[end..];
    let mut last = plain.len()..plain.len();
    while let Some(suffix) = suffixes.next()? {
        let prefix = match &mut prefixes {
            Some(prefixes) => prefixes.next()?.ok_or(DeltaError::Malformed)? as usize,
            None => 0,
        };
        let (suffix, rest) = data.split_at_checked(suffix as usize).ok_or(DeltaError::Malformed)?;
        data = rest;
        if prefix > last.len() {
            return Err(DeltaError::Malformed);
        }
        if has_lengths {
            let length = u32::try_from(prefix + suffix.len()).map_err(|_| DeltaError::TooLong)?;
            plain.extend_from_slice(&length.to_le_bytes());
        }
        let start = plain.len();
        plain.extend_from_within(last.start..last.start + prefix);
        plain.extend_from_slice(suffix);
        last = start..plain.len();
    }
    Ok(plain)
}

/// The lengths that `DELTA_BINARY_PACKED` data begins with, one after the other.
#[derive(Clone)]
struct Lengths<'a> {
    data: &'a [u8],
    walker: Walker<'a>,
    /// Miniblocks of a block, and values of a miniblock.
    minis: u64,
    per_mini: u64,
    left: usize,
    value: i64,
    is_first: bool,
    least: i64,
    /// Where the widths of the block's miniblocks that are to come stand.
    widths: std::ops::Range<usize>,
    width: u32,
    /// The bytes of the miniblock, the place in it, and how many places it has.
    packed: &'a [u8],
    place: u64,
}

impl<'a> Lengths<'a> {
    fn new(data: &'a [u8], values_max: usize) -> Result<Self, DeltaError> {
        let mut walker = Walker::new(data);
        let block = walker.varint()?;
        let minis = walker.varint()?;
        let count = walker.varint()?;
        let value = walker.number()?;
        if block == 0 || minis == 0 || block % 128 != 0 || block % minis != 0 || (block / minis) % 32 != 0 {
            return Err(DeltaError::Malformed);
        }
        let left = usize::try_from(count).ok().filter(|count| *count <= values_max).ok_or(DeltaError::TooLong)?;
        let per_mini = block / minis;
        Ok(Lengths {
            data,
            walker,
            minis,
            per_mini,
            left,
            value,
            is_first: true,
            least: 0,
            widths: 0..0,
            width: 0,
            packed: &[],
            place: per_mini,
        })
    }

    fn next(&mut self) -> Result<Option<u32>, DeltaError> {
        if self.left == 0 {
            return Ok(None);
        }
        if !std::mem::take(&mut self.is_first) {
            if self.place == self.per_mini {
                self.begin_miniblock()?;
            }
            let delta = unpack(self.packed, self.place as usize, self.width);
            self.place += 1;
            self.value = self.value.wrapping_add(self.least).wrapping_add(delta as i64);
        }
        self.left -= 1;
        let length = u32::try_from(self.value).ok().filter(|length| i32::try_from(*length).is_ok());
        length.map(Some).ok_or(DeltaError::Malformed)
    }

    fn begin_miniblock(&mut self) -> Result<(), DeltaError> {
        if self.widths.is_empty() {
            self.least = self.walker.number()?;
            let start = self.walker.position;
            self.walker.advance(self.minis)?;
            self.widths = start..self.walker.position;
        }
        self.width = u32::from(self.data[self.widths.start]);
        self.widths.start += 1;
        if self.width > 64 {
            return Err(DeltaError::Malformed);
        }
        let start = self.walker.position;
        self.walker.advance(self.per_mini.checked_mul(u64::from(self.width)).ok_or(DeltaError::Malformed)? / 8)?;
        self.packed = &self.data[start..self.walker.position];
        self.place = 0;
        Ok(())
    }

    fn sum(mut self) -> Result<(u64, usize), DeltaError> {
        let mut sum = 0;
        while let Some(length) = self.next()? {
            // As many as fit in memory, of 31 bits each.
            sum += u64::from(length);
        }
        Ok((sum, self.walker.position))
    }
}

/// The number of `width` bits, 64 at most, at an index, least significant bits first.
fn unpack(packed: &[u8], index: usize, width: u32) -> u64 {
    let first = index * width as usize;
    let bytes = &packed[first / 8..];
    let bytes = &bytes[..bytes.len().min(size_of::<u128>())];
    let mut number = [0; size_of::<u128>()];
    number[..bytes.len()].copy_from_slice(bytes);
    let number = u128::from_le_bytes(number) >> (first % 8);
    (number & ((1_u128 << width) - 1)) as u64
}

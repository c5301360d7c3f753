//! Converts byte arrays from Parquet's delta encodings to plain encoding, within a size limit. The library's decoders
//! trust the counts in a page, and a few bytes can repeat a megabyte of the previous value. Source: Parquet format,
//! "Encodings": `DELTA_BINARY_PACKED` (5), `DELTA_LENGTH_BYTE_ARRAY` (6), and `DELTA_BYTE_ARRAY` (7).

use super::thrift::{MalformedThrift, ThriftWalker};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeltaEncodingError {
    Malformed,
    TooLong,
}

impl From<MalformedThrift> for DeltaEncodingError {
    fn from(_: MalformedThrift) -> Self {
        Self::Malformed
    }
}

/// Decodes values in `DELTA_LENGTH_BYTE_ARRAY`, or in `DELTA_BYTE_ARRAY` if `has_prefixes`, and returns `head` followed
/// by the plain values. With `has_lengths`, each value follows its length; otherwise all values have the same length.
/// Returns [`DeltaEncodingError::TooLong`] for more than `max_values` values or more than `limit_bytes` bytes.
pub(super) fn decode_to_plain(
    head: &[u8],
    values: &[u8],
    has_prefixes: bool,
    has_lengths: bool,
    max_values: usize,
    limit_bytes: usize,
) -> Result<Vec<u8>, DeltaEncodingError> {
    // Each value counts as at least four bytes, even without a stored length, because it costs as much time to decode.
    let max_values = max_values.min(limit_bytes / 4);
    let (mut prefixes, prefix_bytes, after) = match has_prefixes {
        true => {
            let prefixes = DeltaLengths::new(values, max_values)?;
            let (total, end) = prefixes.clone().sum_and_end()?;
            (Some(prefixes), total, end)
        }
        false => (None, 0, 0),
    };
    let values = &values[after..];
    let mut suffixes = DeltaLengths::new(values, max_values)?;
    if prefixes.as_ref().is_some_and(|prefixes| prefixes.remaining != suffixes.remaining) {
        return Err(DeltaEncodingError::Malformed);
    }
    let (suffix_bytes, end) = suffixes.clone().sum_and_end()?;
    let length_bytes = 4 * suffixes.remaining as u64;
    let size =
        (head.len() as u64).checked_add(prefix_bytes).and_then(|size| size.checked_add(suffix_bytes + length_bytes));
    let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= limit_bytes);
    let mut plain = Vec::with_capacity(size.ok_or(DeltaEncodingError::TooLong)?);
    plain.extend_from_slice(head);
    let mut data = &values[end..];
    let mut last = plain.len()..plain.len();
    while let Some(suffix) = suffixes.next_length()? {
        let prefix = match &mut prefixes {
            Some(prefixes) => prefixes.next_length()?.ok_or(DeltaEncodingError::Malformed)? as usize,
            None => 0,
        };
        let (suffix, rest) = data.split_at_checked(suffix as usize).ok_or(DeltaEncodingError::Malformed)?;
        data = rest;
        if prefix > last.len() {
            return Err(DeltaEncodingError::Malformed);
        }
        if has_lengths {
            let length = u32::try_from(prefix + suffix.len()).map_err(|_| DeltaEncodingError::TooLong)?;
            plain.extend_from_slice(&length.to_le_bytes());
        }
        let start = plain.len();
        plain.extend_from_within(last.start..last.start + prefix);
        plain.extend_from_slice(suffix);
        last = start..plain.len();
    }
    Ok(plain)
}

#[derive(Clone)]
struct DeltaLengths<'a> {
    data: &'a [u8],
    walker: ThriftWalker<'a>,
    miniblocks_per_block: u64,
    values_per_miniblock: u64,
    remaining: usize,
    value: i64,
    is_first: bool,
    min_delta: i64,
    /// The positions of the bit widths of the remaining miniblocks in the current block.
    width_range: std::ops::Range<usize>,
    bit_width: u32,
    /// The packed data of the current miniblock, and the index of the next value in the miniblock.
    packed: &'a [u8],
    miniblock_index: u64,
}

impl<'a> DeltaLengths<'a> {
    fn new(data: &'a [u8], max_values: usize) -> Result<Self, DeltaEncodingError> {
        let mut walker = ThriftWalker::new(data);
        let block = walker.read_varint()?;
        let miniblocks_per_block = walker.read_varint()?;
        let count = walker.read_varint()?;
        let value = walker.read_zigzag()?;
        if block == 0
            || miniblocks_per_block == 0
            || block % 128 != 0
            || block % miniblocks_per_block != 0
            || (block / miniblocks_per_block) % 32 != 0
        {
            return Err(DeltaEncodingError::Malformed);
        }
        let remaining =
            usize::try_from(count).ok().filter(|count| *count <= max_values).ok_or(DeltaEncodingError::TooLong)?;
        let values_per_miniblock = block / miniblocks_per_block;
        Ok(DeltaLengths {
            data,
            walker,
            miniblocks_per_block,
            values_per_miniblock,
            remaining,
            value,
            is_first: true,
            min_delta: 0,
            width_range: 0..0,
            bit_width: 0,
            packed: &[],
            miniblock_index: values_per_miniblock,
        })
    }

    fn next_length(&mut self) -> Result<Option<u32>, DeltaEncodingError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        if !std::mem::take(&mut self.is_first) {
            if self.miniblock_index == self.values_per_miniblock {
                self.begin_miniblock()?;
            }
            let delta = read_packed_bits(self.packed, self.miniblock_index as usize, self.bit_width);
            self.miniblock_index += 1;
            self.value = self.value.wrapping_add(self.min_delta).wrapping_add(delta as i64);
        }
        self.remaining -= 1;
        let length = u32::try_from(self.value).ok().filter(|length| i32::try_from(*length).is_ok());
        length.map(Some).ok_or(DeltaEncodingError::Malformed)
    }

    fn begin_miniblock(&mut self) -> Result<(), DeltaEncodingError> {
        if self.width_range.is_empty() {
            self.min_delta = self.walker.read_zigzag()?;
            let start = self.walker.position;
            self.walker.advance(self.miniblocks_per_block)?;
            self.width_range = start..self.walker.position;
        }
        self.bit_width = u32::from(self.data[self.width_range.start]);
        self.width_range.start += 1;
        if self.bit_width > 64 {
            return Err(DeltaEncodingError::Malformed);
        }
        let start = self.walker.position;
        let bits = self.values_per_miniblock.checked_mul(u64::from(self.bit_width));
        self.walker.advance(bits.ok_or(DeltaEncodingError::Malformed)? / 8)?;
        self.packed = &self.data[start..self.walker.position];
        self.miniblock_index = 0;
        Ok(())
    }

    fn sum_and_end(mut self) -> Result<(u64, usize), DeltaEncodingError> {
        let mut sum = 0;
        while let Some(length) = self.next_length()? {
            // The sum cannot overflow: the number of lengths is limited by memory, and each has at most 31 bits.
            sum += u64::from(length);
        }
        Ok((sum, self.walker.position))
    }
}

/// Returns the `width`-bit number (at most 64 bits) at an index, least significant bits first.
fn read_packed_bits(packed: &[u8], index: usize, width: u32) -> u64 {
    let first = index * width as usize;
    let bytes = &packed[first / 8..];
    let bytes = &bytes[..bytes.len().min(size_of::<u128>())];
    let mut number = [0; size_of::<u128>()];
    number[..bytes.len()].copy_from_slice(bytes);
    let number = u128::from_le_bytes(number) >> (first % 8);
    (number & ((1_u128 << width) - 1)) as u64
}

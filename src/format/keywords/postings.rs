//! Posting lists: the encoded rows of a token.
//!
//! The number of rows in the list and in the segment determines the encoding and its length. Therefore, a list needs no
//! tag and no length, and lists are stored back to back.
//!
//! | Encoding | Bytes |
//! |---|---|
//! | all rows | none |
//! | Elias-Fano | low bits of each row, then the high bits in unary |
//! | complement | Elias-Fano of the missing rows, if they are fewer than half |
//! | bitmap | one bit for each row |
//!
//! Elias-Fano: P. Elias, "Efficient storage and retrieval by content and address of static files", 1974; R. M. Fano,
//! 1971. For `k` rows below `n`, each row has `l = floor(log2(n / k))` low bits. Row `i`, counted from 0, with the high
//! part `h` sets bit `h + i` of the unary part. The list takes at most `k * (l + 2)` bits.
//!
//! For example, the rows 5, 9, and 40 of 64 rows have `l = 4` low bits: 5, 9, and 8. Their high parts 0, 0, and 2 set
//! the bits 0, 1, and 4 of the unary part. The lowest bit of a byte is first, so the list is `95 38 01`.

use fixedbitset::{Block, FixedBitSet};

use crate::keywords::KeywordIndexError;

pub const MAX_POSTING_ROWS: usize = 1 << 24;
const PART_NAME: &str = "lists";

/// Returns the bytes of a list with `count` of `rows` rows.
pub fn encoded_posting_bytes(count: usize, rows: usize) -> usize {
    if count == 0 { 0 } else { choose_encoding(count, rows).1 }
}

/// `list` must ascend and be below `rows`, which is at most [`MAX_POSTING_ROWS`]. An empty list takes no bytes.
pub fn encode_postings(list: &[u32], rows: usize, out: &mut Vec<u8>) {
    if list.is_empty() {
        return;
    }
    let start = out.len();
    let (encoding, bytes) = choose_encoding(list.len(), rows);
    // `or_bits` accesses eight bytes at a time, so it needs eight more bytes than the list has.
    out.resize(start + bytes + 8, 0);
    let Some(to) = out.get_mut(start..) else { return };
    match encoding {
        PostingEncoding::AllRows => {}
        PostingEncoding::EliasFano => {
            encode_elias_fano(list.iter().map(|row| u64::from(*row)), EliasFanoLayout::new(list.len(), rows as u64), to)
        }
        PostingEncoding::Complement => {
            let mut listed = list.iter().copied().peekable();
            let missing = (0..rows as u32).filter(|row| listed.next_if_eq(row).is_none()).map(u64::from);
            encode_elias_fano(missing, EliasFanoLayout::new(rows - list.len(), rows as u64), to);
        }
        PostingEncoding::Bitmap => list.iter().for_each(|row| or_bits(to, *row as usize, 1)),
    }
    out.truncate(start + bytes);
}

/// Adds the rows of a list to `to`, whose length is the number of rows in the segment. `bytes` starts with the list of
/// `count` rows and may continue after it.
pub fn union_postings_into(bytes: &[u8], count: usize, to: &mut FixedBitSet) -> Result<(), KeywordIndexError> {
    let rows = to.len();
    if count == 0 {
        return Ok(());
    }
    if count > rows {
        return Err(KeywordIndexError::new(PART_NAME, "a posting list has more rows than the segment"));
    }
    let (encoding, length) = choose_encoding(count, rows);
    if bytes.len() < length {
        return Err(KeywordIndexError::new(PART_NAME, "a posting list is truncated"));
    }
    match encoding {
        PostingEncoding::AllRows => to.insert_range(..),
        PostingEncoding::EliasFano => union_elias_fano(bytes, EliasFanoLayout::new(count, rows as u64), to)?,
        PostingEncoding::Complement => {
            let mut missing = FixedBitSet::with_capacity(rows);
            union_elias_fano(bytes, EliasFanoLayout::new(rows - count, rows as u64), &mut missing)?;
            missing.toggle_range(..);
            to.union_with(&missing);
        }
        PostingEncoding::Bitmap => union_bitmap(bytes.get(..length).unwrap_or_default(), to),
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostingEncoding {
    AllRows,
    EliasFano,
    Complement,
    Bitmap,
}

/// The layout of an Elias-Fano list of `count` numbers, whose low bits are at most 56.
#[derive(Clone, Copy)]
pub(super) struct EliasFanoLayout {
    count: usize,
    low_bits: usize,
    high_bits: usize,
}

impl EliasFanoLayout {
    /// `end`: the numbers are smaller.
    pub(super) fn new(count: usize, end: u64) -> EliasFanoLayout {
        let low_bits = (end / count.max(1) as u64).checked_ilog2().unwrap_or(0) as usize;
        EliasFanoLayout { count, low_bits, high_bits: (end.saturating_sub(1) >> low_bits) as usize + count }
    }

    pub(super) fn encoded_bytes(self) -> usize {
        (self.count * self.low_bits + self.high_bits).div_ceil(8)
    }
}

fn choose_encoding(count: usize, rows: usize) -> (PostingEncoding, usize) {
    if count >= rows {
        return (PostingEncoding::AllRows, 0);
    }
    let bitmap = rows.div_ceil(8);
    let (encoding, encoded_rows) = if count > rows / 2 {
        (PostingEncoding::Complement, rows - count)
    } else {
        (PostingEncoding::EliasFano, count)
    };
    let bytes = EliasFanoLayout::new(encoded_rows, rows as u64).encoded_bytes();
    if bytes < bitmap { (encoding, bytes) } else { (PostingEncoding::Bitmap, bitmap) }
}

/// `to` must have eight bytes more than the list takes.
pub(super) fn encode_elias_fano(list: impl Iterator<Item = u64>, layout: EliasFanoLayout, to: &mut [u8]) {
    let EliasFanoLayout { count, low_bits, .. } = layout;
    let unary = count * low_bits;
    let mask = (1u64 << low_bits) - 1;
    for (index, number) in list.enumerate() {
        or_bits(to, index * low_bits, number & mask);
        or_bits(to, unary + (number >> low_bits) as usize + index, 1);
    }
}

/// Adds the rows of a bitmap with the lowest bit of each byte first. Bits after the last row are ignored.
fn union_bitmap(bytes: &[u8], to: &mut FixedBitSet) {
    const BLOCK_BYTES: usize = size_of::<Block>();
    let last_bits = to.len() % (8 * BLOCK_BYTES);
    let blocks = to.as_mut_slice();
    for (block, bytes) in blocks.iter_mut().zip(bytes.chunks(BLOCK_BYTES)) {
        let mut padded = [0; BLOCK_BYTES];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        *block |= Block::from_le_bytes(padded);
    }
    if last_bits > 0
        && let Some(last) = blocks.last_mut()
    {
        *last &= (1 << last_bits) - 1;
    }
}

fn union_elias_fano(bytes: &[u8], layout: EliasFanoLayout, to: &mut FixedBitSet) -> Result<(), KeywordIndexError> {
    decode_elias_fano(bytes, layout, |row| {
        if row >= to.len() as u64 {
            return Err(KeywordIndexError::new(PART_NAME, "a posting list contains a row that does not exist"));
        }
        to.insert(row as usize);
        Ok(())
    })
}

/// Calls `visit` with each number of a list. `bytes` starts with the list and may continue after it.
#[inline]
pub(super) fn decode_elias_fano(
    bytes: &[u8],
    layout: EliasFanoLayout,
    mut visit: impl FnMut(u64) -> Result<(), KeywordIndexError>,
) -> Result<(), KeywordIndexError> {
    const BITS_PER_LOAD: usize = 56;
    let EliasFanoLayout { count, low_bits, high_bits } = layout;
    let unary = count * low_bits;
    let mask = (1u64 << low_bits) - 1;
    let mut index = 0;
    let mut base = 0;
    while index < count {
        if base >= high_bits {
            return Err(KeywordIndexError::new(PART_NAME, "a list has fewer numbers than its count"));
        }
        let mut high = load_bits(bytes, unary + base) & ((1 << BITS_PER_LOAD) - 1);
        while high != 0 && index < count {
            let position = base + high.trailing_zeros() as usize;
            high &= high - 1;
            // In the unary part of an Elias-Fano list, positions of set bits ascend, so `position` is at least the
            // number of set bits before it.
            visit(((position - index) as u64) << low_bits | load_bits(bytes, index * low_bits) & mask)?;
            index += 1;
        }
        base += BITS_PER_LOAD;
    }
    Ok(())
}

/// Sets the bits of `value`, at most 56, from `bit` on. `to` must have eight bytes from there.
#[inline]
fn or_bits(to: &mut [u8], bit: usize, value: u64) {
    if let Some(word) = to.get_mut(bit / 8..).and_then(<[u8]>::first_chunk_mut::<8>) {
        *word = (u64::from_le_bytes(*word) | value << (bit % 8)).to_le_bytes();
    }
}

/// Returns at least 56 bits from `bit` on. Bits after the end are 0.
#[inline]
fn load_bits(bytes: &[u8], bit: usize) -> u64 {
    let from = bytes.get(bit / 8..).unwrap_or_default();
    let word = match from.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        }
    };
    word >> (bit % 8)
}

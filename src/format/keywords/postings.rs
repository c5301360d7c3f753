//! The rows of an entry as bytes: a posting list.
//!
//! Of the ways below, the number of an entry's rows and of all rows decides which one a list takes, and its length.
//! So a list needs neither a mark nor a length, and lists lie back to back.
//!
//! | Way | Bytes |
//! |---|---|
//! | all rows | none |
//! | Elias-Fano | of each row the low bits; then the high bits in unary |
//! | the complement | Elias-Fano of the rows that are missing: there are fewer than half |
//! | a bitmap | a bit for each row |
//!
//! Elias-Fano: P. Elias, "Efficient storage and retrieval by content and address of static files", 1974; R. M. Fano,
//! 1971. Of `k` rows below `n`, it keeps `l = log2(n / k)` low bits each, rounded down. Row `i`, counted from 0, with
//! the high part `h` sets the bit `h + i` of the unary part. That makes at most `k * (l + 2)` bits.

use fixedbitset::{Block, FixedBitSet};

use crate::keywords::Damaged;

const PART: &str = "lists";

pub const MAX_ROWS: usize = 1 << 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    All,
    EliasFano,
    Complement,
    Bitmap,
}

/// How Elias-Fano lays out so many of so many rows. There is one.
#[derive(Clone, Copy)]
struct Geometry {
    count: usize,
    low_bits: usize,
    high_bits: usize,
}

impl Geometry {
    fn new(count: usize, rows: usize) -> Geometry {
        let low_bits = (rows / count.max(1)).checked_ilog2().unwrap_or(0) as usize;
        Geometry { count, low_bits, high_bits: (rows.saturating_sub(1) >> low_bits) + count }
    }

    fn bytes(self) -> usize {
        (self.count * self.low_bits + self.high_bits).div_ceil(8)
    }
}

fn way(count: usize, rows: usize) -> (Way, usize) {
    if count >= rows {
        return (Way::All, 0);
    }
    let bitmap = rows.div_ceil(8);
    let (way, kept) = if count > rows / 2 { (Way::Complement, rows - count) } else { (Way::EliasFano, count) };
    let bytes = Geometry::new(kept, rows).bytes();
    if bytes < bitmap { (way, bytes) } else { (Way::Bitmap, bitmap) }
}

pub fn encoded_bytes(count: usize, rows: usize) -> usize {
    if count == 0 { 0 } else { way(count, rows).1 }
}

/// Appends the list of `list`: ascending, each below `rows`, which is at most [`MAX_ROWS`]. An empty list has no bytes.
pub fn encode(list: &[u32], rows: usize, out: &mut Vec<u8>) {
    if list.is_empty() {
        return;
    }
    let start = out.len();
    let (way, bytes) = way(list.len(), rows);
    // Bits are written eight bytes at a time.
    out.resize(start + bytes + 8, 0);
    let Some(to) = out.get_mut(start..) else { return };
    match way {
        Way::All => {}
        Way::EliasFano => encode_elias_fano(list.iter().copied(), Geometry::new(list.len(), rows), to),
        Way::Complement => {
            let mut listed = list.iter().copied().peekable();
            let missing = (0..rows as u32).filter(|row| listed.next_if_eq(row).is_none());
            encode_elias_fano(missing, Geometry::new(rows - list.len(), rows), to);
        }
        Way::Bitmap => list.iter().for_each(|row| or_bits(to, *row as usize, 1)),
    }
    out.truncate(start + bytes);
}

fn encode_elias_fano(list: impl Iterator<Item = u32>, geometry: Geometry, to: &mut [u8]) {
    let Geometry { count, low_bits, .. } = geometry;
    let unary = count * low_bits;
    let mask = (1u64 << low_bits) - 1;
    for (index, row) in list.enumerate() {
        or_bits(to, index * low_bits, u64::from(row) & mask);
        or_bits(to, unary + (row as usize >> low_bits) + index, 1);
    }
}

/// Sets the bits of `value`, which has at most 32, from a bit on. `to` has eight bytes from there.
#[inline]
fn or_bits(to: &mut [u8], bit: usize, value: u64) {
    if let Some(word) = to.get_mut(bit / 8..).and_then(<[u8]>::first_chunk_mut::<8>) {
        *word = (u64::from_le_bytes(*word) | value << (bit % 8)).to_le_bytes();
    }
}

/// 56 bits from a bit on, and maybe some more; those past the end are 0.
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

/// Adds the rows of a list to `to`. `bytes` begins with the list of `count` rows, and may go on behind it.
pub fn union_into(bytes: &[u8], count: usize, to: &mut FixedBitSet) -> Result<(), Damaged> {
    let rows = to.len();
    if count == 0 {
        return Ok(());
    }
    if count > rows {
        return Err(Damaged::new(PART, "a posting list has more rows than the segment"));
    }
    let (way, length) = way(count, rows);
    if bytes.len() < length {
        return Err(Damaged::new(PART, "a posting list is truncated"));
    }
    match way {
        Way::All => to.insert_range(..),
        Way::EliasFano => decode_elias_fano(bytes, Geometry::new(count, rows), to)?,
        Way::Complement => {
            let mut missing = FixedBitSet::with_capacity(rows);
            decode_elias_fano(bytes, Geometry::new(rows - count, rows), &mut missing)?;
            missing.toggle_range(..);
            to.union_with(&missing);
        }
        Way::Bitmap => union_bitmap(bytes.get(..length).unwrap_or_default(), to),
    }
    Ok(())
}

/// Adds the rows of a bitmap, in which the lowest bit of a byte comes first. Ignores bits past the last row.
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

fn decode_elias_fano(bytes: &[u8], geometry: Geometry, to: &mut FixedBitSet) -> Result<(), Damaged> {
    const STEP: usize = 56;
    let Geometry { count, low_bits, high_bits } = geometry;
    let unary = count * low_bits;
    let mask = (1u64 << low_bits) - 1;
    let mut index = 0;
    let mut base = 0;
    while index < count {
        if base >= high_bits {
            return Err(Damaged::new(PART, "a posting list has fewer rows than its count"));
        }
        let mut high = load_bits(bytes, unary + base) & ((1 << STEP) - 1);
        while high != 0 && index < count {
            let position = base + high.trailing_zeros() as usize;
            high &= high - 1;
            // Bits at ascending places: the place is never below the number of bits before it.
            let row = ((position - index) << low_bits) | (load_bits(bytes, index * low_bits) & mask) as usize;
            if row >= to.len() {
                return Err(Damaged::new(PART, "a posting list contains a row that does not exist"));
            }
            to.insert(row);
            index += 1;
        }
        base += STEP;
    }
    Ok(())
}

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
    /// Bits of the unary part.
    high_bits: usize,
}

impl Geometry {
    fn of(count: usize, rows: usize) -> Geometry {
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
    let bytes = Geometry::of(kept, rows).bytes();
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
        Way::EliasFano => encode_elias_fano(list.iter().copied(), Geometry::of(list.len(), rows), to),
        Way::Complement => {
            let mut listed = list.iter().copied().peekable();
            let missing = (0..rows as u32).filter(|row| listed.next_if_eq(row).is_none());
            encode_elias_fano(missing, Geometry::of(rows - list.len(), rows), to);
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
        Way::EliasFano => decode_elias_fano(bytes, Geometry::of(count, rows), to)?,
        Way::Complement => {
            let mut missing = FixedBitSet::with_capacity(rows);
            decode_elias_fano(bytes, Geometry::of(rows - count, rows), &mut missing)?;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows, and some of them at any density.
    fn lists() -> impl Strategy<Value = (usize, Vec<u32>)> {
        (1usize..3_000, 0u32..=1_000, any::<u64>()).prop_map(|(rows, share, seed)| {
            let mut state = seed | 1;
            let list = (0..rows as u32).filter(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % 1_000 < u64::from(share)
            });
            (rows, list.collect())
        })
    }

    fn bitmap(list: &[u32], rows: usize) -> FixedBitSet {
        let mut bitmap = FixedBitSet::with_capacity(rows);
        list.iter().for_each(|row| bitmap.insert(*row as usize));
        bitmap
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn what_is_encoded_is_decoded((rows, list) in lists(), behind in proptest::collection::vec(any::<u8>(), 0..12), set in any::<u64>()) {
            let mut bytes = vec![0xAB];
            encode(&list, rows, &mut bytes);
            prop_assert_eq!(bytes.len() - 1, encoded_bytes(list.len(), rows));
            prop_assert!(bytes.len() - 1 <= rows.div_ceil(8));
            bytes.extend(behind);
            let mut union = FixedBitSet::with_capacity(rows);
            union_into(&bytes[1..], list.len(), &mut union).expect("a list");
            let expected = bitmap(&list, rows);
            prop_assert_eq!(&union, &expected);
            let others: Vec<u32> = (0..rows as u32).filter(|row| set >> (row % 64) & 1 == 1).collect();
            let others = bitmap(&others, rows);
            let mut more = others.clone();
            union_into(&bytes[1..], list.len(), &mut more).expect("a list");
            for row in 0..rows {
                prop_assert_eq!(more.contains(row), others.contains(row) || expected.contains(row));
            }
        }

        #[test]
        fn damage_is_an_error_or_other_rows(bytes in proptest::collection::vec(any::<u8>(), 0..400), rows in 0usize..3_000, count in any::<usize>(), small in any::<bool>()) {
            let count = if small { count % (rows + 2) } else { count };
            let mut to = FixedBitSet::with_capacity(rows);
            if union_into(&bytes, count, &mut to).is_ok() {
                prop_assert!(to.ones().all(|row| row < rows));
            }
        }

        #[test]
        fn a_list_that_is_cut_off_is_an_error((rows, list) in lists()) {
            let mut bytes = Vec::new();
            encode(&list, rows, &mut bytes);
            if bytes.pop().is_some() {
                prop_assert!(union_into(&bytes, list.len(), &mut FixedBitSet::with_capacity(rows)).is_err());
            }
        }
    }

    #[test]
    fn sizes() {
        let rows = 131_072;
        let check = |count, bytes| assert_eq!(encoded_bytes(count, rows), bytes, "{count} rows");
        check(0, 0);
        check(1, 3);
        check(2, 5);
        check(10, 20);
        check(1_000, 1_128);
        check(20_000, 11_596);
        check(65_536, 16_384);
        check(131_071, 3);
        check(131_072, 0);
        // At every count no more than a bitmap, and no longer than the complement.
        for count in (1..rows).step_by(97) {
            assert!(encoded_bytes(count, rows) <= rows / 8);
        }
    }

    #[test]
    fn every_count_of_few_rows() {
        for rows in 1..40usize {
            for count in 0..=rows {
                for from in [0, rows - count] {
                    let list: Vec<u32> = (from as u32..(from + count) as u32).collect();
                    let mut bytes = Vec::new();
                    encode(&list, rows, &mut bytes);
                    let mut decoded = FixedBitSet::with_capacity(rows);
                    union_into(&bytes, count, &mut decoded).expect("a list");
                    assert_eq!(decoded, bitmap(&list, rows), "{count} of {rows} from {from}");
                }
            }
        }
    }
}

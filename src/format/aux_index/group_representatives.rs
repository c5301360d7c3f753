//! Group representatives: the first entity of each group of `dedup`.
//!
//! For example, if the keys of four entities are `a`, `b`, `a`, and `c`, the representatives are the positions 0, 1,
//! and 3.

use std::ops::Range;

use arrow::buffer::BooleanBuffer;

use super::AuxIndex;

const SCAN_WINDOW_BITS: usize = 1 << 16;

/// Positions of the first entity of each group, ascending: 4 bytes per group, or one bit per entity if that is less.
#[derive(Debug)]
pub enum GroupRepresentatives {
    Positions(Vec<u32>),
    Bitmap(BooleanBuffer, usize),
}

impl GroupRepresentatives {
    pub fn from_bits(bits: BooleanBuffer) -> GroupRepresentatives {
        let count = bits.count_set_bits();
        if count * size_of::<u32>() <= bits.len() / 8 {
            return GroupRepresentatives::Positions(bits.set_indices().map(|position| position as u32).collect());
        }
        GroupRepresentatives::Bitmap(bits, count)
    }

    pub fn count(&self) -> usize {
        match self {
            GroupRepresentatives::Positions(positions) => positions.len(),
            GroupRepresentatives::Bitmap(_, count) => *count,
        }
    }

    pub fn positions_in(&self, positions: Range<usize>) -> Vec<u64> {
        match self {
            GroupRepresentatives::Positions(list) => {
                let index_of = |end: usize| list.partition_point(|position| (*position as usize) < end);
                list[index_of(positions.start)..index_of(positions.end)].iter().copied().map(u64::from).collect()
            }
            GroupRepresentatives::Bitmap(bits, _) => {
                let start = positions.start.min(bits.len());
                let end = positions.end.min(bits.len());
                bits.slice(start, end - start).set_indices().map(|index| (start + index) as u64).collect()
            }
        }
    }

    pub fn skip_and_take(&self, mut skip: usize, limit: usize) -> Vec<u64> {
        let bits = match self {
            GroupRepresentatives::Positions(list) => {
                return list.iter().skip(skip).take(limit).copied().map(u64::from).collect();
            }
            GroupRepresentatives::Bitmap(bits, _) => bits,
        };
        let mut positions = Vec::new();
        for start in (0..bits.len()).step_by(SCAN_WINDOW_BITS) {
            let window = bits.slice(start, SCAN_WINDOW_BITS.min(bits.len() - start));
            let count = window.count_set_bits();
            if skip >= count {
                skip -= count;
                continue;
            }
            let indices = window.set_indices().skip(std::mem::take(&mut skip)).take(limit - positions.len());
            positions.extend(indices.map(|index| (start + index) as u64));
            if positions.len() == limit {
                break;
            }
        }
        positions
    }
}

impl AuxIndex for GroupRepresentatives {
    const MAX_BYTES_PER_ENTITY: u64 = 1;

    fn memory_bytes(&self) -> usize {
        match self {
            GroupRepresentatives::Positions(positions) => positions.capacity() * size_of::<u32>(),
            GroupRepresentatives::Bitmap(bits, _) => bits.inner().capacity(),
        }
    }
}

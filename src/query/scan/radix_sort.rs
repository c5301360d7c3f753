//! Positions in the order of ranks: a radix sort, from the least digit on. Its cost follows the bits in which the ranks
//! differ, which are few for most numbers.

/// Bits of a digit: the places of its buckets fit the first cache.
const DIGIT_BITS: u32 = 11;

const BUCKETS: usize = 1 << DIGIT_BITS;

/// Entries that are worked on between two points of giving way: for a millisecond at most.
const STRETCH: usize = 1 << 16;

pub(super) struct ByRank {
    /// By rank, then ascending.
    pub positions: Vec<u32>,
    /// A bit for each place in `positions`: set where another rank begins.
    pub starts: Vec<u64>,
}

/// Sorts positions by their ranks, of which there are fewer than 2³². Gives way often.
///
/// Takes 20 bytes for each, the ranks among them, where the bits from the first to the last in which ranks differ fit
/// 64 with those of a position, and 32 otherwise; and two passes for each digit of these bits.
pub(super) async fn by_rank(mut ranks: Vec<u64>) -> ByRank {
    let differing = differing_bits(&ranks).await;
    let low = differing.trailing_zeros().min(63);
    let high = u64::BITS - differing.leading_zeros();
    let position_bits = usize::BITS - ranks.len().saturating_sub(1).leading_zeros();
    if high.saturating_sub(low) + position_bits > u64::BITS {
        let mut entries: Vec<(u64, u32)> = Vec::with_capacity(ranks.len());
        for stretch in ranks.chunks(STRETCH) {
            entries.extend(stretch.iter().copied().zip(entries.len() as u32..));
            tokio::task::yield_now().await;
        }
        drop(ranks);
        let sorted = sorted(entries, differing, |(rank, _)| *rank).await;
        return places(&sorted, |(rank, _)| *rank, |(_, position)| *position).await;
    }
    // Both in one number. Bits that are the same in all may be lost.
    let mut positions = 0..;
    for stretch in ranks.chunks_mut(STRETCH) {
        for (rank, position) in stretch.iter_mut().zip(&mut positions) {
            *rank = *rank >> low << position_bits | position;
        }
        tokio::task::yield_now().await;
    }
    let sorted = sorted(ranks, differing >> low << position_bits, |entry| *entry).await;
    let of_position = (1_u64 << position_bits) - 1;
    places(&sorted, |entry| entry & !of_position, |entry| (entry & of_position) as u32).await
}

async fn differing_bits(ranks: &[u64]) -> u64 {
    let (mut any, mut all) = (0, u64::MAX);
    for stretch in ranks.chunks(STRETCH) {
        for rank in stretch {
            any |= rank;
            all &= rank;
        }
        tokio::task::yield_now().await;
    }
    any & !all
}

/// Sorts by the bits of keys that differ; entries of equal ones keep their order.
async fn sorted<T: Copy + Default>(mut entries: Vec<T>, mut differing: u64, key: impl Fn(&T) -> u64) -> Vec<T> {
    let mut next = if differing == 0 { Vec::new() } else { vec![T::default(); entries.len()] };
    while differing != 0 {
        let shift = differing.trailing_zeros();
        let digit = |entry: &T| (key(entry) >> shift) as usize & (BUCKETS - 1);
        let mut places = vec![0_u32; BUCKETS];
        for stretch in entries.chunks(STRETCH) {
            for entry in stretch {
                places[digit(entry)] += 1;
            }
            tokio::task::yield_now().await;
        }
        let mut start = 0;
        for place in &mut places {
            start += std::mem::replace(place, start);
        }
        for stretch in entries.chunks(STRETCH) {
            for entry in stretch {
                let place = &mut places[digit(entry)];
                next[*place as usize] = *entry;
                *place += 1;
            }
            tokio::task::yield_now().await;
        }
        std::mem::swap(&mut entries, &mut next);
        differing &= !((BUCKETS as u64 - 1) << shift);
    }
    entries
}

/// The positions of sorted entries, and where their ranks begin.
async fn places<T>(sorted: &[T], rank: impl Fn(&T) -> u64, position: impl Fn(&T) -> u32) -> ByRank {
    let mut positions = Vec::with_capacity(sorted.len());
    let mut starts = Vec::with_capacity(sorted.len().div_ceil(64));
    let mut last = None;
    for stretch in sorted.chunks(STRETCH) {
        for word in stretch.chunks(64) {
            let mut bits = 0;
            for (place, entry) in word.iter().enumerate() {
                let rank = Some(rank(entry));
                bits |= u64::from(rank != last) << place;
                last = rank;
            }
            starts.push(bits);
            positions.extend(word.iter().map(&position));
        }
        tokio::task::yield_now().await;
    }
    ByRank { positions, starts }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_come_by_rank_and_those_of_one_rank_as_they_were() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ranks = prop_oneof![
            prop::collection::vec(any::<u64>(), 0..300),
            prop::collection::vec(0..4_u64, 0..300),
            prop::collection::vec(prop_oneof![Just(u64::MAX), Just(0), any::<u64>()], 0..300),
            prop::collection::vec((0..2_000_u64).prop_map(|rank| 1 << 61 | rank << 40), 0..300),
            (any::<u64>(), 0..300_usize).prop_map(|(rank, count)| vec![rank; count]),
        ];
        proptest!(|(ranks in ranks, repeats in 1..300_usize)| {
            let ranks: Vec<u64> = ranks.iter().cycle().take(ranks.len() * repeats).copied().collect();
            let mut expected: Vec<u32> = (0..ranks.len() as u32).collect();
            expected.sort_by_key(|position| ranks[*position as usize]);
            let ByRank { positions, starts } = runtime.block_on(by_rank(ranks.clone()));
            prop_assert!(positions == expected, "{:?}", positions);
            for (place, position) in positions.iter().enumerate() {
                let begins = place == 0 || ranks[positions[place - 1] as usize] != ranks[*position as usize];
                prop_assert_eq!(starts[place / 64] >> (place % 64) & 1 == 1, begins, "place {}", place);
            }
            prop_assert_eq!(starts.len(), positions.len().div_ceil(64));
        });
    }
}

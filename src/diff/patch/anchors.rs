//! Divides two long lists at anchors: entities that both lists have in the same surroundings.
//!
//! Problem: a longest common subsequence needs memory for both lists. But lists of any length can be divided at a few
//! pairs of equal entities, and the parts aligned one after the other.
//!
//! The canonical hash decides whether an entity is sampled, so that both lists sample the same entities: 1 of 2^n, such
//! that a region has about `max_samples` of them. An anchor is a sampled entity whose surroundings (the entity and
//! [`CONTEXT_ENTITIES`] entities on each side) occur exactly once in each list, so that an entity that moved is no
//! anchor. Of these, the longest list that ascends in both versions is used.

use std::ops::Range;

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::reader::VersionReader;
use strata_json::EntityHash;
use strata_query::QueryError;
use strata_query::tracked_vec::TrackedVec;

use super::builder::HashCursor;

const CONTEXT_ENTITIES: usize = 4;
const WINDOW_ENTITIES: usize = 2 * CONTEXT_ENTITIES + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    surroundings: u64,
    position: u64,
}

/// Returns the positions of the anchors in both regions, ascending in both. If the hashes are evenly distributed, each
/// region has at most about `max_samples` samples.
pub(super) async fn find_anchors(
    readers: &[VersionReader; 2],
    regions: &[Range<u64>; 2],
    max_samples: u64,
    reservation: &MemoryReservation,
) -> Result<Vec<[u64; 2]>, QueryError> {
    let longest = regions.iter().map(|region| region.end - region.start).max().unwrap_or_default();
    let sampled_bits = longest.div_ceil(max_samples.max(1)).next_power_of_two().trailing_zeros();
    let old = find_samples(&readers[0], &regions[0], sampled_bits, reservation).await?;
    let new = find_samples(&readers[1], &regions[1], sampled_bits, reservation).await?;
    let mut common = TrackedVec::new(reservation);
    let mut new_samples = new.iter().peekable();
    for sample in old.iter() {
        while new_samples.next_if(|new| new.surroundings < sample.surroundings).is_some() {}
        if let Some(new) = new_samples.peek().filter(|new| new.surroundings == sample.surroundings) {
            common.try_push([sample.position, new.position])?;
        }
    }
    common.as_mut_slice().sort_unstable();
    let mut links: TrackedVec<[u32; 2]> = TrackedVec::new(reservation);
    links.try_extend(std::iter::repeat_n([0; 2], common.len()))?;
    Ok(longest_ascending(&common, links.as_mut_slice()))
}

/// Returns the samples of a region whose surroundings occur once, ordered by their surroundings.
async fn find_samples(
    reader: &VersionReader,
    region: &Range<u64>,
    sampled_bits: u32,
    reservation: &MemoryReservation,
) -> Result<TrackedVec<Sample>, QueryError> {
    let mut samples: TrackedVec<Sample> = TrackedVec::new(reservation);
    let mut hashes = HashCursor::new(reader);
    let mut window = [EntityHash::default(); WINDOW_ENTITIES];
    for position in region.clone() {
        window.rotate_left(1);
        window[WINDOW_ENTITIES - 1] = hashes.hash_at(position).await?;
        let is_full = position - region.start >= WINDOW_ENTITIES as u64 - 1;
        let number = low_bits(&window[CONTEXT_ENTITIES]);
        if is_full && number.trailing_zeros() >= sampled_bits {
            let position = position - CONTEXT_ENTITIES as u64;
            samples.try_push(Sample { surroundings: mix(&window), position })?;
        }
    }
    samples.as_mut_slice().sort_unstable();
    let mut unique = TrackedVec::new(reservation);
    for same in samples.chunk_by(|one, other| one.surroundings == other.surroundings) {
        if let [sample] = same {
            unique.try_push(*sample)?;
        }
    }
    Ok(unique)
}

fn low_bits(hash: &EntityHash) -> u64 {
    hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Returns a hash of the hashes in a window. All processes must compute the same number, so it has no seed.
fn mix(window: &[EntityHash]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    window.iter().fold(0, |mixed: u64, hash| (mixed.rotate_left(23) ^ low_bits(hash)).wrapping_mul(MULTIPLIER))
}

/// Returns a longest list of pairs that ascends in both positions. `pairs` ascend in the first position. `links` must
/// be as long as `pairs`.
fn longest_ascending(pairs: &[[u64; 2]], links: &mut [[u32; 2]]) -> Vec<[u64; 2]> {
    // `links[length][0]` is the last pair of the list of this length that ends earliest, and `links[index][1]` is the
    // pair before `index`.
    let mut lists = 0;
    for (index, [_, new]) in pairs.iter().enumerate() {
        let length = links[..lists].partition_point(|[last, _]| pairs[*last as usize][1] < *new);
        links[index][1] = length.checked_sub(1).map_or(u32::MAX, |length| links[length][0]);
        links[length][0] = index as u32;
        lists = lists.max(length + 1);
    }
    let mut ascending = Vec::with_capacity(lists);
    let mut next = lists.checked_sub(1).map_or(u32::MAX, |length| links[length][0]);
    while let Some(pair) = pairs.get(next as usize) {
        ascending.push(*pair);
        next = links[next as usize][1];
    }
    ascending.reverse();
    ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_ascending_list_is_found() {
        let check = |news: &[u64], expected: &[u64]| {
            let pairs: Vec<[u64; 2]> = news.iter().enumerate().map(|(old, new)| [old as u64, *new]).collect();
            let ascending = longest_ascending(&pairs, &mut vec![[0; 2]; pairs.len()]);
            assert!(ascending.is_sorted());
            assert_eq!(ascending.iter().map(|pair| pair[1]).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[7], &[7]);
        check(&[3, 2, 1], &[1]);
        check(&[5, 1, 2, 9, 3, 4, 8], &[1, 2, 3, 4, 8]);
    }
}

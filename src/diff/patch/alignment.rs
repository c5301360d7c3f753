//! Aligns two lists of keys: finds a longest common subsequence (LCS).
//!
//! For example, the LCS of `A B C A` and `B A C A` is `B C A`. In the order of the lists, its pairs of indexes are
//! `(1, 0)`, `(2, 2)` and `(3, 3)`.
//!
//! 1. The common prefix and suffix always belong to an LCS.
//! 2. Keys that only one list has are removed.
//! 3. If few keys occur several times, the algorithm of Hunt and Szymanski (1977) finds an LCS exactly, in O(p log p)
//!    for p pairs of equal keys. It is the algorithm of patience diffs, but not only for unique keys.
//! 4. Otherwise, the algorithm of Myers ([`super::myers`]) needs no list of pairs, and is exact below a limit of edits.

use datafusion::execution::memory_pool::MemoryReservation;
use hashbrown::HashMap;
use strata_json::EntityHash;
use strata_query::QueryError;

use super::myers;

/// Maximum number of pairs of equal keys for the algorithm of Hunt and Szymanski.
const MAX_EQUAL_PAIRS: u64 = 1 << 20;

const PAIR_BYTES: usize = size_of::<ChainNode>();

/// Bytes per key: the symbols of both steps, the hash table, and the indexes of the result.
const KEY_BYTES: usize = 72;

/// Steps of a computation before it yields to the executor: a fraction of a millisecond.
pub(super) const YIELD_EVERY_STEPS: usize = 1 << 16;

/// The indexes of two equal items in the old list and in the new list.
pub(super) type IndexPair = [u32; 2];

/// Returns the pairs of a longest common subsequence, in order. Memory for the computation is reserved from the pool of
/// `reservation`. Lists must have fewer than 2³² keys.
pub(super) async fn align(
    old: &[EntityHash],
    new: &[EntityHash],
    reservation: &MemoryReservation,
) -> Result<Vec<IndexPair>, QueryError> {
    let memory = reservation.new_empty();
    memory.try_grow((old.len() + new.len()) * KEY_BYTES)?;
    let prefix = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let old_rest = &old[prefix..];
    let new_rest = &new[prefix..];
    let suffix = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let middle = CommonKeys::new(&old_rest[..old_rest.len() - suffix], &new_rest[..new_rest.len() - suffix]);
    let aligned = match middle.equal_pairs <= MAX_EQUAL_PAIRS {
        true => {
            memory.try_grow(middle.equal_pairs as usize * PAIR_BYTES)?;
            align_by_pairs(&middle).await
        }
        false => myers::align(&middle.sides[0].symbols, &middle.sides[1].symbols).await,
    };
    let mut pairs: Vec<IndexPair> = Vec::with_capacity(prefix + aligned.len() + suffix);
    pairs.extend((0..prefix as u32).map(|index| [index, index]));
    let position = |side: usize, index: u32| prefix as u32 + middle.sides[side].indexes[index as usize];
    pairs.extend(aligned.iter().map(|[old, new]| [position(0, *old), position(1, *new)]));
    pairs.extend((0..suffix).map(|index| [old.len() - suffix + index, new.len() - suffix + index].map(|at| at as u32)));
    Ok(pairs)
}

/// The keys that both lists have, as numbers below `symbol_count`.
#[derive(Default)]
struct CommonKeys {
    sides: [CommonKeysSide; 2],
    symbol_count: usize,
    /// The number of pairs of equal keys: 6 for a key that occurs twice in one list and three times in the other one.
    equal_pairs: u64,
}

#[derive(Default)]
struct CommonKeysSide {
    symbols: Vec<u32>,
    /// The index of each symbol in the whole list.
    indexes: Vec<u32>,
}

impl CommonKeys {
    fn new(old: &[EntityHash], new: &[EntityHash]) -> CommonKeys {
        let mut common = CommonKeys::default();
        if old.is_empty() || new.is_empty() {
            return common;
        }
        let mut symbols: HashMap<&EntityHash, u32> = HashMap::with_capacity(old.len());
        for key in old {
            let next = symbols.len() as u32;
            symbols.entry(key).or_insert(next);
        }
        common.symbol_count = symbols.len();
        let mut counts = vec![[0_u32; 2]; symbols.len()];
        let sides = [old, new];
        for (side, keys) in sides.into_iter().enumerate() {
            keys.iter().filter_map(|key| symbols.get(key)).for_each(|symbol| counts[*symbol as usize][side] += 1);
        }
        common.equal_pairs = counts.iter().map(|[old, new]| u64::from(*old) * u64::from(*new)).sum();
        for (side, keys) in sides.into_iter().enumerate() {
            for (index, key) in keys.iter().enumerate() {
                if let Some(symbol) = symbols.get(key).filter(|symbol| counts[**symbol as usize][1] > 0) {
                    common.sides[side].symbols.push(*symbol);
                    common.sides[side].indexes.push(index as u32);
                }
            }
        }
        common
    }

    /// Returns the indexes of the new symbols, ordered by symbol, and where the indexes of each symbol begin.
    fn group_new_indexes(&self) -> (Vec<u32>, Vec<u32>) {
        let new = &self.sides[1].symbols;
        let mut starts = vec![0_u32; self.symbol_count + 1];
        new.iter().for_each(|symbol| starts[*symbol as usize + 1] += 1);
        for symbol in 0..self.symbol_count {
            starts[symbol + 1] += starts[symbol];
        }
        let mut next = starts.clone();
        let mut indexes = vec![0; new.len()];
        for (index, symbol) in new.iter().enumerate() {
            let slot = &mut next[*symbol as usize];
            indexes[*slot as usize] = index as u32;
            *slot += 1;
        }
        (indexes, starts)
    }
}

/// The last pair of a common subsequence, with the node of the pair before it.
struct ChainNode {
    pair: IndexPair,
    previous: u32,
}

const NO_NODE: u32 = u32::MAX;

/// The algorithm of Hunt and Szymanski. Returns indexes into the symbols.
async fn align_by_pairs(keys: &CommonKeys) -> Vec<IndexPair> {
    let (new_indexes, starts) = keys.group_new_indexes();
    let mut nodes: Vec<ChainNode> = Vec::new();
    // For each length, the node of a common subsequence that ends as early as possible in the new list.
    let mut shortest: Vec<u32> = Vec::new();
    let mut steps = 0;
    for (old, symbol) in keys.sides[0].symbols.iter().enumerate() {
        let symbol = *symbol as usize;
        let equal = &new_indexes[starts[symbol] as usize..starts[symbol + 1] as usize];
        // In descending order, so that a chain does not contain two pairs of one old key.
        for new in equal.iter().rev() {
            let length = shortest.partition_point(|node| nodes[*node as usize].pair[1] < *new);
            let previous = length.checked_sub(1).map_or(NO_NODE, |length| shortest[length]);
            let node = nodes.len() as u32;
            nodes.push(ChainNode { pair: [old as u32, *new], previous });
            match shortest.get_mut(length) {
                Some(shortest) => *shortest = node,
                None => shortest.push(node),
            }
        }
        steps += 1 + equal.len();
        if steps >= YIELD_EVERY_STEPS {
            steps = 0;
            tokio::task::yield_now().await;
        }
    }
    let mut pairs = Vec::with_capacity(shortest.len());
    let mut node = shortest.last().copied().unwrap_or(NO_NODE);
    while let Some(ChainNode { pair, previous }) = nodes.get(node as usize) {
        pairs.push(*pair);
        node = *previous;
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn keys(items: &[u8]) -> Vec<EntityHash> {
        items.iter().map(|item| [*item; 16]).collect()
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    fn lcs_length(old: &[u8], new: &[u8]) -> usize {
        let mut above = vec![0; new.len() + 1];
        for item in old {
            let mut row = vec![0; new.len() + 1];
            for (index, other) in new.iter().enumerate() {
                row[index + 1] = if item == other { above[index] + 1 } else { row[index].max(above[index + 1]) };
            }
            above = row;
        }
        above[new.len()]
    }

    fn check(old: &[u8], new: &[u8], pairs: &[IndexPair]) -> Result<(), TestCaseError> {
        prop_assert!(pairs.iter().all(|[i, j]| old[*i as usize] == new[*j as usize]), "{pairs:?}");
        prop_assert!(pairs.is_sorted_by(|one, other| one[0] < other[0] && one[1] < other[1]), "{pairs:?}");
        prop_assert_eq!(pairs.len(), lcs_length(old, new));
        Ok(())
    }

    proptest! {
        #[test]
        fn alignment_is_longest_common_subsequence(
            (old, new) in (1..9_u8).prop_flat_map(|items| (vec(0..items, 0..30), vec(0..items, 0..30))),
        ) {
            let pool: std::sync::Arc<dyn MemoryPool> = std::sync::Arc::new(UnboundedMemoryPool::default());
            let reservation = MemoryConsumer::new("test").register(&pool);
            let old_keys = keys(&old);
            let new_keys = keys(&new);
            check(&old, &new, &run(align(&old_keys, &new_keys, &reservation)).expect("enough memory"))?;
            let common = CommonKeys::new(&old_keys, &new_keys);
            let map = |pairs: Vec<IndexPair>| -> Vec<IndexPair> {
                let map = |pair: &IndexPair| [0, 1].map(|side: usize| common.sides[side].indexes[pair[side] as usize]);
                pairs.iter().map(map).collect()
            };
            check(&old, &new, &map(run(align_by_pairs(&common))))?;
            let symbols = common.sides.each_ref().map(|side| &side.symbols[..]);
            check(&old, &new, &map(run(myers::align(symbols[0], symbols[1]))))?;
        }
    }
}

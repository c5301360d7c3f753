//! Which node something belongs to, so that its bytes are cached in one place: rendezvous hashing.
//!
//! Each node gets a rank for a key by a hash of both. All nodes compute the same ranks without asking each other, and a
//! node that comes or goes moves only what belongs to it.

use std::cmp::Reverse;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// A node takes no more than this many percent of the mean load, as long as another one has room. See "Consistent
/// Hashing with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam 2016).
const ROOM_PERCENT: u128 = 105;

/// The nodes of these names for a key, as indices: the one that the key belongs to, then those that stand in for it.
/// The order of the names does not matter. Names that are equal rank as they are given.
fn rank(key: &[u8], nodes: &[&str]) -> Vec<usize> {
    let mut ranked: Vec<(Reverse<u64>, &str, usize)> =
        nodes.iter().enumerate().map(|(number, node)| (Reverse(score(key, node)), *node, number)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, number)| number).collect()
}

/// Shares out keys, each with its load: the index of the node for each, which is the first of its ranks that has room.
/// There must be a node.
pub fn share_out(keys: &[(Vec<u8>, u64)], nodes: &[&str]) -> Vec<usize> {
    let total: u128 = keys.iter().map(|(_, load)| u128::from(*load)).sum();
    let most = (total * ROOM_PERCENT).div_ceil(100 * nodes.len().max(1) as u128);
    let mut loads = vec![0_u128; nodes.len()];
    let place = |(key, load): &(Vec<u8>, u64)| {
        let ranked = rank(key, nodes);
        let has_room = |number: &&usize| loads[**number] + u128::from(*load) <= most;
        let least = || ranked.iter().min_by_key(|number| loads[**number]);
        // Where the load is larger than what is left anywhere, the node with the least.
        let number = ranked.iter().find(has_room).or_else(least).copied().unwrap_or_default();
        if let Some(taken) = loads.get_mut(number) {
            *taken += u128::from(*load);
        }
        number
    };
    keys.iter().map(place).collect()
}

/// The same in all processes, whatever machine and version they have.
fn score(key: &[u8], node: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    // The length parts key and name.
    hasher.write(&(key.len() as u64).to_le_bytes());
    hasher.write(key);
    hasher.write(node.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|number| format!("versions/{number}.parquet").into_bytes()).collect()
    }

    fn owner<'n>(key: &[u8], nodes: &[&'n str]) -> &'n str {
        nodes[rank(key, nodes)[0]]
    }

    #[test]
    fn ranks_are_those_of_all_processes() {
        // Whoever changes these moves what every node has cached.
        assert_eq!(rank(b"versions/1.parquet", &["n1", "n2", "n3"]), [2, 0, 1]);
        assert!(rank(b"", &[]).is_empty());
    }

    #[test]
    fn a_rank_does_not_depend_on_the_order_of_the_nodes() {
        for key in keys(100) {
            assert_eq!(owner(&key, &["a", "b", "c"]), owner(&key, &["c", "a", "b"]));
        }
    }

    #[test]
    fn each_node_gets_about_the_same() {
        let nodes = ["n1", "n2", "n3", "n4"];
        let mut owned = [0; 4];
        for key in keys(4_000) {
            owned[rank(&key, &nodes)[0]] += 1;
        }
        assert!(owned.iter().all(|count| (850..1_150).contains(count)), "{owned:?}");
    }

    #[test]
    fn a_node_that_goes_moves_only_what_belongs_to_it() {
        for key in keys(1_000) {
            let before = owner(&key, &["a", "b", "c"]);
            let after = owner(&key, &["a", "c"]);
            assert!(before == "b" || before == after);
            // What stood in for it has it now.
            if before == "b" {
                let ranked = rank(&key, &["a", "b", "c"]);
                assert_eq!(after, ["a", "b", "c"][ranked[1]]);
            }
        }
    }

    #[test]
    fn no_node_gets_much_more_than_its_share() {
        let nodes = ["a", "b", "c"];
        let keys: Vec<(Vec<u8>, u64)> = keys(60).into_iter().map(|key| (key, 100)).collect();
        let shared = share_out(&keys, &nodes);
        for node in 0..3 {
            let count = shared.iter().filter(|owner| **owner == node).count();
            assert!((18..=21).contains(&count), "{count} of 60");
        }
        // Most are where they belong.
        let at_home = keys.iter().zip(&shared).filter(|((key, _), owner)| rank(key, &nodes)[0] == **owner).count();
        assert!(at_home > 45, "{at_home}");
    }

    #[test]
    fn what_is_larger_than_a_share_goes_where_there_is_least() {
        let keys: Vec<(Vec<u8>, u64)> = keys(4).into_iter().zip([1_000, 1, 1, 1_000]).collect();
        let shared = share_out(&keys, &["a", "b"]);
        assert_ne!(shared[0], shared[3], "{shared:?}");
        assert!(share_out(&[], &["a"]).is_empty());
        assert_eq!(share_out(&[(vec![1], u64::MAX), (vec![2], u64::MAX)], &["a"]), [0, 0]);
    }
}

//! Rendezvous hashing assigns each key to a node, so that the bytes of a key are cached on only one node.
//!
//! All nodes compute the same ranks without communication. An added or removed node moves only the keys assigned to it.

use std::cmp::Reverse;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Maximum load in percent of the mean load. See "Consistent Hashing with Bounded Loads" (Mirrokni et al. 2016).
const MAX_LOAD_PERCENT: u128 = 105;

fn rank_nodes(key: &[u8], nodes: &[&str]) -> Vec<usize> {
    let mut ranked: Vec<(Reverse<u64>, &str, usize)> =
        nodes.iter().enumerate().map(|(number, node)| (Reverse(rendezvous_score(key, node)), *node, number)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, number)| number).collect()
}

/// Returns the index of the assigned node for each key, which has a load. There must be at least one node.
pub fn assign_nodes(keys: &[(Vec<u8>, u64)], nodes: &[&str]) -> Vec<usize> {
    let total: u128 = keys.iter().map(|(_, load)| u128::from(*load)).sum();
    let max_load = (total * MAX_LOAD_PERCENT).div_ceil(100 * nodes.len().max(1) as u128);
    let mut loads = vec![0_u128; nodes.len()];
    let assign = |(key, load): &(Vec<u8>, u64)| {
        let ranked = rank_nodes(key, nodes);
        let is_below_max = |number: &&usize| loads[**number] + u128::from(*load) <= max_load;
        let least_loaded = || ranked.iter().min_by_key(|number| loads[**number]);
        let number = ranked.iter().find(is_below_max).or_else(least_loaded).copied().unwrap_or_default();
        if let Some(node_load) = loads.get_mut(number) {
            *node_load += u128::from(*load);
        }
        number
    };
    keys.iter().map(assign).collect()
}

/// Returns the score of a node for a key, which must be equal on all machines and in all program versions.
fn rendezvous_score(key: &[u8], node: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    // The length separates the key from the node name.
    hasher.write(&(key.len() as u64).to_le_bytes());
    hasher.write(key);
    hasher.write(node.as_bytes());
    hasher.finish()
}

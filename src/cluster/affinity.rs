//! Rendezvous hashing: which node something belongs to, so that its bytes are cached in one place. All nodes compute
//! the same ranks without asking each other, and a node that comes or goes moves only what belongs to it.

use std::cmp::Reverse;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// A node takes no more than this many percent of the mean load, as long as another one has room. See "Consistent
/// Hashing with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam 2016).
const ROOM_PERCENT: u128 = 105;

/// The indices of the nodes for a key: the owner, then its substitutes.
fn rank(key: &[u8], nodes: &[&str]) -> Vec<usize> {
    let mut ranked: Vec<(Reverse<u64>, &str, usize)> =
        nodes.iter().enumerate().map(|(number, node)| (Reverse(score(key, node)), *node, number)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, number)| number).collect()
}

/// Shares out keys with their loads: the index of the node for each. There must be a node.
pub fn share_out(keys: &[(Vec<u8>, u64)], nodes: &[&str]) -> Vec<usize> {
    let total: u128 = keys.iter().map(|(_, load)| u128::from(*load)).sum();
    let most = (total * ROOM_PERCENT).div_ceil(100 * nodes.len().max(1) as u128);
    let mut loads = vec![0_u128; nodes.len()];
    let place = |(key, load): &(Vec<u8>, u64)| {
        let ranked = rank(key, nodes);
        let has_room = |number: &&usize| loads[**number] + u128::from(*load) <= most;
        let least = || ranked.iter().min_by_key(|number| loads[**number]);
        // The node with the least load, if no node has room.
        let number = ranked.iter().find(has_room).or_else(least).copied().unwrap_or_default();
        if let Some(taken) = loads.get_mut(number) {
            *taken += u128::from(*load);
        }
        number
    };
    keys.iter().map(place).collect()
}

/// The same in all processes, on all machines and in all versions.
fn score(key: &[u8], node: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    // The length parts key and name.
    hasher.write(&(key.len() as u64).to_le_bytes());
    hasher.write(key);
    hasher.write(node.as_bytes());
    hasher.finish()
}

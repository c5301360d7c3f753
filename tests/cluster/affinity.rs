//! Rendezvous hashing: the assignment of row groups to nodes.

use strata_cluster::affinity::assign_nodes;

fn keys(count: usize, load: u64) -> Vec<(Vec<u8>, u64)> {
    (0..count).map(|number| (format!("versions/{number}.parquet").into_bytes(), load)).collect()
}

/// Returns the nodes of the keys, regardless of loads.
fn owners<'n>(keys: &[(Vec<u8>, u64)], nodes: &[&'n str]) -> Vec<&'n str> {
    let keys: Vec<_> = keys.iter().map(|(key, _)| (key.clone(), 0)).collect();
    assign_nodes(&keys, nodes).into_iter().map(|number| nodes[number]).collect()
}

#[test]
fn owner_is_the_same_in_all_processes() {
    // If the assignment changes, all cached data is assigned to other nodes.
    let keys = &keys(2, 0)[1..];
    assert_eq!(owners(keys, &["n1", "n2", "n3"]), ["n3"]);
    assert_eq!(owners(keys, &["n1", "n2"]), ["n1"]);
    let many = self::keys(100, 0);
    assert_eq!(owners(&many, &["a", "b", "c"]), owners(&many, &["c", "a", "b"]));
}

#[test]
fn each_node_owns_about_the_same() {
    let nodes = ["n1", "n2", "n3", "n4"];
    let owners = owners(&keys(4_000, 0), &nodes);
    for node in nodes {
        let count = owners.iter().filter(|owner| **owner == node).count();
        assert!((850..1_150).contains(&count), "{node}: {count}");
    }
}

#[test]
fn removed_node_moves_only_its_own_keys() {
    let keys = keys(1_000, 0);
    for (before, after) in owners(&keys, &["a", "b", "c"]).into_iter().zip(owners(&keys, &["a", "c"])) {
        assert!(before == "b" || before == after);
    }
}

#[test]
fn no_node_gets_much_more_than_its_share() {
    let nodes = ["a", "b", "c"];
    let keys = keys(60, 100);
    let shared = assign_nodes(&keys, &nodes);
    for node in 0..3 {
        let count = shared.iter().filter(|owner| **owner == node).count();
        assert!((18..=21).contains(&count), "{count} of 60");
    }
    // Most keys are assigned to their first node.
    let on_first_node =
        owners(&keys, &nodes).iter().zip(&shared).filter(|(owner, node)| **owner == nodes[**node]).count();
    assert!(on_first_node > 45, "{on_first_node}");
}

#[test]
fn load_larger_than_a_share_goes_to_the_least_loaded() {
    let mut keys = keys(4, 1);
    keys[0].1 = 1_000;
    keys[3].1 = 1_000;
    let shared = assign_nodes(&keys, &["a", "b"]);
    assert_ne!(shared[0], shared[3], "{shared:?}");
    assert!(assign_nodes(&[], &["a"]).is_empty());
    assert_eq!(assign_nodes(&[(vec![1], u64::MAX), (vec![2], u64::MAX)], &["a"]), [0, 0]);
}

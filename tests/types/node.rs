//! Roles and names of nodes.

use strata_types::node::{NodeId, NodeRole, NodeRoles};

fn roles(names: &[&str]) -> Result<NodeRoles, String> {
    NodeRoles::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

#[test]
fn roles_print_in_fixed_order() {
    let some = roles(&["query", " http"]).expect("failed to parse roles");
    assert_eq!(some.to_string(), "http, query");
    assert!(some.contains(NodeRole::Http) && !some.contains(NodeRole::Refresh) && some.contains(NodeRole::Query));
    assert_eq!(roles(&["http", "refresh", "query"]), Ok(NodeRoles::all()));
}

#[test]
fn empty_or_duplicate_roles_are_rejected() {
    for (names, reason) in [
        (&[][..], "it is empty"),
        (&["http", "worker"], "\"worker\" is not a role; valid: http, refresh, query"),
        (&["HTTP"], "not a role"),
        (&[""], "not a role"),
        (&["http", "http"], "http is listed twice"),
    ] {
        let refused = roles(names).expect_err("failed to reject roles");
        assert!(refused.contains(reason), "{names:?}: {refused}");
    }
}

#[test]
fn node_name_accepts_only_plain_characters() {
    for name in ["a", "strata-1.eu_west", &"n".repeat(64), NodeId::from_random_bytes([0xab; 8]).as_str()] {
        assert_eq!(NodeId::try_from(name.to_owned()).expect("failed to parse name").as_str(), name);
    }
    for name in ["", "a b", "a/b", "ä", "a\n", &"n".repeat(65)] {
        assert!(NodeId::try_from(name.to_owned()).is_err(), "{name:?}");
    }
}

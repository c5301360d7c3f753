//! Roles and names of processes.

use strata_types::node::{NodeId, Role, Roles};

fn roles(names: &[&str]) -> Result<Roles, String> {
    Roles::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

#[test]
fn roles_are_told_in_their_order() {
    let some = roles(&["query", " http"]).expect("roles");
    assert_eq!(some.to_string(), "http, query");
    assert!(some.include(Role::Http) && !some.include(Role::Refresh) && some.include(Role::Query));
    assert_eq!(roles(&["http", "refresh", "query"]), Ok(Roles::all()));
}

#[test]
fn roles_that_are_none_or_twice_are_refused() {
    for (names, reason) in [
        (&[][..], "it is empty"),
        (&["http", "worker"], "\"worker\" is not a role; valid: http, refresh, query"),
        (&["HTTP"], "not a role"),
        (&[""], "not a role"),
        (&["http", "http"], "http is listed twice"),
    ] {
        let refused = roles(names).expect_err("no roles");
        assert!(refused.contains(reason), "{names:?}: {refused}");
    }
}

#[test]
fn a_node_has_a_plain_name() {
    for name in ["a", "strata-1.eu_west", &"n".repeat(64), NodeId::random([0xab; 8]).as_str()] {
        assert_eq!(NodeId::try_from(name.to_owned()).expect("a name").as_str(), name);
    }
    for name in ["", "a b", "a/b", "ä", "a\n", &"n".repeat(65)] {
        assert!(NodeId::try_from(name.to_owned()).is_err(), "{name:?}");
    }
}

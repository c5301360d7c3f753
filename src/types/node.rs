//! The processes of a service: their names, and what they do.

use std::fmt;

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Http,
    /// It makes versions, sends webhooks, and looks after files.
    Refresh,
    /// It may be given parts of other processes' queries.
    Query,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Http, Role::Refresh, Role::Query];

    pub fn name(self) -> &'static str {
        match self {
            Role::Http => "http",
            Role::Refresh => "refresh",
            Role::Query => "query",
        }
    }
}

/// The roles of a process.
///
/// - At least one, each at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Roles {
    has: [bool; Role::ALL.len()],
}

impl Roles {
    pub fn all() -> Roles {
        Roles { has: [true; Role::ALL.len()] }
    }

    pub fn include(self, role: Role) -> bool {
        self.has[role as usize]
    }

    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.include(*role))
    }
}

impl TryFrom<Vec<String>> for Roles {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let mut roles = Roles { has: [false; Role::ALL.len()] };
        for name in names {
            let role = Role::ALL.into_iter().find(|role| role.name() == name.trim());
            let role = role.ok_or_else(|| format!("{:?} is not a role; valid: http, refresh, query", name.trim()))?;
            if std::mem::replace(&mut roles.has[role as usize], true) {
                return Err(format!("{} is listed twice", role.name()));
            }
        }
        match roles.iter().next() {
            Some(_) => Ok(roles),
            None => Err("it is empty; valid: one or more of the roles http, refresh, and query".to_owned()),
        }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Role::name).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// The name of a process among those of the service.
///
/// - 1 to 64 ASCII letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeId(String);

impl NodeId {
    pub fn random(random: [u8; 8]) -> NodeId {
        NodeId(random.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            true => Ok(NodeId(text)),
            false => Err("a node name must consist of 1 to 64 letters, digits, `-`, `_`, and `.`".to_owned()),
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

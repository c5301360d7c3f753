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

names!(
    Role { Http = "http", Refresh = "refresh", Query = "query" },
    UnknownRole,
    "{0:?} is not a role; valid: http, refresh, query"
);

/// The roles of a process: at least one, each at most once.
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
            let role: Role = name.trim().parse().map_err(|error: UnknownRole| error.to_string())?;
            if std::mem::replace(&mut roles.has[role as usize], true) {
                return Err(format!("{role} is listed twice"));
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

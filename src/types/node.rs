//! Names and roles of the nodes of a service.

use std::fmt;

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    Http,
    /// Creates versions, sends webhooks, sweeps, and scrubs.
    Refresh,
    /// Runs tasks of distributed queries.
    Query,
}

names!(
    NodeRole { Http = "http", Refresh = "refresh", Query = "query" },
    UnknownRole,
    "{0:?} is not a role; valid: http, refresh, query"
);

/// The roles of a process: at least one role, without duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct NodeRoles {
    enabled: [bool; NodeRole::ALL.len()],
}

impl NodeRoles {
    pub fn all() -> NodeRoles {
        NodeRoles { enabled: [true; NodeRole::ALL.len()] }
    }

    pub fn contains(self, role: NodeRole) -> bool {
        self.enabled[role as usize]
    }

    pub fn iter(self) -> impl Iterator<Item = NodeRole> {
        NodeRole::ALL.into_iter().filter(move |role| self.contains(*role))
    }
}

impl TryFrom<Vec<String>> for NodeRoles {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let mut roles = NodeRoles { enabled: [false; NodeRole::ALL.len()] };
        for name in names {
            let role: NodeRole = name.trim().parse().map_err(|error: UnknownRole| error.to_string())?;
            if std::mem::replace(&mut roles.enabled[role as usize], true) {
                return Err(format!("{role} is listed twice"));
            }
        }
        match roles.iter().next() {
            Some(_) => Ok(roles),
            None => Err("it is empty; valid: one or more of the roles http, refresh, and query".to_owned()),
        }
    }
}

impl fmt::Display for NodeRoles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(NodeRole::name).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// The name of a node: 1 to 64 ASCII letters, digits, `-`, `_`, and `.`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeId(String);

impl NodeId {
    pub fn from_random_bytes(random: [u8; 8]) -> NodeId {
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

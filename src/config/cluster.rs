//! `[cluster]`: the process among others of the same service.

use serde::{Deserialize, Deserializer};

use super::option::{OptionKind, OptionValue, section};
use crate::model::node::{NodeId, Roles};
use crate::model::secret::Secret;

section! {
    /// The process among others of the same service. With PostgreSQL, or with one of these options, servers are
    /// registered in the catalog as nodes.
    Cluster in "cluster" {
        /// The name of this server among those of the service: 1 to 64 letters, digits, `-`, `_` and `.`. Each server
        /// needs its own. When not given, one is made at random and kept in the data directory, as `node.id`.
        node: Option<NodeName> = None;
        /// Host and port at which other servers of the service reach this one, as `10.0.0.7:8081`. `strata nodes` shows
        /// it. Nothing else uses it yet.
        internal_address: Option<InternalAddress> = None;
        /// Host and port at which other servers of the service reach `server.listen` of this one, as `10.0.0.7:8080`.
        /// They hand heavy reads of version files that belong to this server over to it there. Needs `cluster.secret`.
        /// When not given, none are.
        http_address: Option<InternalAddress> = None;
        /// The secret that proves to servers of the service that a request is from one of them: at least 16 bytes, the
        /// same on all. Without it no read is handed over.
        secret: Option<ClusterSecret> = None;
        /// Seconds without a sign of life in the catalog after which a server counts as lost. The datasets that it was
        /// refreshing are then free. A server gives six signs of life in that time. The clocks of the servers must
        /// agree better than this.
        lost_after_s: u64 = 30, within 5..=3_600;
    }
}

/// The name of a node, as an option.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeName(NodeId);

impl NodeName {
    /// The name.
    pub fn id(&self) -> &NodeId {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        NodeId::try_from(text).map(NodeName)
    }
}

impl OptionValue for NodeName {
    const KIND: OptionKind = OptionKind::Text;

    fn shown(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// The secret that servers share: at least 16 bytes.
#[derive(Clone, Debug)]
pub struct ClusterSecret(Secret);

impl ClusterSecret {
    /// Fewer bytes can be guessed.
    const LEAST_BYTES: usize = 16;

    /// The secret.
    pub fn secret(&self) -> &Secret {
        &self.0
    }
}

impl PartialEq for ClusterSecret {
    fn eq(&self, other: &ClusterSecret) -> bool {
        self.0.matches(other.0.expose())
    }
}

impl<'de> Deserialize<'de> for ClusterSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let secret = Secret::deserialize(deserializer)?;
        match secret.expose().len() >= ClusterSecret::LEAST_BYTES {
            true => Ok(ClusterSecret(secret)),
            false => Err(serde::de::Error::custom(format!("expected at least {} bytes", ClusterSecret::LEAST_BYTES))),
        }
    }
}

impl OptionValue for ClusterSecret {
    const KIND: OptionKind = OptionKind::Secret;

    fn shown(&self) -> Option<String> {
        self.0.shown()
    }
}

/// Host and port of a process: a name or an address, a colon, and a port that is not 0. At most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct InternalAddress(String);

impl InternalAddress {
    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for InternalAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let expected = "expected host:port, such as 10.0.0.7:8081, [2001:db8::7]:8081 or node-7.internal:8081";
        let Some((host, port)) = text.rsplit_once(':') else { return Err(expected.to_owned()) };
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        };
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        match is_host && is_port && text.len() <= 255 {
            true => Ok(InternalAddress(text)),
            false => Err(expected.to_owned()),
        }
    }
}

impl OptionValue for InternalAddress {
    const KIND: OptionKind = OptionKind::Text;

    fn shown(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

/// The roles of a process, as an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct ServerRoles(Roles);

impl ServerRoles {
    /// The roles.
    pub fn roles(self) -> Roles {
        self.0
    }
}

impl Default for ServerRoles {
    fn default() -> Self {
        ServerRoles(Roles::all())
    }
}

impl TryFrom<Vec<String>> for ServerRoles {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        Roles::try_from(names).map(ServerRoles)
    }
}

impl OptionValue for ServerRoles {
    const KIND: OptionKind = OptionKind::List;

    fn shown(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_address_is_a_host_and_a_port() {
        for address in ["10.0.0.7:8081", "[2001:db8::7]:1", "node-7.internal:65535"] {
            assert_eq!(InternalAddress::try_from(address.to_owned()).expect("an address").as_str(), address);
        }
        for text in
            ["", "host", ":1", "host:", "host:0", "host:65536", "a b:1", "[::1:1", "2001:db8::7:1", "http://a:1"]
        {
            assert!(InternalAddress::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }
}

//! `[cluster]`: this node, and its connections to other nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use strata_types::node::{NodeId, NodeRole, NodeRoles};
use strata_types::secret::Secret;

use super::option::{OptionViolation, checked_type, section};
use super::server::ListenAddress;

section! {
    /// The node and its connections to other nodes of the same service. If you use PostgreSQL or set any of these
    /// options, servers register as nodes in the metadata database.
    ClusterConfig in "cluster" {
        /// Name of this node: 1 to 64 letters, digits, `-`, `_`, and `.`. Each node must have a unique name. By
        /// default, strata creates a random name and stores it as `node.id` in the data directory.
        node: Option<NodeId> = None;
        /// Address and port, such as `10.0.0.7:8081`, on which this node accepts tasks from other nodes. You should use
        /// a private address. This option requires `cluster.secret` and the role `query`. If this option is not set,
        /// the node accepts no tasks.
        listen: Option<ListenAddress> = None;
        /// Host and port, such as `10.0.0.7:8081`, at which other nodes reach `cluster.listen`. `strata nodes` shows
        /// this address. This option requires `cluster.listen`. The default is the value of `cluster.listen`.
        internal_address: Option<InternalAddress> = None;
        /// Shared secret with which nodes authenticate to each other. It must be the same on all nodes and at least 16
        /// bytes long, excluding leading and trailing whitespace. Without a secret, strata does not distribute queries.
        secret: Option<ClusterSecret> = None;
        /// PEM file with this node's certificate, followed by any intermediate certificates up to an authority in
        /// `cluster.tls_ca`. This option requires `cluster.tls_key`, `cluster.tls_ca`, and `cluster.secret`. If it is
        /// set, nodes use TLS for connections to `cluster.listen`, and exchange tasks only with nodes that also use
        /// TLS. When the PEM files change, strata reloads them.
        tls_certificate: Option<PathBuf> = None;
        /// PEM file with the private key for `cluster.tls_certificate`. The key must not have a passphrase.
        tls_key: Option<PathBuf> = None;
        /// PEM file with the certificates of the authorities that sign node certificates. Nodes trust no other
        /// authorities.
        tls_ca: Option<PathBuf> = None;
        /// Number of bytes above which strata distributes a query among the nodes with the role `query`. strata counts
        /// only bytes that the query must read and that are not in this node's cache. 0 disables distributed queries.
        distribute_bytes: u64 = 128 << 20;
        /// Maximum number of concurrent tasks that this node runs for other nodes. One user or network can use up to
        /// half of these tasks. 0 means one task per query thread (`query.threads`), but at least 4.
        tasks: u64 = 0, within 0..=10_000;
        /// Time in seconds without a heartbeat after which strata considers a node offline. Other nodes can then
        /// refresh the datasets that the offline node was refreshing. Each node sends six heartbeats to the metadata
        /// database during this time. The clocks of any two nodes must differ by less than this time.
        lost_after_s: u64 = 30, within 5..=3_600;
    }
}

impl ClusterConfig {
    /// Checks options that depend on each other and on the roles of the process.
    pub(super) fn check_combinations(&self, roles: NodeRoles) -> Result<(), OptionViolation> {
        let wrong = |key: &str, reason: &str| Err(OptionViolation::new(&format!("cluster.{key}"), reason));
        let tls = [
            ("tls_certificate", self.tls_certificate.is_some()),
            ("tls_key", self.tls_key.is_some()),
            ("tls_ca", self.tls_ca.is_some()),
        ];
        let present = tls.iter().find(|(_, is_set)| *is_set);
        if let (Some((present, _)), Some((missing, _))) = (present, tls.iter().find(|(_, is_set)| !is_set)) {
            let reason =
                format!("TLS requires a certificate, a private key, and a CA: you must also set cluster.{missing}");
            return wrong(present, &reason);
        }
        if present.is_some() && self.secret.is_none() {
            let reason = "nodes can connect to each other only with a secret: you must also set cluster.secret";
            return wrong("tls_certificate", reason);
        }
        let Some(listen) = &self.listen else {
            let reason = "this node does not listen for tasks: you must also set cluster.listen";
            return self.internal_address.as_ref().map_or(Ok(()), |_| wrong("internal_address", reason));
        };
        if self.secret.is_none() {
            let reason =
                "a node can accept tasks from other nodes only with a secret: you must also set cluster.secret";
            return wrong("listen", reason);
        }
        if !roles.contains(NodeRole::Query) {
            let reason = "a node can accept tasks from other nodes only if it has the role `query`: add `query` to \
                          server.roles, or remove cluster.listen";
            return wrong("listen", reason);
        }
        let listen = listen.as_str();
        let is_everywhere = listen.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
        if is_everywhere && self.internal_address.is_none() {
            let reason = format!("other nodes cannot connect to {listen}: you must also set cluster.internal_address");
            return wrong("listen", &reason);
        }
        Ok(())
    }
}

checked_type! {
    /// The shared secret of all nodes: at least 16 bytes, not counting white space at its ends.
    #[derive(Debug)]
    ClusterSecret(Secret) from Secret => secret -> Secret, |secret| match secret.expose().trim().len() {
        16.. => Ok(secret),
        _ => Err("expected at least 16 bytes, not counting leading and trailing whitespace".to_owned()),
    }
}

checked_type! {
    /// The host (a name or an address) and the port of a node, in at most 255 bytes. The port is not 0.
    #[derive(Debug, Eq)]
    InternalAddress(String) from String => as_str -> str, |text| {
        let expected = "expected host:port, such as 10.0.0.7:8081, [2001:db8::7]:8081, or node-7.internal:8081";
        let Some((host, port)) = text.rsplit_once(':') else { return Err(expected.to_owned()) };
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        };
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if is_host && is_port && text.len() <= 255 { Ok(text) } else { Err(expected.to_owned()) }
    }
}

//! Registration of the nodes of a service in the catalog, and their heartbeats.
//!
//! 1. A node that starts registers its name, and replaces a node with the same name. The replaced node logs an error,
//!    and does not register again while the other node is online.
//! 2. Each node sends several heartbeats within `cluster.lost_after_s`.
//! 3. Each node ends the refreshes of offline nodes. After an error of the catalog, a node ends no refreshes for a
//!    while, because the heartbeats of other nodes may have failed, too.
//! 4. A node that stops removes its registration. The registration of a killed node is removed after a day.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{Catalog, CatalogError, NodeRecord, NodeRegistration};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_types::error_chain::ErrorChain;
use strata_types::node::NodeRole;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const TIMEOUT_HEARTBEATS: u32 = 6;
const NODE_RETENTION_DAYS: i64 = 1;

pub struct NodeRegistry {
    catalog: Catalog,
    offline_after: Duration,
    local_node: Option<NodeRegistration>,
    online_nodes: ArcSwap<Vec<NodeRegistration>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub node: NodeRecord,
    pub since_heartbeat: Duration,
    pub is_offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegistrationState {
    New,
    Registered,
    Replaced,
}

impl NodeRegistry {
    /// `local_node` has the name and the process ID of this node. Without it, this process does not register.
    pub fn new(config: &Config, catalog: Catalog, local_node: Option<(String, String)>) -> NodeRegistry {
        let roles = config.server.roles;
        // A node without the role `query` receives no tasks from other nodes, so it registers no internal address.
        let internal_address = config.cluster.internal_address.as_ref().filter(|_| roles.contains(NodeRole::Query));
        let local_node = local_node.filter(|_| config.has_node_registration());
        let local_node = local_node.map(|(id, process_id)| NodeRegistration {
            id,
            process_id,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: roles.iter().map(NodeRole::name).collect::<Vec<_>>().join(","),
            // Other nodes connect to the internal address only if they use the same scheme, with or without TLS.
            internal_address: internal_address.map(|address| match config.cluster.tls_certificate {
                Some(_) => format!("{TLS_SCHEME}{}", address.as_str()),
                None => address.as_str().to_owned(),
            }),
        });
        let offline_after = Duration::from_secs(config.cluster.lost_after_s);
        NodeRegistry { catalog, offline_after, local_node, online_nodes: ArcSwap::default() }
    }

    pub fn local_name(&self) -> Option<&str> {
        self.local_node.as_ref().map(|node| &*node.id)
    }

    pub fn online_nodes(&self) -> Arc<Vec<NodeRegistration>> {
        self.online_nodes.load_full()
    }

    pub async fn list_nodes(&self) -> Result<Vec<NodeState>, CatalogError> {
        let nodes = self.catalog.nodes().await?;
        let now = self.catalog.now();
        Ok(nodes.into_iter().map(|node| self.node_state(node, now)).collect())
    }

    fn node_state(&self, node: NodeRecord, now: DateTime<Utc>) -> NodeState {
        // The difference is negative if the clock of the other node is ahead.
        let since_heartbeat = (now - node.last_heartbeat_at).to_std().unwrap_or_default();
        NodeState { node, since_heartbeat, is_offline: since_heartbeat >= self.offline_after }
    }

    /// Sends heartbeats until `stop`; ends at once if this node does not register.
    pub async fn run_heartbeats(self: Arc<Self>, stop: CancellationToken) {
        let Some(own) = &self.local_node else { return };
        let mut state = RegistrationState::New;
        let mut is_available = true;
        // The time since which all heartbeats have succeeded in time.
        let mut steady_since = Instant::now();
        loop {
            let start = Instant::now();
            match self.send_heartbeat(own, &mut state, steady_since.elapsed() >= self.offline_after).await {
                Ok(()) => is_available = true,
                Err(error) => {
                    steady_since = Instant::now();
                    if std::mem::replace(&mut is_available, false) {
                        tracing::warn!(error = %ErrorChain(&error), "failed to send heartbeat");
                    }
                }
            }
            if stop.run_until_cancelled(tokio::time::sleep(self.offline_after / TIMEOUT_HEARTBEATS)).await.is_none() {
                break;
            }
            // After a slow heartbeat, the period starts again: the metadata database or this process was blocked, and
            // other nodes may have been blocked, too.
            if start.elapsed() >= self.offline_after / 2 {
                steady_since = Instant::now();
            }
        }
        if let Err(error) = self.catalog.remove_node(own).await {
            tracing::info!(error = %ErrorChain(&error), "failed to remove this node from the list of nodes");
        }
    }

    /// Sends a heartbeat of this node. If other nodes had enough time to send theirs, `can_end_refreshes` is true, and
    /// the refreshes of offline nodes end.
    async fn send_heartbeat(
        &self,
        own: &NodeRegistration,
        state: &mut RegistrationState,
        can_end_refreshes: bool,
    ) -> Result<(), CatalogError> {
        if *state != RegistrationState::Registered || !self.catalog.try_record_heartbeat(own).await? {
            self.register(own, state).await?;
        }
        self.update_online_nodes(can_end_refreshes).await
    }

    async fn register(&self, own: &NodeRegistration, state: &mut RegistrationState) -> Result<(), CatalogError> {
        let other = self.catalog.node(&own.id).await?.filter(|node| node.registration.process_id != own.process_id);
        let other = other.map(|node| self.node_state(node, self.catalog.now())).filter(|node| !node.is_offline);
        match other {
            Some(_) if *state == RegistrationState::Replaced => return Ok(()),
            Some(_) if *state == RegistrationState::Registered => {
                *state = RegistrationState::Replaced;
                tracing::error!(
                    node = own.id,
                    "another process has registered under this node's name; give each node its own cluster.node or \
                     data directory"
                );
                return Ok(());
            }
            Some(node) => {
                let seen_s = node.since_heartbeat.as_secs();
                tracing::info!(node = own.id, seen_s, "replaced a node with the same name");
            }
            None => {}
        }
        self.catalog.register_node(own).await?;
        *state = RegistrationState::Registered;
        Ok(())
    }

    async fn update_online_nodes(&self, can_end_refreshes: bool) -> Result<(), CatalogError> {
        let states = self.list_nodes().await?;
        let online = states.iter().filter(|state| !state.is_offline).map(|state| state.node.registration.clone());
        let online: Arc<Vec<NodeRegistration>> = Arc::new(online.collect());
        self.online_nodes.store(online.clone());
        metrics().nodes.with_label_values(["alive".into()]).set(online.len() as f64);
        metrics().nodes.with_label_values(["lost".into()]).set((states.len() - online.len()) as f64);
        for role in NodeRole::ALL {
            let has_role = |node: &&NodeRegistration| node.roles.split(',').any(|name| name == role.name());
            let nodes = online.iter().filter(has_role).count();
            metrics().node_roles.with_label_values([role.name().into()]).set(nodes as f64);
        }
        if online.len() == states.len() || !can_end_refreshes {
            return Ok(());
        }
        let now = self.catalog.now();
        let offline_after = TimeDelta::from_std(self.offline_after).unwrap_or(TimeDelta::MAX);
        let leases = self.catalog.leases_of_offline_nodes(now - offline_after).await?;
        if !leases.is_empty() {
            let ended = self.catalog.end_orphaned_refreshes(leases).await?;
            tracing::warn!(ended, "ended refreshes of offline nodes");
        }
        let retention = TimeDelta::days(NODE_RETENTION_DAYS).max(offline_after);
        self.catalog.remove_offline_nodes(now - retention).await?;
        Ok(())
    }
}

/// Prefix of the registered address of a node with TLS. Without TLS, the address is `host:port`.
const TLS_SCHEME: &str = "https://";

pub(super) fn has_tls(address: &str) -> bool {
    address.starts_with(TLS_SCHEME)
}

pub(super) fn node_url(address: &str) -> String {
    if has_tls(address) { address.to_owned() } else { format!("http://{address}") }
}

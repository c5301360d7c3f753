//! The servers of the service, as they register in the catalog and send heartbeats there.
//!
//! 1. A server that starts takes its name, whoever had it before. A server that is replaced says so in its log, and
//!    does not take the name back while the other one lives.
//! 2. Each sends several heartbeats within `cluster.lost_after_s`.
//! 3. Each ends the refreshes of servers that are lost. A server that had trouble with the catalog does not judge
//!    others for a while, because they may have had the same.
//! 4. A server that ends removes its name. One that was killed is forgotten after a day.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{Catalog, CatalogError, NewNode, Node};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_types::causes::Causes;
use strata_types::node::Role;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SIGNS: u32 = 6;

const KEPT_DAYS: i64 = 1;

pub struct Nodes {
    catalog: Catalog,
    lost_after: Duration,
    own: Option<NewNode>,
    /// The servers that were alive at the last heartbeat of this one.
    living: ArcSwap<Vec<NewNode>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub node: Node,
    pub silent: Duration,
    pub is_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Registered,
    Replaced,
}

impl Nodes {
    /// The servers of a catalog, of which this is one, if it has a name and a process.
    pub fn new(config: &Config, catalog: Catalog, own: Option<(String, String)>) -> Nodes {
        let roles = config.server.roles;
        // Without the role, it listens nowhere.
        let internal_address = config.cluster.internal_address.as_ref().filter(|_| roles.include(Role::Query));
        let own = own.filter(|_| config.has_nodes()).map(|(id, process)| NewNode {
            id,
            process,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: roles.iter().map(Role::name).collect::<Vec<_>>().join(","),
            // Servers with the other scheme do not connect to it.
            internal_address: internal_address.map(|address| match config.cluster.tls_certificate {
                Some(_) => format!("{SCHEME}{}", address.as_str()),
                None => address.as_str().to_owned(),
            }),
        });
        Nodes { catalog, lost_after: Duration::from_secs(config.cluster.lost_after_s), own, living: ArcSwap::default() }
    }

    pub fn own_name(&self) -> Option<&str> {
        self.own.as_ref().map(|own| &*own.id)
    }

    /// The servers that were alive when this one last looked: several times within `cluster.lost_after_s`.
    pub fn living(&self) -> Arc<Vec<NewNode>> {
        self.living.load_full()
    }

    /// The servers by name, at most 1,000; those that were killed, for a day.
    pub async fn all(&self) -> Result<Vec<NodeState>, CatalogError> {
        let nodes = self.catalog.nodes().await?;
        let now = self.catalog.now();
        Ok(nodes.into_iter().map(|node| self.state(node, now)).collect())
    }

    fn state(&self, node: Node, now: DateTime<Utc>) -> NodeState {
        // A clock that is ahead makes it negative.
        let silent = (now - node.seen_at).to_std().unwrap_or_default();
        NodeState { node, silent, is_lost: silent >= self.lost_after }
    }

    /// Is one of the servers until `stop`; ends at once if this one does not register.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(own) = &self.own else { return };
        let mut standing = Standing::New;
        let mut answers = true;
        // Since when the catalog has answered in time.
        let mut steady_since = Instant::now();
        loop {
            let asked = Instant::now();
            match self.give_sign(own, &mut standing, steady_since.elapsed() >= self.lost_after).await {
                Ok(()) => answers = true,
                Err(error) => {
                    steady_since = Instant::now();
                    if std::mem::replace(&mut answers, false) {
                        tracing::warn!(error = %Causes(&error), "failed to send heartbeat");
                    }
                }
            }
            if stop.run_until_cancelled(tokio::time::sleep(self.lost_after / SIGNS)).await.is_none() {
                break;
            }
            // The catalog, or this process, stood still; and so, perhaps, did the others.
            if asked.elapsed() >= self.lost_after / 2 {
                steady_since = Instant::now();
            }
        }
        if let Err(error) = self.catalog.remove_node(own).await {
            tracing::info!(error = %Causes(&error), "failed to remove this node from the list of nodes");
        }
    }

    /// `may_judge` tells whether others had the time to give theirs, too.
    async fn give_sign(&self, own: &NewNode, standing: &mut Standing, may_judge: bool) -> Result<(), CatalogError> {
        if *standing != Standing::Registered || !self.catalog.node_lives(own).await? {
            self.register(own, standing).await?;
        }
        self.look_after_others(may_judge).await
    }

    async fn register(&self, own: &NewNode, standing: &mut Standing) -> Result<(), CatalogError> {
        let other = self.catalog.node(&own.id).await?.filter(|node| node.registration.process != own.process);
        let other = other.map(|node| self.state(node, self.catalog.now())).filter(|state| !state.is_lost);
        match other {
            Some(_) if *standing == Standing::Replaced => return Ok(()),
            Some(_) if *standing == Standing::Registered => {
                *standing = Standing::Replaced;
                tracing::error!(
                    node = own.id,
                    "another process has registered under this node's name; give each node its own cluster.node or \
                     data directory"
                );
                return Ok(());
            }
            Some(state) => {
                tracing::info!(node = own.id, seen_s = state.silent.as_secs(), "replaced a node with the same name")
            }
            None => {}
        }
        self.catalog.register_node(own).await?;
        *standing = Standing::Registered;
        Ok(())
    }

    /// Updates the metrics of the servers, and ends the refreshes of lost ones.
    async fn look_after_others(&self, may_judge: bool) -> Result<(), CatalogError> {
        let states = self.all().await?;
        let lives = |state: &&NodeState| !state.is_lost;
        let living = states.iter().filter(lives).count();
        self.living.store(Arc::new(states.iter().filter(lives).map(|state| state.node.registration.clone()).collect()));
        metrics().nodes.of(["alive".into()]).set(living as f64);
        metrics().nodes.of(["lost".into()]).set((states.len() - living) as f64);
        for role in Role::ALL {
            let has = |state: &&NodeState| state.node.registration.roles.split(',').any(|name| name == role.name());
            metrics().node_roles.of([role.name().into()]).set(states.iter().filter(lives).filter(has).count() as f64);
        }
        if living == states.len() || !may_judge {
            return Ok(());
        }
        let now = self.catalog.now();
        let lost_after = TimeDelta::from_std(self.lost_after).unwrap_or(TimeDelta::MAX);
        let held = self.catalog.refreshes_of_lost_nodes(now - lost_after).await?;
        if !held.is_empty() {
            let ended = self.catalog.end_dead_refreshes(held).await?;
            tracing::warn!(ended, "ended refreshes of offline nodes");
        }
        let forgotten = TimeDelta::days(KEPT_DAYS).max(lost_after);
        self.catalog.forget_nodes(now - forgotten).await?;
        Ok(())
    }
}

/// What the registered address of a server with TLS begins with; otherwise it is `host:port`.
const SCHEME: &str = "https://";

pub(super) fn has_tls(address: &str) -> bool {
    address.starts_with(SCHEME)
}

pub(super) fn url_of(address: &str) -> String {
    if has_tls(address) { address.to_owned() } else { format!("http://{address}") }
}

//! All parts of the service, opened from the configuration.

mod background;
mod opening;
mod rooms;

pub use background::Background;
pub use opening::OpenError;
use std::sync::Arc;
use std::time::Duration;

use strata_cluster::nodes::Nodes;
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_store::disk_cache::DiskCache;
use strata_types::causes::Causes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::rooms::Rooms;
use crate::{
    Accounts, Datasets, Deliveries, Demo, Diffs, ExportsAhead, Ingest, LargeBodies, LargeResponses, Load, Logins,
    Lookups, Maintenance, RateLimiter, Readiness, Reads, Refreshes, Schedules, Sessions, Usage, Webhooks,
};

/// The service: its rooms, each with what it needs of the parts and of the rooms below. Clones share everything.
#[derive(Clone)]
pub struct App {
    rooms: Arc<Rooms>,
}

/// How long closing waits for calls that still run.
const CLOSING: Duration = Duration::from_secs(5);

impl App {
    /// Closes the catalog when the work is done, and waits a moment for what still uses it. An SQLite file is whole
    /// then, without a log beside it: it may be copied alone, and another one may be put in its place.
    ///
    /// What was counted and not yet recorded is recorded first, and damage that was noticed is logged.
    pub async fn close(&self) {
        match tokio::time::timeout(CLOSING, self.rooms.usage.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "failed to write usage statistics");
            }
            Err(_) => tracing::warn!("timed out writing usage statistics"),
        }
        if let Some(disk) = self.rooms.parts.cache.disk() {
            // What is not written in time is fetched again.
            let _ = tokio::time::timeout(CLOSING, disk.close()).await;
        }
        // Who needs a damaged file is looked up in the catalog.
        self.rooms.parts.cache.end_reports();
        let _ = tokio::time::timeout(CLOSING, self.rooms.parts.damage_log.wait()).await;
        // What does not end in time ends with the process, and the log stays beside the file.
        let _ = tokio::time::timeout(CLOSING, self.rooms.parts.catalog.clone().close()).await;
    }

    pub fn config(&self) -> &Config {
        &self.rooms.parts.config
    }

    pub fn rate_limiter(&self) -> &dyn RateLimiter {
        &*self.rooms.rate_limiter
    }

    /// Reads the whole catalog once, where it is an SQLite file, and looks for damage that could make it answer wrong.
    pub async fn verify_catalog(&self) -> Result<(), OpenError> {
        match self.rooms.parts.catalog.first_damage().await? {
            None => Ok(()),
            Some(reason) => Err(OpenError::Damaged { reason }),
        }
    }

    pub fn load(&self) -> Load {
        self.rooms.parts.capacity.admission.load()
    }

    /// Brings the metrics that show a state, not a count, up to date.
    pub fn update_metrics(&self) {
        let (metrics, load) = (metrics(), self.load());
        metrics.redis_up.set(f64::from(u8::from(self.rooms.rate_limiter.is_shared())));
        metrics.heavy_running.set(load.heavy_running as f64);
        metrics.heavy_waiting.set(load.heavy_waiting as f64);
        metrics.streams.set(load.streams as f64);
        metrics.buffered_bytes.set(load.buffered_bytes as f64);
        metrics.query_memory_bytes.set(self.rooms.parts.capacity.engine.memory_bytes() as f64);
        metrics.memory_bytes.set(self.rooms.parts.memory.available_bytes as f64);
        metrics.query_memory_limit_bytes.set(self.rooms.parts.memory.query_bytes as f64);
        metrics.cache_limit_bytes.set(self.rooms.parts.memory.cache_bytes as f64);
        metrics.disk_cache_bytes.set(self.rooms.parts.cache.disk().map_or(0, DiskCache::bytes) as f64);
        metrics.cache_bytes.set(self.rooms.parts.cache.memory_bytes() as f64);
        self.rooms.ingest.update_metrics();
        self.rooms.catalog_gates.update_metrics();
        self.rooms.parts.capacity.admission.update_metrics();
        self.rooms.bodies.update_metrics();
    }

    /// Starts the loops of a server. If `server.background` is false, it only records how much datasets are read.
    pub fn start_background(&self) -> Background {
        Background::start(self.rooms.clone())
    }

    pub fn lookups(&self) -> &Arc<Lookups> {
        &self.rooms.lookups
    }

    pub fn reads(&self) -> &Arc<Reads> {
        &self.rooms.reads
    }

    pub fn exports_ahead(&self) -> &Arc<ExportsAhead> {
        &self.rooms.exports_ahead
    }

    pub fn ingest(&self) -> &Arc<Ingest> {
        &self.rooms.ingest
    }

    pub fn refreshes(&self) -> &Arc<Refreshes> {
        &self.rooms.refreshes
    }

    pub fn schedules(&self) -> &Arc<Schedules> {
        &self.rooms.schedules
    }

    pub fn datasets(&self) -> &Arc<Datasets> {
        &self.rooms.datasets
    }

    pub fn diffs(&self) -> &Arc<Diffs> {
        &self.rooms.diffs
    }

    pub fn webhooks(&self) -> &Arc<Webhooks> {
        &self.rooms.webhooks
    }

    pub fn deliveries(&self) -> &Arc<Deliveries> {
        &self.rooms.deliveries
    }

    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.rooms.accounts
    }

    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.rooms.sessions
    }

    pub fn logins(&self) -> &Arc<Logins> {
        &self.rooms.logins
    }

    pub fn usage(&self) -> &Arc<Usage> {
        &self.rooms.usage
    }

    pub fn maintenance(&self) -> &Arc<Maintenance> {
        &self.rooms.maintenance
    }

    pub fn readiness(&self) -> &Arc<Readiness> {
        &self.rooms.readiness
    }

    pub fn bodies(&self) -> &Arc<LargeBodies> {
        &self.rooms.bodies
    }

    pub fn large_responses(&self) -> &LargeResponses {
        &self.rooms.large_responses
    }

    pub fn nodes(&self) -> &Arc<Nodes> {
        &self.rooms.nodes
    }

    /// Takes tasks of other nodes' queries until `stop`, if this process has a name and `cluster.secret` is given.
    pub async fn serve_tasks(&self, listener: TcpListener, stop: CancellationToken) {
        let Some(coordinator) = &self.rooms.coordinator else { return };
        if let Err(error) = coordinator.serve(listener, stop).await {
            tracing::error!(error = %Causes(&error), "failed to accept query tasks from other nodes");
        }
    }

    pub fn demo(&self) -> Demo {
        Demo { accounts: self.rooms.accounts.clone(), refreshes: self.rooms.refreshes.clone() }
    }
}

//! The configuration: one file per section, parsed once at start.
//!
//! 1. Each place is read: `strata.toml`, the environment, flags. An unknown key is refused.
//! 2. The places are merged with the defaults. A later place overrides an earlier one.
//! 3. Types parse, and numbers are checked against their ranges.
//!
//! To add an option, write one documented field in its section. The table of docs/configuration.md is made from it.

mod cache;
mod catalog;
mod cluster;
mod data;
mod error;
mod fair;
mod layers;
mod limits;
mod log;
mod memory;
mod net;
mod option;
mod plans;
mod query;
mod scrub;
mod secret;
mod server;
mod sessions;
mod sources;
mod store;
mod sweep;
mod unit;
mod webhook;

pub use cache::Cache;
pub use catalog::{Catalog, CatalogUrl};
pub use cluster::{Cluster, ClusterSecret, InternalAddress, NodeName, ServerRoles};
pub use data::{CATALOG_FILE, Data, STORE_FOLDER};
pub use error::ConfigError;
pub use fair::Fair;
pub use layers::{ConfigFile, ConfigSources};
pub use limits::{Limits, RedisUrl};
pub use log::{Log, LogFilter, LogFormat};
pub use memory::MemoryPlan;
pub use net::{NameServers, Net, Networks};
pub use option::{ConfigOption, OptionKind};
pub use plans::Plans;
pub use query::Query;
pub use scrub::Scrub;
pub use server::{HostNames, ListenAddress, PublicUrl, Server, TrustedProxies};
pub use sessions::Sessions;
pub use sources::{OWN_FOLDERS, SHARED_EXPORTS_FOLDER, SourcePrefix, Sources, VERSIONS_FOLDER, is_own_folder};
pub use store::{Endpoint, Store, StoreUrl};
pub use sweep::Sweep;
pub use unit::{bytes, seconds};
pub use webhook::Webhook;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use option::{Section, Violation};

/// The whole configuration. `Debug` shows no secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the service listens and how it treats connections.
    pub server: Server,
    /// The process among others of the same service.
    pub cluster: Cluster,
    /// Where the service keeps what it needs on local disk.
    pub data: Data,
    /// The database that knows users, datasets and versions.
    pub catalog: Catalog,
    /// Where the version files lie.
    pub store: Store,
    /// When unused files are removed.
    pub sweep: Sweep,
    /// How often a running server checks files for damage.
    pub scrub: Scrub,
    /// What the service accepts.
    pub limits: Limits,
    /// How long a log-in lasts.
    pub sessions: Sessions,
    /// The caches, in memory and on disk.
    pub cache: Cache,
    /// The resources of one process and of one request.
    pub query: Query,
    /// How users and networks share permits and space.
    pub fair: Fair,
    /// The bounds of sources and of fetching them.
    pub sources: Sources,
    /// The POST after each refresh.
    pub webhook: Webhook,
    /// Where outgoing requests may go.
    pub net: Net,
    /// What each plan includes.
    pub plans: Plans,
    /// What is logged, on standard error, and how.
    pub log: Log,
}

impl Config {
    /// Every option, in the order of the documentation.
    pub fn options() -> Vec<ConfigOption> {
        [
            Server::options(),
            Cluster::options(),
            Data::options(),
            Catalog::options(),
            Store::options(),
            Sweep::options(),
            Scrub::options(),
            Limits::options(),
            Sessions::options(),
            Cache::options(),
            Query::options(),
            Fair::options(),
            Sources::options(),
            Webhook::options(),
            Net::options(),
            Plans::options(),
            Log::options(),
        ]
        .concat()
    }

    /// Reads and checks the configuration. Touches only the file.
    ///
    /// # Errors
    /// [`ConfigError`], for the first thing that is wrong.
    pub fn load(sources: &ConfigSources) -> Result<Config, ConfigError> {
        let options = Config::options();
        let mut settings = layers::read(sources, &options)?;
        let config: Config = serde_path_to_error::deserialize(settings.values()?).map_err(|error| {
            let key = error.path().to_string();
            ConfigError::Value { origin: settings.origin(&key), key, reason: error.inner().to_string() }
        })?;
        config.check().map_err(|violation| {
            let origin = settings.origin(&violation.key);
            ConfigError::Value { origin, key: violation.key, reason: violation.reason }
        })?;
        Ok(config)
    }

    /// The catalog's URL, with its password: `catalog.url`, or the SQLite database in the data directory. Nothing
    /// in the path is encoded.
    pub fn catalog_url(&self) -> String {
        match &self.catalog.url {
            Some(url) => url.expose().to_owned(),
            None => format!("sqlite://{}", self.data.directory.join(CATALOG_FILE).display()),
        }
    }

    /// The file of the catalog, if it is SQLite's.
    pub fn catalog_file(&self) -> Option<PathBuf> {
        let url = self.catalog_url();
        url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).map(PathBuf::from)
    }

    /// Whether servers are registered in the catalog as nodes: with PostgreSQL, or if `[cluster]` says anything.
    pub fn has_nodes(&self) -> bool {
        self.catalog_file().is_none() || self.cluster != Cluster::default()
    }

    /// The store's URL: `store.url`, or the directory `store` in the data directory.
    pub fn store_url(&self) -> String {
        match &self.store.url {
            Some(url) => url.as_str().to_owned(),
            None => self.data.directory.join(STORE_FOLDER).display().to_string(),
        }
    }

    /// The store's directory, where it is one of this machine's.
    pub fn store_directory(&self) -> Option<PathBuf> {
        let url = self.store_url();
        match url.split_once("://") {
            None => Some(PathBuf::from(url)),
            Some(("file", path)) => Some(PathBuf::from(path)),
            Some(_) => None,
        }
    }

    /// How long a read, or a diff, may use a file after its look-up, by the limits of this configuration.
    pub fn longest_read(&self) -> Duration {
        // Two seconds for earlier look-ups. Then the entities are selected and the columns are found, each within its
        // time, or two versions are compared. Between them are the waits for a permit, a stream and the memory of a
        // Parquet file. Before them there may be a wait for another client's equal request that was refused.
        const LOOKED_UP_S: u64 = 2;
        let work = (2 * self.query.timeout_s).max(self.query.diff_timeout_s);
        let waits = work + 4 * self.query.heavy_wait_s;
        Duration::from_secs(LOOKED_UP_S + waits + self.server.answer_timeout_s)
    }

    fn check(&self) -> Result<(), Violation> {
        self.server.check_ranges()?;
        self.cluster.check_ranges()?;
        self.data.check_ranges()?;
        self.catalog.check_ranges()?;
        self.store.check_ranges()?;
        self.sweep.check_ranges()?;
        self.scrub.check_ranges()?;
        self.limits.check_ranges()?;
        self.sessions.check_ranges()?;
        self.cache.check_ranges()?;
        self.query.check_ranges()?;
        self.fair.check_ranges()?;
        self.sources.check_ranges()?;
        self.webhook.check_ranges()?;
        self.net.check_ranges()?;
        self.plans.check_ranges()?;
        self.log.check_ranges()?;
        self.store.check_combinations()?;
        self.cluster.check_combinations(self.server.roles.roles())?;
        if Duration::from_secs(self.sweep.older_than_s) <= self.longest_read() {
            return Err(Violation {
                key: "sweep.older_than_s".to_owned(),
                reason: format!(
                    "{} is not more than the {} s that a read may take (twice query.timeout_s or once query.diff_timeout_s, \
                     four times query.heavy_wait_s and server.answer_timeout_s together)",
                    self.sweep.older_than_s,
                    self.longest_read().as_secs()
                ),
            });
        }
        if self.data.directory.as_os_str().is_empty() {
            return Err(Violation { key: "data.directory".to_owned(), reason: "it is empty".to_owned() });
        }
        Ok(())
    }
}

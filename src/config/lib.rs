//! The configuration, parsed once at start.
//!
//! 1. Each place is read: `strata.toml`, the environment, flags. An unknown key is refused.
//! 2. The places are merged with the defaults. A later place overrides an earlier one.
//! 3. Types parse, and numbers are checked against their ranges.
//!
//! To add an option, write one documented field in its section. The table of docs/reference/configuration.md is made
//! from it.

mod catalog;
mod cluster;
mod layers;
mod limits;
mod log;
mod memory;
mod net;
mod option;
mod sections;
mod server;
mod sources;
mod store;
mod unit;

pub use catalog::{Catalog, CatalogUrl};
pub use cluster::{Cluster, ClusterSecret, InternalAddress};
pub use layers::{ConfigFile, ConfigSources};
pub use limits::{Limits, RedisUrl};
pub use log::{Log, LogFilter, LogFormat};
pub use memory::MemoryPlan;
pub use net::{NameServers, Net, Networks};
pub use option::{ConfigOption, OptionKind};
pub use sections::{CATALOG_FILE, Cache, Data, Fair, Plans, Query, STORE_FOLDER, Scrub, Sessions, Sweep, Webhook};
pub use server::{HostNames, ListenAddress, PublicUrl, Server, TrustedProxies};
pub use sources::{OWN_FOLDERS, SHARED_EXPORTS_FOLDER, SourcePrefix, Sources, VERSIONS_FOLDER, is_own_folder};
pub use store::{Endpoint, Store, StoreUrl};
pub use unit::{bytes, seconds};

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use strata_types::node::{NodeId, Roles};
use strata_types::secret::Secret;

use option::{OptionValue, Section, Violation};

/// How the values of these types are written, and how a default is shown if the type has one.
macro_rules! option_kinds {
    ($kind:ident: $($type:ty),+ $(; shown $shown:expr)?) => {
        option_kinds!(@ [$($shown)?] $kind: $($type),+);
    };
    (@ $shown:tt $kind:ident: $($type:ty),+) => {
        $( impl OptionValue for $type {
            const KIND: OptionKind = OptionKind::$kind;
            option_kinds!(@ $shown);
        } )+
    };
    (@ []) => {};
    (@ [$shown:expr]) => {
        fn shown(&self) -> Option<String> {
            let shown: fn(&Self) -> String = $shown;
            Some(shown(self))
        }
    };
}

option_kinds!(Text: Endpoint, InternalAddress, LogFilter, NodeId, PublicUrl, SourcePrefix, StoreUrl, String);
option_kinds!(Secret: CatalogUrl, ClusterSecret, RedisUrl, Secret);
option_kinds!(List: HostNames, NameServers, Networks, TrustedProxies);
option_kinds!(Boolean: bool; shown ToString::to_string);
option_kinds!(List: Roles; shown ToString::to_string);
option_kinds!(Text: PathBuf; shown |path| path.display().to_string());
option_kinds!(Text: ListenAddress; shown |address| address.as_str().to_owned());
option_kinds!(Text: LogFormat; shown |format| if *format == LogFormat::Text { "text" } else { "json" }.to_owned());

/// The whole configuration. `Debug` shows no secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub cluster: Cluster,
    pub data: Data,
    pub catalog: Catalog,
    pub store: Store,
    pub sweep: Sweep,
    pub scrub: Scrub,
    pub limits: Limits,
    pub sessions: Sessions,
    pub cache: Cache,
    pub query: Query,
    pub fair: Fair,
    pub sources: Sources,
    pub webhook: Webhook,
    pub net: Net,
    pub plans: Plans,
    pub log: Log,
}

impl Config {
    /// The sections, in the order of the documentation.
    fn sections(&self) -> [&dyn Section; 17] {
        let Config { server, cluster, data, catalog, store, sweep, scrub, limits, sessions, .. } = self;
        let Config { cache, query, fair, sources, webhook, net, plans, log, .. } = self;
        [
            server, cluster, data, catalog, store, sweep, scrub, limits, sessions, cache, query, fair, sources,
            webhook, net, plans, log,
        ]
    }

    /// Every option, in the order of the documentation.
    pub fn options() -> Vec<ConfigOption> {
        Config::default().sections().into_iter().flat_map(Section::options).collect()
    }

    /// Reads and checks the configuration. Touches only the file. Returns the first error.
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

    /// The catalog's URL, with its password: `catalog.url`, or SQLite's file in the data directory.
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
        self.sections().into_iter().try_for_each(Section::check_ranges)?;
        self.store.check_combinations()?;
        self.cluster.check_combinations(self.server.roles)?;
        if Duration::from_secs(self.sweep.older_than_s) <= self.longest_read() {
            let reason = format!(
                "{} s is too short; it must be more than {} s, the longest time that a request can use a file (2 s + \
                 max(2 * query.timeout_s, query.diff_timeout_s) + 4 * query.heavy_wait_s + server.answer_timeout_s)",
                self.sweep.older_than_s,
                self.longest_read().as_secs()
            );
            return Err(Violation::new("sweep.older_than_s", reason));
        }
        match self.data.directory.as_os_str().is_empty() {
            true => Err(Violation::new("data.directory", "must not be empty")),
            false => Ok(()),
        }
    }
}

/// Why a configuration cannot be used. Every text names the place of the value, the key, and what would be right. None
/// shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists, or was asked for, and cannot be read.
    #[error("failed to read the configuration file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Syntax {
        path: PathBuf,
        /// The parser's message with line and column.
        reason: String,
    },
    #[error("{origin}: unknown key `{key}`; {known}")]
    UnknownKey {
        origin: String,
        /// The key, `section.name` or only `section`.
        key: String,
        known: String,
    },
    /// A value of the wrong type, out of range, or not understood.
    #[error("{origin}: `{key}`: {reason}")]
    Value { origin: String, key: String, reason: String },
}

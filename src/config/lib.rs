//! The configuration, which is parsed once at startup:
//!
//! 1. Read the sources: `strata.toml`, the environment, and flags. Unknown keys are errors.
//! 2. Merge the sources with the defaults. A later source overrides an earlier one.
//! 3. Parse the types, and check the ranges of numbers.
//!
//! To add an option, add one documented field to its section. docs/reference/configuration.md is generated from it.

mod catalog;
mod cluster;
mod layers;
mod limits;
mod log;
mod memory;
mod net;
mod option;
mod option_unit;
mod sections;
mod server;
mod sources;
mod store;

pub use catalog::{CatalogConfig, CatalogUrl};
pub use cluster::{ClusterConfig, ClusterSecret, InternalAddress};
pub use layers::{ConfigFile, ConfigSources};
pub use limits::{RedisUrl, RequestLimitsConfig};
pub use log::{LogConfig, LogFilter, LogFormat};
pub use memory::MemoryPlan;
pub use net::{AllowedNetworks, NameServers, NetworkConfig};
pub use option::{ConfigOption, ConfigOptionKind};
pub use option_unit::{parse_bytes, parse_seconds};
pub use sections::{
    CATALOG_FILE_NAME, CacheConfig, DataDirectoryConfig, FairShareConfig, LoginSessionConfig, QueryConfig,
    STORE_FOLDER_NAME, ScrubConfig, SweepConfig, UserPlanConfig, WebhookConfig,
};
pub use server::{HostNames, HttpServerConfig, ListenAddress, PublicUrl, TrustedProxies};
pub use sources::{
    RESERVED_FOLDERS, SHARED_EXPORTS_FOLDER, SourceConfig, SourcePrefix, VERSIONS_FOLDER, is_reserved_folder,
};
pub use store::{StoreConfig, StoreEndpoint, StoreUrl};

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use strata_types::node::{NodeId, NodeRoles};
use strata_types::secret::Secret;

use option::{ConfigSection, OptionValue, OptionViolation};

macro_rules! option_kinds {
    ($kind:ident: $($type:ty),+ $(; shown $shown:expr)?) => {
        option_kinds!(@ [$($shown)?] $kind: $($type),+);
    };
    (@ $shown:tt $kind:ident: $($type:ty),+) => {
        $( impl OptionValue for $type {
            const KIND: ConfigOptionKind = ConfigOptionKind::$kind;
            option_kinds!(@ $shown);
        } )+
    };
    (@ []) => {};
    (@ [$shown:expr]) => {
        fn format_default(&self) -> Option<String> {
            let shown: fn(&Self) -> String = $shown;
            Some(shown(self))
        }
    };
}

option_kinds!(Text: StoreEndpoint, InternalAddress, LogFilter, NodeId, PublicUrl, SourcePrefix, StoreUrl, String);
option_kinds!(Secret: CatalogUrl, ClusterSecret, RedisUrl, Secret);
option_kinds!(List: HostNames, NameServers, AllowedNetworks, TrustedProxies);
option_kinds!(Boolean: bool; shown ToString::to_string);
option_kinds!(List: NodeRoles; shown ToString::to_string);
option_kinds!(Text: PathBuf; shown |path| path.display().to_string());
option_kinds!(Text: ListenAddress; shown |address| address.as_str().to_owned());
option_kinds!(Text: LogFormat; shown |format| if *format == LogFormat::Text { "text" } else { "json" }.to_owned());

/// The whole configuration. `Debug` shows no secrets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: HttpServerConfig,
    pub cluster: ClusterConfig,
    pub data: DataDirectoryConfig,
    pub catalog: CatalogConfig,
    pub store: StoreConfig,
    pub sweep: SweepConfig,
    pub scrub: ScrubConfig,
    pub limits: RequestLimitsConfig,
    pub sessions: LoginSessionConfig,
    pub cache: CacheConfig,
    pub query: QueryConfig,
    pub fair: FairShareConfig,
    pub sources: SourceConfig,
    pub webhook: WebhookConfig,
    pub net: NetworkConfig,
    pub plans: UserPlanConfig,
    pub log: LogConfig,
}

impl Config {
    fn sections(&self) -> [&dyn ConfigSection; 17] {
        let Config { server, cluster, data, catalog, store, sweep, scrub, limits, sessions, .. } = self;
        let Config { cache, query, fair, sources, webhook, net, plans, log, .. } = self;
        [
            server, cluster, data, catalog, store, sweep, scrub, limits, sessions, cache, query, fair, sources,
            webhook, net, plans, log,
        ]
    }

    pub fn options() -> Vec<ConfigOption> {
        Config::default().sections().into_iter().flat_map(ConfigSection::options).collect()
    }

    /// Reads and checks the configuration. Accesses no other files. Returns the first error.
    pub fn load(sources: &ConfigSources) -> Result<Config, ConfigError> {
        let options = Config::options();
        let mut settings = layers::read_sources(sources, &options)?;
        let config: Config = serde_path_to_error::deserialize(settings.take_values()?).map_err(|error| {
            let key = error.path().to_string();
            ConfigError::InvalidValue { origin: settings.origin(&key), key, reason: error.inner().to_string() }
        })?;
        config.validate().map_err(|violation| {
            let origin = settings.origin(&violation.key);
            ConfigError::InvalidValue { origin, key: violation.key, reason: violation.reason }
        })?;
        Ok(config)
    }

    /// Returns the URL of the metadata database, including the password.
    pub fn catalog_url(&self) -> String {
        match &self.catalog.url {
            Some(url) => url.expose().to_owned(),
            None => format!("sqlite://{}", self.data.directory.join(CATALOG_FILE_NAME).display()),
        }
    }

    pub fn catalog_file(&self) -> Option<PathBuf> {
        let url = self.catalog_url();
        url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).map(PathBuf::from)
    }

    /// Returns true if servers register as nodes: with PostgreSQL, or if `[cluster]` sets any option.
    pub fn has_node_registration(&self) -> bool {
        self.catalog_file().is_none() || self.cluster != ClusterConfig::default()
    }

    pub fn store_url(&self) -> String {
        match &self.store.url {
            Some(url) => url.as_str().to_owned(),
            None => self.data.directory.join(STORE_FOLDER_NAME).display().to_string(),
        }
    }

    pub fn store_directory(&self) -> Option<PathBuf> {
        let url = self.store_url();
        match url.split_once("://") {
            None => Some(PathBuf::from(url)),
            Some(("file", path)) => Some(PathBuf::from(path)),
            Some(_) => None,
        }
    }

    /// Returns the maximum time from the lookup of a version until its query or diff no longer uses the file.
    pub fn max_read_duration(&self) -> Duration {
        // A request can wait for `query.heavy_wait_s` up to four times: for an equal request (which is then refused),
        // for a permit, for a stream, and for the memory of a Parquet export. Its cached lookup can be two seconds old.
        // A query selects entities and finds columns, each within `query.timeout_s`; a diff compares two versions.
        const LOOKED_UP_S: u64 = 2;
        let work = (2 * self.query.timeout_s).max(self.query.diff_timeout_s);
        let waits = work + 4 * self.query.heavy_wait_s;
        Duration::from_secs(LOOKED_UP_S + waits + self.server.answer_timeout_s)
    }

    fn validate(&self) -> Result<(), OptionViolation> {
        self.sections().into_iter().try_for_each(ConfigSection::check_ranges)?;
        self.store.check_combinations()?;
        self.cluster.check_combinations(self.server.roles)?;
        if Duration::from_secs(self.sweep.older_than_s) <= self.max_read_duration() {
            let reason = format!(
                "{} s is too short; it must be more than {} s, the longest time that a request can use a file (2 s + \
                 max(2 * query.timeout_s, query.diff_timeout_s) + 4 * query.heavy_wait_s + server.answer_timeout_s)",
                self.sweep.older_than_s,
                self.max_read_duration().as_secs()
            );
            return Err(OptionViolation::new("sweep.older_than_s", reason));
        }
        match self.data.directory.as_os_str().is_empty() {
            true => Err(OptionViolation::new("data.directory", "must not be empty")),
            false => Ok(()),
        }
    }
}

/// Each error message contains the source of the invalid value, the key, and the valid form, but never a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read the configuration file {}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    InvalidSyntax {
        path: PathBuf,
        /// The message of the TOML parser, with line and column.
        reason: String,
    },
    #[error("{origin}: unknown key `{key}`; {known}")]
    UnknownKey {
        origin: String,
        /// The unknown configuration key: `section.name`, or only `section`.
        key: String,
        known: String,
    },
    #[error("{origin}: `{key}`: {reason}")]
    InvalidValue { origin: String, key: String, reason: String },
}

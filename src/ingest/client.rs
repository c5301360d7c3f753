//! The client of sources: it checks the URL of a source and opens it, from a server or from the store.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use strata_config as config;
use strata_types::source::{ObjectUrl, SourceUrl, Validators};

use super::error::SourceError;
use super::input::SourceInput;
use super::{fetch, object};
use crate::net::{Outgoing, parse_http_url};

#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// For the connection, TLS included (`sources.connect_timeout_s`).
    pub connect_timeout: Duration,
    /// From the request to the head of the answer, redirects included (`sources.answer_timeout_s`).
    pub answer_timeout: Duration,
    /// Between two pieces of the answer (`sources.idle_timeout_s`).
    pub idle_timeout: Duration,
    /// For everything, from the first connection to the body's last byte (`sources.timeout_s`).
    pub total_timeout: Duration,
    /// How many redirects are followed (`sources.redirects`).
    pub redirects_max: usize,
}

impl From<&config::Sources> for FetchLimits {
    fn from(sources: &config::Sources) -> Self {
        Self {
            connect_timeout: Duration::from_secs(sources.connect_timeout_s),
            answer_timeout: Duration::from_secs(sources.answer_timeout_s),
            idle_timeout: Duration::from_secs(sources.idle_timeout_s),
            total_timeout: Duration::from_secs(sources.timeout_s),
            redirects_max: usize::try_from(sources.redirects).unwrap_or(usize::MAX),
        }
    }
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self::from(&config::Sources::default())
    }
}

#[derive(Debug, Clone)]
pub struct ObjectSources {
    pub store: Arc<dyn ObjectStore>,
    pub store_url: String,
    /// The folder that is open to sources (`sources.prefix`).
    pub prefix: Option<String>,
}

pub enum Opened {
    Document(Fetched),
    /// The document has not changed since these validators were given. Holds the validators that replace them.
    NotModified(Validators),
}

/// An answer whose body has not been read yet.
pub struct Fetched {
    /// The body, with its name, type and length. It must be read on a thread that may block.
    pub input: SourceInput,
    /// The validators for the next time. Keep them only if this document becomes a version. Their URL is where the
    /// answer came from, after redirects, without user name, password and fragment.
    pub validators: Validators,
}

impl Fetched {
    /// The `_source` of entities that have none: the URL, without its query unless that may be published.
    pub fn published_url(&self, with_query: bool) -> String {
        let url = &*self.validators.url;
        let without_query = url.split_once('?').map_or(url, |(without_query, _)| without_query);
        if with_query { url.to_owned() } else { without_query.to_owned() }
    }
}

/// Checks and opens sources. Clones share the store.
#[derive(Debug, Clone)]
pub struct SourceClient {
    pub(super) outgoing: Outgoing,
    pub(super) limits: FetchLimits,
    objects: Option<ObjectSources>,
}

enum Target {
    Http(url::Url),
    Object(ObjectUrl, ObjectPath, Arc<dyn ObjectStore>),
}

impl SourceClient {
    pub fn new(outgoing: Outgoing, limits: FetchLimits, objects: Option<ObjectSources>) -> Self {
        Self { outgoing, limits, objects }
    }

    /// Whether a URL may be a source (400 if not). Looks up the name of a server, but does not ask for the document.
    pub async fn check(&self, url: &str) -> Result<(), SourceError> {
        match self.target(url)? {
            Target::Http(url) => Ok(self.outgoing.check(&url).await?),
            Target::Object(..) => Ok(()),
        }
    }

    /// Asks for the document at `url` and waits for the head of the answer. With `known`, asks whether the document has
    /// changed. Validators of another URL than the one that answers are ignored. A body that breaks off fails its
    /// reader with [`SourceError::Unreachable`].
    pub async fn open(&self, url: &str, known: Option<&Validators>) -> Result<Opened, SourceError> {
        let known = known.filter(|known| !known.is_empty());
        match self.target(url)? {
            Target::Http(url) => fetch::open(self, &url, known).await,
            Target::Object(url, path, store) => object::open(self, &*store, &url, &path, known).await,
        }
    }

    fn target(&self, url: &str) -> Result<Target, SourceError> {
        let bad = |reason: String| SourceError::BadAddress { reason };
        match url.parse().map_err(|error: strata_types::source::InvalidSourceUrl| bad(error.to_string()))? {
            SourceUrl::Http(url) => Ok(Target::Http(parse_http_url(&url)?)),
            SourceUrl::Object(url) => {
                let Some(objects) = &self.objects else {
                    return Err(bad("no store is configured".to_owned()));
                };
                let path = object::locate(&url, &objects.store_url, objects.prefix.as_deref())?;
                Ok(Target::Object(url, path, objects.store.clone()))
            }
        }
    }
}

//! The client of sources: it checks the URL of a source and opens it, from a server or from the store.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use strata_types::source::{InvalidSourceUrl, ObjectUrl, SourceUrl, Validators};

use super::error::SourceError;
use super::input::{FetchLimits, Opened};
use super::{fetch, object};
use crate::net::{Outgoing, parse_http_url};

#[derive(Debug, Clone)]
pub struct ObjectSources {
    pub store: Arc<dyn ObjectStore>,
    pub store_url: String,
    /// The folder that is open to sources (`sources.prefix`).
    pub prefix: Option<String>,
}

#[derive(Debug, Clone)]
pub struct SourceClient {
    outgoing: Outgoing,
    limits: FetchLimits,
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
            Target::Http(url) => fetch::open(&self.outgoing, &self.limits, &url, known).await,
            Target::Object(url, path, store) => object::open(&self.limits, &*store, &url, &path, known).await,
        }
    }

    fn target(&self, url: &str) -> Result<Target, SourceError> {
        let bad = |reason: String| SourceError::BadAddress { reason };
        match url.parse().map_err(|error: InvalidSourceUrl| bad(error.to_string()))? {
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

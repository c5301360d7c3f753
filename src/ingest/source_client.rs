//! Checks the URLs of sources, and opens sources over HTTP or from the store.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use strata_types::source::{InvalidSourceUrl, ObjectUrl, SourceUrl, SourceValidators};

use super::error::SourceError;
use super::source_input::{FetchLimits, FetchOutcome};
use super::{http_fetch, object_source};
use crate::egress::{EgressClient, parse_http_url};

#[derive(Debug, Clone)]
pub struct ObjectSourceStore {
    pub store: Arc<dyn ObjectStore>,
    pub store_url: String,
    /// The only folder of the store that sources may read (`sources.prefix`).
    pub prefix: Option<String>,
}

#[derive(Clone)]
pub struct SourceClient {
    egress_client: EgressClient,
    limits: FetchLimits,
    object_source_store: Option<ObjectSourceStore>,
}

enum SourceTarget {
    Http(url::Url),
    Object(ObjectUrl, ObjectPath, Arc<dyn ObjectStore>),
}

impl SourceClient {
    pub fn new(egress_client: EgressClient, limits: FetchLimits, store: Option<ObjectSourceStore>) -> Self {
        Self { egress_client, limits, object_source_store: store }
    }

    /// Returns an error if the URL cannot be a source. Resolves the host name, but sends no request.
    pub async fn check_url(&self, url: &str) -> Result<(), SourceError> {
        match self.parse_target(url)? {
            SourceTarget::Http(url) => Ok(self.egress_client.check_url(&url).await?),
            SourceTarget::Object(..) => Ok(()),
        }
    }

    /// Requests the document at `url` and waits for the response head. With `known`, the request is conditional. If the
    /// transfer is interrupted later, reads of the body return [`SourceError::Unreachable`].
    pub async fn open(&self, url: &str, known: Option<&SourceValidators>) -> Result<FetchOutcome, SourceError> {
        let known = known.filter(|known| !known.is_empty());
        match self.parse_target(url)? {
            SourceTarget::Http(url) => http_fetch::open_http(&self.egress_client, &self.limits, &url, known).await,
            SourceTarget::Object(url, path, store) => {
                object_source::open_object(&self.limits, &*store, &url, &path, known).await
            }
        }
    }

    fn parse_target(&self, url: &str) -> Result<SourceTarget, SourceError> {
        let unusable = |reason: String| SourceError::UnusableUrl { reason };
        match url.parse().map_err(|error: InvalidSourceUrl| unusable(error.to_string()))? {
            SourceUrl::Http(url) => Ok(SourceTarget::Http(parse_http_url(&url)?)),
            SourceUrl::Object(url) => {
                let Some(objects) = &self.object_source_store else {
                    return Err(unusable("no store is configured".to_owned()));
                };
                let path = object_source::resolve_object_path(&url, &objects.store_url, objects.prefix.as_deref())?;
                Ok(SourceTarget::Object(url, path, objects.store.clone()))
            }
        }
    }
}

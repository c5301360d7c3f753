//! Finds the target of a read, a file of a dataset, in the metadata database or in a cache ([`catalog_cache`]).

pub(crate) mod cache_key;
pub(crate) mod catalog_cache;
pub(crate) mod error;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use strata_catalog::{Catalog, CatalogError, ChangeListener, ResolvedDataset};
use strata_runtime::metrics::metrics;
use strata_types::dataset::Dataset;
use strata_types::error_chain::ErrorChain;
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionFile, VersionNumber, VersionSelector, VersionVariant};
use tokio::sync::Notify;

use crate::admission::catalog_limits::CatalogLimits;
use crate::lookup::catalog_cache::{CatalogCache, TTL};
use crate::lookup::error::{ReadError, Result};
use crate::{ClientNetwork, Principal};

const MAX_RELISTEN_DELAY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTarget {
    pub dataset: DatasetId,
    pub name_slug: String,
    pub version: VersionSelector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationHeader<'a> {
    None,
    Bearer(&'a str),
    Other,
}

pub struct LookupService {
    catalog: Catalog,
    cache: ArcSwap<CatalogCache>,
    is_listening: AtomicBool,
    catalog_limits: Arc<CatalogLimits>,
    /// Notifies of changes by this process. There must be only one waiter.
    pub(crate) local_change: Notify,
}

impl LookupService {
    pub(crate) fn new(catalog: Catalog, catalog_limits: Arc<CatalogLimits>) -> LookupService {
        let cache = ArcSwap::from_pointee(CatalogCache::new(TTL));
        let is_listening = AtomicBool::new(false);
        LookupService { catalog, cache, is_listening, catalog_limits, local_change: Notify::new() }
    }

    /// Finds the target of a read in the metadata database, or in a cache of lookups that are less than a second old.
    pub async fn find(&self, target: &ReadTarget) -> Result<ResolvedTarget> {
        let resolved = self.resolve(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        Ok(ResolvedTarget { resolved, version: target.version })
    }

    /// Like [`LookupService::find`], but waits for a permit, because no rate limit has counted the request yet.
    pub async fn find_with_permit(&self, client: ClientNetwork, target: &ReadTarget) -> Result<ResolvedTarget> {
        let _permit = self.catalog_limits.acquire_lookup(client).await?;
        self.find(target).await
    }

    pub async fn find_by_id(&self, dataset: DatasetId, version: VersionSelector) -> Result<ResolvedTarget> {
        Ok(ResolvedTarget { resolved: self.resolve(dataset, version).await?, version })
    }

    pub(crate) async fn resolve(
        &self,
        dataset: DatasetId,
        version: VersionSelector,
    ) -> Result<Option<Arc<ResolvedDataset>>> {
        let load_target = || self.catalog.resolve_read(dataset, version);
        self.cache.load_full().resolve(dataset, version, load_target).await
    }

    /// Makes a change by this process appear at once. Must be called after each write that affects reads, before the
    /// response to the write is sent.
    pub fn notify_catalog_change(&self) {
        self.cache.load().invalidate();
        self.local_change.notify_one();
    }

    /// Makes changes by other processes appear at once. Completes if the metadata database cannot report changes.
    pub(crate) async fn follow_changes(self: Arc<Self>) {
        loop {
            match self.catalog.listen_for_changes().await {
                Ok(None) => return,
                Ok(Some(changes)) => {
                    let lost = self.listen(changes).await;
                    tracing::info!(error = %ErrorChain(&lost), "lost the LISTEN connection; polling for changes");
                }
                Err(error) => tracing::debug!(error = %ErrorChain(&error), "failed to listen for changes"),
            }
            // A random delay, so that not all processes reconnect at the same moment.
            tokio::time::sleep(MAX_RELISTEN_DELAY.mul_f64(rand::random_range(0.5..1.0))).await;
        }
    }

    async fn listen(&self, mut changes: ChangeListener) -> CatalogError {
        self.is_listening.store(true, Ordering::Relaxed);
        let lost = loop {
            // The cache is invalidated before the first notification, too, because earlier changes were not reported.
            self.cache.load().invalidate();
            match changes.wait_for_change().await {
                Ok(()) => metrics().catalog_notifications.increment(1),
                Err(error) => break error,
            }
        };
        self.is_listening.store(false, Ordering::Relaxed);
        self.cache.load().invalidate();
        lost
    }

    pub fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    pub fn set_ttl(&self, ttl: Duration) {
        self.cache.store(Arc::new(CatalogCache::new(ttl)));
    }
}

pub struct ResolvedTarget {
    /// The dataset and its version; `None` if there is no such dataset, or its slug differs from the request's.
    pub(crate) resolved: Option<Arc<ResolvedDataset>>,
    pub(crate) version: VersionSelector,
}

impl ResolvedTarget {
    pub fn dataset_id(&self) -> Option<DatasetId> {
        self.resolved.as_ref().map(|resolved| resolved.dataset.id)
    }

    pub fn is_private(&self) -> bool {
        self.resolved.as_ref().is_some_and(|resolved| resolved.dataset.is_private())
    }

    /// Returns the dataset and the version if the dataset is public or belongs to the user.
    pub fn dataset_and_version_visible_to(&self, user: Option<&User>) -> Option<(&Dataset, Option<&DatasetVersion>)> {
        let ResolvedDataset { dataset, version } = self.resolved.as_deref()?;
        let is_owner = user.is_some_and(|user| user.id == dataset.owner);
        (is_owner || !dataset.is_private()).then_some((dataset, version.as_ref()))
    }

    pub fn version_owned_by(&self, user: &User) -> Option<&DatasetVersion> {
        let resolved = self.resolved.as_ref().filter(|resolved| resolved.dataset.owner == user.id)?;
        resolved.version.as_ref()
    }
}

#[derive(Clone, Debug)]
pub struct AuthorizedTarget {
    pub dataset_id: DatasetId,
    pub name_slug: String,
    pub is_private: bool,
    pub version: VersionNumber,
    pub variant: VersionVariant,
    pub file: VersionFile,
    pub principal: Principal,
}

impl AuthorizedTarget {
    /// Creates a target without checking the requester, and without checking whether the dataset is frozen.
    pub(crate) fn new(
        ResolvedDataset { dataset, version }: &ResolvedDataset,
        selector: VersionSelector,
        variant: VersionVariant,
        principal: Principal,
    ) -> Result<AuthorizedTarget> {
        let not_found = || ReadError::VersionNotFound { selector, latest: dataset.latest_version };
        let version = version.as_ref().ok_or_else(not_found)?;
        let file = match variant {
            VersionVariant::Original => &version.file,
            VersionVariant::Alternate => version.alternate.as_ref().ok_or(ReadError::AltNotFound(version.number))?,
        };
        Ok(AuthorizedTarget {
            dataset_id: dataset.id,
            name_slug: dataset.name.slug().to_owned(),
            is_private: dataset.is_private(),
            version: version.number,
            variant,
            file: file.clone(),
            principal,
        })
    }
}

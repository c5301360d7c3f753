//! Finds the target of a read in the metadata database, or in a cache.

pub(crate) mod cache_key;
pub(crate) mod catalog_cache;
pub(crate) mod error;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use strata_catalog::{Catalog, CatalogError, Changes, Resolved};
use strata_runtime::metrics::metrics;
use strata_types::causes::Causes;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::{Version, VersionFile, VersionNumber, VersionSelector};
use tokio::sync::Notify;

use crate::admission::catalog::CatalogGates;
use crate::lookup::catalog_cache::{CatalogCache, TTL};
use crate::lookup::error::ReadError;
use crate::{Client, Principal};

/// Maximum delay before the process listens again for changes by other processes.
const MAX_RELISTEN_DELAY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTarget {
    pub dataset: DatasetId,
    pub name_slug: String,
    pub version: VersionSelector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization<'a> {
    None,
    Bearer(&'a str),
    Other,
}

pub struct Lookups {
    catalog: Catalog,
    /// Replaced only by tests.
    cache: ArcSwap<CatalogCache>,
    is_listening: AtomicBool,
    gates: Arc<CatalogGates>,
    changed: Notify,
}

impl Lookups {
    pub(crate) fn new(catalog: Catalog, gates: Arc<CatalogGates>) -> Lookups {
        let cache = ArcSwap::from_pointee(CatalogCache::new(TTL));
        Lookups { catalog, cache, is_listening: AtomicBool::new(false), gates, changed: Notify::new() }
    }

    /// Finds the target of a read in the metadata database, or in a cache of lookups that are less than a second old.
    pub async fn find(&self, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let resolved = self.resolve(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        Ok(Lookup { resolved, version: target.version })
    }

    /// Like [`Lookups::find`], with a permit, for a client whose request is not counted yet.
    pub async fn find_in_turn(&self, client: Client, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let _permit = self.gates.look_up(client).await?;
        self.find(target).await
    }

    /// Like [`Lookups::find`], for a dataset with any slug.
    pub async fn find_by_id(&self, dataset: DatasetId, version: VersionSelector) -> Result<Lookup, ReadError> {
        Ok(Lookup { resolved: self.resolve(dataset, version).await?, version })
    }

    pub(crate) async fn resolve(
        &self,
        dataset: DatasetId,
        version: VersionSelector,
    ) -> Result<Option<Arc<Resolved>>, ReadError> {
        let ask = || self.catalog.resolve_read(dataset, version);
        self.cache.load_full().resolve(dataset, version, ask).await
    }

    /// Must be called after each write that affects reads, before its response is sent. Reads by this process then see
    /// the change.
    pub fn catalog_changed(&self) {
        self.cache.load().invalidate();
        self.changed.notify_one();
    }

    /// Waits for a change by this process that affects reads since the last call. For a single waiter.
    pub(crate) async fn next_change(&self) {
        self.changed.notified().await;
    }

    /// Makes changes by other processes appear at once while the catalog reports them; ends if it never does.
    pub(crate) async fn follow_changes(self: Arc<Self>) {
        loop {
            match self.catalog.changes().await {
                Ok(None) => return,
                Ok(Some(changes)) => {
                    let lost = self.listen(changes).await;
                    tracing::info!(error = %Causes(&lost), "lost the LISTEN connection; polling for changes");
                }
                Err(error) => tracing::debug!(error = %Causes(&error), "failed to listen for changes"),
            }
            // Not all processes at the same moment.
            tokio::time::sleep(MAX_RELISTEN_DELAY.mul_f64(rand::random_range(0.5..1.0))).await;
        }
    }

    async fn listen(&self, mut changes: Changes) -> CatalogError {
        self.is_listening.store(true, Ordering::Relaxed);
        let lost = loop {
            // Also before the first report, because earlier changes were not reported.
            self.cache.load().invalidate();
            match changes.next().await {
                Ok(()) => metrics().heard_changes.increment(1),
                Err(error) => break error,
            }
        };
        self.is_listening.store(false, Ordering::Relaxed);
        self.cache.load().invalidate();
        lost
    }

    pub fn hears_changes(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    /// For tests: sets the maximum age of lookups, so that only reported changes appear.
    pub fn keep_for(&self, lasting: Duration) {
        self.cache.store(Arc::new(CatalogCache::new(lasting)));
    }
}

/// The target of a read, before any check.
pub struct Lookup {
    /// `None` also if the dataset has another slug than the request.
    pub(crate) resolved: Option<Arc<Resolved>>,
    pub(crate) version: VersionSelector,
}

impl Lookup {
    pub fn dataset(&self) -> Option<DatasetId> {
        self.resolved.as_ref().map(|resolved| resolved.dataset.id)
    }

    pub fn is_private(&self) -> bool {
        self.resolved.as_ref().is_some_and(|resolved| resolved.dataset.is_private())
    }

    /// The dataset and the version, if the dataset is public or belongs to the user.
    pub fn visible_to(&self, user: Option<&User>) -> Option<(&Dataset, Option<&Version>)> {
        let Resolved { dataset, version } = self.resolved.as_deref()?;
        let owned = user.is_some_and(|user| user.id == dataset.owner);
        (owned || !dataset.is_private()).then_some((dataset, version.as_ref()))
    }

    pub fn owned_version(&self, user: &User) -> Option<&Version> {
        let resolved = self.resolved.as_ref().filter(|resolved| resolved.dataset.owner == user.id)?;
        resolved.version.as_ref()
    }
}

#[derive(Clone, Debug)]
pub struct Admitted {
    pub dataset_id: DatasetId,
    pub name_slug: String,
    pub private: bool,
    pub version: VersionNumber,
    pub alt: bool,
    pub file: VersionFile,
    pub holder: Principal,
}

impl Admitted {
    /// Checks neither the requester nor whether the dataset is frozen.
    ///
    /// # Errors
    /// [`ReadError::VersionNotFound`] and [`ReadError::AltNotFound`].
    pub(crate) fn new(
        Resolved { dataset, version }: &Resolved,
        selector: VersionSelector,
        alt: bool,
        holder: Principal,
    ) -> Result<Admitted, ReadError> {
        let not_found = || ReadError::VersionNotFound { selector, latest: dataset.latest_version };
        let version = version.as_ref().ok_or_else(not_found)?;
        let file = match alt {
            false => &version.file,
            true => version.alt.as_ref().ok_or(ReadError::AltNotFound(version.number))?,
        };
        Ok(Admitted {
            dataset_id: dataset.id,
            name_slug: dataset.name.slug().to_owned(),
            private: dataset.is_private(),
            version: version.number,
            alt,
            file: file.clone(),
            holder,
        })
    }
}

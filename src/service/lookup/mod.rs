//! Finds the target of a read in the metadata database, or in the cache of its answers.

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
use crate::lookup::catalog_cache::{CatalogCache, FRESH};
use crate::lookup::error::ReadError;
use crate::{Client, Principal};

/// Before changes by other processes are listened for again, at most.
const HEAR_AGAIN: Duration = Duration::from_secs(2);

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
    hears: AtomicBool,
    gates: Arc<CatalogGates>,
    changed: Notify,
}

impl Lookups {
    pub(crate) fn new(catalog: Catalog, gates: Arc<CatalogGates>) -> Lookups {
        let cache = ArcSwap::from_pointee(CatalogCache::new(FRESH));
        Lookups { catalog, cache, hears: AtomicBool::new(false), gates, changed: Notify::new() }
    }

    /// Finds the target of a read in the metadata database, or in the cache of its answers of less than a second ago.
    pub async fn find(&self, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let resolved = self.resolve(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        Ok(Lookup { resolved, version: target.version })
    }

    /// Like [`Lookups::find`], under a permit of a client whose request is not counted yet.
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

    /// Call it after every write that a read can see, before the caller is told: reads of this process see it then.
    pub fn catalog_changed(&self) {
        self.cache.load().changed();
        self.changed.notify_one();
    }

    /// Waits for a change by this process that a read can see, since it was last waited for; for one who waits.
    pub(crate) async fn next_change(&self) {
        self.changed.notified().await;
    }

    /// Makes changes by other processes show at once while the catalog tells of them; ends if it never does.
    pub(crate) async fn follow_changes(self: Arc<Self>) {
        loop {
            match self.catalog.changes().await {
                Ok(None) => return,
                Ok(Some(changes)) => {
                    let lost = self.hear(changes).await;
                    tracing::info!(error = %Causes(&lost), "lost the LISTEN connection; polling for changes");
                }
                Err(error) => tracing::debug!(error = %Causes(&error), "failed to listen for changes"),
            }
            // Not all processes at the same moment.
            tokio::time::sleep(HEAR_AGAIN.mul_f64(rand::random_range(0.5..1.0))).await;
        }
    }

    async fn hear(&self, mut changes: Changes) -> CatalogError {
        self.hears.store(true, Ordering::Relaxed);
        let lost = loop {
            // The first time, for what was not heard before.
            self.cache.load().changed();
            match changes.next().await {
                Ok(()) => metrics().heard_changes.increment(1),
                Err(error) => break error,
            }
        };
        self.hears.store(false, Ordering::Relaxed);
        self.cache.load().changed();
        lost
    }

    pub fn hears_changes(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Keeps what the catalog said for longer than a service may, so that tests see what is heard.
    pub fn keep_for(&self, lasting: Duration) {
        self.cache.store(Arc::new(CatalogCache::new(lasting)));
    }
}

/// What the catalog knows of a target, before any check.
pub struct Lookup {
    /// Only of the dataset that has the slug, where one was asked for.
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

    /// The dataset and the version, if the dataset is public or the user's; another's private one is as a missing one.
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

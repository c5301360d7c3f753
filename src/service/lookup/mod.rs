//! The target of a read: found in the catalog, or in what it said less than a second ago; and whether the caller may
//! read it.

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
use crate::{Client, Holder};

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

    /// What the catalog says of the target of a read, or said less than a second ago.
    pub async fn find(&self, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let Lookup { resolved, version } = self.find_by_id(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        Ok(Lookup { resolved, version })
    }

    /// As [`Lookups::find`], holding a permit of a client whose request has not been counted yet.
    pub async fn find_in_turn(&self, client: Client, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let _permit = self.gates.look_up(client).await?;
        self.find(target).await
    }

    /// As [`Lookups::find`], of a dataset whose slug does not matter.
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
    resolved: Option<Arc<Resolved>>,
    version: VersionSelector,
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

    /// What may be read; `alt` asks for the version's alternate. With the private key it is read for the dataset's
    /// owner, otherwise for the client. Refuses in the order of docs/reference/errors.md, Order of checks.
    pub fn admit(self, authorization: Authorization<'_>, client: Client, alt: bool) -> Result<Admitted, ReadError> {
        let resolved = self.resolved.ok_or(ReadError::DatasetNotFound)?;
        let holder = authorize(&resolved.dataset, authorization, client)?;
        admit(&resolved, self.version, alt, holder)
    }

    /// What a user may read without a key: public datasets, and the user's own; `alt` asks for the version's alternate.
    /// Another's private dataset is [`ReadError::NotReadable`], as a missing one.
    pub fn admit_user(self, user: &User, alt: bool) -> Result<Admitted, ReadError> {
        let readable = |resolved: &Arc<Resolved>| !resolved.dataset.is_private() || resolved.dataset.owner == user.id;
        let resolved = self.resolved.filter(readable).ok_or(ReadError::NotReadable)?;
        admit(&resolved, self.version, alt, Holder::User(user.id))
    }
}

pub(crate) fn admit(
    Resolved { dataset, version }: &Resolved,
    selector: VersionSelector,
    alt: bool,
    holder: Holder,
) -> Result<Admitted, ReadError> {
    if dataset.frozen {
        return Err(ReadError::Frozen);
    }
    let version = version.as_ref().ok_or_else(|| ReadError::no_version(selector, dataset))?;
    Admitted::of(dataset, version, alt, holder)
}

#[derive(Clone, Debug)]
pub struct Admitted {
    pub dataset_id: DatasetId,
    pub name_slug: String,
    pub private: bool,
    pub version: VersionNumber,
    pub alt: bool,
    pub file: VersionFile,
    pub holder: Holder,
}

impl Admitted {
    pub(crate) fn of(dataset: &Dataset, version: &Version, alt: bool, holder: Holder) -> Result<Admitted, ReadError> {
        let file = match (&version.alt, alt) {
            (_, false) => &version.file,
            (Some(file), true) => file,
            (None, true) => return Err(ReadError::AltNotFound(version.number)),
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

fn authorize(dataset: &Dataset, authorization: Authorization<'_>, client: Client) -> Result<Holder, ReadError> {
    match (&dataset.private_key, authorization) {
        (None, _) => Ok(Holder::Anonymous(client)),
        (Some(_), Authorization::None) => Err(ReadError::Unauthorized),
        (Some(key), Authorization::Bearer(token)) if key.matches(token) => Ok(Holder::User(dataset.owner)),
        (Some(_), _) => Err(ReadError::Forbidden),
    }
}

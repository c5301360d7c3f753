//! Checks that catalog and store belong together. A store of another catalog, or without the files that the catalog
//! names, is neither swept nor written.
//!
//! The catalog has an identity from its first opening, and the store holds it as the object [`IDENTITY`]:
//!
//! 1. The catalog gets its identity, once.
//! 2. A store that holds it is the catalog's. One that holds another one is not.
//! 3. One that holds none is given it, if it has no version files, or only those that the catalog records or reserves:
//!    a process that could not reach the store when it was opened writes its first file before. It is not, if it has
//!    version files that the catalog does not know, or if it was given before and is gone.
//! 4. The catalog records that a store was given it.
//!
//! Each step may be the last before a crash, and several processes may take them at once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use strata_catalog::{Catalog, CatalogError, Installation};
use strata_config::{Config, VERSIONS_FOLDER};
use strata_store::StorageError;
use strata_store::store::{self, IDENTITY, S3Options, Store};
use strata_types::causes::Causes;

use crate::maintenance::pages_of;

/// Files that are looked up to tell whether a store without an identity is the catalog's.
const COMPARED: usize = 100;

/// The answer of an S3 server to a missing bucket. The client's error has it only as text.
const NO_BUCKET: &str = "<Code>NoSuchBucket</Code>";

#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    #[error(
        "the store {store} belongs to another metadata database: its {IDENTITY} contains {found}, but the metadata database \
         {catalog} requires {expected}; correct store.url or catalog.url, restore the metadata database from a backup, or \
         use an empty store"
    )]
    Other { store: String, catalog: String, found: String, expected: String },
    /// The store holds version files and no identity, and the catalog knows none of them.
    #[error(
        "the store {store} belongs to another metadata database: none of its version files are in the metadata database \
         {catalog}; correct store.url or catalog.url, restore the metadata database from a backup, or use an empty store"
    )]
    Unnamed { store: String, catalog: String },
    /// The catalog names files of a store that was given its identity, and this one was not.
    #[error(
        "the store {store} does not belong to the metadata database {catalog}: the store has no {IDENTITY}; mount the \
         correct store or change store.url; if you restored this store, write {expected} to its {IDENTITY}"
    )]
    Missing { store: String, catalog: String, expected: String },
    #[error("the bucket for the store {store} does not exist; create the bucket, or correct store.url")]
    NoBucket { store: String },
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store")]
    Store(#[from] StorageError),
}

impl BindingError {
    /// The same, or [`BindingError::NoBucket`] where that is what the store says.
    pub(crate) fn named(self, config: &Config) -> BindingError {
        match self {
            BindingError::Store(error) if format!("{error:?}").contains(NO_BUCKET) => {
                BindingError::NoBucket { store: config.store_url() }
            }
            other => other,
        }
    }
}

pub(crate) fn open_store(config: &Config) -> Result<Store, StorageError> {
    let s3 = S3Options {
        endpoint: config.store.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
        region: config.store.region.clone(),
        access_key_id: config.store.access_key_id.clone(),
        secret_access_key: config.store.secret_access_key.as_ref().map(|secret| secret.expose().to_owned()),
        allow_http: config.store.allow_http,
        retry_within: Some(Duration::from_secs(config.store.retry_s)),
    };
    store::open(&config.store_url(), &s3)
}

pub(crate) async fn bind(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), BindingError> {
    let Installation { identity, store_marked } = catalog.installation().await?;
    let names = || {
        let catalog = config.catalog_file().map_or("in PostgreSQL".to_owned(), |file| file.display().to_string());
        (config.store_url(), catalog)
    };
    let found = match store.identity().await? {
        Some(found) => found,
        // Another place than that of its files.
        None if store_marked && !store.is_volatile() && records_files(catalog).await? => {
            let (store, catalog) = names();
            return Err(BindingError::Missing { store, catalog, expected: identity });
        }
        None if has_foreign_files(catalog, store).await? => {
            let (store, catalog) = names();
            return Err(BindingError::Unnamed { store, catalog });
        }
        None => store.give_identity(&identity).await?,
    };
    if found != identity {
        let (store, catalog) = names();
        return Err(BindingError::Other { store, catalog, found, expected: identity });
    }
    if !store_marked {
        catalog.note_store_marked().await?;
    }
    store.expect_identity(identity);
    Ok(())
}

async fn records_files(catalog: &Catalog) -> Result<bool, CatalogError> {
    match catalog.files(None, 1).await {
        // Damage of a record is told of by those who need it.
        Err(error) if error.is_damage() => Ok(false),
        recorded => Ok(!recorded?.is_empty()),
    }
}

/// Whether the store has version files, and the catalog knows none of them.
async fn has_foreign_files(catalog: &Catalog, store: &Store) -> Result<bool, BindingError> {
    let mut listing = pin!(pages_of(store, VERSIONS_FOLDER, COMPARED));
    let Some(listed) = listing.try_next().await? else { return Ok(false) };
    let paths: Vec<&str> = listed.iter().map(|object| object.location.as_ref()).collect();
    Ok(catalog.files_named(&paths).await?.is_empty())
}

pub(crate) struct StoreBinding {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
}

impl StoreBinding {
    /// Verifies that the store is there, and is the catalog's. One small request.
    pub(crate) async fn verify(&self) -> Result<(), StorageError> {
        if self.store.expects_identity() {
            return self.store.verify().await;
        }
        // It did not answer when the service was opened.
        match bind(&self.config, &self.catalog, &self.store).await {
            Ok(()) => Ok(()),
            Err(BindingError::Store(error)) => Err(error),
            Err(error) => {
                tracing::error!(error = %Causes(&error), "failed to verify the store");
                Err(StorageError::gone("strata cannot verify that the store belongs to the metadata database"))
            }
        }
    }
}

//! Checks that catalog and store belong together. A store of another catalog, or without the files that the catalog
//! names, is neither swept nor written.
//!
//! The catalog gets an identity when it is first opened. The store contains the identity as the object [`IDENTITY`]:
//!
//! 1. A store with the identity belongs to the catalog. A store with another identity does not.
//! 2. A store without an identity gets it, if the store contains no version files, or only files that the catalog
//!    records or reserves, because a process that could not reach the store when it was opened writes its first file
//!    before. It does not get it if it contains other version files, or if a store had the identity before.
//! 3. The catalog records that a store has the identity.
//!
//! A crash can follow each step, and several processes can run them at once.

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

/// Files that are looked up to decide whether a store without an identity belongs to the catalog.
const COMPARED: usize = 100;

/// The error of an S3 server for a missing bucket, which the client's error contains as text.
const NO_BUCKET: &str = "<Code>NoSuchBucket</Code>";

#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    #[error(
        "the store {store} belongs to another metadata database: its {IDENTITY} contains {found}, but the metadata database \
         {catalog} requires {expected}; correct store.url or catalog.url, restore the metadata database from a backup, or \
         use an empty store"
    )]
    Other { store: String, catalog: String, found: String, expected: String },
    #[error(
        "the store {store} belongs to another metadata database: none of its version files are in the metadata database \
         {catalog}; correct store.url or catalog.url, restore the metadata database from a backup, or use an empty store"
    )]
    Unnamed { store: String, catalog: String },
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
    /// The error, or [`BindingError::NoBucket`] if the bucket is missing.
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
    let store_name = config.store_url();
    let catalog_name = config.catalog_file().map_or("in PostgreSQL".to_owned(), |file| file.display().to_string());
    let found = match store.identity().await? {
        Some(found) => found,
        // The files of the catalog are elsewhere.
        None if store_marked && !store.is_volatile() && records_files(catalog).await? => {
            return Err(BindingError::Missing { store: store_name, catalog: catalog_name, expected: identity });
        }
        None if has_foreign_files(catalog, store).await? => {
            return Err(BindingError::Unnamed { store: store_name, catalog: catalog_name });
        }
        None => store.give_identity(&identity).await?,
    };
    if found != identity {
        return Err(BindingError::Other { store: store_name, catalog: catalog_name, found, expected: identity });
    }
    if !store_marked {
        catalog.note_store_marked().await?;
    }
    store.expect_identity(identity);
    Ok(())
}

async fn records_files(catalog: &Catalog) -> Result<bool, CatalogError> {
    match catalog.files(None, 1).await {
        // The users of a damaged record report it.
        Err(error) if error.is_damage() => Ok(false),
        recorded => Ok(!recorded?.is_empty()),
    }
}

/// Whether the store contains version files, and the catalog knows none of them.
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
    /// Verifies that the store exists and belongs to the catalog, with one small request.
    pub(crate) async fn verify(&self) -> Result<(), StorageError> {
        if self.store.expects_identity() {
            return self.store.verify().await;
        }
        // The store did not respond when the service was opened.
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

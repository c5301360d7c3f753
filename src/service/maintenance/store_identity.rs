//! Binds a store to a catalog, so that strata never sweeps or writes the store of another catalog, or an empty
//! directory in place of an unmounted disk.
//!
//! The catalog gets a random identity when it is first opened. The store contains it in [`IDENTITY_OBJECT_NAME`]:
//!
//! 1. A store with the same identity belongs to the catalog; a store with another identity does not.
//! 2. A store without an identity gets the catalog's identity, unless it contains only version files that the catalog
//!    does not know, or the catalog records files and a store had the identity before.
//! 3. The catalog records that a store has the identity.
//!
//! The steps tolerate crashes and concurrent processes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use strata_catalog::{Catalog, CatalogError, InstallationRecord};
use strata_config::{Config, VERSIONS_FOLDER};
use strata_store::StorageError;
use strata_store::store::{self, IDENTITY_OBJECT_NAME, S3Options, Store};
use strata_types::error_chain::ErrorChain;

use crate::maintenance::list_object_pages;

/// Maximum number of files that are looked up to decide whether a store without an identity belongs to the catalog.
const MAX_COMPARED_FILES: usize = 100;

/// The error code of S3 for a missing bucket, which is part of the client's error message.
const NO_SUCH_BUCKET_CODE: &str = "<Code>NoSuchBucket</Code>";

#[derive(Debug, thiserror::Error)]
pub enum StoreIdentityError {
    #[error(
        "the store {store} belongs to another metadata database: its {IDENTITY_OBJECT_NAME} contains {found}, but the metadata database \
         {catalog} requires {expected}; correct store.url or catalog.url, restore the metadata database from a backup, or \
         use an empty store"
    )]
    IdentityMismatch { store: String, catalog: String, found: String, expected: String },
    #[error(
        "the store {store} belongs to another metadata database: none of its version files are in the metadata database \
         {catalog}; correct store.url or catalog.url, restore the metadata database from a backup, or use an empty store"
    )]
    ForeignFiles { store: String, catalog: String },
    #[error(
        "the store {store} does not belong to the metadata database {catalog}: the store has no {IDENTITY_OBJECT_NAME}; mount the \
         correct store or change store.url; if you restored this store, write {expected} to its {IDENTITY_OBJECT_NAME}"
    )]
    IdentityMissing { store: String, catalog: String, expected: String },
    #[error("the bucket for the store {store} does not exist; create the bucket, or correct store.url")]
    BucketNotFound { store: String },
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store")]
    Store(#[from] StorageError),
}

impl StoreIdentityError {
    /// Converts a store error to [`StoreIdentityError::BucketNotFound`] if its cause is a missing bucket.
    pub(crate) fn map_missing_bucket(self, config: &Config) -> StoreIdentityError {
        match self {
            StoreIdentityError::Store(error) if format!("{error:?}").contains(NO_SUCH_BUCKET_CODE) => {
                StoreIdentityError::BucketNotFound { store: config.store_url() }
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
        secret_access_key: config.store.secret_access_key.clone(),
        allow_http: config.store.allow_http,
        retry_timeout: Some(Duration::from_secs(config.store.retry_s)),
    };
    store::open_store(&config.store_url(), &s3)
}

pub(crate) async fn bind_store_to_catalog(
    config: &Config,
    catalog: &Catalog,
    store: &Store,
) -> Result<(), StoreIdentityError> {
    let InstallationRecord { identity, store_marked } = catalog.ensure_installation().await?;
    let url = config.store_url();
    let database = config.catalog_file().map_or("in PostgreSQL".to_owned(), |file| file.display().to_string());
    let found = match store.read_identity().await? {
        Some(found) => found,
        // A store had the catalog's identity, and files are recorded in it, so this store without an identity is
        // another one.
        None if store_marked && !store.is_in_memory() && has_recorded_files(catalog).await? => {
            return Err(StoreIdentityError::IdentityMissing { store: url, catalog: database, expected: identity });
        }
        None if belongs_to_other_catalog(catalog, store).await? => {
            return Err(StoreIdentityError::ForeignFiles { store: url, catalog: database });
        }
        None => store.initialize_identity(&identity).await?,
    };
    if found != identity {
        return Err(StoreIdentityError::IdentityMismatch { store: url, catalog: database, found, expected: identity });
    }
    if !store_marked {
        catalog.set_store_marked().await?;
    }
    store.set_expected_identity(identity);
    Ok(())
}

async fn has_recorded_files(catalog: &Catalog) -> Result<bool, CatalogError> {
    match catalog.files(None, 1).await {
        // A damaged record is not reported here, because later reads report it.
        Err(error) if error.is_corruption() => Ok(false),
        files => Ok(!files?.is_empty()),
    }
}

/// Returns true if the store contains version files, but the catalog knows none of them.
async fn belongs_to_other_catalog(catalog: &Catalog, store: &Store) -> Result<bool, StoreIdentityError> {
    let mut pages = pin!(list_object_pages(store, VERSIONS_FOLDER, MAX_COMPARED_FILES));
    let Some(objects) = pages.try_next().await? else { return Ok(false) };
    let paths: Vec<&str> = objects.iter().map(|object| object.location.as_ref()).collect();
    Ok(catalog.find_known_paths(&paths).await?.is_empty())
}

pub(crate) struct StoreIdentityCheck {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
}

impl StoreIdentityCheck {
    /// Verifies with one small request that the store exists and belongs to the catalog.
    pub(crate) async fn verify(&self) -> Result<(), StorageError> {
        if self.store.has_expected_identity() {
            return self.store.verify_identity().await;
        }
        // If the store did not respond at startup, it is not bound to the catalog yet.
        match bind_store_to_catalog(&self.config, &self.catalog, &self.store).await {
            Ok(()) => Ok(()),
            Err(StoreIdentityError::Store(error)) => Err(error),
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "failed to verify the store");
                Err(StorageError::store_missing("strata cannot verify that the store belongs to the metadata database"))
            }
        }
    }
}

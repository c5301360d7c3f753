//! Removes, verifies and copies version files, binds the store to the catalog, and probes readiness.

pub(crate) mod backup;
pub(crate) mod content_digest;
pub(crate) mod corruption_log;
pub(crate) mod file_permissions;
pub(crate) mod integrity_check;
pub(crate) mod readiness;
pub(crate) mod restore;
pub(crate) mod scrub;
pub(crate) mod store_identity;
pub(crate) mod sweep;
pub(crate) mod temp_dir;

use std::sync::Arc;

use futures::stream::{self, Stream, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, FileRecordResult};
use strata_config::Config;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::ids::VersionFileId;

use crate::maintenance::store_identity::StoreIdentityCheck;

pub struct MaintenanceService {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) store_identity: Arc<StoreIdentityCheck>,
}

const FILES_PER_QUERY: u32 = 500;

fn list_object_pages(
    store: &Store,
    folder: &str,
    page_size: usize,
) -> impl Stream<Item = Result<Vec<ObjectMeta>, StorageError>> + use<> {
    let listing = store.object_store().list(Some(&ObjectPath::from(folder)));
    listing.map_err(StorageError::from).try_chunks(page_size).map_err(|error| error.1)
}

fn stream_recorded_files(
    catalog: &Catalog,
    after: Option<VersionFileId>,
) -> impl Stream<Item = Result<FileRecordResult, CatalogError>> {
    let pages = stream::try_unfold(after, move |last| async move {
        let page = catalog.file_record_results(last, FILES_PER_QUERY).await?;
        let end = page.last().map(|file| file.id);
        Ok::<_, CatalogError>(end.map(|end| (stream::iter(page.into_iter().map(Ok)), Some(end))))
    });
    pages.try_flatten()
}

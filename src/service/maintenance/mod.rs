//! Maintenance: removes, verifies and copies files; binds catalog and store to each other; readiness.

pub(crate) mod backup;
pub(crate) mod binding;
pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod private_files;
pub(crate) mod readiness;
pub(crate) mod restore;
pub(crate) mod scratch;
pub(crate) mod scrub;
pub(crate) mod sweep;

use std::sync::Arc;

use futures::stream::{self, Stream, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, ListedFile};
use strata_config::Config;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::ids::FileId;

use crate::maintenance::binding::StoreBinding;

pub struct Maintenance {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) binding: Arc<StoreBinding>,
}

/// Files of one catalog query.
const PAGE: u32 = 500;

/// Pages of the objects in a folder of a store.
fn pages_of(
    store: &Store,
    folder: &str,
    page: usize,
) -> impl Stream<Item = Result<Vec<ObjectMeta>, StorageError>> + use<> {
    let listing = store.objects().list(Some(&ObjectPath::from(folder)));
    listing.map_err(StorageError::from).try_chunks(page).map_err(|error| error.1)
}

/// The recorded files after one, by id.
fn recorded_files(catalog: &Catalog, after: Option<FileId>) -> impl Stream<Item = Result<ListedFile, CatalogError>> {
    let pages = stream::try_unfold(after, move |last| async move {
        let page = catalog.files_apart(last, PAGE).await?;
        let end = page.last().map(|file| file.id);
        Ok::<_, CatalogError>(end.map(|end| (stream::iter(page.into_iter().map(Ok)), Some(end))))
    });
    pages.try_flatten()
}

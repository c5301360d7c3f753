//! What keeps a service sound: files are removed, verified and copied; catalog and store belong together and can be
//! written.

pub(in crate::service) mod backup;
pub(in crate::service) mod binding;
pub(in crate::service) mod check;
pub(in crate::service) mod damage;
pub(in crate::service) mod private_files;
pub(in crate::service) mod readiness;
pub(in crate::service) mod restore;
pub(in crate::service) mod scratch;
pub(in crate::service) mod scrub;
pub(in crate::service) mod sweep;

use std::sync::Arc;

use futures::stream::{self, Stream, TryStreamExt};

use crate::catalog::{Catalog, CatalogError, ListedFile};
use crate::config::Config;
use crate::model::ids::FileId;
use crate::service::maintenance::binding::StoreBinding;
use crate::storage::store::Store;

pub struct Maintenance {
    pub(in crate::service) config: Arc<Config>,
    pub(in crate::service) catalog: Catalog,
    pub(in crate::service) store: Store,
    pub(in crate::service) binding: Arc<StoreBinding>,
}

/// Files that are listed at a time.
const PAGE: u32 = 500;

/// All files of a catalog's records that come after one, in the order of their ids.
fn recorded_files(catalog: &Catalog, after: Option<FileId>) -> impl Stream<Item = Result<ListedFile, CatalogError>> {
    let pages = stream::try_unfold(after, move |last| async move {
        let page = catalog.files_apart(last, PAGE).await?;
        let end = page.last().map(|file| file.id);
        Ok::<_, CatalogError>(end.map(|end| (stream::iter(page.into_iter().map(Ok)), Some(end))))
    });
    pages.try_flatten()
}

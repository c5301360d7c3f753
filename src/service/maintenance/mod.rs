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

use crate::catalog::Catalog;
use crate::config::Config;
use crate::service::maintenance::binding::StoreBinding;
use crate::storage::store::Store;

pub struct Maintenance {
    pub(in crate::service) config: Arc<Config>,
    pub(in crate::service) catalog: Catalog,
    pub(in crate::service) store: Store,
    pub(in crate::service) binding: Arc<StoreBinding>,
}

//! Ends the refreshes of exited processes before their leases expire.
//!
//! A lease records its process and the node of that process. Each process has a locked directory in `tmp/` of its data
//! directory, and the operating system releases the lock when the process exits. Therefore, strata can detect exited
//! processes of its own data directory. The leases of other processes expire.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use strata_catalog::{Catalog, CatalogError, RefreshLeaseRecord};
use strata_types::ids::DatasetId;

use crate::maintenance::temp_dir::ProcessTempDir;

pub(crate) struct LeaseRecovery {
    pub(crate) catalog: Catalog,
    pub(crate) temp_dir: Arc<ProcessTempDir>,
    pub(crate) node_name: Option<String>,
    pub(crate) has_local_catalog: bool,
}

impl LeaseRecovery {
    fn has_holder_exited(&self, lease: &RefreshLeaseRecord) -> bool {
        let Some(holder) = &lease.holder else { return false };
        let shares_data_dir = self.has_local_catalog || (self.node_name.is_some() && holder.node_id == self.node_name);
        shares_data_dir && self.temp_dir.has_process_exited(&holder.process_id)
    }

    /// Ends a dataset's running refresh if its process has exited. Returns true if the dataset then has none.
    pub(super) async fn end_refresh_if_exited(&self, dataset: DatasetId) -> Result<bool, CatalogError> {
        match self.catalog.refresh_lease(dataset).await? {
            None => Ok(true),
            Some(lease) if self.has_holder_exited(&lease) => {
                if self.catalog.end_orphaned_refreshes(vec![lease]).await? > 0 {
                    tracing::info!(dataset_id = dataset.get(), "ended refresh of exited process");
                }
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Ends the refreshes of exited processes that began before `began_before`, and returns their number.
    pub(super) async fn end_exited_refreshes(&self, began_before: DateTime<Utc>) -> Result<u64, CatalogError> {
        let leases = self.catalog.leases_started_before(began_before).await?;
        if leases.is_empty() {
            return Ok(0);
        }
        // This check must follow the lease query: a process that starts after the check has none of these leases.
        let is_only_process = self.has_local_catalog && self.temp_dir.is_only_process_in_folder();
        let orphaned = leases.into_iter().filter(|lease| is_only_process || self.has_holder_exited(lease)).collect();
        self.catalog.end_orphaned_refreshes(orphaned).await
    }

    /// Ends all file reservations without a refresh lease if no other process uses the catalog, and returns their
    /// number. A reservation does not record its process, so this process must not have any reservations.
    pub(super) async fn end_exited_reservations(&self) -> Result<usize, CatalogError> {
        let paths = self.catalog.reserved_paths().await?;
        // This check must follow the path query: a process that starts after the check reserved none of these paths.
        if !self.has_local_catalog || !self.temp_dir.is_only_process_in_folder() {
            return Ok(0);
        }
        for path in &paths {
            self.catalog.release_file_reservation(path).await?;
        }
        Ok(paths.len())
    }
}

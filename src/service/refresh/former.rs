//! Ends the refreshes of exited processes before their leases expire.
//!
//! A lease names its process and the node of that process. Each process of a data directory, or of a node, has a locked
//! directory in `tmp/`, and the system releases the lock when the process ends. So strata recognizes exited processes
//! of its own data directory. The leases of others expire.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use strata_catalog::{Catalog, CatalogError, HeldRefresh};
use strata_types::ids::DatasetId;

use crate::maintenance::scratch::Scratch;

pub(crate) struct FormerProcesses {
    pub(crate) catalog: Catalog,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) node: Option<String>,
    pub(crate) own_catalog: bool,
}

impl FormerProcesses {
    fn is_gone(&self, held: &HeldRefresh) -> bool {
        let Some(holder) = &held.holder else { return false };
        let has_this_directory = self.own_catalog || (self.node.is_some() && holder.node == self.node);
        has_this_directory && self.scratch.has_ended(&holder.process)
    }

    /// Ends the refresh that holds a dataset if its process has exited. Returns whether the dataset is free.
    pub(super) async fn end_refresh_of(&self, dataset: DatasetId) -> Result<bool, CatalogError> {
        match self.catalog.held_refresh(dataset).await? {
            None => Ok(true),
            Some(held) if self.is_gone(&held) => {
                if self.catalog.end_dead_refreshes(vec![held]).await? > 0 {
                    tracing::info!(dataset_id = dataset.get(), "ended refresh of exited process");
                }
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Ends the refreshes of exited processes that began before a time, and returns their number.
    pub(super) async fn end_refreshes(&self, began_before: DateTime<Utc>) -> Result<u64, CatalogError> {
        let held = self.catalog.held_refreshes(began_before).await?;
        if held.is_empty() {
            return Ok(0);
        }
        // Checked after the list was read: a process that began one of these refreshes had its directory before.
        let is_alone = self.own_catalog && self.scratch.is_alone();
        let gone = held.into_iter().filter(|held| is_alone || self.is_gone(held)).collect();
        self.catalog.end_dead_refreshes(gone).await
    }

    /// Ends the reservations of files that no refresh holds, if no other process uses the catalog, and returns their
    /// number. This process must have reserved none. A reservation does not name its process, so all of them stay if
    /// any other process lives.
    pub(super) async fn end_reservations(&self) -> Result<usize, CatalogError> {
        let reserved = self.catalog.reserved_files().await?;
        // Checked after the list was read: a process that starts later reserves other paths.
        if !self.own_catalog || !self.scratch.is_alone() {
            return Ok(0);
        }
        for path in &reserved {
            self.catalog.release_file(path).await?;
        }
        Ok(reserved.len())
    }
}

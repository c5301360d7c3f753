//! Refreshes of processes that are gone: their datasets need not wait for the end of a lease.
//!
//! A lease names its process, and the node of that process. Each process of a data directory, or of a node, has a
//! directory in `tmp/` with a lock that the system gives back when the process ends, however it does. So it is known at
//! once whether one of them has ended. Of other processes it is not: their leases expire, or they count as lost.

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

    /// Ends the refresh that holds a dataset if its process is gone. Returns whether nothing holds it any more.
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

    /// Ends the refreshes that began before then and whose processes are gone, and returns their number.
    pub(super) async fn end_refreshes(&self, began_before: DateTime<Utc>) -> Result<u64, CatalogError> {
        let held = self.catalog.held_refreshes(began_before).await?;
        if held.is_empty() {
            return Ok(0);
        }
        // Asked afterwards: whoever has begun one of these was there before it, and still is if it lives.
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

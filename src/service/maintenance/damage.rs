//! Logs version files that cannot be read: the file, its damage, and every version that needs it, so that an operator
//! knows what to restore.
//!
//! Readers report damage without waiting ([`strata_format::cache::PartCache::reporting`]). A task of the process looks
//! up the versions, and logs each file at most once a minute.

use std::collections::HashMap;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError};
use strata_format::cache::{DamageReport, Loss};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::maintenance::check::for_people;

/// The maximum number of reports that wait. Others are dropped.
pub(crate) const MAX_WAITING: usize = 64;

/// The minimum time between two lines about a file.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of files that were logged recently.
const MAX_LOGGED: usize = 1_024;

/// The maximum number of versions in a line.
const MAX_NAMED: u32 = 100;

/// Logs reports until all senders are dropped.
pub(crate) async fn log_reports(catalog: &Catalog, reports: &mut mpsc::Receiver<DamageReport>) {
    let mut logged: HashMap<(String, Loss), Instant> = HashMap::new();
    while let Some(DamageReport { path, cause, loss }) = reports.recv().await {
        let now = Instant::now();
        logged.retain(|_, at| now.duration_since(*at) < LOG_INTERVAL);
        let key = (path, loss);
        if logged.contains_key(&key) || logged.len() >= MAX_LOGGED {
            continue;
        }
        let path = &key.0;
        let versions = named(catalog, path).await.unwrap_or_else(|error| format!("unknown: {error}"));
        let damage = match loss {
            Loss::Answers => "failed to read version file; its versions return 500 until you restore the file",
            Loss::Time => {
                "found damaged optional part of version file; its versions are slower until you restore the file"
            }
        };
        tracing::error!(path, error = cause, versions, "{damage}");
        logged.insert(key, now);
    }
}

async fn named(catalog: &Catalog, path: &str) -> Result<String, CatalogError> {
    match catalog.file_at(path).await? {
        None => Ok("none; the metadata database no longer contains the file".to_owned()),
        Some(file) => {
            let mut references = catalog.references_to(file.id, MAX_NAMED + 1).await?;
            let more = if references.len() > MAX_NAMED as usize { " and more" } else { "" };
            references.truncate(MAX_NAMED as usize);
            Ok(for_people(Some(&references)) + more)
        }
    }
}

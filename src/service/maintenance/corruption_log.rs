//! Logs damaged version files with the versions that need them, so that an operator knows which files to restore.
//!
//! Readers queue damage reports without waiting ([`strata_format::cache::PartCache`]). A background task looks up the
//! versions and logs each file at most once a minute.

use std::collections::HashMap;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError};
use strata_format::cache::{DamageImpact, DamageReport};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::maintenance::integrity_check::describe_references;

/// Maximum number of queued reports. Additional reports are dropped.
pub(crate) const MAX_QUEUED_REPORTS: usize = 64;

/// Minimum time between two log lines about the same file.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of files that are logged within `LOG_INTERVAL`.
const MAX_LOGGED_FILES: usize = 1_024;

const MAX_NAMED_VERSIONS: u32 = 100;

/// Logs reports until all senders are dropped.
pub(crate) async fn log_damage_reports(catalog: &Catalog, reports: &mut mpsc::Receiver<DamageReport>) {
    let mut logged: HashMap<(String, DamageImpact), Instant> = HashMap::new();
    while let Some(DamageReport { path, cause, impact }) = reports.recv().await {
        let now = Instant::now();
        logged.retain(|_, at| now.duration_since(*at) < LOG_INTERVAL);
        let key = (path, impact);
        if logged.contains_key(&key) || logged.len() >= MAX_LOGGED_FILES {
            continue;
        }
        let path = &key.0;
        let versions =
            describe_affected_versions(catalog, path).await.unwrap_or_else(|error| format!("unknown: {error}"));
        let damage = match impact {
            DamageImpact::ReadsFail => {
                "failed to read version file; its versions return 500 until you restore the file"
            }
            DamageImpact::ReadsSlower => {
                "found damaged optional part of version file; its versions are slower until you restore the file"
            }
        };
        tracing::error!(path, error = cause, versions, "{damage}");
        logged.insert(key, now);
    }
}

async fn describe_affected_versions(catalog: &Catalog, path: &str) -> Result<String, CatalogError> {
    match catalog.file_by_path(path).await? {
        None => Ok("none; the metadata database no longer contains the file".to_owned()),
        Some(file) => {
            let mut references = catalog.file_references(file.id, MAX_NAMED_VERSIONS + 1).await?;
            let more = if references.len() > MAX_NAMED_VERSIONS as usize { " and more" } else { "" };
            references.truncate(MAX_NAMED_VERSIONS as usize);
            Ok(describe_references(Some(&references)) + more)
        }
    }
}

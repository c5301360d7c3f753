//! Logs version files that cannot be read: the file, its damage, and every version that needs it. So an operator knows
//! what to restore.
//!
//! Readers report ([`strata_format::cache::PartCache::reporting`]), and fail or do without; they wait for nobody. A
//! task of the process looks up who needs the file, and logs it: once a minute for each file, however many reads fail.

use std::collections::HashMap;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError};
use strata_format::cache::{DamageReport, Loss};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::maintenance::check::for_people;

/// Reports that wait. More are dropped; the reads fail all the same.
pub(crate) const WAITING: usize = 64;

/// How long nothing more is said of a file.
const QUIET: Duration = Duration::from_secs(60);

const REMEMBERED: usize = 1_024;

/// Most versions that are named in a line.
const NAMED: u32 = 100;

/// Logs what is reported, until nobody is left who could report.
pub(crate) async fn log_reports(catalog: &Catalog, reports: &mut mpsc::Receiver<DamageReport>) {
    let mut said: HashMap<(String, Loss), Instant> = HashMap::new();
    while let Some(DamageReport { path, cause, loss }) = reports.recv().await {
        let now = Instant::now();
        said.retain(|_, at| now.duration_since(*at) < QUIET);
        let key = (path, loss);
        if said.contains_key(&key) || said.len() >= REMEMBERED {
            continue;
        }
        let path = &key.0;
        let versions = match named(catalog, path).await {
            Ok(versions) => versions,
            Err(error) => format!("unknown: {error}"),
        };
        let damage = match loss {
            Loss::Answers => "failed to read version file; its versions return 500 until you restore the file",
            Loss::Time => {
                "found damaged optional part of version file; its versions are slower until you restore the file"
            }
        };
        tracing::error!(path, error = cause, versions, "{damage}");
        said.insert(key, now);
    }
}

async fn named(catalog: &Catalog, path: &str) -> Result<String, CatalogError> {
    match catalog.file_at(path).await? {
        None => Ok("none; the metadata database no longer contains the file".to_owned()),
        Some(file) => {
            let mut references = catalog.references_to(file.id, NAMED + 1).await?;
            let more = if references.len() > NAMED as usize { " and more" } else { "" };
            references.truncate(NAMED as usize);
            Ok(for_people(Some(&references)) + more)
        }
    }
}

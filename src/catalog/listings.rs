//! The datasets that the service lists for everybody: public and listed ones that are not frozen and have a version.

use chrono::{DateTime, Utc};
use strata_json::fold;
use strata_types::dataset::{About, Dataset, DatasetName};
use strata_types::version::Version;

use super::convert::{from_cursor, to_time};
use super::engine::{Engine, Record, Row, Value, columns};
use super::version_rows::{Resolved, version_columns};
use super::{Catalog, CatalogError, DatasetId, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub dataset: Dataset,
    pub active: Version,
    pub refreshed_at: DateTime<Utc>,
}

/// What a search of the list looks at: the name and the description, folded.
pub(super) fn folded(name: &DatasetName, about: &About) -> (String, Option<String>) {
    (fold(name.as_str()), about.description.as_deref().map(fold))
}

fn listing(row: &Row) -> Result<Listing> {
    let refreshed_at = to_time(row.get::<Option<i64>, _>("refreshed_at")?.unwrap_or_default(), "versions.created_at")?;
    let Resolved { dataset, version } = Resolved::from_row(row)?;
    Ok(Listing { dataset, active: version.ok_or(CatalogError::NoVersion)?, refreshed_at })
}

/// The statement of [`Catalog::listings`], with the conditions of the index `datasets_listed` word by word.
macro_rules! listings_sql {
    ($find:literal) => {
        concat!(
            "SELECT ",
            columns!(datasets),
            ", ",
            version_columns!(),
            ", newest.created_at AS refreshed_at
              FROM datasets
              LEFT JOIN versions v ON v.dataset_id = datasets.dataset_id
                  AND v.version_number = COALESCE(datasets.pinned_version, datasets.latest_version)
              LEFT JOIN versions newest ON newest.dataset_id = datasets.dataset_id
                  AND newest.version_number = datasets.latest_version
              LEFT JOIN files f ON f.file_id = v.file_id
              LEFT JOIN files a ON a.file_id = v.alt_file_id
              WHERE datasets.dataset_id > $1
                  AND datasets.listed AND datasets.private_key IS NULL AND NOT datasets.frozen
                  AND datasets.latest_version IS NOT NULL
                  AND (",
            $find,
            "(datasets.folded_name, $3) > 0 OR ",
            $find,
            "(datasets.folded_description, $3) > 0)
              ORDER BY datasets.dataset_id LIMIT $2"
        )
    };
}

impl Catalog {
    /// The listed datasets with ids greater than `after`, by id, at most `limit`; with `query` those whose folded name
    /// or description holds it. One statement over an index of only listed datasets, which ends with the last one that
    /// is returned. A dataset whose records do not verify is left out and logged.
    pub async fn listings(&self, query: Option<&str>, after: Option<DatasetId>, limit: u32) -> Result<Vec<Listing>> {
        let after = from_cursor(after.map(DatasetId::get), 0);
        // All texts hold the empty one.
        let query = fold(query.unwrap_or_default());
        if query.contains('\0') {
            // No name and no description holds it, and PostgreSQL takes no such text.
            return Ok(Vec::new());
        }
        let sql = match &*self.engine {
            Engine::Sqlite { .. } => listings_sql!("instr"),
            Engine::Postgres(_) => listings_sql!("strpos"),
        };
        let read = |row: &Row| Ok(listing(row));
        let rows = self.engine.list_with(sql, &[after, limit.into(), Value::Text(Some(&query))], read).await?;
        let mut listings = Vec::with_capacity(rows.len());
        for listing in rows {
            match listing {
                Ok(found) => listings.push(found),
                Err(error @ (CatalogError::Damaged { .. } | CatalogError::Database(_))) => return Err(error),
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "failed to list dataset"),
            }
        }
        Ok(listings)
    }
}

//! The dataset list: public datasets that are listed, not frozen, and have a version.

use chrono::{DateTime, Utc};
use strata_json::fold_case;
use strata_types::dataset::{Dataset, DatasetMetadata, DatasetName};
use strata_types::version::DatasetVersion;

use super::convert::{from_cursor, to_time};
use super::database_engine::{DatabaseEngine, FromSqlRow, SqlRow, SqlValue, columns};
use super::version_rows::{ResolvedDataset, version_columns};
use super::{Catalog, CatalogError, DatasetId, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetListing {
    pub dataset: Dataset,
    pub active_version: DatasetVersion,
    pub refreshed_at: DateTime<Utc>,
}

/// Returns the case-folded name and description, which a search of the dataset list compares.
pub(super) fn fold_search_fields(name: &DatasetName, about: &DatasetMetadata) -> (String, Option<String>) {
    (fold_case(name.as_str()), about.description.as_deref().map(fold_case))
}

fn listing_from_row(row: &SqlRow) -> Result<DatasetListing> {
    let refreshed_at = to_time(row.get::<Option<i64>, _>("refreshed_at")?.unwrap_or_default(), "versions.created_at")?;
    let ResolvedDataset { dataset, version } = ResolvedDataset::from_row(row)?;
    Ok(DatasetListing { dataset, active_version: version.ok_or(CatalogError::NoVersion)?, refreshed_at })
}

/// The statement of [`Catalog::search_listed_datasets`]. Its conditions must equal those of the partial index
/// `datasets_listed`.
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
    /// Returns a page of the dataset list by id, after `after`, optionally with `query` in the name or description.
    /// Skips and logs damaged datasets.
    pub async fn search_listed_datasets(
        &self,
        query: Option<&str>,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<DatasetListing>> {
        let after = from_cursor(after.map(DatasetId::get), 0);
        let query = fold_case(query.unwrap_or_default());
        if query.contains('\0') {
            // No name or description contains U+0000, and PostgreSQL rejects it in parameters.
            return Ok(Vec::new());
        }
        let sql = match &*self.engine {
            DatabaseEngine::Sqlite { .. } => listings_sql!("instr"),
            DatabaseEngine::Postgres(_) => listings_sql!("strpos"),
        };
        let read = |row: &SqlRow| Ok(listing_from_row(row));
        let rows = self.engine.list_with(sql, &[after, limit.into(), SqlValue::Text(Some(&query))], read).await?;
        let mut listings = Vec::with_capacity(rows.len());
        for listing in rows {
            match listing {
                Ok(listing) => listings.push(listing),
                Err(error @ (CatalogError::DamagedDatabase { .. } | CatalogError::Database(_))) => return Err(error),
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "failed to list dataset"),
            }
        }
        Ok(listings)
    }
}

//! Rows of `datasets`.

use strata_types::dataset::{Dataset, DatasetMetadata, DatasetName, DatasetSource};
use strata_types::index_settings::IndexSettings;
use strata_types::secret::Secret;

use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue, columns, select};
use super::record_checksum::RecordChecksum;
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

/// Returns the checksum of a row. Each change of these columns must end with [`finish_dataset_change`].
fn dataset_checksum(row: &SqlRow) -> Result<RecordChecksum> {
    Ok(RecordChecksum::for_table("datasets")
        .with_number(row.get("dataset_id")?)
        .with_number(row.get("owner_id")?)
        .with_text(row.get("name")?)
        .with_text(row.get("name_slug")?)
        .with_optional_text(row.get("private_key")?)
        .with_text(row.get("source")?)
        .with_optional_text(row.get("format")?)
        .with_optional_text(row.get("records_path")?)
        .with_number(row.get::<bool, _>("publish_query")?.into())
        .with_optional_text(row.get("schedule")?)
        .with_optional_text(row.get("index_paths")?)
        .with_text(row.get("ping_token")?)
        .with_optional_number(row.get("latest_version")?)
        .with_optional_number(row.get("pinned_version")?)
        .with_number(row.get::<bool, _>("frozen")?.into())
        .with_number(row.get("created_at")?)
        .with_optional_text(row.get("description")?)
        .with_optional_text(row.get("licence")?)
        .with_number(row.get::<bool, _>("listed")?.into())
        .with_number(row.get::<bool, _>("infer_types")?.into()))
}

fn dataset_from_row_unverified(row: &SqlRow) -> Result<Dataset> {
    let format: Option<String> = row.get("format")?;
    Ok(Dataset {
        id: DatasetId::new(row.get_unsigned("datasets.dataset_id")?),
        owner: UserId::new(row.get_unsigned("datasets.owner_id")?),
        name: DatasetName::from_stored(row.get("name")?, row.get("name_slug")?),
        metadata: DatasetMetadata {
            description: row.get("description")?,
            license: row.get("licence")?,
            listed: row.get("listed")?,
        },
        private_key: row.get::<Option<String>, _>("private_key")?.map(Secret::from_stored),
        source: DatasetSource::from(row.get::<&str, _>("source")?),
        format: format.map(|_| row.get_parsed("datasets.format")).transpose()?,
        records_path: row.get("records_path")?,
        publish_query: row.get("publish_query")?,
        infer_types: row.get("infer_types")?,
        schedule: row.get("schedule")?,
        index: index_from_json(row.get("index_paths")?)?,
        ping_token: Secret::from_stored(row.get("ping_token")?),
        latest_version: row.get_optional_unsigned("datasets.latest_version")?.map(VersionNumber::new),
        pinned_version: row.get_optional_unsigned("datasets.pinned_version")?.map(VersionNumber::new),
        frozen: row.get("frozen")?,
        created_at: row.get_time("datasets.created_at")?,
    })
}

impl FromSqlRow for Dataset {
    fn from_row(row: &SqlRow) -> Result<Dataset> {
        let id: i64 = row.get("dataset_id")?;
        let record = || format!("dataset {id}");
        dataset_checksum(row)?.verify(row.get("record_checksum")?, record)?;
        // A row without a checksum is accepted, but an empty value in these columns shows a damaged page.
        if row.get::<&str, _>("name_slug")?.is_empty() || row.get::<&str, _>("ping_token")?.is_empty() {
            return Err(CatalogError::DamagedRecord { record: record() });
        }
        dataset_from_row_unverified(row)
    }
}

struct ChangedDataset {
    dataset: Dataset,
    checksum: String,
}

impl FromSqlRow for ChangedDataset {
    fn from_row(row: &SqlRow) -> Result<ChangedDataset> {
        Ok(Self { dataset: dataset_from_row_unverified(row)?, checksum: dataset_checksum(row)?.into_stored() })
    }
}

impl Catalog {
    pub(super) async fn lock_dataset(&self, id: DatasetId) -> Result<(CatalogTransaction, Dataset)> {
        let mut transaction = self.engine.begin().await?;
        let dataset = lock_dataset(&mut transaction, id).await?;
        Ok((transaction, dataset))
    }
}

/// Reads and locks the dataset: until the transaction ends, no other one can change it or publish a version.
pub(super) async fn lock_dataset(transaction: &mut CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let sql =
        concat!("UPDATE datasets SET frozen = frozen WHERE datasets.dataset_id = $1 RETURNING ", columns!(datasets));
    transaction.find(sql, &[id.into()]).await?.ok_or(CatalogError::NotFound)
}

/// Updates the checksum of a changed dataset, notifies other processes, and returns the dataset.
pub(super) async fn finish_dataset_change(transaction: &mut CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
    let ChangedDataset { dataset, checksum } = transaction.fetch_one(sql, &[id.into()]).await?;
    let sql = "UPDATE datasets SET record_checksum = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into(), SqlValue::Text(Some(&checksum))]).await?;
    transaction.notify_change().await?;
    Ok(dataset)
}

pub(super) async fn commit_dataset_change(mut transaction: CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let dataset = finish_dataset_change(&mut transaction, id).await?;
    transaction.commit().await?;
    Ok(dataset)
}

/// Returns the stored form of the index settings: JSON, in which U+0000 is escaped, or null.
pub(super) fn index_to_json(index: &IndexSettings) -> Option<String> {
    // Serializing lists of strings cannot fail.
    (!index.is_empty()).then(|| serde_json::to_string(index).unwrap_or_default())
}

fn index_from_json(json: Option<String>) -> Result<IndexSettings> {
    let Some(json) = json else { return Ok(IndexSettings::default()) };
    serde_json::from_str(&json)
        .map_err(|_| CatalogError::InvalidColumnValue { column: "datasets.index_paths", value: json })
}

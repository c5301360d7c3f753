//! Rows of `datasets`.

use strata_types::dataset::{About, Dataset, DatasetName, DatasetSource};
use strata_types::index::IndexSettings;
use strata_types::secret::Secret;

use super::checksums::RecordChecksum;
use super::engine::{Record, Row, Transaction, Value, columns, select};
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

/// The checksum of a row. A change of one of these columns ends with [`seal_dataset`].
fn checksum(row: &Row) -> Result<RecordChecksum> {
    Ok(RecordChecksum::of("datasets")
        .number(row.get("dataset_id")?)
        .number(row.get("owner_id")?)
        .text(row.get("name")?)
        .text(row.get("name_slug")?)
        .optional_text(row.get("private_key")?)
        .text(row.get("source")?)
        .optional_text(row.get("format")?)
        .optional_text(row.get("records_path")?)
        .number(row.get::<bool, _>("publish_query")?.into())
        .optional_text(row.get("schedule")?)
        .optional_text(row.get("index_paths")?)
        .text(row.get("ping_token")?)
        .optional_number(row.get("latest_version")?)
        .optional_number(row.get("pinned_version")?)
        .number(row.get::<bool, _>("frozen")?.into())
        .number(row.get("created_at")?)
        .optional_text(row.get("description")?)
        .optional_text(row.get("licence")?)
        .number(row.get::<bool, _>("listed")?.into())
        .number(row.get::<bool, _>("infer_types")?.into()))
}

/// The dataset, whether or not the checksum is that of the row.
fn unverified(row: &Row) -> Result<Dataset> {
    let format: Option<String> = row.get("format")?;
    Ok(Dataset {
        id: DatasetId::new(row.unsigned("datasets.dataset_id")?),
        owner: UserId::new(row.unsigned("datasets.owner_id")?),
        name: DatasetName::from_stored(row.get("name")?, row.get("name_slug")?),
        about: About { description: row.get("description")?, licence: row.get("licence")?, listed: row.get("listed")? },
        private_key: row.get::<Option<String>, _>("private_key")?.map(Secret::from_stored),
        source: DatasetSource::from(row.get::<&str, _>("source")?),
        format: format.map(|_| row.named("datasets.format")).transpose()?,
        records_path: row.get("records_path")?,
        publish_query: row.get("publish_query")?,
        infer_types: row.get("infer_types")?,
        schedule: row.get("schedule")?,
        index: to_index(row.get("index_paths")?)?,
        ping_token: Secret::from_stored(row.get("ping_token")?),
        latest_version: row.optional_unsigned("datasets.latest_version")?.map(VersionNumber::new),
        pinned_version: row.optional_unsigned("datasets.pinned_version")?.map(VersionNumber::new),
        frozen: row.get("frozen")?,
        created_at: row.time("datasets.created_at")?,
    })
}

impl Record for Dataset {
    fn from_row(row: &Row) -> Result<Dataset> {
        let id: i64 = row.get("dataset_id")?;
        let record = || format!("dataset {id}");
        checksum(row)?.check(row.get("record_checksum")?, record)?;
        // A row without a checksum is taken as it is. But neither is ever empty, except on a damaged page.
        if row.get::<&str, _>("name_slug")?.is_empty() || row.get::<&str, _>("ping_token")?.is_empty() {
            return Err(CatalogError::Unverified { record: record() });
        }
        unverified(row)
    }
}

/// A dataset whose row has changed, and the checksum that the row should have.
struct ChangedDataset {
    dataset: Dataset,
    checksum: String,
}

impl Record for ChangedDataset {
    fn from_row(row: &Row) -> Result<ChangedDataset> {
        Ok(ChangedDataset { dataset: unverified(row)?, checksum: checksum(row)?.finish() })
    }
}

impl Catalog {
    pub(super) async fn lock_dataset(&self, id: DatasetId) -> Result<(Transaction, Dataset)> {
        let mut transaction = self.engine.begin().await?;
        let dataset = lock_dataset(&mut transaction, id).await?;
        Ok((transaction, dataset))
    }
}

/// Reads the dataset. No other transaction can change it, or publish for it, until this one ends.
pub(super) async fn lock_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<Dataset> {
    let sql =
        concat!("UPDATE datasets SET frozen = frozen WHERE datasets.dataset_id = $1 RETURNING ", columns!(datasets));
    transaction.find(sql, &[id.into()]).await?.ok_or(CatalogError::NotFound)
}

/// Ends the change of a dataset in a transaction: updates the checksum, notifies processes, and returns the dataset.
pub(super) async fn seal_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<Dataset> {
    let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
    let ChangedDataset { dataset, checksum } = transaction.one(sql, &[id.into()]).await?;
    let sql = "UPDATE datasets SET record_checksum = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into(), Value::Text(Some(&checksum))]).await?;
    transaction.tell().await?;
    Ok(dataset)
}

/// Ends a transaction that has changed a dataset's row, and returns the dataset as it is now.
pub(super) async fn commit_sealed(mut transaction: Transaction, id: DatasetId) -> Result<Dataset> {
    let dataset = seal_dataset(&mut transaction, id).await?;
    transaction.commit().await?;
    Ok(dataset)
}

/// An index as the database keeps it: JSON, whose escapes can stand for U+0000, too; null for none.
pub(super) fn from_index(index: &IndexSettings) -> Option<String> {
    // Lists of texts are always JSON.
    (!index.is_empty()).then(|| serde_json::to_string(index).unwrap_or_default())
}

fn to_index(json: Option<String>) -> Result<IndexSettings> {
    let Some(json) = json else { return Ok(IndexSettings::default()) };
    serde_json::from_str(&json).map_err(|_| CatalogError::Corrupt { column: "datasets.index_paths", value: json })
}

//! Decodes, locks, and updates rows of the table `datasets`.

use strata_types::dataset::{Dataset, DatasetMetadata, DatasetName, DatasetSource};
use strata_types::index_settings::IndexSettings;
use strata_types::secret::Secret;

use super::convert::{to_parsed, to_time, to_unsigned};
use super::database_engine::{CatalogTransaction, FromSqlRow, OrderedColumns, SqlRow, SqlValue, columns, select};
use super::record_checksum::{ChecksummedColumns, RecordChecksum};
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

/// Reads the columns that the checksum of a dataset covers, in the order of the checksum. Each column is read only
/// once, because this function runs for every request. `check` gets the computed and the stored checksum before the
/// values are converted. Also returns the remaining columns of the row. Code that changes a covered column must call
/// [`update_checksum_and_notify`] at the end.
fn read_dataset<'r>(
    row: &'r SqlRow,
    check: impl FnOnce(RecordChecksum, Option<&str>) -> Result<()>,
) -> Result<(Dataset, OrderedColumns<'r>)> {
    let mut columns = ChecksummedColumns::new(row, "datasets");
    let id = columns.read_number("dataset_id")?;
    let owner = columns.read_number("owner_id")?;
    let name = columns.read_text("name")?;
    let name_slug = columns.read_text("name_slug")?;
    let private_key = columns.read_optional_text("private_key")?;
    let source = columns.read_text("source")?;
    let format = columns.read_optional_text("format")?;
    let records_path = columns.read_optional_text("records_path")?;
    let publish_query = columns.read_flag("publish_query")?;
    let schedule = columns.read_optional_text("schedule")?;
    let index_paths = columns.read_optional_text("index_paths")?;
    let ping_token = columns.read_text("ping_token")?;
    let latest_version = columns.read_optional_number("latest_version")?;
    let pinned_version = columns.read_optional_number("pinned_version")?;
    let frozen = columns.read_flag("frozen")?;
    let created_at = columns.read_number("created_at")?;
    let description = columns.read_optional_text("description")?;
    let license = columns.read_optional_text("licence")?;
    let listed = columns.read_flag("listed")?;
    let infer_types = columns.read_flag("infer_types")?;
    let ChecksummedColumns { mut columns, checksum } = columns;
    check(checksum, columns.read_next("record_checksum")?)?;

    let version = |number: Option<i64>, column| {
        number.map(|number| to_unsigned(number, column).map(VersionNumber::new)).transpose()
    };
    let dataset = Dataset {
        id: DatasetId::new(to_unsigned(id, "datasets.dataset_id")?),
        owner: UserId::new(to_unsigned(owner, "datasets.owner_id")?),
        name: DatasetName::from_stored(name, name_slug),
        metadata: DatasetMetadata { description, license, listed },
        private_key: private_key.map(Secret::from_stored),
        source: DatasetSource::from(source.as_str()),
        format: format.map(|format| to_parsed(format, "datasets.format")).transpose()?,
        records_path,
        publish_query,
        infer_types,
        schedule,
        index: index_from_json(index_paths)?,
        ping_token: Secret::from_stored(ping_token),
        latest_version: version(latest_version, "datasets.latest_version")?,
        pinned_version: version(pinned_version, "datasets.pinned_version")?,
        frozen,
        created_at: to_time(created_at, "datasets.created_at")?,
    };
    Ok((dataset, columns))
}

/// Reads a dataset from the first columns of a row. Also returns the remaining columns.
pub(super) fn read_verified_dataset(row: &SqlRow) -> Result<(Dataset, OrderedColumns<'_>)> {
    let id: i64 = row.get(0)?;
    let record = || format!("dataset {id}");
    let (dataset, columns) = read_dataset(row, |checksum, stored| checksum.verify(stored, record))?;
    // A row without a checksum is valid, but an empty slug or ping token occurs only on a damaged database page.
    if dataset.name.slug().is_empty() || dataset.ping_token.expose().is_empty() {
        return Err(CatalogError::DamagedRecord { record: record() });
    }
    Ok((dataset, columns))
}

impl FromSqlRow for Dataset {
    fn from_row(row: &SqlRow) -> Result<Dataset> {
        read_verified_dataset(row).map(|(dataset, _)| dataset)
    }
}

/// A dataset whose row has changed, and the checksum that the row should have.
struct DatasetWithNewChecksum {
    dataset: Dataset,
    checksum: String,
}

impl FromSqlRow for DatasetWithNewChecksum {
    fn from_row(row: &SqlRow) -> Result<DatasetWithNewChecksum> {
        let mut stored = String::new();
        let (dataset, _) = read_dataset(row, |checksum, _| {
            stored = checksum.into_stored();
            Ok(())
        })?;
        Ok(DatasetWithNewChecksum { dataset, checksum: stored })
    }
}

impl Catalog {
    pub(super) async fn lock_dataset(&self, id: DatasetId) -> Result<(CatalogTransaction, Dataset)> {
        let mut transaction = self.engine.begin().await?;
        let dataset = lock_dataset(&mut transaction, id).await?;
        Ok((transaction, dataset))
    }
}

/// Reads a dataset and locks it: until the transaction ends, no other transaction can change it or publish a version.
pub(super) async fn lock_dataset(transaction: &mut CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let sql =
        concat!("UPDATE datasets SET frozen = frozen WHERE datasets.dataset_id = $1 RETURNING ", columns!(datasets));
    transaction.find(sql, &[id.into()]).await?.ok_or(CatalogError::NotFound)
}

/// Updates the checksum of a changed dataset, notifies other processes, and returns the dataset.
pub(super) async fn update_checksum_and_notify(transaction: &mut CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
    let DatasetWithNewChecksum { dataset, checksum } = transaction.fetch_one(sql, &[id.into()]).await?;
    let sql = "UPDATE datasets SET record_checksum = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into(), SqlValue::Text(Some(&checksum))]).await?;
    transaction.notify_change().await?;
    Ok(dataset)
}

pub(super) async fn commit_dataset_change(mut transaction: CatalogTransaction, id: DatasetId) -> Result<Dataset> {
    let dataset = update_checksum_and_notify(&mut transaction, id).await?;
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
    serde_json::from_str(&json).map_err(|_| CatalogError::invalid_value("datasets.index_paths", &json))
}

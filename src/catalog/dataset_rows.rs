//! Rows of `datasets`.

use strata_types::dataset::{About, Dataset, DatasetName, DatasetSource};
use strata_types::index::IndexSettings;
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;

use super::checksums::RecordChecksum;
use super::convert::{to_named, to_time, to_unsigned};
use super::engine::{Record, Row, Transaction, Value, record, select};
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

/// The columns of a [`DatasetRow`], qualified, because SQLite does not take an alias in `RETURNING`. A change of one of
/// them ends with [`seal_dataset`].
macro_rules! dataset_columns {
    () => {
        "datasets.dataset_id, datasets.owner_id, datasets.name, datasets.name_slug, \
         datasets.private_key, datasets.source, datasets.format, datasets.records_path, \
         datasets.publish_query, datasets.schedule, datasets.index_paths, datasets.ping_token, datasets.latest_version, datasets.pinned_version, \
         datasets.frozen, datasets.created_at, datasets.description, datasets.licence, datasets.listed, \
         datasets.infer_types, datasets.record_checksum"
    };
}
pub(super) use dataset_columns;

record! {
    struct DatasetRow {
        dataset_id: i64,
        owner_id: i64,
        name: String,
        name_slug: String,
        private_key: Option<String>,
        source: String,
        format: Option<String>,
        records_path: Option<String>,
        publish_query: bool,
        schedule: Option<String>,
        index_paths: Option<String>,
        ping_token: String,
        latest_version: Option<i64>,
        pinned_version: Option<i64>,
        frozen: bool,
        created_at: i64,
        description: Option<String>,
        licence: Option<String>,
        listed: bool,
        infer_types: bool,
        record_checksum: Option<String>,
    }
}

impl DatasetRow {
    fn checksum(&self) -> RecordChecksum {
        RecordChecksum::of("datasets")
            .number(self.dataset_id)
            .number(self.owner_id)
            .text(&self.name)
            .text(&self.name_slug)
            .optional_text(self.private_key.as_deref())
            .text(&self.source)
            .optional_text(self.format.as_deref())
            .optional_text(self.records_path.as_deref())
            .number(self.publish_query.into())
            .optional_text(self.schedule.as_deref())
            .optional_text(self.index_paths.as_deref())
            .text(&self.ping_token)
            .optional_number(self.latest_version)
            .optional_number(self.pinned_version)
            .number(self.frozen.into())
            .number(self.created_at)
            .optional_text(self.description.as_deref())
            .optional_text(self.licence.as_deref())
            .number(self.listed.into())
            .number(self.infer_types.into())
    }

    /// The dataset, whether or not the checksum is that of the row.
    fn dataset(self) -> Result<Dataset> {
        let version = |number: Option<i64>, column| {
            number.map(|number| to_unsigned(number, column).map(VersionNumber::new)).transpose()
        };
        Ok(Dataset {
            id: DatasetId::new(to_unsigned(self.dataset_id, "datasets.dataset_id")?),
            owner: UserId::new(to_unsigned(self.owner_id, "datasets.owner_id")?),
            name: DatasetName::from_stored(self.name, self.name_slug),
            about: About { description: self.description, licence: self.licence, listed: self.listed },
            private_key: self.private_key.map(Secret::from_stored),
            source: DatasetSource::from(self.source.as_str()),
            format: self.format.map(|format| to_named::<SourceFormat>(format, "datasets.format")).transpose()?,
            records_path: self.records_path,
            publish_query: self.publish_query,
            infer_types: self.infer_types,
            schedule: self.schedule,
            index: to_index(self.index_paths)?,
            ping_token: Secret::from_stored(self.ping_token),
            latest_version: version(self.latest_version, "datasets.latest_version")?,
            pinned_version: version(self.pinned_version, "datasets.pinned_version")?,
            frozen: self.frozen,
            created_at: to_time(self.created_at, "datasets.created_at")?,
        })
    }
}

impl Record for Dataset {
    fn from_row(row: &Row) -> Result<Dataset> {
        let row = DatasetRow::from_row(row)?;
        let record = || format!("dataset {}", row.dataset_id);
        row.checksum().check(row.record_checksum.as_deref(), record)?;
        // A row without a checksum is taken as it is. But neither is ever empty, except on a damaged page.
        if row.name_slug.is_empty() || row.ping_token.is_empty() {
            return Err(CatalogError::Unverified { record: record() });
        }
        row.dataset()
    }
}

impl Catalog {
    /// Begins a transaction that has locked the dataset.
    pub(super) async fn lock_dataset(&self, id: DatasetId) -> Result<(Transaction, Dataset)> {
        let mut transaction = self.engine.begin().await?;
        let dataset = lock_dataset(&mut transaction, id).await?;
        Ok((transaction, dataset))
    }
}

/// Reads the dataset. No other transaction can change it, or publish for it, until this one ends.
pub(super) async fn lock_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<Dataset> {
    let sql =
        concat!("UPDATE datasets SET frozen = frozen WHERE datasets.dataset_id = $1 RETURNING ", dataset_columns!());
    transaction.find(sql, &[id.into()]).await?.ok_or(CatalogError::NotFound)
}

/// Ends a transaction's change of a dataset's row: gives it the checksum of what it holds now, and tells processes.
/// Returns the dataset as it is now.
pub(super) async fn seal_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<Dataset> {
    let sql = select!(dataset_columns, "datasets WHERE datasets.dataset_id = $1");
    let row: DatasetRow = transaction.one(sql, &[id.into()]).await?;
    let sql = "UPDATE datasets SET record_checksum = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into(), Value::Text(&row.checksum().finish())]).await?;
    transaction.tell().await?;
    row.dataset()
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

//! Table `datasets`.

use crate::model::dataset::{Dataset, DatasetName, DatasetSource, NewDataset};
use crate::model::secret::Secret;
use crate::model::source::SourceFormat;

use super::convert::{from_time, now, to_named, to_time, to_unsigned};
use super::engine::Value;
use super::{Catalog, CatalogError, DatasetId, UserId, VersionNumber};

/// The columns of a [`DatasetRow`], qualified; SQLite does not take an alias in `RETURNING`.
macro_rules! dataset_columns {
    () => {
        "datasets.dataset_id, datasets.owner_id, datasets.name, datasets.name_slug, \
         datasets.private_key, datasets.source, datasets.format, datasets.records_path, \
         datasets.schedule, datasets.ping_token, datasets.latest_version, datasets.pinned_version, \
         datasets.frozen, datasets.created_at"
    };
}
pub(super) use dataset_columns;

#[derive(sqlx::FromRow)]
pub(super) struct DatasetRow {
    dataset_id: i64,
    owner_id: i64,
    name: String,
    name_slug: String,
    private_key: Option<String>,
    source: String,
    format: Option<String>,
    records_path: Option<String>,
    schedule: Option<String>,
    ping_token: String,
    latest_version: Option<i64>,
    pinned_version: Option<i64>,
    frozen: bool,
    created_at: i64,
}

impl TryFrom<DatasetRow> for Dataset {
    type Error = CatalogError;

    fn try_from(row: DatasetRow) -> Result<Self, Self::Error> {
        let version = |number: Option<i64>, column| {
            number.map(|number| to_unsigned(number, column).map(VersionNumber::new)).transpose()
        };
        Ok(Dataset {
            id: DatasetId::new(to_unsigned(row.dataset_id, "datasets.dataset_id")?),
            owner: UserId::new(to_unsigned(row.owner_id, "datasets.owner_id")?),
            name: DatasetName::from_stored(row.name, row.name_slug),
            private_key: row.private_key.map(Secret::from_stored),
            source: DatasetSource::from(row.source.as_str()),
            format: row.format.map(|format| to_named::<SourceFormat>(format, "datasets.format")).transpose()?,
            records_path: row.records_path,
            schedule: row.schedule,
            ping_token: Secret::from_stored(row.ping_token),
            latest_version: version(row.latest_version, "datasets.latest_version")?,
            pinned_version: version(row.pinned_version, "datasets.pinned_version")?,
            frozen: row.frozen,
            created_at: to_time(row.created_at, "datasets.created_at")?,
        })
    }
}

impl Catalog {
    /// Creates a dataset without versions, unless its owner would then have more than
    /// `active_limit` datasets that are not frozen.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such owner, [`CatalogError::NameTaken`],
    /// [`CatalogError::PlanLimit`]; in this order, so that whoever meant to create or find the dataset
    /// learns that it is there.
    pub async fn create_dataset(&self, new: &NewDataset, active_limit: u64) -> Result<Dataset, CatalogError> {
        let mut transaction = self.engine.begin().await?;
        // Changes nothing, but makes whoever else creates datasets for this owner wait, so that the count
        // below is right.
        let owners =
            transaction.execute("UPDATE users SET plan = plan WHERE user_id = $1", &[new.owner.into()]).await?;
        if owners == 0 {
            return Err(CatalogError::NotFound);
        }

        let source = new.source.to_string();
        let row: Option<DatasetRow> = transaction
            .fetch_optional(
                concat!(
                    "INSERT INTO datasets
                         (owner_id, name, name_slug, private_key, source, format, records_path,
                          schedule, ping_token, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                     ON CONFLICT (owner_id, name) DO NOTHING
                     RETURNING ",
                    dataset_columns!()
                ),
                &[
                    new.owner.into(),
                    Value::Text(new.name.as_str()),
                    Value::Text(new.name.slug()),
                    Value::OptionalText(new.private_key.as_ref().map(Secret::expose)),
                    Value::Text(&source),
                    Value::OptionalText(new.format.map(SourceFormat::name)),
                    Value::OptionalText(new.records_path.as_deref()),
                    Value::OptionalText(new.schedule.as_deref()),
                    Value::Text(new.ping_token.expose()),
                    from_time(now()),
                ],
            )
            .await?;
        let dataset = Dataset::try_from(row.ok_or(CatalogError::NameTaken)?)?;

        let (active,): (i64,) = transaction
            .fetch_one("SELECT COUNT(*) FROM datasets WHERE owner_id = $1 AND NOT frozen", &[new.owner.into()])
            .await?;
        if to_unsigned(active, "datasets count")? > active_limit {
            return Err(CatalogError::PlanLimit { limit: active_limit });
        }
        transaction.commit().await?;
        Ok(dataset)
    }

    /// The dataset with this id. One look-up by primary key.
    pub async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>, CatalogError> {
        let row: Option<DatasetRow> = self
            .engine
            .fetch_optional(
                concat!("SELECT ", dataset_columns!(), " FROM datasets WHERE datasets.dataset_id = $1"),
                &[id.into()],
            )
            .await?;
        row.map(Dataset::try_from).transpose()
    }

    /// The owner's dataset of exactly this name. One indexed look-up.
    pub async fn dataset_by_name(&self, owner: UserId, name: &DatasetName) -> Result<Option<Dataset>, CatalogError> {
        let row: Option<DatasetRow> = self
            .engine
            .fetch_optional(
                concat!(
                    "SELECT ",
                    dataset_columns!(),
                    " FROM datasets WHERE datasets.owner_id = $1 AND datasets.name = $2"
                ),
                &[owner.into(), Value::Text(name.as_str())],
            )
            .await?;
        row.map(Dataset::try_from).transpose()
    }
}

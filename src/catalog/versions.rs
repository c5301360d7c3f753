//! Tables `versions` and `files`: publishing a version and finding the one a reader asks for.

use crate::model::dataset::Dataset;
use crate::model::version::{NewFile, Version, VersionFile, VersionSelector};

use super::attempts::{AttemptOutcome, finish};
use super::convert::{from_time, from_unsigned, now, to_time, to_unsigned};
use super::datasets::{DatasetRow, dataset_columns};
use super::engine::Value;
use super::{AttemptId, Catalog, CatalogError, DatasetId, FileId, VersionNumber};

/// A dataset and the version of it that a reader asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The dataset.
    pub dataset: Dataset,
    /// The version; `None` if the dataset has no such version.
    pub version: Option<Version>,
}

#[derive(sqlx::FromRow)]
struct ResolvedRow {
    #[sqlx(flatten)]
    dataset: DatasetRow,
    version_number: Option<i64>,
    version_created_at: Option<i64>,
    file_id: Option<i64>,
    path: Option<String>,
    size_bytes: Option<i64>,
    entity_count: Option<i64>,
    content_hash: Option<String>,
    alt_file_id: Option<i64>,
    alt_path: Option<String>,
    alt_size_bytes: Option<i64>,
    alt_entity_count: Option<i64>,
    alt_content_hash: Option<String>,
}

impl TryFrom<ResolvedRow> for Resolved {
    type Error = CatalogError;

    fn try_from(row: ResolvedRow) -> Result<Self, Self::Error> {
        let dataset = Dataset::try_from(row.dataset)?;
        let file = version_file(row.file_id, row.path, row.size_bytes, row.entity_count, row.content_hash)?;
        let alt = version_file(
            row.alt_file_id,
            row.alt_path,
            row.alt_size_bytes,
            row.alt_entity_count,
            row.alt_content_hash,
        )?;
        let version = match (row.version_number, row.version_created_at, file) {
            (Some(number), Some(created_at), Some(file)) => Some(Version {
                dataset: dataset.id,
                number: VersionNumber::new(to_unsigned(number, "versions.version_number")?),
                file,
                alt,
                created_at: to_time(created_at, "versions.created_at")?,
            }),
            _ => None,
        };
        Ok(Resolved { dataset, version })
    }
}

/// The file of an outer join's columns; they are null together.
fn version_file(
    file_id: Option<i64>,
    path: Option<String>,
    size_bytes: Option<i64>,
    entity_count: Option<i64>,
    content_hash: Option<String>,
) -> Result<Option<VersionFile>, CatalogError> {
    let (Some(file_id), Some(path), Some(size_bytes), Some(entity_count), Some(content_hash)) =
        (file_id, path, size_bytes, entity_count, content_hash)
    else {
        return Ok(None);
    };
    Ok(Some(VersionFile {
        id: FileId::new(to_unsigned(file_id, "files.file_id")?),
        path,
        size_bytes: to_unsigned(size_bytes, "files.size_bytes")?,
        entity_count: to_unsigned(entity_count, "files.entity_count")?,
        content_hash,
    }))
}

/// The query of [`Catalog::resolve_read`] with the number of the version as an expression.
macro_rules! resolve_sql {
    ($number:literal) => {
        concat!(
            "SELECT ",
            dataset_columns!(),
            ", v.version_number, v.created_at AS version_created_at,
               f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash,
               a.file_id AS alt_file_id, a.path AS alt_path, a.size_bytes AS alt_size_bytes,
               a.entity_count AS alt_entity_count, a.content_hash AS alt_content_hash
             FROM datasets
             LEFT JOIN versions v ON v.dataset_id = datasets.dataset_id AND v.version_number = ",
            $number,
            " LEFT JOIN files f ON f.file_id = v.file_id
              LEFT JOIN files a ON a.file_id = v.alt_file_id
              WHERE datasets.dataset_id = $1"
        )
    };
}

impl Catalog {
    /// The dataset with this id and the version of it that `selector` names, as of one moment.
    ///
    /// Every read asks this once: one statement, four look-ups by primary key whatever the number of
    /// datasets and versions. Under SQLite most of its cost is handing the statement to a connection's
    /// thread and back; under PostgreSQL it is one round trip.
    pub async fn resolve_read(
        &self,
        id: DatasetId,
        selector: VersionSelector,
    ) -> Result<Option<Resolved>, CatalogError> {
        let row: Option<ResolvedRow> = match selector {
            VersionSelector::Active => {
                let sql = resolve_sql!("COALESCE(datasets.pinned_version, datasets.latest_version)");
                self.engine.fetch_optional(sql, &[id.into()]).await?
            }
            VersionSelector::Latest => {
                let sql = resolve_sql!("datasets.latest_version");
                self.engine.fetch_optional(sql, &[id.into()]).await?
            }
            VersionSelector::Number(number) => {
                let sql = resolve_sql!("$2");
                let values = &[id.into(), number.into()];
                self.engine.fetch_optional(sql, values).await?
            }
        };
        row.map(Resolved::try_from).transpose()
    }

    /// Records a finished file as the dataset's next version, all at once:
    ///
    /// 1. takes the next number, which makes other publications of this dataset wait for the commit, so
    ///    that numbers are consecutive;
    /// 2. records the file and the version; it becomes the active one unless a rollback has pinned
    ///    another;
    /// 3. records that the dataset's webhook is due, if one is registered;
    /// 4. records that `attempt` has ended with this version.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such dataset or no such unfinished attempt,
    /// [`CatalogError::Frozen`], [`CatalogError::OutOfRange`]. No number is used up then.
    pub async fn publish_version(
        &self,
        dataset: DatasetId,
        file: &NewFile,
        attempt: AttemptId,
    ) -> Result<Version, CatalogError> {
        let mut transaction = self.engine.begin().await?;

        let row: Option<(i64,)> = transaction
            .fetch_optional(
                "UPDATE datasets SET latest_version = COALESCE(latest_version, 0) + 1
                 WHERE dataset_id = $1 AND NOT frozen
                 RETURNING latest_version",
                &[dataset.into()],
            )
            .await?;
        let Some((number,)) = row else {
            let found: Option<(i64,)> = transaction
                .fetch_optional("SELECT dataset_id FROM datasets WHERE dataset_id = $1", &[dataset.into()])
                .await?;
            return Err(match found {
                Some(_) => CatalogError::Frozen,
                None => CatalogError::NotFound,
            });
        };

        // Only now, when the versions before it are committed, so that times rise with the numbers.
        let created_at = now();
        let (file_id,): (i64,) = transaction
            .fetch_one(
                "INSERT INTO files (path, size_bytes, entity_count, content_hash, created_at)
                 VALUES ($1, $2, $3, $4, $5)
                 RETURNING file_id",
                &[
                    Value::Text(&file.path),
                    from_unsigned(file.size_bytes, "size_bytes")?,
                    from_unsigned(file.entity_count, "entity_count")?,
                    Value::Text(&file.content_hash),
                    from_time(created_at),
                ],
            )
            .await?;
        transaction
            .execute(
                "INSERT INTO versions (dataset_id, version_number, file_id, created_at)
                 VALUES ($1, $2, $3, $4)",
                &[dataset.into(), Value::Integer(number), Value::Integer(file_id), from_time(created_at)],
            )
            .await?;
        transaction
            .execute(
                "INSERT INTO webhook_deliveries (dataset_id, version_number, due_at)
                 SELECT dataset_id, $2, $3 FROM webhooks WHERE dataset_id = $1 AND is_active",
                &[dataset.into(), Value::Integer(number), from_time(created_at)],
            )
            .await?;
        let number = VersionNumber::new(to_unsigned(number, "datasets.latest_version")?);
        finish(&mut transaction, attempt, &AttemptOutcome::Published(number)).await?;
        transaction.commit().await?;

        Ok(Version {
            dataset,
            number,
            file: VersionFile {
                id: FileId::new(to_unsigned(file_id, "files.file_id")?),
                path: file.path.clone(),
                size_bytes: file.size_bytes,
                entity_count: file.entity_count,
                content_hash: file.content_hash.clone(),
            },
            alt: None,
            created_at,
        })
    }
}

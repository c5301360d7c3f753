//! Adds missing record checksums when the metadata database opens. An operator who edits a row sets its checksum to
//! null. The row is then accepted until the next start adds the checksum. Each batch is a transaction that locks its
//! rows, so several processes can do this concurrently. Each table has a partial index of rows without a checksum.

use strata_types::dataset::Dataset;

use super::convert::to_unsigned;
use super::database_engine::{CatalogTransaction, SqlRow, SqlValue, columns};
use super::dataset_rows::{lock_dataset, update_checksum_and_notify};
use super::sessions::StoredSession;
use super::tokens::token_checksum;
use super::validators::validators_checksum;
use super::version_rows::version_checksum;
use super::versions::find_version;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const BATCH_ROWS: i64 = 200;

enum RowWithoutChecksum {
    Dataset(i64),
    Version(i64, i64),
    Validators(i64),
    Token(String),
    Session(String),
}

type MissingChecksumQuery = (&'static str, fn(&SqlRow) -> Result<RowWithoutChecksum>);

const MISSING_CHECKSUM_QUERIES: [MissingChecksumQuery; 5] = [
    ("SELECT dataset_id FROM datasets WHERE record_checksum IS NULL ORDER BY dataset_id LIMIT $1", |row| {
        row.get(0).map(RowWithoutChecksum::Dataset)
    }),
    (
        "SELECT dataset_id, version_number FROM versions WHERE record_checksum IS NULL
         ORDER BY dataset_id, version_number LIMIT $1",
        |row| Ok(RowWithoutChecksum::Version(row.get(0)?, row.get(1)?)),
    ),
    (
        "SELECT dataset_id FROM datasets WHERE validated_url IS NOT NULL AND validators_checksum IS NULL
         ORDER BY dataset_id LIMIT $1",
        |row| row.get(0).map(RowWithoutChecksum::Validators),
    ),
    ("SELECT token_hash FROM api_tokens WHERE record_checksum IS NULL ORDER BY token_hash LIMIT $1", |row| {
        row.get(0).map(RowWithoutChecksum::Token)
    }),
    ("SELECT session_hash FROM sessions WHERE record_checksum IS NULL ORDER BY session_hash LIMIT $1", |row| {
        row.get(0).map(RowWithoutChecksum::Session)
    }),
];

impl Catalog {
    /// Adds checksums to the records that have none. If that fails, for example because the database is read-only,
    /// these records remain unverified.
    pub(super) async fn backfill_checksums(&self) {
        for (sql, decode) in MISSING_CHECKSUM_QUERIES {
            if let Err(error) = self.backfill_query(sql, decode).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to add checksums to records; records without a checksum are not verified"
                );
                return;
            }
        }
    }

    async fn backfill_query(&self, sql: &'static str, decode: fn(&SqlRow) -> Result<RowWithoutChecksum>) -> Result<()> {
        loop {
            let keys = self.engine.list_with(sql, &[SqlValue::Integer(Some(BATCH_ROWS))], decode).await?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut changed = 0;
            let mut transaction = self.engine.begin().await?;
            for key in keys {
                match key.backfill(&mut transaction).await {
                    Ok(rows) => changed += rows,
                    Err(CatalogError::NotFound | CatalogError::NoVersion) => {}
                    // A damaged record is skipped, so that the other records get their checksums.
                    Err(error) if error.is_corruption() && !matches!(error, CatalogError::DamagedDatabase { .. }) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "failed to add checksum to record");
                    }
                    Err(error) => return Err(error),
                }
            }
            transaction.commit().await?;
            if changed == 0 {
                return Ok(());
            }
        }
    }
}

impl RowWithoutChecksum {
    /// Adds the checksum to the row unless the row got one after it was selected. Returns the number of changed rows.
    async fn backfill(&self, transaction: &mut CatalogTransaction) -> Result<u64> {
        let (sql, key, checksum) = match self {
            RowWithoutChecksum::Dataset(id) => {
                let sql = concat!(
                    "UPDATE datasets SET frozen = frozen
                     WHERE dataset_id = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    columns!(datasets)
                );
                let Some(dataset) = transaction.find::<Dataset>(sql, &[SqlValue::Integer(Some(*id))]).await? else {
                    return Ok(0);
                };
                return update_checksum_and_notify(transaction, dataset.id).await.map(|_| 1);
            }
            RowWithoutChecksum::Version(dataset, number) => {
                return backfill_version(transaction, *dataset, *number).await;
            }
            RowWithoutChecksum::Validators(dataset) => {
                type ValidatorColumns = (Option<String>, Option<String>, Option<String>);
                let key = SqlValue::Integer(Some(*dataset));
                let sql = "UPDATE datasets SET frozen = frozen
                           WHERE dataset_id = $1 AND COALESCE(validators_checksum, '') = ''
                           RETURNING validated_url, source_etag, source_last_modified";
                let row: Option<ValidatorColumns> = transaction.find(sql, &[key]).await?;
                let Some((url, etag, last_modified)) = row else { return Ok(0) };
                let checksum = validators_checksum(*dataset, url.as_deref(), etag.as_deref(), last_modified.as_deref());
                ("UPDATE datasets SET validators_checksum = $2 WHERE dataset_id = $1", key, checksum)
            }
            RowWithoutChecksum::Token(hash) => {
                let key = SqlValue::Text(Some(hash));
                let sql = "UPDATE api_tokens SET scope = scope
                           WHERE token_hash = $1 AND COALESCE(record_checksum, '') = ''
                           RETURNING user_id, scope, expires_at";
                let row: Option<(i64, String, Option<i64>)> = transaction.find(sql, &[key]).await?;
                let Some((user, scope, expires_at)) = row else { return Ok(0) };
                let checksum = token_checksum(hash, user, &scope, expires_at);
                ("UPDATE api_tokens SET record_checksum = $2 WHERE token_hash = $1", key, checksum)
            }
            RowWithoutChecksum::Session(hash) => {
                let key = SqlValue::Text(Some(hash));
                let sql = concat!(
                    "UPDATE sessions SET expires_at = expires_at
                     WHERE session_hash = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    columns!(sessions)
                );
                let Some(session) = transaction.find::<StoredSession>(sql, &[key]).await? else { return Ok(0) };
                ("UPDATE sessions SET record_checksum = $2 WHERE session_hash = $1", key, session.checksum())
            }
        };
        transaction.execute(sql, &[key, SqlValue::Text(Some(&checksum.into_stored()))]).await
    }
}

async fn backfill_version(transaction: &mut CatalogTransaction, dataset: i64, number: i64) -> Result<u64> {
    let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
    let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
    let dataset = lock_dataset(transaction, id).await?;
    let version = find_version(transaction, &dataset, number).await?.version;
    let checksum = version_checksum(&version, dataset.created_at).into_stored();
    let sql = "UPDATE versions SET record_checksum = $3
               WHERE dataset_id = $1 AND version_number = $2 AND COALESCE(record_checksum, '') = ''";
    transaction.execute(sql, &[id.into(), number.into(), SqlValue::Text(Some(&checksum))]).await
}

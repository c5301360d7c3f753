//! Gives rows without a checksum theirs when the catalog is opened.
//!
//! An operator who changes a row by hand sets its checksum to null. Such a row is accepted as it is until the next
//! opening of the catalog seals it. Each batch of rows is a transaction that locks them, so several processes may open
//! the catalog at once. Each table has an index of only the rows without a checksum.

use strata_types::dataset::Dataset;

use super::convert::to_unsigned;
use super::dataset_rows::{lock_dataset, seal_dataset};
use super::engine::{Row, Transaction, Value, columns};
use super::sessions::SessionRecord;
use super::tokens::token_checksum;
use super::validators::validators_checksum;
use super::version_rows::version_checksum;
use super::versions::find_version;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const BATCH: i64 = 200;

enum Unsealed {
    Dataset(i64),
    Version(i64, i64),
    Validators(i64),
    Token(String),
    Session(String),
}

/// A statement that lists keys of one kind, and the function that reads them.
type Listing = (&'static str, fn(&Row) -> Result<Unsealed>);

const LISTINGS: [Listing; 5] = [
    ("SELECT dataset_id FROM datasets WHERE record_checksum IS NULL ORDER BY dataset_id LIMIT $1", |row| {
        row.get(0).map(Unsealed::Dataset)
    }),
    (
        "SELECT dataset_id, version_number FROM versions WHERE record_checksum IS NULL
         ORDER BY dataset_id, version_number LIMIT $1",
        |row| Ok(Unsealed::Version(row.get(0)?, row.get(1)?)),
    ),
    (
        "SELECT dataset_id FROM datasets WHERE validated_url IS NOT NULL AND validators_checksum IS NULL
         ORDER BY dataset_id LIMIT $1",
        |row| row.get(0).map(Unsealed::Validators),
    ),
    ("SELECT token_hash FROM api_tokens WHERE record_checksum IS NULL ORDER BY token_hash LIMIT $1", |row| {
        row.get(0).map(Unsealed::Token)
    }),
    ("SELECT session_hash FROM sessions WHERE record_checksum IS NULL ORDER BY session_hash LIMIT $1", |row| {
        row.get(0).map(Unsealed::Session)
    }),
];

impl Catalog {
    /// Seals every row without a checksum. One that cannot be sealed, as in a read-only catalog, stays as it is.
    pub(super) async fn seal_records(&self) {
        for (sql, key) in LISTINGS {
            if let Err(error) = self.seal_all(sql, key).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to add checksums to records; records without a checksum are not verified"
                );
                return;
            }
        }
    }

    async fn seal_all(&self, sql: &'static str, key: fn(&Row) -> Result<Unsealed>) -> Result<()> {
        loop {
            let keys = self.engine.list_with(sql, &[Value::Integer(Some(BATCH))], key).await?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut sealed = 0;
            let mut transaction = self.engine.begin().await?;
            for key in keys {
                match key.seal(&mut transaction).await {
                    Ok(rows) => sealed += rows,
                    Err(CatalogError::NotFound | CatalogError::NoVersion) => {}
                    // A record that cannot be read keeps no other from being sealed.
                    Err(error) if error.is_damage() && !matches!(error, CatalogError::Damaged { .. }) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "failed to add checksum to record");
                    }
                    Err(error) => return Err(error),
                }
            }
            transaction.commit().await?;
            if sealed == 0 {
                return Ok(());
            }
        }
    }
}

impl Unsealed {
    /// Seals the row, unless it has a checksum by now. Returns the number of sealed rows.
    async fn seal(&self, transaction: &mut Transaction) -> Result<u64> {
        let (sql, key, checksum) = match self {
            Unsealed::Dataset(id) => {
                let sql = concat!(
                    "UPDATE datasets SET frozen = frozen
                     WHERE dataset_id = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    columns!(datasets)
                );
                let Some(dataset) = transaction.find::<Dataset>(sql, &[Value::Integer(Some(*id))]).await? else {
                    return Ok(0);
                };
                return seal_dataset(transaction, dataset.id).await.map(|_| 1);
            }
            Unsealed::Version(dataset, number) => return seal_version(transaction, *dataset, *number).await,
            Unsealed::Validators(dataset) => {
                type Validators = (Option<String>, Option<String>, Option<String>);
                let key = Value::Integer(Some(*dataset));
                let sql = "UPDATE datasets SET frozen = frozen
                           WHERE dataset_id = $1 AND COALESCE(validators_checksum, '') = ''
                           RETURNING validated_url, source_etag, source_last_modified";
                let row: Option<Validators> = transaction.find(sql, &[key]).await?;
                let Some((url, etag, last_modified)) = row else { return Ok(0) };
                let checksum = validators_checksum(*dataset, url.as_deref(), etag.as_deref(), last_modified.as_deref());
                ("UPDATE datasets SET validators_checksum = $2 WHERE dataset_id = $1", key, checksum)
            }
            Unsealed::Token(hash) => {
                let key = Value::Text(Some(hash));
                let sql = "UPDATE api_tokens SET scope = scope
                           WHERE token_hash = $1 AND COALESCE(record_checksum, '') = ''
                           RETURNING user_id, scope, expires_at";
                let row: Option<(i64, String, Option<i64>)> = transaction.find(sql, &[key]).await?;
                let Some((user, scope, expires_at)) = row else { return Ok(0) };
                let checksum = token_checksum(hash, user, &scope, expires_at);
                ("UPDATE api_tokens SET record_checksum = $2 WHERE token_hash = $1", key, checksum)
            }
            Unsealed::Session(hash) => {
                let key = Value::Text(Some(hash));
                let sql = concat!(
                    "UPDATE sessions SET expires_at = expires_at
                     WHERE session_hash = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    columns!(sessions)
                );
                let Some(session) = transaction.find::<SessionRecord>(sql, &[key]).await? else { return Ok(0) };
                ("UPDATE sessions SET record_checksum = $2 WHERE session_hash = $1", key, session.checksum())
            }
        };
        transaction.execute(sql, &[key, Value::Text(Some(&checksum.finish()))]).await
    }
}

async fn seal_version(transaction: &mut Transaction, dataset: i64, number: i64) -> Result<u64> {
    let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
    let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
    let dataset = lock_dataset(transaction, id).await?;
    let version = find_version(transaction, &dataset, number).await?.version;
    let checksum = version_checksum(&version, dataset.created_at).finish();
    let sql = "UPDATE versions SET record_checksum = $3
               WHERE dataset_id = $1 AND version_number = $2 AND COALESCE(record_checksum, '') = ''";
    transaction.execute(sql, &[id.into(), number.into(), Value::Text(Some(&checksum))]).await
}

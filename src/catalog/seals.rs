//! Gives rows without a checksum theirs when the catalog is opened.
//!
//! A row has no checksum if an operator changed it by hand and set the checksum to null. Such a row is accepted as it
//! is. The next opening of the catalog seals it.
//!
//! Rows are sealed in batches. Each batch is a transaction that locks its rows, so several processes may open the
//! catalog at once while others use it. Each table has an index of only the rows without a checksum. If there are none,
//! an opening costs one look into it and writes nothing.

use strata_types::dataset::Dataset;

use super::convert::to_unsigned;
use super::dataset_rows::{dataset_columns, lock_dataset, seal_dataset};
use super::engine::{Row, Transaction, Value};
use super::sessions::session_checksum;
use super::tokens::token_checksum;
use super::validators::validators_checksum;
use super::version_rows::version_checksum;
use super::versions::find_version;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const BATCH: i64 = 200;

/// The key of a row without a checksum.
enum Unsealed {
    Dataset(i64),
    Version(i64, i64),
    /// Of a dataset whose source is asked by something.
    Validators(i64),
    Token(String),
    Session(String),
}

/// A key before all others of a table, and the statement and the function that list the keys after one in their order.
type Listing = (Unsealed, &'static str, fn(&Row) -> Result<Unsealed>);

fn listings() -> [Listing; 5] {
    [
        (
            Unsealed::Dataset(0),
            "SELECT dataset_id FROM datasets WHERE record_checksum IS NULL AND dataset_id > $1
             ORDER BY dataset_id LIMIT $2",
            |row| row.get(0).map(Unsealed::Dataset),
        ),
        (
            Unsealed::Version(0, 0),
            "SELECT dataset_id, version_number FROM versions
             WHERE record_checksum IS NULL AND (dataset_id, version_number) > ($1, $2)
             ORDER BY dataset_id, version_number LIMIT $3",
            |row| Ok(Unsealed::Version(row.get(0)?, row.get(1)?)),
        ),
        (
            Unsealed::Validators(0),
            "SELECT dataset_id FROM datasets
             WHERE validated_url IS NOT NULL AND validators_checksum IS NULL AND dataset_id > $1
             ORDER BY dataset_id LIMIT $2",
            |row| row.get(0).map(Unsealed::Validators),
        ),
        (
            Unsealed::Token(String::new()),
            "SELECT token_hash FROM api_tokens WHERE record_checksum IS NULL AND token_hash > $1
             ORDER BY token_hash LIMIT $2",
            |row| row.get(0).map(Unsealed::Token),
        ),
        (
            Unsealed::Session(String::new()),
            "SELECT session_hash FROM sessions WHERE record_checksum IS NULL AND session_hash > $1
             ORDER BY session_hash LIMIT $2",
            |row| row.get(0).map(Unsealed::Session),
        ),
    ]
}

impl Catalog {
    /// Seals every row without a checksum. One that cannot be sealed, as in a read-only catalog, stays as it is.
    pub(super) async fn seal_records(&self) {
        for listing in listings() {
            if let Err(error) = self.seal_all(listing).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to add checksums to records; records without a checksum are not verified"
                );
                return;
            }
        }
    }

    async fn seal_all(&self, (mut last, sql, key): Listing) -> Result<()> {
        loop {
            let mut values = last.values();
            values.push(Value::Integer(BATCH));
            let mut keys = self.engine.list_with(sql, &values, key).await?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut transaction = self.engine.begin().await?;
            let mut locked = None;
            for key in &keys {
                if let Err(error) = key.seal(&mut transaction, &mut locked).await {
                    pass_over(error)?;
                }
            }
            transaction.commit().await?;
            drop(values);
            last = keys.swap_remove(keys.len() - 1);
        }
    }
}

impl Unsealed {
    fn values(&self) -> Vec<Value<'_>> {
        match self {
            Unsealed::Dataset(id) | Unsealed::Validators(id) => vec![Value::Integer(*id)],
            Unsealed::Version(dataset, number) => vec![Value::Integer(*dataset), Value::Integer(*number)],
            Unsealed::Token(hash) | Unsealed::Session(hash) => vec![Value::Text(hash)],
        }
    }

    /// Seals the row, unless it has a checksum by now: the index has said that it has none, and here the row says so.
    /// `locked` is the dataset that was locked last in the transaction.
    async fn seal(&self, transaction: &mut Transaction, locked: &mut Option<Dataset>) -> Result<()> {
        let key = self.values();
        let (sql, checksum) = match self {
            Unsealed::Dataset(_) => {
                let sql = concat!(
                    "UPDATE datasets SET frozen = frozen
                     WHERE dataset_id = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    dataset_columns!()
                );
                return match transaction.find::<Dataset>(sql, &key).await? {
                    Some(dataset) => seal_dataset(transaction, dataset.id).await.map(drop),
                    None => Ok(()),
                };
            }
            Unsealed::Version(dataset, number) => return seal_version(transaction, *dataset, *number, locked).await,
            Unsealed::Validators(dataset) => {
                type Validators = (Option<String>, Option<String>, Option<String>);
                let sql = "UPDATE datasets SET frozen = frozen
                           WHERE dataset_id = $1 AND COALESCE(validators_checksum, '') = ''
                           RETURNING validated_url, source_etag, source_last_modified";
                let row: Option<Validators> = transaction.find(sql, &key).await?;
                let Some((url, etag, last_modified)) = row else { return Ok(()) };
                let checksum = validators_checksum(*dataset, url.as_deref(), etag.as_deref(), last_modified.as_deref());
                ("UPDATE datasets SET validators_checksum = $2 WHERE dataset_id = $1", checksum)
            }
            Unsealed::Token(hash) => {
                let sql = "UPDATE api_tokens SET scope = scope
                           WHERE token_hash = $1 AND COALESCE(record_checksum, '') = ''
                           RETURNING user_id, scope, expires_at";
                let row: Option<(i64, String, Option<i64>)> = transaction.find(sql, &key).await?;
                let Some((user, scope, expires_at)) = row else { return Ok(()) };
                let checksum = token_checksum(hash, user, &scope, expires_at);
                ("UPDATE api_tokens SET record_checksum = $2 WHERE token_hash = $1", checksum)
            }
            Unsealed::Session(hash) => {
                let sql = "UPDATE sessions SET expires_at = expires_at
                           WHERE session_hash = $1 AND COALESCE(record_checksum, '') = ''
                           RETURNING user_id, data, expires_at";
                let row: Option<(Option<i64>, String, i64)> = transaction.find(sql, &key).await?;
                let Some((user, data, expires_at)) = row else { return Ok(()) };
                let checksum = session_checksum(hash, user, &data, expires_at);
                ("UPDATE sessions SET record_checksum = $2 WHERE session_hash = $1", checksum)
            }
        };
        transaction.execute(sql, &[key[0], Value::Text(&checksum.finish())]).await.map(drop)
    }
}

async fn seal_version(
    transaction: &mut Transaction,
    dataset: i64,
    number: i64,
    locked: &mut Option<Dataset>,
) -> Result<()> {
    let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
    let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
    let dataset = match locked.take() {
        Some(dataset) if dataset.id == id => dataset,
        _ => lock_dataset(transaction, id).await?,
    };
    let dataset = locked.insert(dataset);
    let version = find_version(transaction, dataset, number).await?.version;
    let checksum = version_checksum(&version, dataset.created_at).finish();
    let sql = "UPDATE versions SET record_checksum = $3
               WHERE dataset_id = $1 AND version_number = $2 AND COALESCE(record_checksum, '') = ''";
    transaction.execute(sql, &[id.into(), number.into(), Value::Text(&checksum)]).await.map(drop)
}

/// A record that cannot be read is not sealed, and keeps no other from it.
fn pass_over(error: CatalogError) -> Result<()> {
    match error {
        CatalogError::Damaged { .. } => Err(error),
        CatalogError::NotFound | CatalogError::NoVersion => Ok(()),
        error if error.is_damage() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to add checksum to record");
            Ok(())
        }
        error => Err(error),
    }
}

//! Gives rows without a checksum theirs when the catalog is opened.
//!
//! A row has no checksum if an operator changed it by hand and set the checksum to null. Such a row is accepted as it
//! is. The next opening of the catalog seals it.
//!
//! Rows are sealed in batches. Each batch is a transaction that locks its rows, so several processes may open the
//! catalog at once while others use it. Each table has an index of only the rows without a checksum. If there are none,
//! an opening costs one look into it and writes nothing.

use super::convert::to_unsigned;
use super::dataset_rows::{dataset_columns, lock_dataset, seal_dataset};
use super::engine::{Row, Transaction, Value};
use super::sessions::session_checksum;
use super::tokens::token_checksum;
use super::validators::validators_checksum;
use super::version_rows::version_checksum;
use super::versions::find_version;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};
use crate::model::dataset::Dataset;

const BATCH: i64 = 200;

/// The key of a row without a checksum; the default is before all others.
trait Unsealed: Row + Default + Sync {
    /// The keys after one, in their order. Its values are those of [`Unsealed::values`], and a limit after them.
    const LIST: &'static str;

    fn values(&self) -> Vec<Value<'_>>;

    /// Seals the row, unless it has a checksum by now. `locked` is the dataset that was locked last in the transaction.
    fn seal(
        &self,
        transaction: &mut Transaction,
        locked: &mut Option<Dataset>,
    ) -> impl Future<Output = Result<()>> + Send;
}

impl Catalog {
    /// Seals every row without a checksum. One that cannot be sealed, as in a read-only catalog, stays as it is.
    pub(super) async fn seal_records(&self) {
        let sealed = async {
            self.seal_all::<UnsealedDataset>().await?;
            self.seal_all::<UnsealedVersion>().await?;
            self.seal_all::<UnsealedValidators>().await?;
            self.seal_all::<UnsealedToken>().await?;
            self.seal_all::<UnsealedSession>().await
        };
        if let Err(error) = sealed.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "records without a checksum could not get one, and are taken as they are"
            );
        }
    }

    async fn seal_all<K: Unsealed>(&self) -> Result<()> {
        let mut last = K::default();
        loop {
            let mut values = last.values();
            values.push(Value::Integer(BATCH));
            let mut keys: Vec<K> = self.engine.fetch_all(K::LIST, &values).await?;
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
            match keys.pop() {
                Some(end) => last = end,
                None => return Ok(()),
            }
        }
    }
}

#[derive(Default, sqlx::FromRow)]
struct UnsealedDataset(i64);

impl Unsealed for UnsealedDataset {
    const LIST: &'static str = "SELECT dataset_id FROM datasets WHERE record_checksum IS NULL AND dataset_id > $1
                                ORDER BY dataset_id LIMIT $2";

    fn values(&self) -> Vec<Value<'_>> {
        vec![Value::Integer(self.0)]
    }

    async fn seal(&self, transaction: &mut Transaction, _: &mut Option<Dataset>) -> Result<()> {
        // The index has said that it has none; here the row says so.
        let sql = concat!(
            "UPDATE datasets SET frozen = frozen
             WHERE dataset_id = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
            dataset_columns!()
        );
        match transaction.find::<Dataset>(sql, &[Value::Integer(self.0)]).await? {
            Some(dataset) => seal_dataset(transaction, dataset.id).await,
            None => Ok(()),
        }
    }
}

#[derive(Default, sqlx::FromRow)]
struct UnsealedVersion(i64, i64);

impl Unsealed for UnsealedVersion {
    const LIST: &'static str = "SELECT dataset_id, version_number FROM versions
                                WHERE record_checksum IS NULL AND (dataset_id, version_number) > ($1, $2)
                                ORDER BY dataset_id, version_number LIMIT $3";

    fn values(&self) -> Vec<Value<'_>> {
        vec![Value::Integer(self.0), Value::Integer(self.1)]
    }

    async fn seal(&self, transaction: &mut Transaction, locked: &mut Option<Dataset>) -> Result<()> {
        let id = DatasetId::new(to_unsigned(self.0, "versions.dataset_id")?);
        let number = VersionNumber::new(to_unsigned(self.1, "versions.version_number")?);
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
}

/// A dataset whose source is asked by something.
#[derive(Default, sqlx::FromRow)]
struct UnsealedValidators(i64);

impl Unsealed for UnsealedValidators {
    const LIST: &'static str = "SELECT dataset_id FROM datasets
                                WHERE validated_url IS NOT NULL AND validators_checksum IS NULL AND dataset_id > $1
                                ORDER BY dataset_id LIMIT $2";

    fn values(&self) -> Vec<Value<'_>> {
        vec![Value::Integer(self.0)]
    }

    async fn seal(&self, transaction: &mut Transaction, _: &mut Option<Dataset>) -> Result<()> {
        type Validators = (Option<String>, Option<String>, Option<String>);
        let id = self.0;
        let sql = "UPDATE datasets SET frozen = frozen
                   WHERE dataset_id = $1 AND COALESCE(validators_checksum, '') = ''
                   RETURNING validated_url, source_etag, source_last_modified";
        let row: Option<Validators> = transaction.fetch_optional(sql, &[Value::Integer(id)]).await?;
        let Some((url, etag, last_modified)) = row else { return Ok(()) };
        let checksum = validators_checksum(id, url.as_deref(), etag.as_deref(), last_modified.as_deref());
        let sql = "UPDATE datasets SET validators_checksum = $2 WHERE dataset_id = $1";
        transaction.execute(sql, &[Value::Integer(id), Value::Text(&checksum.finish())]).await.map(drop)
    }
}

#[derive(Default, sqlx::FromRow)]
struct UnsealedToken {
    token_hash: String,
    user_id: i64,
    scope: String,
    expires_at: Option<i64>,
}

impl Unsealed for UnsealedToken {
    const LIST: &'static str = "SELECT token_hash, user_id, scope, expires_at FROM api_tokens
                                WHERE record_checksum IS NULL AND token_hash > $1
                                ORDER BY token_hash LIMIT $2";

    fn values(&self) -> Vec<Value<'_>> {
        vec![Value::Text(&self.token_hash)]
    }

    async fn seal(&self, transaction: &mut Transaction, _: &mut Option<Dataset>) -> Result<()> {
        // None of them ever changes.
        let sql = "UPDATE api_tokens SET record_checksum = $3
                   WHERE token_hash = $1 AND user_id = $2 AND COALESCE(record_checksum, '') = ''";
        let checksum = token_checksum(&self.token_hash, self.user_id, &self.scope, self.expires_at).finish();
        let values = &[Value::Text(&self.token_hash), Value::Integer(self.user_id), Value::Text(&checksum)];
        transaction.execute(sql, values).await.map(drop)
    }
}

#[derive(Default, sqlx::FromRow)]
struct UnsealedSession(String);

impl Unsealed for UnsealedSession {
    const LIST: &'static str = "SELECT session_hash FROM sessions WHERE record_checksum IS NULL AND session_hash > $1
                                ORDER BY session_hash LIMIT $2";

    fn values(&self) -> Vec<Value<'_>> {
        vec![Value::Text(&self.0)]
    }

    async fn seal(&self, transaction: &mut Transaction, _: &mut Option<Dataset>) -> Result<()> {
        let hash = Value::Text(&self.0);
        let sql = "UPDATE sessions SET expires_at = expires_at
                   WHERE session_hash = $1 AND COALESCE(record_checksum, '') = ''
                   RETURNING user_id, data, expires_at";
        let row: Option<(Option<i64>, String, i64)> = transaction.fetch_optional(sql, &[hash]).await?;
        let Some((user, data, expires_at)) = row else { return Ok(()) };
        let checksum = session_checksum(&self.0, user, &data, expires_at).finish();
        let sql = "UPDATE sessions SET record_checksum = $2 WHERE session_hash = $1";
        transaction.execute(sql, &[hash, Value::Text(&checksum)]).await.map(drop)
    }
}

/// A record that cannot be read is not sealed, and keeps no other from it.
fn pass_over(error: CatalogError) -> Result<()> {
    match error {
        CatalogError::Damaged { .. } => Err(error),
        CatalogError::NotFound | CatalogError::NoVersion => Ok(()),
        error if error.is_damage() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a record is not sealed");
            Ok(())
        }
        error => Err(error),
    }
}

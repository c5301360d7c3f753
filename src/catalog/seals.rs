//! Gives rows without a checksum theirs when the catalog is opened.
//!
//! A row has no checksum if it was written before checksums existed, or if an operator changed it by hand and set the
//! checksum to null. Such a row is accepted as it is. The next opening of the catalog seals it as it is.
//!
//! Rows are sealed in batches. Each batch is a transaction that locks its rows, so several processes may open the
//! catalog at once while others use it. Each table has an index of only the rows without a checksum. If there are none,
//! an opening costs one look into it and writes nothing.

use super::checksums::seal_dataset;
use super::convert::to_unsigned;
use super::datasets::{DatasetRow, dataset_columns, lock_dataset};
use super::engine::{Transaction, Value};
use super::sessions::session_checksum;
use super::tokens::token_checksum;
use super::validators::validators_checksum;
use super::versions::{find_version, version_checksum};
use super::{Catalog, CatalogError, DatasetId, VersionNumber};
use crate::model::dataset::Dataset;

/// Rows that are sealed in a transaction.
const BATCH: i64 = 200;

impl Catalog {
    /// Seals every row that has no checksum. A row that cannot be sealed, for example in a catalog that takes no
    /// writes, stays as it is.
    pub(super) async fn seal_records(&self) {
        let sealed = async {
            self.seal_datasets().await?;
            self.seal_versions().await?;
            self.seal_validators().await?;
            self.seal_tokens().await?;
            self.seal_sessions().await
        };
        if let Err(error) = sealed.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "records without a checksum could not get one, and are taken as they are"
            );
        }
    }

    async fn seal_datasets(&self) -> Result<(), CatalogError> {
        let mut last = 0;
        loop {
            let sql = "SELECT dataset_id FROM datasets WHERE record_checksum IS NULL AND dataset_id > $1
                       ORDER BY dataset_id LIMIT $2";
            let ids: Vec<(i64,)> = self.engine.fetch_all(sql, &[Value::Integer(last), Value::Integer(BATCH)]).await?;
            let Some((end,)) = ids.last() else { return Ok(()) };
            last = *end;
            let mut transaction = self.engine.begin().await?;
            for (id,) in ids {
                // The index has said that it has none; here the row says so.
                let sql = concat!(
                    "UPDATE datasets SET frozen = frozen
                     WHERE dataset_id = $1 AND COALESCE(record_checksum, '') = '' RETURNING ",
                    dataset_columns!()
                );
                let row = transaction.fetch_optional::<DatasetRow>(sql, &[Value::Integer(id)]).await;
                match row.map_err(CatalogError::from).and_then(|row| row.map(Dataset::try_from).transpose()) {
                    Ok(Some(dataset)) => seal_dataset(&mut transaction, dataset.id).await?,
                    Ok(None) => {}
                    Err(error) => pass_over(error)?,
                }
            }
            transaction.commit().await?;
        }
    }

    async fn seal_versions(&self) -> Result<(), CatalogError> {
        let mut last = (0, 0);
        loop {
            let sql = "SELECT dataset_id, version_number FROM versions
                       WHERE record_checksum IS NULL AND (dataset_id, version_number) > ($1, $2)
                       ORDER BY dataset_id, version_number LIMIT $3";
            let values = &[Value::Integer(last.0), Value::Integer(last.1), Value::Integer(BATCH)];
            let keys: Vec<(i64, i64)> = self.engine.fetch_all(sql, values).await?;
            let Some(end) = keys.last() else { return Ok(()) };
            last = *end;
            let mut transaction = self.engine.begin().await?;
            let mut locked: Option<Dataset> = None;
            for (dataset, number) in keys {
                let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
                let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
                if let Err(error) = seal_version(&mut transaction, &mut locked, id, number).await {
                    pass_over(error)?;
                }
            }
            transaction.commit().await?;
        }
    }

    async fn seal_validators(&self) -> Result<(), CatalogError> {
        type Row = (Option<String>, Option<String>, Option<String>);
        let mut last = 0;
        loop {
            let sql = "SELECT dataset_id FROM datasets
                       WHERE validated_url IS NOT NULL AND validators_checksum IS NULL AND dataset_id > $1
                       ORDER BY dataset_id LIMIT $2";
            let ids: Vec<(i64,)> = self.engine.fetch_all(sql, &[Value::Integer(last), Value::Integer(BATCH)]).await?;
            let Some((end,)) = ids.last() else { return Ok(()) };
            last = *end;
            let mut transaction = self.engine.begin().await?;
            for (id,) in ids {
                let sql = "UPDATE datasets SET frozen = frozen
                           WHERE dataset_id = $1 AND COALESCE(validators_checksum, '') = ''
                           RETURNING validated_url, source_etag, source_last_modified";
                let (url, etag, last_modified) =
                    match transaction.fetch_optional::<Row>(sql, &[Value::Integer(id)]).await {
                        Ok(Some(row)) => row,
                        Ok(None) => continue,
                        Err(error) => {
                            pass_over(error.into())?;
                            continue;
                        }
                    };
                let checksum = validators_checksum(id, url.as_deref(), etag.as_deref(), last_modified.as_deref());
                let sql = "UPDATE datasets SET validators_checksum = $2 WHERE dataset_id = $1";
                transaction.execute(sql, &[Value::Integer(id), Value::Text(&checksum.finish())]).await?;
            }
            transaction.commit().await?;
        }
    }

    async fn seal_tokens(&self) -> Result<(), CatalogError> {
        let mut last = String::new();
        loop {
            let sql = "SELECT token_hash, user_id FROM api_tokens WHERE record_checksum IS NULL AND token_hash > $1
                       ORDER BY token_hash LIMIT $2";
            let tokens: Vec<(String, i64)> =
                self.engine.fetch_all(sql, &[Value::Text(&last), Value::Integer(BATCH)]).await?;
            let Some((end, _)) = tokens.last() else { return Ok(()) };
            last = end.clone();
            let mut transaction = self.engine.begin().await?;
            for (hash, user) in tokens {
                // Neither ever changes.
                let sql = "UPDATE api_tokens SET record_checksum = $3
                           WHERE token_hash = $1 AND user_id = $2 AND COALESCE(record_checksum, '') = ''";
                let checksum = token_checksum(&hash, user).finish();
                let values = &[Value::Text(&hash), Value::Integer(user), Value::Text(&checksum)];
                transaction.execute(sql, values).await?;
            }
            transaction.commit().await?;
        }
    }

    async fn seal_sessions(&self) -> Result<(), CatalogError> {
        let mut last = String::new();
        loop {
            let sql = "SELECT session_hash FROM sessions WHERE record_checksum IS NULL AND session_hash > $1
                       ORDER BY session_hash LIMIT $2";
            let hashes: Vec<(String,)> =
                self.engine.fetch_all(sql, &[Value::Text(&last), Value::Integer(BATCH)]).await?;
            let Some((end,)) = hashes.last() else { return Ok(()) };
            last = end.clone();
            let mut transaction = self.engine.begin().await?;
            for (hash,) in hashes {
                let sql = "UPDATE sessions SET expires_at = expires_at
                           WHERE session_hash = $1 AND COALESCE(record_checksum, '') = ''
                           RETURNING user_id, data, expires_at";
                let row = transaction.fetch_optional::<(Option<i64>, String, i64)>(sql, &[Value::Text(&hash)]).await;
                let (user, data, expires_at) = match row {
                    Ok(Some(row)) => row,
                    Ok(None) => continue,
                    Err(error) => {
                        pass_over(error.into())?;
                        continue;
                    }
                };
                let checksum = session_checksum(&hash, user, &data, expires_at).finish();
                let sql = "UPDATE sessions SET record_checksum = $2 WHERE session_hash = $1";
                transaction.execute(sql, &[Value::Text(&hash), Value::Text(&checksum)]).await?;
            }
            transaction.commit().await?;
        }
    }
}

/// Seals one version, under the lock of its dataset, which is kept for the next one.
async fn seal_version(
    transaction: &mut Transaction,
    locked: &mut Option<Dataset>,
    id: DatasetId,
    number: VersionNumber,
) -> Result<(), CatalogError> {
    let dataset = match locked.take() {
        Some(dataset) if dataset.id == id => dataset,
        _ => lock_dataset(transaction, id).await?,
    };
    let dataset = locked.insert(dataset);
    let version = find_version(transaction, dataset, number).await?.version;
    let checksum = version_checksum(&version, dataset.created_at).finish();
    let sql = "UPDATE versions SET record_checksum = $3
               WHERE dataset_id = $1 AND version_number = $2 AND COALESCE(record_checksum, '') = ''";
    transaction.execute(sql, &[id.into(), number.into(), Value::Text(&checksum)]).await?;
    Ok(())
}

/// A record that cannot be read is not sealed, and keeps no other from it.
fn pass_over(error: CatalogError) -> Result<(), CatalogError> {
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

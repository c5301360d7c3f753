//! Columns of `datasets`: the publisher's validators (`ETag`, `Last-Modified`) of the document from which the newest
//! version was made. They are written in the transaction of that version. Any other version clears them, and so does a
//! change of the source or of its decoding.

use strata_types::dataset::Dataset;
use strata_types::source::Validators;

use super::checksums::RecordChecksum;
use super::convert::{optional_text, saturated};
use super::engine::{Transaction, Value};
use super::{Catalog, DatasetId, Result};

/// The validators that ask a source whether it has changed since a version.
#[derive(Clone, Copy, Debug)]
pub struct FetchedState<'a> {
    pub dataset: &'a Dataset,
    pub validators: &'a Validators,
}

impl Catalog {
    /// The validators of the dataset's source; `None` when it must be fetched whole, also if they do not verify.
    pub async fn source_validators(&self, dataset: DatasetId) -> Result<Option<Validators>> {
        type Stored = (Option<String>, Option<String>, Option<String>, Option<String>);
        let sql = "SELECT validated_url, source_etag, source_last_modified, validators_checksum
                   FROM datasets WHERE dataset_id = $1";
        let stored: Option<Stored> = self.engine.find(sql, &[dataset.into()]).await?;
        let Some((Some(url), etag, last_modified, stored)) = stored else { return Ok(None) };
        let id = saturated(dataset.get());
        let checksum = validators_checksum(id, Some(&url), etag.as_deref(), last_modified.as_deref());
        if let Err(error) = checksum.check(stored.as_deref(), || record_name(id)) {
            tracing::error!(%error, "failed to verify source validators; fetching the whole source");
            return Ok(None);
        }
        Ok(Some(Validators { url, etag, last_modified }))
    }
}

pub(super) fn validators_checksum(
    dataset: i64,
    url: Option<&str>,
    etag: Option<&str>,
    last_modified: Option<&str>,
) -> RecordChecksum {
    RecordChecksum::of("validators").number(dataset).optional_text(url).optional_text(etag).optional_text(last_modified)
}

pub(super) fn record_name(dataset: i64) -> String {
    format!("dataset {dataset}'s source validators")
}

/// Whether the same document gives the same entities for both.
pub(super) fn is_fetched_alike(one: &Dataset, other: &Dataset) -> bool {
    one.source == other.source
        && one.format == other.format
        && one.records_path == other.records_path
        && one.publish_query == other.publish_query
        && one.infer_types == other.infer_types
}

/// Records the validators for a version, unless the source or its decoding has changed since the fetch.
pub(super) async fn record(
    transaction: &mut Transaction,
    locked: &Dataset,
    fetched: Option<FetchedState<'_>>,
) -> Result<()> {
    let usable =
        |fetched: &FetchedState<'_>| !fetched.validators.is_empty() && is_fetched_alike(locked, fetched.dataset);
    let Some(FetchedState { validators, .. }) = fetched.filter(usable) else {
        return forget(transaction, locked.id).await;
    };
    let sql = "UPDATE datasets SET validated_url = $2, source_etag = $3, source_last_modified = $4,
                   validators_checksum = $5 WHERE dataset_id = $1";
    let etag = validators.etag.as_deref();
    let last_modified = validators.last_modified.as_deref();
    let checksum = validators_checksum(saturated(locked.id.get()), Some(&validators.url), etag, last_modified).finish();
    let values = &[
        locked.id.into(),
        optional_text(Some(&validators.url), "url")?,
        optional_text(etag, "etag")?,
        optional_text(last_modified, "last_modified")?,
        Value::Text(Some(&checksum)),
    ];
    transaction.execute(sql, values).await.map(drop)
}

/// Clears the validators, so that the source is fetched whole next time.
pub(super) async fn forget(transaction: &mut Transaction, dataset: DatasetId) -> Result<()> {
    let sql = "UPDATE datasets SET validated_url = NULL, source_etag = NULL, source_last_modified = NULL,
                   validators_checksum = NULL
               WHERE dataset_id = $1 AND validated_url IS NOT NULL";
    transaction.execute(sql, &[dataset.into()]).await.map(drop)
}

//! Columns of `datasets`: the publisher's validators (`ETag`, `Last-Modified`) of the document from which the newest
//! version was made.
//!
//! They are written with that version, in its transaction, and belong to it. Any other version clears them. So does a
//! change of the source or of its decoding.

use strata_types::dataset::Dataset;
use strata_types::source::Validators;

use super::checksums::RecordChecksum;
use super::convert::{optional_text, saturated};
use super::engine::{Transaction, Value, record};
use super::{Catalog, DatasetId, Result};

/// The validators that ask a source whether it has changed since a version.
#[derive(Clone, Copy, Debug)]
pub struct FetchedState<'a> {
    /// The dataset as it was when its source was fetched.
    pub dataset: &'a Dataset,
    pub validators: &'a Validators,
}

record! {
    struct ValidatorsRow {
        dataset_id: i64,
        validated_url: Option<String>,
        source_etag: Option<String>,
        source_last_modified: Option<String>,
        validators_checksum: Option<String>,
    }
}

impl Catalog {
    /// The validators of the dataset's source; `None` when it must be fetched whole. If the source answers that it has
    /// not changed, its document is that of the dataset's newest version. One look-up by primary key. Validators that
    /// do not verify are not used.
    pub async fn source_validators(&self, dataset: DatasetId) -> Result<Option<Validators>> {
        let sql = "SELECT dataset_id, validated_url, source_etag, source_last_modified, validators_checksum
                   FROM datasets WHERE dataset_id = $1";
        let row: Option<ValidatorsRow> = self.engine.find(sql, &[dataset.into()]).await?;
        let Some(row) = row else { return Ok(None) };
        let Some(url) = row.validated_url else { return Ok(None) };
        let etag = row.source_etag;
        let last_modified = row.source_last_modified;
        let checksum = validators_checksum(row.dataset_id, Some(&url), etag.as_deref(), last_modified.as_deref());
        if let Err(error) = checksum.check(row.validators_checksum.as_deref(), || record_name(dataset.get())) {
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

pub(super) fn record_name(dataset: impl std::fmt::Display) -> String {
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
    let (etag, last_modified) = (validators.etag.as_deref(), validators.last_modified.as_deref());
    let checksum = validators_checksum(saturated(locked.id.get()), Some(&validators.url), etag, last_modified).finish();
    let values = &[
        locked.id.into(),
        optional_text(Some(&validators.url), "url")?,
        optional_text(etag, "etag")?,
        optional_text(last_modified, "last_modified")?,
        Value::Text(&checksum),
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

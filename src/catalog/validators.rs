//! The HTTP validators (`ETag`, `Last-Modified`) of the document from which a dataset's newest version was created. The
//! transaction that publishes the version stores them. Every other new version, and every change of the source or of
//! its decoding, clears them.

use strata_types::dataset::Dataset;
use strata_types::source::SourceValidators;

use super::convert::{from_optional_text, to_saturating_i64};
use super::database_engine::{CatalogTransaction, SqlValue};
use super::record_checksum::RecordChecksum;
use super::{Catalog, DatasetId, Result};

/// The HTTP validators of a fetched source document, and the dataset as of the start of the fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchedValidators<'a> {
    pub dataset: &'a Dataset,
    pub validators: &'a SourceValidators,
}

impl Catalog {
    /// Returns the validators of the source; `None` if there are none or their checksum does not match.
    pub async fn source_validators(&self, dataset: DatasetId) -> Result<Option<SourceValidators>> {
        type StoredValidators = (Option<String>, Option<String>, Option<String>, Option<String>);
        let sql = "SELECT validated_url, source_etag, source_last_modified, validators_checksum
                   FROM datasets WHERE dataset_id = $1";
        let stored: Option<StoredValidators> = self.engine.find(sql, &[dataset.into()]).await?;
        let Some((Some(url), etag, last_modified, stored)) = stored else { return Ok(None) };
        let id = to_saturating_i64(dataset.get());
        let checksum = validators_checksum(id, Some(&url), etag.as_deref(), last_modified.as_deref());
        if let Err(error) = checksum.verify(stored.as_deref(), || validators_record_name(id)) {
            tracing::error!(%error, "failed to verify source validators; fetching the whole source");
            return Ok(None);
        }
        Ok(Some(SourceValidators { url, etag, last_modified }))
    }
}

pub(super) fn validators_checksum(
    dataset: i64,
    url: Option<&str>,
    etag: Option<&str>,
    last_modified: Option<&str>,
) -> RecordChecksum {
    RecordChecksum::for_table("validators")
        .with_number(dataset)
        .with_optional_text(url)
        .with_optional_text(etag)
        .with_optional_text(last_modified)
}

pub(super) fn validators_record_name(dataset: i64) -> String {
    format!("dataset {dataset}'s source validators")
}

/// Returns whether two datasets have equal settings of source and decoding, and so decode a document to equal entities.
pub(super) fn has_same_source_settings(left: &Dataset, right: &Dataset) -> bool {
    left.source == right.source
        && left.format == right.format
        && left.records_path == right.records_path
        && left.publish_query == right.publish_query
        && left.infer_types == right.infer_types
}

/// Stores the HTTP validators of the document that a new version was created from. Clears them if the source settings
/// have changed since the fetch.
pub(super) async fn record_validators(
    transaction: &mut CatalogTransaction,
    locked: &Dataset,
    fetched: Option<FetchedValidators<'_>>,
) -> Result<()> {
    let usable = |fetched: &FetchedValidators<'_>| {
        !fetched.validators.is_empty() && has_same_source_settings(locked, fetched.dataset)
    };
    let Some(FetchedValidators { validators, .. }) = fetched.filter(usable) else {
        return clear_validators(transaction, locked.id).await;
    };
    let sql = "UPDATE datasets SET validated_url = $2, source_etag = $3, source_last_modified = $4,
                   validators_checksum = $5 WHERE dataset_id = $1";
    let etag = validators.etag.as_deref();
    let last_modified = validators.last_modified.as_deref();
    let checksum = validators_checksum(to_saturating_i64(locked.id.get()), Some(&validators.url), etag, last_modified)
        .into_stored();
    let values = &[
        locked.id.into(),
        from_optional_text(Some(&validators.url), "url")?,
        from_optional_text(etag, "etag")?,
        from_optional_text(last_modified, "last_modified")?,
        SqlValue::Text(Some(&checksum)),
    ];
    transaction.execute(sql, values).await.map(drop)
}

pub(super) async fn clear_validators(transaction: &mut CatalogTransaction, dataset: DatasetId) -> Result<()> {
    let sql = "UPDATE datasets SET validated_url = NULL, source_etag = NULL, source_last_modified = NULL,
                   validators_checksum = NULL
               WHERE dataset_id = $1 AND validated_url IS NOT NULL";
    transaction.execute(sql, &[dataset.into()]).await.map(drop)
}

//! Columns of `datasets`: what a publisher said of the document that the newest version was made of.
//!
//! They are written with that version, in its transaction, and belong to it: any other version clears them, and so does
//! a change of what is fetched or how it is decoded.

use crate::model::dataset::Dataset;
use crate::model::source::Validators;

use super::convert::optional_text;
use super::datasets::is_fetched_alike;
use super::engine::Transaction;
use super::{Catalog, CatalogError, DatasetId};

/// By what a version's source can be asked whether it has changed.
#[derive(Clone, Copy, Debug)]
pub struct FetchedState<'a> {
    /// The dataset as it was when its source was fetched.
    pub dataset: &'a Dataset,
    /// What the publisher said.
    pub validators: &'a Validators,
}

impl Catalog {
    /// What to ask the dataset's source by; `None` when it must be fetched whole. What answers that it has not changed
    /// since is the document of the dataset's newest version. One look-up by primary key.
    pub async fn source_validators(&self, dataset: DatasetId) -> Result<Option<Validators>, CatalogError> {
        let sql = "SELECT validated_url, source_etag, source_last_modified FROM datasets WHERE dataset_id = $1";
        let row: Option<(Option<String>, Option<String>, Option<String>)> =
            self.engine.fetch_optional(sql, &[dataset.into()]).await?;
        let Some((Some(url), etag, last_modified)) = row else { return Ok(None) };
        Ok(Some(Validators { url, etag, last_modified }))
    }
}

/// Records them for the version that `transaction` publishes, unless the dataset, whose row is locked, is fetched in
/// another way by now.
pub(super) async fn record(
    transaction: &mut Transaction,
    locked: &Dataset,
    fetched: Option<FetchedState<'_>>,
) -> Result<(), CatalogError> {
    let usable =
        |fetched: &FetchedState<'_>| !fetched.validators.is_empty() && is_fetched_alike(locked, fetched.dataset);
    let Some(FetchedState { validators, .. }) = fetched.filter(usable) else {
        return forget(transaction, locked.id).await;
    };
    let sql =
        "UPDATE datasets SET validated_url = $2, source_etag = $3, source_last_modified = $4 WHERE dataset_id = $1";
    let values = &[
        locked.id.into(),
        optional_text(Some(&validators.url), "url")?,
        optional_text(validators.etag.as_deref(), "etag")?,
        optional_text(validators.last_modified.as_deref(), "last_modified")?,
    ];
    transaction.execute(sql, values).await?;
    Ok(())
}

/// Lets the dataset's source be fetched whole next time.
pub(super) async fn forget(transaction: &mut Transaction, dataset: DatasetId) -> Result<(), CatalogError> {
    let sql = "UPDATE datasets SET validated_url = NULL, source_etag = NULL, source_last_modified = NULL
               WHERE dataset_id = $1 AND validated_url IS NOT NULL";
    transaction.execute(sql, &[dataset.into()]).await?;
    Ok(())
}

//! Rows that a transaction locks, so that what it reads stays true until it is over.

use super::engine::Transaction;
use super::rows::dataset::{DatasetRow, dataset_columns};
use super::{CatalogError, DatasetId, UserId};
use crate::model::dataset::Dataset;

/// Reads the dataset. No other transaction can change it, or publish for it, until this one ends.
pub(super) async fn lock_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<Dataset, CatalogError> {
    let sql =
        concat!("UPDATE datasets SET frozen = frozen WHERE datasets.dataset_id = $1 RETURNING ", dataset_columns!());
    let row: Option<DatasetRow> = transaction.fetch_optional(sql, &[id.into()]).await?;
    row.ok_or(CatalogError::NotFound)?.try_into()
}

/// No other transaction can count the owner's datasets until this one ends, so a count under this lock is right. Take
/// it before the lock of a dataset.
pub(super) async fn lock_owner(transaction: &mut Transaction, owner: UserId) -> Result<(), CatalogError> {
    let sql = "UPDATE users SET plan = plan WHERE user_id = $1";
    match transaction.execute(sql, &[owner.into()]).await? {
        0 => Err(CatalogError::NotFound),
        _ => Ok(()),
    }
}

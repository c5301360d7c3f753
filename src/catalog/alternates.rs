//! Alternates: a second file that a version may have.

use super::convert::from_optional;
use super::dataset_rows::lock_dataset;
use super::engine::{Transaction, Value};
use super::files::{record, unreference};
use super::version_rows::{VersionRecord, version_checksum};
use super::versions::find_version;
use super::{Catalog, CatalogError, DatasetId, FileId, Result, VersionNumber};
use crate::crash;
use crate::model::dataset::Dataset;
use crate::model::version::{NewFile, Version};

/// The state from which an alternate was edited: another one after the alternate was replaced or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlternateBase {
    pub file: FileId,
    /// The alternate's file; `None` if there was none.
    pub alt: Option<FileId>,
}

impl AlternateBase {
    pub fn of(version: &Version) -> AlternateBase {
        AlternateBase { file: version.file.id, alt: version.alt.as_ref().map(|alt| alt.id) }
    }
}

impl Catalog {
    /// Gives the version this file as its alternate. An existing alternate is replaced as a whole. Its file is then
    /// unreferenced, unless a clone shares it. `expected` makes this a compare-and-swap. Versions and the dataset's
    /// state stay as they are. A frozen dataset is allowed.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`], [`CatalogError::NoVersion`], [`CatalogError::ReservationLost`];
    /// [`CatalogError::Conflict`] if the version is not as expected.
    pub async fn save_alternate(
        &self,
        dataset: DatasetId,
        number: VersionNumber,
        file: &NewFile,
        expected: Option<AlternateBase>,
    ) -> Result<VersionRecord> {
        let mut transaction = self.engine.begin().await?;
        let locked = lock_dataset(&mut transaction, dataset).await?;
        let mut found = find_version(&mut transaction, &locked, number).await?;
        if expected.is_some_and(|expected| expected != AlternateBase::of(&found.version)) {
            return Err(CatalogError::Conflict);
        }
        let now = self.now();
        let alt = record(&mut transaction, file, now).await?;
        let replaced = found.version.alt.replace(alt);
        set_alternate(&mut transaction, &locked, &found.version).await?;
        if let Some(replaced) = replaced {
            unreference(&mut transaction, replaced.id, now).await?;
        }
        crash::point("alternate.uncommitted");
        transaction.commit().await?;
        crash::point("alternate.committed");
        Ok(found)
    }

    /// Removes the version's alternate. Its file is then unreferenced, unless a clone shares it.
    pub async fn delete_alternate(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionRecord> {
        let mut transaction = self.engine.begin().await?;
        let locked = lock_dataset(&mut transaction, dataset).await?;
        let mut found = find_version(&mut transaction, &locked, number).await?;
        let deleted = found.version.alt.take().ok_or(CatalogError::NoAlternate)?;
        set_alternate(&mut transaction, &locked, &found.version).await?;
        unreference(&mut transaction, deleted.id, self.now()).await?;
        transaction.commit().await?;
        Ok(found)
    }
}

async fn set_alternate(transaction: &mut Transaction, dataset: &Dataset, version: &Version) -> Result<()> {
    let sql =
        "UPDATE versions SET alt_file_id = $3, record_checksum = $4 WHERE dataset_id = $1 AND version_number = $2";
    let alt = from_optional(version.alt.as_ref().map(|alt| alt.id));
    let checksum = version_checksum(version, dataset.created_at).finish();
    transaction.execute(sql, &[version.dataset.into(), version.number.into(), alt, Value::Text(&checksum)]).await?;
    transaction.tell().await
}

//! The key of `dedup`: from the stored hash where that is the key, from the documents otherwise.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use sha2::{Digest, Sha256};

use crate::document::{self, CanonicalForm};
use crate::model::path::Path;
use crate::query::fetch::pages::Pages;
use crate::query::fetch::reshape::{Reshape, ReshapeScratch};
use crate::query::pace::Pace;
use crate::storage::StorageError;
use crate::storage::reader::VersionReader;

/// What `dedup` groups by.
#[derive(Clone, Debug)]
pub(crate) struct GroupSpec {
    /// The paths of `dedup_key`; none is the whole entity.
    pub paths: Vec<Path>,
    /// What is left of an entity before it is compared.
    pub reshape: Reshape,
}

impl GroupSpec {
    /// Whether the stored hashes are the keys.
    pub(crate) fn is_stored(&self) -> bool {
        self.paths.is_empty() && self.reshape.changes_source_alone()
    }
}

/// The group keys of rows of a row group: 32 bytes each, equal exactly for entities that are duplicates.
pub(crate) struct GroupKeys<'a> {
    spec: &'a GroupSpec,
    /// The stored hashes, where they are the keys.
    hashes: Option<ArrayRef>,
    pages: Pages<'a>,
}

impl<'a> GroupKeys<'a> {
    /// Of `wanted` rows, most likely.
    ///
    /// # Errors
    /// When a part of the version cannot be read.
    pub(crate) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        spec: &'a GroupSpec,
    ) -> Result<GroupKeys<'a>, StorageError> {
        let hashes = if spec.is_stored() { Some(reader.hashes(row_group).await?) } else { None };
        let pages = Pages::of(reader, row_group, wanted, reader.row_groups()[row_group].rows);
        Ok(GroupKeys { spec, hashes, pages })
    }

    /// The keys of these rows, which come after those asked for before.
    ///
    /// # Errors
    /// When a part of the version cannot be read.
    pub(crate) async fn keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        if let Some(hashes) = &self.hashes {
            let hashes = hashes.as_fixed_size_binary();
            return Ok(Arc::new(fixed(rows.iter().map(|row| hashes.value(*row)), rows.len())?));
        }
        let spec = self.spec;
        let mut scratch = ReshapeScratch::default();
        let mut canonical = CanonicalForm::default();
        let mut form = Vec::new();
        let mut keys = Vec::with_capacity(rows.len());
        let mut pace = Pace::default();
        for row in rows {
            let entity = spec.reshape.apply(self.pages.document(*row).await?, &mut scratch);
            pace.worked(entity.len()).await;
            if spec.paths.is_empty() {
                keys.push(canonical.hash(entity));
                continue;
            }
            // Value by value: a thousand paths may reach the same large one.
            let mut key = Sha256::new();
            for path in &spec.paths {
                pace.worked(entity.len()).await;
                key.update(b"[");
                document::reach_values(entity, path, |value| {
                    form.clear();
                    canonical.write(value, &mut form);
                    form.push(b',');
                    key.update(&form);
                    ControlFlow::Continue(())
                });
                key.update(b"]");
            }
            keys.push(key.finalize().into());
        }
        Ok(Arc::new(fixed(keys.iter().map(|key: &[u8; 32]| key.as_slice()), rows.len())?))
    }

    /// Pages of documents that had to tell.
    pub(crate) fn pages_used(&self) -> usize {
        self.pages.used()
    }
}

/// Values of 32 bytes as a binary array, which DataFusion groups faster than one of fixed size.
fn fixed<'a>(values: impl Iterator<Item = &'a [u8]>, count: usize) -> Result<BinaryArray, StorageError> {
    let mut bytes = Vec::with_capacity(count * 32);
    let mut offsets = Vec::with_capacity(count + 1);
    offsets.push(0);
    for value in values {
        bytes.extend_from_slice(value);
        offsets.push(bytes.len() as i32);
    }
    Ok(BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes.into(), None)?)
}

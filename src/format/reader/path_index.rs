//! Reads the path index of a version file.

use std::sync::Arc;

use futures::FutureExt;
use strata_store::{Result, StorageError};

use super::file_reader::FileReader;
use super::verification::ReadThrottle;
use crate::cached_part::{CachedPart, PartKey};
use crate::path_index::directory::PathIndexBlock;
use crate::path_index::structure_dictionary::StructureDictionary;

impl FileReader {
    pub(crate) async fn read_structures(&self, row_group: usize) -> Result<Option<Arc<StructureDictionary>>> {
        let Some(stored) = self.footer.extent_list.path_index.get(row_group) else { return Ok(None) };
        let key = PartKey::PathIndex { file: self.footer.id, row_group: row_group as u32 };
        let load = async {
            let fetched = self.object_file.fetch_verified(stored.range.clone(), stored.checksum).await?;
            let structures =
                StructureDictionary::decode(&fetched.bytes, self.footer.extent_list.row_groups[row_group].rows);
            let structures = structures.map_err(|error| StorageError::InvalidFile(error.to_string()))?;
            Ok(CachedPart::PathIndex(Arc::new(structures)))
        };
        let load = load.map(|loaded| loaded.map_err(|error| self.report_path_index_damage(row_group, error)));
        let loaded = self.object_file.cache.get_or_load(key, || load).await?;
        let CachedPart::PathIndex(structures) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(Some(structures))
    }

    pub(super) fn report_path_index_damage(&self, row_group: usize, error: StorageError) -> StorageError {
        self.object_file.report_index_damage(&format!("the path index of row group {row_group}"), error)
    }

    pub(super) async fn verify_path_index(&self, throttle: &mut dyn ReadThrottle) -> Result<()> {
        for (row_group, block) in self.footer.extent_list.path_index.row_groups.iter().enumerate() {
            let Some(PathIndexBlock { range, checksum }) = block else { continue };
            let fetched = self.object_file.fetch_verified(range.clone(), *checksum).await;
            fetched.map_err(|error| self.report_path_index_damage(row_group, error))?;
            throttle.throttle(range.end - range.start).await;
        }
        Ok(())
    }
}

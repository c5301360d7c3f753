//! The shapes of a version file: which path each text of a row group's search text belongs to.

use std::sync::Arc;

use futures::FutureExt;
use strata_store::{Result, StorageError};

use super::file::FileReader;
use super::verification::Pace;
use crate::parts::{Part, PartKey};
use crate::shapes::decoded::Shapes;
use crate::shapes::stored::StoredShapes;

impl FileReader {
    pub(crate) async fn shapes(&self, row_group: usize) -> Result<Option<Arc<Shapes>>> {
        let Some(stored) = self.footer.list.shapes.get(row_group) else { return Ok(None) };
        let key = PartKey::Shapes { file: self.footer.id, row_group: row_group as u32 };
        let load = async {
            let run = self.file.fetch_verified(stored.range.clone(), stored.checksum).await?;
            let shapes = Shapes::decode(&run.bytes, self.footer.list.row_groups[row_group].rows);
            let shapes = shapes.map_err(|error| StorageError::Layout(error.to_string()))?;
            Ok(Part::Shapes(Arc::new(shapes)))
        };
        let load = load.map(|loaded| loaded.map_err(|error| self.blame_shapes(row_group, error)));
        let loaded = self.file.cache.get_or_load(key, || load).await?;
        let Part::Shapes(shapes) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(Some(shapes))
    }

    pub(super) fn blame_shapes(&self, row_group: usize, error: StorageError) -> StorageError {
        self.file.blame_accelerator(&format!("the path index of row group {row_group}"), error)
    }

    pub(super) async fn verify_shapes(&self, pace: &mut dyn Pace) -> Result<()> {
        for row_group in self.footer.list.shapes.row_groups() {
            let Some(StoredShapes { range, checksum }) = self.footer.list.shapes.get(row_group) else { continue };
            let verified = self.file.fetch_verified(range.clone(), *checksum).await;
            verified.map_err(|error| self.blame_shapes(row_group, error))?;
            pace.spent(range.end - range.start).await;
        }
        Ok(())
    }
}

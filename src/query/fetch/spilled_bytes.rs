//! Spills encoded bytes to disk, for clients that read more slowly than strata encodes.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::SpillFile;
use futures::stream::{BoxStream, StreamExt};

use crate::error::spill_error;
use crate::{QueryEngine, QueryError};

const YIELD_EVERY_BYTES: usize = 1 << 20;

/// Bytes in a temporary file, which is deleted on drop. They count as spill space of queries.
pub struct SpilledBuffer(Arc<dyn SpillFile>);

impl QueryEngine {
    /// Writes bytes to a temporary file. [`QueryError::Storage`] if the disk is full; [`QueryError::OutOfDisk`] if the
    /// spill space is used up.
    pub async fn spill_bytes(&self, name: &str, bytes: &[u8]) -> Result<SpilledBuffer, QueryError> {
        let file = self.task_context().runtime_env().disk_manager.create_tmp_file(name)?;
        let mut writer = file.open_writer()?;
        for chunk in bytes.chunks(YIELD_EVERY_BYTES) {
            writer.write_all(chunk).map_err(|error| spill_error(name, error))?;
            tokio::task::yield_now().await;
        }
        writer.finish()?;
        Ok(SpilledBuffer(file))
    }
}

impl SpilledBuffer {
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, QueryError>> {
        let chunks = match self.0.read_stream() {
            Ok(chunks) => chunks,
            Err(error) => return futures::stream::once(async { Err(error.into()) }).boxed(),
        };
        // The stream owns the file, and deletes it when it ends.
        let file = self.0;
        let chunks = chunks.map(move |chunk| {
            let _ = &file;
            chunk.map_err(QueryError::from)
        });
        chunks.boxed()
    }
}

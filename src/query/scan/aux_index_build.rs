//! Builds an auxiliary index ([`strata_format::aux_index`]) in the query that needs it first.

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

/// Builds an auxiliary index, or waits until another query has built it. Reserves `working_bytes` during the build,
/// from the same consumer as `memory`. Returns a miss, and builds nothing, if there is no memory.
pub(super) async fn build_or_wait<T: AuxIndex>(
    reader: &VersionReader,
    key: AuxKey,
    working_bytes: u64,
    memory: &MemoryReservation,
    build: impl Future<Output = Result<Option<T>, StorageError>> + Send,
) -> Result<AuxLookup<T>, StorageError> {
    let reserved = memory.new_empty();
    if reserved.try_grow(usize::try_from(working_bytes).unwrap_or(usize::MAX)).is_err() {
        return Ok(AuxLookup::Miss);
    }
    reader.build_aux_index(key, Box::pin(build)).await
}

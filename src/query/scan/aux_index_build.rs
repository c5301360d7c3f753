//! Builds an auxiliary index ([`strata_format::aux_index`]): in the query that needs it first, or in the background
//! after queries have scanned enough elements without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use tokio::sync::Semaphore;

/// The process builds one index at a time in the background, because builds compete with queries.
static BACKGROUND_BUILD_PERMIT: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// Returns the number of elements that queries have scanned without an index since its last build was started.
pub(super) async fn scan_counter(reader: &VersionReader, key: AuxKey) -> Option<Arc<AtomicU64>> {
    let new_counter = async { Ok(Some(AtomicU64::default())) };
    reader.build_aux_index::<AtomicU64>(key, Box::pin(new_counter)).await.ok()?.into_hit()
}

/// Starts a build if queries have scanned at least `min_scanned` elements, and if no other build is running. The build
/// ends with the runtime of the query. If it fails, the next attempt begins after as many scanned elements.
pub(super) fn spawn_if_due<F>(scanned: &AtomicU64, min_scanned: u64, build: impl FnOnce() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if scanned.load(Ordering::Relaxed) >= min_scanned
        && let Ok(permit) = BACKGROUND_BUILD_PERMIT.clone().try_acquire_owned()
    {
        scanned.store(0, Ordering::Relaxed);
        let build = build();
        tokio::spawn(async move {
            build.await;
            drop(permit);
        });
    }
}

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

//! Patches: the edits that turn one version (`old`) into another one (`new`), in the order of the entities.
//!
//! ```text
//! old  A B C D E        hunk  old row 1 (B)  -> new rows 1 and 2 (X, Y)
//! new  A X Y C D F      hunk  old row 4 (E)  -> new row 5 (F)
//! ```
//!
//! Unlike a diff ([`crate::compare`]), a patch compares the stored text of entities, and an entity that moved is an
//! edit. Old entities and new entities outside of the hunks have the same text. The patch is computed in three steps:
//!
//! 1. [`builder`] divides the versions into regions that are small enough for the memory: between shared rows, after
//!    the common prefix and before the common suffix, and between anchors ([`anchors`]). Only hashes are read.
//! 2. In a region, only entities whose canonical hash occurs in both versions can be equal. Their text is read, and the
//!    hash of the text replaces the canonical hash, which ignores `_source`, the key order and the spelling of numbers.
//! 3. [`alignment`] finds a longest common subsequence of a region. Everything between its entities is a hunk.
//!
//! The result depends only on the versions, not on the memory, the time or the number of threads, because a response
//! with the same `ETag` must have the same bytes. If the memory pool refuses a reservation, the computation fails.
//!
//! [`edits`] encodes the hunks as edits on request.

mod alignment;
mod anchors;
mod builder;
mod edits;
mod myers;

pub use edits::write_edits;

use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::reader::VersionReader;
use strata_query::{QueryEngine, QueryError};

/// Maximum number of entities in one insert.
pub const MAX_INSERT_ENTITIES: u64 = 1_000;

/// Approximate maximum bytes of the entities in one insert, unless a single entity is larger.
const MAX_INSERT_BYTES: u64 = 4 << 20;

/// The limits of a computation. Tests use smaller ones.
#[derive(Clone, Copy, Debug)]
pub struct PatchLimits {
    /// Maximum number of entities of both versions in a region that is aligned at once. Within a region, no unchanged
    /// entity is part of a hunk.
    pub max_region_entities: u64,
}

impl Default for PatchLimits {
    fn default() -> PatchLimits {
        PatchLimits { max_region_entities: 1 << 18 }
    }
}

/// Rows of the old version that are replaced by rows of the new version. Either can be empty, but not both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hunk {
    /// The number of changed rows in all earlier hunks; see [`Hunk::changed_rows`].
    first_ordinal: u64,
    old: u64,
    new: u64,
    old_rows: u32,
    new_rows: u32,
}

impl Hunk {
    /// The number of rows that are replaced, removed or inserted. A replaced row counts once.
    fn changed_rows(&self) -> u64 {
        u64::from(self.old_rows.max(self.new_rows))
    }

    fn inserted_rows(&self) -> u64 {
        u64::from(self.new_rows.saturating_sub(self.old_rows))
    }
}

/// The hunks between two versions: 32 bytes per hunk, which the engine's memory pool accounts for until the drop or
/// [`VersionPatch::without_reservation`].
#[derive(Debug, Default)]
pub struct VersionPatch {
    hunks: Vec<Hunk>,
    rows_per_insert: u64,
    #[expect(dead_code, reason = "held until the patch is dropped")]
    reservation: Option<MemoryReservation>,
}

impl VersionPatch {
    /// Returns the patch of two versions that have the same entities.
    pub fn for_equal_versions() -> VersionPatch {
        VersionPatch::default()
    }

    /// Computes the patch that turns `old` into `new`. To cancel the computation, drop the future.
    ///
    /// # Errors
    /// [`QueryError::Timeout`], [`QueryError::OutOfMemory`] and [`QueryError::TooMuchMemory`] if a limit of the engine
    /// is exceeded, and any error of reading a version.
    pub async fn compute(
        engine: &QueryEngine,
        old: VersionReader,
        new: VersionReader,
        limits: PatchLimits,
    ) -> Result<VersionPatch, QueryError> {
        let task_engine = engine.clone();
        let work = async move { builder::build_patch(&task_engine, [old, new], limits).await };
        engine.run_with_timeout(engine.diff_timeout(), work).await
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.hunks.as_slice())
    }

    /// Releases the memory pool's reservation. The caller must limit the size of the patch by other means.
    pub fn without_reservation(self) -> VersionPatch {
        VersionPatch { reservation: None, ..self }
    }

    /// The number of rows that are replaced, removed or inserted.
    pub fn changed_rows(&self) -> u64 {
        self.hunks.last().map_or(0, |hunk| hunk.first_ordinal + hunk.changed_rows())
    }

    /// The number of edits, which is smaller than the number of changed rows if an insert has several entities.
    pub fn edit_count(&self) -> u64 {
        let edits = |hunk: &Hunk| u64::from(hunk.old_rows) + hunk.inserted_rows().div_ceil(self.rows_per_insert.max(1));
        self.hunks.iter().map(edits).sum()
    }
}

/// Returns the number of entities in one insert. It depends only on the version, because clients and caches can rely on
/// equal bytes.
fn rows_per_insert(new: &VersionReader) -> u64 {
    let layout = new.layout();
    let mean_document_bytes = layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default().max(1);
    (MAX_INSERT_BYTES / mean_document_bytes).clamp(1, MAX_INSERT_ENTITIES)
}

//! How much more a source may become than what came: the bound of every bomb, whatever its format and coding.
//!
//! What is counted is every stage by itself: the bytes behind each compression, those that a Parquet file announces,
//! and the text of the entities. Each may be [`ExpansionLimits::times`] the bytes that came so far, or
//! [`ExpansionLimits::free_bytes`] if that is more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SourceError;

/// What a source may become.
#[derive(Debug, Clone, Copy)]
pub struct ExpansionLimits {
    /// Times the bytes that came (`sources.max_expansion`).
    pub times: u64,
    /// Bytes that any source may become (`sources.free_expansion_bytes`).
    pub free_bytes: u64,
}

impl Default for ExpansionLimits {
    fn default() -> Self {
        let sources = crate::config::Sources::default();
        Self { times: sources.max_expansion, free_bytes: sources.free_expansion_bytes }
    }
}

/// The limits and the bytes that came. Clones share those.
#[derive(Debug, Clone)]
pub(super) struct Expansion {
    limits: ExpansionLimits,
    came_bytes: Arc<AtomicU64>,
}

impl Expansion {
    pub(super) fn new(limits: ExpansionLimits) -> Self {
        Self { limits, came_bytes: Arc::default() }
    }

    /// More bytes came.
    pub(super) fn came(&self, bytes: u64) {
        self.came_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// That many bytes came in all.
    pub(super) fn came_in_all(&self, bytes: u64) {
        self.came_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether what came may have become that many bytes.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`].
    pub(super) fn check(&self, bytes: u64) -> Result<(), SourceError> {
        let ExpansionLimits { times, free_bytes } = self.limits;
        if bytes <= free_bytes {
            return Ok(());
        }
        let came = self.came_bytes.load(Ordering::Relaxed);
        if bytes <= came.saturating_mul(times) {
            return Ok(());
        }
        let reason = format!(
            "the source becomes more than sources.max_expansion ({times}) times what came of it ({came} bytes), and more than \
             sources.free_expansion_bytes ({free_bytes})"
        );
        Err(SourceError::TooLarge { place: None, reason })
    }
}

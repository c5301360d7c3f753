//! Bounds the decoded size of a source by the bytes received. This stops bombs of every format and coding.
//!
//! Each stage is counted by itself: the bytes after each decompression, the bytes that a Parquet file announces, and
//! the text of the entities. Each may be [`ExpansionLimits::times`] the bytes received so far, or
//! [`ExpansionLimits::free_bytes`] if that is more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SourceError;

#[derive(Debug, Clone, Copy)]
pub struct ExpansionLimits {
    /// Times the bytes received (`sources.max_expansion`).
    pub times: u64,
    /// Decoded bytes that any source may have (`sources.free_expansion_bytes`).
    pub free_bytes: u64,
}

impl Default for ExpansionLimits {
    fn default() -> Self {
        let sources = strata_config::Sources::default();
        Self { times: sources.max_expansion, free_bytes: sources.free_expansion_bytes }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Expansion {
    limits: ExpansionLimits,
    came_bytes: Arc<AtomicU64>,
}

impl Expansion {
    pub(super) fn new(limits: ExpansionLimits) -> Self {
        Self { limits, came_bytes: Arc::default() }
    }

    pub(super) fn came(&self, bytes: u64) {
        self.came_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn came_in_all(&self, bytes: u64) {
        self.came_bytes.store(bytes, Ordering::Relaxed);
    }

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
            "the source expands too much: its expanded size is more than sources.max_expansion ({times}) times the \
             {came} bytes received, and also more than sources.free_expansion_bytes ({free_bytes})"
        );
        Err(SourceError::TooLarge { place: None, reason })
    }
}

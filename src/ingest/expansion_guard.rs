//! Limits the expanded size of a source relative to the bytes received. This stops decompression bombs in all formats.
//! Each stage is checked separately: the output of each decompression, the size that a Parquet file announces, and the
//! text of the entities. A stage may produce [`ExpansionLimits::max_ratio`] times the bytes received so far, and in any
//! case [`ExpansionLimits::free_bytes`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SourceError;

#[derive(Debug, Clone, Copy)]
pub struct ExpansionLimits {
    /// The maximum ratio of expanded to received bytes (`sources.max_expansion`).
    pub max_ratio: u64,
    /// The expanded size that is always allowed (`sources.free_expansion_bytes`).
    pub free_bytes: u64,
}

impl Default for ExpansionLimits {
    fn default() -> Self {
        let sources = strata_config::SourceConfig::default();
        Self { max_ratio: sources.max_expansion, free_bytes: sources.free_expansion_bytes }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ExpansionGuard {
    limits: ExpansionLimits,
    received_bytes: Arc<AtomicU64>,
}

impl ExpansionGuard {
    pub(super) fn new(limits: ExpansionLimits) -> Self {
        Self { limits, received_bytes: Arc::default() }
    }

    pub(super) fn add_received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn set_received(&self, bytes: u64) {
        self.received_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn check_expanded(&self, bytes: u64) -> Result<(), SourceError> {
        let ExpansionLimits { max_ratio, free_bytes } = self.limits;
        let received = self.received_bytes.load(Ordering::Relaxed);
        if bytes <= free_bytes.max(received.saturating_mul(max_ratio)) {
            return Ok(());
        }
        let reason = format!(
            "the source expands too much: its expanded size is more than sources.max_expansion ({max_ratio}) times the \
             {received} bytes received, and also more than sources.free_expansion_bytes ({free_bytes})"
        );
        Err(SourceError::TooLarge { position: None, reason })
    }
}

//! The state that all parts of one diff share.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use super::values::Seeds;
use crate::storage::reader::VersionReader;

/// The state that all parts of one diff share.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) readers: [VersionReader; 2],
    pub(super) context: Arc<TaskContext>,
    pub(super) seeds: Arc<Seeds>,
    pub(super) reservation: Arc<MemoryReservation>,
    pub(super) threads: usize,
}

impl Session {
    /// Memory for what goes to disk where it does not fit.
    pub(super) fn spilling(&self, name: &str) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(true).register(self.context.memory_pool())
    }
}

//! The query engine and the limits, for one principal.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use strata_query::{Engine, QueryError};
use strata_runtime::priority::Priority;

use crate::Principal;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::admission::{Account, Admission, LARGE_BYTES, Permit, WHOLE_BYTES, Weight, accounted};

/// The engine and the limits of a principal, at first of the operator. Clones share them.
#[derive(Clone)]
pub(crate) struct Capacity {
    pub(crate) engine: Engine,
    pub(crate) admission: Admission,
    hasher: PrincipalHasher,
    /// Whether all of its work has the lowest priority.
    in_background: bool,
}

impl Capacity {
    pub(crate) fn new(engine: Engine, admission: Admission, hasher: PrincipalHasher) -> Capacity {
        Capacity { engine, admission, hasher, in_background: false }
    }

    pub(crate) fn of(&self, principal: Principal) -> Capacity {
        let engine = self.engine.for_tenant(self.hasher.hash(principal));
        Capacity { engine, admission: self.admission.of(principal), ..self.clone() }
    }

    pub(crate) fn at(&self, priority: Priority) -> Capacity {
        Capacity { engine: self.engine.with_priority(priority), ..self.clone() }
    }

    /// The same for work that no client waits for: all of it has the lowest priority.
    pub(crate) fn in_background(&self) -> Capacity {
        Capacity { in_background: true, ..self.at(Priority::Long) }
    }

    pub(crate) fn engine_for(&self, weight: Weight) -> Engine {
        self.engine.with_priority(if self.in_background { Priority::Long } else { weight.priority() })
    }

    /// Charges a whole body for its size, unless it is small. `foreseen` is what was charged for the estimate.
    pub(crate) fn whole_body(&self, bytes: impl Into<Bytes>, foreseen: Option<Permit>) -> Result<Bytes, QueryError> {
        let bytes = bytes.into();
        drop(foreseen);
        match bytes.len() as u64 {
            small if small <= WHOLE_BYTES => Ok(bytes),
            large => Ok(accounted(bytes, self.account(large)?)),
        }
    }

    /// Charges a part of a streamed body, from what is available. A small part can do without.
    pub(crate) fn part(&self, bytes: Bytes) -> Result<Bytes, QueryError> {
        let room = self.admission.ahead(bytes.len() as u64);
        let memory = if room.is_none() { self.beyond(bytes.len() as u64)? } else { None };
        Ok(self.admission.held(bytes, room, memory))
    }

    /// Charges a whole body of this size: as bytes ahead of their reader, or else as memory of queries.
    pub(crate) fn account(&self, size_bytes: u64) -> Result<Arc<Account>, QueryError> {
        let room = self.admission.ahead(size_bytes);
        let memory = match room {
            Some(_) => None,
            None => Some(self.engine.reserve("response", usize::try_from(size_bytes).unwrap_or(usize::MAX))?),
        };
        Ok(Arc::new(self.admission.account_of(size_bytes, room, memory)))
    }

    /// Memory for the bytes by which a part exceeds its estimate, unless they are few.
    pub(crate) fn beyond(&self, size_bytes: u64) -> Result<Option<MemoryReservation>, QueryError> {
        if size_bytes <= LARGE_BYTES {
            return Ok(None);
        }
        let size_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        Ok(Some(self.engine.reserve("response chunk", size_bytes)?))
    }
}

/// An engine for tests. One principal can have all of its memory.
#[cfg(test)]
pub(crate) fn test_engine(threads: usize, memory_bytes: usize, spill_directory: Option<std::path::PathBuf>) -> Engine {
    let timeout = std::time::Duration::from_secs(3_600);
    let engine = Engine::try_new(&strata_query::EngineOptions {
        threads,
        memory_bytes,
        shares: strata_query::TenantShares { one_percent: 100, anonymous_percent: 100 },
        timeout,
        diff_timeout: timeout,
        spill_directory,
        spill_bytes: 1 << 24,
        disk_reserve: None,
    });
    engine.expect("an engine")
}

//! The query engine and the admission limits for the requests of one principal.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use strata_query::{QueryEngine, QueryError};
use strata_runtime::priority::ThreadPriority;

use crate::Principal;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::admission::{
    AdmissionControl, BufferCharge, CostClass, MAX_UNCHARGED_BYTES, MAX_UNCHARGED_OVERRUN_BYTES, Permit,
    bytes_with_charge,
};

#[derive(Clone)]
pub(crate) struct ResourceContext {
    pub(crate) engine: QueryEngine,
    pub(crate) admission: AdmissionControl,
    hasher: PrincipalHasher,
    is_background: bool,
}

impl ResourceContext {
    pub(crate) fn new(engine: QueryEngine, admission: AdmissionControl, hasher: PrincipalHasher) -> ResourceContext {
        ResourceContext { engine, admission, hasher, is_background: false }
    }

    pub(crate) fn for_principal(&self, principal: Principal) -> ResourceContext {
        let engine = self.engine.for_principal(self.hasher.hash(principal));
        ResourceContext { engine, admission: self.admission.for_principal(principal), ..self.clone() }
    }

    pub(crate) fn with_priority(&self, priority: ThreadPriority) -> ResourceContext {
        ResourceContext { engine: self.engine.with_priority(priority), ..self.clone() }
    }

    pub(crate) fn for_background(&self) -> ResourceContext {
        ResourceContext { is_background: true, ..self.with_priority(ThreadPriority::Long) }
    }

    pub(crate) fn engine_for(&self, class: CostClass) -> QueryEngine {
        self.engine.with_priority(if self.is_background { ThreadPriority::Long } else { class.priority() })
    }

    /// Charges a whole response body for its size, and releases `estimate_permit`, the charge for its estimated size.
    pub(crate) fn charge_whole_body(
        &self,
        bytes: impl Into<Bytes>,
        estimate_permit: Option<Permit>,
    ) -> Result<Bytes, QueryError> {
        let bytes = bytes.into();
        drop(estimate_permit);
        match bytes.len() as u64 {
            small if small <= MAX_UNCHARGED_BYTES => Ok(bytes),
            large => Ok(bytes_with_charge(bytes, self.reserve_response_body(large)?)),
        }
    }

    /// Charges a response chunk to the limit of buffered responses. If that is exhausted, charges it to the memory of
    /// queries, unless the chunk is small.
    pub(crate) fn charge_chunk(&self, bytes: Bytes) -> Result<Bytes, QueryError> {
        let permit = self.admission.try_acquire_buffer(bytes.len() as u64);
        let reservation = if permit.is_none() { self.reserve_overrun(bytes.len() as u64)? } else { None };
        Ok(self.admission.charge_buffered(bytes, permit, reservation))
    }

    /// Charges a whole response body to the limit of buffered responses or, if exhausted, to the memory of queries.
    pub(crate) fn reserve_response_body(&self, size_bytes: u64) -> Result<Arc<BufferCharge>, QueryError> {
        let permit = self.admission.try_acquire_buffer(size_bytes);
        let reservation = match permit {
            Some(_) => None,
            None => Some(self.engine.try_reserve("response", usize::try_from(size_bytes).unwrap_or(usize::MAX))?),
        };
        Ok(Arc::new(self.admission.new_buffer_charge(size_bytes, permit, reservation)))
    }

    /// Reserves query memory for the bytes by which a response chunk exceeds its estimate, if they are many.
    pub(crate) fn reserve_overrun(&self, size_bytes: u64) -> Result<Option<MemoryReservation>, QueryError> {
        if size_bytes <= MAX_UNCHARGED_OVERRUN_BYTES {
            return Ok(None);
        }
        Ok(Some(self.engine.try_reserve("response chunk", usize::try_from(size_bytes).unwrap_or(usize::MAX))?))
    }
}

#[cfg(test)]
pub(crate) fn test_engine(
    threads: usize,
    memory_bytes: usize,
    spill_directory: Option<std::path::PathBuf>,
) -> QueryEngine {
    let timeout = std::time::Duration::from_secs(3_600);
    let engine = QueryEngine::try_new(&strata_query::QueryEngineOptions {
        threads,
        memory_bytes,
        shares: strata_query::PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
        timeout,
        diff_timeout: timeout,
        spill_directory,
        spill_bytes: 1 << 24,
        disk_reserve: None,
    });
    engine.expect("failed to create test engine")
}

//! A memory limit for responses that are built as a whole: profiles, explanations, pages of the dashboard.
//!
//! Problem: a body of 4 MB stays in memory until its reader has received it. 500 readers that stop after the first
//! byte would hold 2 GB, and building 20 such bodies at a time would keep two processors busy for seconds.
//!
//! A handler with such a response reserves 8 MiB before it loads anything, and builds the response on a
//! thread of its own, of lower priority than the threads that serve connections. The reservation then shrinks to the
//! size of the body, and ends when the connection has sent the last byte:
//!
//! ```text
//! reserve 8 MiB (waits for up to `query.heavy_wait_s`) -> load, build, compress -> shrink to 300 KiB -> sent: release
//! ```
//!
//! - All reservations together are at most `query.stream_bytes`. Principals share them fairly, so a client whose
//!   readers are slow leaves half of the rest to every other client.
//! - A body of at most [`UNCHARGED_BYTES`] is not charged.
//! - Bodies that nothing was reserved for are charged when they are complete ([`LargeResponses::charge`]).
//!
//! `resilience::large_responses` fails without this limit.

use bytes::Bytes;
use futures::future::Either;
use strata_query::QueryError;
use strata_runtime::metrics::request_log;
use strata_runtime::priority::Priority;
use tokio::runtime::Handle;

use crate::admission::capacity::Capacity;
use crate::admission::{Permit, WHOLE_BYTES, accounted};
use crate::{Overloaded, Principal};

pub const UNCHARGED_BYTES: u64 = WHOLE_BYTES;

/// Reserved while a response is built: about what the largest page takes. Limits how many are built at a time.
const BUILD_BYTES: u64 = 8 << 20;

#[derive(Clone)]
pub struct LargeResponses {
    pub(crate) capacity: Capacity,
}

/// Bytes that a principal may hold for one response, until dropped.
#[must_use = "dropping it releases the bytes"]
pub struct ResponseReservation {
    capacity: Capacity,
    permit: Permit,
}

impl LargeResponses {
    /// Reserves 8 MiB, or all that the principal can have. Waits for up to `query.heavy_wait_s`. Cancel safe.
    pub async fn reserve(&self, principal: Principal) -> Result<ResponseReservation, Overloaded> {
        let capacity = self.capacity.of(principal);
        let permit = capacity.admission.large(BUILD_BYTES).await?;
        Ok(ResponseReservation { capacity, permit })
    }

    /// Charges a complete body to the principal until the connection has sent it. Never waits.
    pub fn charge(&self, principal: Principal, body: Bytes) -> Result<Bytes, Overloaded> {
        match body.len() as u64 {
            small if small <= UNCHARGED_BYTES => Ok(body),
            large => Ok(accounted(body, self.capacity.of(principal).admission.try_large(large)?)),
        }
    }
}

impl ResponseReservation {
    /// Builds a response on a thread of its own, which has a lower priority than the threads that serve connections.
    /// Its input and output stay with the calling runtime. If the future is dropped, the work ends at its next await
    /// and keeps the reservation until then.
    pub async fn build<T: Send + 'static>(
        self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(T, ResponseReservation), QueryError> {
        let engine = self.capacity.at(Priority::Medium).engine.clone();
        let work = async move { (work.await, self) };
        // The log line of a slow request shows what the work records.
        let work = match request_log::current() {
            Some(log_context) => Either::Left(log_context.scope(work)),
            None => Either::Right(work),
        };
        engine.spawn_apart_on(Handle::current(), work).await
    }

    /// Reduces the reservation to the size of a complete body, which keeps it until the connection has sent it. A body
    /// larger than all that the principal can ever have is charged as that much.
    /// [`Overloaded`] if the body is larger than what is reserved and the principal may not hold more.
    pub fn charge(mut self, body: Bytes) -> Result<Bytes, Overloaded> {
        let size_bytes = body.len() as u64;
        if size_bytes <= UNCHARGED_BYTES {
            return Ok(body);
        }
        let reserved_bytes = self.permit.units();
        let missing = if reserved_bytes < BUILD_BYTES { 0 } else { size_bytes.saturating_sub(reserved_bytes) };
        self.permit.shrink(size_bytes);
        let more = if missing > 0 { Some(self.capacity.admission.try_large(missing)?) } else { None };
        Ok(accounted(body, (self.permit, more)))
    }
}

//! A memory limit for responses that are built as a whole: profiles, explanations, pages of the dashboard.
//!
//! Problem: a body of 4 MB stays in memory until its client has received it. 500 clients that stop after the first
//! byte would hold 2 GB, and building 20 such bodies at a time would keep two processors busy for seconds.
//!
//! A handler with such a response reserves 8 MiB before it loads anything, and builds the response on a dedicated
//! thread of lower priority than the threads that serve connections. The reservation then shrinks to the size of the
//! body, and ends when the connection has sent the last byte:
//!
//! ```text
//! reserve 8 MiB (waits for up to `query.heavy_wait_s`) -> load, build, compress -> shrink to 300 KiB -> sent: release
//! ```
//!
//! - All reservations together are at most `query.stream_bytes`. Principals share them fairly, so a slow client leaves
//!   half of the rest to every other client.
//! - A body of at most [`MAX_UNCHARGED_RESPONSE_BYTES`] is not charged.
//! - A body without a reservation is charged when it is complete ([`LargeResponseLimit::charge`]).

use bytes::Bytes;
use futures::future::Either;
use strata_query::QueryError;
use strata_runtime::metrics::request_log;
use strata_runtime::priority::ThreadPriority;
use tokio::runtime::Handle;

use crate::admission::resource_context::ResourceContext;
use crate::admission::{MAX_UNCHARGED_BYTES, Permit, bytes_with_charge};
use crate::{Overloaded, Principal};

pub const MAX_UNCHARGED_RESPONSE_BYTES: u64 = MAX_UNCHARGED_BYTES;

/// Memory that is reserved while a response is built: about the memory for the largest page. The reservations limit how
/// many responses are built at a time.
const BUILD_RESERVATION_BYTES: u64 = 8 << 20;

#[derive(Clone)]
pub struct LargeResponseLimit {
    pub(crate) resources: ResourceContext,
}

#[must_use = "dropping the reservation releases the bytes"]
pub struct ResponseReservation {
    resources: ResourceContext,
    permit: Permit,
}

impl LargeResponseLimit {
    /// Reserves 8 MiB, or the principal's share if that is less. Waits for up to `query.heavy_wait_s`. Cancel safe.
    pub async fn reserve(&self, principal: Principal) -> Result<ResponseReservation, Overloaded> {
        let resources = self.resources.for_principal(principal);
        let permit = resources.admission.acquire_large_response(BUILD_RESERVATION_BYTES).await?;
        Ok(ResponseReservation { resources, permit })
    }

    /// Charges a complete body to the principal until the connection has sent it. Never waits.
    pub fn charge(&self, principal: Principal, body: Bytes) -> Result<Bytes, Overloaded> {
        match body.len() as u64 {
            small if small <= MAX_UNCHARGED_RESPONSE_BYTES => Ok(body),
            large => Ok(bytes_with_charge(
                body,
                self.resources.for_principal(principal).admission.try_acquire_large_response(large)?,
            )),
        }
    }
}

impl ResponseReservation {
    /// Builds a response on a dedicated thread of low priority; I/O stays with the calling runtime. If the future is
    /// dropped, the work ends at its next await, and releases the reservation.
    pub async fn build<T: Send + 'static>(
        self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(T, ResponseReservation), QueryError> {
        let engine = self.resources.with_priority(ThreadPriority::Medium).engine.clone();
        let work = async move { (work.await, self) };
        // The work records facts for the log line of a slow request.
        let work = match request_log::current_context() {
            Some(log_context) => Either::Left(log_context.run_scoped(work)),
            None => Either::Right(work),
        };
        engine.spawn_dedicated_on(Handle::current(), work).await
    }

    /// Reduces the reservation to the size of the body, and attaches it until the connection has sent the body.
    pub fn charge(mut self, body: Bytes) -> Result<Bytes, Overloaded> {
        let size_bytes = body.len() as u64;
        if size_bytes <= MAX_UNCHARGED_RESPONSE_BYTES {
            return Ok(body);
        }
        let reserved_bytes = self.permit.units();
        let missing_bytes =
            if reserved_bytes < BUILD_RESERVATION_BYTES { 0 } else { size_bytes.saturating_sub(reserved_bytes) };
        self.permit.shrink_to(size_bytes);
        let admission = &self.resources.admission;
        let overrun = (missing_bytes > 0).then(|| admission.try_acquire_large_response(missing_bytes)).transpose()?;
        Ok(bytes_with_charge(body, (self.permit, overrun)))
    }
}

//! Limits for requests: how many queries and streamed responses run at the same time, and how much memory they use.
//!
//! Problem: a client that sends heavy queries, or reads responses slowly, must not starve other clients. Every limit
//! here is a [`FairLimit`], which users and client networks share. Work that needs the processor and work that waits
//! for a client have separate limits, so that slow readers block no others:
//!
//! 1. **Queries.** A query holds a permit until it has selected entities and, for a table, knows the columns, however
//!    slow the client is. The estimated work ([`strata_query::cost`]) selects one of three limits ([`CostClass`]).
//! 2. **Streams.** A response of more than one chunk holds one of `query.streams` until its body ends. Each chunk is
//!    encoded with a permit ([`AdmissionControl::acquire_encode`]) that is released before the reader gets the chunk.
//! 3. **Bytes.** `query.stream_bytes` limits the bytes that are encoded ahead of their readers
//!    ([`AdmissionControl::try_acquire_buffer`]). Nothing waits for that limit: a response that gets no bytes continues
//!    in small chunks, one at a time, so there is no deadlock. Bytes that exceed an estimate are charged to the memory
//!    of queries. Large responses that are built as a whole ([`large_responses`]) and large entities in streams wait
//!    for limits of the same size before the response begins.
//! 4. **Parquet.** All Parquet bodies use at most half of the memory of queries ([`crate::read::parquet`]).
//!
//! A request that waits for more than `query.heavy_wait_s`, or that the queue (`query.heavy_queue`,
//! `query.light_queue`) has no space for, gets a 503 response. A body that has begun is never refused.

pub(crate) mod body_limit;
pub(crate) mod catalog_limits;
pub(crate) mod large_responses;
pub(crate) mod principal_hasher;
pub(crate) mod resource_context;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::Serialize;
use utoipa::ToSchema;

use strata_config::{self as config, FairShareConfig};
pub(crate) use strata_limits::Permit;
use strata_limits::{FairLimit, FairShares, LimitName};
use strata_runtime::priority::ThreadPriority;

use crate::{Overloaded, Principal};

/// This many chunks are encoded at once, so that processors stay busy while some chunks wait for a distant store.
const ENCODE_PERMITS_PER_THREAD: u64 = 4;

/// Default number of light queries per thread. It is small, so that most requests of a client that sends thousands at
/// once wait in the queue, where other clients come first.
const LIGHT_QUERIES_PER_THREAD: u64 = 32;

/// Default medium queries per thread. The share of one network keeps all threads busy, and leaves others permits.
const MEDIUM_QUERIES_PER_THREAD: u64 = 3;
const MIN_MEDIUM_QUERIES: u64 = 6;

/// Default minimum of heavy queries, enough for users and several networks to run one each.
const MIN_HEAVY_QUERIES: u64 = 4;

/// Bytes by which a response chunk can exceed its estimate without a further charge.
const MAX_UNCHARGED_OVERRUN_BYTES: u64 = 1 << 20;
pub(crate) const MAX_UNCHARGED_BYTES: u64 = 64 << 10;

#[derive(Clone)]
pub(crate) struct AdmissionControl {
    limits: Arc<AdmissionLimits>,
    pub(crate) principal: Principal,
}

struct AdmissionLimits {
    light_queries: FairLimit,
    medium_queries: FairLimit,
    heavy_queries: FairLimit,
    diffs: FairLimit,
    streams: FairLimit,
    parquet_bytes: FairLimit,
    encodes: FairLimit,
    long_encodes: FairLimit,
    sent_ahead_bytes: FairLimit,
    large_responses: FairLimit,
    large_entities: FairLimit,
    buffered_bytes: Arc<AtomicU64>,
    parquet_waiters: Arc<AtomicUsize>,
}

/// Counts a Parquet body that has begun and waits for memory, until this value is dropped.
pub(crate) struct MemoryWaiterGuard(Arc<AtomicUsize>);

impl Drop for MemoryWaiterGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AdmissionLimits {
    fn all_limits(&self) -> [&FairLimit; 11] {
        [
            &self.light_queries,
            &self.medium_queries,
            &self.heavy_queries,
            &self.diffs,
            &self.streams,
            &self.parquet_bytes,
            &self.encodes,
            &self.long_encodes,
            &self.sent_ahead_bytes,
            &self.large_responses,
            &self.large_entities,
        ]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionLoad {
    pub heavy_running: usize,
    pub heavy_waiting: usize,
    pub medium_running: usize,
    /// The number of running light queries, including table responses (csv or tsv) whose columns are being determined.
    pub light_running: usize,
    pub diffs_running: usize,
    pub streams_running: usize,
    pub encodes_running: usize,
    pub buffered_bytes: u64,
    pub reserved_ahead_bytes: u64,
}

/// The class of a query, based on its estimated work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostClass {
    /// The work is at most `query.medium_bytes`. For example, a page without a filter is light.
    Light,
    /// The work exceeds `query.medium_bytes`.
    Medium,
    /// The work exceeds `query.heavy_bytes`.
    Heavy,
}

impl CostClass {
    pub(crate) fn priority(self) -> ThreadPriority {
        match self {
            CostClass::Light => ThreadPriority::Short,
            CostClass::Medium => ThreadPriority::Medium,
            CostClass::Heavy => ThreadPriority::Heavy,
        }
    }

    pub fn from_work_bytes(work_bytes: u64, query: &config::QueryConfig) -> CostClass {
        match work_bytes {
            heavy if heavy > query.heavy_bytes => CostClass::Heavy,
            medium if medium > query.medium_bytes => CostClass::Medium,
            _ => CostClass::Light,
        }
    }
}

/// Returns a limit of at least one unit. `fair` configures the shares of principals. At most `queue` requests can wait.
pub(crate) fn fair_limit(name: LimitName, units: u64, fair: &FairShareConfig, queue: u64, wait_s: u64) -> FairLimit {
    let max_waiters = usize::try_from(queue).unwrap_or(usize::MAX);
    let shares = FairShares { max_waiters, ..FairShares::new(units.max(1), fair.share_percent, fair.user_percent) };
    FairLimit::new(name, shares, Duration::from_secs(wait_s))
}

impl AdmissionControl {
    /// Creates the configured limits. Limits of 0 get defaults that depend on the number of threads.
    pub(crate) fn new(
        query: &config::QueryConfig,
        fair: &FairShareConfig,
        threads: usize,
        memory_bytes: u64,
    ) -> AdmissionControl {
        let threads = threads.max(1) as u64;
        let or_default = |configured: u64, default: u64| if configured == 0 { default } else { configured };
        let heavy_queries = or_default(query.heavy_queries, threads.max(MIN_HEAVY_QUERIES));
        let limit =
            |name, requests, units, queue, wait_s| fair_limit(LimitName { name, requests }, units, fair, queue, wait_s);
        let heavy_limit = |name, requests, units| limit(name, requests, units, query.heavy_queue, query.heavy_wait_s);
        let encode_limit = |name| {
            // The queue of encode permits has no limit, because each waiter has a permit for a query or a stream.
            limit(name, "response chunks", threads * ENCODE_PERMITS_PER_THREAD, u64::MAX, query.heavy_wait_s)
        };
        let bytes_limit =
            |name, requests| limit(name, requests, query.stream_bytes, query.light_queue, query.heavy_wait_s);
        let light_queries = or_default(query.light_queries, threads * LIGHT_QUERIES_PER_THREAD);
        let medium_queries =
            or_default(query.medium_queries, (threads * MEDIUM_QUERIES_PER_THREAD).max(MIN_MEDIUM_QUERIES));
        let limits = AdmissionLimits {
            light_queries: limit("light", "queries", light_queries, query.light_queue, query.heavy_wait_s),
            medium_queries: limit("medium", "medium queries", medium_queries, query.light_queue, query.heavy_wait_s),
            heavy_queries: heavy_limit("heavy", "heavy queries", heavy_queries),
            diffs: heavy_limit("diff", "diffs", or_default(query.diffs, heavy_queries.div_ceil(2))),
            streams: heavy_limit("stream", "streamed responses", query.streams),
            parquet_bytes: heavy_limit("parquet", "Parquet exports", memory_bytes / 2),
            encodes: encode_limit("unit"),
            long_encodes: encode_limit("long_unit"),
            sent_ahead_bytes: limit("ahead", "buffered responses", query.stream_bytes, 0, 0),
            large_responses: bytes_limit("response", "large responses"),
            large_entities: bytes_limit("stream_unit", "streamed large entities"),
            buffered_bytes: Arc::default(),
            parquet_waiters: Arc::default(),
        };
        AdmissionControl { limits: Arc::new(limits), principal: Principal::Operator }
    }

    pub(crate) fn for_principal(&self, principal: Principal) -> AdmissionControl {
        AdmissionControl { limits: self.limits.clone(), principal }
    }

    pub(crate) async fn acquire_query(&self, class: CostClass) -> Result<Permit, Overloaded> {
        self.query_limit(class).acquire(self.principal, 1).await
    }

    pub(crate) fn try_acquire_query(&self, class: CostClass) -> Option<Permit> {
        self.query_limit(class).try_acquire(self.principal, 1).ok()
    }

    fn query_limit(&self, class: CostClass) -> &FairLimit {
        match class {
            CostClass::Light => &self.limits.light_queries,
            CostClass::Medium => &self.limits.medium_queries,
            CostClass::Heavy => &self.limits.heavy_queries,
        }
    }

    pub(crate) async fn acquire_diff(&self) -> Result<Permit, Overloaded> {
        self.limits.diffs.acquire(self.principal, 1).await
    }

    pub(crate) async fn acquire_stream(&self) -> Result<Permit, Overloaded> {
        self.limits.streams.acquire(self.principal, 1).await
    }

    /// Like [`AdmissionControl::acquire_stream`], for a body whose chunks have about `chunk_bytes` bytes, which are
    /// charged until the body ends. Large responses have a separate limit of bytes, because a large response can read a
    /// stream while it is built: one limit for both could deadlock.
    pub(crate) async fn acquire_stream_for_chunks(&self, chunk_bytes: u64) -> Result<StreamPermit, Overloaded> {
        let large_entity = match chunk_bytes.saturating_sub(MAX_UNCHARGED_BYTES) {
            0 => None,
            size_bytes => Some(self.limits.large_entities.acquire(self.principal, size_bytes).await?),
        };
        Ok(StreamPermit { _stream: self.acquire_stream().await?, large_entity })
    }

    pub(crate) async fn acquire_large_response(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        self.limits.large_responses.acquire(self.principal, size_bytes).await
    }

    pub(crate) fn try_acquire_large_response(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        let large = &self.limits.large_responses;
        large.try_acquire(self.principal, large.clamp_to_class_max(self.principal, size_bytes))
    }

    pub(crate) async fn acquire_parquet(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        self.limits.parquet_bytes.acquire(self.principal, size_bytes).await
    }

    /// Reports that a body that has begun waits for memory, so that no other body begins before it continues.
    pub(crate) fn register_memory_waiter(&self) -> MemoryWaiterGuard {
        let waiters = self.limits.parquet_waiters.clone();
        waiters.fetch_add(1, Ordering::Relaxed);
        MemoryWaiterGuard(waiters)
    }

    pub(crate) fn has_memory_waiters(&self) -> bool {
        self.limits.parquet_waiters.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn max_parquet_wait(&self) -> Duration {
        self.limits.parquet_bytes.max_wait()
    }

    /// Like [`AdmissionControl::acquire_parquet`], for a body that has begun: waits without a time limit.
    pub(crate) async fn acquire_parquet_without_timeout(&self, size_bytes: u64) -> Permit {
        self.limits.parquet_bytes.acquire_without_timeout(self.principal, size_bytes).await
    }

    pub(crate) fn try_acquire_parquet(&self, size_bytes: u64) -> Option<Permit> {
        self.limits.parquet_bytes.try_acquire(self.principal, size_bytes).ok()
    }

    /// Waits for a permit to encode the first chunk of a streamed body, or a large whole body, on a dedicated thread.
    pub(crate) async fn acquire_encode(&self) -> Result<Permit, Overloaded> {
        self.limits.encodes.acquire(self.principal, 1).await
    }

    /// Waits without a timeout for a permit to encode a chunk of a begun body. Long streams have separate permits.
    pub(crate) async fn acquire_encode_without_timeout(&self, is_long_stream: bool) -> Permit {
        let limit = if is_long_stream { &self.limits.long_encodes } else { &self.limits.encodes };
        limit.acquire_without_timeout(self.principal, 1).await
    }

    /// Reserves the bytes of a response part that is encoded ahead of its reader. `None` if they exceed the limit.
    pub(crate) fn try_acquire_buffer(&self, size_bytes: u64) -> Option<Permit> {
        self.limits.sent_ahead_bytes.try_acquire(self.principal, size_bytes).ok()
    }

    pub(crate) fn is_contended(&self) -> bool {
        let AdmissionLimits { light_queries, medium_queries, heavy_queries, streams, parquet_bytes, .. } =
            &*self.limits;
        let limits = [light_queries, medium_queries, heavy_queries, streams, parquet_bytes];
        limits.into_iter().any(|limit| limit.waiter_count() > 0)
    }

    /// Reserves memory for a whole response body. Returns `Some(None)` if the body is too small to be charged, and
    /// `None` if it should be streamed instead.
    pub(crate) fn try_acquire_whole_body(&self, size_bytes: u64) -> Option<Option<Permit>> {
        if size_bytes <= MAX_UNCHARGED_BYTES { Some(None) } else { self.try_acquire_buffer(size_bytes).map(Some) }
    }

    /// Returns bytes that count as buffered, and retain `permit` and `reservation`, until the connection has sent them.
    pub(crate) fn charge_buffered(
        &self,
        bytes: impl Into<Bytes>,
        permit: Option<Permit>,
        reservation: Option<MemoryReservation>,
    ) -> Bytes {
        let bytes = bytes.into();
        let charge = self.new_buffer_charge(bytes.len() as u64, permit, reservation);
        bytes_with_charge(bytes, charge)
    }

    fn new_buffer_charge(
        &self,
        size_bytes: u64,
        permit: Option<Permit>,
        reservation: Option<MemoryReservation>,
    ) -> BufferCharge {
        let buffered_bytes = self.limits.buffered_bytes.clone();
        buffered_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        BufferCharge { size_bytes, buffered_bytes, _permit: permit, _reservation: reservation }
    }

    pub(crate) fn current_load(&self) -> AdmissionLoad {
        let limits = &self.limits;
        let running = |limit: &FairLimit| usize::try_from(limit.used_units()).unwrap_or(usize::MAX);
        AdmissionLoad {
            heavy_running: running(&limits.heavy_queries),
            heavy_waiting: limits.heavy_queries.waiter_count(),
            medium_running: running(&limits.medium_queries),
            light_running: running(&limits.light_queries),
            diffs_running: running(&limits.diffs),
            streams_running: running(&limits.streams),
            encodes_running: running(&limits.encodes) + running(&limits.long_encodes),
            buffered_bytes: limits.buffered_bytes.load(Ordering::Relaxed),
            reserved_ahead_bytes: limits.sent_ahead_bytes.used_units(),
        }
    }

    pub(crate) fn update_metrics(&self) {
        self.limits.all_limits().into_iter().for_each(FairLimit::update_metrics);
    }
}

pub(crate) struct StreamPermit {
    _stream: Permit,
    pub(crate) large_entity: Option<Permit>,
}

pub(crate) struct BufferCharge {
    size_bytes: u64,
    buffered_bytes: Arc<AtomicU64>,
    _permit: Option<Permit>,
    _reservation: Option<MemoryReservation>,
}

impl Drop for BufferCharge {
    fn drop(&mut self) {
        self.buffered_bytes.fetch_sub(self.size_bytes, Ordering::Relaxed);
    }
}

/// Attaches a charge to bytes. The charge is dropped together with the last slice of the bytes.
pub(crate) fn bytes_with_charge<T: Send + 'static>(bytes: Bytes, charge: T) -> Bytes {
    Bytes::from_owner(ChargedBytes { bytes, _charge: charge })
}

struct ChargedBytes<T> {
    bytes: Bytes,
    _charge: T,
}

impl<T> AsRef<[u8]> for ChargedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(change: impl FnOnce(&mut config::QueryConfig)) -> AdmissionControl {
        let mut query = config::Config::default().query;
        change(&mut query);
        AdmissionControl::new(&query, &config::FairShareConfig::default(), 2, 1 << 30)
    }

    /// Regression: the wait for an encode permit had no end. A response that had not begun hung until its client left.
    #[tokio::test]
    async fn wait_for_first_chunk_is_limited() {
        let admission = admission(|query| query.heavy_wait_s = 0);
        let mut permits = Vec::new();
        while let Ok(permit) = admission.acquire_encode().await {
            permits.push(permit);
        }
        let late = admission.acquire_encode().await.err().expect("all permits are used");
        assert_eq!((late.limit.name, late.waited), ("unit", Some(std::time::Duration::ZERO)));
        let begun_body = tokio::spawn({
            let admission = admission.clone();
            async move { drop(admission.acquire_encode_without_timeout(false).await) }
        });
        while admission.limits.encodes.waiter_count() == 0 {
            tokio::task::yield_now().await;
        }
        drop(permits);
        begun_body.await.expect("body gets its permit");
        assert!(admission.acquire_encode().await.is_ok());
    }

    #[test]
    fn bytes_are_charged_until_last_slice_is_dropped() {
        let admission = admission(|query| query.stream_bytes = 1 << 20);
        let permit = admission.try_acquire_buffer(1 << 20).expect("all bytes are free");
        assert!(admission.try_acquire_buffer(1).is_none());
        let mut bytes = admission.charge_buffered(vec![7; 1_000], Some(permit), None);
        let first = bytes.split_to(10);
        drop(bytes);
        assert_eq!(
            (admission.current_load().buffered_bytes, admission.current_load().reserved_ahead_bytes),
            (1_000, 1 << 20)
        );
        drop(first);
        assert_eq!(admission.current_load(), AdmissionLoad::default());
        assert!(admission.try_acquire_buffer(1).is_some());
    }

    #[tokio::test]
    async fn try_query_never_waits() {
        let admission = admission(|query| query.light_queries = 1);
        let permit = admission.acquire_query(CostClass::Light).await.expect("permit is free");
        assert!(admission.try_acquire_query(CostClass::Light).is_none());
        assert!(admission.try_acquire_query(CostClass::Medium).is_some());
        drop(permit);
        assert!(admission.try_acquire_query(CostClass::Light).is_some());
    }
}

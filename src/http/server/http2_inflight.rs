//! Limits for HTTP/2 requests in flight, because one connection can have many.
//!
//! - A client can have as many concurrent requests as one connection (`server.concurrent_streams`). Further requests of
//!   the client wait, so that a burst of one client does not delay the requests of others.
//! - The memory of requests in flight, including waiting ones, is limited per client and in total. A request that
//!   exceeds a limit is refused. Each client can have a few requests regardless of other clients.
//!
//! An HTTP/1.1 connection has only one request, and connections are limited. Trusted proxies have neither limit,
//! because they act for many clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::http::Request;
use tokio::sync::Semaphore;

/// The estimated memory for the tasks and the handler of a request, in addition to the size of its head.
const REQUEST_IN_FLIGHT_BYTES: usize = 16 << 10;
const MAX_CLIENT_INFLIGHT_BYTES: usize = 64 << 20;
const MAX_INFLIGHT_BYTES: usize = 256 << 20;

/// The number of requests that a client can have in flight regardless of the memory that all clients use.
const GUARANTEED_REQUESTS: usize = 4;

pub(super) struct InFlightRequestLimit {
    max_concurrent: usize,
    bytes: AtomicUsize,
}

pub(super) struct ClientRequests {
    bytes: AtomicUsize,
    count: AtomicUsize,
    /// The permits for the concurrent requests of a client, granted in order of arrival. The semaphore is never closed.
    pub concurrency_permits: Arc<Semaphore>,
}

impl InFlightRequestLimit {
    pub(super) fn new(max_concurrent: u32) -> Arc<InFlightRequestLimit> {
        let max_concurrent = usize::try_from(max_concurrent).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(InFlightRequestLimit { max_concurrent, bytes: AtomicUsize::new(0) })
    }

    pub(super) fn new_client(&self) -> Arc<ClientRequests> {
        let concurrency_permits = Arc::new(Semaphore::new(self.max_concurrent));
        Arc::new(ClientRequests { bytes: AtomicUsize::new(0), count: AtomicUsize::new(0), concurrency_permits })
    }

    /// Counts a request in flight until the permit is dropped. Returns `None` if the request exceeds a memory limit.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        client: &Arc<ClientRequests>,
        head_bytes: usize,
    ) -> Option<InFlightPermit> {
        let bytes = head_bytes.saturating_add(REQUEST_IN_FLIGHT_BYTES);
        let client_bytes = client.bytes.fetch_add(bytes, Relaxed) + bytes;
        let total_bytes = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let count = client.count.fetch_add(1, Relaxed);
        let permit = InFlightPermit { requests: self.clone(), client: client.clone(), bytes };
        let fits = client_bytes <= MAX_CLIENT_INFLIGHT_BYTES && total_bytes <= MAX_INFLIGHT_BYTES;
        (fits || count < GUARANTEED_REQUESTS).then_some(permit)
    }
}

pub(super) struct InFlightPermit {
    requests: Arc<InFlightRequestLimit>,
    client: Arc<ClientRequests>,
    bytes: usize,
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.requests.bytes.fetch_sub(self.bytes, Relaxed);
        self.client.bytes.fetch_sub(self.bytes, Relaxed);
        self.client.count.fetch_sub(1, Relaxed);
    }
}

pub(super) fn estimate_head_bytes<B>(request: &Request<B>) -> usize {
    const HEADER_OVERHEAD_BYTES: usize = 64;
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD_BYTES);
    path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_REQUESTS: usize = MAX_CLIENT_INFLIGHT_BYTES / REQUEST_IN_FLIGHT_BYTES;

    #[test]
    fn client_limit_leaves_room_for_others() {
        let requests = InFlightRequestLimit::new(2);
        let greedy = requests.new_client();
        let permits: Vec<_> = (0..CLIENT_REQUESTS).map(|_| requests.try_acquire(&greedy, 0).expect("permit")).collect();
        assert!(requests.try_acquire(&greedy, 0).is_none());
        let other = requests.new_client();
        assert!(requests.try_acquire(&other, 0).is_some());
        drop(permits);
        assert_eq!(requests.bytes.load(Relaxed) + greedy.bytes.load(Relaxed) + greedy.count.load(Relaxed), 0);
        let permits: Vec<_> =
            std::iter::from_fn(|| requests.try_acquire(&greedy, 3 * REQUEST_IN_FLIGHT_BYTES)).collect();
        assert_eq!(permits.len(), CLIENT_REQUESTS / 4);
    }

    #[test]
    fn total_limit_guarantees_each_client_some() {
        let requests = InFlightRequestLimit::new(2);
        let clients: Vec<_> =
            (0..MAX_INFLIGHT_BYTES / MAX_CLIENT_INFLIGHT_BYTES).map(|_| requests.new_client()).collect();
        let all = clients.iter().flat_map(|client| vec![client; CLIENT_REQUESTS]);
        let permits: Vec<_> = all.map(|client| requests.try_acquire(client, 0).expect("permit")).collect();
        let late = requests.new_client();
        let guaranteed = std::iter::from_fn(|| requests.try_acquire(&late, 0)).collect::<Vec<_>>();
        assert_eq!(guaranteed.len(), GUARANTEED_REQUESTS);
        drop(permits);
        assert!(requests.try_acquire(&late, 0).is_some());
    }
}

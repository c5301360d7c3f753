//! Limits of the requests in flight over HTTP/2, of which a connection can have many.
//!
//! - A client can have as many requests in progress at the same time as one connection (`server.concurrent_streams`).
//!   Further requests of the client wait, so that a burst of one client does not delay the requests of others.
//! - The memory of requests in flight, including waiting ones, is limited for each client and in total. A request that
//!   exceeds a limit is refused. Each client can have a few requests regardless of the other clients.
//!
//! Over HTTP/1.1, a connection has one request, and connections are limited. Trusted proxies have neither limit,
//! because they act for many clients.
//!
//! `http::connections` fails without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::http::Request;
use tokio::sync::Semaphore;

/// Memory of a request in addition to its head: its tasks and its handler.
const REQUEST_IN_FLIGHT_BYTES: usize = 16 << 10;

const CLIENT_REQUESTS_BYTES: usize = 64 << 20;
const REQUESTS_BYTES: usize = 256 << 20;

/// Requests that a client can have regardless of the other clients.
const GUARANTEED_REQUESTS: usize = 4;

pub(super) struct InFlightLimit {
    /// Requests of one client that can be in progress at the same time.
    at_once: usize,
    bytes: AtomicUsize,
}

pub(super) struct ClientRequests {
    bytes: AtomicUsize,
    count: AtomicUsize,
    /// Permits of requests in progress, granted in order of arrival. It is never closed.
    pub turns: Arc<Semaphore>,
}

impl InFlightLimit {
    pub(super) fn new(at_once: u32) -> Arc<InFlightLimit> {
        let at_once = usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(InFlightLimit { at_once, bytes: AtomicUsize::new(0) })
    }

    pub(super) fn client(&self) -> Arc<ClientRequests> {
        let turns = Arc::new(Semaphore::new(self.at_once));
        Arc::new(ClientRequests { bytes: AtomicUsize::new(0), count: AtomicUsize::new(0), turns })
    }

    /// Counts a request until the permit is dropped. `None` if it exceeds a limit.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        client: &Arc<ClientRequests>,
        head_bytes: usize,
    ) -> Option<InFlightPermit> {
        let bytes = head_bytes.saturating_add(REQUEST_IN_FLIGHT_BYTES);
        let of_client = client.bytes.fetch_add(bytes, Relaxed) + bytes;
        let of_all = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let count = client.count.fetch_add(1, Relaxed);
        let permit = InFlightPermit { requests: self.clone(), client: client.clone(), bytes };
        let fits = of_client <= CLIENT_REQUESTS_BYTES && of_all <= REQUESTS_BYTES;
        (fits || count < GUARANTEED_REQUESTS).then_some(permit)
    }
}

pub(super) struct InFlightPermit {
    requests: Arc<InFlightLimit>,
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

/// The approximate memory of a request head.
pub(super) fn head_bytes<B>(request: &Request<B>) -> usize {
    /// Memory of a header in addition to its name and its value.
    const HEADER_BYTES: usize = 64;
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_REQUESTS: usize = CLIENT_REQUESTS_BYTES / REQUEST_IN_FLIGHT_BYTES;

    #[test]
    fn client_limit_leaves_room_for_others() {
        let requests = InFlightLimit::new(2);
        let greedy = requests.client();
        let held: Vec<_> = (0..CLIENT_REQUESTS).map(|_| requests.try_acquire(&greedy, 0).expect("room")).collect();
        assert!(requests.try_acquire(&greedy, 0).is_none());
        let other = requests.client();
        assert!(requests.try_acquire(&other, 0).is_some());
        drop(held);
        assert_eq!(requests.bytes.load(Relaxed) + greedy.bytes.load(Relaxed) + greedy.count.load(Relaxed), 0);
        let held: Vec<_> = std::iter::from_fn(|| requests.try_acquire(&greedy, 3 * REQUEST_IN_FLIGHT_BYTES)).collect();
        assert_eq!(held.len(), CLIENT_REQUESTS / 4);
    }

    #[test]
    fn total_limit_guarantees_each_client_some() {
        let requests = InFlightLimit::new(2);
        let clients: Vec<_> = (0..REQUESTS_BYTES / CLIENT_REQUESTS_BYTES).map(|_| requests.client()).collect();
        let all = clients.iter().flat_map(|client| vec![client; CLIENT_REQUESTS]);
        let held: Vec<_> = all.map(|client| requests.try_acquire(client, 0).expect("room")).collect();
        let late = requests.client();
        let some: Vec<_> = std::iter::from_fn(|| requests.try_acquire(&late, 0)).collect();
        assert_eq!(some.len(), GUARANTEED_REQUESTS);
        drop(held);
        assert!(requests.try_acquire(&late, 0).is_some());
    }
}

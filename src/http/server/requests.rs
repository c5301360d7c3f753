//! Requests in flight over HTTP/2, where a connection may have many at once.
//!
//! - So many of one client are worked on at the same time as one connection may have. Further ones wait for their turn:
//!   a burst of one client is no queue before the requests of others.
//! - What those in flight take, waiting or not, is bounded for each client and for all together. One that would take
//!   more is refused. Each client may have a few in any case, whatever others have.
//!
//! Over HTTP/1.1 each connection has one, and connections are bounded. Trusted proxies speak for many: they have
//! neither bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::http::Request;
use tokio::sync::Semaphore;

/// Bytes that a request takes besides its head: its tasks and its handler.
const REQUEST_IN_FLIGHT_BYTES: usize = 16 << 10;

/// Bytes of the requests in flight of one client, and of all.
const CLIENT_REQUESTS_BYTES: usize = 64 << 20;
const REQUESTS_BYTES: usize = 256 << 20;

/// Requests that a client may have whatever others have.
const IN_ANY_CASE: usize = 4;

pub(super) struct Requests {
    /// Requests of one client that are worked on at the same time.
    at_once: usize,
    bytes: AtomicUsize,
}

pub(super) struct OfClient {
    bytes: AtomicUsize,
    count: AtomicUsize,
    /// Where its requests wait to be worked on, in the order in which they came. Nobody closes it.
    pub turns: Arc<Semaphore>,
}

impl Requests {
    pub(super) fn new(at_once: u32) -> Arc<Requests> {
        let at_once = usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(Requests { at_once, bytes: AtomicUsize::new(0) })
    }

    pub(super) fn client(&self) -> Arc<OfClient> {
        let turns = Arc::new(Semaphore::new(self.at_once));
        Arc::new(OfClient { bytes: AtomicUsize::new(0), count: AtomicUsize::new(0), turns })
    }

    /// Counts a request until the result is dropped; `None` where it would be too many.
    pub(super) fn admit(self: &Arc<Self>, client: &Arc<OfClient>, head_bytes: usize) -> Option<Counted> {
        let bytes = head_bytes.saturating_add(REQUEST_IN_FLIGHT_BYTES);
        let of_client = client.bytes.fetch_add(bytes, Relaxed) + bytes;
        let of_all = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let count = client.count.fetch_add(1, Relaxed);
        // Given back where it is dropped.
        let counted = Counted { requests: self.clone(), client: client.clone(), bytes };
        let fits = of_client <= CLIENT_REQUESTS_BYTES && of_all <= REQUESTS_BYTES;
        (fits || count < IN_ANY_CASE).then_some(counted)
    }
}

pub(super) struct Counted {
    requests: Arc<Requests>,
    client: Arc<OfClient>,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.requests.bytes.fetch_sub(self.bytes, Relaxed);
        self.client.bytes.fetch_sub(self.bytes, Relaxed);
        self.client.count.fetch_sub(1, Relaxed);
    }
}

/// Bytes of the head of a request, as it lies in memory, roughly.
pub(super) fn head_bytes<B>(request: &Request<B>) -> usize {
    /// Of an entry of the table of headers, besides its name and its value.
    const OF_HEADER: usize = 64;
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let of_header = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        name.as_str().len() + value.len() + OF_HEADER
    };
    path + request.headers().iter().map(of_header).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = CLIENT_REQUESTS_BYTES / REQUEST_IN_FLIGHT_BYTES;

    #[test]
    fn a_client_has_so_many_and_leaves_room_to_others() {
        let requests = Requests::new(2);
        let greedy = requests.client();
        let held: Vec<_> = (0..MOST).map(|_| requests.admit(&greedy, 0).expect("room")).collect();
        assert!(requests.admit(&greedy, 0).is_none());
        let other = requests.client();
        assert!(requests.admit(&other, 0).is_some());
        drop(held);
        assert_eq!(requests.bytes.load(Relaxed) + greedy.bytes.load(Relaxed) + greedy.count.load(Relaxed), 0);
        // Long heads are fewer.
        let held: Vec<_> = std::iter::from_fn(|| requests.admit(&greedy, 3 * REQUEST_IN_FLIGHT_BYTES)).collect();
        assert_eq!(held.len(), MOST / 4);
    }

    #[test]
    fn all_together_have_so_many_and_everybody_some() {
        let requests = Requests::new(2);
        let clients: Vec<_> = (0..REQUESTS_BYTES / CLIENT_REQUESTS_BYTES).map(|_| requests.client()).collect();
        let all = clients.iter().flat_map(|client| vec![client; MOST]);
        let held: Vec<_> = all.map(|client| requests.admit(client, 0).expect("room")).collect();
        let late = requests.client();
        let some: Vec<_> = std::iter::from_fn(|| requests.admit(&late, 0)).collect();
        assert_eq!(some.len(), IN_ANY_CASE);
        drop(held);
        assert!(requests.admit(&late, 0).is_some());
    }

    #[tokio::test]
    async fn so_many_are_worked_on_at_once() {
        let requests = Requests::new(2);
        let client = requests.client();
        let first = client.turns.acquire().await;
        let _second = client.turns.acquire().await;
        let mut third = Box::pin(client.turns.acquire());
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        assert!(futures::poll!(&mut third).is_ready());
    }
}

//! The connections of a server: their limits in total and per client, and which connection is released at a limit.
//!
//! - A client is an IPv4 address or an IPv6 network of 64 bits. At the limit of a client, its connection that has
//!   waited longest for it is released. If none waits, the new connection is refused. Trusted proxies have no such
//!   limit, because they act for many clients.
//! - At the total limit, a connection that has waited for a while is released. It belongs to the client with the most
//!   connections, so that other clients do not pay for it. If none waits, the new connection waits outside of the
//!   accept queue, so that it blocks no other. The number of waiting connections is limited, separately for clients
//!   with about as many connections as any other. Further connections of such a client are refused.
//! - A released connection loses its slot at once. It ends at once if it is idle, and otherwise after a short pause
//!   ([`ConnectionState::release_slot`]), or earlier if many are released. So the limit can be exceeded a little.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use strata_runtime::metrics::metrics;
use strata_service::ClientNetwork;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::ServerLimits;
use super::connection_state::ConnectionState;
use super::http2_inflight::{ClientRequests, InFlightRequestLimit};

/// The minimum wait for a client before its connection is released to free its slot. A request might be on its way.
const MIN_CLIENT_WAIT: Duration = Duration::from_secs(1);

/// Like [`MIN_CLIENT_WAIT`], if the slot is for a client with far fewer connections than the largest client.
const MIN_LARGE_CLIENT_WAIT: Duration = Duration::from_millis(100);

const CANDIDATE_SEARCH_INTERVAL: Duration = Duration::from_millis(20);
const ADMISSION_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The number of connections that a search selects for release. Each new connection checks at most
/// [`MAX_CANDIDATES_PER_TRY`] of them.
const MAX_RELEASE_CANDIDATES: usize = 256;
const MAX_CANDIDATES_PER_TRY: usize = 32;

/// Returns the maximum number of connections that lost their slot but are still open, for a limit of `connections`.
pub(super) fn max_closing_connections(connections: usize) -> usize {
    (connections / 8).clamp(1, 512)
}

/// Returns the maximum number of connections that wait for a slot, separately for clients with few and with many
/// connections, and of refused connections that still read the error, for a limit of `connections`.
pub(super) fn max_connections_awaiting_slot(connections: usize) -> usize {
    (connections / 8).clamp(1, 64)
}

pub(super) struct ConnectionRegistry {
    inflight_limit: Arc<InFlightRequestLimit>,
    limits: Arc<ServerLimits>,
    registry: Mutex<ConnectionRegistryState>,
    /// Notify connections that wait for a slot. Index 0 is for clients with few connections, index 1 for the others.
    slot_freed: [Notify; 2],
}

#[derive(Default)]
struct ConnectionRegistryState {
    clients: HashMap<ClientNetwork, ClientConnections>,
    next_id: u64,
    open_count: usize,
    closing_count: usize,
    /// Connections that lost their slot, oldest first. Some of them might be closed.
    released_connections: VecDeque<Weak<ConnectionState>>,
    release_candidates: VecDeque<(ClientNetwork, u64)>,
    candidates_chosen_at: Option<Instant>,
    /// The number of connections of the client with the most connections, as of `candidates_chosen_at`.
    max_client_connections: usize,
}

struct ClientConnections {
    is_exempt: bool,
    requests: Arc<ClientRequests>,
    connections: BTreeMap<u64, Arc<ConnectionState>>,
}

impl ClientConnections {
    /// Returns the connections that have waited for the client since before `cutoff`, ordered by the start of the wait.
    fn inactive_connections(&self, cutoff: Instant) -> Vec<(Instant, u64)> {
        let waiting = self.connections.iter().filter_map(|(id, state)| Some((state.awaits_client_since()?, *id)));
        let mut waiting: Vec<_> = waiting.filter(|(since, _)| *since <= cutoff).collect();
        waiting.sort_unstable();
        waiting
    }
}

pub(super) enum ConnectionAdmission {
    Admitted(ConnectionSlot),
    /// The client has reached its connection limit, and none of its connections can be closed for the new one.
    ClientLimitReached,
    Full {
        /// Whether the client has about as many connections as any other client.
        is_large_client: bool,
    },
}

impl ConnectionRegistry {
    pub(super) fn new(limits: Arc<ServerLimits>, inflight_limit: Arc<InFlightRequestLimit>) -> Arc<ConnectionRegistry> {
        let slot_freed = Default::default();
        Arc::new(ConnectionRegistry { inflight_limit, limits, registry: Mutex::default(), slot_freed })
    }

    /// Waits for a connection slot. Returns `None` if the client has reached its limit.
    pub(super) async fn wait_for_slot(self: &Arc<Self>, peer: IpAddr, is_large_client: bool) -> Option<ConnectionSlot> {
        loop {
            match self.admit(peer, Instant::now()) {
                ConnectionAdmission::Admitted(slot) => return Some(slot),
                ConnectionAdmission::ClientLimitReached => return None,
                ConnectionAdmission::Full { .. } => self.await_freed_slot(ADMISSION_RETRY_DELAY, is_large_client).await,
            }
        }
    }

    /// Frees the slot of a connection that waits for its client. Returns false if there is none.
    pub(super) fn try_free_slot(&self) -> bool {
        let mut registry = self.registry.lock();
        let candidate = registry.take_release_candidate(Instant::now(), MIN_CLIENT_WAIT);
        candidate.is_some_and(|(client, id)| registry.try_release_connection(client, id))
    }

    pub(super) async fn await_freed_slot(&self, max_wait: Duration, is_large_client: bool) {
        let _ = timeout(max_wait, self.slot_freed[usize::from(is_large_client)].notified()).await;
    }

    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, now: Instant) -> ConnectionAdmission {
        let ServerLimits { max_connections, max_connections_per_client, .. } = *self.limits;
        let client = ClientNetwork::from(peer);
        let is_exempt = self.limits.trusted_proxies.contains(peer);
        let mut registry = self.registry.lock();
        let known = registry.clients.get(&client);
        let count = known.map_or(0, |known| known.connections.len());
        if max_connections_per_client > 0 && !is_exempt && count >= max_connections_per_client {
            let waiting = known.map(|known| known.inactive_connections(now - MIN_CLIENT_WAIT)).unwrap_or_default();
            let Some((_, id)) = waiting.first().copied() else { return ConnectionAdmission::ClientLimitReached };
            registry.try_release_connection(client, id);
        }
        let is_small = is_exempt || 2 * count + 8 < registry.max_client_connections;
        let full = ConnectionAdmission::Full { is_large_client: !is_small && count > 0 };
        let max_open = max_connections + max_closing_connections(max_connections);
        if registry.open_count + registry.closing_count >= max_open {
            registry.expedite_oldest_close();
            return full;
        }
        if registry.open_count >= max_connections {
            let min_wait = if is_small { MIN_LARGE_CLIENT_WAIT } else { MIN_CLIENT_WAIT };
            let Some((client, id)) = registry.take_release_candidate(now, min_wait) else { return full };
            registry.try_release_connection(client, id);
        }
        let id = registry.next_id;
        registry.next_id += 1;
        registry.open_count += 1;
        let state = ConnectionState::new(self.limits.clone());
        let new_client = || ClientConnections {
            is_exempt,
            requests: self.inflight_limit.new_client(),
            connections: BTreeMap::new(),
        };
        let entry = registry.clients.entry(client).or_insert_with(new_client);
        entry.is_exempt = is_exempt;
        entry.connections.insert(id, state.clone());
        let client_requests = (!is_exempt).then(|| entry.requests.clone());
        metrics().connections.increment(1.0);
        ConnectionAdmission::Admitted(ConnectionSlot { connections: self.clone(), client, id, state, client_requests })
    }
}

impl ConnectionRegistryState {
    /// Returns the next connection to close for another one. It has waited for its client for at least `min_wait`.
    fn take_release_candidate(&mut self, now: Instant, min_wait: Duration) -> Option<(ClientNetwork, u64)> {
        let age = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        if age(self.candidates_chosen_at).is_none_or(|age| age > MIN_CLIENT_WAIT) {
            self.refill_release_candidates(now);
        }
        let candidate = self.take_candidate_waiting_since(now - min_wait);
        if candidate.is_some() || age(self.candidates_chosen_at).is_some_and(|age| age < CANDIDATE_SEARCH_INTERVAL) {
            return candidate;
        }
        self.refill_release_candidates(now);
        self.take_candidate_waiting_since(now - min_wait)
    }

    /// Returns the first release candidate that has waited for its client since before `cutoff`. Only
    /// [`MAX_CANDIDATES_PER_TRY`] candidates are checked, because later candidates have waited for less time.
    fn take_candidate_waiting_since(&mut self, cutoff: Instant) -> Option<(ClientNetwork, u64)> {
        let clients = &self.clients;
        let since =
            |(client, id): &(ClientNetwork, u64)| clients.get(client)?.connections.get(id)?.awaits_client_since();
        let mut selected = None;
        let mut others = Vec::new();
        while selected.is_none()
            && others.len() < MAX_CANDIDATES_PER_TRY
            && let Some(candidate) = self.release_candidates.pop_front()
        {
            match since(&candidate) {
                None => {}
                Some(since) if since <= cutoff => selected = Some(candidate),
                Some(_) => others.push(candidate),
            }
        }
        others.into_iter().rev().for_each(|candidate| self.release_candidates.push_front(candidate));
        selected
    }

    /// Selects the connections to release next. Each one belongs to the client that would have the most connections
    /// after the release of the previous ones.
    fn refill_release_candidates(&mut self, now: Instant) {
        let mut waiting = Vec::new();
        self.max_client_connections = 0;
        for (client, entry) in &self.clients {
            let count = entry.connections.len();
            if !entry.is_exempt {
                self.max_client_connections = self.max_client_connections.max(count);
            }
            let idle = entry.inactive_connections(now - MIN_LARGE_CLIENT_WAIT);
            for (released, (since, id)) in idle.into_iter().enumerate() {
                let remaining = if entry.is_exempt { 1 } else { count - released };
                waiting.push((Reverse(remaining), since, id, *client));
            }
        }
        waiting.sort_unstable_by_key(|(remaining, since, id, _)| (*remaining, *since, *id));
        waiting.truncate(MAX_RELEASE_CANDIDATES);
        self.release_candidates = waiting.into_iter().map(|(_, _, id, client)| (client, id)).collect();
        self.candidates_chosen_at = Some(now);
    }

    /// Removes the slot of a connection, and asks the connection to end. Returns false if the connection had no slot.
    fn try_release_connection(&mut self, client: ClientNetwork, id: u64) -> bool {
        let Some(state) = self.remove_connection(client, id) else { return false };
        self.closing_count += 1;
        self.released_connections.push_back(Arc::downgrade(&state));
        state.release_slot();
        metrics().released_connections.increment(1);
        true
    }

    fn expedite_oldest_close(&mut self) {
        while let Some(oldest) = self.released_connections.pop_front() {
            if let Some(state) = oldest.upgrade() {
                return state.expedite_close();
            }
        }
    }

    fn remove_connection(&mut self, client: ClientNetwork, id: u64) -> Option<Arc<ConnectionState>> {
        let entry = self.clients.get_mut(&client)?;
        let state = entry.connections.remove(&id)?;
        if entry.connections.is_empty() {
            self.clients.remove(&client);
        }
        self.open_count -= 1;
        Some(state)
    }
}

pub(super) struct ConnectionSlot {
    connections: Arc<ConnectionRegistry>,
    client: ClientNetwork,
    id: u64,
    pub state: Arc<ConnectionState>,
    /// The client's HTTP/2 requests in flight. `None` for a trusted proxy, which acts for many clients.
    pub client_requests: Option<Arc<ClientRequests>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        metrics().connections.decrement(1.0);
        let mut registry = self.connections.registry.lock();
        if registry.remove_connection(self.client, self.id).is_none() {
            registry.closing_count -= 1;
            // Closed connections are removed from the queue, so that it stays only slightly longer than the number of
            // released connections that are open.
            if registry.released_connections.len() > 2 * registry.closing_count + 16 {
                registry.released_connections.retain(|released| released.strong_count() > 1);
            }
        }
        drop(registry);
        self.connections.slot_freed.iter().for_each(Notify::notify_one);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use strata_config::{Config, TrustedProxies};

    fn new_registry(max_connections: usize, max_connections_per_client: usize) -> Arc<ConnectionRegistry> {
        let limits = ServerLimits {
            max_connections,
            max_connections_per_client,
            trusted_proxies: TrustedProxies::try_from(vec!["10.0.0.0/8".to_owned()]).expect("valid network"),
            ..ServerLimits::from(&Config::default())
        };
        ConnectionRegistry::new(Arc::new(limits), InFlightRequestLimit::new(1))
    }
    /// Admits a connection now or, if `later`, when all other connections have been idle long enough to be released.
    fn admit_peer(connections: &Arc<ConnectionRegistry>, peer: &str, later: bool) -> ConnectionAdmission {
        let now = Instant::now() + if later { MIN_CLIENT_WAIT * 2 } else { Duration::ZERO };
        connections.admit(peer.parse().expect(peer), now)
    }

    #[track_caller]
    fn expect_admitted(connections: &Arc<ConnectionRegistry>, peer: &str, later: bool) -> ConnectionSlot {
        match admit_peer(connections, peer, later) {
            ConnectionAdmission::Admitted(slot) => slot,
            ConnectionAdmission::ClientLimitReached => panic!("client {peer} has reached its limit"),
            ConnectionAdmission::Full { .. } => panic!("no slot for {peer}"),
        }
    }

    fn released_indexes(slots: &[ConnectionSlot]) -> BTreeSet<usize> {
        (0..slots.len()).filter(|index| slots[*index].state.is_closing()).collect()
    }

    #[test]
    fn client_at_its_limit_releases_its_own_connection() {
        let connections = new_registry(100, 2);
        let first = expect_admitted(&connections, "192.0.2.1", false);
        let busy = expect_admitted(&connections, "192.0.2.1", false);
        let request = busy.state.begin_request();
        assert!(matches!(admit_peer(&connections, "192.0.2.1", false), ConnectionAdmission::ClientLimitReached));
        let other = expect_admitted(&connections, "192.0.2.2", false);
        let third = expect_admitted(&connections, "192.0.2.1", true);
        assert_eq!(released_indexes(&[first, busy, other, third]), [0].into());
        drop(request);
    }

    #[test]
    fn ipv6_network_is_one_client_and_proxy_is_many() {
        let connections = new_registry(100, 1);
        let _first = expect_admitted(&connections, "2001:db8::1", false);
        assert!(matches!(admit_peer(&connections, "2001:db8::2", false), ConnectionAdmission::ClientLimitReached));
        let _other = expect_admitted(&connections, "2001:db8:0:1::1", false);
        let _proxied =
            [expect_admitted(&connections, "10.0.0.1", false), expect_admitted(&connections, "10.0.0.1", false)];
    }

    #[test]
    fn client_with_most_connections_makes_room() {
        let connections = new_registry(8, 0);
        // The only connection of the client 192.0.2.1 has been idle longest.
        let peers =
            ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"];
        let mut slots: Vec<_> = peers.iter().map(|peer| expect_admitted(&connections, peer, false)).collect();
        assert!(matches!(admit_peer(&connections, "192.0.2.3", false), ConnectionAdmission::Full { .. }));
        let busy = slots[2].state.begin_request();
        let newcomer = expect_admitted(&connections, "192.0.2.3", true);
        assert_eq!(released_indexes(&slots), [1].into());
        // Released connections count toward the limit until they are closed.
        assert!(matches!(admit_peer(&connections, "192.0.2.3", true), ConnectionAdmission::Full { .. }));
        slots[1] = newcomer;
        let _newcomer = expect_admitted(&connections, "192.0.2.3", true);
        assert_eq!(released_indexes(&slots), [3].into());
        drop(busy);
    }

    #[test]
    fn client_with_most_connections_waits() {
        let connections = new_registry(16, 0);
        let slots: Vec<_> = (0..16).map(|_| expect_admitted(&connections, "192.0.2.2", false)).collect();
        std::thread::sleep(MIN_LARGE_CLIENT_WAIT);
        assert!(matches!(
            admit_peer(&connections, "192.0.2.2", false),
            ConnectionAdmission::Full { is_large_client: true }
        ));
        let _newcomer = expect_admitted(&connections, "192.0.2.1", false);
        // If many connections are released, the oldest one is closed without a pause.
        let released = slots.iter().find(|slot| slot.state.is_closing()).expect("released connection");
        let _second = expect_admitted(&connections, "192.0.2.1", false);
        assert!(matches!(
            admit_peer(&connections, "192.0.2.1", false),
            ConnectionAdmission::Full { is_large_client: false }
        ));
        assert!(released.state.is_expedited());
    }

    #[test]
    fn busy_connections_are_not_released() {
        let connections = new_registry(2, 0);
        let slots =
            [expect_admitted(&connections, "192.0.2.1", false), expect_admitted(&connections, "192.0.2.2", false)];
        let requests = slots.each_ref().map(|slot| slot.state.begin_request());
        assert!(matches!(admit_peer(&connections, "192.0.2.3", true), ConnectionAdmission::Full { .. }));
        // An unread response is a wait for the client, and so is a request body that does not arrive.
        requests[1].start_response();
        std::thread::sleep(CANDIDATE_SEARCH_INTERVAL);
        let newcomer = expect_admitted(&connections, "192.0.2.3", true);
        assert_eq!(released_indexes(&slots), [1].into());
        drop((slots, newcomer));
        let connections = new_registry(2, 0);
        let slot = expect_admitted(&connections, "192.0.2.1", false);
        let other = expect_admitted(&connections, "192.0.2.2", false);
        let _busy = other.state.begin_request();
        let uploading = slot.state.begin_request();
        uploading.body_wait.set_body_wait_since(Some(Instant::now()));
        let _newcomer = expect_admitted(&connections, "192.0.2.3", true);
        assert!(slot.state.is_closing());
    }
}

//! The connections of a server: how many there can be in total and for one client, and which one makes room.
//!
//! - A client is an IPv4 address or an IPv6 network of 64 bits. At the limit of a client, its connection that has
//!   waited longest for it is released. If none waits, the new one is refused. Trusted proxies have no such limit,
//!   because they act for many clients.
//! - At the total limit, a connection that has waited for a while is released, of the client that has the most, so that
//!   a client with few connections does not pay for one with many. If none waits, the new connection waits outside of
//!   the accept queue, so that it blocks no other. The number of waiting connections is limited, separately for clients
//!   with about as many connections as any other. Further connections of such a client are refused.
//! - A released connection loses its place at once. It ends at once if it is idle, and otherwise after a short pause
//!   ([`ConnectionState::release`]), or earlier if many are released. So there can be a few more than the limit.
//!
//! `http::connections` fails without it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use strata_runtime::metrics::metrics;
use strata_service::Client;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::ServerLimits;
use super::connection_state::ConnectionState;
use super::http2_inflight::{ClientRequests, InFlightLimit};

/// The minimum wait for a client before its connection is released, because a request can be on its way.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The same, for a client that has far more connections than the new one.
const MIN_WAIT_OF_MANY: Duration = Duration::from_millis(100);

/// The minimum time between two searches through all connections.
const CHOICE_INTERVAL: Duration = Duration::from_millis(20);

const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Connections that a search chooses for release, and how many of them are checked for a new connection.
const CANDIDATES: usize = 256;
const CANDIDATES_PER_TRY: usize = 32;

/// The number of released connections that can still be open, if this many have a place.
pub(super) fn max_leaving(connections: usize) -> usize {
    (connections / 8).clamp(1, 512)
}

/// The number of connections of each kind that can wait for a place, and that can read why they get none.
pub(super) fn max_waiting(connections: usize) -> usize {
    (connections / 8).clamp(1, 64)
}

pub(super) struct Connections {
    requests: Arc<InFlightLimit>,
    limits: Arc<ServerLimits>,
    registry: Mutex<Registry>,
    /// Wake connections that wait for a place: those of clients with few connections, and those of clients with many.
    ended: [Notify; 2],
}

#[derive(Default)]
struct Registry {
    clients: HashMap<Client, ClientConnections>,
    next: u64,
    open: usize,
    /// Released connections that are still open.
    leaving: usize,
    /// Released connections, the oldest first. Some of them can be closed.
    released: VecDeque<Weak<ConnectionState>>,
    /// The connections to release next, in this order.
    chosen: VecDeque<(Client, u64)>,
    chosen_at: Option<Instant>,
    /// Connections of the client that had the most at that time.
    most: usize,
}

struct ClientConnections {
    exempt: bool,
    requests: Arc<ClientRequests>,
    connections: BTreeMap<u64, Arc<ConnectionState>>,
}

impl ClientConnections {
    /// The connections that wait for the client since before this time, the longest first.
    fn waiting(&self, until: Instant) -> Vec<(Instant, u64)> {
        let waiting = self.connections.iter().filter_map(|(id, state)| Some((state.waiting_since()?, *id)));
        let mut waiting: Vec<_> = waiting.filter(|(since, _)| *since <= until).collect();
        waiting.sort_unstable();
        waiting
    }
}

pub(super) enum Admission {
    Admitted(ConnectionPlace),
    /// The client has reached its limit, and none of its connections can be released.
    TooMany,
    Full {
        /// Whether the client has about as many connections as any other.
        many: bool,
    },
}

impl Connections {
    pub(super) fn new(limits: Arc<ServerLimits>, requests: Arc<InFlightLimit>) -> Arc<Connections> {
        Arc::new(Connections { requests, limits, registry: Mutex::default(), ended: Default::default() })
    }

    /// Waits for a place. `None` if the client has reached its limit.
    pub(super) async fn wait(self: &Arc<Self>, peer: IpAddr, is_of_many: bool) -> Option<ConnectionPlace> {
        loop {
            match self.admit(peer, Instant::now()) {
                Admission::Admitted(place) => return Some(place),
                Admission::TooMany => return None,
                Admission::Full { .. } => self.ended(RETRY_DELAY, is_of_many).await,
            }
        }
    }

    /// Releases a connection that waits for its client, regardless of the limits. False if there is none.
    pub(super) fn release_one(&self) -> bool {
        let mut registry = self.lock();
        let candidate = registry.candidate(Instant::now(), MIN_WAIT);
        candidate.is_some_and(|(client, id)| registry.release(client, id))
    }

    /// Waits until a connection has ended, up to this time.
    pub(super) async fn ended(&self, at_most: Duration, is_of_many: bool) {
        let _ = timeout(at_most, self.ended[usize::from(is_of_many)].notified()).await;
    }

    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, now: Instant) -> Admission {
        let ServerLimits { connections: all, connections_per_client: per_client, .. } = &*self.limits;
        let client = Client::from(peer);
        let exempt = self.limits.trusted_proxies.contain(peer);
        let mut registry = self.lock();
        let held = registry.clients.get(&client);
        let count = held.map_or(0, |held| held.connections.len());
        if *per_client > 0 && !exempt && count >= *per_client {
            let waiting = held.map(|held| held.waiting(now - MIN_WAIT)).unwrap_or_default();
            let Some((_, id)) = waiting.first().copied() else { return Admission::TooMany };
            registry.release(client, id);
        }
        let few = exempt || 2 * count + 8 < registry.most;
        let full = Admission::Full { many: !few && count > 0 };
        if registry.open + registry.leaving >= all + max_leaving(*all) {
            registry.hurry_one();
            return full;
        }
        if registry.open >= *all {
            let at_least = if few { MIN_WAIT_OF_MANY } else { MIN_WAIT };
            let Some((client, id)) = registry.candidate(now, at_least) else { return full };
            registry.release(client, id);
        }
        let id = registry.next;
        registry.next += 1;
        registry.open += 1;
        let state = ConnectionState::new(self.limits.clone());
        let new = || ClientConnections { exempt, requests: self.requests.client(), connections: BTreeMap::new() };
        let held = registry.clients.entry(client).or_insert_with(new);
        held.exempt = exempt;
        held.connections.insert(id, state.clone());
        let requests = (!exempt).then(|| held.requests.clone());
        metrics().connections.increment(1.0);
        Admission::Admitted(ConnectionPlace { connections: self.clone(), client, id, state, requests })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// The connection to release next, which has waited for its client for at least this time.
    fn candidate(&mut self, now: Instant, at_least: Duration) -> Option<(Client, u64)> {
        let age = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        if age(self.chosen_at).is_none_or(|age| age > MIN_WAIT) {
            self.choose(now);
        }
        let found = self.chosen_candidate(now - at_least);
        if found.is_some() || age(self.chosen_at).is_some_and(|age| age < CHOICE_INTERVAL) {
            return found;
        }
        self.choose(now);
        self.chosen_candidate(now - at_least)
    }

    /// The first chosen connection that has waited since before this time. Only the first ones are checked, because the
    /// others have waited for less.
    fn chosen_candidate(&mut self, until: Instant) -> Option<(Client, u64)> {
        let clients = &self.clients;
        let since = |(client, id): &(Client, u64)| clients.get(client)?.connections.get(id)?.waiting_since();
        let mut found = None;
        let mut others = Vec::new();
        while found.is_none()
            && others.len() < CANDIDATES_PER_TRY
            && let Some(chosen) = self.chosen.pop_front()
        {
            match since(&chosen) {
                None => {}
                Some(since) if since <= until => found = Some(chosen),
                Some(_) => others.push(chosen),
            }
        }
        others.into_iter().rev().for_each(|chosen| self.chosen.push_front(chosen));
        found
    }

    /// Chooses the connections to release next: one after the other from the client that then has the most.
    fn choose(&mut self, now: Instant) {
        let mut waiting = Vec::new();
        self.most = 0;
        for (client, held) in &self.clients {
            let count = held.connections.len();
            if !held.exempt {
                self.most = self.most.max(count);
            }
            for (place, (since, id)) in held.waiting(now - MIN_WAIT_OF_MANY).into_iter().enumerate() {
                let left = if held.exempt { 1 } else { count - place };
                waiting.push((Reverse(left), since, id, *client));
            }
        }
        waiting.sort_unstable_by_key(|(left, since, id, _)| (*left, *since, *id));
        waiting.truncate(CANDIDATES);
        self.chosen = waiting.into_iter().map(|(_, _, id, client)| (client, id)).collect();
        self.chosen_at = Some(now);
    }

    /// Takes the place of a connection, and asks it to end. False if it had none.
    fn release(&mut self, client: Client, id: u64) -> bool {
        let Some(state) = self.remove(client, id) else { return false };
        self.leaving += 1;
        self.released.push_back(Arc::downgrade(&state));
        state.release();
        metrics().released_connections.increment(1);
        true
    }

    fn hurry_one(&mut self) {
        while let Some(oldest) = self.released.pop_front() {
            if let Some(state) = oldest.upgrade() {
                return state.expedite();
            }
        }
    }

    fn remove(&mut self, client: Client, id: u64) -> Option<Arc<ConnectionState>> {
        let held = self.clients.get_mut(&client)?;
        let state = held.connections.remove(&id)?;
        if held.connections.is_empty() {
            self.clients.remove(&client);
        }
        self.open -= 1;
        Some(state)
    }
}

/// The place of a connection, which counts as open until this is dropped.
pub(super) struct ConnectionPlace {
    connections: Arc<Connections>,
    client: Client,
    id: u64,
    pub state: Arc<ConnectionState>,
    /// The HTTP/2 requests of its client; `None` for a trusted proxy, which acts for many clients.
    pub requests: Option<Arc<ClientRequests>>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        metrics().connections.decrement(1.0);
        let mut registry = self.connections.lock();
        if registry.remove(self.client, self.id).is_none() {
            registry.leaving -= 1;
            // There are only a few more entries than released connections.
            if registry.released.len() > 2 * registry.leaving + 16 {
                registry.released.retain(|released| released.strong_count() > 1);
            }
        }
        drop(registry);
        self.connections.ended.iter().for_each(Notify::notify_one);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use strata_config::{Config, TrustedProxies};

    fn connections(all: usize, per_client: usize) -> Arc<Connections> {
        let limits = ServerLimits {
            connections: all,
            connections_per_client: per_client,
            trusted_proxies: TrustedProxies::try_from(vec!["10.0.0.0/8".to_owned()]).expect("a network"),
            ..ServerLimits::from(&Config::default())
        };
        Connections::new(Arc::new(limits), InFlightLimit::new(1))
    }

    /// What becomes of a connection of the peer, at a time when all others have been there for long or have just come.
    fn admission(connections: &Arc<Connections>, peer: &str, later: bool) -> Admission {
        let now = Instant::now() + if later { MIN_WAIT * 2 } else { Duration::ZERO };
        connections.admit(peer.parse().expect(peer), now)
    }

    #[track_caller]
    fn admitted(connections: &Arc<Connections>, peer: &str, later: bool) -> ConnectionPlace {
        match admission(connections, peer, later) {
            Admission::Admitted(place) => place,
            Admission::TooMany => panic!("{peer} has too many"),
            Admission::Full { .. } => panic!("no room for {peer}"),
        }
    }

    fn released(places: &[ConnectionPlace]) -> BTreeSet<usize> {
        (0..places.len()).filter(|at| places[*at].state.is_leaving()).collect()
    }

    #[test]
    fn client_at_its_limit_releases_its_own_connection() {
        let connections = connections(100, 2);
        let first = admitted(&connections, "192.0.2.1", false);
        let busy = admitted(&connections, "192.0.2.1", false);
        let request = busy.state.begin();
        assert!(matches!(admission(&connections, "192.0.2.1", false), Admission::TooMany));
        let other = admitted(&connections, "192.0.2.2", false);
        let third = admitted(&connections, "192.0.2.1", true);
        assert_eq!(released(&[first, busy, other, third]), [0].into());
        drop(request);
    }

    #[test]
    fn ipv6_network_is_one_client_and_proxy_is_many() {
        let connections = connections(100, 1);
        let _first = admitted(&connections, "2001:db8::1", false);
        assert!(matches!(admission(&connections, "2001:db8::2", false), Admission::TooMany));
        let _other = admitted(&connections, "2001:db8:0:1::1", false);
        let _proxied = [admitted(&connections, "10.0.0.1", false), admitted(&connections, "10.0.0.1", false)];
    }

    #[test]
    fn client_with_most_connections_makes_room() {
        let connections = connections(8, 0);
        // The honest one has been idle longest.
        let peers =
            ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"];
        let mut places: Vec<_> = peers.iter().map(|peer| admitted(&connections, peer, false)).collect();
        assert!(matches!(admission(&connections, "192.0.2.3", false), Admission::Full { .. }));
        let busy = places[2].state.begin();
        let newcomer = admitted(&connections, "192.0.2.3", true);
        assert_eq!(released(&places), [1].into());
        // Those that lost their place still leave.
        assert!(matches!(admission(&connections, "192.0.2.3", true), Admission::Full { .. }));
        places[1] = newcomer;
        let _newcomer = admitted(&connections, "192.0.2.3", true);
        assert_eq!(released(&places), [3].into());
        drop(busy);
    }

    #[test]
    fn client_with_most_connections_waits() {
        let connections = connections(16, 0);
        let _held: Vec<_> = (0..16).map(|_| admitted(&connections, "192.0.2.2", false)).collect();
        std::thread::sleep(MIN_WAIT_OF_MANY);
        assert!(matches!(admission(&connections, "192.0.2.2", false), Admission::Full { many: true }));
        let _newcomer = admitted(&connections, "192.0.2.1", false);
        // Those that leave are hurried where many do.
        let leaving = _held.iter().find(|place| place.state.is_leaving()).expect("one is released");
        let _second = admitted(&connections, "192.0.2.1", false);
        assert!(matches!(admission(&connections, "192.0.2.1", false), Admission::Full { many: false }));
        assert!(leaving.state.is_expedited());
    }

    #[test]
    fn busy_connections_are_not_released() {
        let connections = connections(2, 0);
        let places = [admitted(&connections, "192.0.2.1", false), admitted(&connections, "192.0.2.2", false)];
        let requests = places.each_ref().map(|place| place.state.begin());
        assert!(matches!(admission(&connections, "192.0.2.3", true), Admission::Full { .. }));
        // An answer that is not taken is the client's turn, and so is a body that does not come.
        requests[1].start_response();
        std::thread::sleep(CHOICE_INTERVAL);
        let newcomer = admitted(&connections, "192.0.2.3", true);
        assert_eq!(released(&places), [1].into());
        drop((places, newcomer));
        let connections = self::connections(2, 0);
        let place = admitted(&connections, "192.0.2.1", false);
        let _other = admitted(&connections, "192.0.2.2", false);
        let _busy = _other.state.begin();
        let uploading = place.state.begin();
        uploading.turn.set(Some(Instant::now()));
        let _newcomer = admitted(&connections, "192.0.2.3", true);
        assert!(place.state.is_leaving());
    }
}

//! All connections of a server: how many there may be, in all and of one client, and which one makes room for another.
//!
//! - A client is an IPv4 address or an IPv6 network of 64 bits. One that has as many connections as it may makes room
//!   by itself: the connection on which it has been its turn longest is released; where there is none, the new one is
//!   refused. Trusted proxies, which speak for many, have no such limit.
//! - Where there are as many as there may be in all, one is released on which it has been the client's turn for a
//!   while: one of the client that has most of them, so that nobody who has few pays for somebody who has many. Where
//!   there is none, the new one waits, outside of the system's queue, so that nobody waits behind it. Only some can
//!   wait, and as many of clients that have about as many connections as any; further ones of such a client are
//!   refused.
//! - A released connection has lost its place at once. An idle one ends at once, too; any other is cut after a short
//!   pause ([`Activity::release`]), or earlier when many are released. So there may be a few more than the limit.

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
use super::activity::Activity;
use super::requests::{OfClient, Requests};

/// How long it must have been the client's turn before its connection is released: a request may be on its way.
const WAITING_AT_LEAST: Duration = Duration::from_secs(1);

/// The same, for a client that has far more connections than the one that comes.
const WAITING_OF_MANY: Duration = Duration::from_millis(100);

/// How often all connections are looked through at most.
const CHOICE_PAUSE: Duration = Duration::from_millis(20);

/// How often one that waits looks for a connection to release.
const RETRY: Duration = Duration::from_millis(50);

/// How many connections are chosen at once to be released next, and how many of them are looked at for one that comes.
const CHOSEN: usize = 256;
const LOOKED_AT: usize = 32;

/// Connections that may leave while as many as this have a place.
pub(super) fn leaving_at_most(connections: usize) -> usize {
    (connections / 8).clamp(1, 512)
}

/// Connections of each kind that may wait for a place, and those that may read why they get none.
pub(super) fn outside_at_most(connections: usize) -> usize {
    (connections / 8).clamp(1, 64)
}

pub(super) struct Connections {
    requests: Arc<Requests>,
    limits: Arc<ServerLimits>,
    registry: Mutex<Registry>,
    /// Tell those that wait for a place that one has ended: of clients that have few, and of those that have many.
    ended: [Notify; 2],
}

#[derive(Default)]
struct Registry {
    clients: HashMap<Client, Held>,
    next: u64,
    open: usize,
    /// Connections that have lost theirs and are not yet gone.
    leaving: usize,
    /// Those that leave, the oldest first; some may be gone.
    released: VecDeque<Weak<Activity>>,
    /// Those to be released next, chosen at that time.
    chosen: VecDeque<(Client, u64)>,
    chosen_at: Option<Instant>,
    /// Connections of the client that had most then.
    most: usize,
}

struct Held {
    exempt: bool,
    requests: Arc<OfClient>,
    connections: BTreeMap<u64, Arc<Activity>>,
}

impl Held {
    /// The connections on which it has been the client's turn for long enough, the longest first.
    fn waiting(&self, until: Instant) -> Vec<(Instant, u64)> {
        let waiting = self.connections.iter().filter_map(|(id, activity)| Some((activity.waiting_since()?, *id)));
        let mut waiting: Vec<_> = waiting.filter(|(since, _)| *since <= until).collect();
        waiting.sort_unstable();
        waiting
    }
}

pub(super) enum Admission {
    Admitted(Place),
    /// Its client has as many as it may, and none of them can be released.
    TooMany,
    Full {
        /// Its client has about as many connections as any, so that others come first.
        many: bool,
    },
}

impl Connections {
    pub(super) fn new(limits: Arc<ServerLimits>, requests: Arc<Requests>) -> Arc<Connections> {
        Arc::new(Connections { requests, limits, registry: Mutex::default(), ended: Default::default() })
    }

    /// A place for a connection of this peer, as soon as there is one; `None` when its client has as many as it may.
    pub(super) async fn wait(self: &Arc<Self>, peer: IpAddr, is_of_many: bool) -> Option<Place> {
        loop {
            match self.admit(peer, Instant::now()) {
                Admission::Admitted(place) => return Some(place),
                Admission::TooMany => return None,
                // Whether one has ended or not, looking again finds out.
                Admission::Full { .. } => self.ended(RETRY, is_of_many).await,
            }
        }
    }

    /// Releases a connection on which it is the client's turn, whatever the bounds; whether there was one.
    pub(super) fn release_one(&self) -> bool {
        let mut registry = self.lock();
        let candidate = registry.candidate(Instant::now(), WAITING_AT_LEAST);
        candidate.is_some_and(|(client, id)| registry.release(client, id))
    }

    /// Waits until a connection has ended, or for so long.
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
            let waiting = held.map(|held| held.waiting(now - WAITING_AT_LEAST)).unwrap_or_default();
            let Some((_, id)) = waiting.first().copied() else { return Admission::TooMany };
            registry.release(client, id);
        }
        let few = exempt || 2 * count + 8 < registry.most;
        let full = Admission::Full { many: !few && count > 0 };
        if registry.open + registry.leaving >= all + leaving_at_most(*all) {
            registry.hurry_one();
            return full;
        }
        if registry.open >= *all {
            let at_least = if few { WAITING_OF_MANY } else { WAITING_AT_LEAST };
            let Some((client, id)) = registry.candidate(now, at_least) else { return full };
            registry.release(client, id);
        }
        let id = registry.next;
        registry.next += 1;
        registry.open += 1;
        let activity = Activity::new(self.limits.clone());
        let new = || Held { exempt, requests: self.requests.client(), connections: BTreeMap::new() };
        let held = registry.clients.entry(client).or_insert_with(new);
        held.exempt = exempt;
        held.connections.insert(id, activity.clone());
        let requests = (!exempt).then(|| held.requests.clone());
        metrics().connections.increment(1.0);
        Admission::Admitted(Place { connections: self.clone(), client, id, activity, requests })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// The connection to be released next, on which it has been the client's turn for so long.
    fn candidate(&mut self, now: Instant, at_least: Duration) -> Option<(Client, u64)> {
        let age = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        if age(self.chosen_at).is_none_or(|age| age > WAITING_AT_LEAST) {
            self.choose(now);
        }
        let found = self.chosen_candidate(now - at_least);
        if found.is_some() || age(self.chosen_at).is_some_and(|age| age < CHOICE_PAUSE) {
            return found;
        }
        self.choose(now);
        self.chosen_candidate(now - at_least)
    }

    /// The first of those chosen on which it has been the client's turn since then, among the first ones: those after
    /// them have waited for less. Others stay chosen.
    fn chosen_candidate(&mut self, until: Instant) -> Option<(Client, u64)> {
        let clients = &self.clients;
        let since = |(client, id): &(Client, u64)| clients.get(client)?.connections.get(id)?.waiting_since();
        let mut found = None;
        let mut others = Vec::new();
        while found.is_none()
            && others.len() < LOOKED_AT
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

    /// Chooses those to be released next, as if one after the other were taken from the client that then has most.
    fn choose(&mut self, now: Instant) {
        let mut waiting = Vec::new();
        self.most = 0;
        for (client, held) in &self.clients {
            let count = held.connections.len();
            if !held.exempt {
                self.most = self.most.max(count);
            }
            for (place, (since, id)) in held.waiting(now - WAITING_OF_MANY).into_iter().enumerate() {
                let left = if held.exempt { 1 } else { count - place };
                waiting.push((Reverse(left), since, id, *client));
            }
        }
        waiting.sort_unstable_by_key(|(left, since, id, _)| (*left, *since, *id));
        waiting.truncate(CHOSEN);
        self.chosen = waiting.into_iter().map(|(_, _, id, client)| (client, id)).collect();
        self.chosen_at = Some(now);
    }

    /// Takes the place of a connection, and asks it to end; whether it had one.
    fn release(&mut self, client: Client, id: u64) -> bool {
        let Some(activity) = self.remove(client, id) else { return false };
        self.leaving += 1;
        self.released.push_back(Arc::downgrade(&activity));
        activity.release();
        metrics().released_connections.increment(1);
        true
    }

    fn hurry_one(&mut self) {
        while let Some(oldest) = self.released.pop_front() {
            if let Some(activity) = oldest.upgrade() {
                return activity.hurry();
            }
        }
    }

    fn remove(&mut self, client: Client, id: u64) -> Option<Arc<Activity>> {
        let held = self.clients.get_mut(&client)?;
        let activity = held.connections.remove(&id)?;
        if held.connections.is_empty() {
            self.clients.remove(&client);
        }
        self.open -= 1;
        Some(activity)
    }
}

/// The place of one connection, which counts as open until this is dropped.
pub(super) struct Place {
    connections: Arc<Connections>,
    client: Client,
    id: u64,
    pub activity: Arc<Activity>,
    /// The requests of its client in flight over HTTP/2; `None` for a trusted proxy, which speaks for many.
    pub requests: Option<Arc<OfClient>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics().connections.decrement(1.0);
        let mut registry = self.connections.lock();
        if registry.remove(self.client, self.id).is_none() {
            registry.leaving -= 1;
            // So that there are never more entries than connections that leave, but for a few.
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
        Connections::new(Arc::new(limits), Requests::new(1))
    }

    /// What becomes of a connection of the peer, at a time when all others have been there for long or have just come.
    fn admission(connections: &Arc<Connections>, peer: &str, later: bool) -> Admission {
        let now = Instant::now() + if later { WAITING_AT_LEAST * 2 } else { Duration::ZERO };
        connections.admit(peer.parse().expect(peer), now)
    }

    #[track_caller]
    fn admitted(connections: &Arc<Connections>, peer: &str, later: bool) -> Place {
        match admission(connections, peer, later) {
            Admission::Admitted(place) => place,
            Admission::TooMany => panic!("{peer} has too many"),
            Admission::Full { .. } => panic!("no room for {peer}"),
        }
    }

    fn released(places: &[Place]) -> BTreeSet<usize> {
        (0..places.len()).filter(|at| places[*at].activity.is_leaving()).collect()
    }

    #[test]
    fn a_client_with_too_many_makes_room_by_itself() {
        let connections = connections(100, 2);
        let first = admitted(&connections, "192.0.2.1", false);
        let busy = admitted(&connections, "192.0.2.1", false);
        let request = busy.activity.begin();
        assert!(matches!(admission(&connections, "192.0.2.1", false), Admission::TooMany));
        let other = admitted(&connections, "192.0.2.2", false);
        let third = admitted(&connections, "192.0.2.1", true);
        assert_eq!(released(&[first, busy, other, third]), [0].into());
        drop(request);
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_trusted_proxy_many() {
        let connections = connections(100, 1);
        let _first = admitted(&connections, "2001:db8::1", false);
        assert!(matches!(admission(&connections, "2001:db8::2", false), Admission::TooMany));
        let _other = admitted(&connections, "2001:db8:0:1::1", false);
        let _proxied = [admitted(&connections, "10.0.0.1", false), admitted(&connections, "10.0.0.1", false)];
    }

    #[test]
    fn who_has_most_makes_room_for_others() {
        let connections = connections(8, 0);
        // The honest one has been idle longest.
        let peers =
            ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"];
        let mut places: Vec<_> = peers.iter().map(|peer| admitted(&connections, peer, false)).collect();
        assert!(matches!(admission(&connections, "192.0.2.3", false), Admission::Full { .. }));
        let busy = places[2].activity.begin();
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
    fn who_has_most_waits_and_others_do_not() {
        let connections = connections(16, 0);
        let _held: Vec<_> = (0..16).map(|_| admitted(&connections, "192.0.2.2", false)).collect();
        std::thread::sleep(WAITING_OF_MANY);
        assert!(matches!(admission(&connections, "192.0.2.2", false), Admission::Full { many: true }));
        let _newcomer = admitted(&connections, "192.0.2.1", false);
        // Those that leave are hurried where many do.
        let leaving = _held.iter().find(|place| place.activity.is_leaving()).expect("one is released");
        let _second = admitted(&connections, "192.0.2.1", false);
        assert!(matches!(admission(&connections, "192.0.2.1", false), Admission::Full { many: false }));
        assert!(leaving.activity.is_hurried());
    }

    #[test]
    fn nobody_is_released_while_the_service_works_for_all() {
        let connections = connections(2, 0);
        let places = [admitted(&connections, "192.0.2.1", false), admitted(&connections, "192.0.2.2", false)];
        let requests = places.each_ref().map(|place| place.activity.begin());
        assert!(matches!(admission(&connections, "192.0.2.3", true), Admission::Full { .. }));
        // An answer that is not taken is the client's turn, and so is a body that does not come.
        requests[1].answers();
        std::thread::sleep(CHOICE_PAUSE);
        let newcomer = admitted(&connections, "192.0.2.3", true);
        assert_eq!(released(&places), [1].into());
        drop((places, newcomer));
        let connections = self::connections(2, 0);
        let place = admitted(&connections, "192.0.2.1", false);
        let _other = admitted(&connections, "192.0.2.2", false);
        let _busy = _other.activity.begin();
        let uploading = place.activity.begin();
        uploading.turn.set(Some(Instant::now()));
        let _newcomer = admitted(&connections, "192.0.2.3", true);
        assert!(place.activity.is_leaving());
    }
}

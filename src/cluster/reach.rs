//! Which servers take connections. One that does not is lost at once, whatever the list of the living says: it changes
//! late, and not at all without the catalog.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

/// Connections in a row that come too late until a server is lost. One that is refused is enough.
const LATE: u32 = 3;

/// How long a server counts as lost that took no connection.
const LOST_FOR: Duration = Duration::from_secs(10);

/// Who has tried a connection, has tried it for all others for so long.
const TRIED_FOR: Duration = Duration::from_millis(500);

/// What is known of connections to servers, by name.
#[derive(Debug, Default)]
pub(super) struct Reach {
    servers: Mutex<HashMap<String, Reached>>,
}

/// What is known of connections to a server.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// When one was last tried.
    tried: Option<Instant>,
    /// How many of late came too late.
    late: u32,
    /// Since when it is lost.
    lost: Option<Instant>,
}

/// What a connection that was tried says of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Connected,
    Late,
    Refused,
    /// Nothing: the trouble is this server's, or came later.
    Unknown,
}

impl Tried {
    fn of(error: &io::Error) -> Tried {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Tried::Refused
            }
            io::ErrorKind::TimedOut => Tried::Late,
            _ => Tried::Unknown,
        }
    }

    /// What a request says that failed.
    pub(super) fn of_request(error: &reqwest::Error) -> Tried {
        if !error.is_connect() {
            return Tried::Unknown;
        }
        if error.is_timeout() {
            return Tried::Late;
        }
        let sources = std::iter::successors(error.source(), |error| (*error).source());
        sources.filter_map(|error| error.downcast_ref::<io::Error>()).last().map_or(Tried::Unknown, Tried::of)
    }
}

impl Reach {
    /// Whether a server took no connection a short while ago.
    pub(super) fn is_lost(&self, name: &str) -> bool {
        let lost = self.servers().get(name).and_then(|known| known.lost);
        lost.is_some_and(|since| since.elapsed() < LOST_FOR)
    }

    /// Tries a connection, unless somebody has just done so.
    pub(super) async fn look_after(&self, name: &str, address: &str, within: Duration) {
        if !self.is_due(name) {
            return;
        }
        let tried = match tokio::time::timeout(within, TcpStream::connect(address)).await {
            Ok(Ok(_)) => Tried::Connected,
            Ok(Err(error)) => Tried::of(&error),
            Err(_) => Tried::Late,
        };
        self.note(name, tried);
    }

    /// Whether a connection is to be tried, by who asks.
    fn is_due(&self, name: &str) -> bool {
        let mut servers = self.servers();
        let known = servers.entry(name.to_owned()).or_default();
        let is_due = known.tried.is_none_or(|tried| tried.elapsed() >= TRIED_FOR);
        if is_due {
            known.tried = Some(Instant::now());
        }
        is_due
    }

    /// Notes what a connection says.
    pub(super) fn note(&self, name: &str, tried: Tried) {
        let mut servers = self.servers();
        servers.retain(|_, known| known.tried.is_some_and(|tried| tried.elapsed() < 2 * LOST_FOR));
        let known = servers.entry(name.to_owned()).or_default();
        known.tried = Some(Instant::now());
        match tried {
            Tried::Connected => (known.late, known.lost) = (0, None),
            Tried::Late => known.late += 1,
            Tried::Refused => known.late = LATE,
            Tried::Unknown => {}
        }
        if known.late >= LATE {
            tracing::warn!(node = name, "a server takes no connections");
            (known.late, known.lost) = (0, Some(Instant::now()));
        }
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<String, Reached>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_is_late_now_and_then_is_not_lost() {
        let reach = Reach::default();
        for tried in [Tried::Late, Tried::Late, Tried::Connected, Tried::Unknown, Tried::Late, Tried::Late] {
            reach.note("n1", tried);
            assert!(!reach.is_lost("n1"), "{tried:?}");
        }
        reach.note("n1", Tried::Late);
        assert!(reach.is_lost("n1") && !reach.is_lost("n2"));
        reach.note("n1", Tried::Connected);
        assert!(!reach.is_lost("n1"));
        reach.note("n1", Tried::Refused);
        assert!(reach.is_lost("n1"));
    }

    #[tokio::test]
    async fn one_connection_is_tried_for_all_who_ask() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let reach = Reach::default();
        reach.look_after("n1", &address, LOST_FOR).await;
        listener.accept().await.expect("tried");
        drop(listener);
        reach.look_after("n2", &address, LOST_FOR).await;
        assert!(!reach.is_lost("n1") && reach.is_lost("n2"));
        assert!(reach.is_due("n3") && !reach.is_due("n3"));
    }
}

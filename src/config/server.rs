//! `[server]`: listen address, connections, and roles.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use strata_types::node::NodeRoles;
use url::Url;

use super::option::{checked_type, section};

section! {
    /// Listen address, connections, and roles of the process.
    HttpServerConfig in "server" {
        /// Address and port to listen on, such as `127.0.0.1:8080`, `[::1]:8080`, or `localhost:8080`. Port 0 selects
        /// any free port.
        listen: ListenAddress = ListenAddress("127.0.0.1:8080".to_owned());
        /// Maximum time in seconds for in-flight requests to finish after SIGTERM, SIGINT, or SIGHUP. After that,
        /// strata closes their connections.
        drain_s: u64 = 30, within 0..=3_600;
        /// Maximum time in seconds for a client to send a request head. The same limit applies to idle connections.
        header_timeout_s: u64 = 15, within 1..=3_600;
        /// Proxies whose `X-Forwarded-For` or `Forwarded` headers strata trusts. Each entry is an address or a network,
        /// such as `10.0.0.0/8` or `2001:db8::/32`.
        trusted_proxies: TrustedProxies = TrustedProxies::default();
        /// URL at which clients reach the service, such as `https://data.example.org`. Ping URLs start with this URL,
        /// and strata accepts browser requests from the origin of this URL. If the scheme is `https`, session cookies
        /// are `Secure`. If this option is not set, strata determines the URL for each request from the `Host` header
        /// and from the scheme that a trusted proxy reports.
        public_url: Option<PublicUrl> = None;
        /// Host names that requests to `/mcp` can send in `Host` and `Origin`, such as `strata.internal`. In `Host`,
        /// strata also accepts IP addresses, `localhost`, and the hosts of `server.public_url` and `server.listen`. In
        /// `Origin`, it also accepts `server.public_url`, and the host and port in `Host`.
        allowed_hosts: HostNames = HostNames::default();
        /// Maximum number of concurrent connections. The limit is lower if the process cannot open enough files. When
        /// the limit is reached, each new connection replaces an open connection that is waiting for its client. strata
        /// chooses the client with the most connections, and closes the connection that has waited longest for that
        /// client. If no connection is waiting for its client, the new connection waits.
        connections: u64 = 4_096, within 1..=1_000_000;
        /// Maximum number of concurrent connections per client (an IPv4 address or a 64-bit IPv6 network). If a client
        /// exceeds the limit, strata closes the client's connection that has been idle the longest. If no connection is
        /// idle, the new connection receives 503. The limit does not apply to `server.trusted_proxies`. 0 disables the
        /// limit.
        connections_per_client: u64 = 512, within 0..=1_000_000;
        /// Maximum size in bytes of a request head.
        header_bytes: u64 = 128 << 10, within 8_192..=16 << 20;
        /// Maximum number of concurrent requests on one HTTP/2 connection.
        concurrent_streams: u64 = 128, within 1..=10_000;
        /// Interval in seconds between HTTP/2 pings, which detect disconnected clients. The client must respond within
        /// one interval, or within `server.write_stall_s` seconds if that is longer.
        keep_alive_s: u64 = 30, within 1..=3_600;
        /// Time in seconds within which a client must read at least 16 KiB of the available response bytes, or all of
        /// the available bytes if there are fewer. Otherwise, strata closes the connection.
        write_stall_s: u64 = 60, within 1..=3_600;
        /// Maximum time in seconds to send a response, from its head to its last byte. After that, strata stops
        /// sending. If the client then takes longer than `server.write_stall_s` seconds to read the bytes already sent,
        /// strata closes the connection.
        answer_timeout_s: u64 = 3_600, within 1..=604_800;
        /// Time in seconds after SIGTERM, SIGINT, or SIGHUP during which strata still accepts requests but `/readyz`
        /// returns 503. This delay gives a load balancer time to react.
        drain_notice_s: u64 = 0, within 0..=3_600;
        /// Time in seconds after `server.drain_notice_s` during which a client can send one more request on an idle
        /// connection. Requests that are already on their way therefore still receive a response.
        drain_idle_s: u64 = 2, within 0..=3_600;
        /// Time in seconds for which strata reuses the result of a `/readyz` probe. A probe performs one small write to
        /// the metadata database and one to the store. Further `/readyz` requests during this time do not cause any
        /// writes.
        ready_probe_s: u64 = 2, within 1..=60;
        /// Roles of the process: `http` (serve requests), `refresh` (run schedules, create versions, send webhooks,
        /// sweep, and scrub), and `query` (run parts of large queries, including the queries of other processes).
        /// Without `http`, all paths except `/healthz`, `/readyz`, and `/metrics` return 503. Without `refresh`, calls
        /// that create versions return 503.
        roles: NodeRoles = NodeRoles::all();
        /// Whether the process runs schedules, sends webhooks, performs sweeps and scrubs, and builds exports in
        /// advance. If false, the process only serves requests, and pending work stays pending. You can then run the
        /// process on a copy of the data alongside the original process. `serve --no-background` sets this option to
        /// false.
        background: bool = true;
        /// Whether the process serves the dashboard at `/` and under `/ui/`. If false, these paths return 404.
        dashboard: bool = true;
    }
}

checked_type! {
    /// The networks of trusted proxies. A network of IPv4-mapped addresses (`::ffff:10.0.0.0/104`) is stored as IPv4.
    #[derive(Debug, Default, Eq)]
    TrustedProxies(Vec<IpNet>) from Vec<String>, |texts| texts.iter().map(|text| parse_network(text)).collect()
}

impl TrustedProxies {
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses a network, or an address as a network of one address.
fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| {
        format!(
            "{text:?} is not an address or a network; expected a value such as 192.0.2.7, 10.0.0.0/8, or 2001:db8::/32"
        )
    })?;
    Ok(match (network.addr().to_canonical(), network.prefix_len()) {
        (IpAddr::V4(address), length @ 96..) => Ipv4Net::new(address, length - 96).map_or(network, IpNet::V4),
        _ => network,
    })
}

checked_type! {
    #[derive(Debug, Default, Eq)]
    HostNames(Vec<String>) from Vec<String>, |texts| {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        match texts.iter().find(|text| text.is_empty() || !is_name(text)) {
            None => Ok(texts),
            Some(text) => {
                Err(format!("{text:?} is invalid; expected a host name without a port, such as data.example.org"))
            }
        }
    }
}

impl HostNames {
    /// Compares host names case-insensitively.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The `server.public_url`: a URL with a host and optional port and path, but no user, query, fragment, or final slash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PublicUrl {
    text: String,
    origin: String,
    host: String,
}

impl PublicUrl {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Scheme, host and port, as browsers send them in `Origin`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is invalid; expected an http or https URL without a query, such as https://data.example.org"
            )
        };
        let url = Url::parse(&text).map_err(|_| wrong())?;
        let plain = url.username().is_empty() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !plain || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong());
        }
        let origin = url.origin().ascii_serialization();
        let host = url.host_str().ok_or_else(wrong)?.to_owned();
        Ok(Self { text: url.as_str().trim_end_matches('/').to_owned(), origin, host })
    }
}

checked_type! {
    /// A host name, an IPv4 address, or an IPv6 address in brackets, and a port from 0 to 65535.
    #[derive(Debug, Eq)]
    ListenAddress(String) from String => as_str -> str, |text| {
        let valid = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            !host.is_empty() && (bracketed || !host.contains([':', '/'])) && digits && port.parse::<u16>().is_ok()
        });
        match valid {
            true => Ok(text),
            false => {
                Err(format!("{text:?} is invalid; expected an address and a port, such as 127.0.0.1:8080 or [::1]:8080"))
            }
        }
    }
}

impl ListenAddress {
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&*self.0, |(host, _)| host)
    }

    pub fn has_port_zero(&self) -> bool {
        self.0.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0_u16))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

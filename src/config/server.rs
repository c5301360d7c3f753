//! `[server]`: where the service listens and how it treats connections.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use strata_types::node::Roles;
use url::Url;

use super::option::{OptionKind, OptionValue, section};

section! {
    /// Where the service listens and how it treats connections.
    Server in "server" {
        /// Address and port to listen on, as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`; port 0 takes
        /// any free one.
        listen: ListenAddress = ListenAddress("127.0.0.1:8080".to_owned());
        /// Seconds that requests in flight may take to finish after SIGTERM, SIGINT or SIGHUP, before their connections
        /// are closed.
        drain_s: u64 = 30, within 0..=3_600;
        /// Seconds that a client may take to send the head of a request, and that a connection may be idle.
        header_timeout_s: u64 = 15, within 1..=3_600;
        /// Addresses and networks (`10.0.0.0/8`, `2001:db8::/32`) of the proxies whose `X-Forwarded-For` or `Forwarded`
        /// is believed.
        trusted_proxies: TrustedProxies = TrustedProxies::default();
        /// Where clients reach the service, as `https://data.example.org`. The ping URLs that owners see begin with it.
        /// Session cookies are `Secure` when it is https. It is not a foreign origin. When not given, each request
        /// gives it: its `Host`, and the scheme that a trusted proxy names.
        public_url: Option<PublicUrl> = None;
        /// Names of hosts, such as `strata.internal`, that `Host` and `Origin` of a call to `/mcp` may name. `Host` may
        /// also be an IP address, `localhost`, or the host of `server.public_url` or `server.listen`. `Origin` may also
        /// be `server.public_url` or have the host and port of `Host`.
        allowed_hosts: HostNames = HostNames::default();
        /// Connections served at the same time, fewer if the process may not open as many files. Each further
        /// connection closes one that waits for its client: of the client that has most, the one that has waited
        /// longest. If none waits for its client, the new connection waits.
        connections: u64 = 4_096, within 1..=1_000_000;
        /// Connections of one client (an IPv4 address, or an IPv6 network of 64 bits) served at the same time. For a
        /// further one, the one that has been idle longest is closed, or the new one is answered 503. 0 is no limit.
        /// `server.trusted_proxies` have no limit.
        connections_per_client: u64 = 512, within 0..=1_000_000;
        /// Bytes of the head of a request.
        header_bytes: u64 = 128 << 10, within 8_192..=16 << 20;
        /// Requests at the same time on one HTTP/2 connection.
        concurrent_streams: u64 = 128, within 1..=10_000;
        /// Seconds between two pings that ask an HTTP/2 client whether it is still there. The client may take as long
        /// to answer, or `server.write_stall_s` if that is longer.
        keep_alive_s: u64 = 30, within 1..=3_600;
        /// Seconds in which a client must take all bytes that are ready for it, or 16 KiB of them. Otherwise it is cut.
        write_stall_s: u64 = 60, within 1..=3_600;
        /// Seconds that a client may take to receive an answer, from its head to its last byte. Then nothing more is
        /// sent. What it was sent it must take within `server.write_stall_s`, or it is cut.
        answer_timeout_s: u64 = 3_600, within 1..=604_800;
        /// Seconds after SIGTERM, SIGINT or SIGHUP in which requests are still accepted while `/readyz` answers 503, so
        /// that a load balancer can react.
        drain_notice_s: u64 = 0, within 0..=3_600;
        /// Seconds after `server.drain_notice_s` in which an idle connection may make one more request. So a request
        /// that is on its way gets its answer.
        drain_idle_s: u64 = 2, within 0..=3_600;
        /// Seconds for which an answer of `/readyz` holds. One small write to the catalog and one to the store find the
        /// answer. Further probes in that time cost nothing more.
        ready_probe_s: u64 = 2, within 1..=60;
        /// What the process does: `http` answers requests; `refresh` runs schedules and makes versions, sends webhooks,
        /// sweeps and scrubs; `query` takes parts of large queries, its own and those of other processes. Without
        /// `http` only `/healthz`, `/readyz` and `/metrics` are answered, other paths with 503. Without `refresh` calls
        /// that make versions are answered with 503.
        roles: Roles = Roles::all();
        /// Whether the process runs schedules, sends webhooks, sweeps, scrubs and makes exports ahead. With false it
        /// only answers requests. So a copy of the data can be served beside the original. What is due stays due.
        /// `serve --no-background` sets it to false.
        background: bool = true;
        /// Whether the service has the dashboard: pages for people at `/` and below `/ui/`. With false these paths do
        /// not exist.
        dashboard: bool = true;
    }
}

/// The networks of the proxies that are believed.
///
/// An IPv6 network that stands for IPv4 addresses (`::ffff:10.0.0.0/104`) is kept as the IPv4 network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl TryFrom<Vec<String>> for TrustedProxies {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        texts.iter().map(|text| network(text)).collect::<Result<_, _>>().map(TrustedProxies)
    }
}

/// A network, or an address, which becomes a network of one address.
fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| {
        format!("{text:?} is not an address or a network, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32")
    })?;
    Ok(match (network.addr().to_canonical(), network.prefix_len()) {
        (IpAddr::V4(address), length @ 96..) => Ipv4Net::new(address, length - 96).map_or(network, IpNet::V4),
        _ => network,
    })
}

/// Names of hosts, without ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// Whether one of the names is `name`, in any case.
    pub fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl TryFrom<Vec<String>> for HostNames {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let parse = |text: String| {
            let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            match is_name(&text) && !text.is_empty() {
                true => Ok(text),
                false => Err(format!("{text:?} is not the name of a host without a port, such as data.example.org")),
            }
        };
        texts.into_iter().map(parse).collect::<Result<_, _>>().map(HostNames)
    }
}

/// The `http` or `https` URL at which clients reach the service.
///
/// - It has a host, perhaps a port and a path; no user, query or fragment, and no slash at its end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PublicUrl {
    text: String,
    origin: String,
    host: String,
}

impl PublicUrl {
    /// The URL, to which a path can be appended.
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
        let wrong =
            || format!("{text:?} is not an http or https URL without a query, such as https://data.example.org");
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

/// A host and a port to listen on.
///
/// - There is a host: a name, an IPv4 address, or an IPv6 address in brackets.
/// - There is a port from 0 to 65535.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(String);

impl ListenAddress {
    /// The address as `host:port`, as the standard library resolves it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&*self.0, |(host, _)| host)
    }

    /// Whether the system chooses the port.
    pub fn takes_any_port(&self) -> bool {
        self.0.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0_u16))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let valid = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            !host.is_empty() && (bracketed || !host.contains([':', '/'])) && digits && port.parse::<u16>().is_ok()
        });
        if valid {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is not an address and a port, such as 127.0.0.1:8080 or [::1]:8080"))
        }
    }
}

impl OptionValue for ListenAddress {
    const KIND: OptionKind = OptionKind::Text;

    fn shown(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

//! `[server]`: where the service listens and how it treats connections.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use strata_types::node::Roles;
use url::Url;

use super::option::{OptionKind, OptionValue, section};

section! {
    /// Where the service listens, and how it handles connections.
    Server in "server" {
        /// Address and port to listen on, such as `127.0.0.1:8080`, `[::1]:8080`, or `localhost:8080`. Port 0 selects
        /// any free port.
        listen: ListenAddress = ListenAddress("127.0.0.1:8080".to_owned());
        /// Maximum time in seconds for requests in flight to finish after SIGTERM, SIGINT, or SIGHUP. After that,
        /// strata closes their connections.
        drain_s: u64 = 30, within 0..=3_600;
        /// Maximum time in seconds for a client to send the head of a request. It is also the maximum time that a
        /// connection can be idle.
        header_timeout_s: u64 = 15, within 1..=3_600;
        /// Addresses and networks of the proxies whose `X-Forwarded-For` or `Forwarded` headers strata trusts, such as
        /// `10.0.0.0/8` or `2001:db8::/32`.
        trusted_proxies: TrustedProxies = TrustedProxies::default();
        /// URL at which clients reach the service, such as `https://data.example.org`. The ping URLs that owners see
        /// begin with this URL. If the scheme is `https`, session cookies are `Secure`. strata does not treat the
        /// origin of this URL as foreign. If this option is not set, each request determines the URL: strata uses its
        /// `Host` header and the scheme that a trusted proxy reports.
        public_url: Option<PublicUrl> = None;
        /// Host names, such as `strata.internal`, that calls to `/mcp` can use in `Host` and `Origin`. `Host` can also
        /// be an IP address, `localhost`, or the host of `server.public_url` or `server.listen`. `Origin` can also be
        /// `server.public_url`, or have the same host and port as `Host`.
        allowed_hosts: HostNames = HostNames::default();
        /// Maximum number of connections that are served at the same time. The limit is lower if the process cannot
        /// open enough files. When the limit is reached, each new connection replaces one that is waiting for its
        /// client. strata selects the client with the most connections and closes the connection of this client that
        /// has waited longest. If no connection is waiting for its client, the new connection waits.
        connections: u64 = 4_096, within 1..=1_000_000;
        /// Maximum number of connections of one client (an IPv4 address or a 64-bit IPv6 network) that are served at
        /// the same time. If the client opens another one, strata closes the client's connection that has been idle
        /// longest. If none is idle, the new connection receives 503. 0 disables this limit. It does not apply to
        /// `server.trusted_proxies`.
        connections_per_client: u64 = 512, within 0..=1_000_000;
        /// Maximum size in bytes of the head of a request.
        header_bytes: u64 = 128 << 10, within 8_192..=16 << 20;
        /// Maximum number of concurrent requests on one HTTP/2 connection.
        concurrent_streams: u64 = 128, within 1..=10_000;
        /// Time in seconds between two HTTP/2 pings, which check whether the client is still connected. The client must
        /// respond within the same time, or within `server.write_stall_s` if that is longer.
        keep_alive_s: u64 = 30, within 1..=3_600;
        /// Maximum time in seconds for a client to receive all bytes that are ready for it, or at least 16 KiB of them.
        /// If the client takes longer, strata closes the connection.
        write_stall_s: u64 = 60, within 1..=3_600;
        /// Maximum time in seconds for a client to receive a response, from its head to its last byte. After that,
        /// strata sends nothing more. If the client does not receive the bytes that were already sent within
        /// `server.write_stall_s`, strata closes the connection.
        answer_timeout_s: u64 = 3_600, within 1..=604_800;
        /// Time in seconds after SIGTERM, SIGINT, or SIGHUP during which strata still accepts requests but `/readyz`
        /// returns 503. This gives a load balancer time to react.
        drain_notice_s: u64 = 0, within 0..=3_600;
        /// Time in seconds after `server.drain_notice_s` during which an idle connection can make one more request. A
        /// request that is already on its way therefore gets its response.
        drain_idle_s: u64 = 2, within 0..=3_600;
        /// Time in seconds for which strata reuses the result of a `/readyz` probe. A probe makes one small write to
        /// the metadata database and one to the store. Further probes during this time cause no additional work.
        ready_probe_s: u64 = 2, within 1..=60;
        /// Roles of the process. `http` serves requests. `refresh` runs schedules, creates versions, sends webhooks,
        /// and runs sweeps and scrubs. `query` runs parts of large queries, both its own and those of other processes.
        /// Without `http`, only `/healthz`, `/readyz`, and `/metrics` work, and other paths return 503. Without
        /// `refresh`, calls that create versions return 503.
        roles: Roles = Roles::all();
        /// Whether the process runs schedules, sends webhooks, runs sweeps and scrubs, and builds exports in advance.
        /// If false, the process only serves requests, so you can serve a copy of the data next to the original. Work
        /// that is due stays due. `serve --no-background` sets this option to false.
        background: bool = true;
        /// Whether the service provides the dashboard, which consists of web pages at `/` and below `/ui/`. If false,
        /// these paths do not exist.
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

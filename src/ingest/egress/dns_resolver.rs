//! An asynchronous DNS resolver. The system's `getaddrinfo` would block a thread while name servers are silent. The
//! resolver reads `/etc/hosts` and `/etc/resolv.conf`, or uses the operator's name servers. It ignores `nsswitch.conf`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;

const MAX_CACHED_RESPONSES: u64 = 256;
const MAX_CACHE_TTL: Duration = Duration::from_secs(300);

/// The timeout of one query to one name server. Each query is sent at most twice.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

pub trait HostResolver: Send + Sync {
    /// Returns the addresses of a host name, in the order in which a client should try them.
    fn resolve_host(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// A resolver that reads the hosts file and then queries name servers. Clones share the cache.
#[derive(Clone)]
pub struct DnsResolver {
    inner: Result<TokioResolver, String>,
}

impl DnsResolver {
    /// Creates a resolver for `name_servers`, or for the system's name servers if the list is empty.
    pub fn new(name_servers: &[SocketAddr]) -> DnsResolver {
        let (mut config, mut options) = match hickory_resolver::system_conf::read_system_conf() {
            Ok(configuration) => configuration,
            Err(error) => {
                if name_servers.is_empty() {
                    tracing::warn!(%error, "failed to find system name servers; using only the hosts file");
                }
                (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default())
            }
        };
        if !name_servers.is_empty() {
            let (domain, search, _) = config.into_parts();
            let servers = name_servers.iter().map(|server| {
                let with_port = |mut connection: ConnectionConfig| {
                    connection.port = server.port();
                    connection
                };
                let connections = vec![with_port(ConnectionConfig::udp()), with_port(ConnectionConfig::tcp())];
                NameServerConfig::new(server.ip(), true, connections)
            });
            config = ResolverConfig::from_parts(domain, search, servers.collect());
        }
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        options.cache_size = MAX_CACHED_RESPONSES;
        options.positive_max_ttl = Some(MAX_CACHE_TTL);
        options.negative_max_ttl = Some(MAX_CACHE_TTL);
        options.timeout = options.timeout.min(QUERY_TIMEOUT);
        options.attempts = options.attempts.min(2);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let inner = builder.with_options(options).build().map_err(|error| error.to_string());
        DnsResolver { inner }
    }
}

/// Describes a failed name resolution for users, because the messages of the DNS library contain its data structures.
fn resolution_error(name: &str, error: &NetError) -> io::Error {
    let (kind, reason) = match error {
        error if error.is_nx_domain() => (io::ErrorKind::NotFound, "it does not exist"),
        error if error.is_no_records_found() => (io::ErrorKind::NotFound, "it has no addresses"),
        NetError::Timeout => (io::ErrorKind::TimedOut, "no name server responded in time"),
        NetError::NoConnections => (io::ErrorKind::Other, "no name server is reachable"),
        error => {
            tracing::debug!(%error, "failed to resolve name");
            (io::ErrorKind::Other, "the name servers failed or returned an error")
        }
    };
    io::Error::new(kind, format!("the name {name} does not resolve: {reason}"))
}

impl HostResolver for DnsResolver {
    fn resolve_host(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let resolver = self.inner.clone();
        let name = name.to_owned();
        async move {
            let resolver = resolver.map_err(io::Error::other)?;
            let response = resolver.lookup_ip(&name).await.map_err(|error| resolution_error(&name, &error))?;
            let mut addresses: Vec<IpAddr> = response.iter().collect();
            // IPv4 addresses come first. The HTTP client tries IPv6 if no IPv4 connection succeeds.
            addresses.sort_by_key(IpAddr::is_ipv6);
            Ok(addresses)
        }
        .boxed()
    }
}

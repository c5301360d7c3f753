//! Resolves host names to addresses, asynchronously: the system's `getaddrinfo` blocks a thread while name servers are
//! silent. The hosts file, name servers and search domains are those of the system (`/etc/hosts`, `/etc/resolv.conf`),
//! or the operator's name servers. Other sources of names (`nsswitch.conf`) are not asked.

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

/// Most answers that are cached, each for as long as its server says.
const CACHED_ANSWERS: u64 = 256;

const CACHED_FOR: Duration = Duration::from_secs(300);

/// How long one question to one name server may take. It is asked twice.
const QUESTION: Duration = Duration::from_secs(2);

pub trait LookUp: Send + Sync {
    /// The addresses of a host name, in the order in which they should be tried.
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The hosts file, then name servers. Clones share connections and the cache of answers.
#[derive(Clone)]
pub struct Resolver {
    inner: Result<TokioResolver, String>,
}

impl Resolver {
    /// A resolver that asks `name_servers`, or those of the system when there are none. Sends no question yet.
    pub fn new(name_servers: &[SocketAddr]) -> Resolver {
        let (mut config, mut options) = match hickory_resolver::system_conf::read_system_conf() {
            Ok(found) => found,
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
                let at_port = |mut connection: ConnectionConfig| {
                    connection.port = server.port();
                    connection
                };
                let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
                NameServerConfig::new(server.ip(), true, connections)
            });
            config = ResolverConfig::from_parts(domain, search, servers.collect());
        }
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        options.cache_size = CACHED_ANSWERS;
        options.positive_max_ttl = Some(CACHED_FOR);
        options.negative_max_ttl = Some(CACHED_FOR);
        options.timeout = options.timeout.min(QUESTION);
        options.attempts = options.attempts.min(2);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let inner = builder.with_options(options).build().map_err(|error| error.to_string());
        Resolver { inner }
    }
}

/// Why a name has no address, as a sentence: the resolver's own texts print its data structures.
fn unresolved(name: &str, error: &NetError) -> io::Error {
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

impl LookUp for Resolver {
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let resolver = self.inner.clone();
        let name = name.to_owned();
        async move {
            let resolver = resolver.map_err(io::Error::other)?;
            let found = resolver.lookup_ip(&name).await.map_err(|error| unresolved(&name, &error))?;
            let mut addresses: Vec<IpAddr> = found.iter().collect();
            // The other family is tried when the first does not connect.
            addresses.sort_by_key(IpAddr::is_ipv6);
            Ok(addresses)
        }
        .boxed()
    }
}

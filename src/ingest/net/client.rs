//! The HTTP client for outgoing requests, and its resolver, which enforces the policy.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy;
use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use strata_limits::{FairLimit, Principal, Shares};
use strata_types::causes::chain;
use strata_types::ids::UserId;
use url::{Host, Url};

use super::address::AddressPolicy;
use super::resolver::{LookUp, Resolver};
use super::tls;
use super::url::{AddressError, check_scheme};

/// Limits of the lookups of names. A user whose names do not resolve delays only the user's own lookups.
#[derive(Clone, Copy, Debug)]
pub struct LookUpLimits {
    /// At the same time, in total (`net.look_ups`).
    pub at_once: usize,
    /// At the same time, for one user (`net.user_look_ups`).
    pub at_once_for_one: usize,
    /// For one lookup, including the wait for its permit (`net.look_up_timeout_s`).
    pub timeout: Duration,
}

impl Default for LookUpLimits {
    fn default() -> Self {
        LookUpLimits { at_once: 256, at_once_for_one: 16, timeout: Duration::from_secs(5) }
    }
}

/// Outgoing requests: a policy and a resolver, perhaps for one user. Clones share the resolver and its limits.
#[derive(Clone)]
pub struct Outgoing {
    policy: AddressPolicy,
    look_up: Arc<dyn LookUp>,
    permits: FairLimit,
    timeout: Duration,
    principal: Principal,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Outgoing").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// Requests within `policy`, names resolved by the system's configuration.
    pub fn new(policy: AddressPolicy) -> Self {
        Self::with_look_up(policy, Resolver::new(&[]))
    }

    pub fn with_look_up(policy: AddressPolicy, look_up: impl LookUp + 'static) -> Self {
        let permits = FairLimit::quota(Shares::new(0, 100, 0));
        let principal = Principal::Operator;
        let outgoing = Self { policy, look_up: Arc::new(look_up), permits, timeout: Duration::ZERO, principal };
        outgoing.with_limits(LookUpLimits::default())
    }

    /// The same with other limits of lookups, with a new count.
    pub fn with_limits(self, limits: LookUpLimits) -> Self {
        let LookUpLimits { at_once, at_once_for_one, timeout } = limits;
        let shares = Shares::new(at_once as u64, 100, 0);
        let shares = Shares { principal_units: at_once_for_one as u64, queue: usize::MAX, ..shares };
        Self { permits: FairLimit::quota(shares), timeout, ..self }
    }

    /// The same for a user, whose lookups are counted together.
    pub fn for_user(&self, user: u64) -> Self {
        Self { principal: Principal::User(UserId::new(user)), ..self.clone() }
    }

    /// Whether a URL may be registered. A name needs only one address that may be contacted, because the service
    /// contacts no other. A name that does not resolve in time passes.
    pub async fn check(&self, url: &Url) -> Result<(), AddressError> {
        self.check_literal(url)?;
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        let refused = self.permitted(name).await.err().and_then(|error| error.downcast::<AddressError>().ok());
        refused.map_or(Ok(()), |error| Err(*error))
    }

    /// Whether the scheme is http or https and, if the host is an address, whether it may be contacted. Call this
    /// before each request of a client, also for redirects, because an address in a URL never reaches the resolver.
    pub fn check_literal(&self, url: &Url) -> Result<(), AddressError> {
        check_scheme(url)?;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let host = || url.host_str().unwrap_or_default().to_owned();
        self.policy.check(address).map_err(|kind| AddressError::Refused { host: host(), verb: "is", kind })
    }

    /// A client that resolves names only to permitted addresses, uses no proxy, follows no redirect, keeps no
    /// connection and sends nothing twice. A caller may make it follow redirects through [`Outgoing::check_literal`].
    pub fn client(&self) -> ClientBuilder {
        // The one that the database's and the store's connections use, too. That it is there already is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .use_preconfigured_tls(tls::client_config())
            .dns_resolver(Arc::new(Guarded(self.clone())))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .referer(false)
            .user_agent(concat!("strata/", env!("CARGO_PKG_VERSION")))
    }

    /// The addresses of a name that may be contacted: at least one.
    async fn permitted(&self, name: &str) -> Result<Vec<IpAddr>, BoxError> {
        let found = if is_localhost(name) {
            // The answer of a name server does not count.
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            self.resolve(name).await.map_err(NameError)?
        };
        let mut refused = None;
        let mut permitted = Vec::with_capacity(found.len());
        for address in found {
            match self.policy.check(address) {
                Ok(()) => permitted.push(address),
                Err(kind) => refused = Some(kind),
            }
        }
        match refused {
            Some(kind) if permitted.is_empty() => {
                Err(AddressError::Refused { host: name.to_owned(), verb: "resolves to", kind }.into())
            }
            None if permitted.is_empty() => {
                Err(NameError(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")).into())
            }
            _ => Ok(permitted),
        }
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = async {
            let _permit = self.permits.acquire_unbounded(self.principal, 1).await;
            self.look_up.look_up(name).await
        };
        tokio::time::timeout(self.timeout, found).await.unwrap_or_else(|_| {
            let late = format!("the name did not resolve within {} s", self.timeout.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, late))
        })
    }
}

/// Why a name has no address to connect to: a [`NameError`] or an [`AddressError`].
type BoxError = Box<dyn Error + Send + Sync>;

/// The host name of a URL gave no address. The text gives the reason. The layers of the HTTP client add nothing to it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NameError(io::Error);

/// `localhost` and the names below it, which are this machine (RFC 6761).
pub fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The resolver of a client. It returns only permitted addresses, and the client connects only to these.
struct Guarded(Outgoing);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let outgoing = self.0.clone();
        Box::pin(async move {
            // Port 0 stands for the URL's.
            let addresses = outgoing.permitted(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Why no connection to the server was established, in words. It names the host and port of the URL, which may hold
/// secrets elsewhere. `None` if the request failed for another reason, or for one that has no words here.
pub fn connection_failure(error: &reqwest::Error) -> Option<String> {
    let url = error.url().filter(|_| error.is_connect())?;
    let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    let reason = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Some(format!("{host} refused the connection")),
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            Some(format!("{host} is unreachable"))
        }
        _ => tls::handshake_failure(cause).map(|failure| format!("the TLS connection to {host} failed: {failure}")),
    };
    chain(error).find_map(reason)
}

/// The causes of a failed request, the outermost first, without the layers that the client puts around them: those only
/// say that a request failed. `error` has no URL, which may hold secrets.
pub fn causes(error: &reqwest::Error) -> Vec<&(dyn Error + 'static)> {
    let is_layer = |cause: &&(dyn Error + 'static)| cause.is::<reqwest::Error>() || cause.is::<legacy::Error>();
    let told: Vec<_> = chain(error).filter(|cause| !is_layer(cause)).collect();
    if told.is_empty() { chain(error).collect() } else { told }
}

//! The HTTP client for outgoing requests, and the resolver that enforces the address policy.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy;
use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use strata_limits::{FairLimit, FairShares, Principal};
use strata_types::error_chain::iter_error_chain;
use strata_types::ids::UserId;
use url::{Host, Url};

use super::address_policy::AddressPolicy;
use super::dns_resolver::{DnsResolver, HostResolver};
use super::egress_url::{EgressUrlError, check_scheme};
use super::tls;

/// The limits of DNS lookups. A user with names that do not resolve delays only their own lookups.
#[derive(Clone, Copy, Debug)]
pub struct DnsLookupLimits {
    /// The maximum number of concurrent DNS lookups (`net.look_ups`).
    pub max_concurrent: usize,
    /// The maximum number of concurrent DNS lookups for one user (`net.user_look_ups`).
    pub max_concurrent_per_user: usize,
    /// The timeout of a DNS lookup, including the wait for its permit (`net.look_up_timeout_s`).
    pub timeout: Duration,
}

impl Default for DnsLookupLimits {
    fn default() -> Self {
        DnsLookupLimits { max_concurrent: 256, max_concurrent_per_user: 16, timeout: Duration::from_secs(5) }
    }
}

/// A factory for HTTP clients that enforce an address policy. Clones share the resolver and its limits.
#[derive(Clone)]
pub struct EgressClient {
    policy: AddressPolicy,
    resolver: Arc<dyn HostResolver>,
    lookup_limit: FairLimit,
    lookup_timeout: Duration,
    principal: Principal,
}

impl EgressClient {
    pub fn new(policy: AddressPolicy) -> Self {
        Self::with_resolver(policy, DnsResolver::new(&[]))
    }

    pub fn with_resolver(policy: AddressPolicy, resolver: impl HostResolver + 'static) -> Self {
        let egress_client = Self {
            policy,
            resolver: Arc::new(resolver),
            lookup_limit: FairLimit::new_quota(FairShares::new(0, 100, 0)),
            lookup_timeout: Duration::ZERO,
            principal: Principal::Operator,
        };
        egress_client.with_lookup_limits(DnsLookupLimits::default())
    }

    /// Replaces the limits of DNS lookups and resets the number of running lookups.
    pub fn with_lookup_limits(self, limits: DnsLookupLimits) -> Self {
        let DnsLookupLimits { max_concurrent, max_concurrent_per_user, timeout } = limits;
        let shares = FairShares::new(max_concurrent as u64, 100, 0);
        let shares =
            FairShares { max_principal_units: max_concurrent_per_user as u64, max_waiters: usize::MAX, ..shares };
        Self { lookup_limit: FairLimit::new_quota(shares), lookup_timeout: timeout, ..self }
    }

    /// Returns a client whose DNS lookups are counted toward the limit of a user.
    pub fn for_user(&self, user: u64) -> Self {
        Self { principal: Principal::User(UserId::new(user)), ..self.clone() }
    }

    /// Returns an error if users must not register the URL. A host name needs only one allowed address, because strata
    /// connects to no other addresses. A name that does not resolve in time is accepted.
    pub async fn check_url(&self, url: &Url) -> Result<(), EgressUrlError> {
        self.check_url_without_lookup(url)?;
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        let forbidden =
            self.resolve_permitted(name).await.err().and_then(|error| error.downcast::<EgressUrlError>().ok());
        forbidden.map_or(Ok(()), |error| Err(*error))
    }

    /// Returns an error if the scheme is not HTTP or HTTPS, or if the host is a forbidden address. Call this function
    /// before each request and redirect, because an address in a URL does not reach the resolver.
    pub fn check_url_without_lookup(&self, url: &Url) -> Result<(), EgressUrlError> {
        check_scheme(url)?;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let host = || url.host_str().unwrap_or_default().to_owned();
        self.policy.check(address).map_err(|kind| EgressUrlError::ForbiddenAddress { host: host(), verb: "is", kind })
    }

    /// Returns a builder of clients that connect only to allowed addresses, without proxies, retries, and redirects.
    /// Before following a redirect, call [`EgressClient::check_url_without_lookup`].
    pub fn client_builder(&self) -> ClientBuilder {
        // The cryptography provider might be installed already, because database and store connections use it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .use_preconfigured_tls(tls::tls_client_config())
            .dns_resolver(Arc::new(PermittedResolver(self.clone())))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .referer(false)
            .user_agent(concat!("strata/", env!("CARGO_PKG_VERSION")))
    }

    /// Resolves a host name. Returns its allowed addresses, at least one.
    async fn resolve_permitted(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let addresses = if is_localhost(name) {
            // Responses of name servers for `localhost` and its subdomains are ignored (RFC 6761).
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            self.resolve(name).await.map_err(NameResolutionError)?
        };
        let mut forbidden = None;
        let mut permitted = Vec::with_capacity(addresses.len());
        for address in addresses {
            match self.policy.check(address) {
                Ok(()) => permitted.push(address),
                Err(kind) => forbidden = Some(kind),
            }
        }
        if !permitted.is_empty() {
            return Ok(permitted);
        }
        Err(match forbidden {
            Some(kind) => EgressUrlError::ForbiddenAddress { host: name.to_owned(), verb: "resolves to", kind }.into(),
            None => NameResolutionError(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")).into(),
        })
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let lookup = async {
            let _permit = self.lookup_limit.acquire_without_timeout(self.principal, 1).await;
            self.resolver.resolve_host(name).await
        };
        tokio::time::timeout(self.lookup_timeout, lookup).await.unwrap_or_else(|_| {
            let reason = format!("the name did not resolve within {} s", self.lookup_timeout.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }
}

/// The error of a name resolution: a [`NameResolutionError`] or an [`EgressUrlError`].
type ResolveError = Box<dyn Error + Send + Sync>;

/// The error for a host name without addresses. The message is complete without the outer errors of the HTTP client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NameResolutionError(io::Error);

/// Returns whether a name is `localhost` or a subdomain of it, which refer to this machine (RFC 6761).
pub fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

struct PermittedResolver(EgressClient);

impl Resolve for PermittedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let egress_client = self.0.clone();
        Box::pin(async move {
            // The HTTP client replaces port 0 by the port of the URL.
            let addresses = egress_client.resolve_permitted(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Describes for users why no connection was established. The text contains only the host and port of the URL.
pub fn describe_connection_failure(error: &reqwest::Error) -> Option<String> {
    let url = error.url().filter(|_| error.is_connect())?;
    let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    let reason = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Some(format!("{host} refused the connection")),
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            Some(format!("{host} is unreachable"))
        }
        _ => tls::describe_handshake_failure(cause)
            .map(|failure| format!("the TLS connection to {host} failed: {failure}")),
    };
    iter_error_chain(error).find_map(reason)
}

/// Returns the causes of a failed request, outermost first, without the generic errors of the HTTP client.
pub fn error_causes(error: &reqwest::Error) -> Vec<&(dyn Error + 'static)> {
    let is_layer = |cause: &&(dyn Error + 'static)| cause.is::<reqwest::Error>() || cause.is::<legacy::Error>();
    let causes: Vec<_> = iter_error_chain(error).filter(|cause| !is_layer(cause)).collect();
    if causes.is_empty() { iter_error_chain(error).collect() } else { causes }
}

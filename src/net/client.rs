//! The HTTP client for outgoing requests, and the resolver that keeps it within the policy.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::address::AddressPolicy;
use super::url::{AddressError, check_literal, check_scheme};

/// How long a registration waits for a name; then it counts as one that does not resolve.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Resolves names to addresses.
pub trait LookUp: Send + Sync {
    /// The addresses of a host name, in the order in which they should be tried.
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The machine's own resolver: its hosts file, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookUp;

impl LookUp for SystemLookUp {
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// The way out: a policy and a resolver. Clones share both.
#[derive(Clone)]
pub struct Outgoing {
    policy: AddressPolicy,
    look_up: Arc<dyn LookUp>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Outgoing").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// Requests within `policy`, names resolved by the machine.
    pub fn new(policy: AddressPolicy) -> Self {
        Self::with_look_up(policy, SystemLookUp)
    }

    /// Requests within `policy`, names resolved by `look_up`.
    pub fn with_look_up(policy: AddressPolicy, look_up: impl LookUp + 'static) -> Self {
        Self { policy, look_up: Arc::new(look_up) }
    }

    /// Whether a URL may be registered. Of the addresses of a name one that may be contacted is enough, for no other
    /// ever will be; a name that does not resolve, or not within 5 s, passes.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong.
    pub async fn check(&self, url: &Url) -> Result<(), AddressError> {
        self.check_literal(url)?;
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        match tokio::time::timeout(CHECK_TIMEOUT, self.permitted(name)).await {
            Ok(Err(LookUpError::Refused(error))) => Err(error),
            Ok(Ok(_) | Err(LookUpError::Failed(_))) | Err(_) => Ok(()),
        }
    }

    /// Whether the scheme is http or https and the host, where it is an address and not a name, may be contacted. To
    /// be asked before each request of a client, redirects too: an address in a URL never reaches the resolver.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong.
    pub fn check_literal(&self, url: &Url) -> Result<(), AddressError> {
        check_scheme(url)?;
        check_literal(&self.policy, url)
    }

    /// A client that resolves names to permitted addresses alone, uses no proxy, follows no redirect, keeps no
    /// connection and sends nothing twice; what is built from it may follow redirects through
    /// [`Outgoing::check_literal`].
    pub fn client(&self) -> ClientBuilder {
        reqwest::Client::builder()
            .dns_resolver(Guarded(self.clone()))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .referer(false)
            .user_agent(concat!("strata/", env!("CARGO_PKG_VERSION")))
    }

    /// The addresses of a name that may be contacted: at least one.
    async fn permitted(&self, name: &str) -> Result<Vec<IpAddr>, LookUpError> {
        let found = if is_localhost(name) {
            // RFC 6761: whatever a name server says.
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            self.look_up.look_up(name).await.map_err(LookUpError::Failed)?
        };
        let mut refused = None;
        let mut permitted = Vec::with_capacity(found.len());
        for address in found {
            match self.policy.check(address) {
                Ok(()) => permitted.push(address),
                Err(error) => refused = Some(error.kind),
            }
        }
        match refused {
            Some(kind) if permitted.is_empty() => {
                Err(LookUpError::Refused(AddressError::Refused { host: name.to_owned(), verb: "resolves to", kind }))
            }
            None if permitted.is_empty() => {
                Err(LookUpError::Failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
            }
            _ => Ok(permitted),
        }
    }
}

/// Why a name gives no address to connect to.
enum LookUpError {
    Failed(io::Error),
    Refused(AddressError),
}

/// `localhost` and the names below it.
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The resolver of a client: what it gives out is connected to, and it gives out what may be.
struct Guarded(Outgoing);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let outgoing = self.0.clone();
        Box::pin(async move {
            match outgoing.permitted(name.as_str()).await {
                Ok(addresses) => {
                    // Port 0 stands for the URL's.
                    let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
                    Ok(Box::new(addresses) as Addrs)
                }
                Err(LookUpError::Failed(error)) => Err(Box::new(error) as Box<dyn Error + Send + Sync>),
                Err(LookUpError::Refused(error)) => Err(Box::new(error) as Box<dyn Error + Send + Sync>),
            }
        })
    }
}

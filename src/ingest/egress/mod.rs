//! Outgoing requests: the addresses that they may reach, and the HTTP client that enforces this.
//!
//! Users provide URLs of sources and webhooks. Without checks, they could reach the internal network, such as
//! `http://169.254.169.254/`, a redirect to `localhost`, or a name that later resolves to another address. Therefore:
//!
//! 1. [`AddressPolicy`] decides about an address, from the registries of special-purpose addresses and `net.allow`.
//! 2. [`EgressClient::check_url`] checks a URL at its registration. A name that does not resolve is accepted.
//! 3. [`EgressClient::client_builder`] creates clients whose resolver returns only allowed addresses. An address in a
//!    URL does not reach the resolver, so callers must pass the first URL and each redirect to
//!    [`EgressClient::check_url_without_lookup`].
//!
//! [`DnsLookupLimits`] limits the lookups, so that silent name servers delay only the user who caused them. Proxy
//! environment variables are ignored, because behind a proxy these checks would have no effect.

mod address_policy;
mod dns_resolver;
mod egress_client;
mod egress_url;
mod tls;

pub use self::address_policy::AddressPolicy;
pub use self::dns_resolver::{DnsResolver, HostResolver};
pub use self::egress_client::{
    DnsLookupLimits, EgressClient, NameResolutionError, describe_connection_failure, error_causes, is_localhost,
};
pub use self::egress_url::{EgressUrlError, UrlQuery, parse_http_url, strip_credentials};

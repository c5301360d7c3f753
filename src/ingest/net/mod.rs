//! Requests that leave the service: the addresses that they may reach, and the HTTP client that enforces this.
//!
//! Users give URLs of sources and webhooks. Without checks such a URL opens a way into the service's own network, such
//! as `http://169.254.169.254/`, a redirect to `localhost`, or a name that resolves to another address the second time.
//! So:
//!
//! 1. [`AddressPolicy`] decides about one address, from the registries of special-purpose addresses and the operator's
//!    `net.allow`.
//! 2. [`Outgoing::check`] checks a URL when it is registered. A name that does not resolve passes.
//! 3. [`Outgoing::client`] makes clients whose resolver returns only permitted addresses. An address written in a URL
//!    is never resolved. So users of a client call [`Outgoing::check_literal`] for the first URL and each redirect.
//!
//! [`LookUpLimits`] bounds the lookups of names, so that name servers that do not answer delay nobody else. Proxies in
//! environment variables are not used, because behind a proxy these checks would not hold. Rules:
//! docs/reference/webhook-delivery.md, Outgoing requests.

mod address;
mod client;
mod resolver;
mod tls;
mod url;

pub use self::address::AddressPolicy;
pub use self::client::{LookUpLimits, NameError, Outgoing, causes, connection_failure, is_localhost};
pub use self::resolver::{LookUp, Resolver};
pub use self::url::{AddressError, parse_http_url, without_credentials};

//! Requests that leave the service: the addresses that they may reach, and the HTTP client that enforces this.
//!
//! Users give URLs of sources and webhooks. Without checks such a URL opens a way into the service's own network.
//! Examples are `http://169.254.169.254/`, a name that resolves to `10.0.0.5`, a redirect to `localhost`, and a name
//! that resolves to another address the second time. So:
//!
//! 1. [`AddressPolicy`] decides about one address, from the registries of special-purpose addresses and the operator's
//!    `net.allow`. Pure.
//! 2. [`Outgoing::check`] checks a URL when it is registered. A name that does not resolve passes.
//! 3. [`Outgoing::client`] makes clients whose resolver returns only permitted addresses. So the address that is
//!    checked is the address to which the client connects. An address written in a URL is never resolved. So users of a
//!    client call [`Outgoing::check_literal`] for the first URL and each redirect.
//!
//! [`Resolver`] looks up names without blocking a thread. [`LookUpLimits`] bounds the number of look-ups, in total and
//! for one user, and their time. So name servers that do not answer delay nobody else.
//!
//! A client trusts the certificate authorities of the machine. It loads them for its first https connection, so that
//! plain http needs none.
//!
//! Proxies in environment variables are not used, because behind a proxy these checks would not hold. Rules:
//! docs/reference/webhook-delivery.md, Outgoing requests.

mod address;
mod client;
mod look_ups;
mod resolver;
mod tls;
mod url;

pub use self::address::AddressPolicy;
pub use self::client::{NameError, Outgoing, causes, connection_failure, is_localhost};
pub use self::look_ups::LookUpLimits;
pub use self::resolver::{LookUp, Resolver};
pub use self::url::{AddressError, parse_http_url, without_credentials};

//! Requests that leave the service: which addresses they may reach, and the HTTP client that holds them to it.
//!
//! Users give URLs of sources and webhooks. Without care such a URL makes the service a way into the network that it
//! stands in: `http://169.254.169.254/`, a name that resolves to `10.0.0.5`, a redirect to `localhost`, a name that
//! resolves to something else the second time. So:
//!
//! 1. [`AddressPolicy`] decides about one address, from the registries of special-purpose addresses and the operator's
//!    `net.allow`. Pure.
//! 2. [`Outgoing::check`] looks at a URL when it is registered. A name that does not resolve passes.
//! 3. [`Outgoing::client`] makes clients whose resolver gives out permitted addresses alone, so that the address that
//!    is checked is the address that is connected to. Addresses written in a URL are never resolved; whoever uses a
//!    client calls [`Outgoing::check_literal`] for the first URL and each redirect.
//!
//! Names are looked up by [`Resolver`], which blocks no thread, within [`LookUpLimits`]: in number, in all and for one
//! user, and in time, so that name servers that do not answer keep nobody else waiting.
//!
//! Proxies of the environment are not used: behind one, nothing of this would hold. Rules: docs/semantics.md, Outgoing
//! requests.

mod address;
mod client;
mod look_ups;
mod resolver;
mod url;

pub use self::address::{AddressPolicy, RefusedAddress};
pub use self::client::{NameError, Outgoing};
pub use self::look_ups::LookUpLimits;
pub use self::resolver::{LookUp, Resolver};
pub use self::url::{AddressError, parse_http_url};

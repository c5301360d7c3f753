//! The way out of a service whose operator opened the loopback network.

use strata::net::{AddressPolicy, Outgoing};
use strata::source::{FetchLimits, SourceClient};

/// The way out of a service whose operator opened the loopback network.
pub fn loopback() -> Outgoing {
    Outgoing::new(AddressPolicy::new(["127.0.0.0/8".parse().expect("a network")]))
}

/// Fetches sources from loopback, too; there is no store.
pub fn loopback_client(limits: FetchLimits) -> SourceClient {
    SourceClient::new(loopback(), limits, None)
}

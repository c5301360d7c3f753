//! The way out of a service whose operator opened the loopback network.

use strata_ingest::net::{AddressPolicy, Outgoing};
use strata_ingest::{FetchLimits, SourceClient};

/// The way out of a service whose operator opened the loopback network.
pub fn loopback() -> Outgoing {
    Outgoing::new(AddressPolicy::new(["127.0.0.0/8".parse().expect("a network")]))
}

/// Fetches sources from loopback, too; there is no store.
pub fn loopback_client(limits: FetchLimits) -> SourceClient {
    SourceClient::new(loopback(), limits, None)
}

/// A client over HTTP, as other programs are one. It brings the TLS that the process otherwise gets with the first
/// service in it.
pub fn http_client() -> reqwest::ClientBuilder {
    // An error says that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Reading the machine's certificates takes longer than a request.
    reqwest::Client::builder().tls_built_in_root_certs(false)
}

//! Clients that can connect to the loopback network.

use strata_ingest::egress::{AddressPolicy, EgressClient};
use strata_ingest::{FetchLimits, SourceClient};

/// Returns the client of a service whose configuration allows the loopback network.
pub fn loopback() -> EgressClient {
    EgressClient::new(AddressPolicy::new(["127.0.0.0/8".parse().expect("failed to parse network")]))
}

/// Returns a source client that can connect to loopback and has no store.
pub fn loopback_client(limits: FetchLimits) -> SourceClient {
    SourceClient::new(loopback(), limits, None)
}

/// Returns a builder for an HTTP client. Also installs the TLS provider, which a process otherwise gets with its first
/// service.
pub fn http_client() -> reqwest::ClientBuilder {
    // Fails if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Reading the system's certificates takes longer than a request.
    reqwest::Client::builder().tls_built_in_root_certs(false)
}

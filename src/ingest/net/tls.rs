//! TLS of outgoing requests: which certificate authorities they trust, and how a failed handshake is reported.
//!
//! The authorities are those of the machine when a client is built: `SSL_CERT_FILE` and `SSL_CERT_DIR` if they are set,
//! else the system's store. Without any, requests over plain http work, and a request over https fails with a text that
//! says what to install.

use std::error::Error;
use std::io;

use rustls::{CertificateError, ClientConfig, RootCertStore};

const NO_CA_CERTIFICATES: &str = "this machine has no CA certificates, so strata cannot verify any HTTPS server. \
                                  Install the ca-certificates package, or set SSL_CERT_FILE to a certificate file";

/// The settings of a client that trusts the machine's authorities. The process must have its cryptography provider.
pub(super) fn client_config() -> ClientConfig {
    let mut config = ClientConfig::builder().with_root_certificates(machine_roots()).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn machine_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::debug!(%error, "failed to load CA certificates");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    roots
}

/// Why a TLS handshake failed, if `cause` says that one did. The library's own texts print its data structures.
pub(super) fn handshake_failure(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(in_words(error));
    }
    // The chain of causes leaves out what an `io::Error` wraps, and the client wraps one in another.
    let inner: &(dyn Error + 'static) = cause.downcast_ref::<io::Error>()?.get_ref()?;
    match inner.to_string().as_str() {
        "tls handshake eof" => Some("the server closed the connection during the TLS handshake".to_owned()),
        _ => handshake_failure(inner),
    }
}

fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) if machine_roots().is_empty() => NO_CA_CERTIFICATES.to_owned(),
        rustls::Error::InvalidCertificate(error) => format!("the server's certificate {}", certificate_problem(error)),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        rustls::Error::PeerIncompatible(_) => {
            "the server and strata have no common TLS version and cipher suite (strata supports TLS 1.2 and 1.3)"
                .to_owned()
        }
        rustls::Error::NoCertificatesPresented => "the server did not send a certificate".to_owned(),
        // The name of an alert is a single word, such as `HandshakeFailure`.
        rustls::Error::AlertReceived(alert) => format!("the server rejected the TLS handshake with {alert:?}"),
        error => {
            tracing::debug!(?error, "failed TLS handshake");
            "the TLS handshake failed".to_owned()
        }
    }
}

fn certificate_problem(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => "is not signed by a certificate authority that this machine trusts",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is not valid for this host name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet",
        CertificateError::Revoked => "was revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not a server certificate"
        }
        CertificateError::BadSignature => "has an invalid signature",
        error => {
            tracing::debug!(?error, "failed to verify certificate");
            "is not valid"
        }
    }
}

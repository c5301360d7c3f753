//! TLS for outgoing requests. The trusted certificate authorities are read when a client is built: from `SSL_CERT_FILE`
//! and `SSL_CERT_DIR` if they are set, else from the system. Without any, HTTPS requests fail with an error that
//! explains what to install.

use std::error::Error;
use std::io;

use rustls::{CertificateError, ClientConfig, RootCertStore};

const NO_CA_CERTIFICATES_REASON: &str = "this machine has no CA certificates, so strata cannot verify any HTTPS \
     server. Install the ca-certificates package, or set SSL_CERT_FILE to a certificate file";

/// Returns the configuration of a TLS client. The process must have installed a cryptography provider.
pub(super) fn tls_client_config() -> ClientConfig {
    let mut config = ClientConfig::builder().with_root_certificates(load_system_roots()).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn load_system_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::debug!(%error, "failed to load CA certificates");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    roots
}

/// Describes a failed TLS handshake for users, if `cause` is one. The TLS library's messages contain data structures.
pub(super) fn describe_handshake_failure(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(describe_tls_error(error));
    }
    // `Error::source` skips the error inside an `io::Error`, and the HTTP client nests several `io::Error`s.
    let inner: &(dyn Error + 'static) = cause.downcast_ref::<io::Error>()?.get_ref()?;
    match inner.to_string().as_str() {
        "tls handshake eof" => Some("the server closed the connection during the TLS handshake".to_owned()),
        _ => describe_handshake_failure(inner),
    }
}

fn describe_tls_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) if load_system_roots().is_empty() => NO_CA_CERTIFICATES_REASON.to_owned(),
        rustls::Error::InvalidCertificate(error) => {
            format!("the server's certificate {}", describe_certificate_error(error))
        }
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        rustls::Error::PeerIncompatible(_) => {
            "the server and strata have no common TLS version and cipher suite (strata supports TLS 1.2 and 1.3)"
                .to_owned()
        }
        rustls::Error::NoCertificatesPresented => "the server did not send a certificate".to_owned(),
        // The debug form of a TLS alert is a single word, such as `HandshakeFailure`.
        rustls::Error::AlertReceived(alert) => format!("the server rejected the TLS handshake with {alert:?}"),
        error => {
            tracing::debug!(?error, "failed TLS handshake");
            "the TLS handshake failed".to_owned()
        }
    }
}

fn describe_certificate_error(error: &CertificateError) -> &'static str {
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

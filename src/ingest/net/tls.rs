//! TLS of outgoing requests: which certificate authorities they trust, and how a failed handshake is reported.
//!
//! The authorities are those of the machine: `SSL_CERT_FILE` and `SSL_CERT_DIR` if they are set, else the system's
//! store. A client loads them when it verifies its first certificate. So requests over plain http work on a machine
//! without any, and a request over https fails there with a text that says what to install.

use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

/// This machine has no certificate authorities.
#[derive(Debug, thiserror::Error)]
#[error(
    "this machine has no CA certificates, so strata cannot verify any HTTPS server. Install the ca-certificates \
     package, or set SSL_CERT_FILE to a certificate file"
)]
struct NoCaCertificates;

/// The settings of a client that trusts the machine's authorities. The process must have its cryptography provider.
pub(super) fn client_config() -> ClientConfig {
    let verifier = MachineVerifier {
        algorithms: ring::default_provider().signature_verification_algorithms,
        verifier: OnceLock::new(),
    };
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// Verifies certificates by the machine's authorities, which it loads when it needs them.
#[derive(Debug)]
struct MachineVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// Set only once there are authorities, so that installing them needs no restart.
    verifier: OnceLock<Arc<WebPkiServerVerifier>>,
}

impl MachineVerifier {
    fn verifier(&self) -> Result<&WebPkiServerVerifier, rustls::Error> {
        if let Some(verifier) = self.verifier.get() {
            return Ok(verifier);
        }
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::debug!(%error, "failed to load CA certificates");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(loaded.certs);
        if roots.is_empty() {
            return Err(rustls::Error::Other(OtherError(Arc::new(NoCaCertificates))));
        }
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build();
        let verifier = verifier.map_err(|error| rustls::Error::Other(OtherError(Arc::new(error))))?;
        Ok(self.verifier.get_or_init(|| verifier))
    }
}

impl ServerCertVerifier for MachineVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
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

/// A failed handshake as a clause without its subject's address.
fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => format!("the server's certificate {}", certificate_problem(error)),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        rustls::Error::PeerIncompatible(_) => {
            "the server and strata have no common TLS version and cipher suite (strata supports TLS 1.2 and 1.3)"
                .to_owned()
        }
        rustls::Error::NoCertificatesPresented => "the server did not send a certificate".to_owned(),
        // The name of an alert is a single word, such as `HandshakeFailure`.
        rustls::Error::AlertReceived(alert) => format!("the server rejected the TLS handshake with {alert:?}"),
        rustls::Error::Other(OtherError(error)) if error.is::<NoCaCertificates>() => error.to_string(),
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

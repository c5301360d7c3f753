//! Reads and validates the certificate files, and builds the rustls configurations.
//!
//! A node that other nodes would reject does not start. So a node verifies its own certificate like the other nodes:
//! with `cluster.tls_ca`, which is the same on all nodes, and for the host that they connect to.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use strata_config::ClusterConfig;

const MAX_FILE_BYTES: u64 = 1 << 20;
const FILE_SETTINGS: [&str; 3] = ["cluster.tls_certificate", "cluster.tls_key", "cluster.tls_ca"];
const CERTIFICATE_INDEX: usize = 0;
const KEY_INDEX: usize = 1;
const CA_INDEX: usize = 2;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("`{setting}`: {} cannot be read", path.display())]
    Read { setting: &'static str, path: PathBuf, source: io::Error },
    #[error("`{setting}`: {} {reason}", path.display())]
    File { setting: &'static str, path: PathBuf, reason: String },
    #[error("failed to configure TLS between nodes")]
    Library(#[from] Error),
}

pub(super) struct TlsFiles {
    paths: [PathBuf; 3],
    /// The host that other nodes connect to; `None` if this node does not listen for tasks.
    host: Option<String>,
}

pub(super) type TlsFileContents = [Vec<u8>; 3];

pub(super) struct TlsConfigs {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
    /// Earliest expiry of the certificates in this node's chain, in seconds since 1970.
    pub(super) expires_s: Option<u64>,
}

impl TlsFiles {
    pub(super) fn new(cluster: &ClusterConfig) -> Option<TlsFiles> {
        let address = cluster.internal_address.as_ref().and_then(|address| address.as_str().rsplit_once(':'));
        let host = address.map(|(host, _)| host.trim_matches(['[', ']']));
        let paths = [cluster.tls_certificate.clone()?, cluster.tls_key.clone()?, cluster.tls_ca.clone()?];
        Some(TlsFiles { paths, host: host.map(str::to_owned) })
    }

    pub(super) fn read(&self) -> Result<TlsFileContents, TlsError> {
        Ok([self.read_file(CERTIFICATE_INDEX)?, self.read_file(KEY_INDEX)?, self.read_file(CA_INDEX)?])
    }

    fn read_file(&self, file: usize) -> Result<Vec<u8>, TlsError> {
        let path = &self.paths[file];
        let mut bytes = Vec::new();
        let result = File::open(path).and_then(|opened| opened.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
        match result {
            Ok(length) if length as u64 == MAX_FILE_BYTES => Err(self.file_error(file, "is too large (1 MiB or more)")),
            Ok(_) => Ok(bytes),
            Err(source) => Err(TlsError::Read { setting: FILE_SETTINGS[file], path: path.clone(), source }),
        }
    }

    fn file_error(&self, file: usize, reason: impl Into<String>) -> TlsError {
        TlsError::File { setting: FILE_SETTINGS[file], path: self.paths[file].clone(), reason: reason.into() }
    }

    pub(super) fn build_configs(&self, contents: &TlsFileContents, now: UnixTime) -> Result<TlsConfigs, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = self.parse_certificates(CERTIFICATE_INDEX, &contents[CERTIFICATE_INDEX])?;
        let roots = Arc::new(self.trusted_roots(&contents[CA_INDEX], &provider, now)?);
        let resolver =
            Arc::new(SingleCertAndKey::from(self.parse_certified_key(&chain, &contents[KEY_INDEX], &provider)?));

        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let clients = clients.map_err(|error| Error::General(error.to_string()))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let servers = servers.map_err(|error| Error::General(error.to_string()))?;
        if let [own, rest @ ..] = &*chain {
            clients.verify_client_cert(own, rest, now).map_err(|error| self.rejected_certificate_error(&error))?;
            if let Some(host) = &self.host {
                let invalid = |_| self.file_error(CERTIFICATE_INDEX, format!("cannot match {host}: not a DNS name"));
                let name = ServerName::try_from(&**host).map_err(invalid)?;
                let verified = servers.verify_server_cert(own, rest, &name, &[], now);
                verified.map_err(|error| self.rejected_certificate_error(&error))?;
            }
        }

        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
        let mut server = server.with_client_cert_verifier(clients).with_cert_resolver(resolver.clone());
        server.alpn_protocols = vec![b"h2".to_vec()];
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
        let mut client = client.with_webpki_verifier(servers).with_client_cert_resolver(resolver);
        client.alpn_protocols = vec![b"h2".to_vec()];
        client.resumption = Resumption::disabled();
        Ok(TlsConfigs {
            server: Arc::new(server),
            client: Arc::new(client),
            expires_s: chain.iter().filter_map(|certificate| parse_expiry_s(certificate, &provider)).min(),
        })
    }

    pub(super) fn check_expiry(&self, expires_s: Option<u64>, now: UnixTime) -> Result<(), TlsError> {
        let expired = expires_s.filter(|expires_s| *expires_s < now.as_secs());
        expired.map_or(Ok(()), |expires_s| Err(self.file_error(CERTIFICATE_INDEX, expired_text(expires_s))))
    }

    fn parse_certificates(&self, file: usize, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(self.file_error(file, "contains no PEM certificate (-----BEGIN CERTIFICATE-----)")),
            Err(error) => Err(self.file_error(file, pem_error_text(&error))),
        }
    }

    fn trusted_roots(&self, ca: &[u8], provider: &CryptoProvider, now: UnixTime) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.parse_certificates(CA_INDEX, ca)? {
            if parse_expiry_s(&certificate, provider).is_none_or(|expires_s| expires_s >= now.as_secs()) {
                roots.add(certificate).map_err(|error| {
                    self.file_error(CA_INDEX, format!("contains a certificate that cannot be used: {error}"))
                })?;
            }
        }
        match roots.is_empty() {
            true => Err(self.file_error(CA_INDEX, "contains only expired certificates; add a valid one")),
            false => Ok(roots),
        }
    }

    fn parse_certified_key(
        &self,
        chain: &[CertificateDer<'static>],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                self.file_error(KEY_INDEX, "contains no unencrypted PEM private key (-----BEGIN PRIVATE KEY-----)")
            }
            pem::Error::Base64Decode(_) => {
                self.file_error(KEY_INDEX, "is not PEM, or has a passphrase; use a key without one")
            }
            error => self.file_error(KEY_INDEX, pem_error_text(&error)),
        })?;
        CertifiedKey::from_der(chain.to_vec(), key, provider).map_err(|error| match error {
            Error::InconsistentKeys(_) => self.file_error(
                KEY_INDEX,
                format!("does not match the certificate in {}", self.paths[CERTIFICATE_INDEX].display()),
            ),
            Error::InvalidCertificate(_) => self.rejected_certificate_error(&error),
            error => {
                let supported = "RSA with at least 2,048 bits, ECDSA on P-256 or P-384, and Ed25519";
                self.file_error(KEY_INDEX, format!("is not a supported key (valid: {supported}): {error}"))
            }
        })
    }

    fn rejected_certificate_error(&self, error: &Error) -> TlsError {
        let Error::InvalidCertificate(cause) = error else {
            return self.file_error(CERTIFICATE_INDEX, format!("cannot be used: {error}"));
        };
        let reason = match cause {
            CertificateError::ExpiredContext { not_after, .. } => expired_text(not_after.as_secs()),
            CertificateError::NotValidYetContext { not_before, .. } => {
                let start = format_timestamp(not_before.as_secs());
                format!("is not valid before {start}; check the clock of this machine")
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                let ca = format!("{} ({})", self.paths[CA_INDEX].display(), FILE_SETTINGS[CA_INDEX]);
                format!("is not signed by a certificate in {ca}, directly or through intermediate certificates")
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                // rustls formats a name in a certificate as text such as `IpAddress(10.0.0.7)` or `DnsName("a")`.
                let bare = |name: &String| Some(name.split_once('(')?.1.trim_matches(['"', ')']).to_owned());
                let named: Vec<String> = presented.iter().filter_map(bare).collect();
                let named = if named.is_empty() { "no host".to_owned() } else { named.join(", ") };
                let host = self.host.as_deref().unwrap_or_default();
                format!(
                    "is valid for {named} (subjectAltName), but other nodes connect to {host} (cluster.listen or \
                     cluster.internal_address)"
                )
            }
            CertificateError::InvalidPurposeContext { .. } => {
                "is not valid for both server and client use; extendedKeyUsage must contain serverAuth and clientAuth"
                    .to_owned()
            }
            // The error `CaUsedAsEndEntity` has a private type in rustls-webpki, so only its debug text identifies it.
            cause if format!("{cause:?}").contains("CaUsedAsEndEntity") => {
                "is a CA certificate; use this node's certificate".to_owned()
            }
            cause => format!("cannot be used: {cause}"),
        };
        self.file_error(CERTIFICATE_INDEX, reason)
    }
}

fn pem_error_text(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("ends before the line -----END {}-----", String::from_utf8_lossy(end_marker))
        }
        error => format!("is not PEM: {error}"),
    }
}

/// Returns the expiry of a certificate in seconds since 1970. rustls reports the expiry only in the error for an
/// expired certificate, so the certificate is verified at the latest possible time.
fn parse_expiry_s(certificate: &CertificateDer<'_>, provider: &CryptoProvider) -> Option<u64> {
    let end = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::MAX));
    let algorithms = provider.signature_verification_algorithms.all;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], end, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => Some(not_after.as_secs()),
        _ => None,
    }
}

fn expired_text(expired_s: u64) -> String {
    format!("expired at {}; use a valid one", format_timestamp(expired_s))
}

fn format_timestamp(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    date.map_or_else(|| format!("{seconds} s after 1970"), |date| date.to_rfc3339_opts(SecondsFormat::Secs, true))
}

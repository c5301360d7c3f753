//! Certificate files: a node that other nodes would reject does not start, and its error names the file and the reason.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use strata_cluster::tls::{NodeTls, TlsError};
use strata_types::error_chain::ErrorChain;

const HOST: &str = "127.0.0.1";

struct NodeAuthority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl NodeAuthority {
    fn new(name: &str) -> NodeAuthority {
        NodeAuthority::from_params(authority(name))
    }

    fn from_params(params: CertificateParams) -> NodeAuthority {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        NodeAuthority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn server(host: &str) -> CertificateParams {
    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

struct CertificateFiles {
    directory: tempfile::TempDir,
}

impl CertificateFiles {
    fn new(ca: &str, (certificate, key): &(String, String)) -> CertificateFiles {
        let files = CertificateFiles { directory: tempfile::tempdir().expect("a directory") };
        files.write("ca.pem", ca);
        files.write("node.pem", certificate);
        files.write("node.key", key);
        files
    }

    /// Valid files of a node on loopback, signed by a new CA.
    fn valid() -> CertificateFiles {
        let authority = NodeAuthority::new("nodes");
        CertificateFiles::new(&authority.certificate.pem(), &authority.sign(&server(HOST)))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> Result<Option<Arc<NodeTls>>, TlsError> {
        let path = |name| self.path(name).display().to_string();
        let options = format!(
            "internal_address = \"{HOST}:8081\"\ntls_certificate = {:?}\ntls_key = {:?}\ntls_ca = {:?}",
            path("node.pem"),
            path("node.key"),
            path("ca.pem")
        );
        let cluster = toml::from_str(&options).expect("a configuration");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { NodeTls::open(&cluster) })
    }
}

/// Returns the error of a node that does not start with these files. The error must not contain lines of the key.
#[track_caller]
fn rejection_message(written: &CertificateFiles) -> String {
    let error = written.open().err().expect("files are rejected");
    let text = ErrorChain(&error).to_string().replace(&format!("{}/", written.directory.path().display()), "");
    let key = std::fs::read_to_string(written.path("node.key")).unwrap_or_default();
    assert!(!text.contains('\n') && !key.lines().any(|line| !line.is_empty() && text.contains(line)), "{text}");
    text
}

#[track_caller]
fn check_rejection(name: &str, text: &str, expected: &str) {
    let written = CertificateFiles::valid();
    written.write(name, text);
    assert_eq!(rejection_message(&written), expected);
}

#[test]
fn unusable_files_are_named_with_the_reason() {
    let valid = CertificateFiles::valid();
    let text = |name: &str| std::fs::read_to_string(valid.path(name)).expect("a text");
    let no_certificate = "contains no PEM certificate (-----BEGIN CERTIFICATE-----)";
    for (setting, name) in [("tls_certificate", "node.pem"), ("tls_ca", "ca.pem")] {
        for other in ["", "text\n", &text("node.key")] {
            check_rejection(name, other, &format!("`cluster.{setting}`: {name} {no_certificate}"));
        }
    }
    let no_key = "contains no unencrypted PEM private key (-----BEGIN PRIVATE KEY-----)";
    for other in ["", &text("node.pem"), &text("node.key").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")] {
        check_rejection("node.key", other, &format!("`cluster.tls_key`: node.key {no_key}"));
    }
    check_rejection(
        "node.key",
        &text("node.key"),
        "`cluster.tls_key`: node.key does not match the certificate in node.pem",
    );
    let truncated: String = text("node.pem").lines().take(3).collect::<Vec<_>>().join("\n");
    let written = CertificateFiles::valid();
    written.write("node.pem", &truncated);
    let ends = "`cluster.tls_certificate`: node.pem ends before the line -----END CERTIFICATE-----";
    assert!(rejection_message(&written).starts_with(ends), "{}", rejection_message(&written));
    let head = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n";
    let passphrase = "`cluster.tls_key`: node.key is not PEM, or has a passphrase; use a key without one";
    check_rejection("node.key", &format!("{head}-----END EC PRIVATE KEY-----\n"), passphrase);
    let large = "\n".repeat(1 << 20);
    check_rejection("ca.pem", &large, "`cluster.tls_ca`: ca.pem is too large (1 MiB or more)");
    std::fs::remove_file(valid.path("node.key")).expect("removed");
    let missing = "`cluster.tls_key`: node.key cannot be read: No such file or directory";
    assert!(rejection_message(&valid).starts_with(missing), "{}", rejection_message(&valid));
}

#[track_caller]
fn check_certificate_rejection(change: impl FnOnce(&mut CertificateParams), expected: &str) {
    let ours = NodeAuthority::new("nodes");
    let mut params = server(HOST);
    change(&mut params);
    let written = CertificateFiles::new(&ours.certificate.pem(), &ours.sign(&params));
    assert_eq!(rejection_message(&written), format!("`cluster.tls_certificate`: node.pem {expected}"));
}

#[test]
fn certificate_that_peers_reject_is_rejected() {
    check_certificate_rejection(
        |params| params.not_after = date_time_ymd(2021, 2, 3),
        "expired at 2021-02-03T00:00:00Z; use a valid one",
    );
    check_certificate_rejection(
        |params| params.not_before = date_time_ymd(3021, 2, 3),
        "is not valid before 3021-02-03T00:00:00Z; check the clock of this machine",
    );
    check_certificate_rejection(
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        "is not valid for both server and client use; extendedKeyUsage must contain serverAuth and clientAuth",
    );
    check_certificate_rejection(
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        "is not valid for both server and client use; extendedKeyUsage must contain serverAuth and clientAuth",
    );
    check_certificate_rejection(
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        "is a CA certificate; use this node's certificate",
    );
    let connected = "other nodes connect to 127.0.0.1 (cluster.listen or cluster.internal_address)";
    check_certificate_rejection(
        |params| params.subject_alt_names.clear(),
        &format!("is valid for no host (subjectAltName), but {connected}"),
    );
    let ours = NodeAuthority::new("nodes");
    let unsigned = "`cluster.tls_certificate`: node.pem is not signed by a certificate in ca.pem (cluster.tls_ca), \
                    directly or through intermediate certificates";
    // A CA with the same name is also rejected.
    for name in ["other nodes", "nodes"] {
        let written = CertificateFiles::new(&NodeAuthority::new(name).certificate.pem(), &ours.sign(&server(HOST)));
        assert_eq!(rejection_message(&written), unsigned);
    }
    let written = CertificateFiles::new(&ours.certificate.pem(), &ours.sign(&server("n1.internal")));
    let message = rejection_message(&written);
    assert!(message.contains(&format!("is valid for n1.internal (subjectAltName), but {connected}")), "{message}");
}

#[test]
fn expired_authority_signs_nothing() {
    let mut params = authority("nodes");
    params.not_after = date_time_ymd(2021, 2, 3);
    let expired = NodeAuthority::from_params(params);
    let ours = NodeAuthority::new("nodes");
    let written = CertificateFiles::new(&expired.certificate.pem(), &ours.sign(&server(HOST)));
    let expected = "`cluster.tls_ca`: ca.pem contains only expired certificates; add a valid one";
    assert_eq!(rejection_message(&written), expected);
    // An additional valid CA is enough, but certificates of the expired CA stay invalid.
    let both = format!("{}{}", expired.certificate.pem(), ours.certificate.pem());
    assert!(CertificateFiles::new(&both, &ours.sign(&server(HOST))).open().is_ok());
    assert!(
        rejection_message(&CertificateFiles::new(&both, &expired.sign(&server(HOST)))).contains("is not signed by")
    );
}

#[test]
fn intermediate_certificate_in_the_file_is_used() {
    let root = NodeAuthority::new("root");
    let params = authority("between");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &root.issuer).expect("signed");
    let between = NodeAuthority { certificate, issuer: Issuer::new(params, key) };
    let (own, key) = between.sign(&server(HOST));
    let written = CertificateFiles::new(&root.certificate.pem(), &(own.clone(), key.clone()));
    assert!(rejection_message(&written).contains("is not signed by"));
    assert!(CertificateFiles::new(&root.certificate.pem(), &(own + &between.certificate.pem(), key)).open().is_ok());
}

//! The files of certificates: a server that others would refuse does not start, and says why.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use strata_cluster::tls::{NodeTls, TlsError};
use strata_types::causes::Causes;

const HOST: &str = "127.0.0.1";

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        Authority::of(authority(name))
    }

    fn of(params: CertificateParams) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority { certificate, issuer: Issuer::new(params, key) }
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

/// The files of a server.
struct Written {
    directory: tempfile::TempDir,
}

impl Written {
    fn new(ca: &str, (certificate, key): &(String, String)) -> Written {
        let written = Written { directory: tempfile::tempdir().expect("a directory") };
        written.write("ca.pem", ca);
        written.write("node.pem", certificate);
        written.write("node.key", key);
        written
    }

    /// Good files of a server at the loopback, signed by an authority that is made for them.
    fn good() -> Written {
        let authority = Authority::new("nodes");
        Written::new(&authority.certificate.pem(), &authority.sign(&server(HOST)))
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

/// What a server says that does not start with these files. Nothing of the key is in it.
#[track_caller]
fn refused(written: &Written) -> String {
    let error = written.open().err().expect("refused");
    let text = Causes(&error).to_string().replace(&format!("{}/", written.directory.path().display()), "");
    let key = std::fs::read_to_string(written.path("node.key")).unwrap_or_default();
    assert!(!text.contains('\n') && !key.lines().any(|line| !line.is_empty() && text.contains(line)), "{text}");
    text
}

#[track_caller]
fn told_of(name: &str, text: &str, told: &str) {
    let written = Written::good();
    written.write(name, text);
    assert_eq!(refused(&written), told);
}

#[test]
fn unusable_files_are_named_with_the_reason() {
    let good = Written::good();
    let text = |name: &str| std::fs::read_to_string(good.path(name)).expect("a text");
    let no_certificate = "contains no PEM certificate (-----BEGIN CERTIFICATE-----)";
    for (setting, name) in [("tls_certificate", "node.pem"), ("tls_ca", "ca.pem")] {
        for other in ["", "text\n", &text("node.key")] {
            told_of(name, other, &format!("`cluster.{setting}`: {name} {no_certificate}"));
        }
    }
    let no_key = "contains no unencrypted PEM private key (-----BEGIN PRIVATE KEY-----)";
    for other in ["", &text("node.pem"), &text("node.key").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")] {
        told_of("node.key", other, &format!("`cluster.tls_key`: node.key {no_key}"));
    }
    told_of("node.key", &text("node.key"), "`cluster.tls_key`: node.key does not match the certificate in node.pem");
    let cut: String = text("node.pem").lines().take(3).collect::<Vec<_>>().join("\n");
    let written = Written::good();
    written.write("node.pem", &cut);
    let ends = "`cluster.tls_certificate`: node.pem ends before the line -----END CERTIFICATE-----";
    assert!(refused(&written).starts_with(ends), "{}", refused(&written));
    let head = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n";
    let passphrase = "`cluster.tls_key`: node.key is not PEM, or has a passphrase; use a key without one";
    told_of("node.key", &format!("{head}-----END EC PRIVATE KEY-----\n"), passphrase);
    let large = "\n".repeat(1 << 20);
    told_of("ca.pem", &large, "`cluster.tls_ca`: ca.pem is too large (1 MiB or more)");
    std::fs::remove_file(good.path("node.key")).expect("removed");
    let missing = "`cluster.tls_key`: node.key cannot be read: No such file or directory";
    assert!(refused(&good).starts_with(missing), "{}", refused(&good));
}

#[track_caller]
fn told_of_certificate(change: impl FnOnce(&mut CertificateParams), told: &str) {
    let ours = Authority::new("nodes");
    let mut params = server(HOST);
    change(&mut params);
    let written = Written::new(&ours.certificate.pem(), &ours.sign(&params));
    assert_eq!(refused(&written), format!("`cluster.tls_certificate`: node.pem {told}"));
}

#[test]
fn certificate_that_others_refuse_is_refused() {
    told_of_certificate(
        |params| params.not_after = date_time_ymd(2021, 2, 3),
        "expired at 2021-02-03T00:00:00Z; use a valid one",
    );
    told_of_certificate(
        |params| params.not_before = date_time_ymd(3021, 2, 3),
        "is not valid before 3021-02-03T00:00:00Z; check the clock of this machine",
    );
    told_of_certificate(
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        "is not valid for both server and client use; extendedKeyUsage must contain serverAuth and clientAuth",
    );
    told_of_certificate(
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        "is not valid for both server and client use; extendedKeyUsage must contain serverAuth and clientAuth",
    );
    told_of_certificate(
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        "is a CA certificate; use this node's certificate",
    );
    let connected = "other nodes connect to 127.0.0.1 (cluster.listen or cluster.internal_address)";
    told_of_certificate(
        |params| params.subject_alt_names.clear(),
        &format!("is valid for no host (subjectAltName), but {connected}"),
    );
    let ours = Authority::new("nodes");
    let unsigned = "`cluster.tls_certificate`: node.pem is not signed by a certificate in ca.pem (cluster.tls_ca), \
                    directly or through intermediate certificates";
    // Also one with the same name.
    for name in ["other nodes", "nodes"] {
        let written = Written::new(&Authority::new(name).certificate.pem(), &ours.sign(&server(HOST)));
        assert_eq!(refused(&written), unsigned);
    }
    let written = Written::new(&ours.certificate.pem(), &ours.sign(&server("n1.internal")));
    let told = refused(&written);
    assert!(told.contains(&format!("is valid for n1.internal (subjectAltName), but {connected}")), "{told}");
}

#[test]
fn expired_authority_signs_nothing() {
    let mut params = authority("nodes");
    params.not_after = date_time_ymd(2021, 2, 3);
    let (expired, ours) = (Authority::of(params), Authority::new("nodes"));
    let written = Written::new(&expired.certificate.pem(), &ours.sign(&server(HOST)));
    let told = "`cluster.tls_ca`: ca.pem contains only expired certificates; add a valid one";
    assert_eq!(refused(&written), told);
    // One beside it that is good is enough, and it itself signs nothing any more.
    let both = format!("{}{}", expired.certificate.pem(), ours.certificate.pem());
    assert!(Written::new(&both, &ours.sign(&server(HOST))).open().is_ok());
    assert!(refused(&Written::new(&both, &expired.sign(&server(HOST)))).contains("is not signed by"));
}

#[test]
fn intermediate_certificate_in_the_file_is_used() {
    let root = Authority::new("root");
    let params = authority("between");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &root.issuer).expect("signed");
    let between = Authority { certificate, issuer: Issuer::new(params, key) };
    let (own, key) = between.sign(&server(HOST));
    let written = Written::new(&root.certificate.pem(), &(own.clone(), key.clone()));
    assert!(refused(&written).contains("is not signed by"));
    assert!(Written::new(&root.certificate.pem(), &(own + &between.certificate.pem(), key)).open().is_ok());
}

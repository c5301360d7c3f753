use std::net::SocketAddr;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

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

pub(crate) struct Written {
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
    pub(crate) fn good() -> Written {
        let authority = Authority::new("nodes");
        Written::new(&authority.certificate.pem(), &authority.sign(&server(HOST)))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn files(&self) -> Files {
        let path = |name| self.path(name).display().to_string();
        let options = format!(
            "internal_address = \"{HOST}:8081\"\ntls_certificate = {:?}\ntls_key = {:?}\ntls_ca = {:?}",
            path("node.pem"),
            path("node.key"),
            path("ca.pem")
        );
        Files::of(&toml::from_str(&options).expect("a configuration")).expect("files")
    }

    fn open(&self) -> Result<(Arc<NodeTls>, Watch), TlsError> {
        let files = self.files();
        let contents = files.read()?;
        NodeTls::of(files, contents)
    }

    pub(crate) fn tls(&self) -> Arc<NodeTls> {
        self.open().expect("good files").0
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
fn what_is_wrong_with_files_is_told() {
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
fn a_certificate_that_others_would_refuse_is_refused() {
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
fn who_signs_must_not_have_expired() {
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
fn certificates_between_that_of_a_server_and_the_authority_are_in_its_file() {
    let root = Authority::new("root");
    let mut params = authority("between");
    params.not_after = date_time_ymd(2300, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &root.issuer).expect("signed");
    let between = Authority { certificate, issuer: Issuer::new(params, key) };
    let (own, key) = between.sign(&server(HOST));
    let written = Written::new(&root.certificate.pem(), &(own.clone(), key.clone()));
    assert!(refused(&written).contains("is not signed by"));
    let (tls, _) =
        Written::new(&root.certificate.pem(), &(own + &between.certificate.pem(), key)).open().expect("good");
    // That of the server is good for longer.
    assert_eq!(tls.in_use.load().expires_s, Some(10_413_792_000));
}

/// A connection of one to another at a host, as each sees it.
async fn connected(client: &NodeTls, server: &NodeTls, host: &str) -> (io::Result<[u8; 4]>, io::Result<()>) {
    let listener = TcpListener::bind((HOST, 0)).await.expect("a port");
    let url = format!("https://{host}:{}", listener.local_addr().expect("an address").port());
    let url: Uri = url.parse().expect("a URL");
    let asks = async {
        let mut bytes = [0; 4];
        let mut stream = client.connect(&url).await?;
        stream.read_exact(&mut bytes).await.map(|_| bytes)
    };
    let is_asked = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut stream = server.acceptor().accept(stream).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        stream.write_all(b"done").await
    };
    tokio::join!(asks, is_asked)
}

#[tokio::test]
async fn servers_connect_by_certificates_of_one_authority_for_the_host() {
    let (ours, theirs) = (Authority::new("nodes"), Authority::new("nodes"));
    let open = |authority: &Authority| {
        let written = Written::new(&authority.certificate.pem(), &authority.sign(&server(HOST)));
        written.tls()
    };
    let (one, other, stranger) = (open(&ours), open(&ours), open(&theirs));
    let (asked, was_asked) = connected(&one, &other, HOST).await;
    assert_eq!(asked.expect("connected"), *b"done");
    was_asked.expect("connected");
    for (client, server, host) in [(&one, &stranger, HOST), (&stranger, &one, HOST), (&one, &other, "localhost")] {
        let (asked, was_asked) = connected(client, server, host).await;
        assert!(asked.is_err() && was_asked.is_err(), "{host}");
    }
    // Of a client that checks no less, and shows nothing.
    let listener = TcpListener::bind((HOST, 0)).await.expect("a port");
    let mut roots = RootCertStore::empty();
    roots.add(ours.certificate.der().clone()).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let shows_nothing = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let shows_nothing = shows_nothing.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let address: SocketAddr = listener.local_addr().expect("an address");
    let asks = async {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let name = ServerName::from(address.ip());
        let mut stream = TlsConnector::from(Arc::new(shows_nothing)).connect(name, stream).await?;
        stream.read_u8().await
    };
    let is_asked = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        one.acceptor().accept(stream).await.map(drop)
    };
    let (asked, was_asked) = tokio::join!(asks, is_asked);
    let told = was_asked.expect_err("refused").to_string();
    assert!(asked.is_err() && told.contains("certificate"), "{told}");
}

#[tokio::test]
async fn files_that_change_are_used_if_they_are_good() {
    let (before, after) = (Authority::new("nodes"), Authority::new("nodes"));
    let written = Written::new(&before.certificate.pem(), &before.sign(&server(HOST)));
    let (tls, mut watch) = written.open().expect("good files");
    let first = tls.in_use.load_full();
    watch.look(&tls).await;
    assert!(Arc::ptr_eq(&first, &tls.in_use.load()) && watch.trouble.is_none(), "nothing has changed");
    // One file after the other: between them they do not fit. Of that which stays, the log tells once.
    let (certificate, key) = after.sign(&server(HOST));
    written.write("node.pem", &certificate);
    for is_told in [false, true, true] {
        watch.look(&tls).await;
        let (cause, told) = watch.trouble.clone().expect("trouble");
        assert!(cause.contains("cluster.tls_key") && told == is_told, "{cause}");
        assert!(Arc::ptr_eq(&first, &tls.in_use.load()), "those before stay in use");
    }
    written.write("node.key", &key);
    watch.look(&tls).await;
    let (cause, told) = watch.trouble.clone().expect("trouble");
    assert!(cause.contains("is not signed by") && !told, "{cause}");
    written.write("ca.pem", &after.certificate.pem());
    watch.look(&tls).await;
    assert!(watch.trouble.is_none() && !Arc::ptr_eq(&first, &tls.in_use.load()));
    // The new ones are shown, and trusted.
    let other = Written::new(&after.certificate.pem(), &after.sign(&server(HOST))).tls();
    for (client, server) in [(&tls, &other), (&other, &tls)] {
        assert!(connected(client, server, HOST).await.0.is_ok());
    }
    let former = Written::new(&before.certificate.pem(), &before.sign(&server(HOST))).tls();
    assert!(connected(&former, &tls, HOST).await.0.is_err());
}

#[test]
fn a_certificate_that_expires_while_it_is_used_is_noticed() {
    let files = Written::good().files();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
    assert!(files.check_time(None, now).is_ok() && files.check_time(Some(1_000), now).is_ok());
    let error = files.check_time(Some(999), now).expect_err("expired").to_string();
    assert!(error.ends_with("expired at 1970-01-01T00:16:39Z; use a valid one"), "{error}");
}

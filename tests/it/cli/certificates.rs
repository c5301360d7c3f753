//! The certificate authorities that the binary trusts, and its reports of failed TLS connections.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use strata_testing::loopback_server::{LoopbackServer, ok};
use strata_testing::machine::{Machine, Server, failed, get, one_json_line, request, succeeded};
use strata_testing::wait::eventually;

const LOOPBACK: (&str, &str) = ("STRATA_NET__ALLOW", "127.0.0.1");

/// Returns the environment of a machine that trusts only the authorities in `ca.pem`, which may be missing.
fn ca_environment(machine: &Machine) -> [(&'static str, String); 3] {
    let path = |name: &str| machine.path(name).display().to_string();
    [(LOOPBACK.0, LOOPBACK.1.to_owned()), ("SSL_CERT_FILE", path("ca.pem")), ("SSL_CERT_DIR", path("no-directory"))]
}

/// A certificate authority for server certificates.
struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl CertificateAuthority {
    fn new(name: &str) -> CertificateAuthority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        CertificateAuthority { issuer: Issuer::new(params, key), pem }
    }

    /// Returns the TLS settings of a server with a certificate for `localhost`, which `change` can modify.
    fn server(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate: CertificateDer<'static> = params.signed_by(&key, &self.issuer).expect("signed").der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        // Another test may have installed the provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
        Arc::new(config.expect("a certificate and its key"))
    }
}

/// Serves one TLS connection: first `before` without TLS, then a fixed HTTP response. Returns the port. The thread ends
/// with the connection and returns the bytes that the client sent inside TLS.
fn serve_tls(
    config: Arc<ServerConfig>,
    before: impl FnOnce(&mut std::net::TcpStream) + Send + 'static,
) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        before(&mut connection);
        let mut stream = StreamOwned::new(ServerConnection::new(config).expect("a connection"), connection);
        let mut first = [0; 1024];
        let length = stream.read(&mut first).unwrap_or(0);
        let body = br#"[{"a":1}]"#;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        // A client that does not trust the certificate has closed the connection.
        let _ = stream.write_all(&[head.as_bytes(), body].concat()).and_then(|()| stream.flush());
        first[..length].to_vec()
    });
    (port, thread)
}

fn import(machine: &Machine, url: &str) -> Command {
    let arguments = ["import", url, "--name", "Things", "--owner", "ada@example.test", "--format", "json"];
    let mut command = machine.command(&arguments);
    command.envs(ca_environment(machine));
    command
}

#[test]
fn http_fetch_without_ca_certificates_works() {
    let machine = Machine::with_user();
    let source = LoopbackServer::start(|_| ok("Content-Type: application/json\r\n", br#"[{"a":1}]"#));
    one_json_line(&import(&machine, &source.url("/things.json")).output().expect("the binary runs"));

    let (port, thread) = serve_tls(CertificateAuthority::new("any").server(|_| {}), |_| {});
    let text = failed(&import(&machine, &format!("https://localhost:{port}/")).output().expect("the binary runs"));
    assert!(text.contains(&format!("the TLS connection to localhost:{port} failed: ")), "{text}");
    assert!(text.contains("has no CA certificates") && text.contains("ca-certificates"), "{text}");
    thread.join().expect("the server ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_webhook_without_ca_certificates_is_sent() {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "test"];
    let added = succeeded(&machine.run_with_input(&add, "correct horse\n"));
    let token = added.lines().last().expect("a token");
    let source = LoopbackServer::start(|_| ok("Content-Type: application/json\r\n", br#"[{"a":1}]"#));
    let environment = ca_environment(&machine);
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let server = Server::start(&machine, &[], &environment);
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let post = |path: &str, body: serde_json::Value| {
        let (head, body) = request("POST", &format!("{}{path}", server.base_url), &headers, &body.to_string());
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}{body}");
    };
    post("/dataset/create", json!({"name": "Things", "source": source.url("/things.json")}));
    post("/webhook/register", json!({"dataset_id": 1, "url": source.url("/hook")}));
    post("/dataset/refresh", json!({"dataset_id": 1}));
    let is_sent = async || source.received().iter().any(|request| request.target == "/hook");
    eventually("the webhook is sent", is_sent).await;
    // The same process reports that an https source needs CA certificates.
    let (port, _) = serve_tls(CertificateAuthority::new("any").server(|_| {}), |_| {});
    post("/dataset/update", json!({"dataset_id": 1, "source": format!("https://localhost:{port}/")}));
    let url = format!("{}/dataset/refresh", server.base_url);
    let (head, body) = request("POST", &url, &headers, r#"{"dataset_id":1}"#);
    assert!(head.starts_with("http/1.1 502") && body.contains("has no CA certificates"), "{head}{body}");
    assert!(get(&format!("{}/healthz", server.base_url), None).0.starts_with("http/1.1 200"));
}

#[test]
fn failed_handshake_is_reported_in_words() {
    let machine = Machine::with_user();
    let authority = CertificateAuthority::new("trusted");
    let other = CertificateAuthority::new("other");
    machine.write("ca.pem", &authority.pem);
    type Change = fn(&mut CertificateParams);
    let cases: [(&CertificateAuthority, Change, &str); 5] = [
        (&authority, |_| {}, ""),
        (&other, |_| {}, "certificate is not signed by a certificate authority that this machine trusts"),
        (&authority, |params| params.subject_alt_names.clear(), "certificate is not valid for this host name"),
        (&authority, |params| params.not_after = date_time_ymd(2020, 1, 1), "certificate has expired"),
        (
            &authority,
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "certificate is not a server certificate",
        ),
    ];
    for (authority, change, expected) in cases {
        let (port, thread) = serve_tls(authority.server(change), |_| {});
        let output = import(&machine, &format!("https://localhost:{port}/")).output().expect("the binary runs");
        thread.join().expect("the server ends");
        match expected {
            "" => drop(one_json_line(&output)),
            expected => {
                let text = failed(&output);
                let expected = format!("the TLS connection to localhost:{port} failed: the server's {expected}");
                assert!(text.ends_with(&expected), "{text}");
            }
        }
    }
    let unencrypted = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unencrypted.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = unencrypted.accept().expect("a connection");
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
        // Reads until the client closes the connection.
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let text = failed(&import(&machine, &format!("https://127.0.0.1:{port}/")).output().expect("the binary runs"));
    assert!(text.ends_with("the server does not speak TLS on this port"), "{text}");
    thread.join().expect("the server ends");
}

/// Regression: PostgreSQL's driver used a bundled list of authorities, which lacked the operator's own.
#[test]
fn postgres_trusts_the_machines_authorities() {
    let machine = Machine::new();
    let authority = CertificateAuthority::new("any");
    for trusts in [false, true] {
        if trusts {
            machine.write("ca.pem", &authority.pem);
        }
        // PostgreSQL responds to the TLS request with one byte.
        let (port, thread) = serve_tls(authority.server(|_| {}), |connection| {
            connection.read_exact(&mut [0; 8]).expect("a request for TLS");
            connection.write_all(b"S").expect("written");
        });
        let url = format!("postgres://strata:secret@localhost:{port}/strata?sslmode=verify-full");
        let mut command = machine.command(&["list"]);
        command.envs(ca_environment(&machine)).env("STRATA_CATALOG__URL", url);
        let output = command.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(1), "the server is not PostgreSQL");
        let sent = thread.join().expect("the server ends");
        // The client sends the startup message with the user name only after an accepted handshake.
        let names_user = sent.windows(6).any(|bytes| bytes == b"strata");
        assert_eq!(names_user, trusts, "{}", String::from_utf8_lossy(&sent));
    }
}

//! The addresses on which a server listens, and the addresses in its responses.

use std::io::{Read, Write};
use std::net::TcpStream;

use strata_testing::certificates::Certificates;
use strata_testing::machine::{Machine, Server, failed, one_json_line};

/// Sends an HTTP/1.0 request without `Host`, so that links in the response can only contain the server's own address.
fn request_without_host(server: &Server, path: &str) -> String {
    let address = server.base_url.strip_prefix("http://").expect("an http URL");
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a response");
    answer
}

/// Regression: the link contained port 0.
#[test]
fn link_contains_port_chosen_by_system() {
    let machine = Machine::with_user();
    machine.write("many.jsonl", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
    one_json_line(&machine.import("many.jsonl", &[]));
    for listen in ["127.0.0.1:0", "localhost:0", "0.0.0.0:00"] {
        machine.write("strata.toml", &format!("[server]\nlisten = \"{listen}\"\n"));
        let server = Server::configured(&machine, "strata.toml", &[]);
        let answer = request_without_host(&server, "/api/1/small-things/active/?limit=1&offset=1");
        assert!(answer.starts_with("HTTP/1.0 200"), "{listen}: {answer}");
        let link = answer.lines().find_map(|line| line.to_lowercase().strip_prefix("link: ").map(str::to_owned));
        let expected = ["next\", ", "prev\""].map(|relation| {
            let offset = if relation.starts_with("next") { 2 } else { 0 };
            format!("<{}/api/1/small-things/v1/?limit=1&offset={offset}>; rel=\"{relation}", server.base_url)
        });
        assert_eq!(link, Some(expected.concat()), "{listen}");
    }
}

/// A server that cannot apply an option reports this and does not start.
#[test]
fn server_unable_to_run_tasks_does_not_start() {
    let machine = Machine::new();
    let start = |environment: &[(&str, &str)]| {
        let mut command = machine.command(&["serve", "--listen", "127.0.0.1:0"]);
        failed(&command.envs(environment.iter().copied()).output().expect("the binary runs"))
    };
    let listen = ("STRATA_CLUSTER__LISTEN", "127.0.0.1:0");
    let secret = ("STRATA_CLUSTER__SECRET", "a secret of the nodes");
    let message = start(&[listen, secret, ("STRATA_SERVER__ROLES", "http,refresh")]);
    assert!(message.contains("cluster.listen") && message.contains("add `query` to server.roles"), "{message}");
    let message = start(&[listen]);
    assert!(message.contains("cluster.listen") && message.contains("also set cluster.secret"), "{message}");
    for blank in ["                ", "\t \t \t \t \t \t \t \t x"] {
        let message = start(&[listen, ("STRATA_CLUSTER__SECRET", blank)]);
        assert!(message.contains("cluster.secret") && message.contains("at least 16 bytes"), "{message}");
    }
    assert!(!machine.path("strata-data").exists());
}

#[test]
fn server_with_bad_certificate_does_not_start() {
    let machine = Machine::new();
    let certificates = Certificates::make("127.0.0.");
    let secret = ("STRATA_CLUSTER__SECRET".to_owned(), "a secret of the nodes".to_owned());
    let environment = |listen: &str, more: &[(String, String)]| {
        let listen = ("STRATA_CLUSTER__LISTEN".to_owned(), listen.to_owned());
        [vec![secret.clone(), listen], certificates.environment(0), more.to_vec()].concat()
    };
    let start = |environment: Vec<(String, String)>| {
        let mut command = machine.command(&["serve", "--listen", "127.0.0.1:0"]);
        failed(&command.envs(environment).output().expect("the binary runs"))
    };
    let own = certificates.path("127.0.0.11.pem").display().to_string();
    let message = start(environment("127.0.0.12:0", &[]));
    let named = "is valid for 127.0.0.11 (subjectAltName), but other nodes connect to 127.0.0.12";
    assert!(message.starts_with(&format!("strata: `cluster.tls_certificate`: {own} {named}")), "{message}");
    let key = ("STRATA_CLUSTER__TLS_KEY".to_owned(), certificates.path("127.0.0.12.key").display().to_string());
    let message = start(environment("127.0.0.11:0", &[key]));
    assert!(message.ends_with(&format!("127.0.0.12.key does not match the certificate in {own}")), "{message}");
    let missing_code = ("STRATA_CLUSTER__TLS_CA".to_owned(), certificates.path("nothing").display().to_string());
    let message = start(environment("127.0.0.11:0", &[missing_code]));
    assert!(message.contains("`cluster.tls_ca`: ") && message.contains("nothing cannot be read: No such"), "{message}");
    let mut incomplete = environment("127.0.0.11:0", &[]);
    incomplete.retain(|(name, _)| name != "STRATA_CLUSTER__TLS_KEY");
    assert!(start(incomplete).contains("must also set cluster.tls_key"));
    assert!(!machine.path("strata-data").exists());
    let good = environment("127.0.0.11:0", &[]);
    let good: Vec<(&str, &str)> = good.iter().map(|(name, value)| (&**name, &**value)).collect();
    Server::start(&machine, &[], &good);
}

//! `[cluster]`: options that depend on each other, secrets, and addresses.

use strata_config::{ClusterConfig, Config, InternalAddress};

use super::write_sources;

const SECRET: &str = "secret = \"a long random text\"\n";

/// Loads these options for a process with these roles. Returns the error as `key: reason`.
fn check_as(roles: &[&str], options: &str) -> Result<(), String> {
    let written = write_sources(&format!("[server]\nroles = {roles:?}\n[cluster]\n{options}"), &[]);
    let loaded = Config::load(&written.sources).map(drop);
    loaded.map_err(|error| {
        let message = error.to_string();
        let (_, violation) = message.split_once(": `").unwrap_or_else(|| panic!("no key: {message}"));
        violation.replacen("`: ", ": ", 1)
    })
}

fn check(options: &str) -> Result<(), String> {
    check_as(&["http", "refresh", "query"], options)
}

#[test]
fn listen_requires_secret_and_reachable_address() {
    assert_eq!(check(""), Ok(()));
    assert_eq!(check(SECRET), Ok(()));
    assert_eq!(check(&format!("{SECRET}listen = \"10.0.0.7:8081\"")), Ok(()));
    let everywhere = format!("{SECRET}listen = \"0.0.0.0:8081\"\ninternal_address = \"10.0.0.7:8081\"");
    assert_eq!(check(&everywhere), Ok(()));
    for (listen, secret) in [("10.0.0.7:8081", ""), ("0.0.0.0:8081", SECRET), ("[::]:8081", SECRET)] {
        let refused = check(&format!("{secret}listen = {listen:?}")).expect_err("failed to reject input");
        assert!(refused.starts_with("cluster.listen: "), "{refused}");
    }
    for secret in ["", SECRET] {
        let refused =
            check(&format!("{secret}internal_address = \"10.0.0.7:8081\"")).expect_err("failed to reject input");
        assert!(
            refused.starts_with("cluster.internal_address: ") && refused.contains("you must also set cluster.listen")
        );
    }
}

#[test]
fn listen_requires_query_role() {
    let options = format!("{SECRET}listen = \"10.0.0.7:8081\"");
    assert_eq!(check_as(&["query"], &options), Ok(()));
    let refused = check_as(&["http", "refresh"], &options).expect_err("failed to reject input");
    assert!(refused.starts_with("cluster.listen: ") && refused.contains("server.roles"), "{refused}");
    assert_eq!(check_as(&["http"], ""), Ok(()));
}

#[test]
fn tls_requires_three_files_and_secret() {
    let files = ["tls_certificate", "tls_key", "tls_ca"];
    let options = |names: &[&str]| {
        let files: Vec<String> = names.iter().map(|name| format!("{name} = \"/etc/strata/x.pem\"\n")).collect();
        format!("{SECRET}{}", files.concat())
    };
    assert_eq!(check(&options(&files)), Ok(()));
    for missing in files {
        let present: Vec<&str> = files.into_iter().filter(|name| *name != missing).collect();
        let refused = check(&options(&present)).expect_err("failed to reject input");
        assert!(refused.starts_with(&format!("cluster.{}: ", present[0])), "{refused}");
        assert!(refused.ends_with(&format!("you must also set cluster.{missing}")), "{refused}");
    }
    let refused = check(&options(&files).replace(SECRET, "")).expect_err("failed to reject input");
    assert!(refused.starts_with("cluster.tls_certificate: ") && refused.contains("cluster.secret"), "{refused}");
}

#[test]
fn short_secret_is_rejected_and_never_shown() {
    let parse = |secret: &str| toml::from_str::<ClusterConfig>(&format!("secret = {secret:?}"));
    assert!(parse("0123456789abcdef").is_ok());
    let refused = parse("sesame").expect_err("failed to reject input").message().to_owned();
    assert!(refused.contains("at least 16 bytes") && !refused.contains("sesame"), "{refused}");
    // White space does not count, regardless of its length.
    for white_space in [" ".repeat(64), format!("{}0123456789abcde\n", " ".repeat(16)), "\t\u{3000}".repeat(16)] {
        assert!(parse(&white_space).is_err(), "{white_space:?}");
    }
    assert!(parse("sixteen bytes or more, with blanks").is_ok());
    let shown = format!("{:?}", parse("0123456789abcdef").expect("failed to parse secret"));
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn internal_address_requires_host_and_port() {
    for address in ["10.0.0.7:8081", "[2001:db8::7]:1", "node-7.internal:65535"] {
        assert_eq!(InternalAddress::try_from(address.to_owned()).expect("failed to parse address").as_str(), address);
    }
    for text in ["", "host", ":1", "host:", "host:0", "host:65536", "a b:1", "[::1:1", "2001:db8::7:1", "http://a:1"] {
        assert!(InternalAddress::try_from(text.to_owned()).is_err(), "{text:?}");
    }
}

//! Where outgoing requests may go: URLs at registration, names at connection, redirects, proxies.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use strata_config::Networks;
use strata_ingest::net::{AddressPolicy, LookUp, LookUpLimits, Outgoing, parse_http_url};
use strata_ingest::{FetchLimits, Opened, SourceClient, SourceError};
use strata_testing::loopback_server::{LoopbackServer, ok, redirect};

/// Names with the answers that they give one after the other, the last one again and again.
#[derive(Default)]
struct Names {
    answers: HashMap<&'static str, Vec<Vec<IpAddr>>>,
    asked: Arc<Mutex<Vec<String>>>,
    turns: AtomicUsize,
}

impl Names {
    fn new(names: &[(&'static str, &[&[&str]])]) -> Self {
        let address = |text: &&str| text.parse().expect("an address");
        let answers = |answers: &[&[&str]]| answers.iter().map(|answer| answer.iter().map(address).collect()).collect();
        Self { answers: names.iter().map(|(name, given)| (*name, answers(given))).collect(), ..Self::default() }
    }
}

impl LookUp for Names {
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.asked.lock().expect("no panic").push(name.to_owned());
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.get(name.trim_end_matches('.'));
        let answer = answers.and_then(|answers| answers.get(turn).or(answers.last())).cloned();
        async move { answer.ok_or_else(|| io::Error::other("there is no such name")) }.boxed()
    }
}

fn policy(networks: &[&str]) -> AddressPolicy {
    let texts: Vec<String> = networks.iter().map(|text| (*text).to_owned()).collect();
    AddressPolicy::new(Networks::try_from(texts).expect("networks").as_slice().iter().copied())
}

/// Registers a URL: empty if it passes, else the error.
async fn register(outgoing: &Outgoing, url: &str) -> String {
    match parse_http_url(url) {
        Err(error) => error.to_string(),
        Ok(url) => outgoing.check(&url).await.err().map_or(String::new(), |error| error.to_string()),
    }
}

#[tokio::test]
async fn urls_are_refused_at_registration_however_they_are_spelt() {
    let names = Names::new(&[
        ("public.test", &[&["93.184.216.34", "2606:2800:21f::1"]]),
        ("inside.test", &[&["10.1.2.3"]]),
        ("metadata.google.internal", &[&["169.254.169.254"]]),
        ("loop6.test", &[&["::1"]]),
        ("mapped.test", &[&["::ffff:192.168.1.1"]]),
        ("several.test", &[&["10.0.0.1", "127.0.0.1", "fd00::1"]]),
        ("split.test", &[&["fd00::1", "93.184.216.34"]]),
        ("empty.test", &[&[]]),
    ]);
    let outgoing = Outgoing::with_look_up(AddressPolicy::default(), names);
    let passes = "";
    for (url, expected) in [
        ("http://public.test/x", passes),
        ("https://public.test:8443/x?y=z#w", passes),
        ("HTTPS://PUBLIC.test", passes),
        ("http://user:password@public.test/", passes),
        ("http://nowhere.test/", passes),
        ("http://empty.test/", passes),
        // What is connected to later is the public address alone.
        ("http://split.test/", passes),
        ("http://93.184.216.34/", passes),
        ("http://[2606:2800:21f::1]/", passes),
        ("http://127.0.0.1/", "127.0.0.1 is a loopback address"),
        ("http://127.0.0.1:80/", "a loopback address"),
        ("http://127.1/", "127.0.0.1 is a loopback address"),
        ("http://127.0.1/", "a loopback address"),
        ("http://2130706433/", "127.0.0.1 is a loopback address"),
        ("http://017700000001/", "127.0.0.1 is a loopback address"),
        ("http://0177.0.0.1/", "127.0.0.1 is a loopback address"),
        ("http://0x7f000001/", "127.0.0.1 is a loopback address"),
        ("http://0x7f.0.0.0x1/", "a loopback address"),
        ("http://0X7F.1/", "a loopback address"),
        ("http://127.0.0.1./", "a loopback address"),
        ("http://%31%32%37.0.0.1/", "a loopback address"),
        ("http://１２７.０.０.１/", "a loopback address"),
        ("http://127。0。0。1/", "a loopback address"),
        ("http://①②⑦.0.0.1/", "a loopback address"),
        ("http://0/", "unspecified"),
        ("http://0.0.0.0:8080/", "unspecified"),
        ("http://localhost/", "localhost resolves to a loopback address"),
        ("http://LOCALHOST:8080/", "a loopback address"),
        ("http://localhost./", "a loopback address"),
        ("http://a.b.localhost/", "a loopback address"),
        ("http://10.0.0.1/", "a private address"),
        ("http://3232235777/", "192.168.1.1 is a private address"),
        ("http://169.254.169.254/latest/meta-data/", "a cloud metadata service"),
        ("http://0xa9fea9fe/", "a cloud metadata service"),
        ("http://metadata.google.internal/", "resolves to a cloud metadata service"),
        ("http://100.64.0.1/", "carrier-grade NAT"),
        ("http://255.255.255.255/", "the broadcast address"),
        ("http://inside.test/", "inside.test resolves to a private address"),
        ("http://inside.test./", "resolves to a private address"),
        ("http://loop6.test/", "resolves to a loopback address"),
        ("http://mapped.test/", "resolves to a private address"),
        ("http://several.test/", "several.test resolves to"),
        ("http://[::1]/", "[::1] is a loopback address"),
        ("http://[::]/", "the unspecified address"),
        ("http://[0:0:0:0:0:0:0:1]:8080/", "a loopback address"),
        ("http://[::ffff:127.0.0.1]/", "a loopback address"),
        ("http://[::ffff:7f00:1]/", "a loopback address"),
        ("http://[::127.0.0.1]/", "an IPv4-compatible address"),
        ("http://[64:ff9b::7f00:1]/", "a loopback address"),
        ("http://[2002:7f00:1::]/", "a loopback address"),
        ("http://[fd00:ec2::254]/", "a cloud metadata service"),
        ("http://[fe80::1]/", "a link-local address"),
        // An address with a zone is none in a URL.
        ("http://[fe80::1%25eth0]/", "it is not a URL"),
        ("http://[fe80::1%eth0]/", "it is not a URL"),
        ("http://[::1/", "it is not a URL"),
        ("http://256.0.0.1/", "it is not a URL"),
        ("http://1.2.3.4.5/", "it is not a URL"),
        ("http://0x7g.1/", "it is not a URL"),
        // Whatever a host looks like before the last @, and whatever a backslash seems to separate.
        ("http://public.test@127.0.0.1/", "a loopback address"),
        ("http://public.test:80@127.0.0.1/", "a loopback address"),
        ("http://public.test%40127.0.0.1/", "it is not a URL"),
        ("http://127.0.0.1\\@public.test/", "a loopback address"),
        ("http://public.test\\@127.0.0.1/", passes),
        ("http://127.0.0.1#@public.test/", "a loopback address"),
        ("http://127.0.0.1?@public.test/", "a loopback address"),
        ("http:127.0.0.1/", "a loopback address"),
        ("http:\\\\127.0.0.1\\", "a loopback address"),
        (" \thttp://127.0.\n0.1/", "a loopback address"),
        ("http://", "it is not a URL"),
        ("http:///", "it is not a URL"),
        ("https://:80/", "it is not a URL"),
        ("", "it is not a URL"),
        ("public.test", "it is not a URL"),
        ("//public.test/", "it is not a URL"),
        ("ftp://public.test/", "ftp: is not supported; valid: http: and https:"),
        ("file:///etc/passwd", "file: is not supported"),
        ("gopher://127.0.0.1/", "gopher: is not supported"),
        ("javascript:alert(1)", "javascript: is not supported"),
        ("unix:/var/run/docker.sock", "unix: is not supported"),
    ] {
        let found = register(&outgoing, url).await;
        assert_eq!(found.is_empty(), expected.is_empty(), "{url:?}: {found:?}");
        assert!(found.contains(expected), "{url:?}: {found:?}");
        if !found.is_empty() && !found.contains("it is not a URL") && !found.contains("is not supported; valid: http") {
            assert!(found.contains("net.allow"), "{url:?}: {found:?}");
        }
    }
    let long = register(&outgoing, &format!("http://public.test/{}", "x".repeat(9_000))).await;
    assert!(long.contains("longer than 8 KiB"), "{long}");
}

#[tokio::test]
async fn what_the_operator_opens_passes() {
    let names = Names::new(&[("inside.test", &[&["10.1.2.3"]]), ("loop6.test", &[&["::1"]])]);
    let outgoing = Outgoing::with_look_up(policy(&["127.0.0.0/8", "10.1.2.3", "fd00::/8"]), names);
    for url in ["http://127.0.0.1/", "http://localhost/", "http://inside.test/", "http://[fd00::1]/"] {
        assert_eq!(register(&outgoing, url).await, "", "{url}");
    }
    for url in ["http://10.1.2.4/", "http://[::1]/", "http://loop6.test/"] {
        assert!(register(&outgoing, url).await.contains("net.allow"), "{url}");
    }
}

/// Opens a source and gives its first bytes' origin, or the error.
async fn open(outgoing: Outgoing, url: &str) -> Result<String, SourceError> {
    match SourceClient::new(outgoing, FetchLimits::default(), None).open(url, None).await? {
        Opened::Document(fetched) => Ok(fetched.validators.url),
        Opened::NotModified(_) => panic!("nobody asked"),
    }
}

#[track_caller]
fn assert_refused(answer: Result<String, SourceError>, expected: &str) {
    match answer {
        Err(SourceError::BadAddress { reason }) => assert!(reason.contains(expected), "{reason}"),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn the_address_that_is_checked_is_the_one_that_is_connected_to() {
    let server = LoopbackServer::start(|_| ok("", b"[]"));
    let names = Names::new(&[("rebinding.test", &[&["93.184.216.34"], &["127.0.0.1"]])]);
    let asked = names.asked.clone();
    let outgoing = Outgoing::with_look_up(AddressPolicy::default(), names);
    let url = format!("http://rebinding.test:{}/a.json", server.port());
    let client = SourceClient::new(outgoing.clone(), FetchLimits::default(), None);
    client.check(&url).await.expect("a public address at registration");
    assert_refused(open(outgoing, &url).await, "rebinding.test resolves to a loopback address");
    assert_eq!(server.received().len(), 0, "nothing was sent");
    assert_eq!(*asked.lock().expect("no panic"), ["rebinding.test", "rebinding.test"]);
}

#[tokio::test]
async fn of_several_addresses_only_those_that_may_be_are_connected_to() {
    let server = LoopbackServer::start(|_| ok("", b"[]"));
    // 127.0.0.2 answers on this machine, too, and comes first.
    let names = Names::new(&[("several.test", &[&["127.0.0.2", "10.0.0.1", "127.0.0.1"]])]);
    let outgoing = Outgoing::with_look_up(policy(&["127.0.0.1"]), names);
    let url = format!("http://several.test:{}/a.json", server.port());
    assert_eq!(open(outgoing, &url).await.expect("an answer"), url);
    assert_eq!(server.received()[0].header("host"), Some(&*format!("several.test:{}", server.port())));
}

#[tokio::test]
async fn every_redirect_is_checked() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/literal" => redirect("http://127.0.0.2:1/x"),
        "/spelt" => redirect("http://0x7f.2:1/x"),
        "/v6" => redirect("http://[::1]:1/x"),
        "/name" => redirect("http://inside.test/x"),
        "/localhost" => redirect("//localhost:1/x"),
        "/user" => redirect("http://public.test@10.0.0.1/x"),
        "/scheme" => redirect("gopher://127.0.0.1:70/x"),
        "/file" => redirect("file:///etc/passwd"),
        "/twice" => redirect("/literal"),
        _ => ok("", b"[]"),
    });
    for (path, expected) in [
        ("/literal", "127.0.0.2 is a loopback address"),
        ("/spelt", "127.0.0.2 is a loopback address"),
        ("/v6", "[::1] is a loopback address"),
        ("/name", "inside.test resolves to a private address"),
        ("/user", "10.0.0.1 is a private address"),
        ("/scheme", "gopher: is not supported; valid: http: and https:"),
        ("/twice", "127.0.0.2 is a loopback address"),
    ] {
        let names = Names::new(&[("inside.test", &[&["10.0.0.1"]])]);
        let outgoing = Outgoing::with_look_up(policy(&["127.0.0.1"]), names);
        assert_refused(open(outgoing, &server.url(path)).await, expected);
    }
    let answer = open(Outgoing::new(policy(&["127.0.0.1"])), &server.url("/file")).await;
    assert!(matches!(answer, Err(SourceError::Unreachable { .. })), "{answer:?}");
    // What is open may be redirected to, by name, too: localhost is 127.0.0.1 without the port that listens.
    let answer = open(Outgoing::new(policy(&["127.0.0.1"])), &server.url("/localhost")).await;
    assert!(matches!(answer, Err(SourceError::Unreachable { .. })), "{answer:?}");
}

/// Resolves all names to a private address, but never answers for those that begin with `silent`.
#[derive(Default)]
struct Silent(Arc<AtomicUsize>);

impl LookUp for Silent {
    fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let asked = self.0.clone();
        let is_silent = name.starts_with("silent");
        async move {
            asked.fetch_add(1, Ordering::SeqCst);
            match is_silent {
                true => std::future::pending().await,
                false => Ok(vec![IpAddr::from([10, 0, 0, 1])]),
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn silent_names_of_one_user_delay_no_other_user() {
    let limits = LookUpLimits { at_once: 3, at_once_for_one: 2, timeout: Duration::from_secs(1) };
    let silent = Silent::default();
    let asked = silent.0.clone();
    let outgoing = Outgoing::with_look_up(AddressPolicy::default(), silent).with_limits(limits);
    let hostile: Vec<_> = (0..10)
        .map(|number| {
            let outgoing = outgoing.for_user(1);
            tokio::spawn(async move { register(&outgoing, &format!("http://silent{number}.test/")).await })
        })
        .collect();
    while asked.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    // None of the ten has ended, or more than two would have been asked.
    let found = register(&outgoing.for_user(2), "http://honest.test/").await;
    assert!(found.contains("honest.test resolves to a private address"), "{found}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    // The names of the others did not resolve in time, including the wait for their turn.
    for registered in hostile {
        assert_eq!(registered.await.expect("no panic"), "");
    }
}

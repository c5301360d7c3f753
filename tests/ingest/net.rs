//! The restrictions of outgoing requests: URLs at registration, names at connection, and redirects.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use strata_config::AllowedNetworks;
use strata_ingest::egress::{AddressPolicy, DnsLookupLimits, EgressClient, HostResolver, parse_http_url};
use strata_ingest::{FetchLimits, FetchOutcome, SourceClient, SourceError};
use strata_testing::loopback_server::{LoopbackServer, ok, redirect};

/// A resolver with scripted responses. For each name, the last response repeats.
#[derive(Default)]
struct ScriptedResolver {
    responses: HashMap<&'static str, Vec<Vec<IpAddr>>>,
    queries: Arc<Mutex<Vec<String>>>,
    query_count: AtomicUsize,
}

impl ScriptedResolver {
    fn new(names: &[(&'static str, &[&[&str]])]) -> Self {
        let address = |text: &&str| text.parse().expect("failed to parse address");
        let parse =
            |responses: &[&[&str]]| responses.iter().map(|response| response.iter().map(address).collect()).collect();
        Self { responses: names.iter().map(|(name, responses)| (*name, parse(responses))).collect(), ..Self::default() }
    }
}

impl HostResolver for ScriptedResolver {
    fn resolve_host(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.queries.lock().expect("failed to lock").push(name.to_owned());
        let index = self.query_count.fetch_add(1, Ordering::SeqCst);
        let responses = self.responses.get(name.trim_end_matches('.'));
        let response = responses.and_then(|responses| responses.get(index).or(responses.last())).cloned();
        async move { response.ok_or_else(|| io::Error::other("there is no such name")) }.boxed()
    }
}

fn policy(networks: &[&str]) -> AddressPolicy {
    let texts: Vec<String> = networks.iter().map(|text| (*text).to_owned()).collect();
    AddressPolicy::new(AllowedNetworks::try_from(texts).expect("failed to parse networks").as_slice().iter().copied())
}

/// Checks a URL for registration. Returns the error, or an empty string if the URL is accepted.
async fn register(egress_client: &EgressClient, url: &str) -> String {
    match parse_http_url(url) {
        Err(error) => error.to_string(),
        Ok(url) => egress_client.check_url(&url).await.err().map_or(String::new(), |error| error.to_string()),
    }
}

#[tokio::test]
async fn forbidden_urls_are_rejected_at_registration() {
    let resolver = ScriptedResolver::new(&[
        ("public.test", &[&["93.184.216.34", "2606:2800:21f::1"]]),
        ("inside.test", &[&["10.1.2.3"]]),
        ("metadata.google.internal", &[&["169.254.169.254"]]),
        ("loop6.test", &[&["::1"]]),
        ("mapped.test", &[&["::ffff:192.168.1.1"]]),
        ("several.test", &[&["10.0.0.1", "127.0.0.1", "fd00::1"]]),
        ("split.test", &[&["fd00::1", "93.184.216.34"]]),
        ("empty.test", &[&[]]),
    ]);
    let egress_client = EgressClient::with_resolver(AddressPolicy::default(), resolver);
    let passes = "";
    for (url, expected) in [
        ("http://public.test/x", passes),
        ("https://public.test:8443/x?y=z#w", passes),
        ("HTTPS://PUBLIC.test", passes),
        ("http://user:password@public.test/", passes),
        ("http://nowhere.test/", passes),
        ("http://empty.test/", passes),
        // The client will connect only to the public address.
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
        // URLs do not support addresses with a zone.
        ("http://[fe80::1%25eth0]/", "it is not a URL"),
        ("http://[fe80::1%eth0]/", "it is not a URL"),
        ("http://[::1/", "it is not a URL"),
        ("http://256.0.0.1/", "it is not a URL"),
        ("http://1.2.3.4.5/", "it is not a URL"),
        ("http://0x7g.1/", "it is not a URL"),
        // The host is the part after the last @, and a backslash counts as a slash.
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
        let error = register(&egress_client, url).await;
        assert_eq!(error.is_empty(), expected.is_empty(), "{url:?}: {error:?}");
        assert!(error.contains(expected), "{url:?}: {error:?}");
        if !error.is_empty() && !error.contains("it is not a URL") && !error.contains("is not supported; valid: http") {
            assert!(error.contains("net.allow"), "{url:?}: {error:?}");
        }
    }
    let long = register(&egress_client, &format!("http://public.test/{}", "x".repeat(9_000))).await;
    assert!(long.contains("longer than 8 KiB"), "{long}");
}

#[tokio::test]
async fn allowed_networks_pass() {
    let resolver = ScriptedResolver::new(&[("inside.test", &[&["10.1.2.3"]]), ("loop6.test", &[&["::1"]])]);
    let egress_client = EgressClient::with_resolver(policy(&["127.0.0.0/8", "10.1.2.3", "fd00::/8"]), resolver);
    for url in ["http://127.0.0.1/", "http://localhost/", "http://inside.test/", "http://[fd00::1]/"] {
        assert_eq!(register(&egress_client, url).await, "", "{url}");
    }
    for url in ["http://10.1.2.4/", "http://[::1]/", "http://loop6.test/"] {
        assert!(register(&egress_client, url).await.contains("net.allow"), "{url}");
    }
}

/// Opens a source and returns its final URL.
async fn open(egress_client: EgressClient, url: &str) -> Result<String, SourceError> {
    match SourceClient::new(egress_client, FetchLimits::default(), None).open(url, None).await? {
        FetchOutcome::Document(fetched) => Ok(fetched.validators.url),
        FetchOutcome::NotModified(_) => panic!("unexpected 304 to an unconditional request"),
    }
}

#[track_caller]
fn check_forbidden(opened: Result<String, SourceError>, expected: &str) {
    match opened {
        Err(SourceError::UnusableUrl { reason }) => assert!(reason.contains(expected), "{reason}"),
        other => panic!("expected UnusableUrl, got {other:?}"),
    }
}

#[tokio::test]
async fn checked_address_is_connected_to() {
    let server = LoopbackServer::start(|_| ok("", b"[]"));
    let resolver = ScriptedResolver::new(&[("rebinding.test", &[&["93.184.216.34"], &["127.0.0.1"]])]);
    let queries = resolver.queries.clone();
    let egress_client = EgressClient::with_resolver(AddressPolicy::default(), resolver);
    let url = format!("http://rebinding.test:{}/a.json", server.port());
    let client = SourceClient::new(egress_client.clone(), FetchLimits::default(), None);
    client.check_url(&url).await.expect("failed to register a public address");
    check_forbidden(open(egress_client, &url).await, "rebinding.test resolves to a loopback address");
    assert_eq!(server.received().len(), 0, "strata has sent a request");
    assert_eq!(*queries.lock().expect("failed to lock"), ["rebinding.test", "rebinding.test"]);
}

#[tokio::test]
async fn only_permitted_addresses_are_connected_to() {
    let server = LoopbackServer::start(|_| ok("", b"[]"));
    // 127.0.0.2 also refers to this machine, and comes first.
    let resolver = ScriptedResolver::new(&[("several.test", &[&["127.0.0.2", "10.0.0.1", "127.0.0.1"]])]);
    let egress_client = EgressClient::with_resolver(policy(&["127.0.0.1"]), resolver);
    let url = format!("http://several.test:{}/a.json", server.port());
    assert_eq!(open(egress_client, &url).await.expect("failed to fetch"), url);
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
        let resolver = ScriptedResolver::new(&[("inside.test", &[&["10.0.0.1"]])]);
        let egress_client = EgressClient::with_resolver(policy(&["127.0.0.1"]), resolver);
        check_forbidden(open(egress_client, &server.url(path)).await, expected);
    }
    let opened = open(EgressClient::new(policy(&["127.0.0.1"])), &server.url("/file")).await;
    assert!(matches!(opened, Err(SourceError::Unreachable { .. })), "{opened:?}");
    // A redirect to an allowed address by name is followed. No server listens on port 1.
    let opened = open(EgressClient::new(policy(&["127.0.0.1"])), &server.url("/localhost")).await;
    assert!(matches!(opened, Err(SourceError::Unreachable { .. })), "{opened:?}");
}

/// A resolver that resolves all names to a private address, but never responds for names that start with `silent`.
#[derive(Default)]
struct SilentResolver {
    query_count: Arc<AtomicUsize>,
}

impl HostResolver for SilentResolver {
    fn resolve_host(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let query_count = self.query_count.clone();
        let is_silent = name.starts_with("silent");
        async move {
            query_count.fetch_add(1, Ordering::SeqCst);
            match is_silent {
                true => std::future::pending().await,
                false => Ok(vec![IpAddr::from([10, 0, 0, 1])]),
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn silent_names_do_not_delay_other_users() {
    let limits = DnsLookupLimits { max_concurrent: 3, max_concurrent_per_user: 2, timeout: Duration::from_secs(1) };
    let resolver = SilentResolver::default();
    let query_count = resolver.query_count.clone();
    let egress_client = EgressClient::with_resolver(AddressPolicy::default(), resolver).with_lookup_limits(limits);
    let hostile: Vec<_> = (0..10)
        .map(|number| {
            let egress_client = egress_client.for_user(1);
            tokio::spawn(async move { register(&egress_client, &format!("http://silent{number}.test/")).await })
        })
        .collect();
    while query_count.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    // The lookups of user 1 are still running, because no third one has started.
    let error = register(&egress_client.for_user(2), "http://honest.test/").await;
    assert!(error.contains("honest.test resolves to a private address"), "{error}");
    assert_eq!(query_count.load(Ordering::SeqCst), 3);
    // The lookups of user 1 time out, including the time that they wait for a permit.
    for registered in hostile {
        assert_eq!(registered.await.expect("failed to join task"), "");
    }
}

//! The client of a request, as reported by trusted proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::LazyLock;

use axum::extract::ConnectInfo;
use axum::http::header::FORWARDED;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use futures::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use strata_config::{Config, TrustedProxies};
use strata_http::page_support::{BaseUrl, CurrentUser};
use strata_service::{ClientNetwork, Services};
use strata_testing::TestService;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

static APP: LazyLock<Arc<Services>> = LazyLock::new(|| {
    services(|config| {
        let networks = ["10.0.0.0/8", "192.0.2.7", "2001:db8:aaaa::/48", "::ffff:172.16.0.0/108"];
        let networks = networks.map(str::to_owned).to_vec();
        config.server.trusted_proxies = TrustedProxies::try_from(networks).expect("invalid network");
    })
});

/// A service for tests that use only its configuration.
pub(crate) fn services(change: impl FnOnce(&mut Config)) -> Arc<Services> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("failed to create runtime");
    let service = runtime.block_on(TestService::configured(change));
    // The runtime is leaked, because background tasks of the service still use it.
    Box::leak(Box::new(runtime));
    service.services.clone()
}

/// The head of a request with these headers from this peer.
pub(crate) fn head(peer: Option<IpAddr>, headers: HeaderMap) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.headers = headers;
    if let Some(peer) = peer {
        head.extensions.insert(ConnectInfo(SocketAddr::new(peer, 1)));
    }
    head
}

fn client(peer: Option<IpAddr>, headers: HeaderMap) -> ClientNetwork {
    let head = head(peer, headers);
    let visitor = CurrentUser::from_request_head(&APP, &head).now_or_never().expect("unexpected wait");
    visitor.expect("a visitor without a session").client
}

fn headers(lines: &[(HeaderName, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, HeaderValue::from_bytes(value).expect("missing value"));
    }
    headers
}

#[track_caller]
fn check(peer: &str, lines: &[(HeaderName, &str)], expected: &str) {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.clone(), value.as_bytes())).collect();
    let found = client(Some(peer.parse().expect(peer)), headers(&lines));
    assert_eq!(found, ClientNetwork::from(expected.parse::<IpAddr>().expect(expected)), "{lines:?}");
}

#[track_caller]
fn check_listed(value: &str, expected: &str) {
    check("10.0.0.1", &[(X_FORWARDED_FOR, value)], expected);
}

#[track_caller]
fn check_described(value: &str, expected: &str) {
    check("10.0.0.1", &[(FORWARDED, value)], expected);
}

#[test]
fn forwarded_headers_need_trusted_peer() {
    for header in [(X_FORWARDED_FOR, "1.1.1.1"), (FORWARDED, "for=1.1.1.1")] {
        for peer in ["203.0.113.9", "192.0.2.8", "2001:db8:aaab::1", "11.0.0.1"] {
            check(peer, std::slice::from_ref(&header), peer);
        }
        for peer in ["10.255.0.1", "192.0.2.7", "2001:db8:aaaa:1::1", "::ffff:10.0.0.1", "172.16.3.4"] {
            check(peer, std::slice::from_ref(&header), "1.1.1.1");
        }
    }
    check("10.0.0.1", &[], "10.0.0.1");
}

#[test]
fn last_untrusted_hop_is_client() {
    check_listed("1.1.1.1, 203.0.113.9", "203.0.113.9");
    check_listed("1.1.1.1, 203.0.113.9,10.1.1.1 ,\t192.0.2.7", "203.0.113.9");
    check_listed("10.3.3.3, 10.2.2.2", "10.3.3.3");
    check_listed("2001:db8:1::5", "2001:db8:1::5");
    check_listed("[2001:db8:1::5]:4711, 10.0.0.2:80", "2001:db8:1::5");
    check_listed("203.0.113.9:1234", "203.0.113.9");
    check_described("for=1.1.1.1, for=203.0.113.9;proto=https;by=10.0.0.1", "203.0.113.9");
    check_described("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
    check_described("by=_x;FOR=\"203.0.113.9:_p.1\" , for=10.0.0.2", "203.0.113.9");
    check_described("for=203.0.113.9;host=\"a,b;for=\\\"1.1.1.1\"", "203.0.113.9");
}

#[test]
fn header_lines_form_one_list() {
    let lines =
        [(X_FORWARDED_FOR, "1.1.1.1"), (X_FORWARDED_FOR, "203.0.113.9, 10.0.0.3"), (X_FORWARDED_FOR, "10.0.0.2")];
    check("10.0.0.1", &lines, "203.0.113.9");
    let lines =
        [(FORWARDED, "for=\"unclosed"), (FORWARDED, "for=203.0.113.9, for=10.0.0.3"), (FORWARDED, "for=10.0.0.2")];
    check("10.0.0.1", &lines, "203.0.113.9");
}

#[test]
fn invalid_hop_stops_at_last_trusted_address() {
    let no_addresses = "| |unknown|_hidden|localhost|1.1.1|1.1.1.1.1|1.1.1.1:|1.1.1.1:port|1.1.1.1:123456|1.1.1.1:80:80|\
                        [1.1.1.1]|[::1|::1]|[::1]80|[::1]:_|fe80::1%eth0|01.1.1.1|1.1.1.1 2.2.2.2";
    for bad in no_addresses.split('|') {
        check_listed(&format!("1.1.1.1, {bad}"), "10.0.0.1");
        check_listed(&format!("1.1.1.1, {bad}, 10.0.0.2"), "10.0.0.2");
        check_listed(&format!("{bad}, 203.0.113.9, 10.0.0.2"), "203.0.113.9");
        check_described(&format!("for=1.1.1.1, for=\"{bad}\", for=10.0.0.2"), "10.0.0.2");
    }
    let no_elements = "|for|for=|for=[2001:db8::1]|for=1.1.1.1;for=1.1.1.1|for =1.1.1.1|proto=https|for=1.1.1.1;|\
                       for=1.1.1.1;;by=_x|for=\"1.1.1.1\"x|=1.1.1.1|1.1.1.1|for=1.1.1.1;x=a b";
    for bad in no_elements.split('|') {
        check_described(&format!("for=1.1.1.1, {bad}"), "10.0.0.1");
        check_described(&format!("{bad}, for=203.0.113.9"), "203.0.113.9");
    }
    // An unclosed quote of the client must not hide what the proxies add.
    for added in ["for=203.0.113.9", "for=\"[2001:db8:1::5]\"", "for=\"203.0.113.9:1\";by=\"_a\""] {
        check_described(&format!("for=1.1.1.1;x=\", {added}"), "10.0.0.1");
        check_described(&format!("for=1.1.1.1;x=\"\\, {added}"), "10.0.0.1");
    }
    let lines = headers(&[(X_FORWARDED_FOR, b"1.1.1.1, \xff")]);
    let peer: IpAddr = "10.0.0.1".parse().expect("invalid address");
    assert_eq!(client(Some(peer), lines), ClientNetwork::from(peer));
}

#[test]
fn conflicting_headers_are_ignored() {
    let lines = |listed, described| [(X_FORWARDED_FOR, listed), (FORWARDED, described)];
    check("10.0.0.1", &lines("1.1.1.1, 203.0.113.9", "for=203.0.113.9"), "203.0.113.9");
    check("10.0.0.1", &lines("203.0.113.9", "for=1.1.1.1"), "10.0.0.1");
    check("10.0.0.1", &lines("unknown", "for=1.1.1.1"), "10.0.0.1");
}

#[test]
fn forwarded_scheme_needs_trusted_peer() {
    let check = |peer: &str, lines: &[(HeaderName, &str)], is_https| {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.clone(), value.as_bytes())).collect();
        let head = head(Some(peer.parse().expect(peer)), headers(&lines));
        assert_eq!(BaseUrl::from_request_head(&head, &APP).https, is_https, "{lines:?}");
    };
    check("203.0.113.9", &[(X_FORWARDED_PROTO, "https")], false);
    check("10.0.0.1", &[], false);
    check("10.0.0.1", &[(X_FORWARDED_PROTO, "https")], true);
    check("10.0.0.1", &[(X_FORWARDED_PROTO, "https, HTTP ")], false);
    check("10.0.0.1", &[(X_FORWARDED_PROTO, "ftp")], false);
    check("10.0.0.1", &[(FORWARDED, "for=1.1.1.1;proto=http, proto=\"https\"")], true);
    check("10.0.0.1", &[(FORWARDED, "proto=https;proto=https")], false);
    check("10.0.0.1", &[(FORWARDED, "proto=https"), (X_FORWARDED_PROTO, "http")], false);
    check("10.0.0.1", &[(FORWARDED, "proto=https"), (X_FORWARDED_PROTO, "https")], true);
}

#[test]
fn missing_peer_is_unspecified_client() {
    assert_eq!(client(None, headers(&[(X_FORWARDED_FOR, b"1.1.1.1")])), ClientNetwork::Unspecified);
}

const PARTS: &[&str] =
    &["for=", "1.1.1.1", "\"", "\\", ",", ";", "=", " ", "[::1]", "unknown", "10.0.0.9", "by=_x", ":80"];

/// Text that a client can send before the proxies add theirs.
fn invented() -> impl Strategy<Value = String> {
    prop_oneof![vec(select(PARTS), 0..12).prop_map(|parts| parts.concat()), "[ -~]{0,40}"]
}

proptest! {
    #[test]
    fn forged_addresses_are_ignored(
        invented in invented(),
        own_line in any::<bool>(),
        described in any::<bool>(),
        quoted in any::<bool>(),
        inner in 0..3_usize,
    ) {
        // The client 203.0.113.9 is behind `inner` trusted proxies and the peer.
        let mut added = vec![if quoted { "for=\"203.0.113.9:1\"" } else { "for=203.0.113.9" }];
        added.extend(["for=10.0.0.2", "for=\"10.0.0.3\""].into_iter().take(inner));
        let added: Vec<String> = added.into_iter().map(|hop| match described {
            true => hop.to_owned(),
            false => hop.trim_start_matches("for=").replace('"', ""),
        }).collect();
        let name = if described { FORWARDED } else { X_FORWARDED_FOR };
        let added = added.join(", ");
        let mut lines = vec![];
        let joined = format!("{invented}, {added}");
        if own_line {
            lines.extend([(name.clone(), invented.as_bytes()), (name, added.as_bytes())]);
        } else {
            lines.push((name, joined.as_bytes()));
        }
        let found = client(Some(Ipv4Addr::new(10, 0, 0, 1).into()), headers(&lines));
        let expected = ClientNetwork::V4([203, 0, 113, 9]);
        // An unclosed quote can hide the client, but never names another client.
        prop_assert!(found == expected || found == ClientNetwork::V4([10, 0, 0, 1]), "{found:?}");
        if own_line || !described {
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn any_bytes_do_not_panic(listed in vec(any::<u8>(), 0..60), described in vec(any::<u8>(), 0..60)) {
        let mut lines = HeaderMap::new();
        for (name, value) in [(X_FORWARDED_FOR, listed), (FORWARDED, described)] {
            lines.extend(HeaderValue::from_bytes(&value).ok().map(|value| (Some(name), value)).into_iter());
        }
        let untrusted = client(Some(Ipv4Addr::new(203, 0, 113, 9).into()), lines.clone());
        prop_assert_eq!(untrusted, ClientNetwork::V4([203, 0, 113, 9]));
        client(Some(Ipv4Addr::new(10, 0, 0, 1).into()), lines);
    }
}

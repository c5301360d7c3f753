//! The accepted hosts of the service, and the base URL.

use axum::body::Body;
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt;
use strata_config::{HostNames, ListenAddress, PublicUrl};
use strata_http::page_support::BaseUrl;
use tower::ServiceExt;

use crate::clients::{head, services};

#[test]
fn unknown_hosts_return_403() {
    let names = |names: &[&str]| HostNames::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let services = services(|config| {
        let server = &mut config.server;
        server.listen = ListenAddress::try_from("strata.internal:8080".to_owned()).expect("invalid address");
        server.public_url =
            Some(PublicUrl::try_from("https://data.example.org/strata".to_owned()).expect("invalid URL"));
        server.allowed_hosts = names(&["proxy.example.org"]).expect("missing names");
    });
    let router = strata_http::router(services);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("failed to create runtime");
    // The host is checked before the token, which is missing.
    let refusal = |host: &str| {
        let request = Request::post("/mcp").header(HOST, host).body(Body::empty()).expect("invalid request");
        runtime.block_on(async {
            let response = router.clone().oneshot(request).await.expect("missing response");
            let status = response.status().as_u16();
            let text = response.into_body().collect().await.expect("missing body").to_bytes();
            (status, String::from_utf8_lossy(&text).into_owned())
        })
    };
    let own = "localhost LOCALHOST:1 a.localhost:8080 127.0.0.1:8080 10.1.2.3 [::1]:8080 [2001:db8::1] \
               strata.internal:8080 strata.internal. data.example.org Data.Example.Org:443 proxy.example.org:8080";
    for own in own.split(' ') {
        assert_eq!(refusal(own).0, 401, "{own}");
    }
    let others = "evil.example evil.example:8080 localhost.evil.example 127.0.0.1.evil.example example.org \
                  www.data.example.org user@localhost localhost@evil.example [::1 ::1 2130706433 0x7f.1";
    for other in others.split(' ').chain([""]) {
        let (status, text) = refusal(other);
        assert_eq!(status, 403, "{other}");
        assert!(text.starts_with(&format!("The Host header is \"{other}\",")), "{text}");
    }
    assert!(["", "a b", "a:80", "http://a", "[::1]", "a/b"].iter().all(|name| names(&[name]).is_err()));
}

#[test]
fn base_url_rejects_unsafe_hosts_and_ports() {
    let services = services(|_| ());
    let url = |host: &str| {
        let host = HeaderValue::from_bytes(host.as_bytes()).expect("invalid header");
        BaseUrl::from_request_head(&head(None, HeaderMap::from_iter([(HOST, host)])), &services).absolute_url("/x")
    };
    for host in ["localhost:8080", "127.0.0.1", "[::1]:80", "a_b.example.org", "xn--bcher-kva.example"] {
        assert_eq!(url(host), format!("http://{host}/x"));
    }
    let fallback = format!("http://{}/x", services.config.server.listen.as_str());
    for host in [
        "x:99999",
        "x:65536",
        "x:0",
        "[::1]:70000",
        "h';id;'x",
        "user@host",
        "a$(id)",
        "a&b",
        "a b",
        "a,b",
        "bücher.example",
    ] {
        assert_eq!(url(host), fallback, "{host}");
    }
}

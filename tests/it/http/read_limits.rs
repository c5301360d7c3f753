//! Limits of the read endpoint: rates, the client of a request, the order of checks, and allowed origins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use strata_config::{Config, TrustedProxies};
use strata_testing::catalog::execute;
use strata_testing::{Answer, TestService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A clock in seconds that tests set.
#[derive(Clone, Default)]
pub(super) struct SecondClock(pub(super) Arc<AtomicU64>);

/// A service that allows this many requests.
pub(super) async fn limited(public: u64, private: u64) -> (TestService, SecondClock) {
    let clock = SecondClock::default();
    let seconds = clock.0.clone();
    let elapsed = move || Duration::from_secs(seconds.load(Ordering::Relaxed));
    let service = TestService::timed_by(elapsed, |config| limit(config, public, private)).await;
    (service, clock)
}

fn limit(config: &mut Config, public: u64, private: u64) {
    (config.limits.public_per_minute, config.limits.private_per_minute) = (public, private);
}

/// A request from a peer.
#[derive(Clone, Copy)]
pub(super) struct TestRequest<'a> {
    pub(super) method: &'a str,
    pub(super) uri: &'a str,
    pub(super) peer: Option<&'a str>,
    pub(super) headers: &'a [(&'a str, &'a str)],
}

pub(super) const GET: TestRequest<'static> = TestRequest { method: "GET", uri: "", peer: None, headers: &[] };

pub(super) async fn send(service: &TestService, sent: TestRequest<'_>) -> Answer {
    let mut request = Request::builder().method(sent.method).uri(sent.uri);
    for (name, value) in sent.headers {
        request = request.header(*name, *value);
    }
    if let Some(peer) = sent.peer {
        let peer = SocketAddr::new(peer.parse().expect("invalid address"), 4711);
        request = request.extension(ConnectInfo(peer));
    }
    service.call(request.body(Body::empty()).expect("invalid request")).await
}

/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
pub(super) fn rate(answer: &Answer) -> Option<(u64, u64, u64)> {
    let header = |name| Some(answer.header(name)?.parse().expect("invalid number"));
    let all = (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-reset"));
    match all {
        (Some(limit), Some(remaining), Some(reset)) => Some((limit, remaining, reset)),
        (None, None, None) => None,
        some => panic!("only some of the headers: {some:?}"),
    }
}

/// Imports a public and a private dataset. Returns the `Authorization` of the private one.
async fn two_datasets(service: &TestService) -> String {
    service.import("Open", "[{\"a\":1}]").await;
    let imported = service.try_import("Hidden", true, b"[{\"a\":2}]").await.expect("failed to import");
    format!("Bearer {}", imported.private_key.expect("missing key").expose())
}

// ---- rates ----

#[tokio::test]
async fn client_over_rate_limit_gets_429_until_window_ends() {
    let (service, clock) = limited(3, 5).await;
    two_datasets(&service).await;
    let get = async |second: u64, uri: &str| {
        clock.0.store(second, Ordering::Relaxed);
        service.get(uri).await
    };
    // Every parsed request counts, regardless of the response.
    let answer = get(7, "/api/1/open/v1").await;
    assert_eq!((answer.status, rate(&answer)), (200, Some((3, 2, 1_700_000_067))));
    let answer = get(8, "/api/1/open/v9").await;
    assert_eq!((answer.status, rate(&answer)), (404, Some((3, 1, 1_700_000_067))));
    // Requests that fail the first checks do not count.
    for uri in ["/api/1/open/v1?limit=x", "/api/1/open/x", "/api"] {
        let answer = get(8, uri).await;
        assert_eq!((answer.status, rate(&answer)), (400, None), "{uri}");
    }
    let answer = service.send("HEAD", "/api/1/open/v1", None).await;
    assert_eq!((answer.status, rate(&answer)), (405, None));

    let answer = get(27, "/api/2/hidden/v1").await;
    assert_eq!((answer.status, rate(&answer)), (401, Some((3, 0, 1_700_000_067))));
    for (second, retry_after) in [(27, "40"), (66, "1")] {
        let answer = get(second, "/api/1/open/v1?lmit=1").await;
        answer.is_error(429);
        assert_eq!(rate(&answer), Some((3, 0, 1_700_000_067)));
        assert_eq!(answer.header("retry-after"), Some(retry_after));
        assert_eq!(answer.header("x-unknown-parameters"), Some("lmit"));
        assert!(answer.text().contains(&format!("{retry_after} s")), "{}", answer.text());
    }
    let answer = get(67, "/api/1/open/v1").await;
    assert_eq!((answer.status, rate(&answer)), (200, Some((3, 2, 1_700_000_127))));
    assert_eq!(answer.header("retry-after"), None);
}

#[tokio::test]
async fn default_limits_match_documentation() {
    let config = Config::default();
    assert_eq!((config.limits.public_per_minute, config.limits.private_per_minute), (100, 300));
    let (service, _) = limited(100, 300).await;
    let key = two_datasets(&service).await;
    for _ in 0..100 {
        service
            .get("/api/1/open/v1?count=true&pretty=0")
            .await
            .is("{\"count\":1,\"dataset_id\":1,\"version\":1,\"alt\":false}");
    }
    service.get("/api/1/open/v1").await.is_error(429);
    let answer = service.send("GET", "/api/2/hidden/v1", Some(&key)).await;
    assert_eq!((answer.status, rate(&answer).map(|rate| (rate.0, rate.1))), (200, Some((300, 299))));
}

#[tokio::test]
async fn private_bucket_requires_authorization() {
    let (service, _) = limited(1_000, 5_000).await;
    let key = two_datasets(&service).await;
    let cases: [(&str, Option<&str>, u16, u64); 9] = [
        ("/api/1/open/v1", None, 200, 1_000),
        ("/api/1/open/v1", Some(&key), 200, 1_000),
        ("/api/1/hidden/v1", Some(&key), 404, 1_000),
        ("/api/2/open/v1", Some(&key), 404, 1_000),
        ("/api/9/hidden/v1", Some(&key), 404, 1_000),
        ("/api/2/hidden/v1", None, 401, 1_000),
        ("/api/2/hidden/v1", Some(&key), 200, 5_000),
        ("/api/2/hidden/v1", Some("Basic x"), 403, 5_000),
        ("/api/2/hidden/v9", Some(&key), 404, 5_000),
    ];
    for (uri, authorization, status, limit) in cases {
        let answer = service.send("GET", uri, authorization).await;
        let found = (answer.status, rate(&answer).map(|rate| rate.0));
        assert_eq!(found, (status, Some(limit)), "{uri} {authorization:?}");
    }
}

#[tokio::test]
async fn buckets_and_clients_count_separately() {
    let (service, _) = limited(1, 1).await;
    let key = two_datasets(&service).await;
    let authorization = [("authorization", &*key)];
    for peer in [None, Some("203.0.113.9"), Some("203.0.113.8"), Some("2001:db8:1:2::1"), Some("2001:db8:1:3::1")] {
        let public = TestRequest { uri: "/api/1/open/v1", peer, ..GET };
        let private = TestRequest { uri: "/api/2/hidden/v1", headers: &authorization, ..public };
        for sent in [public, private] {
            assert_eq!(send(&service, sent).await.status, 200, "{peer:?}");
            assert_eq!(send(&service, sent).await.status, 429, "{peer:?}");
        }
    }
    // The same clients with other addresses.
    for peer in ["::ffff:203.0.113.9", "2001:db8:1:2:ffff::9"] {
        let answer = send(&service, TestRequest { uri: "/api/1/open/v1", peer: Some(peer), ..GET }).await;
        assert_eq!(answer.status, 429, "{peer}");
    }
}

#[tokio::test]
async fn disabled_limit_sends_no_headers() {
    let (service, _) = limited(0, 1).await;
    let key = two_datasets(&service).await;
    for _ in 0..5 {
        let answer = service.get("/api/1/open/v1").await;
        assert_eq!((answer.status, rate(&answer)), (200, None));
    }
    let answer = service.send("GET", "/api/2/hidden/v1", Some(&key)).await;
    assert_eq!((answer.status, rate(&answer).map(|rate| rate.1)), (200, Some(0)));
    assert_eq!(service.send("GET", "/api/2/hidden/v1", Some(&key)).await.status, 429);
}

#[tokio::test]
async fn only_trusted_proxies_report_client() {
    let service = TestService::configured(|config| {
        limit(config, 1, 1);
        let networks = vec!["10.0.0.0/8".to_owned(), "2001:db8::7".to_owned()];
        config.server.trusted_proxies = TrustedProxies::try_from(networks).expect("invalid network");
    });
    let service = service.await;
    two_datasets(&service).await;
    let status = async |peer, headers: &[(&str, &str)]| {
        send(&service, TestRequest { uri: "/api/1/open/v1", peer: Some(peer), headers, ..GET }).await.status
    };
    // A client that is not a trusted proxy cannot report another address.
    assert_eq!(status("203.0.113.9", &[("x-forwarded-for", "1.1.1.1")]).await, 200);
    assert_eq!(status("203.0.113.9", &[("x-forwarded-for", "1.1.1.2")]).await, 429);
    // The same client behind trusted proxies, in all notations.
    assert_eq!(status("10.0.0.1", &[("x-forwarded-for", "1.1.1.3, 203.0.113.9")]).await, 429);
    assert_eq!(status("2001:db8::7", &[("forwarded", "for=1.1.1.3, for=\"203.0.113.9:80\";proto=https")]).await, 429);
    let lines = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "10.0.0.2")];
    assert_eq!(status("10.0.0.1", &lines).await, 429);
    // Another client behind the same proxy has its own window, and so does the proxy itself.
    assert_eq!(status("10.0.0.1", &[("x-forwarded-for", "203.0.113.9, 203.0.113.10")]).await, 200);
    assert_eq!(status("10.0.0.1", &[("x-forwarded-for", "203.0.113.9, unknown")]).await, 200);
    assert_eq!(status("10.0.0.1", &[]).await, 429);
}

#[tokio::test]
async fn peer_of_connection_is_client() {
    let service = TestService::configured(|config| {
        limit(config, 2, 2);
        config.server.trusted_proxies =
            TrustedProxies::try_from(vec!["127.0.0.1".to_owned()]).expect("invalid network");
    });
    let service = service.await;
    two_datasets(&service).await;
    let listening = service.listen().await;
    let get = async |headers: &str| {
        let mut connection = tokio::net::TcpStream::connect(listening.address).await.expect("failed to connect");
        let request = format!("GET /api/1/open/v1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        connection.write_all(request.as_bytes()).await.expect("failed to send");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("failed to read");
        answer.to_lowercase()
    };
    // A request without an address counts separately from the peer.
    assert_eq!(service.get("/api/1/open/v1").await.status, 200);
    let whole = get("").await;
    assert!(whole.starts_with("http/1.1 200 ") && whole.contains("x-ratelimit-remaining: 1\r\n"), "{whole}");
    let (_, rest) = whole.split_once("etag: ").expect("missing etag");
    let tag = rest.split_once("\r\n").expect("missing line").0;
    let unchanged = get(&format!("If-None-Match: {tag}\r\n")).await;
    assert!(unchanged.starts_with("http/1.1 304 ") && unchanged.contains("x-ratelimit-remaining: 0\r\n"));
    assert!(unchanged.ends_with("\r\n\r\n") && !unchanged.contains("\r\ncontent-"), "{unchanged}");
    let refused = get("").await;
    assert!(refused.starts_with("http/1.1 429 ") && refused.contains("retry-after: "), "{refused}");
    let other = get("X-Forwarded-For: 203.0.113.9\r\n").await;
    assert!(other.starts_with("http/1.1 200 ") && other.contains("x-ratelimit-remaining: 1\r\n"), "{other}");
    listening.stop().await;
}

// ---- the order of the checks ----

#[tokio::test]
async fn checks_run_in_documented_order() {
    let (service, _) = limited(1, 1).await;
    let open = two_datasets(&service).await;
    // Dataset 3 is private and frozen. The files of all versions are deleted.
    let frozen = service.try_import("Frozen", true, b"[{\"a\":3}]").await.expect("failed to import");
    let frozen = format!("Bearer {}", frozen.private_key.expect("missing key").expose());
    execute(&service, "UPDATE datasets SET frozen = 1, record_checksum = NULL WHERE dataset_id = 3").await;
    service.services.lookups.notify_catalog_change();
    for file in service.version_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    let exhausted = "203.0.113.9";
    for (uri, headers) in [("/api/1/open/v9", vec![]), ("/api/2/hidden/v9", vec![("authorization", &*open)])] {
        let sent = TestRequest { uri, peer: Some(exhausted), headers: &headers, ..GET };
        assert_eq!(send(&service, sent).await.status, 404);
    }

    // Method, URI, `Authorization`, whether the client has requests left; status, expected text.
    type CheckOrderRow<'a> = (&'a str, &'a str, Option<&'a str>, bool, u16, &'a str);
    let rows: [CheckOrderRow<'_>; 27] = [
        ("POST", "/api/0/x/y?limit=x", Some("x"), false, 405, "method"),
        ("HEAD", "/api/3/frozen/v9?limit=x", None, false, 405, ""),
        ("OPTIONS", "/api/3/frozen/v9/alt?limit=x", None, false, 405, "method"),
        ("GET", "/api/0/x/active?limit=x", None, false, 400, "path"),
        ("GET", "/api/3/frozen/v01?limit=x", Some("x"), false, 400, "path"),
        ("GET", "/api/3/frozen/v9?limit=x", None, false, 400, "query"),
        ("GET", "/api/9/gone/v9?limit=x", None, false, 400, "query"),
        ("GET", "/api/9/gone/v9/alt", None, false, 429, "Too many"),
        ("GET", "/api/9/gone/v9/alt", Some("x"), false, 429, "Too many"),
        ("GET", "/api/3/thawed/v9", None, false, 429, "Too many"),
        ("GET", "/api/3/frozen/v9", None, false, 429, "Too many"),
        ("GET", "/api/3/frozen/v9", Some("x"), false, 429, "Too many"),
        ("GET", "/api/3/frozen/v9", Some(&frozen), false, 429, "Too many"),
        ("GET", "/api/2/hidden/v1/alt", Some(&open), false, 429, "Too many"),
        ("GET", "/api/1/open/v9", None, false, 429, "Too many"),
        ("GET", "/api/1/open/v1", None, false, 429, "Too many"),
        ("GET", "/api/3/thawed/v9", None, true, 404, "no dataset"),
        ("GET", "/api/3/thawed/v9", Some("x"), true, 404, "no dataset"),
        ("GET", "/api/3/frozen/v9", None, true, 401, "private"),
        ("GET", "/api/3/frozen/v9/alt", Some("x"), true, 403, "key"),
        ("GET", "/api/3/frozen/v1", Some(&open), true, 403, "key"),
        ("GET", "/api/3/frozen/v9/alt", Some(&frozen), true, 410, "frozen"),
        ("GET", "/api/3/frozen/v1", Some(&frozen), true, 410, "frozen"),
        ("GET", "/api/2/hidden/v9/alt", Some(&open), true, 404, "no version 9"),
        ("GET", "/api/2/hidden/v1/alt", Some(&open), true, 404, "no alternate"),
        ("GET", "/api/1/open/v1?alt=true", Some("x"), true, 404, "no alternate"),
        ("GET", "/api/1/open/v1", None, true, 500, "storage"),
    ];
    for (number, (method, uri, authorization, left, status, names)) in rows.into_iter().enumerate() {
        let fresh = format!("198.51.100.{number}");
        let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
        let peer = Some(if left { &*fresh } else { exhausted });
        let answer = send(&service, TestRequest { method, uri, peer, headers: &headers }).await;
        let row = format!("{method} {uri} {authorization:?}: {}", answer.text());
        assert_eq!(answer.status, status, "{row}");
        assert!(answer.text().contains(names), "{row}");
        assert_eq!(rate(&answer).is_some(), !matches!(status, 400 | 405), "{row}");
        assert_eq!(answer.header("allow"), (status == 405).then_some("GET"), "{row}");
        assert_eq!(answer.header("retry-after").is_some(), status == 429, "{row}");
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"), "{row}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{row}");
    }
}

#[tokio::test]
async fn read_over_memory_limit_counts_and_returns_400() {
    let service = TestService::configured(|config| {
        limit(config, 2, 2);
        config.query.memory_bytes = Some(64 << 10);
    });
    let service = service.await;
    // The matches of the filter need 160 kB.
    let entities: String = (0..40_000).map(|number| format!("{{\"odd\":{}}}\n", number % 2 == 1)).collect();
    service.import("Many", &entities).await;
    let answer = service.get("/api/1/many/v1?filter=odd:true").await;
    // The error is permanent, so the status is 400 instead of 503.
    answer.is_error(400);
    assert!(answer.text().contains("query.memory_bytes"), "{}", answer.text());
    assert_eq!(rate(&answer).map(|rate| rate.1), Some(1));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn data_dependent_400_counts_as_request() {
    let service = TestService::configured(|config| {
        limit(config, 2, 2);
        config.limits.columns = 1;
    });
    let service = service.await;
    service.import("Wide", "[{\"a\":1,\"b\":2}]").await;
    let answer = service.get("/api/1/wide/v1?format=csv").await;
    answer.is_error(400);
    assert_eq!((rate(&answer).map(|rate| rate.1), answer.header("cache-control")), (Some(1), Some("no-store")));
}

// ---- information leaks ----

#[tokio::test]
async fn wrong_slug_does_not_reveal_dataset() {
    let (service, _) = limited(1_000, 5_000).await;
    let key = two_datasets(&service).await;
    let shown = |answer: &Answer| {
        let mut headers: Vec<_> = answer.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        headers.retain(|header| !header.starts_with("x-request-id"));
        (answer.status, headers, answer.text().to_owned())
    };
    for authorization in [None, Some(&*key), Some("Bearer x")] {
        let mut answers = Vec::new();
        // A private, a public, and a missing dataset, each with a wrong slug, for similar clients.
        for (uri, peer) in
            [("/api/2/open/v1", "203.0.113.1"), ("/api/1/hidden/v1", "203.0.113.2"), ("/api/9/open/v1", "203.0.113.3")]
        {
            let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
            let mut answer = send(&service, TestRequest { uri, peer: Some(peer), headers: &headers, ..GET }).await;
            // Windows that began in different seconds have different ends.
            answer.headers.remove("x-ratelimit-reset");
            answers.push(shown(&answer));
        }
        assert_eq!(answers[0].0, 404);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    }
}

// ---- origins ----

#[tokio::test]
async fn any_origin_can_read_public_responses() {
    let (service, _) = limited(5, 2).await;
    let key = two_datasets(&service).await;
    let authorization = [("authorization", &*key), ("origin", "https://example.org")];
    let wrong = [("authorization", "Bearer x"), ("origin", "https://example.org")];
    let origin = [("origin", "https://example.org")];
    // Method, URI, headers; status, whether any origin can read the response.
    type OriginRow<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, bool);
    let rows: [OriginRow<'_>; 13] = [
        ("OPTIONS", "/api/1/open/v1", &origin, 405, true),
        ("GET", "/api/1/open/v1?limit=x", &origin, 400, true),
        ("GET", "/api/x", &origin, 400, true),
        ("GET", "/api/1/open/v1?format=csv", &origin, 200, true),
        ("GET", "/api/1/open/v1", &[], 200, true),
        ("GET", "/api/1/open/v9", &wrong, 404, true),
        ("GET", "/api/9/open/v1", &origin, 404, true),
        ("GET", "/api/2/hidden/v1", &origin, 401, false),
        ("GET", "/api/2/hidden/v1", &authorization, 200, false),
        ("GET", "/api/2/hidden/v9", &wrong, 403, false),
        ("GET", "/api/2/hidden/v1", &authorization, 429, false),
        ("GET", "/api/1/open/v1", &origin, 429, true),
        // The limit is checked before the lookup, so the response does not reveal the dataset.
        ("GET", "/api/2/hidden/v1", &origin, 429, true),
    ];
    for (method, uri, headers, status, open) in rows {
        let answer = send(&service, TestRequest { method, uri, headers, peer: None }).await;
        assert_eq!(answer.status, status, "{method} {uri}: {}", answer.text());
        let allowed = (answer.header("access-control-allow-origin"), answer.header("access-control-expose-headers"));
        assert_eq!(allowed.0, open.then_some("*"), "{method} {uri} {status}");
        assert_eq!(allowed.1.is_some(), open, "{method} {uri} {status}");
        if let Some(exposed) = allowed.1 {
            let exposed: Vec<_> = exposed.split(", ").map(str::to_lowercase).collect();
            let special = ["etag", "retry-after", "content-disposition"];
            let mut names = answer.headers.keys().map(|name| name.as_str());
            let missing = names.find(|name| {
                let own = name.starts_with("x-") && *name != "x-content-type-options" || special.contains(name);
                own && !exposed.iter().any(|exposed| exposed == name)
            });
            assert_eq!(missing, None, "{method} {uri} {status}");
        }
    }
}

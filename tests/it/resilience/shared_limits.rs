//! Tests of processes that share rate limits through Redis, and that continue without Redis if it does not respond.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use futures::future::join_all;
use serde_json::json;
use strata_config::{Config, RedisUrl};
use strata_testing::redis::RedisServer;
use strata_testing::{Answer, CapturedLog, OWNER, PASSWORD, TestService, eventually};

/// Two processes of one service that share a Redis server.
struct SharedLimitPair {
    first: TestService,
    second: TestService,
    // The data directory of both services; dropped last.
    _service: TestService,
}

const ENTITIES: &str = "/api/1/open/latest/";

impl SharedLimitPair {
    async fn start(redis: RedisUrl, change: impl Fn(&mut Config)) -> SharedLimitPair {
        let service = TestService::start().await;
        service.import("Open", "[{\"a\":1}]").await;
        let open_limited = async || {
            let configured = service.open_instance(|config| {
                config.limits.redis_url = Some(redis.clone());
                // A long timeout, because the machine can be slow.
                config.limits.redis_timeout_ms = 1_000;
                change(config);
            });
            configured.await
        };
        SharedLimitPair { first: open_limited().await, second: open_limited().await, _service: service }
    }

    fn are_shared(&self) -> bool {
        [&self.first, &self.second].iter().all(|service| service.services.rate_limiter.is_shared())
    }

    /// Asserts that a request to one process counts at the other.
    async fn assert_together(&self) {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let (_, first, reset) = rate_limit_headers(&self.first.get(ENTITIES).await);
            let (_, second, other_reset) = rate_limit_headers(&self.second.get(ENTITIES).await);
            // Otherwise, a window has ended between the requests, or Redis answered too late.
            if (second + 1, other_reset) == (first, reset) {
                return;
            }
            seen.push((first, reset, second, other_reset));
        }
        panic!("the processes do not share a count: {seen:?}");
    }
}

/// Returns the values of `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset`.
#[track_caller]
fn rate_limit_headers(answer: &Answer) -> (u64, u64, u64) {
    let header = |name| answer.header(name).expect(name).parse().expect("failed to parse the number");
    (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-reset"))
}

#[tokio::test]
async fn processes_share_one_limit_exactly() {
    let redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| config.limits.public_per_minute = 10).await;
    assert!(two.are_shared());
    let mut resets = BTreeSet::new();
    for number in 0..10 {
        let service = if number % 2 == 0 { &two.first } else { &two.second };
        // A ping counts as a read.
        let path = if number == 5 { "/ping/unknown" } else { ENTITIES };
        let answer = service.get(path).await;
        assert_eq!(answer.status, if number == 5 { 404 } else { 200 });
        let (limit, remaining, reset) = rate_limit_headers(&answer);
        assert_eq!((limit, remaining), (10, 9 - number));
        resets.insert(reset);
    }
    for service in [&two.first, &two.second] {
        let answer = service.get(ENTITIES).await;
        answer.is_error(429);
        let (_, remaining, reset) = rate_limit_headers(&answer);
        assert_eq!(remaining, 0);
        resets.insert(reset);
        let wait: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
    }
    assert_eq!(resets.len(), 1, "more than one window: {resets:?}");
}

#[tokio::test]
async fn concurrent_requests_share_one_limit_exactly() {
    let redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| config.limits.public_per_minute = 20).await;
    let requests = (0..80).map(|number| if number % 2 == 0 { &two.first } else { &two.second }.get(ENTITIES));
    let statuses: Vec<u16> = join_all(requests).await.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 20, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 429).count(), 60, "{statuses:?}");
}

#[tokio::test]
async fn services_of_other_catalogs_count_separately() {
    let redis = RedisServer::start();
    let limited = |config: &mut Config| config.limits.public_per_minute = 10;
    let one = SharedLimitPair::start(redis.url(), limited).await;
    let other = SharedLimitPair::start(redis.url(), limited).await;
    assert_eq!(rate_limit_headers(&one.first.get(ENTITIES).await).1, 9);
    assert_eq!(rate_limit_headers(&other.first.get(ENTITIES).await).1, 9);
}

#[tokio::test]
async fn hanging_redis_is_waited_for_once() {
    let redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| {
        config.limits.public_per_minute = 1_000;
        config.limits.redis_timeout_ms = 300;
    });
    let two = two.await;
    two.assert_together().await;
    redis.freeze();
    // This request waits for Redis, unless the background check was faster. Then the process starts its own count at
    // zero.
    assert_eq!(rate_limit_headers(&two.first.get(ENTITIES).await).1, 999);
    assert!(!two.first.services.rate_limiter.is_shared(), "further requests would wait for Redis");
    for number in 0..50 {
        assert_eq!(rate_limit_headers(&two.first.get(ENTITIES).await).1, 998 - number);
    }
    // The second process gets no requests, but its background check notices the outage.
    eventually("the idle process notices the outage", async || !two.second.services.rate_limiter.is_shared()).await;
    // Longer than the pool keeps a connection that missed its timeout.
    tokio::time::sleep(Duration::from_secs(2)).await;
    redis.thaw();
    eventually("the processes share a count again", async || two.are_shared()).await;
    two.assert_together().await;
}

/// Returns the number of log lines that start with `words`.
fn count_lines(log: &CapturedLog, words: &str) -> usize {
    let lines = log.lines();
    let messages = lines.iter().filter_map(|line| line["fields"]["message"].as_str());
    messages.filter(|message| message.starts_with(words)).count()
}

#[tokio::test]
async fn restarted_redis_is_used_again() {
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| config.limits.public_per_minute = 1_000).await;
    two.assert_together().await;
    redis.kill();
    // The process counts requests itself and starts at zero, unless Redis answered too late before.
    let first = rate_limit_headers(&two.first.get(ENTITIES).await).1;
    assert!((990..1_000).contains(&first), "{first}");
    for number in 1..20 {
        let answer = two.first.get(ENTITIES).await;
        assert_eq!((answer.status, rate_limit_headers(&answer).1), (200, first - number));
    }
    eventually("both processes notice the outage", async || {
        let shared = [&two.first, &two.second].map(|service| service.services.rate_limiter.is_shared());
        shared == [false, false] && count_lines(&log, "failed to reach Redis") >= 2
    })
    .await;
    redis.restart();
    eventually("the processes share a count again", async || two.are_shared()).await;
    two.assert_together().await;
    // Each process logs an outage once, not once for each of the 20 requests. On a busy machine, Redis can also answer
    // too late.
    let lost = count_lines(&log, "failed to reach Redis");
    let found = count_lines(&log, "connected to Redis");
    assert!(lost == found && (2..10).contains(&lost), "{lost} times lost, {found} times found");
}

#[tokio::test]
async fn read_only_redis_is_ignored() {
    let redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| config.limits.public_per_minute = 1_000).await;
    two.assert_together().await;
    // Redis has no memory for any key and evicts none.
    assert_eq!(redis.run("CONFIG SET maxmemory 1"), "+OK");
    eventually("the process notices the failure", async || {
        assert_eq!(two.first.get(ENTITIES).await.status, 200);
        !two.first.services.rate_limiter.is_shared()
    })
    .await;
    assert_eq!(redis.run("CONFIG SET maxmemory 0"), "+OK");
    // Redis has also forgotten the script.
    assert_eq!(redis.run("SCRIPT FLUSH"), "+OK");
    eventually("the processes share a count again", async || two.are_shared()).await;
    two.assert_together().await;
}

#[tokio::test]
async fn service_starts_without_redis() {
    // Nothing listens at the first address, and the second accepts connections but never responds.
    let closed_port = RedisUrl::try_from("redis://127.0.0.1:1".to_owned()).expect("failed to parse the URL");
    let silent_listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("failed to bind a port");
    let port = silent_listener.local_addr().expect("failed to get the address").port();
    let silent_url = RedisUrl::try_from(format!("redis://127.0.0.1:{port}")).expect("failed to parse the URL");
    for url in [closed_port, silent_url] {
        let two = SharedLimitPair::start(url, |config| config.limits.public_per_minute = 2).await;
        for service in [&two.first, &two.second] {
            let statuses: Vec<u16> =
                [service.get(ENTITIES).await, service.get(ENTITIES).await, service.get(ENTITIES).await]
                    .map(|answer| answer.status)
                    .to_vec();
            assert_eq!(statuses, [200, 200, 429], "the process does not count for itself");
            assert!(!service.services.rate_limiter.is_shared());
        }
    }
}

#[tokio::test]
async fn password_in_redis_url_is_used() {
    let redis = RedisServer::start_with(Some("battery-staple"));
    let limited = |config: &mut Config| config.limits.public_per_minute = 1_000;
    SharedLimitPair::start(redis.url(), limited).await.assert_together().await;
    let two = SharedLimitPair::start(redis.url_with(Some("wrong")), limited).await;
    assert!(!two.are_shared());
    assert_eq!(two.first.get(ENTITIES).await.status, 200);
}

/// Logs in from an address.
async fn log_in(service: &TestService, email: &str, password: &str, address: &str) -> Answer {
    let body = json!({"email": email, "password": password}).to_string();
    let peer = ConnectInfo(std::net::SocketAddr::new(address.parse().expect("failed to get the address"), 4711));
    let request = Request::post("/session/login").header("content-type", "application/json").extension(peer);
    service.call(request.body(Body::from(body)).expect("failed to build the request")).await
}

#[tokio::test]
async fn more_processes_allow_no_more_password_guesses() {
    let redis = RedisServer::start();
    let two = SharedLimitPair::start(redis.url(), |config| {
        (config.limits.logins_per_minute, config.limits.account_logins_per_hour) = (3, 5);
    });
    let two = two.await;
    let each = |number: usize| if number.is_multiple_of(2) { &two.first } else { &two.second };
    // The owner has logged in from this address before, at the other process, so failed attempts from other addresses
    // do not count here.
    assert_eq!(log_in(&two.first, OWNER, PASSWORD, "192.0.2.200").await.status, 200);
    // The first three failed attempts for an account are free, from any address.
    let statuses = join_all((0..4).map(|number| log_in(each(number), OWNER, "wrong", "192.0.2.1"))).await;
    let mut statuses: Vec<u16> = statuses.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [401, 401, 401, 429]);
    // After that, all other addresses together have two attempts for this account.
    let mut checked = 0;
    for number in 2..10 {
        let answer = log_in(each(number), OWNER, "wrong", &format!("192.0.2.{number}")).await;
        checked += usize::from(answer.status == 401);
    }
    assert_eq!(checked, 2);
    let refused = log_in(&two.second, OWNER, PASSWORD, "192.0.2.100").await;
    refused.is_error(429);
    let wait: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((3_000..=3_600).contains(&wait), "{wait}");
    assert_eq!(log_in(&two.second, OWNER, PASSWORD, "192.0.2.200").await.status, 200);
    // One client has nine attempts per minute in total.
    let emails = (0..12).map(|number| format!("u{number}@strata.test"));
    let mut checked = 0;
    for (number, email) in emails.enumerate() {
        checked += usize::from(log_in(each(number), &email, "wrong", "192.0.2.50").await.status == 401);
    }
    assert_eq!(checked, 9);
    // The keys in Redis contain neither addresses nor names in plain text.
    let keys = redis.run("KEYS strata:*:passwords:*");
    assert!(keys.contains(":passwords:known:"), "{keys}");
    assert!(!keys.contains("@strata"), "{keys}");
}

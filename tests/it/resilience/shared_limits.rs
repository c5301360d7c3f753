//! Processes that count requests together in Redis, and do without it when it does not answer.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use futures::future::join_all;
use serde_json::json;
use strata_config::{Config, RedisUrl};
use strata_testing::redis::RedisServer;
use strata_testing::{Answer, Log, OWNER, PASSWORD, TestService, eventually};

/// Two processes of one service that count in a Redis.
struct Two {
    first: TestService,
    second: TestService,
    // Dropped last: it has their data.
    _service: TestService,
}

const ENTITIES: &str = "/api/1/open/latest/";

impl Two {
    async fn start(redis: RedisUrl, change: impl Fn(&mut Config)) -> Two {
        let service = TestService::start().await;
        service.import("Open", "[{\"a\":1}]").await;
        let beside = async || {
            let configured = service.beside(|config| {
                config.limits.redis_url = Some(redis.clone());
                // Machines can be slow.
                config.limits.redis_timeout_ms = 1_000;
                change(config);
            });
            configured.await
        };
        Two { first: beside().await, second: beside().await, _service: service }
    }

    fn are_shared(&self) -> bool {
        [&self.first, &self.second].iter().all(|service| service.services.rate_limiter.is_shared())
    }

    /// That a request to one counts at the other.
    async fn assert_together(&self) {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let (_, first, reset) = rate(&self.first.get(ENTITIES).await);
            let (_, second, other_reset) = rate(&self.second.get(ENTITIES).await);
            // Unless a window has ended between them, or an answer was late.
            if (second + 1, other_reset) == (first, reset) {
                return;
            }
            seen.push((first, reset, second, other_reset));
        }
        panic!("they do not count together: {seen:?}");
    }
}

/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
#[track_caller]
fn rate(answer: &Answer) -> (u64, u64, u64) {
    let header = |name| answer.header(name).expect(name).parse().expect("a number");
    (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-reset"))
}

#[tokio::test]
async fn processes_share_one_limit_to_the_last_request() {
    let redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| config.limits.public_per_minute = 10).await;
    assert!(two.are_shared());
    let mut resets = BTreeSet::new();
    for number in 0..10 {
        let service = if number % 2 == 0 { &two.first } else { &two.second };
        // A ping counts as a read.
        let path = if number == 5 { "/ping/unknown" } else { ENTITIES };
        let answer = service.get(path).await;
        assert_eq!(answer.status, if number == 5 { 404 } else { 200 });
        let (limit, remaining, reset) = rate(&answer);
        assert_eq!((limit, remaining), (10, 9 - number));
        resets.insert(reset);
    }
    for service in [&two.first, &two.second] {
        let answer = service.get(ENTITIES).await;
        answer.is_error(429);
        let (_, remaining, reset) = rate(&answer);
        assert_eq!(remaining, 0);
        resets.insert(reset);
        let wait: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
    }
    assert_eq!(resets.len(), 1, "one window for all: {resets:?}");
}

#[tokio::test]
async fn requests_at_the_same_time_get_what_the_limit_allows() {
    let redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| config.limits.public_per_minute = 20).await;
    let requests = (0..80).map(|number| if number % 2 == 0 { &two.first } else { &two.second }.get(ENTITIES));
    let statuses: Vec<u16> = join_all(requests).await.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 20, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 429).count(), 60, "{statuses:?}");
}

#[tokio::test]
async fn services_with_different_catalogs_do_not_count_together() {
    let redis = RedisServer::start();
    let limited = |config: &mut Config| config.limits.public_per_minute = 10;
    let (one, other) = (Two::start(redis.url(), limited).await, Two::start(redis.url(), limited).await);
    assert_eq!(rate(&one.first.get(ENTITIES).await).1, 9);
    assert_eq!(rate(&other.first.get(ENTITIES).await).1, 9);
}

#[tokio::test]
async fn a_redis_that_hangs_is_waited_for_once() {
    let redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| {
        config.limits.public_per_minute = 1_000;
        config.limits.redis_timeout_ms = 300;
    });
    let two = two.await;
    two.assert_together().await;
    redis.freeze();
    // This one waits, unless the task that asks when nobody calls was faster. The process then counts from nothing.
    assert_eq!(rate(&two.first.get(ENTITIES).await).1, 999);
    assert!(!two.first.services.rate_limiter.is_shared(), "further requests are not to wait");
    for number in 0..50 {
        assert_eq!(rate(&two.first.get(ENTITIES).await).1, 998 - number);
    }
    // Nobody asks the other one, which finds out by itself.
    eventually("an idle process finds out", async || !two.second.services.rate_limiter.is_shared()).await;
    // Longer than a late connection is kept.
    tokio::time::sleep(Duration::from_secs(2)).await;
    redis.thaw();
    eventually("they count together again", async || two.are_shared()).await;
    two.assert_together().await;
}

/// How many lines of a log begin so.
fn said(log: &Log, words: &str) -> usize {
    let lines = log.lines();
    let messages = lines.iter().filter_map(|line| line["fields"]["message"].as_str());
    messages.filter(|message| message.starts_with(words)).count()
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_is_used_again() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| config.limits.public_per_minute = 1_000).await;
    two.assert_together().await;
    redis.kill();
    // The process counts requests itself, from nothing unless Redis answered too late before.
    let first = rate(&two.first.get(ENTITIES).await).1;
    assert!((990..1_000).contains(&first), "{first}");
    for number in 1..20 {
        let answer = two.first.get(ENTITIES).await;
        assert_eq!((answer.status, rate(&answer).1), (200, first - number));
    }
    eventually("both have noticed", async || {
        let shared = [&two.first, &two.second].map(|service| service.services.rate_limiter.is_shared());
        shared == [false, false] && said(&log, "failed to reach Redis") >= 2
    })
    .await;
    redis.restart();
    eventually("they count together again", async || two.are_shared()).await;
    two.assert_together().await;
    // Each process says it once for an outage, not for each of the 20 requests. On a busy machine, Redis may also
    // answer too late.
    let lost = said(&log, "failed to reach Redis");
    let found = said(&log, "connected to Redis");
    assert!(lost == found && (2..10).contains(&lost), "{lost} times lost, {found} times found");
}

#[tokio::test]
async fn a_redis_that_cannot_write_is_as_good_as_none() {
    let redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| config.limits.public_per_minute = 1_000).await;
    two.assert_together().await;
    // No memory for any key, and none is removed.
    assert_eq!(redis.run("CONFIG SET maxmemory 1"), "+OK");
    eventually("it is noticed", async || {
        assert_eq!(two.first.get(ENTITIES).await.status, 200);
        !two.first.services.rate_limiter.is_shared()
    })
    .await;
    assert_eq!(redis.run("CONFIG SET maxmemory 0"), "+OK");
    // Scripts are not kept either.
    assert_eq!(redis.run("SCRIPT FLUSH"), "+OK");
    eventually("they count together again", async || two.are_shared()).await;
    two.assert_together().await;
}

#[tokio::test]
async fn a_service_starts_without_its_redis() {
    // Nothing listens there, and there is somebody who never answers.
    let nobody = RedisUrl::try_from("redis://127.0.0.1:1".to_owned()).expect("a URL");
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let silent_url = RedisUrl::try_from(format!("redis://127.0.0.1:{port}")).expect("a URL");
    for url in [nobody, silent_url] {
        let two = Two::start(url, |config| config.limits.public_per_minute = 2).await;
        for service in [&two.first, &two.second] {
            let statuses: Vec<u16> =
                [service.get(ENTITIES).await, service.get(ENTITIES).await, service.get(ENTITIES).await]
                    .map(|answer| answer.status)
                    .to_vec();
            assert_eq!(statuses, [200, 200, 429], "each counts for itself");
            assert!(!service.services.rate_limiter.is_shared());
        }
    }
}

#[tokio::test]
async fn the_password_of_the_url_is_used() {
    let redis = RedisServer::start_with(Some("battery-staple"));
    let limited = |config: &mut Config| config.limits.public_per_minute = 1_000;
    Two::start(redis.url(), limited).await.assert_together().await;
    let two = Two::start(redis.url_with(Some("wrong")), limited).await;
    assert!(!two.are_shared());
    assert_eq!(two.first.get(ENTITIES).await.status, 200);
}

/// A log-in from an address.
async fn log_in(service: &TestService, email: &str, password: &str, address: &str) -> Answer {
    let body = json!({"email": email, "password": password}).to_string();
    let peer = ConnectInfo(std::net::SocketAddr::new(address.parse().expect("an address"), 4711));
    let request = Request::post("/session/login").header("content-type", "application/json").extension(peer);
    service.call(request.body(Body::from(body)).expect("a request")).await
}

#[tokio::test]
async fn passwords_are_guessed_no_faster_at_several_processes() {
    let redis = RedisServer::start();
    let two = Two::start(redis.url(), |config| {
        (config.limits.logins_per_minute, config.limits.account_logins_per_hour) = (3, 5);
    });
    let two = two.await;
    let each = |number: usize| if number.is_multiple_of(2) { &two.first } else { &two.second };
    // Where the owner has been before, and be it at the other process, the guesses of others will not count.
    assert_eq!(log_in(&two.first, OWNER, PASSWORD, "192.0.2.200").await.status, 200);
    // Three in a row are free, wherever.
    let statuses = join_all((0..4).map(|number| log_in(each(number), OWNER, "wrong", "192.0.2.1"))).await;
    let mut statuses: Vec<u16> = statuses.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [401, 401, 401, 429]);
    // Two more for the address by all others.
    let mut looked_at = 0;
    for number in 2..10 {
        let answer = log_in(each(number), OWNER, "wrong", &format!("192.0.2.{number}")).await;
        looked_at += usize::from(answer.status == 401);
    }
    assert_eq!(looked_at, 2);
    let refused = log_in(&two.second, OWNER, PASSWORD, "192.0.2.100").await;
    refused.is_error(429);
    let wait: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((3_000..=3_600).contains(&wait), "{wait}");
    assert_eq!(log_in(&two.second, OWNER, PASSWORD, "192.0.2.200").await.status, 200);
    // One client in all: nine tries a minute.
    let tries = (0..12).map(|number| format!("u{number}@strata.test"));
    let mut looked_at = 0;
    for (number, email) in tries.enumerate() {
        looked_at += usize::from(log_in(each(number), &email, "wrong", "192.0.2.50").await.status == 401);
    }
    assert_eq!(looked_at, 9);
    // Neither addresses nor names can be read there.
    let keys = redis.run("KEYS strata:*:passwords:*");
    assert!(keys.contains(":passwords:known:"), "{keys}");
    assert!(!keys.contains("@strata"), "{keys}");
}

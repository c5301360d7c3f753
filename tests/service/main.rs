//! Webhooks, request limits, alternates, diffs, and the memory of response bodies.

#![allow(clippy::large_futures, reason = "a test polls few futures")]

mod alternates;
mod buffered_bodies;
mod diffs;
mod rate_limits;
mod session_origin;
mod shared_limits;

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest, Sha256};
use strata_ingest::egress::{AddressPolicy, EgressClient};
use strata_service::webhook::{WebhookPayload, WebhookSender, sign_body};
use strata_testing::loopback;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok, redirect, with_status};
use strata_types::secret::Secret;

const BODY: &str = r#"{"dataset_id":7,"dataset_name":"Größe \"x\"","version":3,"entity_count":250,"refreshed_at":"2026-01-02T03:04:05.678Z"}"#;

fn payload() -> WebhookPayload {
    WebhookPayload {
        dataset_id: 7,
        dataset_name: "Größe \"x\"".to_owned(),
        version: 3,
        entity_count: 250,
        refreshed_at: "2026-01-02T03:04:05.678Z".parse().expect("a time"),
    }
}

fn sender(timeout: Duration) -> WebhookSender {
    WebhookSender::try_new(loopback(), timeout).expect("a sender")
}

async fn send(url: &str, secret: Option<&str>) -> Option<u16> {
    let secret = secret.map(|secret| Secret::from_stored(secret.to_owned()));
    sender(Duration::from_secs(10)).send(url, secret.as_ref(), &payload()).await.ok()
}

#[test]
fn signatures_match_rfc_4231() {
    // Test cases 1 and 2, whose keys are text.
    for (key, data, expected) in [
        (&*"\u{b}".repeat(20), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        ("Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    ] {
        let signature = sign_body(&Secret::from_stored(key.to_owned()), data.as_bytes());
        assert_eq!(signature.as_deref(), Ok(expected));
    }
}

/// HMAC-SHA256, implemented from its definition (RFC 2104).
fn hmac(secret: &[u8], body: &[u8]) -> String {
    let mut key = [0_u8; 64];
    match secret.len() {
        0..=64 => key[..secret.len()].copy_from_slice(secret),
        _ => key[..32].copy_from_slice(&Sha256::digest(secret)),
    }
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(body).finalize();
    let outer = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    outer.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

#[tokio::test]
async fn webhook_is_one_post_with_signature() {
    let server = LoopbackServer::start(|_| ok("", b"thanks"));
    let long = "s".repeat(100);
    for secret in ["whsec_1", "ключ", &long] {
        assert_eq!(send(&server.url("/hook?a=b"), Some(secret)).await, Some(200));
        let received = server.take_received();
        assert_eq!(received.len(), 1, "exactly one");
        let request = &received[0];
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/hook?a=b"));
        assert_eq!(String::from_utf8_lossy(&request.body), BODY);
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("x-service-signature"), Some(&*hmac(secret.as_bytes(), &request.body)));
        assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("strata/")));
    }
}

#[tokio::test]
async fn webhook_without_secret_has_no_signature() {
    let server = LoopbackServer::start(|_| ok("", b""));
    assert_eq!(send(&server.url("/"), None).await, Some(200));
    assert_eq!(server.received()[0].header("x-service-signature"), None);
}

#[tokio::test]
async fn every_status_is_recorded_without_retry() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/elsewhere" => redirect("/there"),
        path => Reply::Bytes(with_status(&format!("{} Status", &path[1..]), "Retry-After: 0\r\n", b"no")),
    });
    for status in [200, 204, 304, 307, 308, 400, 401, 404, 408, 410, 425, 429, 500, 502, 503] {
        let path = format!("/{status}");
        assert_eq!(send(&server.url(&path), None).await, Some(status));
        let targets: Vec<String> = server.take_received().into_iter().map(|request| request.target).collect();
        assert_eq!(targets, [path]);
    }
    assert_eq!(send(&server.url("/elsewhere"), None).await, Some(302));
    assert_eq!(server.received().len(), 1, "the redirect is not followed");
}

#[tokio::test]
async fn missing_response_has_no_status_and_no_retry() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/hang-up" => Reply::Bytes(Vec::new()),
        "/half" => Reply::Bytes(b"HTTP/1.1 200".to_vec()),
        "/nonsense" => Reply::Bytes(b"220 SMTP ready\r\n".to_vec()),
        _ => Reply::Stall(Vec::new()),
    });
    for path in ["/hang-up", "/half", "/nonsense"] {
        assert_eq!(send(&server.url(path), None).await, None, "{path}");
        assert_eq!(server.take_received().len(), 1, "{path}");
    }
    let sender_with_timeout = sender(Duration::from_millis(100));
    assert_eq!(sender_with_timeout.send(&server.url("/stall"), None, &payload()).await.ok(), None);
    // A port without a listener, a name that does not exist, and an invalid URL.
    let closed = LoopbackServer::start(|_| ok("", b"")).url("/");
    for url in [&*closed, "http://receiver.invalid/", "receiver"] {
        assert_eq!(send(url, None).await, None, "{url}");
    }
}

#[tokio::test]
async fn response_body_is_not_awaited() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/stall" => Reply::Stall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\n".to_vec()),
        _ => {
            let mut answer = b"HTTP/1.1 201 Created\r\nContent-Length: 100000000\r\n\r\n".to_vec();
            answer.resize(1 << 20, b'x');
            Reply::Stall(answer)
        }
    });
    let sender_with_timeout = sender(Duration::from_secs(3));
    assert_eq!(sender_with_timeout.send(&server.url("/stall"), None, &payload()).await.ok(), Some(202));
    // The body never ends, but the sender stops at its size limit.
    assert_eq!(send(&server.url("/endless"), None).await, Some(201));
}

#[tokio::test]
async fn private_receiver_addresses_are_rejected() {
    let server = LoopbackServer::start(|_| ok("", b""));
    let strict = EgressClient::new(AddressPolicy::default());
    let sender = WebhookSender::try_new(strict, Duration::from_secs(10)).expect("a sender");
    for url in [server.url("/"), format!("http://localhost:{}/", server.port()), "ftp://a.test/".to_owned()] {
        assert_eq!(sender.send(&url, None, &payload()).await.ok(), None, "{url}");
    }
    assert_eq!(server.received().len(), 0, "nothing was sent");
    let error = sender.send("http://10.0.0.1/", None, &payload()).await.expect_err("a private address");
    assert!(error.contains("10.0.0.1 is a private address") && error.contains("net.allow"), "{error}");
}

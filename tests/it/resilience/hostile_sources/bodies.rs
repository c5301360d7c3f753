//! Tests of request bodies that arrive slowly, stop in the middle, fill the disk, or are rejected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use strata_config::{AllowedNetworks, Config};
use strata_testing::machine::{Machine, Server};
use strata_testing::owned::{Owned, add_user};
use strata_testing::{Answer, TestService, eventually, files};
use strata_types::user::UserPlan;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Longer than any request that does not hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a body and a sender of its chunks. The body ends when the sender is dropped.
fn held_body() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(16);
    let chunks = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    (sender, Body::from_stream(chunks.map(Ok::<_, std::io::Error>)))
}

fn push(token: &str, uri: &str, kind: &str, body: Body) -> Request<Body> {
    let request = Request::builder().method("POST").uri(uri).header("content-type", kind);
    request.header("authorization", format!("Bearer {token}")).body(body).expect("failed to build the request")
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, what).await.expect("it does not hang")
}

/// Returns the files in the temporary directory, except for lock files.
async fn spool_files(service: &TestService) -> Vec<std::path::PathBuf> {
    let all = files(&service.directory().join("tmp"));
    all.into_iter().filter(|file| !file.ends_with("lock")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_and_sources_delay_no_other_user() {
    // A server that accepts connections and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("failed to bind a port");
    let silent_url = format!("http://{}/x.json", listener.local_addr().expect("failed to get the address"));
    let accepting = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            connections.push(connection);
        }
    });
    let owned = Owned::start(|config: &mut Config| {
        config.sources.concurrent = 2;
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks");
        config.plans.free_active_datasets = 100;
    })
    .await;
    let honest = owned.dataset("Honest", json!({}), &[]).await;
    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let create = async |name: &str, source: &str| {
        let body = json!({"name": name, "source": source}).to_string();
        let answer = owned.service.call(push(&eve, "/dataset/create", "application/json", Body::from(body))).await;
        let record: serde_json::Value = serde_json::from_slice(&answer.body).expect("failed to parse JSON");
        record["dataset"]["dataset_id"].as_u64().expect("failed to find the ID")
    };
    let mut senders = Vec::new();
    let mut hostile = futures::stream::FuturesUnordered::new();
    for number in 0..8 {
        let id = create(&format!("Pushed {number}"), "push").await;
        let named = format!("{{\"dataset_id\":{id},\"entities\":[{{\"a\":1}},");
        let lines = format!("/dataset/refresh?dataset_id={id}");
        for (uri, kind, start) in [
            ("/dataset/refresh", "application/json", named),
            (&*lines, "application/x-ndjson", "{\"a\":1}\n".to_owned()),
            // The member with the dataset would come last, if ever.
            ("/dataset/refresh", "application/json", "{\"entities\":[{\"a\":1},".to_owned()),
            ("/dataset/alternate/save", "application/json", "{\"entities\":[{\"a\":1},".to_owned()),
        ] {
            let (sender, body) = held_body();
            sender.send(Bytes::from(start)).await.expect("room");
            senders.push(sender);
            hostile.push(owned.service.call(push(&eve, uri, kind, body)));
        }
        let id = create(&format!("Fetched {number}"), &silent_url).await;
        let fetch = Body::from(json!({"dataset_id": id}).to_string());
        hostile.push(owned.service.call(push(&eve, "/dataset/refresh", "application/json", fetch)));
    }
    // The second push to a dataset is rejected; all other requests continue slowly.
    let mut answered = Vec::new();
    let slow_requests = async {
        while let Some(answer) = hostile.next().await {
            answered.push(answer.status);
        }
    };
    let done = CancellationToken::new();
    let honest_work = async {
        for number in 0..5 {
            in_time(owned.push(honest, &format!("[{{\"a\":{number}}}]"))).await;
            let saved = in_time(owned.save(honest, number + 1, "[{\"alt\":1}]")).await;
            assert_eq!(saved.status, 200, "{}", saved.text());
        }
        done.cancel();
    };
    tokio::select! {
        () = async { tokio::join!(slow_requests, honest_work); } => panic!("the slow requests ended"),
        () = done.cancelled() => {}
    }
    assert_eq!(owned.versions(honest).await.len(), 5);
    assert!(answered.iter().all(|status| *status == 409) && answered.len() <= 8, "{answered:?}");
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_to_foreign_dataset_fails_before_body() {
    // The service reads the bodies of rejected requests for one second only.
    let owned = Owned::start(|config| config.limits.refused_body_s = 1).await;
    let id = owned.dataset("Honest", json!({}), &["[{\"a\":1}]"]).await;
    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let head = format!("{{\"dataset_id\":{id},\"version\":1,\"etag\":\"x\",\"entities\":[{{\"a\":1}},");
    let filled = format!("{{\"entities\":[{}", "{\"a\":1},".repeat(10_000));
    let endless = async |uri: &str, kind: &str, start: &str| {
        let (sender, body) = held_body();
        sender.send(Bytes::from(start.to_owned())).await.expect("room");
        let answer = in_time(owned.service.call(push(&eve, uri, kind, body))).await;
        drop(sender);
        answer
    };
    // The query names another user's dataset, so the service needs no byte of the body.
    endless(&format!("/dataset/refresh?dataset_id={id}"), "text/csv", "").await.is_error(404);
    for uri in ["/dataset/refresh", "/dataset/alternate/save", "/agent/push_alt_version"] {
        // The body names the dataset, so its beginning is enough. A user without datasets cannot name one of their own.
        endless(uri, "application/json", &format!("{head}{}", "{\"a\":1},".repeat(10_000))).await.is_error(404);
        endless(uri, "application/json", &filled).await.is_error(404);
        // Checks that precede the check of the dataset still come first.
        endless(uri, "text/html", &head).await.is_error(415);
        let anonymous = Request::builder().method("POST").uri(uri).header("content-type", "application/json");
        let (_sender, body) = held_body();
        in_time(owned.service.call(anonymous.body(body).expect("failed to build the request"))).await.is_error(401);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_during_body_leaves_no_data() {
    let owned = Owned::start(|_| {}).await;
    let id = owned.dataset("Left", json!({}), &["[{\"a\":1}]"]).await;
    let chunk = Bytes::from("{\"a\":\"0123456789\"}\n".repeat(50_000));
    for kind in ["application/x-ndjson", "application/json"] {
        let (sender, body) = held_body();
        let uri = match kind {
            "application/json" => "/dataset/refresh".to_owned(),
            _ => format!("/dataset/refresh?dataset_id={id}"),
        };
        let start = format!("{{\"dataset_id\":{id},\"entities\":[{{\"a\":1}},");
        if kind == "application/json" {
            sender.send(Bytes::from(start)).await.expect("room");
        }
        let call = owned.service.call(push(owned.token(), &uri, kind, body));
        let feed = async {
            for _ in 0..20 {
                sender.send(chunk.clone()).await.expect("the body was not read");
            }
            // The service has read everything so far and waits for more.
            eventually("the service has read all bytes", async || sender.capacity() == sender.max_capacity()).await;
        };
        tokio::select! {
            answer = call => panic!("answered: {}", answer.text()),
            () = in_time(feed) => {}
        }
        // The lease of the dataset is free, no version was created, and the attempt is recorded with its reason.
        eventually("the attempt ended", async || {
            let view = owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await;
            view.text().contains("the client disconnected")
        })
        .await;
        eventually("the disk is free", async || spooled_bytes(&owned.service).await == 0).await;
    }
    owned.push(id, "[{\"a\":2}]").await;
    assert_eq!(owned.versions(id).await.len(), 2);
    assert!(spool_files(&owned.service).await.is_empty());
}

/// Returns the metric of the spooled bytes. The metric counts the whole process, so other tests can change it.
async fn spooled_bytes(service: &TestService) -> u64 {
    service.services.ingest.spooled_bytes()
}

/// A body that declares its length and panics when it is read.
struct DeclaredBody(u64);

impl http_body::Body for DeclaredBody {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        panic!("the server asked for the body");
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}

/// Regression test: clients that wait for `100 Continue` were asked to send a body that the service then rejected.
#[tokio::test]
async fn declared_oversized_body_is_rejected_unread() {
    let owned = Owned::start(|config| config.sources.max_bytes = 1_000).await;
    let id = owned.dataset("Announced", json!({}), &[]).await;
    let refresh = format!("/dataset/refresh?dataset_id={id}");
    for uri in [&refresh, "/dataset/refresh", "/dataset/alternate/save", "/agent/push_alt_version"] {
        let mut request = push(owned.token(), uri, "application/json", Body::new(DeclaredBody(1_001)));
        request.headers_mut().insert("expect", "100-continue".parse().expect("a value"));
        let answer = in_time(owned.service.call(request)).await;
        answer.is_error(413);
        assert!(answer.text().contains("1000 bytes"), "{uri}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spool_space_is_limited_per_user_and_in_total() {
    let owned = Owned::start(|config| {
        config.sources.user_spool_bytes = 1 << 20;
        config.sources.spool_bytes = 1 << 20;
    })
    .await;
    let id = owned.dataset("Spooled", json!({}), &["[{\"a\":1}]"]).await;
    let lines = "{\"a\":\"0123456789\"}\n".repeat(60_000);
    let uri = format!("/dataset/refresh?dataset_id={id}");
    let refused = async |body: String, kind: &str, uri: &str| -> Answer {
        in_time(owned.service.call(push(owned.token(), uri, kind, Body::from(body)))).await
    };
    let answer = refused(lines.clone(), "application/x-ndjson", &uri).await;
    answer.is_error(413);
    assert!(answer.text().contains("sources.user_spool_bytes (1048576)"), "{}", answer.text());
    let body = format!(
        "{{\"dataset_id\":{id},\"version\":1,\"entities\":[{}{{}}]}}",
        "{\"a\":\"0123456789\"},".repeat(60_000)
    );
    let answer = refused(body, "application/json", "/dataset/alternate/save").await;
    answer.is_error(413);
    assert!(answer.text().contains("sources.user_spool_bytes"), "{}", answer.text());
    assert_eq!(spooled_bytes(&owned.service).await, 0);
    // The spool space of all users is smaller than the body.
    let narrow = Owned::start(|config| config.sources.spool_bytes = 1 << 20).await;
    let id = narrow.dataset("Spooled", json!({}), &[]).await;
    let uri = format!("/dataset/refresh?dataset_id={id}");
    let request = push(narrow.token(), &uri, "application/x-ndjson", Body::from(lines));
    let answer = in_time(narrow.service.call(request)).await;
    answer.is_error(503);
    assert!(answer.header("retry-after").is_some());
    assert!(answer.text().contains("sources.spool_bytes (1048576)"), "{}", answer.text());
    narrow.push(id, "[{\"a\":2}]").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_body_is_rejected() {
    let owned = Owned::start(|config| {
        config.limits.body_min_bytes_per_s = 1_000;
        config.limits.body_rate_window_s = 1;
    })
    .await;
    let id = owned.dataset("Slow", json!({}), &["[{\"a\":1}]"]).await;
    for (uri, kind, start) in [
        (format!("/dataset/refresh?dataset_id={id}"), "application/x-ndjson", String::new()),
        (
            "/dataset/alternate/save".to_owned(),
            "application/json",
            format!("{{\"dataset_id\":{id},\"version\":1,\"entities\":["),
        ),
    ] {
        let (sender, body) = held_body();
        let call = owned.service.call(push(owned.token(), &uri, kind, body));
        let drip = async {
            let _ = sender.send(Bytes::from(start)).await;
            while sender.send(Bytes::from_static(b"x")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::future::pending::<()>().await
        };
        let answer = tokio::select! {
            answer = in_time(call) => answer,
            () = drip => unreachable!("it never ends"),
        };
        answer.is_error(408);
        assert!(answer.text().contains("limits.body_min_bytes_per_s (1000"), "{}", answer.text());
    }
    assert_eq!(owned.versions(id).await.len(), 1);
}

#[test]
fn refusal_reaches_client_that_sends_body_first() {
    let machine = Machine::with_user();
    let server = Server::start(&machine, &[], &[("STRATA_LIMITS__BODY_BYTES", "1024")]);
    let address = server.base_url.strip_prefix("http://").expect("failed to parse the URL").to_owned();
    let body = vec![b'x'; 32 << 20];
    let call = |head: String, body: &[u8]| {
        let mut connection = TcpStream::connect(&address).expect("failed to connect");
        connection.set_read_timeout(Some(HANG_TIMEOUT)).expect("failed to set the timeout");
        connection.set_write_timeout(Some(HANG_TIMEOUT)).expect("failed to set the timeout");
        connection.write_all(head.as_bytes()).expect("failed to send the head");
        connection.write_all(body).unwrap_or_else(|error| panic!("{head}: {error}"));
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("failed to get a response");
        answer
    };
    let head = |path: &str, more: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n"
        )
    };
    let answer = call(head("/healthz", "").replace("POST", "GET"), &body);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for path in ["/dataset/refresh?dataset_id=1", "/dataset/create", "/dataset/alternate/save", "/mcp", "/no/such/path"]
    {
        let status = if path.starts_with("/no") { "404" } else { "401" };
        let answer = call(head(path, "Content-Type: application/json\r\n"), &body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
    // The body is too long for this call, regardless of whether its length is declared.
    let json = "Content-Type: application/json\r\n";
    let answer = call(head("/session/login", json), &body);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // With `Expect: 100-continue`, the client gets the error at once and sends no body.
    let answer = call(head("/dataset/refresh?dataset_id=1", &format!("{json}Expect: 100-continue\r\n")), b"");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

/// Regression test: if a stream is reset while curl and other clients send a body, they report a failure and ignore the
/// response.
#[tokio::test]
async fn refusal_reaches_http2_client_sending_body_first() {
    let machine = Machine::with_user();
    let server = Server::start(&machine, &[], &[("STRATA_LIMITS__BODY_BYTES", "1024")]);
    let address = server.base_url.strip_prefix("http://").expect("failed to parse the URL").to_owned();
    for (method, path, status) in [
        ("POST", "/dataset/refresh?dataset_id=1", 401),
        ("POST", "/no/such/path", 404),
        ("POST", "/session/login", 413),
        // These endpoints do not read a body.
        ("GET", "/healthz", 200),
        ("GET", "/no/such/path", 404),
    ] {
        let stream = tokio::net::TcpStream::connect(&address).await.expect("failed to connect");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
        let request = request.header("content-type", "application/json");
        let mut client = client.ready().await.expect("ready");
        let (answer, mut body) =
            client.send_request(request.body(()).expect("failed to build the request"), false).expect("failed to send");
        let sent = async {
            let mut left = 8 << 20;
            while left > 0 {
                body.reserve_capacity(left.min(64 << 10));
                let room = std::future::poll_fn(|context| body.poll_capacity(context)).await;
                let room = room
                    .unwrap_or_else(|| panic!("{path}: the stream is reset"))
                    .expect("failed to get capacity")
                    .min(left);
                left -= room;
                body.send_data(Bytes::from(vec![b'x'; room]), left == 0).expect("failed to send");
            }
            let mut answer = answer.await.expect("failed to get a response");
            while let Some(some) = answer.body_mut().data().await {
                some.expect("all of it");
            }
            answer.status()
        };
        assert_eq!(in_time(sent).await, status, "{path}");
    }
}

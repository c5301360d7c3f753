//! Hostile connections: new clients get responses regardless of hostile clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::{any, get};
use futures::StreamExt;
use http_body_util::BodyExt;
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::eventually;
use strata_testing::metrics::value;
use strata_testing::serving::{limits, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// A timeout that only a hang exceeds.
const HANG: Duration = Duration::from_secs(30);

/// Shorter than all default timeouts, so that only a released connection can help a new client.
const PROMPT: Duration = Duration::from_secs(8);

/// The connection limit in these tests. Hostile clients use up all connections.
const CONNECTIONS: usize = 24;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// SETTINGS with an initial window of 0.
const NO_WINDOW: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const HONEST: [u8; 4] = [127, 0, 0, 1];
const HOSTILE: [u8; 4] = [127, 0, 0, 2];

/// The flag of DATA with padding.
const PADDED: u8 = 0x8;

/// The counters of connections that were closed because of floods and because of stalls.
const FLOODING: &str = "strata_connections_flooding_total";
const OVERDUE: &str = "strata_connections_overdue_total";

/// Tests with floods run one at a time, because they share the counters of the process.
static COUNTED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Runs `cut`, and waits until the closed connection has been counted.
async fn counts(what: &str, series: &str, cut: impl Future<Output = ()>) {
    let counted = || value(&strata_runtime::metrics::render_prometheus(), series).unwrap_or_default();
    let before = counted();
    cut.await;
    eventually(what, async || counted() > before).await;
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).expect("small").to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// HEADERS, complete: the method by its index in HPACK's static table (0x82 is GET, 0x83 POST), http, and a path.
fn headers(method: u8, path: &str, stream: u32, ends: bool) -> Vec<u8> {
    let mut block = vec![method, 0x86, 0x04, u8::try_from(path.len()).expect("short")];
    block.extend(path.as_bytes());
    frame(1, if ends { 0x5 } else { 0x4 }, stream, &block)
}

fn routes() -> Router {
    let upload = async |request: Request| match request.into_body().collect().await {
        Ok(body) => body.to_bytes().len().to_string(),
        Err(_) => "cut".to_owned(),
    };
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    Router::new()
        .route("/whole", get(async || "whole"))
        .route("/large", get(async move || Body::from(large.clone())))
        .route("/upload", any(upload))
}

/// The default limits with fewer connections.
fn few() -> ServerLimits {
    ServerLimits { max_connections: CONNECTIONS, max_connections_per_client: 0, ..limits() }
}

/// A connection from that address, with a small receive buffer.
async fn connect(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the response to a new honest client.
async fn newcomer(to: SocketAddr) -> String {
    let response = async {
        let mut connection = connect(HONEST, to).await.expect("failed to connect");
        let request = b"GET /whole HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        connection.write_all(request).await.expect("failed to send");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("failed to read response");
        answer
    };
    tokio::time::timeout(PROMPT, response).await.expect("no response in time")
}

/// Checks that new clients get responses although idle connections, which have sent `sent`, use up the limit.
async fn check_idle(what: &str, sent: &[u8]) {
    let address = start(routes(), few()).await;
    let mut hostile = Vec::new();
    // More connections than the limit: the others wait in the queue before the new clients.
    for _ in 0..CONNECTIONS + CONNECTIONS / 2 {
        let mut connection = connect(HOSTILE, address).await.expect("failed to connect");
        connection.write_all(sent).await.expect("failed to send");
        hostile.push(connection);
    }
    for _ in 0..3 {
        assert!(newcomer(address).await.ends_with("whole"), "{what}");
    }
}

/// Checks that new clients get responses although many clients send `again` repeatedly, on a new connection each time
/// that the previous one is closed.
async fn check_flood(what: &str, first: Vec<u8>, again: fn(u32) -> Vec<u8>) {
    let address = start(routes(), few()).await;
    let mut hostile = JoinSet::new();
    for _ in 0..CONNECTIONS + 4 {
        let first = first.clone();
        hostile.spawn(async move {
            loop {
                let Ok(mut connection) = connect(HOSTILE, address).await else { continue };
                if connection.write_all(&first).await.is_err() {
                    continue;
                }
                let (mut reading, mut writing) = connection.split();
                let discard = async {
                    let mut read = vec![0; 16 << 10];
                    while reading.read(&mut read).await.is_ok_and(|read| read > 0) {}
                };
                let flood = async {
                    let mut number = 0;
                    while writing.write_all(&again(number)).await.is_ok() {
                        number += 1;
                        // Client and server share the cores.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                };
                tokio::select! {
                    () = discard => {}
                    () = flood => {}
                }
            }
        });
    }
    for _ in 0..3 {
        assert!(newcomer(address).await.ends_with("whole"), "{what}");
    }
}

#[tokio::test]
async fn begun_connections_do_not_block_new_clients() {
    let half_headers = [PREFACE, SETTINGS, &frame(1, 0, 1, &[0x82, 0x86])].concat();
    let cut_headers = [PREFACE, SETTINGS, &headers(0x82, "/whole", 1, true)[..12]].concat();
    let begun: [(&str, &[u8]); 7] = [
        ("nothing", b""),
        ("a head that has begun", b"GET /whole HTTP/1.1\r\nHo"),
        ("a preface that has begun", &PREFACE[..10]),
        ("only a preface", PREFACE),
        ("only SETTINGS", &[PREFACE, SETTINGS].concat()),
        ("HEADERS without their end", &half_headers),
        ("a frame that has begun", &cut_headers),
    ];
    futures::future::join_all(begun.map(|(what, sent)| check_idle(what, sent))).await;
}

#[tokio::test]
async fn idle_or_stalled_connections_do_not_block_clients() {
    let answered = b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n".to_vec();
    let untaken = b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n".to_vec();
    let unsent = b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nsome".to_vec();
    let stream = [PREFACE, SETTINGS, &headers(0x82, "/whole", 1, true)].concat();
    let no_window = [PREFACE, NO_WINDOW, &headers(0x82, "/large", 1, true)].concat();
    let mut uploads = [PREFACE, SETTINGS].concat();
    for number in 0..100 {
        uploads.extend(headers(0x83, "/upload", 2 * number + 1, false));
        uploads.extend(frame(0, 0, 2 * number + 1, b"some"));
    }
    let idle = [
        ("an idle connection", answered),
        ("an answer that is not taken", untaken),
        ("a body that does not come", unsent),
        ("an idle stream", stream),
        ("an answer without a window", no_window),
        ("many streams with bodies that do not come", uploads),
    ];
    futures::future::join_all(idle.iter().map(|(what, sent)| check_idle(what, sent))).await;
}

/// Regression: the system accepted no data until megabytes had been sent, as if the client had read nothing.
#[tokio::test]
async fn slow_steady_reader_is_not_disconnected() {
    let endless = get(async || {
        Body::from_stream(futures::stream::repeat(Bytes::from_static(&[b'x'; 64 << 10])).map(Ok::<_, std::io::Error>))
    });
    let limits = ServerLimits { write_timeout: Duration::from_secs(1), ..limits() };
    let address = start(Router::new().route("/endless", endless), limits).await;
    let socket = TcpSocket::new_v4().expect("failed to create socket");
    // With a receive buffer of megabytes, the client's system would report progress equally rarely.
    socket.set_recv_buffer_size(64 << 10).expect("failed to set buffer size");
    let mut connection = socket.connect(address).await.expect("failed to connect");
    connection.write_all(b"GET /endless HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    let mut some = vec![0; 32 << 10];
    for pause in 0..50 {
        let read = connection.read(&mut some).await.unwrap_or_else(|error| panic!("cut at pause {pause}: {error}"));
        assert!(read > 0, "cut at pause {pause}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Pings cost the service more than their sender, and no limit of requests counts them.
#[tokio::test]
async fn frame_flood_is_disconnected_but_pings_are_not() {
    let _alone = COUNTED.lock().await;
    let address = start(routes(), few()).await;
    for (what, kind, flags, stream, payload) in [
        ("pings", 6, 0, 0, &b"abcdefgh"[..]),
        ("settings", 4, 0, 0, b""),
        ("unknown frames", 0x70, 0, 0, b""),
        ("empty data", 0, 0, 1, b""),
        ("data with only padding", 0, PADDED, 1, &[3, 0, 0, 0]),
    ] {
        let mut connection = connect(HOSTILE, address).await.expect("failed to connect");
        let upload = headers(0x83, "/upload", 1, false);
        connection.write_all(&[PREFACE, SETTINGS, &upload].concat()).await.expect("failed to send");
        let flood = frame(kind, flags, stream, payload).repeat(100);
        let cut = async {
            let (mut read, mut write) = connection.split();
            let sending = async { while write.write_all(&flood).await.is_ok() {} };
            let reads = async {
                let mut some = [0; 4 << 10];
                while read.read(&mut some).await.is_ok_and(|length| length > 0) {}
            };
            tokio::select! {
                () = sending => {}
                () = reads => {}
            }
        };
        let cut = async { tokio::time::timeout(Duration::from_secs(60), cut).await.expect("not disconnected in time") };
        counts(&format!("{what} are counted as a flood"), FLOODING, cut).await;
    }
    // A few pings with each request are accepted for any time.
    let mut connection = connect(HONEST, address).await.expect("failed to connect");
    connection.write_all(&[PREFACE, SETTINGS].concat()).await.expect("failed to send");
    for number in 0..200 {
        let request = headers(0x82, "/whole", 2 * number + 1, true);
        let sent = [&request[..], &frame(6, 0, 0, b"abcdefgh").repeat(5)].concat();
        connection.write_all(&sent).await.expect("disconnected");
        let mut some = [0; 4 << 10];
        assert!(connection.read(&mut some).await.expect("failed to read response") > 0, "request {number}");
    }
}

/// Regression: each byte of a body restarted the wait for the client, so such connections were never released.
#[tokio::test]
async fn dripping_bodies_do_not_block_new_clients() {
    let upload = b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 10000\r\n\r\n".to_vec();
    let stream = [PREFACE, SETTINGS, &headers(0x83, "/upload", 1, false)].concat();
    for (what, first, drop) in [("HTTP/1.1", upload, b" ".to_vec()), ("HTTP/2", stream, frame(0, 0, 1, b" "))] {
        let address = start(routes(), few()).await;
        let mut hostile = JoinSet::new();
        for _ in 0..CONNECTIONS + 4 {
            let first = first.clone();
            let drop = drop.clone();
            hostile.spawn(async move {
                loop {
                    let Ok(mut connection) = connect(HOSTILE, address).await else { continue };
                    let mut sent = connection.write_all(&first).await;
                    while sent.is_ok() {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        sent = connection.write_all(&drop).await;
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..3 {
            assert!(newcomer(address).await.ends_with("whole"), "{what}");
        }
    }
}

#[tokio::test]
async fn request_without_one_host_returns_400() {
    let address = start(routes(), limits()).await;
    for (version, hosts, status) in [
        ("1.1", "", "400 Bad Request"),
        ("1.1", "Host: a\r\nHost: b\r\n", "400 Bad Request"),
        ("1.1", "Host: a\r\n", "200 OK"),
        ("1.1", "Host:\r\n", "200 OK"),
        ("1.0", "", "200 OK"),
    ] {
        let mut connection = connect(HONEST, address).await.expect("failed to connect");
        let request = format!("GET /whole HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.expect("failed to send");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("failed to read response");
        assert!(answer.starts_with(&format!("HTTP/{version} {status}\r\n")), "{request}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frame_floods_do_not_block_new_clients() {
    let _alone = COUNTED.lock().await;
    let begun = || [PREFACE, SETTINGS].concat();
    check_flood("PING", begun(), |_| PING.repeat(500)).await;
    check_flood("SETTINGS", begun(), |_| SETTINGS.repeat(500)).await;
    check_flood("rapid reset", begun(), |number| {
        let streams = (number * 100..(number + 1) * 100).map(|stream| 2 * stream + 1);
        streams
            .flat_map(|stream| [headers(0x82, "/large", stream, true), frame(3, 0, stream, &[0, 0, 0, 8])].concat())
            .collect()
    })
    .await;
    let mut first = begun();
    first.extend(frame(1, 0, 1, &[0x82, 0x86]));
    check_flood("CONTINUATION", first, |_| frame(9, 0, 1, &[]).repeat(500)).await;
    check_flood("heads byte by byte", b"GET / HTTP/1.1\r\nX: ".to_vec(), |_| b"x".to_vec()).await;
}

#[tokio::test]
async fn idle_http2_connection_gets_goaway() {
    let limits = ServerLimits {
        header_read_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        ..limits()
    };
    let address = start(routes(), limits).await;
    let mut silent = connect(HOSTILE, address).await.expect("failed to connect");
    silent.write_all(&[PREFACE, SETTINGS, &headers(0x82, "/whole", 1, true)].concat()).await.expect("failed to send");
    let mut read = Vec::new();
    // GOAWAY, and then the end, although the client does not respond.
    tokio::time::timeout(HANG, silent.read_to_end(&mut read))
        .await
        .expect("not disconnected in time")
        .expect("failed to read");
    let mut kinds = Vec::new();
    let mut rest = &read[..];
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    assert!(kinds.contains(&0) && kinds.contains(&7), "DATA and GOAWAY: {kinds:?}");
}

#[tokio::test]
async fn response_without_window_ends_after_write_timeout() {
    let address = start(routes(), ServerLimits { write_timeout: Duration::from_millis(300), ..limits() }).await;
    let mut hostile = connect(HOSTILE, address).await.expect("failed to connect");
    hostile.write_all(&[PREFACE, NO_WINDOW, &headers(0x82, "/large", 1, true)].concat()).await.expect("failed to send");
    let cut = async {
        let ended = tokio::time::timeout(HANG, hostile.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it is cut, with or without a reset");
    };
    counts("a client that stalls is counted", OVERDUE, cut).await;
}

#[tokio::test]
async fn small_response_without_window_ends_despite_pings() {
    let long = Duration::from_secs(600);
    let limits = ServerLimits { write_timeout: Duration::from_millis(300), header_read_timeout: long, ..limits() };
    let address = start(routes(), limits).await;
    let mut hostile = connect(HOSTILE, address).await.expect("failed to connect");
    hostile.write_all(&[PREFACE, NO_WINDOW, &headers(0x82, "/whole", 1, true)].concat()).await.expect("failed to send");
    let (mut reading, mut writing) = hostile.split();
    let read = async {
        let mut read = vec![0; 16 << 10];
        while reading.read(&mut read).await.is_ok_and(|read| read > 0) {}
    };
    let pings = async {
        while writing.write_all(&PING.repeat(100)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        std::future::pending::<()>().await;
    };
    let ended = async {
        tokio::select! {
            () = read => {}
            () = pings => {}
        }
    };
    assert!(tokio::time::timeout(HANG, ended).await.is_ok(), "it is cut");
}

#[tokio::test]
async fn unread_http2_bodies_use_limited_memory() {
    let routes = routes().route("/unread", any(async |_body: Body| std::future::pending::<()>().await));
    let address = start(routes, limits()).await;
    let stream = TcpStream::connect(address).await.expect("failed to connect");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let begin = async |path: &str| {
        let request = axum::http::Request::post(format!("http://test{path}")).body(()).expect("invalid request");
        let mut client = client.clone().ready().await.expect("not ready");
        client.send_request(request, false).expect("failed to send")
    };
    // Bodies that the handler reads are received completely.
    const UPLOAD_BYTES: usize = 8 << 20;
    let (answer, mut upload) = begin("/upload").await;
    upload.send_data(Bytes::from(vec![b'x'; UPLOAD_BYTES]), true).expect("failed to send");
    let mut body = answer.await.expect("failed to read response").into_body();
    assert_eq!(body.data().await.expect("missing body").expect("missing body"), UPLOAD_BYTES.to_string());

    let mut sent = 0;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let (answer, mut upload) = begin("/unread").await;
        upload.reserve_capacity(UPLOAD_BYTES);
        while let Ok(Some(Ok(bytes))) = tokio::time::timeout(
            Duration::from_millis(500),
            std::future::poll_fn(|context| upload.poll_capacity(context)),
        )
        .await
        {
            sent += bytes;
            upload.send_data(Bytes::from(vec![b'x'; bytes]), false).expect("failed to send");
            upload.reserve_capacity(UPLOAD_BYTES);
        }
        unread.push((answer, upload));
    }
    assert!((64 << 10..=256 << 10).contains(&sent), "{sent}");
}

#[tokio::test]
async fn waiting_connection_over_client_limit_gets_503() {
    const BUSY: &[u8] = b"GET /busy HTTP/1.1\r\nHost: test\r\n\r\n";
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let routes = routes().route(
        "/busy",
        get(async move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("failed to get address");
    let limits = ServerLimits { max_connections: 16, max_connections_per_client: 2, ..limits() };
    tokio::spawn(serve_router(
        with_fallbacks_and_layers(routes),
        listener,
        limits,
        std::future::pending::<()>(),
        |_| (),
    ));
    let mut busy = Vec::new();
    for number in 0..16_u8 {
        let mut connection = connect([127, 0, 0, 10 + number / 2], address).await.expect("failed to connect");
        connection.write_all(BUSY).await.expect("failed to send");
        busy.push(connection);
    }
    while begun.load(Ordering::SeqCst) < 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The client of the last connection has one left, and two more wait. Only one of them gets a slot.
    let own = [127, 0, 0, 17];
    drop(busy.pop());
    let mut full = connect([127, 0, 0, 30], address).await.expect("failed to connect");
    full.write_all(BUSY).await.expect("failed to send");
    while begun.load(Ordering::SeqCst) < 17 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let mut connection = connect(own, address).await.expect("failed to connect");
        connection.write_all(BUSY).await.expect("failed to send");
        waiting.spawn(async move {
            let mut answer = String::new();
            let _ = connection.read_to_string(&mut answer).await;
            answer
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    busy.drain(..2);
    let response = tokio::time::timeout(HANG, waiting.join_next()).await.expect("no response in time");
    let response = response.expect("no task").expect("task panicked");
    assert!(
        response.starts_with("HTTP/1.1 503 ") && response.contains("server.connections_per_client"),
        "{response:?}"
    );
    drop(full);
}

#[tokio::test]
async fn connection_over_client_limit_gets_503() {
    let limits = ServerLimits { max_connections_per_client: 3, ..limits() };
    let address = start(routes(), limits.clone()).await;
    let mut hostile = Vec::new();
    for _ in 0..3 {
        hostile.push(connect(HOSTILE, address).await.expect("failed to connect"));
    }
    let mut refused = connect(HOSTILE, address).await.expect("failed to connect");
    refused.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.expect("failed to read");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n"), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").expect("missing body");
    assert!(text.contains("limit of 3 connections (server.connections_per_client)"), "{text}");
    assert!(newcomer(address).await.ends_with("whole"));

    // After a while, an idle connection of the client is released.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut late = connect(HOSTILE, address).await.expect("failed to connect");
    late.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await.expect("failed to send");
    answer.clear();
    late.read_to_string(&mut answer).await.expect("failed to read response");
    assert!(answer.ends_with("whole"), "{answer}");
    assert_eq!(hostile[0].read(&mut [0; 1]).await.expect("failed to read"), 0);

    // A trusted proxy acts for many clients.
    let trusted = strata_config::TrustedProxies::try_from(vec!["127.0.0.2".to_owned()]).expect("invalid address");
    let address = start(routes(), ServerLimits { trusted_proxies: trusted, ..limits }).await;
    let mut proxied = Vec::new();
    for _ in 0..8 {
        let mut connection = connect(HOSTILE, address).await.expect("failed to connect");
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
        proxied.push(connection);
    }
    for connection in &mut proxied {
        let mut head = [0; 15];
        connection.read_exact(&mut head).await.expect("failed to read response");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
}

#[tokio::test]
async fn extreme_limits_serve_honest_clients() {
    use strata_config::{Config, HttpServerConfig};
    let seconds = [(1, 1), (3_600, 604_800)];
    for (timeout_s, answer_timeout_s) in seconds {
        let server = HttpServerConfig {
            header_timeout_s: timeout_s,
            write_stall_s: timeout_s,
            answer_timeout_s,
            keep_alive_s: timeout_s,
            drain_s: timeout_s,
            drain_idle_s: timeout_s,
            connections: if timeout_s == 1 { 1 } else { 1_000_000 },
            connections_per_client: if timeout_s == 1 { 1 } else { 1_000_000 },
            header_bytes: if timeout_s == 1 { 8_192 } else { 16 << 20 },
            concurrent_streams: if timeout_s == 1 { 1 } else { 10_000 },
            ..HttpServerConfig::default()
        };
        let address = start(routes(), ServerLimits::from(&Config { server, ..Config::default() })).await;
        for _ in 0..3 {
            assert!(newcomer(address).await.ends_with("whole"));
        }
        let mut large = connect(HONEST, address).await.expect("failed to connect");
        large
            .write_all(b"GET /large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            .await
            .expect("failed to send");
        let mut answer = Vec::new();
        large.read_to_end(&mut answer).await.expect("incomplete body");
        assert!(answer.len() > 8 << 20);
    }
}

/// Regression: a thousand connections of 126 requests each used gigabytes, and delayed others for seconds.
#[tokio::test]
async fn http2_requests_per_client_are_limited() {
    const AT_ONCE: usize = 100;
    const MANY: usize = 6;
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let routes = routes().route(
        "/stuck",
        get(async move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }),
    );
    let limits = ServerLimits { max_concurrent_streams: AT_ONCE as u32, max_header_bytes: 128 << 10, ..limits() };
    let address = start(routes, limits).await;
    let greedy = [127, 0, 0, 20];
    let other = [127, 0, 0, 21];
    let http2 = async |from| {
        let stream = connect(from, address).await.expect("failed to connect");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        (client, tokio::spawn(connection))
    };
    // 564 requests of 118 kB each fit into 64 MiB.
    let long = "x".repeat(100 << 10);
    let (sender, mut refused) = tokio::sync::mpsc::channel(MANY * AT_ONCE);
    let mut open = Vec::new();
    for _ in 0..MANY {
        let (client, connection) = http2(greedy).await;
        for _ in 0..AT_ONCE {
            let request = axum::http::Request::get("http://test/stuck").header("x-long", &long);
            let mut client = client.clone().ready().await.expect("not ready");
            let (answer, _) =
                client.send_request(request.body(()).expect("invalid request"), true).expect("failed to send");
            let sender = sender.clone();
            tokio::spawn(async move {
                let answer = answer.await.expect("failed to read response");
                let _ = sender.send(answer.status().as_u16()).await;
            });
        }
        open.push(connection);
    }
    for _ in 0..MANY * AT_ONCE - 570 {
        let status = tokio::time::timeout(HANG, refused.recv()).await.expect("not in time");
        assert_eq!(status, Some(503));
    }
    assert_eq!(begun.load(Ordering::SeqCst), AT_ONCE, "others wait for their turn");
    // Other clients are not delayed.
    let status = async |from| {
        let (client, connection) = http2(from).await;
        let request = axum::http::Request::get("http://test/upload").body(()).expect("invalid request");
        let mut client = client.ready().await.expect("not ready");
        let (answer, _) = client.send_request(request, true).expect("failed to send");
        let status =
            tokio::time::timeout(HANG, answer).await.expect("not in time").expect("failed to read response").status();
        connection.abort();
        status.as_u16()
    };
    assert_eq!(status(other).await, 200);
    // Finished requests release their permits.
    open.iter().for_each(tokio::task::JoinHandle::abort);
    while tokio::time::timeout(Duration::from_millis(200), status(greedy)).await != Ok(200) {}
}

//! Hostile connections beside honest newcomers: whatever they do or leave undone, a newcomer is answered.

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
use strata_http::router::around;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::eventually;
use strata_testing::metrics::value;
use strata_testing::serving::{limits, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Long past anything but a hang.
const HANG: Duration = Duration::from_secs(30);

/// Shorter than the time for a head and than any other of the default limits: nothing but making room helps a newcomer.
const PROMPT: Duration = Duration::from_secs(8);

/// Connections of the servers here, all of which the hostile ones take.
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

/// Connections that were cut because their clients flood, and because they stall.
const FLOODING: &str = "strata_connections_flooding_total";
const OVERDUE: &str = "strata_connections_overdue_total";

/// Tests with floods run one at a time: the process counts them all together.
static COUNTED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Does what cuts a connection, and waits until it has been counted.
async fn counts(what: &str, series: &str, cut: impl Future<Output = ()>) {
    let counted = || value(&strata_runtime::metrics::render(), series).unwrap_or_default();
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

/// The default limits, but for the number of connections.
fn few() -> ServerLimits {
    ServerLimits { connections: CONNECTIONS, connections_per_client: 0, ..limits() }
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

/// What an honest newcomer is answered.
async fn newcomer(to: SocketAddr) -> String {
    let answering = async {
        let mut connection = connect(HONEST, to).await.expect("a connection");
        let request = b"GET /whole HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        connection.write_all(request).await.expect("sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    tokio::time::timeout(PROMPT, answering).await.expect("a newcomer waits")
}

/// Newcomers are answered although all connections are taken by some that have sent this, and do nothing more.
async fn check_idle(what: &str, sent: &[u8]) {
    let address = start(routes(), few()).await;
    let mut hostile = Vec::new();
    // More than there is room for: the others wait in the queue before the newcomers.
    for _ in 0..CONNECTIONS + CONNECTIONS / 2 {
        let mut connection = connect(HOSTILE, address).await.expect("a connection");
        connection.write_all(sent).await.expect("sent");
        hostile.push(connection);
    }
    for _ in 0..3 {
        assert!(newcomer(address).await.ends_with("whole"), "{what}");
    }
}

/// Newcomers are answered beside as many clients as there is room for that send this again and again, each on a new
/// connection when the last one was closed.
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
async fn connections_that_have_only_begun_keep_nobody_out() {
    let half_headers = [PREFACE, SETTINGS, &frame(1, 0, 1, &[0x82, 0x86])].concat();
    let cut_headers = [PREFACE, SETTINGS, &headers(0x82, "/whole", 1, true)[..12]].concat();
    let begun: [(&str, &[u8]); 7] = [
        ("nothing", b""),
        ("a head that has begun", b"GET /whole HTTP/1.1\r\nHo"),
        ("a preface that has begun", &PREFACE[..10]),
        ("a preface alone", PREFACE),
        ("SETTINGS alone", &[PREFACE, SETTINGS].concat()),
        ("HEADERS without their end", &half_headers),
        ("a frame that has begun", &cut_headers),
    ];
    futures::future::join_all(begun.map(|(what, sent)| check_idle(what, sent))).await;
}

#[tokio::test]
async fn connections_that_idle_or_take_nothing_keep_nobody_out() {
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

/// The system took no more of an answer until megabytes of it were gone, as if the client took nothing meanwhile.
#[tokio::test]
async fn a_client_that_reads_steadily_and_slowly_is_not_cut() {
    let endless = get(async || {
        Body::from_stream(futures::stream::repeat(Bytes::from_static(&[b'x'; 64 << 10])).map(Ok::<_, std::io::Error>))
    });
    let limits = ServerLimits { write_stall: Duration::from_secs(1), ..limits() };
    let address = start(Router::new().route("/endless", endless), limits).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    // A system with room for megabytes would tell of what its client reads as seldom.
    socket.set_recv_buffer_size(64 << 10).expect("a small buffer");
    let mut connection = socket.connect(address).await.expect("connected");
    connection.write_all(b"GET /endless HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    let mut some = vec![0; 32 << 10];
    for pause in 0..50 {
        let read = connection.read(&mut some).await.unwrap_or_else(|error| panic!("cut at pause {pause}: {error}"));
        assert!(read > 0, "cut at pause {pause}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Pings cost the service more than their sender, and no limit of requests counts them.
#[tokio::test]
async fn a_flood_of_frames_beside_requests_is_cut_and_what_clients_send_is_not() {
    let _alone = COUNTED.lock().await;
    let address = start(routes(), few()).await;
    for (what, kind, flags, stream, payload) in [
        ("pings", 6, 0, 0, &b"abcdefgh"[..]),
        ("settings", 4, 0, 0, b""),
        ("unknown frames", 0x70, 0, 0, b""),
        ("empty data", 0, 0, 1, b""),
        ("data of padding alone", 0, PADDED, 1, &[3, 0, 0, 0]),
    ] {
        let mut connection = connect(HOSTILE, address).await.expect("connected");
        let upload = headers(0x83, "/upload", 1, false);
        connection.write_all(&[PREFACE, SETTINGS, &upload].concat()).await.expect("sent");
        let flood = frame(kind, flags, stream, payload).repeat(100);
        let cut = async {
            let (mut read, mut write) = connection.split();
            let sending = async { while write.write_all(&flood).await.is_ok() {} };
            let reading = async {
                let mut some = [0; 4 << 10];
                while read.read(&mut some).await.is_ok_and(|length| length > 0) {}
            };
            tokio::select! {
                () = sending => {}
                () = reading => {}
            }
        };
        let cut = async { tokio::time::timeout(Duration::from_secs(60), cut).await.expect("the connection is cut") };
        counts(&format!("{what} are counted as a flood"), FLOODING, cut).await;
    }
    // A few pings with each request, for long.
    let mut connection = connect(HONEST, address).await.expect("connected");
    connection.write_all(&[PREFACE, SETTINGS].concat()).await.expect("sent");
    for number in 0..200 {
        let request = headers(0x82, "/whole", 2 * number + 1, true);
        let sent = [&request[..], &frame(6, 0, 0, b"abcdefgh").repeat(5)].concat();
        connection.write_all(&sent).await.expect("the connection is there still");
        let mut some = [0; 4 << 10];
        assert!(connection.read(&mut some).await.expect("an answer") > 0, "request {number}");
    }
}

/// Each byte of a body began the client's turn anew, so that connections with bodies that drip were never released.
#[tokio::test]
async fn bodies_that_drip_keep_nobody_out() {
    let upload = b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 10000\r\n\r\n".to_vec();
    let stream = [PREFACE, SETTINGS, &headers(0x83, "/upload", 1, false)].concat();
    for (what, first, drop) in [("HTTP/1.1", upload, b" ".to_vec()), ("HTTP/2", stream, frame(0, 0, 1, b" "))] {
        let address = start(routes(), few()).await;
        let mut hostile = JoinSet::new();
        for _ in 0..CONNECTIONS + 4 {
            let (first, drop) = (first.clone(), drop.clone());
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
async fn a_request_without_one_host_is_refused() {
    let address = start(routes(), limits()).await;
    for (version, hosts, status) in [
        ("1.1", "", "400 Bad Request"),
        ("1.1", "Host: a\r\nHost: b\r\n", "400 Bad Request"),
        ("1.1", "Host: a\r\n", "200 OK"),
        ("1.1", "Host:\r\n", "200 OK"),
        ("1.0", "", "200 OK"),
    ] {
        let mut connection = connect(HONEST, address).await.expect("a connection");
        let request = format!("GET /whole HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/{version} {status}\r\n")), "{request}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_keep_nobody_out() {
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
async fn an_http2_connection_without_a_request_is_told_to_go() {
    let limits = ServerLimits {
        header_read_timeout: Duration::from_millis(300),
        write_stall: Duration::from_millis(300),
        ..limits()
    };
    let address = start(routes(), limits).await;
    let mut silent = connect(HOSTILE, address).await.expect("a connection");
    silent.write_all(&[PREFACE, SETTINGS, &headers(0x82, "/whole", 1, true)].concat()).await.expect("sent");
    let mut read = Vec::new();
    // GOAWAY, and the end although nobody answers it.
    tokio::time::timeout(HANG, silent.read_to_end(&mut read)).await.expect("it is cut").expect("an end");
    let mut kinds = Vec::new();
    let mut rest = &read[..];
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    assert!(kinds.contains(&0) && kinds.contains(&7), "DATA and GOAWAY: {kinds:?}");
}

#[tokio::test]
async fn an_answer_without_a_window_is_cut_after_the_time_for_writing() {
    let address = start(routes(), ServerLimits { write_stall: Duration::from_millis(300), ..limits() }).await;
    let mut hostile = connect(HOSTILE, address).await.expect("a connection");
    hostile.write_all(&[PREFACE, NO_WINDOW, &headers(0x82, "/large", 1, true)].concat()).await.expect("sent");
    let cut = async {
        let ended = tokio::time::timeout(HANG, hostile.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it is cut, with or without a reset");
    };
    counts("a client that stalls is counted", OVERDUE, cut).await;
}

#[tokio::test]
async fn a_small_answer_without_a_window_is_cut_too_whatever_else_its_client_sends() {
    let long = Duration::from_secs(600);
    let limits = ServerLimits { write_stall: Duration::from_millis(300), header_read_timeout: long, ..limits() };
    let address = start(routes(), limits).await;
    let mut hostile = connect(HOSTILE, address).await.expect("a connection");
    hostile.write_all(&[PREFACE, NO_WINDOW, &headers(0x82, "/whole", 1, true)].concat()).await.expect("sent");
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
async fn an_http2_connection_holds_few_bytes_of_bodies_that_nobody_reads() {
    let routes = routes().route("/unread", any(async |_body: Body| std::future::pending::<()>().await));
    let address = start(routes, limits()).await;
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let begin = async |path: &str| {
        let request = axum::http::Request::post(format!("http://test{path}")).body(()).expect("a request");
        let mut client = client.clone().ready().await.expect("ready");
        client.send_request(request, false).expect("sent")
    };
    // What is read is taken in full.
    const UPLOAD_BYTES: usize = 8 << 20;
    let (answer, mut upload) = begin("/upload").await;
    upload.send_data(Bytes::from(vec![b'x'; UPLOAD_BYTES]), true).expect("sent");
    let mut body = answer.await.expect("an answer").into_body();
    assert_eq!(body.data().await.expect("a body").expect("a body"), UPLOAD_BYTES.to_string());

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
            upload.send_data(Bytes::from(vec![b'x'; bytes]), false).expect("sent");
            upload.reserve_capacity(UPLOAD_BYTES);
        }
        unread.push((answer, upload));
    }
    assert!((64 << 10..=256 << 10).contains(&sent), "{sent}");
}

#[tokio::test]
async fn one_that_waits_while_its_client_gets_its_share_is_told_so() {
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
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let limits = ServerLimits { connections: 16, connections_per_client: 2, ..limits() };
    tokio::spawn(serve_router(around(routes), listener, limits, std::future::pending::<()>(), |_| ()));
    let mut busy = Vec::new();
    for number in 0..16_u8 {
        let mut connection = connect([127, 0, 0, 10 + number / 2], address).await.expect("a connection");
        connection.write_all(BUSY).await.expect("sent");
        busy.push(connection);
    }
    while begun.load(Ordering::SeqCst) < 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The last one's client has one, and two more wait, of which one has a place when others leave.
    let own = [127, 0, 0, 17];
    drop(busy.pop());
    let mut full = connect([127, 0, 0, 30], address).await.expect("a connection");
    full.write_all(BUSY).await.expect("sent");
    while begun.load(Ordering::SeqCst) < 17 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let mut connection = connect(own, address).await.expect("a connection");
        connection.write_all(BUSY).await.expect("sent");
        waiting.spawn(async move {
            let mut answer = String::new();
            let _ = connection.read_to_string(&mut answer).await;
            answer
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    busy.drain(..2);
    let told = tokio::time::timeout(HANG, waiting.join_next()).await.expect("one is told").expect("one of two");
    let told = told.expect("no panic");
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("server.connections_per_client"), "{told:?}");
    drop(full);
}

#[tokio::test]
async fn a_client_has_its_share_of_connections_and_is_told_so() {
    let limits = ServerLimits { connections_per_client: 3, ..limits() };
    let address = start(routes(), limits.clone()).await;
    let mut hostile = Vec::new();
    for _ in 0..3 {
        hostile.push(connect(HOSTILE, address).await.expect("a connection"));
    }
    let mut refused = connect(HOSTILE, address).await.expect("a connection");
    refused.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.expect("an answer, then the end");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n"), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(text.contains("limit of 3 connections (server.connections_per_client)"), "{text}");
    assert!(newcomer(address).await.ends_with("whole"));

    // A while later it makes room by itself.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut late = connect(HOSTILE, address).await.expect("a connection");
    late.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await.expect("sent");
    answer.clear();
    late.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("whole"), "{answer}");
    assert_eq!(hostile[0].read(&mut [0; 1]).await.expect("the end"), 0);

    // A trusted proxy speaks for many.
    let trusted = strata_config::TrustedProxies::try_from(vec!["127.0.0.2".to_owned()]).expect("an address");
    let address = start(routes(), ServerLimits { trusted_proxies: trusted, ..limits }).await;
    let mut proxied = Vec::new();
    for _ in 0..8 {
        let mut connection = connect(HOSTILE, address).await.expect("a connection");
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
        proxied.push(connection);
    }
    for connection in &mut proxied {
        let mut head = [0; 15];
        connection.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
}

#[tokio::test]
async fn limits_at_their_least_and_their_most_serve_honest_clients() {
    use strata_config::{Config, Server};
    let seconds = [(1, 1), (3_600, 604_800)];
    for (least, answer_timeout_s) in seconds {
        let server = Server {
            header_timeout_s: least,
            write_stall_s: least,
            answer_timeout_s,
            keep_alive_s: least,
            drain_s: least,
            drain_idle_s: least,
            connections: if least == 1 { 1 } else { 1_000_000 },
            connections_per_client: if least == 1 { 1 } else { 1_000_000 },
            header_bytes: if least == 1 { 8_192 } else { 16 << 20 },
            concurrent_streams: if least == 1 { 1 } else { 10_000 },
            ..Server::default()
        };
        let address = start(routes(), ServerLimits::from(&Config { server, ..Config::default() })).await;
        for _ in 0..3 {
            assert!(newcomer(address).await.ends_with("whole"));
        }
        let mut large = connect(HONEST, address).await.expect("a connection");
        large.write_all(b"GET /large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await.expect("sent");
        let mut answer = Vec::new();
        large.read_to_end(&mut answer).await.expect("all of it");
        assert!(answer.len() > 8 << 20);
    }
}

/// A thousand connections of 126 requests each took gigabytes, and kept others waiting for seconds.
#[tokio::test]
async fn requests_over_http2_take_turns_and_are_bounded() {
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
    let limits = ServerLimits { concurrent_streams: AT_ONCE as u32, header_bytes: 128 << 10, ..limits() };
    let address = start(routes, limits).await;
    let (greedy, other) = ([127, 0, 0, 20], [127, 0, 0, 21]);
    let http2 = async |from| {
        let stream = connect(from, address).await.expect("a connection");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        (client, tokio::spawn(connection))
    };
    // 564 of 118 kB each fit into 64 MiB.
    let long = "x".repeat(100 << 10);
    let (refusals, mut refused) = tokio::sync::mpsc::channel(MANY * AT_ONCE);
    let mut open = Vec::new();
    for _ in 0..MANY {
        let (client, connection) = http2(greedy).await;
        for _ in 0..AT_ONCE {
            let request = axum::http::Request::get("http://test/stuck").header("x-long", &long);
            let mut client = client.clone().ready().await.expect("ready");
            let (answer, _) = client.send_request(request.body(()).expect("a request"), true).expect("sent");
            let refusals = refusals.clone();
            tokio::spawn(async move {
                let answer = answer.await.expect("an answer");
                let _ = refusals.send(answer.status().as_u16()).await;
            });
        }
        open.push(connection);
    }
    for _ in 0..MANY * AT_ONCE - 570 {
        let status = tokio::time::timeout(HANG, refused.recv()).await.expect("in time");
        assert_eq!(status, Some(503));
    }
    assert_eq!(begun.load(Ordering::SeqCst), AT_ONCE, "others wait for their turn");
    // Nobody else is in their way, nor the client itself over HTTP/1.1.
    let status = async |from| {
        let (client, connection) = http2(from).await;
        let request = axum::http::Request::get("http://test/upload").body(()).expect("a request");
        let mut client = client.ready().await.expect("ready");
        let (answer, _) = client.send_request(request, true).expect("sent");
        let status = tokio::time::timeout(HANG, answer).await.expect("in time").expect("an answer").status();
        connection.abort();
        status.as_u16()
    };
    assert_eq!(status(other).await, 200);
    // What has ended leaves room.
    open.iter().for_each(tokio::task::JoinHandle::abort);
    while tokio::time::timeout(Duration::from_millis(200), status(greedy)).await != Ok(200) {}
}

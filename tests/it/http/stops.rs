//! Stops under load: clients that try again only when a connection is refused lose no request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use strata_http::router::around;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::TestService;
use strata_testing::binary::Binary;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Clients of each kind.
const CLIENTS: u64 = 6;

/// Requests that were sent and answered, of all clients.
#[derive(Default)]
struct Count {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Count {
    fn send(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection, or `None` when nobody listens any more.
async fn connect(address: SocketAddr) -> Option<TcpStream> {
    match TcpStream::connect(address).await {
        Ok(stream) => {
            stream.set_nodelay(true).expect("a TCP connection");
            Some(stream)
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
            None
        }
    }
}

/// Makes requests over HTTP/1.1 until connections are refused.
async fn http1(address: SocketAddr, target: String, keep: bool, pause: Duration, count: Arc<Count>) {
    let close = if keep { "" } else { "Connection: close\r\n" };
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{close}\r\n");
    while let Some(mut stream) = connect(address).await {
        loop {
            // As clients do: a kept connection is not used again when its end is there already.
            if stream.try_read(&mut [0; 1]).is_ok() {
                break;
            }
            count.send();
            let answered = async {
                stream.write_all(request.as_bytes()).await?;
                answer(&mut stream).await
            };
            let last = answered.await.unwrap_or_else(|error| panic!("a request is lost: {error}"));
            count.answer();
            if last || !keep {
                break;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Reads an answer of a known length; whether it is the last one of its connection.
async fn answer(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut read = Vec::new();
    let mut some = [0; 4_096];
    loop {
        let bytes = stream.read(&mut some).await?;
        if bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&some[..bytes]);
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length: usize = header("content-length: ").expect("a length").parse().expect("a number");
        if body.len() >= length {
            return Ok(header("connection: ") == Some("close"));
        }
    }
}

/// Makes requests over HTTP/2, some at a time, until connections are refused.
async fn http2(address: SocketAddr, target: String, count: Arc<Count>) {
    while let Some(stream) = connect(address).await {
        let (client, connection) = match h2::client::handshake(stream).await {
            Ok(both) => both,
            Err(error) => panic!("a connection is lost: {error}"),
        };
        let driver = tokio::spawn(connection);
        while let Ok(mut ready) = client.clone().ready().await {
            let request = || axum::http::Request::get(format!("http://test{target}")).body(()).expect("a request");
            let mut answers = Vec::new();
            for _ in 0..3 {
                // Refused before it was sent, where the service has said that it goes away.
                if let Ok((answer, _)) = ready.send_request(request(), true) {
                    answers.push(answer);
                }
            }
            let mut gone = answers.len() < 3;
            for answer in answers {
                count.send();
                let answered = async {
                    let (head, mut body) = answer.await?.into_parts();
                    assert_eq!(head.status, 200);
                    while let Some(bytes) = body.data().await {
                        let bytes = bytes?.len();
                        body.flow_control().release_capacity(bytes)?;
                    }
                    Ok::<_, h2::Error>(())
                };
                match answered.await {
                    Ok(()) => count.answer(),
                    // The service has not looked at the request, and says so.
                    Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                        count.answer();
                        gone = true;
                    }
                    Err(error) => panic!("a request is lost: {error}"),
                }
            }
            if gone {
                break;
            }
        }
        drop(client);
        let _ = driver.await;
    }
}

/// All kinds of clients, until the service is gone; how many requests were answered.
async fn load(address: SocketAddr, target: &str, stop: impl Future<Output = ()>) -> u64 {
    let count = Arc::new(Count::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let target = || target.to_owned();
        let pause = Duration::from_millis(number * 20);
        clients.spawn(http1(address, target(), false, Duration::ZERO, count.clone()));
        clients.spawn(http1(address, target(), true, pause, count.clone()));
        clients.spawn(http2(address, target(), count.clone()));
    }
    let stopped = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.await;
    };
    let ended = async {
        while let Some(ended) = clients.join_next().await {
            ended.expect("no request is lost");
        }
    };
    tokio::join!(stopped, tokio::time::timeout(Duration::from_secs(60), ended)).1.expect("all clients end");
    let (sent, answered) = (count.sent.load(Ordering::Relaxed), count.answered.load(Ordering::Relaxed));
    assert_eq!(sent, answered);
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_the_server_stops() {
    for round in 0..5 {
        let routes = Router::new().route(
            "/",
            get(async move || {
                tokio::time::sleep(Duration::from_millis(round)).await;
                "an answer ".repeat(100)
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (shutdown, is_shutdown) = oneshot::channel::<()>();
        let limits = ServerLimits::from(&strata_config::Config::default());
        let server = tokio::spawn(serve_router(around(routes), listener, limits, is_shutdown, |_| ()));
        let answered = load(address, "/", async { drop(shutdown) }).await;
        assert!(answered > CLIENTS, "{answered} answers");
        let ended = tokio::time::timeout(Duration::from_secs(60), server).await.expect("it ends");
        ended.expect("no panic").expect("no failure");
    }
}

#[tokio::test]
async fn an_idle_connection_may_make_one_more_request() {
    let routes = Router::new().route("/", get(async || "an answer"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let (shutdown, is_shutdown) = oneshot::channel::<()>();
    let limits = ServerLimits::from(&strata_config::Config::default());
    let limits = ServerLimits { drain_idle: Duration::from_secs(3), ..limits };
    let server = tokio::spawn(serve_router(around(routes), listener, limits, is_shutdown, |_| ()));
    let request = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut kept = connect(address).await.expect("a connection");
    let mut fresh = connect(address).await.expect("a connection");
    let mut silent = connect(address).await.expect("a connection");
    kept.write_all(request).await.expect("sent");
    assert!(!answer(&mut kept).await.expect("an answer"), "not the last one");
    drop(shutdown);
    // No request is on its way any more, and nobody else gets in.
    while connect(address).await.is_some() {}
    for stream in [&mut kept, &mut fresh] {
        stream.write_all(request).await.expect("sent");
        assert!(answer(stream).await.expect("an answer"), "the last one");
        assert_eq!(stream.read(&mut [0; 1]).await.expect("the end"), 0);
    }
    // Who says nothing is let go, long before the drain limit.
    assert_eq!(silent.read(&mut [0; 1]).await.expect("the end"), 0);
    drop((kept, fresh, silent));
    let ended = tokio::time::timeout(Duration::from_secs(20), server).await.expect("it ends");
    ended.expect("no panic").expect("no failure");
}

/// The accepting loop waited for a place, whatever the time, when all were taken and so were the places to wait in.
#[tokio::test]
async fn a_full_server_stops_in_its_time() {
    let routes = Router::new().route("/", get(async || std::future::pending::<()>().await));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let (shutdown, is_shutdown) = oneshot::channel::<()>();
    let limits = ServerLimits::from(&strata_config::Config::default());
    let limits = ServerLimits { connections: 1, drain: Duration::from_secs(1), ..limits };
    let server = tokio::spawn(serve_router(around(routes), listener, limits, is_shutdown, |_| ()));
    let mut clients = Vec::new();
    for client in 1..=8 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 3, client], 0).into()).expect("an address");
        let mut stream = socket.connect(address).await.expect("a connection");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
        clients.push(stream);
    }
    // Long enough for all that are accepted before it stops.
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(shutdown);
    let ended = tokio::time::timeout(Duration::from_secs(60), server).await.expect("it ends");
    ended.expect("no panic").expect("no failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_the_binary_stops() {
    let service = TestService::start().await;
    service.import("Numbers", &(0..100).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>()).await;
    for _ in 0..2 {
        let binary = Binary::start(service.directory(), &[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
        let address = binary.address.parse().expect("an address");
        let answered = load(address, "/api/1/numbers/v1/?filter=n:7", async { binary.terminate() }).await;
        assert!(answered > CLIENTS, "{answered} answers");
        assert_eq!(binary.exit_code(), Some(0));
    }
}

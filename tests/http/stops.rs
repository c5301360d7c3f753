//! Stops under load: clients that try again only when a connection is refused lose no request.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use strata_http::router::around;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::persistent_clients::{CLIENTS, answer, connect, load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

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

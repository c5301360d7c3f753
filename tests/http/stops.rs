//! Shutdown under load: clients that retry only refused connections lose no request.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::persistent_clients::{CLIENTS, answer, connect, load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_stop_loses_no_request() {
    for round in 0..5 {
        let routes = Router::new().route(
            "/",
            get(async move || {
                tokio::time::sleep(Duration::from_millis(round)).await;
                "an answer ".repeat(100)
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
        let address = listener.local_addr().expect("failed to get address");
        let (shutdown, is_shutdown) = oneshot::channel::<()>();
        let limits = ServerLimits::from(&strata_config::Config::default());
        let server =
            tokio::spawn(serve_router(with_fallbacks_and_layers(routes), listener, limits, is_shutdown, |_| ()));
        let answered = load(address, "/", async { drop(shutdown) }).await;
        assert!(answered > CLIENTS, "{answered} answers");
        let ended = tokio::time::timeout(Duration::from_secs(60), server).await.expect("did not end in time");
        ended.expect("task panicked").expect("server failed");
    }
}

#[tokio::test]
async fn idle_connection_can_send_one_more_request() {
    let routes = Router::new().route("/", get(async || "an answer"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("failed to get address");
    let (shutdown, is_shutdown) = oneshot::channel::<()>();
    let limits = ServerLimits::from(&strata_config::Config::default());
    let limits = ServerLimits { idle_drain_timeout: Duration::from_secs(3), ..limits };
    let server = tokio::spawn(serve_router(with_fallbacks_and_layers(routes), listener, limits, is_shutdown, |_| ()));
    let request = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut used = connect(address).await.expect("failed to connect");
    let mut fresh = connect(address).await.expect("failed to connect");
    let mut silent = connect(address).await.expect("failed to connect");
    used.write_all(request).await.expect("failed to send");
    assert!(!answer(&mut used).await.expect("failed to read response"), "not the last one");
    drop(shutdown);
    // No request is in flight anymore, and no other client can connect.
    while connect(address).await.is_some() {}
    for stream in [&mut used, &mut fresh] {
        stream.write_all(request).await.expect("failed to send");
        assert!(answer(stream).await.expect("failed to read response"), "the last one");
        assert_eq!(stream.read(&mut [0; 1]).await.expect("failed to read"), 0);
    }
    // A connection without a request is closed long before the drain timeout.
    assert_eq!(silent.read(&mut [0; 1]).await.expect("failed to read"), 0);
    drop((used, fresh, silent));
    let ended = tokio::time::timeout(Duration::from_secs(20), server).await.expect("did not end in time");
    ended.expect("task panicked").expect("server failed");
}

/// Regression: the accept loop waited for a slot without a timeout when all slots and waiting permits were in use.
#[tokio::test]
async fn full_server_stops_within_drain_timeout() {
    let routes = Router::new().route("/", get(async || std::future::pending::<()>().await));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("failed to get address");
    let (shutdown, is_shutdown) = oneshot::channel::<()>();
    let limits = ServerLimits::from(&strata_config::Config::default());
    let limits = ServerLimits { max_connections: 1, drain_timeout: Duration::from_secs(1), ..limits };
    let server = tokio::spawn(serve_router(with_fallbacks_and_layers(routes), listener, limits, is_shutdown, |_| ()));
    let mut clients = Vec::new();
    for client in 1..=8 {
        let socket = tokio::net::TcpSocket::new_v4().expect("failed to create socket");
        socket.bind(([127, 0, 3, client], 0).into()).expect("invalid address");
        let mut stream = socket.connect(address).await.expect("failed to connect");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
        clients.push(stream);
    }
    // The server accepts all of them before it stops.
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(shutdown);
    let ended = tokio::time::timeout(Duration::from_secs(60), server).await.expect("did not end in time");
    ended.expect("task panicked").expect("server failed");
}

//! The server on a free loopback port, with routes of tests, and requests as bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::{MethodRouter, get};
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub fn limits() -> ServerLimits {
    ServerLimits::from(&strata_config::Config::default())
}

/// Serves routes with the layers of the service until the test ends.
pub async fn start(routes: Router, limits: ServerLimits) -> SocketAddr {
    listen(with_fallbacks_and_layers(routes), limits).await
}

/// Serves a router without additional layers and with the default limits until the test ends.
pub async fn serve(router: Router) -> SocketAddr {
    listen(router, limits()).await
}

async fn listen(router: Router, limits: ServerLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind free port");
    let address = listener.local_addr().expect("failed to get address");
    tokio::spawn(serve_router(router, listener, limits, std::future::pending::<()>(), |_| ()));
    address
}

/// Returns a GET request after which the server closes the connection.
pub fn get_request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
}

/// Reads the head of a response, which ends with an empty line.
pub async fn read_head(connection: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(connection.read_u8().await.expect("failed to read"));
    }
    String::from_utf8(read).expect("invalid UTF-8")
}

/// Returns a handler whose first request waits, a receiver that reports its start, and a sender that releases it.
pub fn slow() -> (MethodRouter, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (started, was_started) = oneshot::channel();
    let (finish, finishes) = oneshot::channel::<()>();
    let once = Arc::new(Mutex::new(Some((started, finishes))));
    let method_router = get(async move || {
        let channels = once.lock().expect("poisoned lock").take();
        if let Some((started, finishes)) = channels {
            let _ = started.send(());
            let _ = finishes.await;
        }
        "finished"
    });
    (method_router, was_started, finish)
}

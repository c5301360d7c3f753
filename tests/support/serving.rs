//! The server on a free port of the loopback interface, with routes of the tests' own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::{MethodRouter, get};
use strata_http::router::around;
use strata_http::server::{ServerLimits, serve_router};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The default limits.
pub fn limits() -> ServerLimits {
    ServerLimits::from(&strata_config::Config::default())
}

/// Serves these routes, with the layers of the service around them, for as long as the test runs.
pub async fn start(routes: Router, limits: ServerLimits) -> SocketAddr {
    listen(around(routes), limits).await
}

/// Serves a router as it is, with the default limits, for as long as the test runs.
pub async fn serve(router: Router) -> SocketAddr {
    listen(router, limits()).await
}

async fn listen(router: Router, limits: ServerLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(serve_router(router, listener, limits, std::future::pending::<()>(), |_| ()));
    address
}

/// A handler whose first request begins, and then waits until it is told to finish; with what tells of both.
pub fn slow() -> (MethodRouter, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (started, was_started) = oneshot::channel();
    let (finish, finishes) = oneshot::channel::<()>();
    let once = Arc::new(Mutex::new(Some((started, finishes))));
    let handler = get(async move || {
        let channels = once.lock().expect("not poisoned").take();
        if let Some((started, finishes)) = channels {
            let _ = started.send(());
            let _ = finishes.await;
        }
        "finished"
    });
    (handler, was_started, finish)
}

//! Connections: accepts them, speaks HTTP/1.1 and HTTP/2 (without TLS) on each, bounds what a peer may take, and ends
//! gracefully.
//!
//! 1. Accept while there are fewer than the allowed connections; the rest wait in the kernel's queue.
//! 2. Serve each in a task of its own, under the limits of the HTTP implementation and of `timed_stream`.
//! 3. At shutdown, stop accepting, let requests in flight finish, and after the drain limit cut what is left.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
    routing::future::RouteFuture,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinError, JoinSet},
};
use tower::Service;

use super::{error::Causes, router::router, timed_stream::TimedStream};
use crate::{config, service::App};

/// What one connection may take, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections served at the same time.
    pub connections: usize,
    /// Time from the start of a connection, or the end of an answer, to the last byte of the next request's head. So it
    /// is also how long an HTTP/1.1 connection may idle.
    pub header_read_timeout: Duration,
    /// How long a peer may take none of the bytes that are ready for it.
    pub write_stall: Duration,
    /// Bytes of a request's head: request line and headers.
    pub header_bytes: u32,
    /// Requests at the same time on one HTTP/2 connection.
    pub concurrent_streams: u32,
    /// How often an HTTP/2 peer is asked whether it is still there, and how long it may take to answer.
    pub keep_alive: Duration,
    /// How long requests in flight may take to finish after the shutdown began.
    pub drain: Duration,
}

impl From<&config::Server> for ServerLimits {
    fn from(server: &config::Server) -> Self {
        ServerLimits {
            connections: 4096,
            header_read_timeout: Duration::from_secs(server.header_timeout_s),
            write_stall: Duration::from_secs(60),
            header_bytes: 128 * 1024,
            concurrent_streams: 128,
            keep_alive: Duration::from_secs(30),
            drain: Duration::from_secs(server.drain_s),
        }
    }
}

/// Why the server stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Accepting connections kept failing for about a minute.
    #[error("no connection can be accepted any more")]
    Accept(#[source] io::Error),
}

/// Serves the application on the listener until `shutdown` completes and the requests in flight have ended.
///
/// Limits are those of the application's configuration.
pub async fn serve(app: App, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let limits = ServerLimits::from(&app.config().server);
    serve_router(router(app), listener, limits, shutdown).await
}

/// As [`serve`], with any router.
pub async fn serve_router(
    router: Router,
    listener: TcpListener,
    limits: ServerLimits,
    shutdown: impl Future,
) -> Result<(), ServeError> {
    let protocol = protocol(&limits);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);

    let outcome = loop {
        while let Some(ended) = connections.try_join_next() {
            log_panic(ended);
        }
        let accepted = tokio::select! {
            biased;
            _ = &mut shutdown => break Ok(()),
            Some(ended) = connections.join_next(), if connections.len() >= limits.connections => {
                log_panic(ended);
                continue;
            }
            accepted = accept(&listener), if connections.len() < limits.connections => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => break Err(error),
        };
        let service = TowerToHyperService::new(ConnectionService { router: router.clone(), peer });
        let stream = TokioIo::new(TimedStream::new(stream, limits.header_read_timeout, limits.write_stall));
        let connection = protocol.serve_connection(stream, service).into_owned();
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                // The peer's doing, or a body that failed, whose cause is logged where it arose.
                tracing::debug!(%peer, cause = %Causes(&*error), "a connection ended early");
            }
        });
    };

    // Refuse new connections at once, rather than leave them in a queue that nobody serves.
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut connections that did not end within the drain limit");
    }
    connections.shutdown().await;
    outcome
}

/// A handler's panic is answered; one that reaches the connection came from a body, and has cut it.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(cause = %error, "a body panicked");
    }
}

/// The HTTP implementation, with every limit set.
fn protocol(limits: &ServerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.concurrent_streams)
        .max_header_list_size(limits.header_bytes)
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.keep_alive);
    builder
}

/// The next connection, ready to be served. Errors when accepting fails again and again.
async fn accept(listener: &TcpListener) -> Result<(TcpStream, SocketAddr), ServeError> {
    const ATTEMPTS: u32 = 60;
    const PAUSE: Duration = Duration::from_secs(1);

    let mut failures = 0;
    loop {
        let error = match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are written whole; waiting for more to send would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "no TCP_NODELAY");
                }
                return Ok((stream, peer));
            }
            Err(error) => error,
        };
        match error.kind() {
            // The peer gave up before it was accepted.
            io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                continue;
            }
            _ => {}
        }
        // Most likely out of file descriptors: they come back when connections end.
        failures += 1;
        tracing::warn!(%error, failures, "cannot accept a connection");
        if failures == ATTEMPTS {
            return Err(ServeError::Accept(error));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The router, as seen from one connection: requests carry its peer's address as `ConnectInfo`.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    peer: SocketAddr,
}

impl<B> Service<axum::http::Request<B>> for ConnectionService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(self.peer));
        self.router.call(request)
    }
}

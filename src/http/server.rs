//! Connections: accepts them, speaks HTTP/1.1 and HTTP/2 (without TLS) on each, bounds what a peer may take, and ends
//! gracefully.
//!
//! 1. Accept. With as many connections as are allowed, the one accepted waits, and the rest in the kernel's queue: for
//!    one to end, or for the one that has been idle longest to be closed (`super::activity`), so that idle ones keep
//!    nobody out.
//! 2. Serve each in a task of its own, under the limits of the HTTP implementation and of `timed_stream`. A body that
//!    takes longer than allowed fails; where that cannot help, because its peer takes nothing, the connection is cut.
//! 3. At shutdown, stop accepting, let requests in flight finish, and after the drain limit cut what is left.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::{Builder, Connection},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinError, JoinSet},
};
use tower::Service;

use super::{
    access_log::REQUEST_ID,
    activity::{Activity, Connections, TimedBody},
    error::Causes,
    router::router,
    timed_stream::TimedStream,
};
use crate::metrics::{self, metrics};
use crate::{config, service::App};

/// What one connection may take, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections served at the same time.
    pub connections: usize,
    /// Time from the start of a connection, or the end of an answer, to the last byte of the next request's head. So it
    /// is also how long an HTTP/1.1 connection may idle.
    pub header_read_timeout: Duration,
    /// How long a peer may take too few of the bytes that are ready for it.
    pub write_stall: Duration,
    /// How long an answer may take from its head to its last byte.
    pub answer: Duration,
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
        // Both are small by their ranges.
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        ServerLimits {
            connections: usize::try_from(server.connections).unwrap_or(usize::MAX),
            header_read_timeout: Duration::from_secs(server.header_timeout_s),
            write_stall: Duration::from_secs(server.write_stall_s),
            answer: Duration::from_secs(server.answer_timeout_s),
            header_bytes: number(server.header_bytes),
            concurrent_streams: number(server.concurrent_streams),
            keep_alive: Duration::from_secs(server.keep_alive_s),
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

/// How often what histograms collect is counted.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a connection must have been idle to be closed for another: a request may be on its way.
const IDLE_AT_LEAST: Duration = Duration::from_secs(1);

/// How long a connection that was asked to close may take before the next one is asked, too.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// Serves the application on the listener until `shutdown` completes and the requests in flight have ended.
///
/// Limits are those of the application's configuration. After `shutdown` it is not ready, but still answers, for
/// `server.drain_notice_s`.
pub async fn serve(app: App, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let limits = ServerLimits::from(&app.config().server);
    let notice = Duration::from_secs(app.config().server.drain_notice_s);
    let draining = app.clone();
    let shutdown = async move {
        shutdown.await;
        draining.begin_draining();
        tokio::time::sleep(notice).await;
    };
    let upkeep = async {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics::run_upkeep();
        }
    };
    tokio::select! {
        outcome = serve_router(router(app), listener, limits, shutdown) => outcome,
        never = upkeep => never,
    }
}

/// As [`serve`], with any router.
pub async fn serve_router(
    router: Router,
    listener: TcpListener,
    limits: ServerLimits,
    shutdown: impl Future,
) -> Result<(), ServeError> {
    let protocol = protocol(&limits);
    let (begin_drain, drain) = watch::channel(());
    let open = Connections::default();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);

    let outcome = 'accepting: loop {
        while let Some(ended) = connections.try_join_next() {
            log_panic(ended);
        }
        let accepted = tokio::select! {
            biased;
            _ = &mut shutdown => break Ok(()),
            accepted = accept(&listener) => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => break Err(error),
        };
        while connections.len() >= limits.connections {
            tokio::select! {
                biased;
                _ = &mut shutdown => break 'accepting Ok(()),
                Some(ended) = connections.join_next() => log_panic(ended),
                () = open.release_idle(IDLE_AT_LEAST) => {
                    metrics().released_connections.increment(1);
                    if let Ok(Some(ended)) = tokio::time::timeout(RELEASE_PAUSE, connections.join_next()).await {
                        log_panic(ended);
                    }
                }
            }
        }
        metrics().accepted_connections.increment(1);
        let activity = open.add();
        let service = ConnectionService { router: router.clone(), peer, answer: limits.answer, activity };
        let activity = service.activity.clone();
        let stream = TokioIo::new(TimedStream::new(stream, limits.header_read_timeout, limits.write_stall));
        let connection = protocol.serve_connection(stream, TowerToHyperService::new(service)).into_owned();
        // Bodies fail first, which harms nobody else on the connection.
        let overdue = limits.answer + limits.write_stall;
        connections.spawn(watched(connection, peer, activity, overdue, drain.clone()));
    };

    // Refuse new connections at once, rather than leave them in a queue that nobody serves.
    drop(listener);
    let _ = begin_drain.send(());
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut connections that did not end within the drain limit");
    }
    connections.shutdown().await;
    outcome
}

/// Counts as an open connection until dropped, when its task is cancelled, too.
struct Open;

impl Open {
    fn new() -> Open {
        metrics().connections.increment(1.0);
        Open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics().connections.decrement(1.0);
    }
}

type Served = Connection<'static, TokioIo<TimedStream>, TowerToHyperService<ConnectionService>, TokioExecutor>;

/// Serves a connection to its end, or until an answer is overdue. When the server drains, or the connection has been idle
/// for long and another one waits, it ends after the requests in flight.
async fn watched(
    connection: Served,
    peer: SocketAddr,
    activity: Arc<Activity>,
    overdue: Duration,
    mut drain: watch::Receiver<()>,
) {
    let _open = Open::new();
    let mut connection = pin!(connection);
    let mut leaving = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    // The peer's doing, or a body that failed, whose cause is logged where it arose.
                    tracing::debug!(%peer, cause = %Causes(&*error), "a connection ended early");
                }
                return;
            }
            _ = drain.changed(), if !leaving => leaving = true,
            () = activity.released(), if !leaving => leaving = true,
            () = activity.overdue(overdue) => {
                metrics().overdue_connections.increment(1);
                tracing::warn!(%peer, "cut a connection with an answer that took too long");
                return;
            }
        }
        if leaving {
            connection.as_mut().graceful_shutdown();
        }
    }
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

/// The router, as seen from one connection: requests carry its peer's address as `ConnectInfo`, and their answers are
/// timed.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    peer: SocketAddr,
    answer: Duration,
    activity: Arc<Activity>,
}

impl<B> Service<axum::http::Request<B>> for ConnectionService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let in_flight = self.activity.begin();
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let (answering, limit) = (self.router.call(request), self.answer);
        Box::pin(async move {
            let response = answering.await?;
            let id = response.headers().get(REQUEST_ID).cloned();
            Ok(response.map(|body| Body::new(TimedBody::new(body, limit, id, in_flight))))
        })
    }
}

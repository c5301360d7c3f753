//! Connections: accepts them, speaks HTTP/1.1 and HTTP/2 (without TLS), limits each client, and shuts down gracefully.
//!
//! 1. **Accept.** At the connection limit, a connection that waits for its client is released (`connection_registry`),
//!    so that idle and stalled connections block no one. Without file descriptors, one connection is released, new
//!    clients get an error (`listener`), and open connections continue.
//! 2. **Serve.** Each connection has a task, and the limits of hyper, `timed_stream`, and `connection_state`. A body
//!    that takes too long fails. If its client does not read at all, the connection is closed instead.
//! 3. **Shut down.** Only pending connections are accepted, and every request that has arrived gets a response. Over
//!    HTTP/1.1, each response is the last one of its connection, and an idle connection can make one more request for a
//!    while. HTTP/2 clients get a GOAWAY in two steps, so that no request is lost. After `drain_timeout`, all remaining
//!    connections are closed.

mod connection_registry;
mod connection_state;
mod http2_flood;
mod http2_inflight;
mod listener;
mod poll_timer;
mod timed_body;
mod timed_stream;
mod uri_repair;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use futures::future::Either;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, Connection};
use strata_config::{Config, TrustedProxies};
use strata_runtime::metrics::{self, metrics};
use strata_types::error_chain::ErrorChain;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tower::Service;

use crate::AppState;
use crate::layers::access_log::REQUEST_ID;
use crate::layers::mark_invalid_host;
use crate::management::continues_after_disconnect;
use crate::router::router;
use connection_registry::{ConnectionAdmission, ConnectionRegistry, ConnectionSlot, max_connections_awaiting_slot};
use connection_state::{CloseReason, ConnectionState, DeadlineAction};
use http2_inflight::{ClientRequests, InFlightRequestLimit, estimate_head_bytes};
use listener::{AcceptOutcome, ConnectionListener, ConnectionRefuser, descriptor_and_connection_limits};
use poll_timer::PollTimedResponse;
use timed_body::{TimedRequestBody, TimedResponseBody};
use timed_stream::TimedStream;
use uri_repair::ParsedBodyLength;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    pub max_connections: usize,
    /// The connection limit of a client; 0 means that there is no limit.
    pub max_connections_per_client: usize,
    /// Proxies whose connections carry the requests of many clients, so that limits per client do not apply to them.
    pub trusted_proxies: TrustedProxies,
    /// The time from the start of a connection or the end of a response to the end of the next request head.
    pub header_read_timeout: Duration,
    /// The minimum rate of a request body. A slower body counts as a wait for the client.
    pub min_body_bytes_per_s: u64,
    /// The time in which a client must read a minimum number of bytes of a response.
    pub write_timeout: Duration,
    /// The time from the head of a response to its last byte.
    pub response_timeout: Duration,
    pub max_header_bytes: u32,
    pub max_concurrent_streams: u32,
    /// The interval of HTTP/2 pings. A client has the same time, or `write_timeout` if longer, to respond to a ping.
    pub keep_alive_interval: Duration,
    /// The time that requests in flight have to finish after the shutdown has begun.
    pub drain_timeout: Duration,
    /// The time in which an idle connection can make another request after the shutdown has begun.
    pub idle_drain_timeout: Duration,
}

impl From<&Config> for ServerLimits {
    fn from(config: &Config) -> Self {
        let server = &config.server;
        // The conversions lose nothing, because the configuration limits the numbers to small values.
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        ServerLimits {
            max_connections: count(server.connections),
            max_connections_per_client: count(server.connections_per_client),
            trusted_proxies: server.trusted_proxies.clone(),
            header_read_timeout: Duration::from_secs(server.header_timeout_s),
            min_body_bytes_per_s: config.limits.body_min_bytes_per_s,
            write_timeout: Duration::from_secs(server.write_stall_s),
            response_timeout: Duration::from_secs(server.answer_timeout_s),
            max_header_bytes: number(server.header_bytes),
            max_concurrent_streams: number(server.concurrent_streams),
            keep_alive_interval: Duration::from_secs(server.keep_alive_s),
            drain_timeout: Duration::from_secs(server.drain_s),
            idle_drain_timeout: Duration::from_secs(server.drain_idle_s),
        }
    }
}

/// The reason why the server stopped without a shutdown request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Accepting connections failed for about a minute, for a reason other than missing file descriptors.
    #[error("failed to accept connections")]
    Accept(#[source] io::Error),
}

/// The interval at which the histograms of the metrics aggregate their samples.
const METRICS_UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// At shutdown: the time that distant clients have to complete pending connections. On systems without the filter of
/// `block_new_connections`, also the time in which connections are still accepted.
const BACKLOG_QUIET_PERIOD: Duration = Duration::from_millis(500);
const MAX_BACKLOG_DRAIN: Duration = Duration::from_secs(2);
const CONNECTIONS_FULL_TEXT: &str = "The service has reached its connection limit (server.connections), and you \
     already have your full share of the connections. Close some of your connections, or reuse open ones.";

const TOO_MANY_REQUESTS_TEXT: &str = "Too many HTTP/2 requests are in flight, from your address or in total. Wait for \
     some of the responses before you send more requests.";

/// The maximum wait until a connection that lost its slot has closed its file descriptor.
const DESCRIPTOR_RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves the operations on the listener until `shutdown` completes and the requests in flight have ended.
///
/// The limits come from the configuration. The file descriptors of the process also limit the connections. After
/// `shutdown`, the service reports that it is not ready, but serves requests for `server.drain_notice_s`.
pub async fn serve(services: AppState, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let router = router(services.clone());
    serve_app(services, router, listener, shutdown).await
}

/// Like [`serve`], with a router that can include pages.
pub async fn serve_app(
    services: AppState,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future,
) -> Result<(), ServeError> {
    let mut limits = ServerLimits::from(&*services.config);
    if let Some((descriptors, connections)) =
        descriptor_and_connection_limits().filter(|(_, connections)| *connections < limits.max_connections)
    {
        let wanted = limits.max_connections;
        tracing::warn!(descriptors, connections, wanted, "reduced server.connections to fit the open file limit");
        limits.max_connections = connections;
    }
    let notice = Duration::from_secs(services.config.server.drain_notice_s);
    let readiness_services = services.clone();
    let shutdown = async move {
        shutdown.await;
        readiness_services.readiness.begin_draining();
        tokio::time::sleep(notice).await;
    };
    let upkeep = async {
        loop {
            tokio::time::sleep(METRICS_UPKEEP_INTERVAL).await;
            metrics::aggregate_histogram_samples();
        }
    };
    let set_exhausted = move |is_exhausted: bool| services.readiness.set_descriptors_exhausted(is_exhausted);
    tokio::select! {
        outcome = serve_router(router, listener, limits, shutdown, set_exhausted) => outcome,
        never = upkeep => never,
    }
}

/// Like [`serve_app`], with any router and limits. Calls `set_exhausted` when descriptors run out or are free again.
pub async fn serve_router(
    router: Router,
    listener: TcpListener,
    limits: ServerLimits,
    shutdown: impl Future,
    set_exhausted: impl Fn(bool),
) -> Result<(), ServeError> {
    let server = Arc::new(HttpServer::new(router, limits));
    let mut listener = ConnectionListener::new(listener, max_connections_awaiting_slot(server.limits.max_connections));
    let mut stop = ShutdownState::new(server.limits.drain_timeout);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut lacks_descriptors = false;

    let outcome = loop {
        while let Some(ended) = tasks.try_join_next() {
            log_panic(ended);
        }
        let accepted = tokio::select! {
            biased;
            _ = &mut shutdown, if stop.deadlines.is_none() => {
                listener.block_new_connections();
                stop.begin_shutdown();
                continue;
            }
            () = sleep_until_or_forever(stop.deadlines.as_ref().map(|until| until.accept_until)) => break Ok(()),
            accepted = listener.accept() => accepted,
            () = sleep_until_or_forever(stop.deadlines.as_ref().map(|until| until.quiet_until)) => break Ok(()),
        };
        let (stream, peer) = match accepted {
            AcceptOutcome::Connection(stream, peer) => (stream, peer),
            AcceptOutcome::Exhausted(error) => {
                if !std::mem::replace(&mut lacks_descriptors, true) {
                    tracing::warn!(%error, "failed to accept connections; closing some");
                    set_exhausted(true);
                }
                server.free_descriptor(&mut listener).await;
                continue;
            }
            AcceptOutcome::Failed(error) => break Err(ServeError::Accept(error)),
        };
        if std::mem::take(&mut lacks_descriptors) {
            tracing::info!("resumed accepting connections");
            set_exhausted(false);
        }
        // A connection that must wait for a slot does so in its own task, so that it does not block later connections.
        let (waiting_permit, is_large_client) = match server.connections.admit(peer.ip(), Instant::now()) {
            ConnectionAdmission::Admitted(slot) => {
                tasks.spawn(server.clone().serve_connection(stream, peer, slot, stop.drain_receiver.clone()));
                continue;
            }
            ConnectionAdmission::ClientLimitReached => {
                server.refuse_connection(&listener.refuser, stream, &server.client_limit_text, "client");
                continue;
            }
            // Connections of clients with many connections need separate permits to wait. Without one, they are
            // refused, so that they never block the accept loop.
            ConnectionAdmission::Full { is_large_client } => {
                let permits = &server.waiting_permits[usize::from(is_large_client)];
                let permit = permits.clone().try_acquire_owned().ok();
                if is_large_client && permit.is_none() {
                    server.refuse_connection(&listener.refuser, stream, CONNECTIONS_FULL_TEXT, "full");
                    continue;
                }
                (permit, is_large_client)
            }
        };
        // If no permit to wait is left, the accept loop waits until the connection has a slot.
        let must_wait = waiting_permit.is_none();
        let server = server.clone();
        let drain = stop.drain_receiver.clone();
        let refuser = listener.refuser.clone();
        let (slot_sender, slot_receiver) = oneshot::channel::<()>();
        tasks.spawn(async move {
            let slot = server.connections.wait_for_slot(peer.ip(), is_large_client).await;
            drop((waiting_permit, slot_sender));
            match slot {
                Some(slot) => server.serve_connection(stream, peer, slot, drain).await,
                // While the connection waited for a slot, its client reached its limit with other connections.
                None => server.refuse_connection(&refuser, stream, &server.client_limit_text, "client"),
            }
        });
        if must_wait {
            tokio::select! {
                biased;
                _ = &mut shutdown, if stop.deadlines.is_none() => {
                    listener.block_new_connections();
                    stop.begin_shutdown();
                }
                () = sleep_until_or_forever(stop.deadlines.as_ref().map(|until| until.accept_until)) => break Ok(()),
                _ = slot_receiver => {}
            }
        }
    };

    drop(listener);
    // If the listener failed, this call tells the connections to shut down.
    let idle_close_deadline_in_shutdown = stop.begin_shutdown().idle_close_deadline_in_shutdown;
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout_at(idle_close_deadline_in_shutdown, drained).await.is_err() {
        tracing::warn!(connections = tasks.len(), "closed connections that did not finish within server.drain_s");
    }
    tasks.shutdown().await;
    outcome
}

struct ShutdownState {
    drain_timeout: Duration,
    drain_sender: watch::Sender<()>,
    drain_receiver: watch::Receiver<()>,
    deadlines: Option<ShutdownDeadlines>,
}

#[derive(Clone, Copy)]
struct ShutdownDeadlines {
    /// Until this time, the shutdown waits for pending connections. Afterwards, it accepts only complete ones.
    quiet_until: Instant,
    /// No pending connections are accepted after this time.
    accept_until: Instant,
    idle_close_deadline_in_shutdown: Instant,
}

impl ShutdownState {
    fn new(drain_timeout: Duration) -> ShutdownState {
        let (drain_sender, drain_receiver) = watch::channel(());
        ShutdownState { drain_timeout, drain_sender, drain_receiver, deadlines: None }
    }

    fn begin_shutdown(&mut self) -> ShutdownDeadlines {
        *self.deadlines.get_or_insert_with(|| {
            let _ = self.drain_sender.send(());
            let now = Instant::now();
            let idle_close_deadline_in_shutdown = now + self.drain_timeout;
            let [quiet_until, accept_until] =
                [BACKLOG_QUIET_PERIOD, MAX_BACKLOG_DRAIN].map(|time| (now + time).min(idle_close_deadline_in_shutdown));
            ShutdownDeadlines { quiet_until, accept_until, idle_close_deadline_in_shutdown }
        })
    }
}

async fn sleep_until_or_forever(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct HttpServer {
    router: Router,
    limits: Arc<ServerLimits>,
    connection_builder: Builder<TokioExecutor>,
    inflight_limit: Arc<InFlightRequestLimit>,
    connections: Arc<ConnectionRegistry>,
    /// Permits to wait for a connection slot. Index 0 is for clients with few connections, index 1 for the others.
    waiting_permits: [Arc<Semaphore>; 2],
    client_limit_text: String,
}

impl HttpServer {
    fn new(router: Router, limits: ServerLimits) -> HttpServer {
        let limits = Arc::new(limits);
        let client_limit_text = format!(
            "Your address has reached the limit of {} connections (server.connections_per_client). Close some \
             connections, or reuse open ones.",
            limits.max_connections_per_client
        );
        let inflight_limit = InFlightRequestLimit::new(limits.max_concurrent_streams);
        let max_waiting = max_connections_awaiting_slot(limits.max_connections);
        HttpServer {
            router,
            connection_builder: connection_builder(&limits),
            connections: ConnectionRegistry::new(limits.clone(), inflight_limit.clone()),
            inflight_limit,
            waiting_permits: [(), ()].map(|()| Arc::new(Semaphore::new(max_waiting))),
            client_limit_text,
            limits,
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        slot: ConnectionSlot,
        drain: watch::Receiver<()>,
    ) {
        metrics().accepted_connections.increment(1);
        let state = slot.state.clone();
        let parsed_head = Arc::<ParsedBodyLength>::default();
        let stream = TimedStream::new(stream, state.clone(), parsed_head.clone());
        let client_requests = slot.client_requests.clone();
        let service = ConnectionService { server: self.clone(), peer, state, parsed_head, client_requests };
        let connection = self.connection_builder.serve_connection(TokioIo::new(stream), service);
        drive_connection(connection.into_owned(), peer, slot, drain).await;
    }

    fn refuse_connection(&self, refuser: &ConnectionRefuser, stream: TcpStream, text: &str, reason: &'static str) {
        metrics().refused_connections.with_label_values([reason.into()]).increment(1);
        refuser.refuse_connection(stream, text);
    }

    /// Frees a file descriptor: releases a connection and waits for its end, or else refuses the next connection.
    async fn free_descriptor(&self, listener: &mut ConnectionListener) {
        const NO_DESCRIPTORS_TEXT: &str =
            "The service has no file descriptors left for more connections. Try again in a few seconds.";
        if !self.connections.try_free_slot() && listener.try_refuse_next(NO_DESCRIPTORS_TEXT).await {
            metrics().refused_connections.with_label_values(["descriptors".into()]).increment(1);
        } else {
            self.connections.await_freed_slot(DESCRIPTOR_RELEASE_TIMEOUT, false).await;
        }
    }
}

type HyperConnection = Connection<'static, TokioIo<TimedStream>, ConnectionService, TokioExecutor>;

/// Serves a connection until its end or its next deadline. If the server shuts down, or if another connection gets the
/// slot, the connection ends after its requests in flight.
async fn drive_connection(
    connection: HyperConnection,
    peer: SocketAddr,
    slot: ConnectionSlot,
    mut drain: watch::Receiver<()>,
) {
    let state = &slot.state;
    let mut connection = pin!(connection);
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                match state.stream_fault.get() {
                    Some(CloseReason::Flooding) => {
                        metrics().flooding_connections.increment(1);
                        // The log level is low, because a flood can affect thousands of connections per second.
                        tracing::debug!(%peer, "closed a connection that sent too many HTTP/2 control frames");
                    }
                    Some(reason) => log_slow_close(peer, *reason),
                    // The client closed the connection, or a response body failed and has logged its cause.
                    None => ended.unwrap_or_else(|error| {
                        tracing::debug!(%peer, error = %ErrorChain(&*error), "connection ended early");
                    }),
                }
                return;
            }
            _ = drain.changed(), if !draining => {
                draining = true;
                state.begin_shutdown();
            }
            action = state.next_deadline() => match action {
                DeadlineAction::GoAway => connection.as_mut().graceful_shutdown(),
                DeadlineAction::Close(reason) => {
                    if matches!(reason, CloseReason::Overdue | CloseReason::Stalled) {
                        log_slow_close(peer, reason);
                    }
                    return;
                }
            },
        }
    }
}

fn log_slow_close(peer: SocketAddr, reason: CloseReason) {
    metrics().overdue_connections.increment(1);
    tracing::warn!(%peer, cut = ?reason, "closed a connection because a response took too long");
}

/// Logs a panic of a connection task. Panics of handlers are caught earlier, so this one came from a response body.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "response body panicked");
    }
}

/// The send buffer of an HTTP/2 stream, which is as large as that of an HTTP/1.1 connection by default.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// The receive window of an HTTP/2 connection, shared by all its streams.
const RECEIVE_BUFFER_BYTES: u32 = 256 << 10;

fn connection_builder(limits: &ServerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(usize::try_from(limits.max_header_bytes).unwrap_or(usize::MAX));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(limits.max_header_bytes)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_connection_window_size(RECEIVE_BUFFER_BYTES)
        .keep_alive_interval(limits.keep_alive_interval)
        // A client responds to a ping only after reading all earlier data, so the timeout is at least `write_timeout`.
        .keep_alive_timeout(limits.keep_alive_interval.max(limits.write_timeout));
    builder
}

/// The router for one connection. Adds the address of the client to requests as `ConnectInfo`, and limits the time of
/// responses. Registers each request synchronously, before more bytes of the connection are read.
struct ConnectionService {
    server: Arc<HttpServer>,
    peer: SocketAddr,
    state: Arc<ConnectionState>,
    parsed_head: Arc<ParsedBodyLength>,
    /// The client's HTTP/2 requests in flight. `None` for a trusted proxy.
    client_requests: Option<Arc<ClientRequests>>,
}

impl<B> hyper::service::Service<axum::http::Request<B>> for ConnectionService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = PollTimedResponse;

    fn call(&self, request: axum::http::Request<B>) -> Self::Future {
        let timeout = self.server.limits.response_timeout;
        self.parsed_head.record_body_length(request.body().size_hint().exact());
        let mut in_flight = self.state.begin_request();
        // Unlike an HTTP/1.1 connection, an HTTP/2 connection can have many requests, and is closed with GOAWAY.
        let http2 = request.version() == Version::HTTP_2;
        let mut concurrency_permits = None;
        if http2 && let Some(client_requests) = &self.client_requests {
            let Some(permit) = self.server.inflight_limit.try_acquire(client_requests, estimate_head_bytes(&request))
            else {
                let response = (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], TOO_MANY_REQUESTS_TEXT);
                let body = |body| Body::new(TimedResponseBody::new(body, timeout, None, in_flight, http2));
                let response = response.into_response().map(body);
                return PollTimedResponse::new(async { Ok(response) });
            };
            concurrency_permits = Some(client_requests.concurrency_permits.clone());
            in_flight.permit = Some(permit);
        }
        let mut request: Request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(TimedRequestBody::new(
                Box::pin(body),
                in_flight.body_wait.clone(),
                self.server.limits.min_body_bytes_per_s,
            )),
        });
        request.extensions_mut().insert(ConnectInfo(self.peer));
        mark_invalid_host(&mut request);
        let outlives = continues_after_disconnect(request.method(), request.uri().path());
        let mut router = self.server.router.clone();
        let response = match concurrency_permits {
            None => Either::Left(router.call(request)),
            Some(permits) => Either::Right(async move {
                let _permit = permits.acquire_owned().await;
                router.call(request).await
            }),
        };
        // hyper drops the response future when the client disconnects, perhaps before its first poll. Requests that
        // must be completed therefore run in a task.
        let response = match outlives {
            true => Either::Left(spawn_detached(response)),
            false => Either::Right(response),
        };
        let state = self.state.clone();
        PollTimedResponse::new(async move {
            let mut response = response.await?;
            if !http2 && state.is_closing() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            let id = response.headers().get(REQUEST_ID).cloned();
            Ok(response.map(|body| Body::new(TimedResponseBody::new(body, timeout, id, in_flight, http2))))
        })
    }
}

/// Runs a response future in a task, which starts at once and continues if the returned future is dropped.
fn spawn_detached(
    response: impl Future<Output = Result<Response, Infallible>> + Send + 'static,
) -> impl Future<Output = Result<Response, Infallible>> + Send {
    let task = tokio::spawn(response);
    async move {
        match task.await {
            Ok(response) => response,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The task was canceled, because the runtime is shutting down.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

//! Connections: accepts them, speaks HTTP/1.1 and HTTP/2 (without TLS), limits each client, and shuts down gracefully.
//!
//! 1. **Accept.** At the connection limit, a connection that waits for its client makes room (`connections`), so that
//!    idle and stalled connections keep no one out. Without file descriptors, one connection is released, newcomers get
//!    an error (`listener`), and open connections continue.
//! 2. **Serve.** Each connection has a task, and the limits of hyper, `timed_stream`, and `connection_state`. A body
//!    that takes too long fails. If its client reads nothing, so that it cannot fail, the connection is closed.
//! 3. **Shut down.** Only connections that are under way are accepted, and every request that has arrived gets a
//!    response. Over HTTP/1.1, each response is the last one of its connection, and an idle connection can make one
//!    more request for a while. HTTP/2 clients get a GOAWAY in two steps, so that no request is lost. After `drain`,
//!    all remaining connections are closed.

mod connection_state;
mod connections;
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
use strata_types::causes::Causes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tower::Service;

use crate::AppState;
use crate::layers::access_log::REQUEST_ID;
use crate::layers::mark_wrong_host;
use crate::management::outlives_its_client;
use crate::router::router;
use connection_state::{CloseReason, ConnectionState, Deadline};
use connections::{Admission, ConnectionPlace, Connections, max_waiting};
use http2_inflight::{ClientRequests, InFlightLimit, head_bytes};
use listener::{Accepted, Listener, Refusals, connections_for_descriptors};
use poll_timer::TimedPolls;
use timed_body::{TimedRequestBody, TimedResponseBody};
use timed_stream::TimedStream;
use uri_repair::ParsedHead;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    pub connections: usize,
    /// Connections of one client at the same time; 0 is no limit of their own.
    pub connections_per_client: usize,
    /// Whose connections are many clients'.
    pub trusted_proxies: TrustedProxies,
    /// From the start of a connection, or the end of an answer, to the end of the next head. Also limits idle time.
    pub header_read_timeout: Duration,
    /// Bytes of a body per second of waiting for it; if fewer come, it stays the client's turn.
    pub body_bytes_per_s: u64,
    /// How long a peer may take too few of the bytes that are ready for it.
    pub write_stall: Duration,
    /// How long an answer may take from its head to its last byte.
    pub answer: Duration,
    pub header_bytes: u32,
    pub concurrent_streams: u32,
    /// Interval of HTTP/2 pings. A peer may take as long to answer, or `write_stall` if that is longer.
    pub keep_alive: Duration,
    /// How long requests in flight may take to finish after the shutdown began.
    pub drain: Duration,
    /// How long an idle connection may still make a request after the shutdown began.
    pub drain_idle: Duration,
}

impl From<&Config> for ServerLimits {
    fn from(config: &Config) -> Self {
        let server = &config.server;
        // Both are small by their ranges.
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        ServerLimits {
            connections: count(server.connections),
            connections_per_client: count(server.connections_per_client),
            trusted_proxies: server.trusted_proxies.clone(),
            header_read_timeout: Duration::from_secs(server.header_timeout_s),
            body_bytes_per_s: config.limits.body_min_bytes_per_s,
            write_stall: Duration::from_secs(server.write_stall_s),
            answer: Duration::from_secs(server.answer_timeout_s),
            header_bytes: number(server.header_bytes),
            concurrent_streams: number(server.concurrent_streams),
            keep_alive: Duration::from_secs(server.keep_alive_s),
            drain: Duration::from_secs(server.drain_s),
            drain_idle: Duration::from_secs(server.drain_idle_s),
        }
    }
}

/// Why the server stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Accepting connections kept failing for about a minute, and not for want of descriptors.
    #[error("failed to accept connections")]
    Accept(#[source] io::Error),
}

/// How often what histograms collect is counted.
const UPKEEP: Duration = Duration::from_secs(5);

/// At the end: how long the system may take to complete connections that clients far away have begun, and how long they
/// are accepted where the system lets new ones begin.
const QUIET: Duration = Duration::from_millis(500);
const BACKLOG: Duration = Duration::from_secs(2);

/// What a client is told that has most of the connections where there is no room.
const FULL: &str = "The service has reached its connection limit (server.connections), and you already have your full \
                    share of the connections. Close some of your connections, or reuse open ones.";

/// What a client is told that has as many requests in flight over HTTP/2 as it may, or where all have.
const TOO_MANY_REQUESTS: &str = "Too many HTTP/2 requests are in flight, from your address or in total. Wait for \
                                 some of the responses before you send more requests.";

/// How long a connection that was released for its descriptor may take to give it back.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// Serves the operations of the application on the listener until `shutdown` completes and the requests in flight have
/// ended.
///
/// Limits are those of the application's configuration, and no more connections than the process has descriptors for.
/// After `shutdown` it is not ready, but still answers, for `server.drain_notice_s`.
pub async fn serve(services: AppState, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let router = router(services.clone());
    serve_app(services, router, listener, shutdown).await
}

/// As [`serve`], with a router that may have more than the operations.
pub async fn serve_app(
    services: AppState,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future,
) -> Result<(), ServeError> {
    let mut limits = ServerLimits::from(&*services.config);
    if let Some((descriptors, connections)) =
        connections_for_descriptors().filter(|(_, most)| *most < limits.connections)
    {
        let wanted = limits.connections;
        tracing::warn!(descriptors, connections, wanted, "reduced server.connections to fit the open file limit");
        limits.connections = connections;
    }
    let notice = Duration::from_secs(services.config.server.drain_notice_s);
    let draining = services.clone();
    let shutdown = async move {
        shutdown.await;
        draining.readiness.begin_draining();
        tokio::time::sleep(notice).await;
    };
    let upkeep = async {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics::run_upkeep();
        }
    };
    let exhausted = services.clone();
    let exhausted = move |is: bool| exhausted.readiness.note_exhausted(is);
    tokio::select! {
        outcome = serve_router(router, listener, limits, shutdown, exhausted) => outcome,
        never = upkeep => never,
    }
}

/// As [`serve`], with any router. Calls `note_exhausted` when descriptors are exhausted, and when they no longer are.
pub async fn serve_router(
    router: Router,
    listener: TcpListener,
    limits: ServerLimits,
    shutdown: impl Future,
    note_exhausted: impl Fn(bool),
) -> Result<(), ServeError> {
    let server = Arc::new(Server::new(router, limits));
    let mut listener = Listener::new(listener, max_waiting(server.limits.connections));
    let mut stop = Stop::new(server.limits.drain);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut exhausted = false;

    let outcome = loop {
        while let Some(ended) = tasks.try_join_next() {
            log_panic(ended);
        }
        let accepted = tokio::select! {
            biased;
            _ = &mut shutdown, if stop.begun.is_none() => {
                listener.begin_no_more();
                stop.begin();
                continue;
            }
            () = over(stop.begun.as_ref().map(|begun| begun.at_most_until)) => break Ok(()),
            accepted = listener.accept() => accepted,
            () = over(stop.begun.as_ref().map(|begun| begun.quiet_until)) => break Ok(()),
        };
        let (stream, peer) = match accepted {
            Accepted::Connection(stream, peer) => (stream, peer),
            Accepted::Exhausted(error) => {
                if !std::mem::replace(&mut exhausted, true) {
                    tracing::warn!(%error, "failed to accept connections; closing some");
                    note_exhausted(true);
                }
                server.make_descriptor(&mut listener).await;
                continue;
            }
            Accepted::Failed(error) => break Err(ServeError::Accept(error)),
        };
        if std::mem::take(&mut exhausted) {
            tracing::info!("resumed accepting connections");
            note_exhausted(false);
        }
        // Nobody waits behind one that has to wait, as long as it can do so elsewhere.
        let (waiting, is_of_many) = match server.connections.admit(peer.ip(), Instant::now()) {
            Admission::Admitted(place) => {
                tasks.spawn(server.clone().serve(stream, peer, place, stop.drain.clone()));
                continue;
            }
            Admission::TooMany => {
                server.refuse(&listener.refusals, stream, &server.too_many, "client");
                continue;
            }
            // Who has many leaves the places to wait in to others, and never keeps them from being accepted.
            Admission::Full { many } => {
                let waiting = if many { &server.many_waiting } else { &server.waiting };
                let permit = waiting.clone().try_acquire_owned().ok();
                if many && permit.is_none() {
                    server.refuse(&listener.refusals, stream, FULL, "full");
                    continue;
                }
                (permit, many)
            }
        };
        let in_loop = waiting.is_none();
        let server = server.clone();
        let drain = stop.drain.clone();
        let refusals = listener.refusals.clone();
        let (freed, is_freed) = oneshot::channel::<()>();
        tasks.spawn(async move {
            let place = server.connections.wait(peer.ip(), is_of_many).await;
            drop((waiting, freed));
            match place {
                Some(place) => server.serve(stream, peer, place, drain).await,
                // Its client has got others meanwhile.
                None => server.refuse(&refusals, stream, &server.too_many, "client"),
            }
        });
        if in_loop {
            tokio::select! {
                biased;
                _ = &mut shutdown, if stop.begun.is_none() => {
                    listener.begin_no_more();
                    stop.begin();
                }
                () = over(stop.begun.as_ref().map(|begun| begun.at_most_until)) => break Ok(()),
                _ = is_freed => {}
            }
        }
    };

    drop(listener);
    // Where the listener failed, nobody has been told yet.
    let drained_by = stop.begin().drained_by;
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout_at(drained_by, drained).await.is_err() {
        tracing::warn!(connections = tasks.len(), "closed connections that did not finish within server.drain_s");
    }
    tasks.shutdown().await;
    outcome
}

struct Stop {
    limit: Duration,
    begin: watch::Sender<()>,
    drain: watch::Receiver<()>,
    begun: Option<StopTimes>,
}

#[derive(Clone, Copy)]
struct StopTimes {
    /// Connections that were under way are accepted, if there is another one by then.
    quiet_until: Instant,
    /// They are accepted, whatever comes.
    at_most_until: Instant,
    drained_by: Instant,
}

impl Stop {
    fn new(limit: Duration) -> Stop {
        let (begin, drain) = watch::channel(());
        Stop { limit, begin, drain, begun: None }
    }

    /// Begins to stop, unless it has begun.
    fn begin(&mut self) -> StopTimes {
        *self.begun.get_or_insert_with(|| {
            let _ = self.begin.send(());
            let now = Instant::now();
            let drained_by = now + self.limit;
            let [quiet_until, at_most_until] = [QUIET, BACKLOG].map(|time| (now + time).min(drained_by));
            StopTimes { quiet_until, at_most_until, drained_by }
        })
    }
}

async fn over(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Server {
    router: Router,
    limits: Arc<ServerLimits>,
    protocol: Builder<TokioExecutor>,
    requests: Arc<InFlightLimit>,
    connections: Arc<Connections>,
    /// Connections that have been accepted and wait for a place: of clients that have few, and of those that have many.
    waiting: Arc<Semaphore>,
    many_waiting: Arc<Semaphore>,
    too_many: String,
}

impl Server {
    fn new(router: Router, limits: ServerLimits) -> Server {
        let limits = Arc::new(limits);
        let too_many = format!(
            "Your address has reached the limit of {} connections (server.connections_per_client). Close some \
             connections, or reuse open ones.",
            limits.connections_per_client
        );
        let requests = InFlightLimit::new(limits.concurrent_streams);
        let protocol = protocol(&limits);
        let connections = Connections::new(limits.clone(), requests.clone());
        let outside = max_waiting(limits.connections);
        let (many_waiting, waiting) = [(); 2].map(|()| Arc::new(Semaphore::new(outside))).into();
        Server { router, limits, protocol, requests, connections, waiting, many_waiting, too_many }
    }

    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: ConnectionPlace,
        drain: watch::Receiver<()>,
    ) {
        metrics().accepted_connections.increment(1);
        let state = place.state.clone();
        let head = Arc::<ParsedHead>::default();
        let stream = TimedStream::new(stream, state.clone(), head.clone());
        let of_client = place.requests.clone();
        let service = ConnectionService { server: self.clone(), peer, state, head, of_client };
        let connection = self.protocol.serve_connection(TokioIo::new(stream), service);
        watched(connection.into_owned(), peer, place, drain).await;
    }

    fn refuse(&self, refusals: &Refusals, stream: TcpStream, text: &str, reason: &'static str) {
        metrics().refused_connections.of([reason.into()]).increment(1);
        refusals.refuse(stream, text);
    }

    /// Waits for a descriptor of a connection that is released or ends. If none can be released, tells a newcomer.
    async fn make_descriptor(&self, listener: &mut Listener) {
        const TEXT: &str = "The service has no file descriptors left for more connections. Try again in a few seconds.";
        if !self.connections.release_one() && listener.refuse_one(TEXT).await {
            metrics().refused_connections.of(["descriptors".into()]).increment(1);
        } else {
            self.connections.ended(DESCRIPTOR_PAUSE, false).await;
        }
    }
}

type Served = Connection<'static, TokioIo<TimedStream>, ConnectionService, TokioExecutor>;

/// Serves a connection to its end, or until something is due that its peer does not do. When the server drains, or
/// another connection has its place, it ends after the requests in flight.
async fn watched(connection: Served, peer: SocketAddr, place: ConnectionPlace, mut drain: watch::Receiver<()>) {
    let state = &place.state;
    let mut connection = pin!(connection);
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                match state.fault.get() {
                    Some(CloseReason::Flooding) => {
                        metrics().flooding_connections.increment(1);
                        // There can be thousands in a second, so they are counted and not logged.
                        tracing::debug!(%peer, "closed a connection that sent too many HTTP/2 control frames");
                    }
                    Some(reason) => log_overdue(peer, *reason),
                    // The peer's doing, or a body that failed, whose cause is logged where it arose.
                    None => ended.unwrap_or_else(|error| {
                        tracing::debug!(%peer, error = %Causes(&*error), "connection ended early");
                    }),
                }
                return;
            }
            _ = drain.changed(), if !draining => {
                draining = true;
                state.drain();
            }
            due = state.next_deadline() => match due {
                Deadline::GoAway => connection.as_mut().graceful_shutdown(),
                Deadline::Close(reason) => {
                    if matches!(reason, CloseReason::Overdue | CloseReason::Stalled) {
                        log_overdue(peer, reason);
                    }
                    return;
                }
            },
        }
    }
}

fn log_overdue(peer: SocketAddr, reason: CloseReason) {
    metrics().overdue_connections.increment(1);
    tracing::warn!(%peer, cut = ?reason, "closed a connection because a response took too long");
}

/// A handler's panic is answered; one that reaches the connection came from a body, and has cut it.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "response body panicked");
    }
}

/// Bytes of an answer that an HTTP/2 stream holds for its client, as many as an HTTP/1.1 connection does by default.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// Bytes of bodies that an HTTP/2 connection holds for its handlers, whatever the number of its streams.
const RECEIVE_BUFFER_BYTES: u32 = 256 << 10;

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
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_connection_window_size(RECEIVE_BUFFER_BYTES)
        .keep_alive_interval(limits.keep_alive)
        // The answer to a ping comes after what the client has still to take.
        .keep_alive_timeout(limits.keep_alive.max(limits.write_stall));
    builder
}

/// The router, as seen from one connection: requests carry its peer's address as `ConnectInfo`, and their answers are
/// timed. What reads the connection is told of each request at once, before more is read.
struct ConnectionService {
    server: Arc<Server>,
    peer: SocketAddr,
    state: Arc<ConnectionState>,
    head: Arc<ParsedHead>,
    /// The client's requests in flight over HTTP/2; `None` for a trusted proxy.
    of_client: Option<Arc<ClientRequests>>,
}

impl<B> hyper::service::Service<axum::http::Request<B>> for ConnectionService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = TimedPolls;

    fn call(&self, request: axum::http::Request<B>) -> Self::Future {
        let limit = self.server.limits.answer;
        self.head.request(request.body().size_hint().exact());
        let mut in_flight = self.state.begin();
        // HTTP/2 has GOAWAY for closing, and many requests on a connection.
        let http2 = request.version() == Version::HTTP_2;
        let mut turns = None;
        if http2 && let Some(of_client) = &self.of_client {
            let Some(permit) = self.server.requests.try_acquire(of_client, head_bytes(&request)) else {
                let response = (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], TOO_MANY_REQUESTS);
                let body = |body| Body::new(TimedResponseBody::new(body, limit, None, in_flight, http2));
                let response = response.into_response().map(body);
                return TimedPolls::new(async { Ok(response) });
            };
            turns = Some(of_client.turns.clone());
            in_flight.permit = Some(permit);
        }
        let mut request: Request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(TimedRequestBody::new(
                Box::pin(body),
                in_flight.turn.clone(),
                self.server.limits.body_bytes_per_s,
            )),
        });
        request.extensions_mut().insert(ConnectInfo(self.peer));
        mark_wrong_host(&mut request);
        let outlives = outlives_its_client(request.method(), request.uri().path());
        let mut router = self.server.router.clone();
        let answering = match turns {
            None => Either::Left(router.call(request)),
            Some(turns) => Either::Right(async move {
                let _turn = turns.acquire_owned().await;
                router.call(request).await
            }),
        };
        // A connection whose client has left is dropped, before a call is looked at, too.
        let answering = match outlives {
            true => Either::Left(in_its_own_task(answering)),
            false => Either::Right(answering),
        };
        let state = self.state.clone();
        TimedPolls::new(async move {
            let mut response = answering.await?;
            if !http2 && state.is_leaving() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            let id = response.headers().get(REQUEST_ID).cloned();
            Ok(response.map(|body| Body::new(TimedResponseBody::new(body, limit, id, in_flight, http2))))
        })
    }
}

/// Answers in a task that goes on when nobody waits for it, and is begun at once.
fn in_its_own_task(
    answering: impl Future<Output = Result<Response, Infallible>> + Send + 'static,
) -> impl Future<Output = Result<Response, Infallible>> + Send {
    let task = tokio::spawn(answering);
    async move {
        match task.await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

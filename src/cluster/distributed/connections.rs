//! Incoming connections of other nodes, with limits, so that a client without the secret cannot block nodes for long.
//!
//! - If an address has too many connections, further ones are closed. If there are too many in total, further ones wait
//!   to be accepted.
//! - A connection is closed if no valid token arrives on it soon, or if no data arrives for a while.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use strata_runtime::metrics::metrics;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use crate::tls::NodeTls;

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Limit for the connections of all nodes in total. Each node keeps one connection.
    pub(super) max_connections: usize,
    /// Limit for one IP address, which several nodes share if they run on one machine or behind NAT.
    pub(super) max_per_address: usize,
    pub(super) token_timeout: Duration,
    /// Time after which a connection without incoming data is closed. Online nodes respond to pings.
    pub(super) idle_timeout: Duration,
}

pub(super) const NODE_CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    max_connections: 1_024,
    max_per_address: 64,
    token_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(30),
};

/// True after a request with a valid token has arrived on the connection.
pub(super) type AuthenticatedFlag = Arc<AtomicBool>;

/// Counts connections by IP address: the count of an `Arc` is one more than the number of connections from the address.
type AddressSlots = HashMap<IpAddr, Arc<()>>;

/// Returns a slot for a connection; `None` if the address already has `max` connections.
fn acquire_address_slot(addresses: &mut AddressSlots, address: IpAddr, max: usize) -> Option<Arc<()>> {
    addresses.retain(|_, slot| Arc::strong_count(slot) > 1);
    let slot = addresses.entry(address).or_default();
    (Arc::strong_count(slot) <= max).then(|| slot.clone())
}

pub(super) struct NodeConnection {
    stream: Either<TcpStream, TlsStream<TcpStream>>,
    is_authenticated: AuthenticatedFlag,
    deadline: Pin<Box<Sleep>>,
    idle_timeout: Duration,
    last_read_at: Instant,
    _address_slot: Arc<()>,
    _permit: OwnedSemaphorePermit,
}

/// Returns an endless stream of accepted connections. With TLS, a connection is returned after its handshake.
pub(super) fn incoming_connections(
    listener: TcpListener,
    limits: ConnectionLimits,
    tls: Option<Arc<NodeTls>>,
) -> impl Stream<Item = io::Result<NodeConnection>> {
    let accepted = accept_connections(listener, limits);
    match tls {
        None => accepted.map(Ok).left_stream(),
        // TLS handshakes run concurrently, so that a slow client does not delay other connections.
        Some(tls) => accepted
            .map(move |connection| connection.accept_tls(tls.acceptor()))
            .buffer_unordered(limits.max_connections)
            .filter_map(|connection| std::future::ready(connection.map(Ok)))
            .right_stream(),
    }
}

fn accept_connections(listener: TcpListener, limits: ConnectionLimits) -> impl Stream<Item = NodeConnection> {
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let state = (listener, permits, AddressSlots::default());
    futures::stream::unfold(state, move |(listener, permits, mut addresses)| async move {
        let permit = permits.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let Some(address_slot) =
                        acquire_address_slot(&mut addresses, address.ip().to_canonical(), limits.max_per_address)
                    else {
                        count_refused_connection("the address has too many connections");
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let connection = NodeConnection {
                        stream: Either::Left(stream),
                        is_authenticated: AuthenticatedFlag::default(),
                        deadline: Box::pin(tokio::time::sleep(limits.token_timeout)),
                        idle_timeout: limits.idle_timeout,
                        last_read_at: Instant::now(),
                        _address_slot: address_slot,
                        _permit: permit,
                    };
                    return Some((connection, (listener, permits, addresses)));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection from another node");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    })
}

fn count_refused_connection(reason: &'static str) {
    metrics().node_tasks.with_label_values(["refused".into()]).increment(1);
    tracing::debug!(reason, "closed connection from another node");
}

impl NodeConnection {
    /// Runs the TLS handshake. Returns `None` if the client sends no valid certificate in time.
    async fn accept_tls(mut self, acceptor: TlsAcceptor) -> Option<NodeConnection> {
        let Either::Left(stream) = self.stream else { return Some(self) };
        tokio::select! {
            secured = acceptor.accept(stream) => match secured {
                Ok(stream) => Some(NodeConnection { stream: Either::Right(stream), ..self }),
                Err(error) => {
                    tracing::debug!(%error, "failed TLS handshake with another node");
                    count_refused_connection("the client did not send a valid certificate");
                    None
                }
            },
            () = &mut self.deadline => {
                count_refused_connection("the client did not authenticate in time");
                None
            }
        }
    }

    /// Checks the deadline by which the other node must have sent a valid token or further data. Returns an error if
    /// the connection must be closed, and otherwise registers a wakeup for the next deadline.
    fn check_deadline(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.deadline.as_mut().poll(context).is_ready() {
            let idle_deadline = self.last_read_at + self.idle_timeout;
            if !self.is_authenticated.load(Ordering::Relaxed) {
                count_refused_connection("the client did not authenticate in time");
            } else if idle_deadline <= Instant::now() {
                count_refused_connection("no data was received in time");
            } else {
                self.deadline.as_mut().reset(idle_deadline);
                continue;
            }
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for NodeConnection {
    type ConnectInfo = AuthenticatedFlag;

    fn connect_info(&self) -> AuthenticatedFlag {
        self.is_authenticated.clone()
    }
}

impl AsyncRead for NodeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.last_read_at = Instant::now();
        }
        read
    }
}

impl AsyncWrite for NodeConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use strata_testing::certificates::Certificates;

    use super::*;

    const TEST_LIMITS: ConnectionLimits = ConnectionLimits {
        max_connections: 3,
        max_per_address: 2,
        token_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_secs(3),
    };

    async fn start_listener(
        limits: ConnectionLimits,
        tls: Option<Arc<NodeTls>>,
    ) -> (impl Stream<Item = io::Result<NodeConnection>> + Unpin, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.11:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (Box::pin(incoming_connections(listener, limits, tls)), address)
    }

    async fn connect(address: std::net::SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.expect("connected")
    }

    async fn read(connection: &mut NodeConnection) -> io::Result<usize> {
        connection.read(&mut [0; 16]).await
    }

    #[tokio::test]
    async fn connections_of_one_address_are_limited() {
        let (mut accepted, address) =
            start_listener(ConnectionLimits { token_timeout: TEST_LIMITS.idle_timeout, ..TEST_LIMITS }, None).await;
        let mut clients = vec![connect(address).await, connect(address).await, connect(address).await];
        let first = accepted.next().await.expect("a connection").expect("accepted");
        let _second = accepted.next().await.expect("a connection").expect("accepted");
        // The third connection exceeds the limit of its address. A fourth is accepted after the first one is closed.
        let next = tokio::spawn(async move { accepted.next().await.expect("one").is_ok() });
        let mut rejected = clients.pop().expect("the third");
        assert_eq!(rejected.read(&mut [0; 1]).await.unwrap_or_default(), 0, "closed");
        drop(first);
        let _fourth = connect(address).await;
        assert!(next.await.expect("no panic"));
    }

    #[tokio::test]
    async fn idle_or_unauthenticated_connection_is_closed() {
        for is_node in [false, true] {
            let (mut accepted, address) = start_listener(TEST_LIMITS, None).await;
            let mut client = connect(address).await;
            let mut connection = accepted.next().await.expect("a connection").expect("accepted");
            if is_node {
                connection.connect_info().store(true, Ordering::Relaxed);
                // After this sleep, the server would have closed a connection without a valid token.
                tokio::time::sleep(2 * TEST_LIMITS.token_timeout).await;
            }
            let start = Instant::now();
            client.write_all(b"PRI * HTTP/2.0\r\n").await.expect("written");
            assert_eq!(read(&mut connection).await.expect("open"), 16);
            assert_eq!(read(&mut connection).await.expect_err("closed").kind(), io::ErrorKind::TimedOut);
            assert!(!is_node || start.elapsed() >= TEST_LIMITS.idle_timeout);
        }
    }

    #[tokio::test]
    async fn silent_tls_client_delays_no_node() {
        let certificates = Certificates::make("127.0.0.");
        let tls = NodeTls::open(&certificates.section(0)).expect("valid files").expect("certificates");
        let limits = ConnectionLimits { token_timeout: TEST_LIMITS.idle_timeout, ..TEST_LIMITS };
        let (mut accepted, address) = start_listener(limits, Some(tls.clone())).await;
        let mut silent_client = connect(address).await;
        let url = format!("https://{address}").parse().expect("a URL");
        let node = tokio::spawn(async move { tls.connect(&url).await });
        let mut connection = accepted.next().await.expect("a connection").expect("accepted");
        let mut node = node.await.expect("no panic").expect("connected");
        node.write_all(b"ping").await.expect("written");
        node.flush().await.expect("written");
        assert_eq!(read(&mut connection).await.expect("read"), 4);
        assert_eq!(read(&mut connection).await.expect_err("no token").kind(), io::ErrorKind::TimedOut);
        let next = tokio::spawn(async move { accepted.next().await.is_some() });
        assert_eq!(silent_client.read(&mut [0; 1]).await.unwrap_or_default(), 0, "closed");
        assert!(!next.is_finished(), "no other connection is accepted");
        next.abort();
    }
}

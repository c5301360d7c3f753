//! The connections of other nodes: a bounded number at once, and a share of them for each address. Further ones of an
//! address are closed, and further ones of all wait to be accepted. One on which no node has shown a token soon is
//! closed, and so is one that is silent. So a client without the secret cannot keep nodes out for long.

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

/// Before the next attempt to accept one, when the process has no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at once. Each node keeps one.
    pub(super) at_once: usize,
    /// Those of one address: several nodes of a machine, or behind a translation of addresses.
    pub(super) of_address: usize,
    /// How long the first good token may take. A node connects when it has a request.
    pub(super) token_within: Duration,
    /// How long nothing may come from a node. Nodes that live answer pings, and send their own.
    pub(super) silence: Duration,
}

pub(super) const NODE_BOUNDS: Bounds =
    Bounds { at_once: 1_024, of_address: 64, token_within: Duration::from_secs(5), silence: Duration::from_secs(30) };

/// Whether a connection is one of a node: a request with a valid token came on it.
pub(super) type Proof = Arc<AtomicBool>;

/// The connections of each address: one handle here, and one for each connection until it is dropped.
type Addresses = HashMap<IpAddr, Arc<()>>;

/// A place among the connections of an address; `None` if it has as many as it may.
fn acquire(addresses: &mut Addresses, address: IpAddr, max: usize) -> Option<Arc<()>> {
    addresses.retain(|_, place| Arc::strong_count(place) > 1);
    let place = addresses.entry(address).or_default();
    (Arc::strong_count(place) <= max).then(|| place.clone())
}

pub(super) struct Connection {
    stream: Either<TcpStream, TlsStream<TcpStream>>,
    proof: Proof,
    /// When it is closed, unless something comes.
    until: Pin<Box<Sleep>>,
    silence: Duration,
    heard: Instant,
    _of_address: Arc<()>,
    _of_all: OwnedSemaphorePermit,
}

/// The connections that a listener accepts, for ever; those with TLS when both sides have shown certificates.
pub(super) fn incoming(
    listener: TcpListener,
    bounds: Bounds,
    tls: Option<Arc<NodeTls>>,
) -> impl Stream<Item = io::Result<Connection>> {
    let accepted = accepted(listener, bounds);
    match tls {
        None => accepted.map(Ok).left_stream(),
        // One that is slow to show its certificate holds up no other.
        Some(tls) => accepted
            .map(move |connection| connection.secured(tls.acceptor()))
            .buffer_unordered(bounds.at_once)
            .filter_map(|connection| std::future::ready(connection.map(Ok)))
            .right_stream(),
    }
}

fn accepted(listener: TcpListener, bounds: Bounds) -> impl Stream<Item = Connection> {
    let places = Arc::new(Semaphore::new(bounds.at_once));
    let state = (listener, places, Addresses::default());
    futures::stream::unfold(state, move |(listener, places, mut addresses)| async move {
        let of_all = places.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let Some(of_address) = acquire(&mut addresses, address.ip().to_canonical(), bounds.of_address)
                    else {
                        closed("the address has too many connections");
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let connection = Connection {
                        stream: Either::Left(stream),
                        proof: Proof::default(),
                        until: Box::pin(tokio::time::sleep(bounds.token_within)),
                        silence: bounds.silence,
                        heard: Instant::now(),
                        _of_address: of_address,
                        _of_all: of_all,
                    };
                    return Some((connection, (listener, places, addresses)));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection from another node");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

fn closed(reason: &'static str) {
    metrics().node_tasks.of(["refused".into()]).increment(1);
    tracing::debug!(reason, "closed connection from another node");
}

impl Connection {
    /// The same with TLS; `None`, and closed, if the other side shows no certificate of a node in time.
    async fn secured(mut self, acceptor: TlsAcceptor) -> Option<Connection> {
        let Either::Left(stream) = self.stream else { return Some(self) };
        tokio::select! {
            secured = acceptor.accept(stream) => match secured {
                Ok(stream) => Some(Connection { stream: Either::Right(stream), ..self }),
                Err(error) => {
                    tracing::debug!(%error, "failed TLS handshake with another node");
                    closed("the client did not send a valid certificate");
                    None
                }
            },
            () = &mut self.until => {
                closed("the client did not authenticate in time");
                None
            }
        }
    }

    /// An error when it is to be closed; wakes the task then.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.until.as_mut().poll(context).is_ready() {
            let until = self.heard + self.silence;
            if !self.proof.load(Ordering::Relaxed) {
                closed("the client did not authenticate in time");
            } else if until <= Instant::now() {
                closed("no data was received in time");
            } else {
                self.until.as_mut().reset(until);
                continue;
            }
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for Connection {
    type ConnectInfo = Proof;

    fn connect_info(&self) -> Proof {
        self.proof.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_overdue(context)?;
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.heard = Instant::now();
        }
        read
    }
}

impl AsyncWrite for Connection {
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

    const BOUNDS: Bounds =
        Bounds { at_once: 3, of_address: 2, token_within: Duration::from_millis(300), silence: Duration::from_secs(3) };

    async fn listening(
        bounds: Bounds,
        tls: Option<Arc<NodeTls>>,
    ) -> (impl Stream<Item = io::Result<Connection>> + Unpin, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.11:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (Box::pin(incoming(listener, bounds, tls)), address)
    }

    async fn connect(address: std::net::SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.expect("connected")
    }

    async fn read(connection: &mut Connection) -> io::Result<usize> {
        connection.read(&mut [0; 16]).await
    }

    #[tokio::test]
    async fn connections_of_one_address_leave_room_for_others() {
        let (mut accepted, address) = listening(Bounds { token_within: BOUNDS.silence, ..BOUNDS }, None).await;
        let mut clients = vec![connect(address).await, connect(address).await, connect(address).await];
        let first = accepted.next().await.expect("one").expect("accepted");
        let _second = accepted.next().await.expect("one").expect("accepted");
        // The third is closed, and the next one accepted that has a place.
        let next = tokio::spawn(async move { accepted.next().await.expect("one").is_ok() });
        let mut refused = clients.pop().expect("the third");
        assert_eq!(refused.read(&mut [0; 1]).await.unwrap_or_default(), 0, "closed");
        drop(first);
        let _fourth = connect(address).await;
        assert!(next.await.expect("no panic"));
    }

    #[tokio::test]
    async fn connection_is_closed_without_token_or_when_silent() {
        for is_node in [false, true] {
            let (mut accepted, address) = listening(BOUNDS, None).await;
            let mut client = connect(address).await;
            let mut connection = accepted.next().await.expect("one").expect("accepted");
            if is_node {
                connection.connect_info().store(true, Ordering::Relaxed);
                // Longer than a connection without a token stays open.
                tokio::time::sleep(2 * BOUNDS.token_within).await;
            }
            let began = Instant::now();
            client.write_all(b"PRI * HTTP/2.0\r\n").await.expect("written");
            assert_eq!(read(&mut connection).await.expect("open"), 16);
            assert_eq!(read(&mut connection).await.expect_err("closed").kind(), io::ErrorKind::TimedOut);
            assert!(!is_node || began.elapsed() >= BOUNDS.silence);
        }
    }

    #[tokio::test]
    async fn silent_client_of_tls_delays_no_node() {
        let certificates = Certificates::make("127.0.0.");
        let tls = NodeTls::open(&certificates.section(0)).expect("good files").expect("certificates");
        let bounds = Bounds { token_within: BOUNDS.silence, ..BOUNDS };
        let (mut accepted, address) = listening(bounds, Some(tls.clone())).await;
        let mut silent = connect(address).await;
        let url = format!("https://{address}").parse().expect("a URL");
        let node = tokio::spawn(async move { tls.connect(&url).await });
        let mut connection = accepted.next().await.expect("one").expect("accepted");
        let mut node = node.await.expect("no panic").expect("connected");
        node.write_all(b"ping").await.expect("written");
        node.flush().await.expect("written");
        assert_eq!(read(&mut connection).await.expect("read"), 4);
        assert_eq!(read(&mut connection).await.expect_err("no token").kind(), io::ErrorKind::TimedOut);
        let next = tokio::spawn(async move { accepted.next().await.is_some() });
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or_default(), 0, "closed");
        assert!(!next.is_finished(), "no other connection is accepted");
        next.abort();
    }
}

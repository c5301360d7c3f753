//! Accepts connections, also without free file descriptors, and closes the listener without losing connections.
//!
//! - **File descriptors.** One descriptor is reserved. If the process has no other, this one is released for a moment,
//!   so that a new client gets an error instead of waiting.
//! - **Shutdown.** If a listener is closed, the system resets connections that are complete but not accepted, perhaps
//!   with a request on them. So on Linux, a filter first drops segments that begin new connections, then the complete
//!   connections are accepted, and then the listener is closed. A dropped client retries by itself, and is refused
//!   before it has sent a request. On other systems, there is a short gap.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The length of the accept queue, unless the system has a lower limit.
const LISTEN_BACKLOG: i32 = 65_535;

/// The maximum number of response bytes that the system buffers for a connection, in addition to unacknowledged ones.
#[cfg(any(target_os = "linux", target_os = "macos"))]
const MAX_UNSENT_BYTES: u32 = 128 << 10;
const REFUSAL_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of consecutive unexpected errors of `accept` after which the listener counts as broken.
const MAX_ACCEPT_FAILURES: u32 = 60;
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) enum AcceptOutcome {
    Connection(TcpStream, SocketAddr),
    /// The process or the system has no file descriptors or no memory for another connection.
    Exhausted(io::Error),
    Failed(io::Error),
}

pub(super) struct ConnectionListener {
    listener: TcpListener,
    reserve_descriptor: Option<File>,
    failure_count: u32,
    pub refuser: ConnectionRefuser,
}

/// Sends an error to each refused connection. Clones share the limit of connections that concurrently read errors.
#[derive(Clone)]
pub(super) struct ConnectionRefuser {
    permits: Arc<Semaphore>,
}

impl ConnectionListener {
    /// Accepts connections from `listener`. At most `max_refused` connections can read their error concurrently.
    pub(super) fn new(listener: TcpListener, max_refused: usize) -> ConnectionListener {
        // A long queue of pending connections protects new clients in a flood. `net.core.somaxconn` limits the queue.
        if let Err(error) = socket2::SockRef::from(&listener).listen(LISTEN_BACKLOG) {
            tracing::debug!(%error, "failed to set the size of the connection queue");
        }
        let refuser = ConnectionRefuser { permits: Arc::new(Semaphore::new(max_refused)) };
        ConnectionListener { listener, reserve_descriptor: open_reserve_descriptor(), failure_count: 0, refuser }
    }

    /// Accepts the next connection. Cancel-safe.
    pub(super) async fn accept(&mut self) -> AcceptOutcome {
        if self.reserve_descriptor.is_none() {
            self.reserve_descriptor = open_reserve_descriptor();
        }
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.failure_count = 0;
                    // TCP_NODELAY is set: hyper writes whole responses, so a delay for more data would only cost time.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
                    }
                    limit_unsent_bytes(&stream);
                    return AcceptOutcome::Connection(stream, peer);
                }
                Err(error) => error,
            };
            match error.kind() {
                // The client gave up before its connection was accepted.
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset => continue,
                _ if is_resource_exhausted(&error) => return AcceptOutcome::Exhausted(error),
                _ => {}
            }
            self.failure_count += 1;
            tracing::warn!(%error, failures = self.failure_count, "failed to accept connection");
            if self.failure_count == MAX_ACCEPT_FAILURES {
                return AcceptOutcome::Failed(error);
            }
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
        }
    }

    /// Refuses the next connection with the reserved file descriptor. Returns whether a connection was refused.
    pub(super) async fn try_refuse_next(&mut self, text: &str) -> bool {
        if self.reserve_descriptor.take().is_none() {
            return false;
        }
        // The timeout is short: a connection is already pending, unless another thread has taken the descriptor.
        let accepted = timeout(Duration::from_millis(10), self.listener.accept()).await;
        let is_refused = match accepted {
            Ok(Ok((stream, _))) => {
                send_unavailable(&stream, text);
                true
            }
            _ => false,
        };
        self.reserve_descriptor = open_reserve_descriptor();
        is_refused
    }

    /// Lets the system drop segments that begin new connections, if possible. Pending connections can still complete.
    pub(super) fn block_new_connections(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&self.listener).attach_filter(&syn_drop_filter()) {
            tracing::debug!(%error, "failed to block new connections before closing the listener");
        }
    }
}

impl ConnectionRefuser {
    /// Sends an error on a refused connection, and closes it.
    pub(super) fn refuse_connection(&self, stream: TcpStream, text: &str) {
        send_unavailable(&stream, text);
        // If a refused connection were closed at once, client input would reset it before the client reads the error.
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            tokio::spawn(async move {
                let _permit = permit;
                let _ = timeout(REFUSAL_READ_TIMEOUT, discard_input(stream)).await;
            });
        }
    }
}

/// Limits the response bytes that the system buffers. By default, it buffers megabytes and accepts more only after a
/// large part was sent. A client that reads steadily but slowly would then seem to read nothing for a minute, and its
/// responses to pings would arrive too late.
fn limit_unsent_bytes(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES) {
        tracing::debug!(%error, "failed to set TCP_NOTSENT_LOWAT");
    }
}

async fn discard_input(mut stream: TcpStream) {
    let mut buffer = [0; 4 << 10];
    let _ = stream.shutdown().await;
    for _ in 0..16 {
        if !stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}

/// Sends a 503 without waiting. The send buffer of a new connection is large enough for all of it.
fn send_unavailable(stream: &TcpStream, text: &str) {
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
         x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.try_write(response.as_bytes());
    // All input of the client must be read, because otherwise the system resets the connection instead of closing it.
    for _ in 0..16 {
        if !stream.try_read(&mut [0; 4 << 10]).is_ok_and(|read| read > 0) {
            break;
        }
    }
}

fn open_reserve_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_resource_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Drops segments with SYN and without ACK. The filter of a socket sees segments from the TCP header on.
#[cfg(target_os = "linux")]
fn syn_drop_filter() -> [socket2::SockFilter; 5] {
    use socket2::SockFilter;
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    // Classic BPF instructions. A filter returns the number of bytes of a packet to keep.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_OFFSET),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

/// Returns the process's limit of file descriptors, and how many connections the limit allows. Returns `None` if the
/// system does not report a limit.
pub(super) fn descriptor_and_connection_limits() -> Option<(usize, usize)> {
    let descriptors = usize::try_from(getrlimit(Resource::Nofile).current?).ok()?;
    Some((descriptors, max_connections_for(descriptors)))
}

/// Reserves a quarter of the descriptors (48 to 1,024) for files and outgoing requests, and others for connections that
/// are closing, that wait for a slot, or that were refused.
fn max_connections_for(descriptors: usize) -> usize {
    let files = (descriptors / 4).clamp(48, 1_024);
    let left = descriptors.saturating_sub(files);
    (left / 12 * 8).max(left.saturating_sub(512 + 3 * 64)).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::connection_registry::{max_closing_connections, max_connections_awaiting_slot};
    use super::*;

    #[test]
    fn file_descriptors_are_reserved_for_files() {
        for (descriptors, connections) in
            [(0, 1), (48, 1), (64, 8), (96, 32), (256, 128), (1_024, 512), (20_000, 18_272)]
        {
            assert_eq!(max_connections_for(descriptors), connections, "{descriptors}");
            let others = max_closing_connections(connections) + 3 * max_connections_awaiting_slot(connections);
            assert!(descriptors < 64 || connections + others + 48 <= descriptors, "{descriptors}");
        }
    }

    #[tokio::test]
    async fn pending_connections_are_accepted_and_new_ones_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
        let address = listener.local_addr().expect("failed to get address");
        let mut listener = ConnectionListener::new(listener, 1);
        let _pending = TcpStream::connect(address).await.expect("failed to connect");
        listener.block_new_connections();
        if cfg!(target_os = "linux") {
            // The filter drops the first segment of a new connection, so it is neither completed nor refused.
            assert!(timeout(Duration::from_millis(300), TcpStream::connect(address)).await.is_err());
        }
        assert!(matches!(listener.accept().await, AcceptOutcome::Connection(..)));
        let newcomer = tokio::spawn(TcpStream::connect(address));
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(listener);
        let refused = newcomer.await.expect("task panicked").expect_err("connected to closed listener");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

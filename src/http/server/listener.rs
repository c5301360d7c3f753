//! Accepting connections: when there are no descriptors left, when a client has too many, and at the end.
//!
//! - **Descriptors.** One is kept in reserve. Where there are none, it is given up for a moment, so that a newcomer is
//!   told rather than left waiting.
//! - **The end.** A connection that the system has completed, and that is closed before it is accepted, is reset,
//!   perhaps with a request on it. So on Linux a filter first lets the system drop what begins new connections; those
//!   that are under way are accepted; then the listener is closed. A client that tried meanwhile tries again by itself,
//!   and is refused before it has sent a request. Elsewhere the gap is as short as the system makes it.

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

/// Connections that the system may hold until they are accepted, unless it allows fewer.
const BACKLOG: i32 = 65_535;

/// Bytes of answers that wait in the system for a connection, beyond those under way.
#[cfg(any(target_os = "linux", target_os = "macos"))]
const UNSENT_BYTES: u32 = 128 << 10;

const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Failures of other kinds than those that pass, one after the other, that are taken for the listener's end.
const FAILURES: u32 = 60;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

pub(super) enum Accepted {
    Connection(TcpStream, SocketAddr),
    /// The process, or the system, has no descriptors or no memory for one.
    Exhausted(io::Error),
    Failed(io::Error),
}

pub(super) struct Listener {
    listener: TcpListener,
    reserve: Option<File>,
    failures: u32,
    pub refusals: Refusals,
}

/// Tells connections that get no place why. Clones share the bound of those that may read it at the same time.
#[derive(Clone)]
pub(super) struct Refusals {
    reading: Arc<Semaphore>,
}

impl Listener {
    /// Accepts from this listener. So many connections that were refused may read why at the same time.
    pub(super) fn new(listener: TcpListener, refused: usize) -> Listener {
        // Newcomers beside a crowd: the system takes as many as it is configured to (`net.core.somaxconn`).
        if let Err(error) = socket2::SockRef::from(&listener).listen(BACKLOG) {
            tracing::debug!(%error, "failed to set the size of the connection queue");
        }
        let refusals = Refusals { reading: Arc::new(Semaphore::new(refused)) };
        Listener { listener, reserve: reserve(), failures: 0, refusals }
    }

    /// The next connection. Safe to cancel.
    pub(super) async fn accept(&mut self) -> Accepted {
        if self.reserve.is_none() {
            self.reserve = reserve();
        }
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.failures = 0;
                    // Answers are written whole; waiting for more to send would only delay them.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
                    }
                    report_progress(&stream);
                    return Accepted::Connection(stream, peer);
                }
                Err(error) => error,
            };
            match error.kind() {
                // The peer gave up before it was accepted.
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset => continue,
                _ if is_exhaustion(&error) => return Accepted::Exhausted(error),
                _ => {}
            }
            self.failures += 1;
            tracing::warn!(%error, failures = self.failures, "failed to accept connection");
            if self.failures == FAILURES {
                return Accepted::Failed(error);
            }
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
    }

    /// With no descriptors left: tells the next newcomer so, at the cost of the reserve. Whether one was told.
    pub(super) async fn refuse_one(&mut self, text: &str) -> bool {
        if self.reserve.take().is_none() {
            return false;
        }
        // Somebody waits, since accepting has failed; not for long, in case somebody else took the descriptor.
        let accepted = timeout(Duration::from_millis(10), self.listener.accept()).await;
        let told = match accepted {
            Ok(Ok((stream, _))) => {
                tell(&stream, text);
                true
            }
            _ => false,
        };
        self.reserve = reserve();
        told
    }

    /// Has the system drop what begins new connections, where it can. Those under way are completed.
    pub(super) fn begin_no_more(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&self.listener).attach_filter(&drop_new_connections()) {
            tracing::debug!(%error, "failed to block new connections before closing the listener");
        }
    }
}

impl Refusals {
    /// Closes a connection that gets no place, and tells why.
    pub(super) fn refuse(&self, stream: TcpStream, text: &str) {
        tell(&stream, text);
        // Closed at once, what the peer sends would reset the connection, perhaps before it has read this.
        if let Ok(permit) = self.reading.clone().try_acquire_owned() {
            tokio::spawn(async move {
                let _permit = permit;
                let _ = timeout(REFUSED_FOR, discard(stream)).await;
            });
        }
    }
}

/// Has the system take more of an answer as soon as little is left to be sent. Otherwise it holds megabytes, and takes
/// no more until a large part of them is gone: a client that reads steadily, but not fast, would seem to take nothing
/// for a minute, and its answer to a ping would come after all of them.
fn report_progress(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::debug!(%error, "failed to set TCP_NOTSENT_LOWAT");
    }
}

/// Reads to the end of the stream, at most 64 KiB.
async fn discard(mut stream: TcpStream) {
    let mut buffer = [0; 4 << 10];
    let _ = stream.shutdown().await;
    for _ in 0..16 {
        if !stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}

/// Sends an answer as far as the system takes it at once, which for a fresh connection is all of it.
fn tell(stream: &TcpStream, text: &str) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n\
         cache-control: no-store\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.try_write(answer.as_bytes());
    // Nothing that has come is left unread, or the system would reset the connection rather than close it.
    for _ in 0..16 {
        if !stream.try_read(&mut [0; 4 << 10]).is_ok_and(|read| read > 0) {
            break;
        }
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether there are no descriptors, or there is no memory: a state that passes.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Drops segments with SYN and without ACK. A socket's filter sees a segment from the TCP header on.
#[cfg(target_os = "linux")]
fn drop_new_connections() -> [socket2::SockFilter; 5] {
    use socket2::SockFilter;
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    // Classic BPF: load a byte, AND, jump if equal, return with all of the segment or with nothing of it.
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

/// How many connections the descriptors of the process allow, with as many kept for files as it is likely to need.
/// `None` where the system does not tell.
pub(super) fn connections_for_descriptors() -> Option<(usize, usize)> {
    let descriptors = usize::try_from(getrlimit(Resource::Nofile).current?).ok()?;
    Some((descriptors, connections_for(descriptors)))
}

/// As many as leave a quarter, at least 48 and at most 1,024, for files and requests to others, and enough for
/// connections that leave, that wait for a place, and that were refused.
fn connections_for(descriptors: usize) -> usize {
    let files = (descriptors / 4).clamp(48, 1_024);
    let left = descriptors.saturating_sub(files);
    (left / 12 * 8).max(left.saturating_sub(512 + 3 * 64)).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::connections::{max_leaving, max_waiting};
    use super::*;

    #[test]
    fn file_descriptors_are_reserved_for_files() {
        for (descriptors, connections) in
            [(0, 1), (48, 1), (64, 8), (96, 32), (256, 128), (1_024, 512), (20_000, 18_272)]
        {
            assert_eq!(connections_for(descriptors), connections, "{descriptors}");
            let others = max_leaving(connections) + 3 * max_waiting(connections);
            assert!(descriptors < 64 || connections + others + 48 <= descriptors, "{descriptors}");
        }
    }

    #[tokio::test]
    async fn pending_connections_are_accepted_and_new_ones_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut listener = Listener::new(listener, 1);
        let _under_way = TcpStream::connect(address).await.expect("a connection");
        listener.begin_no_more();
        if cfg!(target_os = "linux") {
            // Nothing is completed, and nothing refused.
            assert!(timeout(Duration::from_millis(300), TcpStream::connect(address)).await.is_err());
        }
        assert!(matches!(listener.accept().await, Accepted::Connection(..)));
        let newcomer = tokio::spawn(TcpStream::connect(address));
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(listener);
        let refused = newcomer.await.expect("no panic").expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

//! The connections of other nodes: a bounded number at once. Further ones wait to be accepted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections at once. Each node keeps one.
const AT_ONCE: usize = 1_024;

/// Before the next attempt to accept one, when the process has no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, and its place among those that there may be.
pub(super) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// The connections that a listener accepts. It never ends.
pub(super) fn incoming(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    futures::stream::unfold((listener, places), |(listener, places)| async move {
        let place = places.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Slower without, and right.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Connection { stream, _place: place }), (listener, places)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of another node is not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
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

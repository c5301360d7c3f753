//! A TCP connection with the two deadlines that the HTTP implementation lacks.
//!
//! - The first bytes must come in time. The implementation tells HTTP/2 from HTTP/1.1 by them and waits without a limit,
//!   so a deadline runs while what was read could still become HTTP/2's preface. Then the version's own limits hold.
//! - A peer must take what is written. One that stops reading in the middle of a body would hold the body, and the
//!   query behind it, for ever. Any progress starts the time anew.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// See the module. A missed deadline is an error of the kind `TimedOut`, which ends the connection.
pub(super) struct TimedStream {
    stream: TcpStream,
    /// Until when the first bytes must come; `None` once they have told the version.
    first_bytes: Option<Pin<Box<Sleep>>>,
    /// Bytes read so far, all of them equal to the preface's.
    matched: usize,
    write_stall: Duration,
    /// Until when a pending write must make progress; `None` when no write is pending.
    writing: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    /// Starts the deadline for the first bytes.
    pub(super) fn new(stream: TcpStream, first_bytes: Duration, write_stall: Duration) -> Self {
        let first_bytes = Some(Box::pin(sleep(first_bytes)));
        TimedStream { stream, first_bytes, matched: 0, write_stall, writing: None }
    }

    /// Takes note of bytes read while the version is unknown.
    fn note(&mut self, read: &[u8]) {
        let expected = HTTP2_PREFACE.get(self.matched..).unwrap_or_default();
        // Nothing read is the end of the stream, which is settled too.
        if !read.is_empty() && read.len() < expected.len() && expected.starts_with(read) {
            self.matched += read.len();
        } else {
            self.first_bytes = None;
        }
    }

    /// The outcome of an attempt to write, or the error that its time is over.
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let write_stall = self.write_stall;
        let deadline = self.writing.get_or_insert_with(|| Box::pin(sleep(write_stall)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(deadline) = &mut this.first_bytes else { return read };
        match read {
            Poll::Pending => deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
            Poll::Ready(outcome) => {
                this.note(&buffer.filled()[before..]);
                Poll::Ready(outcome)
            }
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

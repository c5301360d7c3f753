//! A TCP connection with the deadlines that hyper lacks, and an end that loses no bytes.
//!
//! - The first bytes must arrive in time. hyper detects HTTP/2 by them and waits without a limit, so a deadline applies
//!   as long as the bytes can still become the HTTP/2 preface. Then the limits of the version apply.
//! - A client must read what is written. If it stopped in the middle of a body, the body and its query would wait
//!   forever. The time starts again when the client has read all bytes, or [`WRITE_FLOOR_BYTES`]: a byte now and then
//!   is not enough.
//! - An HTTP/2 client that sends too many control frames is disconnected ([`super::http2_flood`]).
//! - Targets of HTTP/1.1 requests are read with invalid bytes escaped ([`super::uri_repair`]).
//! - An idle connection that must end reports the end of the stream if there is nothing to read.
//! - After the end, bytes from the client are discarded for a moment. Otherwise, the system would reset the connection,
//!   and the client might lose the end of the last response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connection_state::{CloseReason, ConnectionState, WRITE_FLOOR_BYTES};
use super::http2_flood::FrameCredit;
use super::uri_repair::{ParsedHead, UriRepair};

/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long, and how many bytes, are read after the end of a connection.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// A missed deadline is an error of the kind `TimedOut`, which ends the connection.
pub(super) struct TimedStream<S = TcpStream> {
    stream: S,
    /// The deadline of the first bytes; `None` once the version is known.
    first_bytes: Option<Pin<Box<Sleep>>>,
    /// Bytes read so far, all of them equal to the preface.
    matched: usize,
    /// The deadline for writing; `None` if the client has read everything.
    writing: Option<Pin<Box<Sleep>>>,
    /// Bytes written since that time began.
    written: usize,
    state: Arc<ConnectionState>,
    frames: Option<FrameCredit>,
    lines: UriRepair,
    /// The end of the connection, once its writing side is shut down.
    lingering: Option<LingerState>,
}

struct LingerState {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>, head: Arc<ParsedHead>) -> Self {
        TimedStream {
            stream,
            first_bytes: Some(Box::pin(sleep(state.limits.header_read_timeout))),
            matched: 0,
            writing: None,
            written: 0,
            state,
            frames: None,
            lines: UriRepair::new(head),
            lingering: None,
        }
    }

    /// Records bytes that were read. Fails if they are a flood of control frames.
    fn note(&mut self, read: &[u8]) -> io::Result<()> {
        let frames = if self.first_bytes.is_some() { self.tell_version(read) } else { read };
        if self.frames.as_mut().is_none_or(|known| known.record_read(frames)) {
            Ok(())
        } else {
            let _ = self.state.fault.set(CloseReason::Flooding);
            Err(io::Error::new(io::ErrorKind::InvalidData, "too many HTTP/2 control frames"))
        }
    }

    /// The bytes after the preface, if they contain its end.
    fn tell_version<'a>(&mut self, read: &'a [u8]) -> &'a [u8] {
        let expected = HTTP2_PREFACE.get(self.matched..).unwrap_or_default();
        // Nothing read is the end of the stream, which decides, too.
        if !read.is_empty() && read.len() < expected.len() && expected.starts_with(read) {
            self.matched += read.len();
        } else {
            self.first_bytes = None;
            if !expected.is_empty()
                && let Some(frames) = read.strip_prefix(expected)
            {
                self.state.speaks_http2();
                self.frames = Some(FrameCredit::new());
                return frames;
            }
        }
        &[]
    }

    /// The outcome of an attempt to write `offered` bytes, or an error if the deadline has passed.
    fn timed(
        &mut self,
        context: &mut Context<'_>,
        offered: usize,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(written)) => {
                self.state.wrote(written, written == offered);
                if let Some(frames) = &mut self.frames {
                    frames.record_written(written);
                }
                self.written = self.written.saturating_add(written);
                if written == offered || self.written >= WRITE_FLOOR_BYTES {
                    self.writing = None;
                    self.written = 0;
                }
                Poll::Ready(Ok(written))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let write_stall = self.state.limits.write_stall;
                let deadline = self.writing.get_or_insert_with(|| Box::pin(sleep(write_stall)));
                ready!(deadline.as_mut().poll(context));
                let _ = self.state.fault.set(CloseReason::Stalled);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        loop {
            if this.lines.fill(buffer) {
                this.state.read(buffer.filled().len() - before);
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut this.stream).poll_read(context, buffer) {
                Poll::Pending => {
                    if let Some(deadline) = &mut this.first_bytes
                        && deadline.as_mut().poll(context).is_ready()
                    {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    return if this.state.is_at_end(context) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
                Poll::Ready(outcome) => {
                    let read = &buffer.filled()[before..];
                    this.state.read(read.len());
                    let outcome = outcome.and(this.note(read));
                    let ended = read.is_empty();
                    let passed = this.lines.hold_back(read);
                    buffer.set_filled(before + passed);
                    // Where something was read, but nothing may pass as it is, it is changed: empty is the end.
                    if passed > 0 || ended || outcome.is_err() {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, bytes.len(), outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed(context, slices.iter().map(|slice| slice.len()).sum(), outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let lingering =
            this.lingering.get_or_insert_with(|| LingerState { until: Box::pin(sleep(LINGER)), bytes: LINGER_BYTES });
        let mut discarded = [0; 4 << 10];
        while lingering.bytes > 0 {
            let mut buffer = ReadBuf::new(&mut discarded);
            match Pin::new(&mut this.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.bytes = lingering.bytes.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(lingering.until.as_mut().poll(context));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const STALL: Duration = Duration::from_millis(100);

    /// A stream between two, of which the other side holds back what is written past 1,024 bytes.
    fn stream() -> (TimedStream<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(1_024);
        (TimedStream::new(ours, ConnectionState::with_timeouts(STALL), Arc::default()), theirs)
    }

    #[tokio::test]
    async fn idle_connection_is_read_before_it_ends() {
        let (ours, mut theirs) = duplex(1_024);
        let state = ConnectionState::with_timeouts(Duration::from_secs(60));
        let mut ours = TimedStream::new(ours, state.clone(), Arc::default());
        theirs.write_all(b"GET").await.expect("room");
        state.release();
        let mut read = vec![0; 64];
        assert_eq!(ours.read(&mut read).await.expect("bytes"), 3);
        // A head has begun, so the connection is not idle; with its request it is again, when that has been answered.
        let request = state.begin();
        let (end, ()) = tokio::join!(ours.read(&mut read), async {
            sleep(STALL).await;
            drop(request);
        });
        assert_eq!(end.expect("the end"), 0);
    }

    #[tokio::test]
    async fn bytes_after_the_end_are_discarded() {
        let (mut ours, mut theirs) = stream();
        let sending = async {
            let sent = theirs.write_all(&[0; 100_000]).await;
            drop(theirs);
            sent
        };
        let (ended, sent) = tokio::join!(ours.shutdown(), sending);
        ended.expect("an end");
        sent.expect("all of it is taken");
    }

    #[tokio::test]
    async fn slow_reader_is_disconnected() {
        let (mut ours, mut theirs) = stream();
        let reading = async {
            loop {
                if theirs.read_u8().await.is_err() {
                    return;
                }
                sleep(STALL / 10).await;
            }
        };
        let written = tokio::select! {
            written = ours.write_all(&[0; 1 << 20]) => written,
            () = reading => panic!("nobody closes"),
        };
        assert_eq!(written.expect_err("too slow").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn idle_time_between_responses_is_not_a_stall() {
        let (mut ours, mut theirs) = stream();
        for _ in 0..3 {
            // More than is held back, so that the time begins each time; then a pause.
            let mut taken = vec![0; 2_000];
            let (written, read) = tokio::join!(ours.write_all(&[0; 2_000]), theirs.read_exact(&mut taken));
            written.expect("taken");
            read.expect("given");
            sleep(STALL * 2).await;
        }
    }
}

//! A TCP connection with deadlines that hyper does not have, and an end that loses no bytes.
//!
//! - The first bytes must arrive in time. hyper waits for them without a limit to detect HTTP/2, so a deadline applies
//!   as long as the bytes might still become the HTTP/2 preface. Then the limits of the protocol version apply.
//! - A client must read the written data. Otherwise, a response body and its query would wait forever. The deadline is
//!   extended only when the client has read all bytes or [`MIN_WRITE_PROGRESS_BYTES`]: single bytes are not enough.
//! - An HTTP/2 client that sends too many control frames is disconnected ([`super::http2_flood`]).
//! - Invalid bytes in the targets of HTTP/1.1 requests are escaped ([`super::uri_repair`]).
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

use super::connection_state::{CloseReason, ConnectionState, MIN_WRITE_PROGRESS_BYTES};
use super::http2_flood::ControlFrameCredit;
use super::uri_repair::{ParsedBodyLength, UriRepair};

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1 << 20;

/// A TCP stream on which a missed deadline is an error of the kind `TimedOut`, which ends the connection.
pub(super) struct TimedStream<S = TcpStream> {
    stream: S,
    /// The deadline for the first bytes of the connection. `None` once the protocol version is known.
    preface_deadline: Option<Pin<Box<Sleep>>>,
    /// The number of bytes read so far, all of which match the HTTP/2 preface.
    preface_bytes_matched: usize,
    /// The deadline until which the client must read written bytes. `None` if the client has read everything.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// The number of bytes written since `write_deadline` was set.
    bytes_written: usize,
    state: Arc<ConnectionState>,
    frame_credit: Option<ControlFrameCredit>,
    uri_repair: UriRepair,
    /// Set when the writing side of the connection is shut down and bytes from the client are only discarded.
    linger: Option<LingerState>,
}

struct LingerState {
    deadline: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>, head: Arc<ParsedBodyLength>) -> Self {
        TimedStream {
            stream,
            preface_deadline: Some(Box::pin(sleep(state.limits.header_read_timeout))),
            preface_bytes_matched: 0,
            write_deadline: None,
            bytes_written: 0,
            state,
            frame_credit: None,
            uri_repair: UriRepair::new(head),
            linger: None,
        }
    }

    /// Records bytes read from the client. Returns an error if the client exceeds the limit for control frames.
    fn charge_bytes_read(&mut self, read: &[u8]) -> io::Result<()> {
        let frames = if self.preface_deadline.is_some() { self.match_http2_preface(read) } else { read };
        if self.frame_credit.as_mut().is_none_or(|credit| credit.try_charge_frames(frames)) {
            Ok(())
        } else {
            let _ = self.state.stream_fault.set(CloseReason::Flooding);
            Err(io::Error::new(io::ErrorKind::InvalidData, "too many HTTP/2 control frames"))
        }
    }

    /// Returns the bytes after the HTTP/2 preface if `read` contains the end of the preface, and otherwise nothing.
    fn match_http2_preface<'a>(&mut self, read: &'a [u8]) -> &'a [u8] {
        let expected = HTTP2_PREFACE.get(self.preface_bytes_matched..).unwrap_or_default();
        // An empty read is the end of the stream, so the bytes can no longer become the HTTP/2 preface.
        if !read.is_empty() && read.len() < expected.len() && expected.starts_with(read) {
            self.preface_bytes_matched += read.len();
        } else {
            self.preface_deadline = None;
            if !expected.is_empty()
                && let Some(frames) = read.strip_prefix(expected)
            {
                self.state.set_http2();
                self.frame_credit = Some(ControlFrameCredit::new());
                return frames;
            }
        }
        &[]
    }

    /// Handles the outcome of a write of `offered` bytes. Returns an error if the write deadline has passed.
    fn handle_write_outcome(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(written)) => {
                self.state.record_write(written, written == offered);
                if let Some(frame_credit) = &mut self.frame_credit {
                    frame_credit.add_write_credit(written);
                }
                self.bytes_written = self.bytes_written.saturating_add(written);
                if written == offered || self.bytes_written >= MIN_WRITE_PROGRESS_BYTES {
                    self.write_deadline = None;
                    self.bytes_written = 0;
                }
                Poll::Ready(Ok(written))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let write_timeout = self.state.limits.write_timeout;
                let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(write_timeout)));
                ready!(deadline.as_mut().poll(cx));
                let _ = self.state.stream_fault.set(CloseReason::Stalled);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        loop {
            if this.uri_repair.try_fill_buffer(buffer) {
                this.state.record_read(buffer.filled().len() - before);
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut this.stream).poll_read(cx, buffer) {
                Poll::Pending => {
                    if let Some(deadline) = &mut this.preface_deadline
                        && deadline.as_mut().poll(cx).is_ready()
                    {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    return if this.state.poll_must_report_eof(cx) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
                Poll::Ready(outcome) => {
                    let read = &buffer.filled()[before..];
                    this.state.record_read(read.len());
                    let outcome = outcome.and(this.charge_bytes_read(read));
                    let ended = read.is_empty();
                    let passed = this.uri_repair.pass_or_hold_back(read);
                    buffer.set_filled(before + passed);
                    // If all bytes are held back, the loop reads again: an empty read would mean the end of the stream.
                    if passed > 0 || ended || outcome.is_err() {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.handle_write_outcome(cx, bytes.len(), outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.handle_write_outcome(cx, slices.iter().map(|slice| slice.len()).sum(), outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let new_linger = || LingerState { deadline: Box::pin(sleep(LINGER_TIMEOUT)), bytes_left: MAX_LINGER_BYTES };
        let linger = this.linger.get_or_insert_with(new_linger);
        let mut discarded = [0; 4 << 10];
        while linger.bytes_left > 0 {
            let mut buffer = ReadBuf::new(&mut discarded);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    linger.bytes_left = linger.bytes_left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(linger.deadline.as_mut().poll(cx));
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

    const STALL_TIMEOUT: Duration = Duration::from_millis(100);

    /// Returns a connected pair of streams whose buffer holds 1,024 bytes.
    fn stream_pair() -> (TimedStream<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(1_024);
        (TimedStream::new(ours, ConnectionState::with_timeouts(STALL_TIMEOUT), Arc::default()), theirs)
    }

    #[tokio::test]
    async fn idle_connection_is_read_before_it_ends() {
        let (ours, mut theirs) = duplex(1_024);
        let state = ConnectionState::with_timeouts(Duration::from_secs(60));
        let mut ours = TimedStream::new(ours, state.clone(), Arc::default());
        theirs.write_all(b"GET").await.expect("failed to write");
        state.release_slot();
        let mut read = vec![0; 64];
        assert_eq!(ours.read(&mut read).await.expect("failed to read"), 3);
        // After the first bytes of a request head, the connection is idle again only when the request has ended.
        let request = state.begin_request();
        let (end, ()) = tokio::join!(ours.read(&mut read), async {
            sleep(STALL_TIMEOUT).await;
            drop(request);
        });
        assert_eq!(end.expect("failed to read"), 0);
    }

    #[tokio::test]
    async fn bytes_after_the_end_are_discarded() {
        let (mut ours, mut theirs) = stream_pair();
        let sending = async {
            let sent = theirs.write_all(&[0; 100_000]).await;
            drop(theirs);
            sent
        };
        let (ended, sent) = tokio::join!(ours.shutdown(), sending);
        ended.expect("failed to shut down");
        sent.expect("failed to send");
    }

    #[tokio::test]
    async fn slow_reader_is_disconnected() {
        let (mut ours, mut theirs) = stream_pair();
        let slow_reads = async {
            loop {
                if theirs.read_u8().await.is_err() {
                    return;
                }
                sleep(STALL_TIMEOUT / 10).await;
            }
        };
        let written = tokio::select! {
            written = ours.write_all(&[0; 1 << 20]) => written,
            () = slow_reads => panic!("stream closed without an error"),
        };
        assert_eq!(written.expect_err("slow reader was not disconnected").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn idle_time_between_responses_is_not_a_stall() {
        let (mut ours, mut theirs) = stream_pair();
        for _ in 0..3 {
            // Each write exceeds the buffer of the stream, so it sets a deadline. The time without traffic follows.
            let mut received = vec![0; 2_000];
            let (written, read) = tokio::join!(ours.write_all(&[0; 2_000]), theirs.read_exact(&mut received));
            written.expect("failed to write");
            read.expect("failed to read");
            sleep(STALL_TIMEOUT * 2).await;
        }
    }
}

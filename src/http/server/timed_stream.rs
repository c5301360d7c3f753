//! A TCP connection with the deadlines that the HTTP implementation lacks, and an end at which nothing is lost.
//!
//! - The first bytes must come in time. The implementation tells HTTP/2 from HTTP/1.1 by them and waits without a
//!   limit, so a deadline runs while what was read could still become HTTP/2's preface. Then the version's own limits
//!   hold.
//! - A peer must take what is written. One that stops reading in the middle of a body would hold the body, and the
//!   query behind it, for ever. The time starts anew when the peer has taken all there was, or enough of it: a byte now
//!   and then is not enough.
//! - An HTTP/2 client that sends many frames beside its requests is cut ([`super::frames`]).
//! - Targets of HTTP/1.1 requests are read with the bytes escaped that no URI may hold (`super::request_lines`).
//! - A connection that is to end while it is idle reports the end of the stream, where there is nothing to read.
//! - What the peer still sends when the connection has ended is read for a moment and thrown away. Otherwise the system
//!   would reset the connection, and the peer might lose the end of the last answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::activity::{Activity, Cut, WRITE_FLOOR_BYTES};
use super::frames::Frames;
use super::request_lines::{ParsedHead, RequestLines};

/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long, and how many bytes, are read after the end of a connection.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// See the module. A missed deadline is an error of the kind `TimedOut`, which ends the connection.
pub(super) struct TimedStream<S = TcpStream> {
    stream: S,
    /// Until when the first bytes must come; `None` once they have told the version.
    first_bytes: Option<Pin<Box<Sleep>>>,
    /// Bytes read so far, all of them equal to the preface's.
    matched: usize,
    /// Until when enough must be written; `None` when the peer has taken all that was offered.
    writing: Option<Pin<Box<Sleep>>>,
    /// Bytes written since that time began.
    written: usize,
    activity: Arc<Activity>,
    frames: Option<Frames>,
    lines: RequestLines,
    /// The end of the connection, once its writing side is shut down.
    lingering: Option<Lingering>,
}

struct Lingering {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> TimedStream<S> {
    /// Starts the deadline for the first bytes. `head` is told of every request that is made of what is read.
    pub(super) fn new(stream: S, activity: Arc<Activity>, head: Arc<ParsedHead>) -> Self {
        TimedStream {
            stream,
            first_bytes: Some(Box::pin(sleep(activity.limits.header_read_timeout))),
            matched: 0,
            writing: None,
            written: 0,
            activity,
            frames: None,
            lines: RequestLines::new(head),
            lingering: None,
        }
    }

    /// Takes note of bytes read, and of what they tell of the version; an error when they are a flood.
    fn note(&mut self, read: &[u8]) -> io::Result<()> {
        let frames = if self.first_bytes.is_some() { self.tell_version(read) } else { read };
        if self.frames.as_mut().is_none_or(|known| known.read(frames)) {
            Ok(())
        } else {
            let _ = self.activity.fault.set(Cut::Flooding);
            Err(io::Error::new(io::ErrorKind::InvalidData, "too many HTTP/2 control frames"))
        }
    }

    /// What comes after the preface, if this is its end.
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
                self.activity.speaks_http2();
                self.frames = Some(Frames::new());
                return frames;
            }
        }
        &[]
    }

    /// The outcome of an attempt to write `offered` bytes, or the error that the time for it is over.
    fn timed(
        &mut self,
        context: &mut Context<'_>,
        offered: usize,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(written)) => {
                self.activity.wrote(written, written == offered);
                if let Some(frames) = &mut self.frames {
                    frames.wrote(written);
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
                let write_stall = self.activity.limits.write_stall;
                let deadline = self.writing.get_or_insert_with(|| Box::pin(sleep(write_stall)));
                ready!(deadline.as_mut().poll(context));
                let _ = self.activity.fault.set(Cut::Stalled);
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
                this.activity.read(buffer.filled().len() - before);
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut this.stream).poll_read(context, buffer) {
                Poll::Pending => {
                    if let Some(deadline) = &mut this.first_bytes
                        && deadline.as_mut().poll(context).is_ready()
                    {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    return if this.activity.is_over(context) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
                Poll::Ready(outcome) => {
                    let read = &buffer.filled()[before..];
                    this.activity.read(read.len());
                    let outcome = outcome.and(this.note(read));
                    let ended = read.is_empty();
                    let passed = this.lines.take(read);
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
            this.lingering.get_or_insert_with(|| Lingering { until: Box::pin(sleep(LINGER)), bytes: LINGER_BYTES });
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
        (TimedStream::new(ours, Activity::with_times(STALL), Arc::default()), theirs)
    }

    #[tokio::test]
    async fn an_idle_connection_that_is_to_end_gives_what_came_before_its_end() {
        let (ours, mut theirs) = duplex(1_024);
        let activity = Activity::with_times(Duration::from_secs(60));
        let mut ours = TimedStream::new(ours, activity.clone(), Arc::default());
        theirs.write_all(b"GET").await.expect("room");
        activity.release();
        let mut read = vec![0; 64];
        assert_eq!(ours.read(&mut read).await.expect("bytes"), 3);
        // A head has begun, so the connection is not idle; with its request it is again, when that has been answered.
        let request = activity.begin();
        let (end, ()) = tokio::join!(ours.read(&mut read), async {
            sleep(STALL).await;
            drop(request);
        });
        assert_eq!(end.expect("the end"), 0);
    }

    #[tokio::test]
    async fn what_comes_after_the_end_is_read_for_a_moment() {
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
    async fn a_byte_now_and_then_is_not_enough() {
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
    async fn a_peer_that_takes_everything_may_take_pauses_between_answers() {
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

//! HTTP bodies that record whether the service or the client must act next. Slow response bodies fail.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::connection_state::{InFlightRequest, MIN_WRITE_PROGRESS_BYTES, RequestBodyWait};

#[derive(Debug, thiserror::Error)]
#[error("the response took longer than {} s", .0.as_secs())]
struct ResponseTimeoutError(Duration);

/// A response body that fails if it takes too long. Its request is in flight until the body is dropped.
///
/// Over HTTP/2, hyper accepts frames of any size and drops a body before the client has read it. So hyper gets the data
/// in chunks, and each chunk keeps the request in flight until the chunk is sent.
pub(super) struct TimedResponseBody {
    body: Body,
    timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    request_id: Option<HeaderValue>,
    in_flight: Arc<InFlightRequest>,
    http2: bool,
    unsent: Bytes,
}

struct InFlightChunk {
    pub bytes: Bytes,
    in_flight: Arc<InFlightRequest>,
}

impl AsRef<[u8]> for InFlightChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for InFlightChunk {
    fn drop(&mut self) {
        self.in_flight.record_client_read(self.bytes.len());
    }
}

impl TimedResponseBody {
    /// Wraps a response body and starts its timeout. The request ID is for the log.
    pub(super) fn new(
        body: Body,
        timeout: Duration,
        request_id: Option<HeaderValue>,
        in_flight: InFlightRequest,
        http2: bool,
    ) -> TimedResponseBody {
        in_flight.start_response();
        let deadline = Box::pin(sleep(timeout));
        let in_flight = Arc::new(in_flight);
        TimedResponseBody { body, timeout, deadline, request_id, in_flight, http2, unsent: Bytes::new() }
    }

    fn next_chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.unsent.split_to(self.unsent.len().min(MIN_WRITE_PROGRESS_BYTES));
        Frame::data(Bytes::from_owner(InFlightChunk { bytes, in_flight: self.in_flight.clone() }))
    }
}

impl http_body::Body for TimedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let is_new = this.unsent.is_empty();
        let frame = match is_new {
            true => Pin::new(&mut this.body).poll_frame(cx),
            false => Poll::Ready(Some(Ok(this.next_chunk()))),
        };
        let late = match &frame {
            Poll::Ready(frame) => {
                // Even after the last frame of the body, the client might not have read earlier frames.
                this.in_flight.start_waiting_for_client();
                // Comparing the deadline with the clock is cheaper than polling the timer.
                matches!(frame, Some(Ok(_))) && this.deadline.deadline() <= Instant::now()
            }
            Poll::Pending => {
                this.in_flight.end_waiting_for_client();
                this.deadline.as_mut().poll(cx).is_ready()
            }
        };
        if !late {
            return match frame {
                Poll::Ready(Some(Ok(frame))) if this.http2 && is_new => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        this.unsent = data;
                        Poll::Ready(Some(Ok(this.next_chunk())))
                    }
                    Ok(empty) => Poll::Ready(Some(Ok(Frame::data(empty)))),
                    Err(other) => Poll::Ready(Some(Ok(other))),
                },
                frame => frame,
            };
        }
        let error = ResponseTimeoutError(this.timeout);
        let id = this.request_id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
        tracing::warn!(id, %error, "interrupted response body");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.unsent.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A request body that records how long its handler has waited for the client, without the time of the handler itself.
/// A wait continues until enough bytes have arrived.
pub(super) struct TimedRequestBody<B> {
    body: B,
    body_wait: RequestBodyWait,
    min_bytes_per_s: u64,
    wait_started_at: Option<Instant>,
    /// The total time of waiting for the client, and the bytes received, since the client last sent bytes fast enough.
    wait_time: Duration,
    received_bytes: u64,
}

impl<B> TimedRequestBody<B> {
    /// `min_bytes_per_s` applies only to the time in which the handler waits. If it is 0, any byte ends a wait.
    pub(super) fn new(body: B, body_wait: RequestBodyWait, min_bytes_per_s: u64) -> TimedRequestBody<B> {
        let wait_time = Duration::ZERO;
        TimedRequestBody { body, body_wait, min_bytes_per_s, wait_started_at: None, wait_time, received_bytes: 0 }
    }

    /// Records received bytes of a request body. `None` means that no bytes are available, so the handler must wait.
    fn update_body_wait(&mut self, received_bytes: Option<usize>) {
        let now = Instant::now();
        let Some(bytes) = received_bytes else {
            if self.wait_started_at.is_none() {
                self.wait_started_at = Some(now);
                self.body_wait.set_body_wait_since(now.checked_sub(self.wait_time).or(Some(now)));
            }
            return;
        };
        if let Some(since) = self.wait_started_at.take() {
            self.wait_time += now.saturating_duration_since(since);
            self.body_wait.set_body_wait_since(None);
        }
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
        if self.received_bytes as f64 >= (self.min_bytes_per_s as f64 * self.wait_time.as_secs_f64()).max(1.0) {
            self.wait_time = Duration::ZERO;
            self.received_bytes = 0;
        }
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for TimedRequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let this = &mut *self;
        match &frame {
            Poll::Pending => this.update_body_wait(None),
            Poll::Ready(Some(Ok(frame))) => this.update_body_wait(Some(frame.data_ref().map_or(0, Bytes::len))),
            Poll::Ready(_) => this.update_body_wait(Some(0)),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::StreamBody;

    use super::super::connection_state::ConnectionState;
    use super::*;

    /// Returns the start of the wait for the client after each chunk, if chunks of these sizes arrive every 50 ms.
    async fn wait_starts(bytes_per_s: u64, chunks: &[usize]) -> Vec<Option<Instant>> {
        let state = ConnectionState::with_timeouts(Duration::from_secs(600));
        let request = state.begin_request();
        let (mut send, receive) = futures::channel::mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
        let mut body = TimedRequestBody::new(StreamBody::new(receive), request.body_wait.clone(), bytes_per_s);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut starts = Vec::new();
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
        for bytes in chunks {
            sleep(Duration::from_millis(50)).await;
            send.try_send(Ok(Frame::data(vec![0; *bytes].into()))).expect("failed to send chunk");
            assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
            assert_eq!(state.awaits_client_since(), None, "the service is next");
            assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
            starts.push(state.awaits_client_since());
        }
        starts
    }

    fn wait_start_spread(starts: &[Option<Instant>]) -> Duration {
        let first = starts[0].expect("first wait");
        starts[starts.len() - 1].expect("last wait").saturating_duration_since(first)
    }

    #[tokio::test]
    async fn slow_request_body_does_not_end_client_wait() {
        let dripped = wait_starts(1_024, &[1, 1, 1, 1]).await;
        assert!(wait_start_spread(&dripped) < Duration::from_millis(50), "{dripped:?}");
        // Large chunks end the wait for the client, no matter how late they arrive.
        let steady = wait_starts(1_024, &[1 << 20; 4]).await;
        assert!(wait_start_spread(&steady) >= Duration::from_millis(150), "{steady:?}");
        let any = wait_starts(0, &[1, 1, 1, 1]).await;
        assert!(wait_start_spread(&any) >= Duration::from_millis(150), "{any:?}");
    }
}

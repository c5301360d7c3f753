//! Bodies that record whether the service or the client is next, and responses that fail if they take too long.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::connection_state::{InFlightRequest, RequestTurn, WRITE_FLOOR_BYTES};

#[derive(Debug, thiserror::Error)]
#[error("the response took longer than {} s", .0.as_secs())]
struct TookTooLong(Duration);

/// A response body that fails if it takes too long, and whose request is in flight until it is dropped.
///
/// Over HTTP/2, hyper takes frames of any size and drops a body before its client has read it. So it gets the frames in
/// pieces, each of which keeps the request in flight until it is sent.
pub(super) struct TimedResponseBody {
    body: Body,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    request_id: Option<HeaderValue>,
    in_flight: Arc<InFlightRequest>,
    http2: bool,
    rest: Bytes,
}

struct BodyPiece {
    pub bytes: Bytes,
    in_flight: Arc<InFlightRequest>,
}

impl AsRef<[u8]> for BodyPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for BodyPiece {
    fn drop(&mut self) {
        self.in_flight.record_read(self.bytes.len());
    }
}

impl TimedResponseBody {
    /// Starts the time. The ID of the request is for the log.
    pub(super) fn new(
        body: Body,
        limit: Duration,
        request_id: Option<HeaderValue>,
        in_flight: InFlightRequest,
        http2: bool,
    ) -> TimedResponseBody {
        in_flight.start_response();
        let deadline = Box::pin(sleep(limit));
        TimedResponseBody {
            body,
            limit,
            deadline,
            request_id,
            in_flight: Arc::new(in_flight),
            http2,
            rest: Bytes::new(),
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(WRITE_FLOOR_BYTES));
        Frame::data(Bytes::from_owner(BodyPiece { bytes, in_flight: self.in_flight.clone() }))
    }
}

impl http_body::Body for TimedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let is_new = this.rest.is_empty();
        let frame = match is_new {
            true => Pin::new(&mut this.body).poll_frame(context),
            false => Poll::Ready(Some(Ok(this.piece()))),
        };
        let late = match &frame {
            Poll::Ready(frame) => {
                // At the end, earlier frames can still wait.
                this.in_flight.wait_for_client();
                // To register the timer costs more than to read the clock.
                matches!(frame, Some(Ok(_))) && this.deadline.deadline() <= Instant::now()
            }
            Poll::Pending => {
                this.in_flight.wait_for_service();
                this.deadline.as_mut().poll(context).is_ready()
            }
        };
        if !late {
            return match frame {
                Poll::Ready(Some(Ok(frame))) if this.http2 && is_new => match frame.into_data() {
                    Ok(part) if !part.is_empty() => {
                        this.rest = part;
                        Poll::Ready(Some(Ok(this.piece())))
                    }
                    Ok(empty) => Poll::Ready(Some(Ok(Frame::data(empty)))),
                    Err(other) => Poll::Ready(Some(Ok(other))),
                },
                frame => frame,
            };
        }
        let error = TookTooLong(this.limit);
        let id = this.request_id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
        tracing::warn!(id, %error, "interrupted response body");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A request body that records when its handler began to wait for the client, without the time of the handler. Too few
/// bytes do not end the wait.
pub(super) struct TimedRequestBody<B> {
    body: B,
    turn: RequestTurn,
    bytes_per_s: u64,
    /// When the handler began to wait.
    since: Option<Instant>,
    /// The wait, and the bytes that arrived, since the client last sent enough.
    waited: Duration,
    received_bytes: u64,
}

impl<B> TimedRequestBody<B> {
    /// This many bytes per second of waiting are enough. For 0, any byte is enough.
    pub(super) fn new(body: B, turn: RequestTurn, bytes_per_s: u64) -> TimedRequestBody<B> {
        TimedRequestBody { body, turn, bytes_per_s, since: None, waited: Duration::ZERO, received_bytes: 0 }
    }

    /// Records bytes that arrived; `None` if there are none yet.
    fn note(&mut self, received_bytes: Option<usize>) {
        let now = Instant::now();
        let Some(bytes) = received_bytes else {
            if self.since.is_none() {
                self.since = Some(now);
                self.turn.set(now.checked_sub(self.waited).or(Some(now)));
            }
            return;
        };
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
            self.turn.set(None);
        }
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
        if self.received_bytes as f64 >= (self.bytes_per_s as f64 * self.waited.as_secs_f64()).max(1.0) {
            self.waited = Duration::ZERO;
            self.received_bytes = 0;
        }
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for TimedRequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let this = &mut *self;
        match &frame {
            Poll::Pending => this.note(None),
            Poll::Ready(Some(Ok(frame))) => this.note(Some(frame.data_ref().map_or(0, Bytes::len))),
            Poll::Ready(_) => this.note(Some(0)),
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

    /// Since when it is the client's turn, after each of these many bytes has come 50 ms after the one before.
    async fn turns(bytes_per_s: u64, came: &[usize]) -> Vec<Option<Instant>> {
        let state = ConnectionState::with_timeouts(Duration::from_secs(600));
        let request = state.begin();
        let (mut send, receive) = futures::channel::mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
        let mut body = TimedRequestBody::new(StreamBody::new(receive), request.turn.clone(), bytes_per_s);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut turns = Vec::new();
        assert!(Pin::new(&mut body).poll_frame(&mut context).is_pending());
        for bytes in came {
            sleep(Duration::from_millis(50)).await;
            send.try_send(Ok(Frame::data(vec![0; *bytes].into()))).expect("there is room");
            assert!(Pin::new(&mut body).poll_frame(&mut context).is_ready());
            assert_eq!(state.waiting_since(), None, "it is the handler's turn");
            assert!(Pin::new(&mut body).poll_frame(&mut context).is_pending());
            turns.push(state.waiting_since());
        }
        turns
    }

    /// How much the first turn is before the last one.
    fn spread(turns: &[Option<Instant>]) -> Duration {
        let first = turns[0].expect("it waits");
        turns[turns.len() - 1].expect("it waits").saturating_duration_since(first)
    }

    #[tokio::test]
    async fn few_bytes_do_not_end_the_wait_for_the_client() {
        let dripped = turns(1_024, &[1, 1, 1, 1]).await;
        assert!(spread(&dripped) < Duration::from_millis(50), "{dripped:?}");
        // Far more than enough, however late they come.
        let steady = turns(1_024, &[1 << 20; 4]).await;
        assert!(spread(&steady) >= Duration::from_millis(150), "{steady:?}");
        let any = turns(0, &[1, 1, 1, 1]).await;
        assert!(spread(&any) >= Duration::from_millis(150), "{any:?}");
    }
}

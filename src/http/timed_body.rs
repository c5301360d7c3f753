//! Bodies that tell whose turn it is, and answers that fail when they take too long.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::HeaderValue,
};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::activity::{InFlight, Turn};

/// An answer took too long.
#[derive(Debug, thiserror::Error)]
#[error("the answer took longer than {} s", .0.as_secs())]
struct TookTooLong(Duration);

/// An answer's body, which fails when it has taken too long, and whose request is in flight until it is dropped.
pub(super) struct TimedBody {
    body: Body,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    request_id: Option<HeaderValue>,
    in_flight: InFlight,
}

impl TimedBody {
    /// Starts the time. The request's id is for the log.
    pub fn new(body: Body, limit: Duration, request_id: Option<HeaderValue>, in_flight: InFlight) -> TimedBody {
        in_flight.answers();
        TimedBody { body, limit, deadline: Box::pin(sleep(limit)), request_id, in_flight }
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.body).poll_frame(context);
        let late = match &frame {
            // Registering the timer costs more than looking at the clock.
            Poll::Ready(Some(Ok(_))) => {
                this.in_flight.gave();
                this.deadline.deadline() <= Instant::now()
            }
            Poll::Ready(_) => false,
            Poll::Pending => {
                this.in_flight.works();
                this.deadline.as_mut().poll(context).is_ready()
            }
        };
        if !late {
            return frame;
        }
        let error = TookTooLong(this.limit);
        let id = this.request_id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
        tracing::warn!(id, cause = %error, "a body was cut");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request's body, which tells when its handler waits for the client.
pub(super) struct AwaitedBody<B> {
    body: B,
    turn: Turn,
}

impl<B> AwaitedBody<B> {
    /// The body of the request whose turns these are.
    pub fn new(body: B, turn: Turn) -> AwaitedBody<B> {
        AwaitedBody { body, turn }
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for AwaitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.turn.set(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

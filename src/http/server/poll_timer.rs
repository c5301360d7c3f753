//! Counts the polls of handlers that keep a thread that serves connections from serving others.
//!
//! A handler that computes for 50 ms between two awaits delays every connection of its thread by 50 ms, `/healthz`
//! among them. Such work belongs on threads of its own ([`crate::large_responses::build`]).
//! `resilience::large_responses` fails if a handler does it here.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::response::Response;
use rustix::time::{ClockId, clock_gettime};
use strata_runtime::metrics::metrics;

/// A poll that computes for longer is counted in `strata_long_polls_total`.
const LONG_POLL: Duration = Duration::from_millis(10);

/// How long a reading of the thread's processor time is used. One for every poll would cost more than many handlers.
const READING_LASTS: Duration = Duration::from_millis(1);

thread_local! {
    /// The last reading of the thread's processor time, and the time of that reading.
    static READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

pub(super) struct TimedPolls(Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>);

impl TimedPolls {
    pub(super) fn new(response: impl Future<Output = Result<Response, Infallible>> + Send + 'static) -> TimedPolls {
        TimedPolls(Box::pin(response))
    }
}

impl Future for TimedPolls {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let started = Instant::now();
        let before = match READING.get() {
            Some((read_at, before)) if started.saturating_duration_since(read_at) < READING_LASTS => before,
            _ => {
                let before = thread_time();
                READING.set(Some((started, before)));
                before
            }
        };
        let polled = self.0.as_mut().poll(context);
        // A thread that the system interrupts for that long has not computed for that long.
        if started.elapsed() > LONG_POLL && thread_time().saturating_sub(before) > LONG_POLL + READING_LASTS {
            metrics().long_polls.increment(1);
        }
        polled
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

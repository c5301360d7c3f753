//! Counts long polls of handlers, which block a thread that serves connections.
//!
//! A handler that computes for 50 ms between two awaits delays all connections of its thread by 50 ms, including
//! `/healthz`. Such work must run on other threads ([`crate::large_responses::build_response`]). The test
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

/// Polls of handlers that use more CPU time are counted in `strata_long_polls_total`.
const LONG_POLL_THRESHOLD: Duration = Duration::from_millis(10);

/// How long a reading of a thread's CPU time is reused. A reading for each poll would cost more than many handlers.
const CPU_READING_TTL: Duration = Duration::from_millis(1);

thread_local! {
    /// The last reading of the thread's CPU time, and the time of the reading.
    static LAST_CPU_READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

pub(super) struct PollTimedResponse(Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>);

impl PollTimedResponse {
    pub(super) fn new(inner: impl Future<Output = Result<Response, Infallible>> + Send + 'static) -> PollTimedResponse {
        PollTimedResponse(Box::pin(inner))
    }
}

impl Future for PollTimedResponse {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let started = Instant::now();
        let before = match LAST_CPU_READING.get() {
            Some((read_at, before)) if started.saturating_duration_since(read_at) < CPU_READING_TTL => before,
            _ => {
                let before = thread_cpu_time();
                LAST_CPU_READING.set(Some((started, before)));
                before
            }
        };
        let result = self.0.as_mut().poll(cx);
        // The elapsed time of a poll does not show its CPU time, because the system might have interrupted the thread.
        if started.elapsed() > LONG_POLL_THRESHOLD
            && thread_cpu_time().saturating_sub(before) > LONG_POLL_THRESHOLD + CPU_READING_TTL
        {
            metrics().slow_polls.increment(1);
        }
        result
    }
}

fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

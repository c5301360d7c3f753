//! The state of a connection: whether the service or the client is next, and when the connection must close.
//!
//! The client is next while no request is in flight, while a handler waits for more of a request body, and while a
//! response waits to be read. Otherwise, the service is next. A request body that arrives more slowly than
//! `limits.body_min_bytes_per_s` counts as a wait for the client. For example, a connection on which a client sends one
//! byte of a body per second has waited for the client since the body began. Consequences:
//!
//! - An HTTP/2 connection without a request for `header_read_timeout` gets a GOAWAY. (hyper has this timeout only for
//!   HTTP/1.1.)
//! - A connection whose client does not read its responses is closed. Over HTTP/2, the connection itself might accept
//!   writes, so that the deadline in [`super::timed_stream`] does not apply.
//! - If connections are scarce, one that has waited long for its client is released ([`super::connection_registry`]).
//! - During shutdown, a connection that stays idle for a while is closed.
//!
//! An idle HTTP/1.1 connection ends in its stream: if there is nothing to read, the stream reports its end. So a
//! request that has arrived is always read before its connection ends.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::ServerLimits;
use super::http2_inflight::InFlightPermit;

/// The number of bytes that a client must read within `write_timeout`, unless fewer are available.
pub(super) const MIN_WRITE_PROGRESS_BYTES: usize = 16 << 10;

/// The time in which a connection that lost its slot can end by itself, for example after a GOAWAY.
const RELEASE_GRACE_PERIOD: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineAction {
    GoAway,
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// A response took longer than `response_timeout` and `write_timeout`.
    Overdue,
    Stalled,
    /// The connection lost its slot to another connection, and did not end by itself.
    Released,
    /// The client did not close an idle connection after a GOAWAY.
    Idle,
    Flooding,
}

pub(super) struct ConnectionState {
    pub limits: Arc<ServerLimits>,
    /// The reason why the stream failed: [`CloseReason::Flooding`] or [`CloseReason::Stalled`].
    pub stream_fault: OnceLock<CloseReason>,
    fields: Mutex<ConnectionStateFields>,
    /// Wakes the task that sleeps until `armed_deadline`, if there is an earlier deadline.
    rearmed: Notify,
}

struct ConnectionStateFields {
    request_count: u64,
    requests: BTreeMap<u64, ConnectionRequest>,
    idle_since: Instant,
    is_http2: bool,
    /// Whether the head of the next request has begun: bytes have been read while no request was in flight.
    has_head_begun: bool,
    last_read_at: Instant,
    /// The last time at which the client had read all available bytes, or another [`MIN_WRITE_PROGRESS_BYTES`] of them.
    last_write_progress_at: Instant,
    /// The number of bytes that the client has read since `last_write_progress_at`.
    bytes_since_progress: usize,
    shutdown_started_at: Option<Instant>,
    /// Whether an idle connection has received nothing for `idle_drain_timeout` during the shutdown.
    is_drained: bool,
    released_at: Option<Instant>,
    is_expedited: bool,
    goaway_at: Option<Instant>,
    reader_waker: Option<Waker>,
    /// The time until which [`ConnectionState::next_deadline`] sleeps.
    armed_deadline: Option<Instant>,
    /// The value of `request_count` when [`ConnectionState::next_deadline`] began to sleep.
    requests_when_armed: u64,
}

struct ConnectionRequest {
    /// The time since which the request waits for the client. `None` if the service is next to act.
    awaits_client_since: Option<Instant>,
    response_started_at: Option<Instant>,
}

impl ConnectionStateFields {
    /// Returns the time since which the connection waits for the client, or `None` if the service is next to act.
    fn awaits_client_since(&self) -> Option<Instant> {
        let mut since = if self.requests.is_empty() { self.idle_since } else { self.last_write_progress_at };
        for request in self.requests.values() {
            since = since.max(request.awaits_client_since?);
        }
        Some(since.max(self.last_write_progress_at))
    }

    /// Whether an idle HTTP/1.1 connection must close: its next empty read should report the end of the stream.
    fn must_report_eof(&self) -> bool {
        let must_end = self.is_drained || self.released_at.is_some();
        must_end && !self.is_http2 && !self.has_head_begun && self.requests.is_empty()
    }

    /// Returns the next deadline. Its time can be in the past.
    fn next_deadline(&self, limits: &ServerLimits) -> Option<(Instant, DeadlineAction)> {
        let is_idle = self.requests.is_empty();
        let response_started_at = self.requests.values().filter_map(|request| request.response_started_at).min();
        let overdue = response_started_at.map(|since| since + limits.response_timeout + limits.write_timeout);

        let waiting = self.awaits_client_since();
        let is_responding = !is_idle && self.requests.values().all(|request| request.response_started_at.is_some());
        let stalled = waiting.filter(|_| is_responding).map(|since| since + limits.write_timeout);

        let released = self.released_at.filter(|_| waiting.is_some());
        // A connection without any request can be closed without a grace period.
        let is_unused = self.request_count == 0 && !self.is_http2;
        let grace_period = if self.is_expedited || is_unused { Duration::ZERO } else { RELEASE_GRACE_PERIOD };
        let released = released.map(|since| since + grace_period);

        let mut go_away = None;
        let mut idle = None;
        match self.goaway_at.filter(|_| is_idle) {
            // During shutdown, `idle_drain_timeout` applies if nothing has arrived since the GOAWAY, because a client
            // that is online responds to it.
            Some(goaway_at) if self.shutdown_started_at.is_some() && self.last_read_at <= goaway_at => {
                idle = Some(goaway_at.max(self.idle_since) + limits.idle_drain_timeout);
            }
            Some(goaway_at) => {
                idle = Some(goaway_at.max(self.idle_since).max(self.last_write_progress_at) + limits.write_timeout);
            }
            None if self.is_http2 && self.goaway_at.is_none() => {
                let long_idle =
                    is_idle.then(|| self.idle_since.max(self.last_write_progress_at) + limits.header_read_timeout);
                go_away = [self.shutdown_started_at, self.released_at, long_idle].into_iter().flatten().min();
            }
            None => {}
        }
        let close = |at: Option<Instant>, reason| at.map(|at| (at, DeadlineAction::Close(reason)));
        let deadlines = [
            close(overdue, CloseReason::Overdue),
            close(stalled, CloseReason::Stalled),
            close(released, CloseReason::Released),
            close(idle, CloseReason::Idle),
            go_away.map(|at| (at, DeadlineAction::GoAway)),
        ];
        deadlines.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn idle_close_deadline_in_shutdown(&self, limits: &ServerLimits) -> Option<Instant> {
        let draining =
            self.shutdown_started_at.filter(|_| !self.is_drained && !self.is_http2 && self.requests.is_empty())?;
        Some(draining.max(self.idle_since) + limits.idle_drain_timeout)
    }

    fn record_write_progress(&mut self, bytes: usize, is_all: bool) {
        self.bytes_since_progress = self.bytes_since_progress.saturating_add(bytes);
        if self.bytes_since_progress >= MIN_WRITE_PROGRESS_BYTES || is_all {
            self.bytes_since_progress = 0;
            self.last_write_progress_at = Instant::now();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader_waker.take() {
            reader.wake();
        }
    }
}

impl ConnectionState {
    pub(super) fn new(limits: Arc<ServerLimits>) -> Arc<ConnectionState> {
        let now = Instant::now();
        let fields = Mutex::new(ConnectionStateFields {
            request_count: 0,
            requests: BTreeMap::new(),
            idle_since: now,
            is_http2: false,
            has_head_begun: false,
            last_read_at: now,
            last_write_progress_at: now,
            bytes_since_progress: 0,
            shutdown_started_at: None,
            is_drained: false,
            released_at: None,
            is_expedited: false,
            goaway_at: None,
            reader_waker: None,
            armed_deadline: None,
            requests_when_armed: 0,
        });
        Arc::new(ConnectionState { limits, stream_fault: OnceLock::new(), fields, rearmed: Notify::new() })
    }

    /// Changes the connection state, and wakes [`ConnectionState::next_deadline`] if the deadline becomes earlier.
    fn update_and_rearm<T>(&self, change: impl FnOnce(&mut ConnectionStateFields) -> T) -> T {
        let mut state = self.fields.lock();
        let result = change(&mut state);
        self.arm_deadline(&mut state);
        result
    }

    fn arm_deadline(&self, state: &mut ConnectionStateFields) {
        let next = state.next_deadline(&self.limits).map(|(at, _)| at);
        let next = next.into_iter().chain(state.idle_close_deadline_in_shutdown(&self.limits)).min();
        if next.is_some_and(|next| state.armed_deadline.is_none_or(|armed| next < armed)) {
            state.armed_deadline = next;
            self.rearmed.notify_one();
        }
    }

    pub(super) fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        let request_number = self.update_and_rearm(|state| {
            state.request_count += 1;
            state.has_head_begun = false;
            let request = ConnectionRequest { awaits_client_since: None, response_started_at: None };
            state.requests.insert(state.request_count, request);
            state.request_count
        });
        InFlightRequest { body_wait: RequestBodyWait { state: self.clone(), request_number }, permit: None }
    }

    pub(super) fn record_read(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.fields.lock();
            state.last_read_at = Instant::now();
            // Bytes during a request belong to its body or to the next request, whose head is then read at once.
            state.has_head_begun |= state.requests.is_empty();
        }
    }

    pub(super) fn set_http2(&self) {
        self.update_and_rearm(|state| state.is_http2 = true);
    }

    /// Records written bytes. `is_all` means that the connection accepted all bytes that were offered.
    pub(super) fn record_write(&self, bytes: usize, is_all: bool) {
        let mut state = self.fields.lock();
        // Over HTTP/2, written bytes do not show that the client reads: hyper writes only what the windows of the
        // client allow, and also writes responses to pings.
        if !state.is_http2 {
            state.record_write_progress(bytes, is_all);
        }
    }

    /// Whether the next empty read of the connection should report the end of the stream. If false, the task of `cx` is
    /// woken when the result changes.
    pub(super) fn poll_must_report_eof(&self, cx: &Context<'_>) -> bool {
        let mut state = self.fields.lock();
        if state.must_report_eof() {
            return true;
        }
        if !state.reader_waker.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            state.reader_waker = Some(cx.waker().clone());
        }
        false
    }

    /// Returns the time since which the connection waits for the client, or `None` if the service is next to act.
    pub(super) fn awaits_client_since(&self) -> Option<Instant> {
        self.fields.lock().awaits_client_since()
    }

    /// Releases the slot of this connection. The connection is closed if it does not end soon.
    pub(super) fn release_slot(&self) {
        self.update_and_rearm(|state| {
            state.released_at.get_or_insert_with(Instant::now);
            state.wake_reader();
        });
    }

    /// Closes a connection that lost its slot, without a grace period, as soon as it waits for the client.
    pub(super) fn expedite_close(&self) {
        self.update_and_rearm(|state| state.is_expedited = true);
    }

    #[cfg(test)]
    pub(super) fn is_expedited(&self) -> bool {
        self.fields.lock().is_expedited
    }

    #[cfg(test)]
    pub(super) fn with_timeouts(time: Duration) -> Arc<ConnectionState> {
        let limits = ServerLimits::from(&strata_config::Config::default());
        let limits =
            ServerLimits { header_read_timeout: time, write_timeout: time, idle_drain_timeout: time, ..limits };
        ConnectionState::new(Arc::new(limits))
    }

    /// Begins the shutdown. From then on, each HTTP/1.1 response is the last one of the connection.
    pub(super) fn begin_shutdown(&self) {
        self.update_and_rearm(|state| {
            state.shutdown_started_at.get_or_insert_with(Instant::now);
        });
    }

    /// Whether the connection ends after its next HTTP/1.1 response.
    pub(super) fn is_closing(&self) -> bool {
        let state = self.fields.lock();
        state.shutdown_started_at.is_some() || state.released_at.is_some()
    }

    /// Waits for the next deadline. Returns [`DeadlineAction::GoAway`] only once.
    pub(super) async fn next_deadline(&self) -> DeadlineAction {
        loop {
            let rearmed = self.rearmed.notified();
            let armed_deadline = {
                let mut state = self.fields.lock();
                let now = Instant::now();
                let next = state.next_deadline(&self.limits);
                if let Some((at, action)) = next
                    && at <= now
                {
                    if action == DeadlineAction::GoAway {
                        state.goaway_at = Some(now);
                    }
                    return action;
                }
                let drained = state.idle_close_deadline_in_shutdown(&self.limits);
                if drained.is_some_and(|at| at <= now) {
                    state.is_drained = true;
                    state.wake_reader();
                    continue;
                }
                // A connection in use also wakes this task after `write_timeout`, to arm later deadlines of its
                // responses. So the start of a request does not have to wake the task.
                let in_use = state.request_count != state.requests_when_armed;
                state.requests_when_armed = state.request_count;
                let rearm_at = in_use.then(|| now + self.limits.write_timeout);
                state.armed_deadline = next.map(|(at, _)| at).into_iter().chain(drained).chain(rearm_at).min();
                state.armed_deadline
            };
            match armed_deadline {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = rearmed => {}
                },
                None => rearmed.await,
            }
        }
    }
}

pub(super) struct InFlightRequest {
    pub body_wait: RequestBodyWait,
    /// The permit of an HTTP/2 request in flight; `None` over HTTP/1.1 and for trusted proxies.
    pub permit: Option<InFlightPermit>,
}

impl InFlightRequest {
    /// Records that the response head was sent. The request waits for the client until the body has nothing to send.
    pub(super) fn start_response(&self) {
        self.update_request(|request, now| {
            *request = ConnectionRequest { awaits_client_since: Some(now), response_started_at: Some(now) }
        });
    }

    /// Records that there are bytes of the response for the client to read.
    pub(super) fn start_waiting_for_client(&self) {
        self.update_request(|request, now| request.awaits_client_since = Some(now));
    }

    /// Records that the client of an HTTP/2 connection has read or canceled bytes of the response.
    pub(super) fn record_client_read(&self, bytes: usize) {
        self.body_wait.state.fields.lock().record_write_progress(bytes, false);
    }

    /// Records that the client has read all available bytes of the response.
    pub(super) fn end_waiting_for_client(&self) {
        self.update_request(|request, _| request.awaits_client_since = None);
    }

    fn update_request(&self, set: impl FnOnce(&mut ConnectionRequest, Instant)) {
        self.body_wait.state.update_and_rearm(|state| {
            if let Some(request) = state.requests.get_mut(&self.body_wait.request_number) {
                set(request, Instant::now());
            }
        });
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.body_wait.state.update_and_rearm(|state| {
            state.requests.remove(&self.body_wait.request_number);
            if state.requests.is_empty() {
                state.idle_since = Instant::now();
                if state.must_report_eof() {
                    state.wake_reader();
                }
            }
        });
    }
}

/// Records whether a handler waits for a request body. The value does not keep its request in flight.
#[derive(Clone)]
pub(super) struct RequestBodyWait {
    state: Arc<ConnectionState>,
    request_number: u64,
}

impl RequestBodyWait {
    /// Sets the time since which the handler waits for more of the request body; `None` if it does not wait.
    pub(super) fn set_body_wait_since(&self, since: Option<Instant>) {
        let mut state = self.state.fields.lock();
        // Once the response has started, only the response determines whether the request waits for the client.
        if let Some(request) = state.requests.get_mut(&self.request_number)
            && request.response_started_at.is_none()
            && request.awaits_client_since != since
        {
            request.awaits_client_since = since;
            // A wait for a request body makes a deadline earlier only if the connection is released.
            if state.released_at.is_some() {
                self.state.arm_deadline(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::task::{ArcWake, waker};

    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(600);

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl ArcWake for WakeCounter {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn requests_on_connection_in_use_wake_no_task() {
        let state = ConnectionState::with_timeouts(LONG_TIMEOUT);
        let wakes = Arc::new(WakeCounter::default());
        let waker = waker(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let mut deadline = pin!(state.next_deadline());
        for number in 0..5 {
            assert!(deadline.as_mut().poll(&mut cx).is_pending());
            assert!(!state.poll_must_report_eof(&cx));
            let request = state.begin_request();
            request.start_response();
            request.end_waiting_for_client();
            drop(request);
            // Only the first request has woken the task that waits for deadlines.
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "{number}");
        }
        assert!(!state.poll_must_report_eof(&cx));
        state.release_slot();
        assert!(wakes.0.load(Ordering::Relaxed) > 1 && state.poll_must_report_eof(&cx));
    }

    #[tokio::test]
    async fn released_connection_is_closed_when_client_is_next() {
        let state = ConnectionState::with_timeouts(LONG_TIMEOUT);
        let request = state.begin_request();
        let body_wait = request.body_wait.clone();
        state.release_slot();
        let deadline = tokio::spawn({
            let state = state.clone();
            async move { state.next_deadline().await }
        });
        // A connection that lost its slot has no deadline while the service, not the client, must act next.
        tokio::time::sleep(2 * RELEASE_GRACE_PERIOD).await;
        assert!(!deadline.is_finished());
        body_wait.set_body_wait_since(Some(Instant::now()));
        let action = tokio::time::timeout(Duration::from_secs(30), deadline).await.expect("deadline within 30 s");
        assert_eq!(action.expect("task did not panic"), DeadlineAction::Close(CloseReason::Released));
    }
}

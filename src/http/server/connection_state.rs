//! The state of a connection: whether the service or the client is next, and when the connection must close.
//!
//! The client is next while no request is in flight, while a handler waits for more of a request body, and while a
//! response waits to be read. Otherwise, the service is next. A request body that arrives more slowly than
//! `limits.body_min_bytes_per_s` counts as a wait for the client. For example, a connection on which a client sends a
//! byte of a body each second has waited for the client since the body began. Consequences:
//!
//! - An HTTP/2 connection without a request for `header_read_timeout` gets a GOAWAY. (hyper has this timeout only for
//!   HTTP/1.1.)
//! - A connection whose client does not read its responses is closed. Over HTTP/2, the connection itself can be free to
//!   write, so that the deadline in [`super::timed_stream`] does not apply.
//! - If connections are scarce, one that has waited long for its client is released ([`super::connections`]).
//! - During shutdown, a connection that stays idle for a while is closed.
//!
//! An idle HTTP/1.1 connection ends in its stream: if there is nothing to read, the stream reports its end. So a
//! request that has arrived is always read before its connection ends.
//!
//! `resilience::limits` fails without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::ServerLimits;
use super::http2_inflight::InFlightPermit;

/// Bytes that a client must read within `write_stall`, unless fewer are available.
pub(super) const WRITE_FLOOR_BYTES: usize = 16 << 10;

/// Time in which a released connection can end by itself: a GOAWAY and its answer.
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    GoAway,
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// A response took too long.
    Overdue,
    /// The client did not read its responses.
    Stalled,
    /// Another connection has its place, and this one did not end by itself.
    Released,
    /// The client did not close the connection after a GOAWAY.
    Idle,
    /// The client sent too many HTTP/2 control frames.
    Flooding,
}

pub(super) struct ConnectionState {
    pub limits: Arc<ServerLimits>,
    /// Why the stream failed the connection: [`CloseReason::Flooding`] or [`CloseReason::Stalled`].
    pub fault: OnceLock<CloseReason>,
    fields: Mutex<StateFields>,
    /// There is a deadline before [`StateFields::armed_until`].
    rearmed: Notify,
}

struct StateFields {
    request_count: u64,
    requests: BTreeMap<u64, Request>,
    /// When the last request in flight ended.
    idle_since: Instant,
    http2: bool,
    /// Whether bytes have been read since the head of the last request.
    head_begun: bool,
    read_at: Instant,
    /// When the client had last read all that was available, or [`WRITE_FLOOR_BYTES`] of it.
    written_at: Instant,
    /// Bytes that the client has read since then.
    written: usize,
    draining: Option<Instant>,
    /// Whether the idle connection has received nothing for `drain_idle` during shutdown.
    drained: bool,
    /// When another connection took its place.
    released: Option<Instant>,
    expedited: bool,
    goaway_at: Option<Instant>,
    reader: Option<Waker>,
    /// Until when [`ConnectionState::next_deadline`] sleeps.
    armed_until: Option<Instant>,
    /// The value of `request_count` when it fell asleep.
    requests_when_armed: u64,
}

struct Request {
    /// When the wait for the client began. `None` if the service is next.
    waiting: Option<Instant>,
    /// When the response head was sent.
    responding: Option<Instant>,
}

impl StateFields {
    /// When the wait for the client began. `None` if the service is next.
    fn waiting_since(&self) -> Option<Instant> {
        let mut since = if self.requests.is_empty() { self.idle_since } else { self.written_at };
        for request in self.requests.values() {
            since = since.max(request.waiting?);
        }
        Some(since.max(self.written_at))
    }

    /// Whether the next empty read on this idle HTTP/1.1 connection should report the end of the stream.
    fn is_at_end(&self) -> bool {
        let must_end = self.drained || self.released.is_some();
        must_end && !self.http2 && !self.head_begun && self.requests.is_empty()
    }

    /// The next deadline and its time, which can be in the past.
    fn next_deadline(&self, limits: &ServerLimits) -> Option<(Instant, Deadline)> {
        let is_idle = self.requests.is_empty();
        let responding = self.requests.values().filter_map(|request| request.responding).min();
        let overdue = responding.map(|since| since + limits.answer + limits.write_stall);

        let waiting = self.waiting_since();
        let is_responding = !is_idle && self.requests.values().all(|request| request.responding.is_some());
        let stalled = waiting.filter(|_| is_responding).map(|since| since + limits.write_stall);

        let released = self.released.filter(|_| waiting.is_some());
        // A connection without a request has nothing to lose.
        let is_unused = self.request_count == 0 && !self.http2;
        let pause = if self.expedited || is_unused { Duration::ZERO } else { RELEASE_PAUSE };
        let released = released.map(|since| since + pause);

        let mut go_away = None;
        let mut idle = None;
        match self.goaway_at.filter(|_| is_idle) {
            // A client that is alive answers the GOAWAY, and its connection ends with its last stream.
            Some(goaway_at) if self.draining.is_some() && self.read_at <= goaway_at => {
                idle = Some(goaway_at.max(self.idle_since) + limits.drain_idle);
            }
            Some(goaway_at) => {
                idle = Some(goaway_at.max(self.idle_since).max(self.written_at) + limits.write_stall);
            }
            None if self.http2 && self.goaway_at.is_none() => {
                let long_idle = is_idle.then(|| self.idle_since.max(self.written_at) + limits.header_read_timeout);
                go_away = [self.draining, self.released, long_idle].into_iter().flatten().min();
            }
            None => {}
        }
        let close = |at: Option<Instant>, reason| at.map(|at| (at, Deadline::Close(reason)));
        let deadlines = [
            close(overdue, CloseReason::Overdue),
            close(stalled, CloseReason::Stalled),
            close(released, CloseReason::Released),
            close(idle, CloseReason::Idle),
            go_away.map(|at| (at, Deadline::GoAway)),
        ];
        deadlines.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// When an idle HTTP/1.1 connection ends because of the shutdown.
    fn drained_at(&self, limits: &ServerLimits) -> Option<Instant> {
        let draining = self.draining.filter(|_| !self.drained && !self.http2 && self.requests.is_empty())?;
        Some(draining.max(self.idle_since) + limits.drain_idle)
    }

    fn record_written(&mut self, bytes: usize, all: bool) {
        self.written = self.written.saturating_add(bytes);
        if self.written >= WRITE_FLOOR_BYTES || all {
            self.written = 0;
            self.written_at = Instant::now();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl ConnectionState {
    pub(super) fn new(limits: Arc<ServerLimits>) -> Arc<ConnectionState> {
        let now = Instant::now();
        let fields = StateFields {
            request_count: 0,
            requests: BTreeMap::new(),
            idle_since: now,
            http2: false,
            head_begun: false,
            read_at: now,
            written_at: now,
            written: 0,
            draining: None,
            drained: false,
            released: None,
            expedited: false,
            goaway_at: None,
            reader: None,
            armed_until: None,
            requests_when_armed: 0,
        };
        Arc::new(ConnectionState { limits, fault: OnceLock::new(), fields: Mutex::new(fields), rearmed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, StateFields> {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes [`ConnectionState::next_deadline`] if there is an earlier deadline now.
    fn change<T>(&self, change: impl FnOnce(&mut StateFields) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        self.arm(&mut state);
        changed
    }

    fn arm(&self, state: &mut StateFields) {
        let next = state.next_deadline(&self.limits).map(|(at, _)| at);
        let next = next.into_iter().chain(state.drained_at(&self.limits)).min();
        if next.is_some_and(|next| state.armed_until.is_none_or(|armed_until| next < armed_until)) {
            state.armed_until = next;
            self.rearmed.notify_one();
        }
    }

    /// Registers a request that is in flight until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlightRequest {
        let request = self.change(|state| {
            state.request_count += 1;
            state.head_begun = false;
            state.requests.insert(state.request_count, Request { waiting: None, responding: None });
            state.request_count
        });
        InFlightRequest { turn: RequestTurn { state: self.clone(), request }, permit: None }
    }

    pub(super) fn read(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.lock();
            state.read_at = Instant::now();
            // During a request, bytes belong to its body, or to the next request, whose head is then read at once.
            state.head_begun |= state.requests.is_empty();
        }
    }

    pub(super) fn speaks_http2(&self) {
        self.change(|state| state.http2 = true);
    }

    /// Records written bytes. `all` is true if the connection accepted everything that was offered.
    pub(super) fn wrote(&self, bytes: usize, all: bool) {
        let mut state = self.lock();
        // HTTP/2 offers only what the client's windows allow, and answers to pings are no progress.
        if !state.http2 {
            state.record_written(bytes, all);
        }
    }

    /// Whether the next empty read should report the end of the stream. If not, wakes the task when it should.
    pub(super) fn is_at_end(&self, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        if state.is_at_end() {
            return true;
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        false
    }

    /// When the wait for the client began. `None` if the service is next.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.lock().waiting_since()
    }

    /// Gives the place of the connection to another one. The connection is closed if it does not end soon.
    pub(super) fn release(&self) {
        self.change(|state| {
            state.released.get_or_insert_with(Instant::now);
            state.wake_reader();
        });
    }

    /// Closes a released connection as soon as the client is next, without a pause.
    pub(super) fn expedite(&self) {
        self.change(|state| state.expedited = true);
    }

    #[cfg(test)]
    pub(super) fn is_expedited(&self) -> bool {
        self.lock().expedited
    }

    #[cfg(test)]
    pub(super) fn with_timeouts(time: Duration) -> Arc<ConnectionState> {
        let limits = ServerLimits::from(&strata_config::Config::default());
        let times = ServerLimits { header_read_timeout: time, write_stall: time, drain_idle: time, ..limits };
        ConnectionState::new(Arc::new(times))
    }

    /// Begins the shutdown: from now on, each response is the last one of its connection.
    pub(super) fn drain(&self) {
        self.change(|state| {
            state.draining.get_or_insert_with(Instant::now);
        });
    }

    /// Whether the next response is the last one of its connection.
    pub(super) fn is_leaving(&self) -> bool {
        let state = self.lock();
        state.draining.is_some() || state.released.is_some()
    }

    /// Waits for the next deadline. Returns [`Deadline::GoAway`] only once.
    pub(super) async fn next_deadline(&self) -> Deadline {
        loop {
            let rearmed = self.rearmed.notified();
            let armed_until = {
                let mut state = self.lock();
                let now = Instant::now();
                let next = state.next_deadline(&self.limits);
                if let Some((at, deadline)) = next
                    && at <= now
                {
                    if deadline == Deadline::GoAway {
                        state.goaway_at = Some(now);
                    }
                    return deadline;
                }
                let drained = state.drained_at(&self.limits);
                if drained.is_some_and(|at| at <= now) {
                    state.drained = true;
                    state.wake_reader();
                    continue;
                }
                // A connection in use always has a time, so that the later deadlines of its next response wake no task.
                let in_use = state.request_count != state.requests_when_armed;
                state.requests_when_armed = state.request_count;
                let anyway = in_use.then(|| now + self.limits.write_stall);
                state.armed_until = next.map(|(at, _)| at).into_iter().chain(drained).chain(anyway).min();
                state.armed_until
            };
            match armed_until {
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
    pub turn: RequestTurn,
    /// Only over HTTP/2.
    pub permit: Option<InFlightPermit>,
}

impl InFlightRequest {
    /// Records that the response head was sent. The client is next until its body has nothing to send.
    pub(super) fn start_response(&self) {
        self.set(|request, now| *request = Request { waiting: Some(now), responding: Some(now) });
    }

    /// Records that the client has bytes to read.
    pub(super) fn wait_for_client(&self) {
        self.set(|request, now| request.waiting = Some(now));
    }

    /// Records that the client of an HTTP/2 connection has read bytes of the response, or has canceled it.
    pub(super) fn record_read(&self, bytes: usize) {
        self.turn.state.lock().record_written(bytes, false);
    }

    /// Records that the client has read all that was available.
    pub(super) fn wait_for_service(&self) {
        self.set(|request, _| request.waiting = None);
    }

    fn set(&self, set: impl FnOnce(&mut Request, Instant)) {
        self.turn.state.change(|state| {
            if let Some(request) = state.requests.get_mut(&self.turn.request) {
                set(request, Instant::now());
            }
        });
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.turn.state.change(|state| {
            state.requests.remove(&self.turn.request);
            if state.requests.is_empty() {
                state.idle_since = Instant::now();
                if state.is_at_end() {
                    state.wake_reader();
                }
            }
        });
    }
}

/// Whether a handler waits for the body of a request. Does not keep the request in flight.
#[derive(Clone)]
pub(super) struct RequestTurn {
    state: Arc<ConnectionState>,
    request: u64,
}

impl RequestTurn {
    /// Sets when the handler began to wait for more of the body; `None` if it does not wait.
    pub(super) fn set(&self, waiting: Option<Instant>) {
        let mut state = self.state.lock();
        // A response that has begun in the meantime has its own turns.
        if let Some(request) = state.requests.get_mut(&self.request)
            && request.responding.is_none()
            && request.waiting != waiting
        {
            request.waiting = waiting;
            // No other deadline becomes earlier by this.
            if state.released.is_some() {
                self.state.arm(&mut state);
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

    const LONG: Duration = Duration::from_secs(600);

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn requests_on_connection_in_use_wake_no_task() {
        let state = ConnectionState::with_timeouts(LONG);
        let wakes = Arc::new(Wakes::default());
        let waker = waker(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut due = pin!(state.next_deadline());
        for number in 0..5 {
            assert!(due.as_mut().poll(&mut context).is_pending());
            assert!(!state.is_at_end(&context));
            let request = state.begin();
            request.start_response();
            request.wait_for_service();
            drop(request);
            // The first one arms it.
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "{number}");
        }
        assert!(!state.is_at_end(&context));
        state.release();
        assert!(wakes.0.load(Ordering::Relaxed) > 1 && state.is_at_end(&context));
    }

    #[tokio::test]
    async fn released_connection_is_closed_when_client_is_next() {
        let state = ConnectionState::with_timeouts(LONG);
        let request = state.begin();
        let turn = request.turn.clone();
        state.release();
        let due = tokio::spawn({
            let state = state.clone();
            async move { state.next_deadline().await }
        });
        // It sleeps while it is the service's turn.
        tokio::time::sleep(2 * RELEASE_PAUSE).await;
        assert!(!due.is_finished());
        turn.set(Some(Instant::now()));
        let due = tokio::time::timeout(Duration::from_secs(30), due).await.expect("it is due");
        assert_eq!(due.expect("no panic"), Deadline::Close(CloseReason::Released));
    }
}

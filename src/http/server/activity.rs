//! The activity of each connection, and whether the service or the client is next.
//!
//! It is the client's turn where no request is in flight, where a handler waits for more of a request's body, and where
//! an answer waits to be taken. Everything else is the service's. A body that comes more slowly than
//! `limits.body_min_bytes_per_s` is one that is waited for all the while. What follows from it:
//!
//! - An HTTP/2 connection without a request for the time that a head may take is told to go away. (HTTP/1.1 has a
//!   deadline for heads in its implementation.)
//! - A client that takes nothing of its answers is cut. Over HTTP/2 the connection itself may be free to write, so the
//!   deadline of [`super::timed_stream`] does not see it.
//! - Where connections are scarce, one is released whose client's turn it has been for long ([`super::connections`]).
//! - While the service stops, a connection that stays idle for a while is ended.
//!
//! An idle HTTP/1.1 connection ends in its stream: a read that finds nothing reports the end of the stream instead. So
//! a request that has come is always read before its connection ends.
//!
//! `resilience::limits` fails without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::ServerLimits;
use super::requests::Counted;

/// Bytes that a client must take within the time for writing, unless there are fewer.
pub(super) const WRITE_FLOOR_BYTES: usize = 16 << 10;

/// How long a connection that is released may take to end by itself: the time of a GOAWAY and its answer.
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    GoAway,
    Cut(Cut),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Overdue,
    /// The client took nothing of its answers.
    Stalled,
    /// Another one waited, and this one did not end when it was asked to.
    Released,
    /// The client did not leave when it was told to.
    Idle,
    /// The client sent more HTTP/2 frames beside its requests than are taken.
    Flooding,
}

pub(super) struct Activity {
    pub limits: Arc<ServerLimits>,
    /// What the stream of the connection found, so that it has failed: [`Cut::Flooding`] or [`Cut::Stalled`].
    pub fault: OnceLock<Cut>,
    state: Mutex<State>,
    /// Something is due earlier than was armed for.
    earlier: Notify,
}

struct State {
    begun: u64,
    requests: BTreeMap<u64, Request>,
    /// Since when there is none.
    idle_since: Instant,
    http2: bool,
    /// Whether something has been read since the last request's head.
    head_begun: bool,
    read_at: Instant,
    /// When the client last took all there was, or enough of it.
    written_at: Instant,
    /// Bytes that it has taken since then.
    written: usize,
    draining: Option<Instant>,
    /// The service stops, and nothing came on the idle connection for a while.
    drained: bool,
    /// Since when another one has its place.
    released: Option<Instant>,
    /// There is no time to wait for its end.
    hurried: bool,
    /// When the HTTP/2 client was told to go away.
    told: Option<Instant>,
    reader: Option<Waker>,
    /// Until when [`Activity::due`] sleeps.
    armed: Option<Instant>,
    /// Requests so far when it last began to.
    begun_when_armed: u64,
}

struct Request {
    /// Since when it is the client's turn; `None` while it is the service's.
    waiting: Option<Instant>,
    /// When the head of its answer went out.
    answering: Option<Instant>,
}

impl State {
    /// Since when it is the client's turn; `None` while it is the service's.
    fn waiting_since(&self) -> Option<Instant> {
        let mut since = if self.requests.is_empty() { self.idle_since } else { self.written_at };
        for request in self.requests.values() {
            since = since.max(request.waiting?);
        }
        Some(since.max(self.written_at))
    }

    /// Whether a read that finds nothing shall report the end of the stream.
    fn is_over(&self) -> bool {
        let wanted = self.drained || self.released.is_some();
        wanted && !self.http2 && !self.head_begun && self.requests.is_empty()
    }

    /// What is due next, and when; may lie in the past.
    fn next(&self, limits: &ServerLimits) -> Option<(Instant, Due)> {
        let idle = self.requests.is_empty();
        let overdue = self.requests.values().filter_map(|request| request.answering).min();
        let overdue = overdue.map(|since| (since + limits.answer + limits.write_stall, Due::Cut(Cut::Overdue)));

        let waiting = self.waiting_since();
        let taking = !idle && self.requests.values().all(|request| request.answering.is_some());
        let stalled = waiting.filter(|_| taking).map(|since| (since + limits.write_stall, Due::Cut(Cut::Stalled)));

        let released = self.released.filter(|_| waiting.is_some());
        // One that has made no request has nothing to lose.
        let pause = if self.hurried || (self.begun == 0 && !self.http2) { Duration::ZERO } else { RELEASE_PAUSE };
        let released = released.map(|since| (since + pause, Due::Cut(Cut::Released)));

        let away = match (self.http2, self.told) {
            (false, _) => None,
            (true, None) => {
                let long_idle = idle.then(|| self.idle_since.max(self.written_at) + limits.header_read_timeout);
                let at = [self.draining, self.released, long_idle].into_iter().flatten().min();
                at.map(|at| (at, Due::GoAway))
            }
            // A client that is there answers, and its connection ends when its last stream does.
            (true, Some(told)) if self.draining.is_some() && self.read_at <= told => {
                idle.then(|| (told.max(self.idle_since) + limits.drain_idle, Due::Cut(Cut::Idle)))
            }
            (true, Some(told)) => {
                let since = told.max(self.idle_since).max(self.written_at);
                idle.then_some((since + limits.write_stall, Due::Cut(Cut::Idle)))
            }
        };
        [overdue, stalled, released, away].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// When an idle HTTP/1.1 connection ends because the service stops.
    fn drained_at(&self, limits: &ServerLimits) -> Option<Instant> {
        let draining = self.draining.filter(|_| !self.drained && !self.http2 && self.requests.is_empty())?;
        Some(draining.max(self.idle_since) + limits.drain_idle)
    }

    fn took(&mut self, bytes: usize, all: bool) {
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

impl Activity {
    pub(super) fn new(limits: Arc<ServerLimits>) -> Arc<Activity> {
        let now = Instant::now();
        let state = State {
            begun: 0,
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
            hurried: false,
            told: None,
            reader: None,
            armed: None,
            begun_when_armed: 0,
        };
        Arc::new(Activity { limits, fault: OnceLock::new(), state: Mutex::new(state), earlier: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and sees to it that what is due earlier now is done in time.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        self.arm(&mut state);
        changed
    }

    fn arm(&self, state: &mut State) {
        let next = state.next(&self.limits).map(|(at, _)| at);
        let next = next.into_iter().chain(state.drained_at(&self.limits)).min();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.earlier.notify_one();
        }
    }

    /// A request has come; it is in flight until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        let request = self.change(|state| {
            state.begun += 1;
            state.head_begun = false;
            state.requests.insert(state.begun, Request { waiting: None, answering: None });
            state.begun
        });
        InFlight { turn: Turn { activity: self.clone(), request }, counted: None }
    }

    pub(super) fn read(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.lock();
            state.read_at = Instant::now();
            // What comes beside a request is its body, or belongs to the next one, whose head then follows at once.
            state.head_begun |= state.requests.is_empty();
        }
    }

    pub(super) fn speaks_http2(&self) {
        self.change(|state| state.http2 = true);
    }

    /// Takes note of bytes written; `all` when the connection took all that was offered.
    pub(super) fn wrote(&self, bytes: usize, all: bool) {
        let mut state = self.lock();
        // Over HTTP/2 only what the client's windows allow is offered, and answers to its pings are no progress.
        if !state.http2 {
            state.took(bytes, all);
        }
    }

    /// Whether a read that finds nothing shall report the end of the stream. If not, wakes the task when it shall.
    pub(super) fn is_over(&self, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        if state.is_over() {
            return true;
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        false
    }

    /// Since when it is the client's turn; `None` while it is the service's.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.lock().waiting_since()
    }

    /// Asks the connection to end, since another one has its place. It is cut if it does not end soon.
    pub(super) fn release(&self) {
        self.change(|state| {
            state.released.get_or_insert_with(Instant::now);
            state.wake_reader();
        });
    }

    /// Cuts a released connection as soon as it is the client's turn, without a pause.
    pub(super) fn hurry(&self) {
        self.change(|state| state.hurried = true);
    }

    #[cfg(test)]
    pub(super) fn is_hurried(&self) -> bool {
        self.lock().hurried
    }

    /// The activity of a connection that waits so long for its client.
    #[cfg(test)]
    pub(super) fn with_times(time: Duration) -> Arc<Activity> {
        let limits = ServerLimits::from(&strata_config::Config::default());
        let times = ServerLimits { header_read_timeout: time, write_stall: time, drain_idle: time, ..limits };
        Activity::new(Arc::new(times))
    }

    /// The service stops: each answer from now on is the last one of its connection.
    pub(super) fn drain(&self) {
        self.change(|state| {
            state.draining.get_or_insert_with(Instant::now);
        });
    }

    /// Whether the next answer is the last one of its connection.
    pub(super) fn is_leaving(&self) -> bool {
        let state = self.lock();
        state.draining.is_some() || state.released.is_some()
    }

    /// Completes when something is due. [`Due::GoAway`] is due once.
    pub(super) async fn due(&self) -> Due {
        loop {
            let earlier = self.earlier.notified();
            let armed = {
                let mut state = self.lock();
                let now = Instant::now();
                let next = state.next(&self.limits);
                if let Some((at, due)) = next
                    && at <= now
                {
                    if due == Due::GoAway {
                        state.told = Some(now);
                    }
                    return due;
                }
                let drained = state.drained_at(&self.limits);
                if drained.is_some_and(|at| at <= now) {
                    state.drained = true;
                    state.wake_reader();
                    continue;
                }
                // A connection in use has a time at any rate. What its next answer makes due comes later: that wakes
                // nobody.
                let in_use = state.begun != state.begun_when_armed;
                state.begun_when_armed = state.begun;
                let anyway = in_use.then(|| now + self.limits.write_stall);
                state.armed = next.map(|(at, _)| at).into_iter().chain(drained).chain(anyway).min();
                state.armed
            };
            match armed {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = earlier => {}
                },
                None => earlier.await,
            }
        }
    }
}

pub(super) struct InFlight {
    pub turn: Turn,
    /// Its place among those over HTTP/2.
    pub counted: Option<Counted>,
}

impl InFlight {
    /// The head of the answer goes out. It is the client's turn, until the body is asked for and has nothing.
    pub(super) fn answers(&self) {
        self.set(|request, now| *request = Request { waiting: Some(now), answering: Some(now) });
    }

    /// The client has something to take.
    pub(super) fn gave(&self) {
        self.set(|request, now| request.waiting = Some(now));
    }

    /// The client of an HTTP/2 connection has taken bytes of the answer, or does not want them any more.
    pub(super) fn took(&self, bytes: usize) {
        self.turn.activity.lock().took(bytes, false);
    }

    /// The client has taken all there was.
    pub(super) fn works(&self) {
        self.set(|request, _| request.waiting = None);
    }

    fn set(&self, set: impl FnOnce(&mut Request, Instant)) {
        self.turn.activity.change(|state| {
            if let Some(request) = state.requests.get_mut(&self.turn.request) {
                set(request, Instant::now());
            }
        });
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.turn.activity.change(|state| {
            state.requests.remove(&self.turn.request);
            if state.requests.is_empty() {
                state.idle_since = Instant::now();
                // Otherwise it has nothing to tell.
                if state.is_over() {
                    state.wake_reader();
                }
            }
        });
    }
}

/// Whose turn it is while a handler reads a request's body. It does not keep the request in flight.
#[derive(Clone)]
pub(super) struct Turn {
    activity: Arc<Activity>,
    request: u64,
}

impl Turn {
    /// Sets since when the handler waits for more of the body; `None` when it does not.
    pub(super) fn set(&self, waiting: Option<Instant>) {
        let mut state = self.activity.lock();
        // An answer that goes out meanwhile has its own turns.
        if let Some(request) = state.requests.get_mut(&self.request)
            && request.answering.is_none()
            && request.waiting != waiting
        {
            request.waiting = waiting;
            // All else that is due does not come earlier by this.
            if state.released.is_some() {
                self.activity.arm(&mut state);
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
    async fn requests_on_a_connection_in_use_wake_nobody() {
        let activity = Activity::with_times(LONG);
        let wakes = Arc::new(Wakes::default());
        let waker = waker(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut due = pin!(activity.due());
        for number in 0..5 {
            assert!(due.as_mut().poll(&mut context).is_pending());
            assert!(!activity.is_over(&context));
            let request = activity.begin();
            request.answers();
            request.works();
            drop(request);
            // The first one arms it.
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "{number}");
        }
        assert!(!activity.is_over(&context));
        activity.release();
        assert!(wakes.0.load(Ordering::Relaxed) > 1 && activity.is_over(&context));
    }

    #[tokio::test]
    async fn a_released_connection_is_cut_when_it_becomes_its_clients_turn() {
        let activity = Activity::with_times(LONG);
        let request = activity.begin();
        let turn = request.turn.clone();
        activity.release();
        let due = tokio::spawn({
            let activity = activity.clone();
            async move { activity.due().await }
        });
        // It sleeps while it is the service's turn.
        tokio::time::sleep(2 * RELEASE_PAUSE).await;
        assert!(!due.is_finished());
        turn.set(Some(Instant::now()));
        let due = tokio::time::timeout(Duration::from_secs(30), due).await.expect("it is due");
        assert_eq!(due.expect("no panic"), Due::Cut(Cut::Released));
    }
}

//! What each connection is doing: which ones are idle, and which answers take too long.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::HeaderValue,
};
use http_body::{Frame, SizeHint};
use tokio::{
    sync::Notify,
    time::{Instant, Sleep, sleep, sleep_until},
};

/// All connections of a server; clones share them.
#[derive(Clone, Default)]
pub(super) struct Connections {
    idle: Arc<Idle>,
    next: Arc<AtomicU64>,
}

/// Those without a request, by the time since when, the longest first.
#[derive(Default)]
struct Idle {
    since: Mutex<BTreeMap<(Instant, u64), Weak<Activity>>>,
    changed: Notify,
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Instant, u64), Weak<Activity>>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection is doing.
pub(super) struct Activity {
    id: u64,
    idle: Arc<Idle>,
    state: Mutex<State>,
    release: Notify,
    /// The connection answers something new.
    answering: Notify,
}

struct State {
    /// Since when there is no request; `None` while there is one.
    idle_since: Option<Instant>,
    /// Requests so far.
    requests: u64,
    /// Requests in flight, each with the time when the head of its answer went out.
    in_flight: BTreeMap<u64, Option<Instant>>,
}

impl Connections {
    /// A new connection, idle until its first request.
    pub fn add(&self) -> Arc<Activity> {
        let now = Instant::now();
        let activity = Arc::new(Activity {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            idle: self.idle.clone(),
            state: Mutex::new(State { idle_since: Some(now), requests: 0, in_flight: BTreeMap::new() }),
            release: Notify::new(),
            answering: Notify::new(),
        });
        self.idle.lock().insert((now, activity.id), Arc::downgrade(&activity));
        self.idle.changed.notify_one();
        activity
    }

    /// Waits until a connection has been idle for `at_least`, and asks the one that has been for longest to end.
    pub async fn release_idle(&self, at_least: Duration) {
        loop {
            let changed = self.idle.changed.notified();
            let longest = self.idle.lock().first_key_value().map(|((since, _), _)| *since);
            let Some(since) = longest else {
                changed.await;
                continue;
            };
            sleep_until(since + at_least).await;
            // It may have become busy meanwhile, or have gone.
            if let Some(activity) = self.take_idle_since(Instant::now() - at_least) {
                activity.release.notify_one();
                return;
            }
        }
    }

    /// The connection that has been idle longest, if since then; it is taken for busy from now on.
    fn take_idle_since(&self, then: Instant) -> Option<Arc<Activity>> {
        // The last owner of an activity may not be dropped while this is locked, so it goes to the caller.
        let mut idle = self.idle.lock();
        let entry = idle.first_entry().filter(|entry| entry.key().0 <= then)?;
        entry.remove().upgrade()
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has come; it is in flight until what is returned is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.state();
        if let Some(since) = state.idle_since.take() {
            self.idle.lock().remove(&(since, self.id));
        }
        state.requests += 1;
        let request = state.requests;
        state.in_flight.insert(request, None);
        InFlight { activity: self.clone(), request }
    }

    /// Completes when the connection is asked to end for another one.
    pub async fn released(&self) {
        self.release.notified().await;
    }

    /// Completes when an answer has taken longer than `limit`.
    pub async fn overdue(&self, limit: Duration) {
        loop {
            let answering = self.answering.notified();
            let oldest = self.state().in_flight.values().flatten().min().copied();
            match oldest {
                Some(since) if since + limit <= Instant::now() => return,
                Some(since) => sleep_until(since + limit).await,
                None => answering.await,
            }
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(since) = self.state().idle_since {
            self.idle.lock().remove(&(since, self.id));
        }
    }
}

/// A request in flight.
pub(super) struct InFlight {
    activity: Arc<Activity>,
    request: u64,
}

impl InFlight {
    fn answers(&self) {
        self.activity.state().in_flight.insert(self.request, Some(Instant::now()));
        self.activity.answering.notify_one();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let activity = &self.activity;
        let mut state = activity.state();
        state.in_flight.remove(&self.request);
        if state.in_flight.is_empty() {
            let now = Instant::now();
            state.idle_since = Some(now);
            activity.idle.lock().insert((now, activity.id), Arc::downgrade(activity));
            activity.idle.changed.notify_one();
        }
    }
}

/// An answer took too long.
#[derive(Debug, thiserror::Error)]
#[error("the answer took longer than {} s", .0.as_secs())]
struct TookTooLong(Duration);

/// A body that fails when it has taken too long, and whose request is in flight until it is dropped.
pub(super) struct TimedBody {
    body: Body,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    request_id: Option<HeaderValue>,
    _in_flight: InFlight,
}

impl TimedBody {
    /// Starts the time. The request's id is for the log.
    pub fn new(body: Body, limit: Duration, request_id: Option<HeaderValue>, in_flight: InFlight) -> TimedBody {
        in_flight.answers();
        TimedBody { body, limit, deadline: Box::pin(sleep(limit)), request_id, _in_flight: in_flight }
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
            Poll::Ready(Some(Ok(_))) => this.deadline.deadline() <= Instant::now(),
            Poll::Ready(_) => false,
            Poll::Pending => this.deadline.as_mut().poll(context).is_ready(),
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

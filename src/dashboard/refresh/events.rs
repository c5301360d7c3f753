//! `…/refresh/events`: the progress of the running refresh as server-sent events with JSON objects, for the page's
//! script (docs/guides/dashboard.md, Publish and refresh).
//!
//! A stream ends with its refresh or after [`MAX_STREAM_DURATION`]; then browsers reconnect. If no refresh is running,
//! the response is 204, which stops browsers from reconnecting.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, stream};
use serde::Serialize;
use strata_catalog::{AttemptOutcome, RefreshAttempt};
use strata_http::AppState;
use strata_http::error::HttpError;
use strata_service::{ProgressWatch, RefreshProgress};
use strata_types::ids::{DatasetId, RefreshAttemptId};
use strata_types::user::User;
use tokio::time::Instant;

use crate::form_handling::load_owner_context;
use crate::page_request::{PageRequest, PageResponse, PageResult};

const MAX_STREAM_DURATION: Duration = Duration::from_secs(30);

/// Interval between reads of the progress of a refresh that runs in this process.
const PROGRESS_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Interval between reads of the progress of a refresh in another process, which only the metadata database shows.
const RECORD_POLL_INTERVAL: Duration = Duration::from_secs(2);

const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_SEARCHED_ATTEMPTS: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum RefreshEvent {
    Stage { stage: &'static str, bytes: u64, entities: u64, written: u64 },
    Running { stage: &'static str },
    Done { stage: &'static str, version: u64 },
    Failed { stage: &'static str, error: String },
}

pub(crate) async fn stream_refresh_events(req: &mut PageRequest) -> PageResult {
    let urls = load_owner_context(req).await?.urls;
    let services = req.services.clone();
    let user = req.require_user()?;
    let newest = services.datasets.list_attempts(&user, urls.id, None, 1).await?;
    let Some(attempt) = newest.first().filter(|attempt| attempt.outcome.is_none()) else {
        return Ok(PageResponse::Raw(StatusCode::NO_CONTENT.into_response()));
    };
    let Some(watch) = services.refreshes.try_watch(user.id) else {
        let text = "Too many of your open pages are following a refresh. Close some of them.".to_owned();
        return Err(HttpError::InvalidRequest { status: StatusCode::TOO_MANY_REQUESTS, text });
    };
    let watcher = RefreshWatcher {
        attempt: attempt.id,
        deadline: Instant::now() + MAX_STREAM_DURATION,
        dataset: urls.id,
        last_event: None,
        services,
        user,
        _watch: watch,
    };
    Ok(PageResponse::Raw(Sse::new(watcher.into_stream()).keep_alive(KeepAlive::default()).into_response()))
}

struct RefreshWatcher {
    services: AppState,
    user: User,
    dataset: DatasetId,
    attempt: RefreshAttemptId,
    last_event: Option<RefreshEvent>,
    deadline: Instant,
    _watch: ProgressWatch,
}

impl RefreshWatcher {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut watcher| async move {
            let event = watcher.next_event().await?;
            let sse_event = Event::default().retry(RECONNECT_DELAY).json_data(&event).ok()?;
            watcher.last_event = Some(event);
            Some((Ok(sse_event), watcher))
        })
    }

    /// Waits for the next progress event of the refresh. Returns `None` to end the event stream.
    async fn next_event(&mut self) -> Option<RefreshEvent> {
        if matches!(self.last_event, Some(RefreshEvent::Done { .. } | RefreshEvent::Failed { .. })) {
            return None;
        }
        loop {
            let (event, delay) = match self.services.refreshes.progress(self.dataset) {
                Some(RefreshProgress { stage, bytes, entities_decoded: entities, entities_written: written }) => {
                    (RefreshEvent::Stage { stage: stage.name(), bytes, entities, written }, PROGRESS_POLL_INTERVAL)
                }
                None => (self.load_recorded_event().await?, RECORD_POLL_INTERVAL),
            };
            if self.last_event.as_ref() != Some(&event) {
                return Some(event);
            }
            tokio::time::timeout_at(self.deadline, tokio::time::sleep(delay)).await.ok()?;
        }
    }

    /// Returns an event for the refresh as the metadata database records it. If the database is unavailable, returns
    /// `None`, which ends the event stream.
    async fn load_recorded_event(&self) -> Option<RefreshEvent> {
        let attempts =
            self.services.datasets.list_attempts(&self.user, self.dataset, None, MAX_SEARCHED_ATTEMPTS).await.ok()?;
        let is_watched = |attempt: &RefreshAttempt| attempt.id == self.attempt;
        Some(match attempts.into_iter().find(is_watched)?.outcome {
            None => RefreshEvent::Running { stage: "running" },
            Some(AttemptOutcome::Published(version)) => RefreshEvent::Done { stage: "done", version: version.get() },
            Some(AttemptOutcome::Failed { error }) => RefreshEvent::Failed { stage: "failed", error },
        })
    }
}

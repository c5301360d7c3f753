//! `…/refresh/events`: the progress of the running refresh as server-sent events for the script of the page
//! (docs/guides/dashboard.md, Publish and refresh). Each event is a JSON object. If no refresh runs, the response is
//! 204, after which browsers do not reconnect.
//!
//! A stream ends with its refresh or after [`STREAM`]. Browsers reconnect on their own.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, stream};
use serde::Serialize;
use strata_catalog::{Attempt, AttemptOutcome};
use strata_http::AppState;
use strata_http::error::HttpError;
use strata_service::{RefreshProgress, Watch};
use strata_types::ids::{AttemptId, DatasetId};
use strata_types::user::User;
use tokio::time::Instant;

use crate::form_handling::own;
use crate::visit::{PageResult, Reply, Visit};

const STREAM: Duration = Duration::from_secs(30);

/// How often the progress of a refresh in this process is checked.
const POLL_PROGRESS: Duration = Duration::from_millis(300);

/// How often the record of a refresh in another process is checked.
const POLL_RECORD: Duration = Duration::from_secs(2);

/// How long browsers wait before they reconnect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// The latest attempts, among which the one that has just ended is searched.
const ATTEMPTS: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum RefreshEvent {
    Stage {
        stage: &'static str,
        bytes: u64,
        entities: u64,
        written: u64,
    },
    /// The refresh runs in another process.
    Running {
        stage: &'static str,
    },
    Done {
        stage: &'static str,
        version: u64,
    },
    Failed {
        stage: &'static str,
        error: String,
    },
}

pub(crate) async fn show(visit: &mut Visit) -> PageResult {
    let place = own(visit).await?.place;
    let services = visit.services.clone();
    let user = visit.user()?;
    let newest = services.datasets.attempts(&user, place.id, None, 1).await?;
    let Some(attempt) = newest.first().filter(|attempt| attempt.outcome.is_none()) else {
        return Ok(Reply::Other(StatusCode::NO_CONTENT.into_response()));
    };
    let Some(watch) = services.refreshes.watch(user.id) else {
        let text = "Too many of your open pages are following a refresh. Close some of them.".to_owned();
        return Err(HttpError::Invalid { status: StatusCode::TOO_MANY_REQUESTS, text });
    };
    let until = Instant::now() + STREAM;
    let watched = Watched { attempt: attempt.id, until, dataset: place.id, told: None, services, user, _watch: watch };
    let events = Sse::new(watched.into_stream()).keep_alive(KeepAlive::default());
    Ok(Reply::Other(events.into_response()))
}

struct Watched {
    services: AppState,
    user: User,
    dataset: DatasetId,
    attempt: AttemptId,
    told: Option<RefreshEvent>,
    until: Instant,
    _watch: Watch,
}

impl Watched {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut watched| async move {
            let told = watched.next().await?;
            let event = Event::default().retry(RECONNECT_DELAY).json_data(&told).ok()?;
            watched.told = Some(told);
            Some((Ok(event), watched))
        })
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<RefreshEvent> {
        if matches!(self.told, Some(RefreshEvent::Done { .. } | RefreshEvent::Failed { .. })) {
            return None;
        }
        loop {
            let (told, pause) = match self.services.refreshes.progress(self.dataset) {
                Some(RefreshProgress { stage, bytes, entities, written }) => {
                    (RefreshEvent::Stage { stage: stage.name(), bytes, entities, written }, POLL_PROGRESS)
                }
                None => (self.recorded().await?, POLL_RECORD),
            };
            if self.told.as_ref() != Some(&told) {
                return Some(told);
            }
            tokio::time::timeout_at(self.until, tokio::time::sleep(pause)).await.ok()?;
        }
    }

    /// The event that the record of the attempt stands for. A catalog that is unavailable ends the stream.
    async fn recorded(&self) -> Option<RefreshEvent> {
        let attempts = self.services.datasets.attempts(&self.user, self.dataset, None, ATTEMPTS).await.ok()?;
        let own = |attempt: &Attempt| attempt.id == self.attempt;
        Some(match attempts.into_iter().find(own)?.outcome {
            None => RefreshEvent::Running { stage: "running" },
            Some(AttemptOutcome::Published(version)) => RefreshEvent::Done { stage: "done", version: version.get() },
            Some(AttemptOutcome::Failed { error }) => RefreshEvent::Failed { stage: "failed", error },
        })
    }
}

//! `…/refresh/events`: how far the running refresh of a dataset is, as server-sent events for scripts of the page
//! (docs/guides/dashboard.md, Publish and refresh). Each is a JSON object. Where none runs, the answer is 204, after
//! which browsers ask no more.
//!
//! A stream ends with its refresh, and otherwise after [`STREAM`]: browsers open it again by themselves.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, stream};
use serde::Serialize;
use strata_catalog::{Attempt, AttemptOutcome};
use strata_http::error::HttpError;
use strata_service::{App, RefreshProgress, Watch};
use strata_types::ids::{AttemptId, DatasetId};
use strata_types::user::User;
use tokio::time::Instant;

use crate::acting::own;
use crate::visit::{Reply, Visit};

const STREAM: Duration = Duration::from_secs(30);

/// How often it is looked how far a refresh of this process is.
const LOOK: Duration = Duration::from_millis(300);

/// How often the record of one of another process is looked at.
const ASK: Duration = Duration::from_secs(2);

/// How long browsers wait before they open a stream again.
const AGAIN: Duration = Duration::from_secs(1);

/// Attempts among which one is looked for that has just ended.
const ATTEMPTS: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Told {
    /// What a refresh of this process does now, and the figures of it.
    Stage { stage: &'static str, bytes: u64, entities: u64, written: u64 },
    /// It runs in another process of the service.
    Running { stage: &'static str },
    /// It made this version. The last event.
    Done { stage: &'static str, version: u64 },
    /// It made nothing. The last event.
    Failed { stage: &'static str, error: String },
}

pub(crate) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let place = own(visit).await?.place;
    let app = visit.app.clone();
    let user = visit.user()?;
    let newest = app.datasets().attempts(&user, place.id, None, 1).await?;
    let Some(attempt) = newest.first().filter(|attempt| attempt.outcome.is_none()) else {
        return Ok(Reply::Other(StatusCode::NO_CONTENT.into_response()));
    };
    let Some(watch) = app.refreshes().watch(user.id) else {
        let text = "Too many of your open pages are following a refresh. Close some of them.".to_owned();
        return Err(HttpError::Invalid { status: StatusCode::TOO_MANY_REQUESTS, text });
    };
    let watched = Watched {
        attempt: attempt.id,
        until: Instant::now() + STREAM,
        dataset: place.id,
        told: None,
        app,
        user,
        _watch: watch,
    };
    let events = Sse::new(watched.into_stream()).keep_alive(KeepAlive::default());
    Ok(Reply::Other(events.into_response()))
}

struct Watched {
    app: App,
    user: User,
    dataset: DatasetId,
    attempt: AttemptId,
    told: Option<Told>,
    until: Instant,
    _watch: Watch,
}

impl Watched {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut watched| async move {
            let told = watched.next().await?;
            // No text of it can fail.
            let event = Event::default().retry(AGAIN).json_data(&told).ok()?;
            watched.told = Some(told);
            Some((Ok(event), watched))
        })
    }

    /// What is to be told next; `None` at the end.
    async fn next(&mut self) -> Option<Told> {
        if matches!(self.told, Some(Told::Done { .. } | Told::Failed { .. })) {
            return None;
        }
        loop {
            let (told, pause) = match self.app.refreshes().progress(self.dataset) {
                Some(RefreshProgress { stage, bytes, entities, written }) => {
                    (Told::Stage { stage: stage.name(), bytes, entities, written }, LOOK)
                }
                None => (self.recorded().await?, ASK),
            };
            if self.told.as_ref() != Some(&told) {
                return Some(told);
            }
            tokio::time::timeout_at(self.until, tokio::time::sleep(pause)).await.ok()?;
        }
    }

    /// What the record of the attempt tells. A catalog that cannot be asked ends the stream; the browser asks again.
    async fn recorded(&self) -> Option<Told> {
        let attempts = self.app.datasets().attempts(&self.user, self.dataset, None, ATTEMPTS).await.ok()?;
        let own = |attempt: &Attempt| attempt.id == self.attempt;
        Some(match attempts.into_iter().find(own)?.outcome {
            None => Told::Running { stage: "running" },
            Some(AttemptOutcome::Published(version)) => Told::Done { stage: "done", version: version.get() },
            Some(AttemptOutcome::Failed { error }) => Told::Failed { stage: "failed", error },
        })
    }
}

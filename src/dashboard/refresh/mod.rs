//! `…/refresh`: how a dataset gets its versions, for its owner: now, by a file, by schedule or by its ping URL; how far
//! the running refresh is, and what became of those before.
//!
//! | Module | Holds |
//! |---|---|
//! | `upload` | a file that is sent |
//! | `events` | how far the running refresh is, as a stream |

pub(super) mod events;
pub(super) mod upload;

use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{Attempt, AttemptOutcome, DatasetView};
use strata_http::error::HttpError;
use strata_http::visit::BaseUrl;
use strata_service::{App, RefreshProgress, RefreshStage};
use strata_types::dataset::{Dataset, DatasetChange, DatasetSource};
use strata_types::ids::AttemptId;
use strata_types::schedule::Schedule;
use strata_types::source::SourceFormat;
use strata_types::version::VersionNumber;

use super::acting::{Own, Problem, Sent, own, problem, received_of_owner};
use super::figures::{self, Time};
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::query::Query;
use super::shown::Shown;
use super::visit::{Reply, Shell, Visit, render};

/// How long a page waits for a refresh that it has begun. The refresh goes on.
const REFRESH_WAITS: Duration = Duration::from_secs(5);

/// Times of a schedule that are shown.
const TIMES: usize = 5;

const PAGE: usize = 20;

/// The parameter that names a refresh that was seen running.
const ENDED: &str = "ended";

/// The fields of the page's forms, beside which their problems are said.
const NOW: &str = "now";
const FILE: &str = "file";
const SCHEDULE: &str = "schedule";

#[derive(Template)]
#[template(path = "refresh.html")]
struct RefreshPage {
    shell: Shell,
    heading: Heading,
    said: Said,
    /// The version that a refresh made which has just ended.
    made: Option<Made>,
    /// The version that stays active, whatever is made.
    pinned: Option<u64>,
    /// Where the entities are fetched from, without what may be a key in it.
    source: Option<String>,
    /// The page that shows what became of the running refresh, if one runs.
    running: Option<String>,
    /// How far it is, if it runs in this process. One of another process may be gone, and a new refresh then ends it.
    progress: Option<RefreshProgress>,
    format: String,
    infer_types: bool,
    schedule: String,
    /// The next times of the schedule, the typed one if any.
    times: Vec<Time>,
    /// The ping URL, where it was asked for.
    ping: Option<String>,
    attempts: Vec<Attempt>,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

struct Made {
    number: VersionNumber,
    entities: String,
    warnings: Vec<String>,
}

#[derive(Default)]
struct Said {
    status: StatusCode,
    notice: Option<&'static str>,
    ended: Option<Ended>,
    /// The attempt before which the history begins.
    before: Option<u64>,
    problem: Problem,
    ping: bool,
    /// The format and the types that were chosen for a file.
    upload: Option<(String, bool)>,
    /// A schedule that was typed, and is not saved.
    typed: Option<String>,
}

/// The refresh of which it is said what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Newest,
    Of(u64),
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let query = visit.query(&["done", ENDED, "before"])?;
    let done = query.one_of("done", &["begun", "made", "schedule"])?;
    let notice = done.map(|done| match done {
        "begun" => "The refresh has started. It continues even if you leave this page.",
        "made" => "The dataset has a new version.",
        _ => "The schedule was saved.",
    });
    let ended = match (done, query.number(ENDED)?) {
        (Some("made" | "begun"), _) => Some(Ended::Newest),
        (_, id) => id.map(Ended::Of),
    };
    let before = query.number("before")?;
    refresh(visit, Said { notice, ended, before, ..Said::default() }).await
}

async fn refresh(visit: &Visit, mut said: Said) -> Result<Reply, HttpError> {
    let own = own(visit).await?;
    let app = &visit.app;
    let user = visit.user()?;
    let Own { place, view: DatasetView { dataset, versions, .. } } = &own;
    let before = said.before;
    let limit = PAGE as u32 + 1;
    let mut attempts = app.datasets().attempts(&user, place.id, before.map(AttemptId::new), limit).await?;
    let older = attempts.get(PAGE).and_then(|_| attempts.get(PAGE - 1)).map(|last| last.id);
    attempts.truncate(PAGE);
    let runs = before.is_none() && attempts.first().is_some_and(|attempt| attempt.outcome.is_none());
    let progress = app.refreshes().progress(place.id);
    let ended = attempts.iter().find(|attempt| match said.ended {
        Some(Ended::Newest) => attempt.outcome.is_some() && !runs,
        Some(Ended::Of(id)) => attempt.id.get() == id,
        None => false,
    });
    let source = match &dataset.source {
        DatasetSource::Push => None,
        DatasetSource::Url(url) => Some(shown_url(url)),
    };
    let fetched = source.is_some();
    let mut made = None;
    let warnings = ended.map(|attempt| attempt.warnings.clone()).unwrap_or_default();
    match ended.and_then(|attempt| attempt.outcome.as_ref()) {
        Some(AttemptOutcome::Published(number)) => {
            let record = versions.iter().find(|record| record.version.number == *number);
            made = record.map(|record| Made {
                number: *number,
                entities: figures::counted(record.version.file.entity_count, "entity", "entities"),
                warnings,
            });
            said.notice = said.notice.filter(|_| made.is_none());
        }
        Some(AttemptOutcome::Failed { error }) => {
            said.notice = None;
            let text = format!("No version was created: {error}");
            said.problem = Problem::at(if fetched { NOW } else { FILE }, &text);
        }
        None => {}
    }
    // Another tab may have taken away the form that was sent.
    if (!fetched && said.problem.of(NOW).is_some())
        || ((fetched || dataset.frozen || progress.is_some()) && said.problem.of(FILE).is_some())
    {
        said.problem = said.problem.above();
    }
    let running = attempts.first().filter(|_| runs).map(|attempt| Query::default().and(ENDED, attempt.id.get()));
    let schedule = said.typed.as_deref().or(dataset.schedule.as_deref()).unwrap_or_default();
    let (format, infer_types) = said.upload.take().unwrap_or((String::new(), dataset.infer_types));
    let page = RefreshPage {
        shell: visit.shell(said.problem.title(format!("Refresh, {}", dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Refresh),
        made,
        pinned: dataset.pinned_version.map(VersionNumber::get),
        source,
        running: (runs || progress.is_some()).then(|| running.unwrap_or_default().at(&place.page("refresh"))),
        progress,
        format,
        infer_types,
        schedule: schedule.to_owned(),
        times: if fetched { times(app, dataset, schedule) } else { Vec::new() },
        ping: said.ping.then(|| BaseUrl::of(&visit.head, app).url(&format!("/ping/{}", dataset.ping_token.expose()))),
        attempts,
        now: Utc::now(),
        first: before.map(|_| place.page("refresh")),
        older: older.map(|id| Query::default().and("before", id.get()).at(&place.page("refresh"))),
        said,
    };
    render(page.said.status, &page)
}

/// The next times at which a dataset would be refreshed by a schedule; none for what is no schedule.
fn times(app: &App, dataset: &Dataset, schedule: &str) -> Vec<Time> {
    let Ok(schedule) = schedule.parse::<Schedule>() else { return Vec::new() };
    app.schedules().due_times(&schedule, dataset.id, TIMES).into_iter().map(Time::to_the_second).collect()
}

/// A URL without what may be a key: the query, and a name and password before the host.
pub(super) fn shown_url(url: &str) -> String {
    let (before, query) = url.split_once('?').map_or((url, ""), |(before, _)| (before, "?…"));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    format!("{scheme}{host}{}{query}", path.map(|path| format!("/{path}")).unwrap_or_default())
}

/// The stage of a refresh in words; without progress, another process of the service makes it.
fn stage(progress: Option<&RefreshProgress>) -> &'static str {
    match progress.map(|progress| progress.stage) {
        None => "The refresh is running on another node.",
        Some(RefreshStage::Waiting) => "Waiting for the source or a permit.",
        Some(RefreshStage::Receiving) => "Receiving data.",
        Some(RefreshStage::Decoding) => "Decoding the entities.",
        Some(RefreshStage::Writing) => "Writing the version.",
        Some(RefreshStage::Publishing) => "Publishing the version.",
    }
}

fn took(attempt: &Attempt) -> Option<String> {
    Some(figures::took((attempt.finished_at? - attempt.started_at).num_milliseconds().unsigned_abs()))
}

/// The forms of the page, but that with a file.
pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own.place, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let (status, problem) = told(visit, error, &sent.action)?;
    let typed = (sent.action == SCHEDULE).then(|| sent.trimmed(SCHEDULE).to_owned());
    refresh(visit, Said { status, problem, typed, ..Said::default() }).await
}

/// The status and the problem of an error, which is said beside the form that it is of.
fn told(visit: &mut Visit, error: HttpError, form: &str) -> Result<(StatusCode, Problem), HttpError> {
    let (status, told) = problem(visit, error, &[SCHEDULE])?;
    let form = [NOW, FILE, SCHEDULE].into_iter().find(|name| *name == form);
    Ok(match (told.general(), form) {
        (Some(text), Some(form)) => (status, Problem::at(form, text)),
        _ => (status, told),
    })
}

async fn done(visit: &Visit, place: &DatasetPlace, sent: &Sent) -> Result<Reply, HttpError> {
    let app = &visit.app;
    let user = visit.user()?;
    if sent.action != SCHEDULE {
        sent.check(&[], &[])?;
    }
    match sent.action.as_str() {
        // Dropped, it goes on.
        NOW => match tokio::time::timeout(REFRESH_WAITS, app.refreshes().fetch(user.id, place.id)).await {
            Ok(Ok(_)) => Ok(Reply::done("made", &place.page("refresh"))),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(Reply::done("begun", &place.page("refresh"))),
        },
        SCHEDULE => {
            sent.check(&[SCHEDULE], &["preview"])?;
            let typed = sent.optional(SCHEDULE);
            let schedule = match typed.map(str::parse::<Schedule>).transpose() {
                Ok(schedule) => schedule,
                Err(error) => {
                    let typed = typed.map(str::to_owned);
                    let problem = Problem::at(SCHEDULE, &error.reason);
                    let said = Said { status: StatusCode::BAD_REQUEST, problem, typed, ..Said::default() };
                    return refresh(visit, said).await;
                }
            };
            if sent.ticked("preview") {
                let typed = Some(typed.unwrap_or_default().to_owned());
                return refresh(visit, Said { typed, ..Said::default() }).await;
            }
            let schedule = schedule.map(|schedule| schedule.to_string());
            let change = DatasetChange { schedule: Some(schedule), ..DatasetChange::default() };
            app.datasets().update(&user, place.id, change).await?;
            Ok(Reply::done(SCHEDULE, &place.page("refresh")))
        }
        "show-ping" => refresh(visit, Said { ping: true, ..Said::default() }).await,
        "rotate-ping" => {
            app.datasets().rotate_ping(&user, place.id).await?;
            let notice = Some("The ping URL was replaced. The old URL now returns 404.");
            refresh(visit, Said { ping: true, notice, ..Said::default() }).await
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_key() {
        for (url, shown) in [
            ("https://a.test/x.json", "https://a.test/x.json"),
            ("https://a.test/x.json?key=1?2", "https://a.test/x.json?…"),
            ("https://me:secret@a.test:1/x@y", "https://…@a.test:1/x@y"),
            ("https://a.test", "https://a.test"),
            ("store:///incoming/a.json", "store:///incoming/a.json"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}

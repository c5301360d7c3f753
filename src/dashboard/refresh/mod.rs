//! `…/refresh`: how a dataset gets its versions, for its owner: now, by a file, by schedule or by its ping URL; the
//! progress of the running refresh, and the history.

pub(super) mod events;
pub(super) mod upload;

use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{Attempt, AttemptOutcome, DatasetView, VersionRecord};
use strata_http::error::HttpError;
use strata_http::visit::BaseUrl;
use strata_service::{RefreshProgress, RefreshStage};
use strata_types::dataset::{DatasetChange, DatasetSource};
use strata_types::ids::AttemptId;
use strata_types::schedule::Schedule;
use strata_types::source::SourceFormat;
use strata_types::version::VersionNumber;

use super::context::{Heading, Tab};
use super::form_handling::{OwnerContext, Problem, SubmittedForm, own, problem, received_of_owner};
use super::format::{self, Time};
use super::query::Query;
use super::safe_text::SafeText;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Reply, Shell, Visit, render};

/// How long a page waits for a refresh that it has started. The refresh continues without it.
const REFRESH_WAITS: Duration = Duration::from_secs(5);

const TIMES: usize = 5;

const PAGE: usize = 20;

/// The parameter that names a refresh that was running when the page was last loaded.
const ENDED: &str = "ended";

/// The forms next to which problems are shown.
const NOW: &str = "now";
const FILE: &str = "file";
const SCHEDULE: &str = "schedule";

#[derive(Template)]
#[template(path = "refresh.html")]
struct RefreshPage {
    shell: Shell,
    heading: Heading,
    said: Flash,
    /// The version that the refresh created which has just ended.
    made: Option<VersionRecord>,
    warnings: Vec<String>,
    pinned: Option<u64>,
    /// The source URL without parts that might be a key.
    source: Option<String>,
    /// The page that shows the outcome of the running refresh.
    running: Option<String>,
    /// The progress of a refresh in this process.
    progress: Option<RefreshProgress>,
    format: String,
    infer_types: bool,
    schedule: String,
    /// The next times of the schedule, or of the one that was typed.
    times: Vec<Time>,
    ping: Option<String>,
    attempts: Vec<Attempt>,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

#[derive(Default)]
struct Flash {
    notice: Option<&'static str>,
    ended: Option<Ended>,
    /// The attempt before which the history begins.
    before: Option<u64>,
    problem: Problem,
    ping: bool,
    /// The format of an upload that was refused, and whether its types were to be inferred.
    upload: Option<(String, bool)>,
    /// A schedule that is not saved.
    typed: Option<String>,
}

/// The refresh whose outcome is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Newest,
    Of(u64),
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
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
    refresh(visit, Flash { notice, ended, before, ..Flash::default() }).await
}

async fn refresh(visit: &Visit, mut said: Flash) -> PageResult {
    let own = own(visit).await?;
    let services = &visit.services;
    let user = visit.user()?;
    let OwnerContext { place, view: DatasetView { dataset, versions, .. } } = &own;
    let before = said.before;
    let limit = PAGE as u32 + 1;
    let mut attempts = services.datasets.attempts(&user, place.id, before.map(AttemptId::new), limit).await?;
    let older = attempts.get(PAGE).and_then(|_| attempts.get(PAGE - 1)).map(|last| last.id);
    attempts.truncate(PAGE);
    let runs = before.is_none() && attempts.first().is_some_and(|attempt| attempt.outcome.is_none());
    let progress = services.refreshes.progress(place.id);
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
    match ended.and_then(|attempt| attempt.outcome.as_ref()) {
        Some(AttemptOutcome::Published(number)) => {
            made = versions.iter().find(|record| record.version.number == *number).cloned();
            said.notice = said.notice.filter(|_| made.is_none());
        }
        Some(AttemptOutcome::Failed { error }) => {
            said.notice = None;
            let text = format!("No version was created: {error}");
            said.problem = Problem::at(StatusCode::OK, if fetched { NOW } else { FILE }, &text);
        }
        None => {}
    }
    // The form that was sent might no longer be on the page, because of a change in another tab.
    if (!fetched && said.problem.of(NOW).is_some())
        || ((fetched || dataset.frozen || progress.is_some()) && said.problem.of(FILE).is_some())
    {
        said.problem = said.problem.above();
    }
    let running = attempts.first().filter(|_| runs).map(|attempt| Query::default().and(ENDED, attempt.id.get()));
    let schedule = said.typed.as_deref().or(dataset.schedule.as_deref()).unwrap_or_default();
    let parsed = schedule.parse::<Schedule>().ok().filter(|_| fetched);
    let times = parsed.map(|schedule| services.refreshes.due_times(&schedule, dataset.id, TIMES)).unwrap_or_default();
    let (format, infer_types) = said.upload.take().unwrap_or((String::new(), dataset.infer_types));
    let page = RefreshPage {
        shell: visit.shell(said.problem.title(format!("Refresh, {}", dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Refresh),
        made,
        warnings: ended.map(|attempt| attempt.warnings.clone()).unwrap_or_default(),
        pinned: dataset.pinned_version.map(VersionNumber::get),
        source,
        running: (runs || progress.is_some()).then(|| running.unwrap_or_default().at(&place.page("refresh"))),
        progress,
        format,
        infer_types,
        schedule: schedule.to_owned(),
        times: times.into_iter().map(Time::to_the_second).collect(),
        ping: said
            .ping
            .then(|| BaseUrl::of(&visit.head, services).url(&format!("/ping/{}", dataset.ping_token.expose()))),
        attempts,
        now: Utc::now(),
        first: before.map(|_| place.page("refresh")),
        older: older.map(|id| Query::default().and("before", id.get()).at(&place.page("refresh"))),
        said,
    };
    render(page.said.problem.status, &page)
}

/// A URL without parts that might be a key: the query, and the name and password.
pub(super) fn shown_url(url: &str) -> String {
    let (before, query) = url.split_once('?').map_or((url, ""), |(before, _)| (before, "?…"));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    format!("{scheme}{host}{}{query}", path.map(|path| format!("/{path}")).unwrap_or_default())
}

fn took(attempt: &Attempt) -> Option<String> {
    Some(format::took((attempt.finished_at? - attempt.started_at).num_milliseconds().unsigned_abs()))
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own.place, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let problem = told(visit, error, &sent.action)?;
    let typed = (sent.action == SCHEDULE).then(|| sent.trimmed(SCHEDULE).to_owned());
    refresh(visit, Flash { problem, typed, ..Flash::default() }).await
}

/// The problem of an error, next to its form.
fn told(visit: &mut Visit, error: HttpError, form: &str) -> Result<Problem, HttpError> {
    let told = problem(visit, error, &[SCHEDULE])?;
    let form = [NOW, FILE, SCHEDULE].into_iter().find(|name| *name == form);
    Ok(match (told.general(), form) {
        (Some(text), Some(form)) => Problem::at(told.status, form, text),
        _ => told,
    })
}

async fn done(visit: &Visit, place: &DatasetPlace, sent: &SubmittedForm) -> PageResult {
    let services = &visit.services;
    let user = visit.user()?;
    if sent.action != SCHEDULE {
        sent.check(&[], &[])?;
    }
    match sent.action.as_str() {
        NOW => match tokio::time::timeout(REFRESH_WAITS, services.refreshes.fetch(user.id, place.id)).await {
            Ok(Ok(_)) => Ok(Reply::done("made", &place.page("refresh"))),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(Reply::done("begun", &place.page("refresh"))),
        },
        SCHEDULE => {
            sent.check(&[SCHEDULE], &["preview"])?;
            let typed = sent.trimmed(SCHEDULE).to_owned();
            let schedule = match Some(typed.as_str()).filter(|typed| !typed.is_empty()).map(str::parse::<Schedule>) {
                Some(Err(error)) => {
                    let problem = Problem::at(StatusCode::BAD_REQUEST, SCHEDULE, &error.reason);
                    return refresh(visit, Flash { problem, typed: Some(typed), ..Flash::default() }).await;
                }
                _ if sent.ticked("preview") => {
                    return refresh(visit, Flash { typed: Some(typed), ..Flash::default() }).await;
                }
                schedule => schedule.and_then(Result::ok),
            };
            let schedule = schedule.map(|schedule| schedule.to_string());
            let change = DatasetChange { schedule: Some(schedule), ..DatasetChange::default() };
            services.datasets.update(&user, place.id, change).await?;
            Ok(Reply::done(SCHEDULE, &place.page("refresh")))
        }
        "show-ping" => refresh(visit, Flash { ping: true, ..Flash::default() }).await,
        "rotate-ping" => {
            services.datasets.rotate_ping(&user, place.id).await?;
            let notice = Some("The ping URL was replaced. The old URL now returns 404.");
            refresh(visit, Flash { ping: true, notice, ..Flash::default() }).await
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_keys() {
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

//! `…/refresh`: the owner refreshes a dataset from its source, by file, by schedule, or by its ping URL, and sees the
//! progress of the running refresh and the history.

pub(super) mod events;
pub(super) mod upload;

use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{AttemptOutcome, DatasetView, RefreshAttempt, VersionStatus};
use strata_http::error::HttpError;
use strata_service::{RefreshProgress, RefreshStage};
use strata_types::dataset::{DatasetChange, DatasetSource};
use strata_types::ids::RefreshAttemptId;
use strata_types::schedule::RefreshSchedule;
use strata_types::source::SourceFormat;
use strata_types::version::VersionNumber;

use super::checks::FailedChecks;
use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{
    FormProblem, OwnerContext, SubmittedForm, load_owner_context, receive_owner_form, to_form_problem,
};
use super::format::{self, FormattedTime};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::safe_text::SafeText;
use super::urls::DatasetUrls;

/// How long the response to a form waits for the refresh that the form started, which then continues in the background.
const REFRESH_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

const SHOWN_RUNS: usize = 5;
const ATTEMPTS_PER_PAGE: usize = 20;
const ENDED_PARAM: &str = "ended";
const CHECKS_PARAM: &str = "checks";
const NOW_FORM: &str = "now";
const FILE_FORM: &str = "file";
const SCHEDULE_FORM: &str = "schedule";

#[derive(Template)]
#[template(path = "refresh.html")]
struct RefreshPage {
    layout: PageLayout,
    heading: DatasetHeading,
    flash: RefreshFlash,
    created_version: Option<VersionStatus>,
    warnings: Vec<String>,
    pinned: Option<u64>,
    source: Option<String>,
    running_url: Option<String>,
    progress: Option<RefreshProgress>,
    format: String,
    infer_types: bool,
    schedule: String,
    next_runs: Vec<FormattedTime>,
    ping: Option<String>,
    attempts: Vec<RefreshAttempt>,
    now: DateTime<Utc>,
    failed_checks: Option<FailedChecks>,
    first: Option<String>,
    older: Option<String>,
}

#[derive(Default)]
struct RefreshFlash {
    notice: Option<&'static str>,
    shown_attempt: Option<ShownAttempt>,
    before: Option<u64>,
    /// The attempt whose results of checks are shown.
    checked_attempt: Option<u64>,
    problem: FormProblem,
    shows_ping_url: bool,
    refused_upload: Option<(String, bool)>,
    typed_schedule: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownAttempt {
    Newest,
    ById(u64),
}

pub(super) async fn show_refreshes(req: &mut PageRequest) -> PageResult {
    let query = req.parse_query(&["done", ENDED_PARAM, "before", CHECKS_PARAM])?;
    let done = query.parse_choice("done", &["begun", "made", "schedule"])?;
    let notice = done.map(|done| match done {
        "begun" => "The refresh has started. It continues even if you leave this page.",
        "made" => "The dataset has a new version.",
        _ => "The schedule was saved.",
    });
    let shown_attempt = match (done, query.parse_number(ENDED_PARAM)?) {
        (Some("made" | "begun"), _) => Some(ShownAttempt::Newest),
        (_, id) => id.map(ShownAttempt::ById),
    };
    let before = query.parse_number("before")?;
    let checked_attempt = query.parse_number(CHECKS_PARAM)?;
    let flash = RefreshFlash { notice, shown_attempt, before, checked_attempt, ..RefreshFlash::default() };
    render_refresh(req, flash).await
}

async fn render_refresh(req: &PageRequest, mut flash: RefreshFlash) -> PageResult {
    let own = load_owner_context(req).await?;
    let services = &req.services;
    let user = req.require_user()?;
    let OwnerContext { urls, view: DatasetView { dataset, versions, .. } } = &own;
    let before = flash.before;
    let limit = ATTEMPTS_PER_PAGE as u32 + 1;
    let mut attempts =
        services.datasets.list_attempts(&user, urls.id, before.map(RefreshAttemptId::new), limit).await?;
    let older = attempts.get(ATTEMPTS_PER_PAGE).and_then(|_| attempts.get(ATTEMPTS_PER_PAGE - 1)).map(|last| last.id);
    attempts.truncate(ATTEMPTS_PER_PAGE);
    let is_running = before.is_none() && attempts.first().is_some_and(|attempt| attempt.outcome.is_none());
    let progress = services.refreshes.progress(urls.id);
    let shown = attempts.iter().find(|attempt| match flash.shown_attempt {
        Some(ShownAttempt::Newest) => attempt.outcome.is_some() && !is_running,
        Some(ShownAttempt::ById(id)) => attempt.id.get() == id,
        None => false,
    });
    let source = match &dataset.source {
        DatasetSource::Push => None,
        DatasetSource::Url(url) => Some(redact_url(url)),
    };
    let is_url_source = source.is_some();
    let mut created_version = None;
    match shown.and_then(|attempt| attempt.outcome.as_ref()) {
        Some(AttemptOutcome::Published(number)) => {
            created_version = versions.iter().find(|record| record.version.number == *number).cloned();
            flash.notice = flash.notice.filter(|_| created_version.is_none());
        }
        Some(AttemptOutcome::Failed { error }) => {
            flash.notice = None;
            let form = if is_url_source { NOW_FORM } else { FILE_FORM };
            flash.problem = FormProblem::for_field(StatusCode::OK, form, &format!("No version was created: {error}"));
        }
        None => {}
    }
    // The form with the error can be missing after a change in another tab. The error is then shown above all forms.
    if (!is_url_source && flash.problem.text_for(NOW_FORM).is_some())
        || ((is_url_source || dataset.frozen || progress.is_some()) && flash.problem.text_for(FILE_FORM).is_some())
    {
        flash.problem = flash.problem.without_field();
    }
    let failed_checks = match flash.checked_attempt {
        Some(id) => services.datasets.check_report(&user, urls.id, RefreshAttemptId::new(id)).await?,
        None => None,
    };
    let running = attempts.first().filter(|_| is_running).map(|attempt| attempt.id.get());
    let running_query = QueryParams::default().with_optional(ENDED_PARAM, running);
    let schedule = flash.typed_schedule.as_deref().or(dataset.schedule.as_deref()).unwrap_or_default();
    let parsed = schedule.parse::<RefreshSchedule>().ok().filter(|_| is_url_source);
    let next_runs =
        parsed.map(|schedule| services.refreshes.next_due_times(&schedule, dataset.id, SHOWN_RUNS)).unwrap_or_default();
    let (format, infer_types) = flash.refused_upload.take().unwrap_or((String::new(), dataset.infer_types));
    let page = RefreshPage {
        layout: req.layout(flash.problem.prefix_title(format!("Refresh, {}", dataset.name.as_str()))),
        heading: own.heading(req, DatasetTab::Refresh),
        created_version,
        warnings: shown.map(|attempt| attempt.warnings.clone()).unwrap_or_default(),
        pinned: dataset.pinned_version.map(VersionNumber::get),
        source,
        running_url: (is_running || progress.is_some()).then(|| running_query.to_url(&urls.page_url("refresh"))),
        progress,
        format,
        infer_types,
        schedule: schedule.to_owned(),
        next_runs: next_runs.into_iter().map(FormattedTime::for_future_with_seconds).collect(),
        ping: flash.shows_ping_url.then(|| req.absolute_url(&format!("/ping/{}", dataset.ping_token.expose()))),
        attempts,
        now: Utc::now(),
        failed_checks: failed_checks.as_ref().map(FailedChecks::new),
        first: before.map(|_| urls.page_url("refresh")),
        older: older.map(|id| QueryParams::default().with_added("before", id.get()).to_url(&urls.page_url("refresh"))),
        flash,
    };
    render(page.flash.problem.status, &page)
}

/// Redacts the parts of a URL that might be a key: the query string, and the user name and password.
pub(super) fn redact_url(url: &str) -> String {
    let (before, query) = url.split_once('?').map_or((url, ""), |(before, _)| (before, "?…"));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    format!("{scheme}{host}{}{query}", path.map(|path| format!("/{path}")).unwrap_or_default())
}

/// Describes the checks of an attempt that passed or failed all of them; `None` if there were none.
fn check_note(attempt: &RefreshAttempt) -> Option<String> {
    let count = attempt.check_count.filter(|count| *count > 0)?;
    match attempt.outcome {
        Some(AttemptOutcome::Published(_)) => Some(format!("passed {}", format::pluralize(count, "check", "checks"))),
        _ => None,
    }
}

/// Links to the results of the checks of a failed attempt.
fn check_results_url(attempt: &RefreshAttempt, urls: &DatasetUrls) -> Option<String> {
    let has_failed = attempt.check_count.is_some() && matches!(attempt.outcome, Some(AttemptOutcome::Failed { .. }));
    let query = QueryParams::default().with_added(CHECKS_PARAM, attempt.id.get());
    has_failed.then(|| query.to_url(&urls.page_url("refresh")) + "#checks")
}

fn attempt_duration(attempt: &RefreshAttempt) -> Option<String> {
    Some(format::duration_ms((attempt.finished_at? - attempt.started_at).num_milliseconds().unsigned_abs()))
}

pub(super) async fn handle_refresh_form(req: &mut PageRequest, body: Body) -> PageResult {
    let (own, form) = receive_owner_form(req, body).await?;
    let reply = apply_refresh_form(req, &own.urls, &form).await;
    let Err(error) = reply else { return reply };
    let problem = to_refresh_problem(req, error, &form.action)?;
    let typed = (form.action == SCHEDULE_FORM).then(|| form.trimmed_value(SCHEDULE_FORM).to_owned());
    render_refresh(req, RefreshFlash { problem, typed_schedule: typed, ..RefreshFlash::default() }).await
}

fn to_refresh_problem(req: &mut PageRequest, error: HttpError, form: &str) -> Result<FormProblem, HttpError> {
    let problem = to_form_problem(req, error, &[SCHEDULE_FORM])?;
    let form = [NOW_FORM, FILE_FORM, SCHEDULE_FORM].into_iter().find(|name| *name == form);
    Ok(match (problem.general_text(), form) {
        (Some(text), Some(form)) => FormProblem::for_field(problem.status, form, text),
        _ => problem,
    })
}

async fn apply_refresh_form(req: &PageRequest, urls: &DatasetUrls, form: &SubmittedForm) -> PageResult {
    let services = &req.services;
    let user = req.require_user()?;
    if form.action != SCHEDULE_FORM {
        form.check_fields(&[], &[])?;
    }
    match form.action.as_str() {
        NOW_FORM => {
            let refresh = services.refreshes.refresh_from_source(user.id, urls.id);
            match tokio::time::timeout(REFRESH_WAIT_TIMEOUT, refresh).await {
                Ok(Ok(_)) => Ok(PageResponse::redirect_with_notice("made", &urls.page_url("refresh"))),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Ok(PageResponse::redirect_with_notice("begun", &urls.page_url("refresh"))),
            }
        }
        SCHEDULE_FORM => {
            form.check_fields(&[SCHEDULE_FORM], &["preview"])?;
            let typed = form.trimmed_value(SCHEDULE_FORM).to_owned();
            let parsed = (!typed.is_empty()).then(|| typed.parse::<RefreshSchedule>()).transpose();
            let to_problem = |reason: &str| FormProblem::for_field(StatusCode::BAD_REQUEST, SCHEDULE_FORM, reason);
            let problem = parsed.as_ref().err().map(|error| to_problem(&error.reason));
            if problem.is_some() || form.is_checked("preview") {
                let problem = problem.unwrap_or_default();
                let flash = RefreshFlash { problem, typed_schedule: Some(typed), ..RefreshFlash::default() };
                return render_refresh(req, flash).await;
            }
            let schedule = parsed.ok().flatten().map(|schedule| schedule.to_string());
            let change = DatasetChange { schedule: Some(schedule), ..DatasetChange::default() };
            services.datasets.update(&user, urls.id, change).await?;
            Ok(PageResponse::redirect_with_notice(SCHEDULE_FORM, &urls.page_url("refresh")))
        }
        "show-ping" => render_refresh(req, RefreshFlash { shows_ping_url: true, ..RefreshFlash::default() }).await,
        "rotate-ping" => {
            services.datasets.rotate_ping_token(&user, urls.id).await?;
            let notice = Some("The ping URL was replaced. The old URL now returns 404.");
            render_refresh(req, RefreshFlash { shows_ping_url: true, notice, ..RefreshFlash::default() }).await
        }
        _ => Err(HttpError::PathNotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_url_has_no_keys() {
        for (url, shown) in [
            ("https://a.test/x.json", "https://a.test/x.json"),
            ("https://a.test/x.json?key=1?2", "https://a.test/x.json?…"),
            ("https://me:secret@a.test:1/x@y", "https://…@a.test:1/x@y"),
            ("https://a.test", "https://a.test"),
            ("store:///incoming/a.json", "store:///incoming/a.json"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }
}

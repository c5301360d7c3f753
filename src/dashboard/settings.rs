//! `…/settings`: what an owner says of a dataset, its secrets, and its refreshes. A secret is shown when it is asked
//! for, in the answer to that form and on no other page.

use std::time::Duration;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use chrono::{DateTime, Utc};

use super::figures::Time;
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::query::Query;
use super::visit::{Reply, Shell, Visit, render};
use crate::catalog::{Attempt, AttemptOutcome, DatasetView};
use crate::http::error::HttpError;
use crate::http::visit::{self, BaseUrl};
use crate::model::dataset::{Dataset, DatasetSource};
use crate::model::version::VersionSelector;
use crate::service::{App, DatasetSettings, ManageError, ReadError};

/// How long a page waits for a refresh that it has begun. The refresh goes on.
const REFRESH_WAITS: Duration = Duration::from_secs(5);

/// Characters of the error of an attempt.
const ERROR_CHARACTERS: usize = 500;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    shell: Shell,
    heading: Heading,
    notice: Option<String>,
    problem: Option<String>,
    action: String,
    name: String,
    description: String,
    licence: String,
    listed: bool,
    private: bool,
    /// The private key, where it was asked for.
    key: Option<String>,
    /// The ping URL, where it was asked for.
    ping: Option<String>,
    source: String,
    fetched: bool,
    frozen: bool,
    schedule: Option<String>,
    attempts: Vec<AttemptRow>,
}

struct AttemptRow {
    trigger: &'static str,
    began: Time,
    /// `3 s`.
    took: Option<String>,
    outcome: String,
    failed: bool,
}

/// What is shown besides the settings.
#[derive(Default)]
struct Said {
    notice: Option<String>,
    problem: Option<String>,
    key: bool,
    ping: bool,
}

/// The handler of the page.
pub(super) async fn show(State(app): State<App>, head: Parts) -> Response {
    let visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = async {
        let place = DatasetPlace::parse(visit.head.uri.path())?;
        let done = Query::parse(visit.head.uri.query()).first("done").and_then(said);
        settings(&visit, &place, StatusCode::OK, Said { notice: done.map(str::to_owned), ..Said::default() }).await
    };
    let outcome = outcome.await;
    visit.answer(outcome).await
}

/// What is said when a form has done its work.
fn said(done: &str) -> Option<&'static str> {
    Some(match done {
        "about" => "The settings are saved.",
        "refresh" => "The refresh has begun. The attempts below tell how it ends.",
        "refreshed" => "The dataset has a new version.",
        _ => return None,
    })
}

/// The dataset, which must be the visitor's.
async fn own(visit: &Visit, place: &DatasetPlace) -> Result<DatasetView, HttpError> {
    let view = visit.app.datasets().view(&visit.user()?, place.id).await?;
    match view.dataset.name.slug() == place.slug {
        true => Ok(view),
        false => Err(ReadError::DatasetNotFound.into()),
    }
}

async fn settings(visit: &Visit, place: &DatasetPlace, status: StatusCode, said: Said) -> Result<Reply, HttpError> {
    let DatasetView { dataset, last_attempts, .. } = own(visit, place).await?;
    let now = Utc::now();
    let base = BaseUrl::of(&visit.head, &visit.app);
    let active = place.version(VersionSelector::Active, false);
    let key = dataset.private_key.as_ref().filter(|_| said.key).map(|key| key.expose().to_owned());
    let page = SettingsPage {
        shell: visit.shell(format!("Settings, {}", dataset.name.as_str())),
        heading: Heading::around(visit, &dataset, &active, Tab::Settings),
        notice: said.notice,
        problem: said.problem,
        action: place.settings(),
        name: dataset.name.as_str().to_owned(),
        description: dataset.about.description.clone().unwrap_or_default(),
        licence: dataset.about.licence.clone().unwrap_or_default(),
        listed: dataset.about.listed,
        private: dataset.is_private(),
        key,
        ping: said.ping.then(|| base.url(&format!("/ping/{}", dataset.ping_token.expose()))),
        source: source(&dataset),
        fetched: matches!(dataset.source, DatasetSource::Url(_)),
        frozen: dataset.frozen,
        schedule: dataset.schedule.clone(),
        attempts: last_attempts.iter().map(|attempt| row(attempt, now)).collect(),
    };
    render(status, &page)
}

/// Where the entities come from. The query of a URL may hold keys.
fn source(dataset: &Dataset) -> String {
    match &dataset.source {
        DatasetSource::Push => "Its owner sends the entities: POST /dataset/refresh.".to_owned(),
        DatasetSource::Url(url) => match url.split_once('?') {
            Some((before, _)) => format!("{before}?…"),
            None => url.clone(),
        },
    }
}

fn row(attempt: &Attempt, now: DateTime<Utc>) -> AttemptRow {
    let took = attempt.finished_at.map(|finished| finished - attempt.started_at);
    let (outcome, failed) = match &attempt.outcome {
        None => ("running".to_owned(), false),
        Some(AttemptOutcome::Published(version)) => (format!("made version {version}"), false),
        Some(AttemptOutcome::Failed { error }) => (error.chars().take(ERROR_CHARACTERS).collect(), true),
    };
    AttemptRow {
        trigger: attempt.trigger.name(),
        began: Time::new(attempt.started_at, now),
        took: took.map(|took| format!("{:.1} s", took.num_milliseconds() as f64 / 1_000.0)),
        outcome,
        failed,
    }
}

/// The handler of its forms.
pub(super) async fn act(State(app): State<App>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = async {
        visit.user()?;
        let fields = Query::from_iter(visit.form(body).await?);
        let path = visit.head.uri.path().to_owned();
        let place = DatasetPlace::parse(&path)?;
        own(&visit, &place).await?;
        match Box::pin(done(&visit, &place, path.rsplit('/').next().unwrap_or_default(), &fields)).await {
            Ok(reply) => Ok(reply),
            Err(HttpError::Manage(
                error @ (ManageError::Invalid { .. } | ManageError::NameTaken | ManageError::Public),
            )) => {
                let told = visit::told(error.into(), &visit.head);
                visit.headers.extend(told.headers);
                settings(&visit, &place, told.status, Said { problem: Some(told.text), ..Said::default() }).await
            }
            Err(error) => Err(error),
        }
    };
    let outcome = outcome.await;
    visit.answer(outcome).await
}

/// Does what a form asks for.
async fn done(visit: &Visit, place: &DatasetPlace, name: &str, fields: &Query) -> Result<Reply, HttpError> {
    let (app, user) = (&visit.app, visit.user()?);
    let leads = |place: &DatasetPlace, done: &str| {
        Ok(Reply::SeeOther(Query::default().and("done", done).at(&place.settings())))
    };
    match name {
        "about" => {
            let text =
                |name| Some(fields.first(name).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned));
            let given = fields.first("name").unwrap_or_default().trim();
            let invalid = |problem: crate::model::dataset::InvalidDatasetName| ManageError::Invalid {
                field: "name",
                problem: problem.to_string(),
            };
            let settings = DatasetSettings {
                name: Some(given.parse().map_err(invalid)?),
                description: text("description"),
                licence: text("licence"),
                listed: Some(fields.first("listed").is_some()),
                private: Some(fields.first("private").is_some()),
                ..DatasetSettings::default()
            };
            let updated = app.datasets().update(&user, place.id, settings).await?;
            leads(&DatasetPlace::of(&updated.dataset), "about")
        }
        "show-key" => settings(visit, place, StatusCode::OK, Said { key: true, ..Said::default() }).await,
        "show-ping" => settings(visit, place, StatusCode::OK, Said { ping: true, ..Said::default() }).await,
        "rotate-key" => {
            app.datasets().rotate_key(&user, place.id).await?;
            let notice = Some("The dataset has a new private key. The old one opens nothing any more.".to_owned());
            settings(visit, place, StatusCode::OK, Said { key: true, notice, ..Said::default() }).await
        }
        "rotate-ping" => {
            app.datasets().rotate_ping(&user, place.id).await?;
            let notice = Some("The dataset has a new ping URL. The old one finds nothing any more.".to_owned());
            settings(visit, place, StatusCode::OK, Said { ping: true, notice, ..Said::default() }).await
        }
        "refresh" => {
            // Dropped, it goes on.
            match tokio::time::timeout(REFRESH_WAITS, app.refreshes().fetch(user.id, place.id)).await {
                Ok(Ok(_)) => leads(place, "refreshed"),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => leads(place, "refresh"),
            }
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

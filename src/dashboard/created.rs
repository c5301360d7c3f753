//! `/ui/new`: a new dataset, which has no version yet.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::acting::{Problem, Sent, problem, received};
use super::place::DatasetPlace;
use super::visit::{Reply, Shell, Visit, render};
use crate::http::error::HttpError;
use crate::model::dataset::{DEFAULT_SCHEDULE, DatasetSource, InvalidDatasetName};
use crate::service::{App, DatasetSettings, ManageError};

/// The path of the page.
const NEW: &str = "/ui/new";

/// The fields beside which their problems are said.
const FIELDS: [&str; 4] = ["name", "description", "licence", "source"];

#[derive(Template)]
#[template(path = "new.html")]
struct NewPage {
    shell: Shell,
    action: &'static str,
    problem: Problem,
    name: String,
    description: String,
    licence: String,
    listed: bool,
    fetched: bool,
    source: String,
    private: bool,
}

/// The handler of the page.
pub(super) async fn show(State(app): State<App>, head: Parts) -> Response {
    let visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = visit.user().and_then(|_| form(&visit, StatusCode::OK, Problem::default(), None));
    visit.answer(outcome).await
}

fn form(visit: &Visit, status: StatusCode, problem: Problem, sent: Option<&Sent>) -> Result<Reply, HttpError> {
    let trimmed = |name| sent.map(|sent| sent.trimmed(name).to_owned()).unwrap_or_default();
    let page = NewPage {
        shell: visit.shell("New dataset"),
        action: NEW,
        problem,
        name: trimmed("name"),
        description: trimmed("description"),
        licence: trimmed("licence"),
        listed: sent.is_some_and(|sent| sent.ticked("listed")),
        fetched: sent.is_some_and(|sent| sent.trimmed("from") == "url"),
        source: trimmed("source"),
        private: sent.is_some_and(|sent| sent.ticked("private")),
    };
    render(status, &page)
}

/// The handler of its form.
pub(super) async fn act(State(app): State<App>, request: Request) -> Response {
    let (mut visit, sent) = match received(app, request).await {
        Ok(received) => received,
        Err(response) => return *response,
    };
    let outcome = match create(&visit, &sent).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            problem(&mut visit, error, &FIELDS).and_then(|(status, problem)| form(&visit, status, problem, Some(&sent)))
        }
    };
    visit.answer(outcome).await
}

async fn create(visit: &Visit, sent: &Sent) -> Result<Reply, HttpError> {
    let invalid = |problem: InvalidDatasetName| ManageError::Invalid { field: "name", problem: problem.to_string() };
    let name = sent.trimmed("name").parse().map_err(invalid)?;
    let source = match sent.trimmed("from") {
        "url" => DatasetSource::Url(sent.trimmed("source").to_owned()),
        _ => DatasetSource::Push,
    };
    let text = |name| sent.optional(name).map(|text| Some(text.to_owned()));
    let settings = DatasetSettings {
        description: text("description"),
        licence: text("licence"),
        listed: Some(sent.ticked("listed")),
        private: Some(sent.ticked("private")),
        source: Some(source),
        ..DatasetSettings::default()
    };
    let created = visit.app.datasets().create(&visit.user()?, name, settings, DEFAULT_SCHEDULE).await?;
    // Its first version is made there.
    Ok(Reply::SeeOther(DatasetPlace::of(&created.dataset).refresh()))
}

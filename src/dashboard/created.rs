//! `/ui/new`: a new dataset, which has no version yet.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;

use super::acting::{Problem, Sent, problem, received};
use super::place::DatasetPlace;
use super::settings::{AboutForm, FROM, URL_UNCHOSEN};
use super::visit::{Reply, Shell, Visit, render};
use crate::http::error::HttpError;
use crate::model::dataset::{DatasetChange, DatasetSource};
use crate::service::ManageError;

const NEW: &str = "/ui/new";

/// The fields beside which their problems are said.
const FIELDS: [&str; 4] = ["name", "description", "licence", "source"];

#[derive(Template)]
#[template(path = "new.html")]
struct NewPage {
    shell: Shell,
    action: &'static str,
    problem: Problem,
    about: AboutForm,
    fetched: bool,
    source: String,
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    visit.query(&[])?;
    visit.user()?;
    form(visit, StatusCode::OK, Problem::default(), None)
}

fn form(visit: &Visit, status: StatusCode, problem: Problem, sent: Option<&Sent>) -> Result<Reply, HttpError> {
    let page = NewPage {
        shell: visit.shell(problem.title("New dataset".to_owned())),
        action: NEW,
        problem,
        about: sent.map(AboutForm::sent).unwrap_or_default(),
        fetched: sent.is_some_and(|sent| sent.trimmed("from") == "url"),
        source: sent.map(|sent| sent.trimmed("source").to_owned()).unwrap_or_default(),
    };
    render(status, &page)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let sent = received(visit, body).await?;
    match create(visit, &sent).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            let (status, problem) = problem(visit, error, &FIELDS)?;
            form(visit, status, problem, Some(&sent))
        }
    }
}

async fn create(visit: &Visit, sent: &Sent) -> Result<Reply, HttpError> {
    sent.check(&[&AboutForm::TEXTS[..], &["from", "source"]].concat(), &AboutForm::BOXES)?;
    let from = sent.chosen("from", &FROM)?;
    let (name, about) = AboutForm::sent(sent).checked()?;
    let source = match from {
        "url" => DatasetSource::Url(sent.trimmed("source").to_owned()),
        _ if sent.trimmed("source").is_empty() => DatasetSource::Push,
        // A URL that was typed is not dropped without a word.
        _ => {
            return Err(ManageError::Invalid { field: "source", problem: URL_UNCHOSEN.to_owned() }.into());
        }
    };
    let settings = DatasetChange { source: Some(source), ..about };
    let created = visit.app.datasets().create(&visit.user()?, name, settings).await?;
    // Its first version is made there.
    Ok(Reply::SeeOther(DatasetPlace::of(&created.dataset).refresh()))
}

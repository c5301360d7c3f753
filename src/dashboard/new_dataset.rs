//! `/ui/new`: a new dataset, which has no version yet; and `…/clone`: one that begins with the newest version of
//! another.

use askama::Template;
use axum::body::Body;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};
use strata_types::dataset::{Dataset, DatasetChange, DatasetSource, InvalidDatasetName};
use strata_types::limits::DATASET_NAME_CHARACTERS;
use strata_types::version::VersionSelector;

use super::context::{Heading, Tab};
use super::form_handling::{Problem, SubmittedForm, invalid_field, problem, received};
use super::settings::{AboutForm, FROM, URL_UNCHOSEN};
use super::unavailable;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Reply, Shell, Visit, render};

const FIELDS: [&str; 4] = ["name", "description", "licence", "source"];

#[derive(Template)]
#[template(path = "new.html")]
struct NewPage {
    shell: Shell,
    problem: Problem,
    about: AboutForm,
    fetched: bool,
    source: String,
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    visit.query(&[])?;
    visit.user()?;
    form(visit, Problem::default(), None)
}

fn form(visit: &Visit, problem: Problem, sent: Option<&SubmittedForm>) -> PageResult {
    let page = NewPage {
        shell: visit.shell(problem.title("New dataset".to_owned())),
        problem,
        about: sent.map(AboutForm::sent).unwrap_or_default(),
        fetched: sent.is_some_and(|sent| sent.trimmed("from") == "url"),
        source: sent.map(|sent| sent.trimmed("source").to_owned()).unwrap_or_default(),
    };
    render(page.problem.status, &page)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let sent = received(visit, body).await?;
    let error = match create(visit, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let problem = problem(visit, error, &FIELDS)?;
    form(visit, problem, Some(&sent))
}

async fn create(visit: &Visit, sent: &SubmittedForm) -> PageResult {
    sent.check(&[&AboutForm::TEXTS[..], &["from", "source"]].concat(), &AboutForm::BOXES)?;
    let from = sent.chosen("from", &FROM)?;
    let (name, about) = AboutForm::sent(sent).checked()?;
    let source = match from {
        "url" => DatasetSource::Url(sent.trimmed("source").to_owned()),
        _ if sent.trimmed("source").is_empty() => DatasetSource::Push,
        // A URL that was typed is not dropped silently.
        _ => return Err(invalid_field("source", URL_UNCHOSEN)),
    };
    let settings = DatasetChange { source: Some(source), ..about };
    let created = visit.services.datasets.create(&visit.user()?, name, settings).await?;
    Ok(Reply::SeeOther(DatasetPlace::new(&created.dataset).page("refresh")))
}

#[derive(Template)]
#[template(path = "clone.html")]
struct ClonePage {
    shell: Shell,
    heading: Heading,
    problem: Problem,
    name: String,
}

pub(super) async fn show_clone(visit: &mut Visit) -> PageResult {
    let page = async |visit: &mut Visit| {
        visit.query(&[])?;
        clone_form(visit, &seen(visit).await?, Problem::default(), None)
    };
    unavailable::or_told(visit, Tab::Versions, page).await
}

/// The dataset that the path names, if the user can clone it.
async fn seen(visit: &Visit) -> Result<Dataset, HttpError> {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let user = visit.user()?;
    let found = visit.services.datasets.visible(Some(&user), visit.visitor.client, place.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == place.slug).ok_or(ReadError::DatasetNotFound)?;
    let is_own = found.owner == user.id;
    match (found.frozen, found.latest_version) {
        (true, _) if !is_own => Err(ReadError::Frozen.into()),
        (true, _) => Err(ManageError::Frozen.into()),
        (false, None) => Err(ManageError::NothingToClone.into()),
        (false, Some(_)) => Ok(found),
    }
}

fn clone_form(visit: &Visit, dataset: &Dataset, problem: Problem, sent: Option<&SubmittedForm>) -> PageResult {
    let name = || format!("Clone of {}", dataset.name.as_str()).chars().take(DATASET_NAME_CHARACTERS).collect();
    let place = DatasetPlace::new(dataset);
    let page = ClonePage {
        shell: visit.shell(problem.title(format!("Clone {}", dataset.name.as_str()))),
        heading: Heading::for_dataset(visit, dataset, &place.version(VersionSelector::Active, false), Tab::Versions),
        problem,
        name: sent.map_or_else(name, |sent| sent.trimmed("name").to_owned()),
    };
    render(page.problem.status, &page)
}

pub(super) async fn act_clone(visit: &mut Visit, body: Body) -> PageResult {
    let sent = received(visit, body).await?;
    unavailable::or_told(visit, Tab::Versions, async |visit: &mut Visit| cloned(visit, &sent).await).await
}

async fn cloned(visit: &mut Visit, sent: &SubmittedForm) -> PageResult {
    let dataset = seen(visit).await?;
    let user = visit.user()?;
    sent.check(&["name"], &[])?;
    let invalid = |problem: InvalidDatasetName| invalid_field("name", problem.to_string());
    let made = match sent.trimmed("name").parse().map_err(invalid) {
        Ok(name) => visit.services.datasets.clone_dataset(&user, dataset.id, name).await.map_err(HttpError::from),
        Err(error) => Err(error),
    };
    match made {
        Ok(made) => {
            let place = DatasetPlace::new(&made.dataset);
            Ok(Reply::SeeOther(place.version(VersionSelector::Active, false).browse()))
        }
        Err(error) => {
            let problem = problem(visit, error, &["name"])?;
            clone_form(visit, &dataset, problem, Some(sent))
        }
    }
}

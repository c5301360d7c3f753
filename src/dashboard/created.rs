//! `/ui/new`: a new dataset, which has no version yet; and `…/clone`: one that begins with the newest version of
//! another. The latter says what it will do before it is done.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};
use strata_types::dataset::{Dataset, DatasetChange, DatasetSource, InvalidDatasetName};
use strata_types::limits::DATASET_NAME_CHARACTERS;
use strata_types::version::VersionSelector;

use super::acting::{Problem, Sent, invalid_field, problem, received};
use super::closed;
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::settings::{AboutForm, FROM, URL_UNCHOSEN};
use super::visit::{Reply, Shell, Visit, render};

/// The fields beside which their problems are said.
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

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    visit.query(&[])?;
    visit.user()?;
    form(visit, StatusCode::OK, Problem::default(), None)
}

fn form(visit: &Visit, status: StatusCode, problem: Problem, sent: Option<&Sent>) -> Result<Reply, HttpError> {
    let page = NewPage {
        shell: visit.shell(problem.title("New dataset".to_owned())),
        problem,
        about: sent.map(AboutForm::sent).unwrap_or_default(),
        fetched: sent.is_some_and(|sent| sent.trimmed("from") == "url"),
        source: sent.map(|sent| sent.trimmed("source").to_owned()).unwrap_or_default(),
    };
    render(status, &page)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let sent = received(visit, body).await?;
    let error = match create(visit, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let (status, problem) = problem(visit, error, &FIELDS)?;
    form(visit, status, problem, Some(&sent))
}

async fn create(visit: &Visit, sent: &Sent) -> Result<Reply, HttpError> {
    sent.check(&[&AboutForm::TEXTS[..], &["from", "source"]].concat(), &AboutForm::BOXES)?;
    let from = sent.chosen("from", &FROM)?;
    let (name, about) = AboutForm::sent(sent).checked()?;
    let source = match from {
        "url" => DatasetSource::Url(sent.trimmed("source").to_owned()),
        _ if sent.trimmed("source").is_empty() => DatasetSource::Push,
        // A URL that was typed is not dropped without a word.
        _ => return Err(invalid_field("source", URL_UNCHOSEN)),
    };
    let settings = DatasetChange { source: Some(source), ..about };
    let created = visit.app.datasets().create(&visit.user()?, name, settings).await?;
    // Its first version is made there.
    Ok(Reply::SeeOther(DatasetPlace::of(&created.dataset).page("refresh")))
}

#[derive(Template)]
#[template(path = "clone.html")]
struct ClonePage {
    shell: Shell,
    heading: Heading,
    problem: Problem,
    effects: Vec<String>,
    name: String,
}

pub(super) async fn show_clone(visit: &mut Visit) -> Result<Reply, HttpError> {
    let page = async |visit: &mut Visit| {
        visit.query(&[])?;
        clone_form(visit, &seen(visit).await?, StatusCode::OK, Problem::default(), None)
    };
    closed::or_told(visit, Tab::Versions, page).await
}

/// The dataset that the path names, which a user may clone. One that nobody can clone now is told as that.
async fn seen(visit: &Visit) -> Result<Dataset, HttpError> {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let user = visit.user()?;
    let found = visit.app.datasets().visible(Some(&user), visit.visitor.client, place.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == place.slug).ok_or(ReadError::DatasetNotFound)?;
    let is_own = found.owner == user.id;
    match (found.frozen, found.latest_version) {
        (true, _) if !is_own => Err(ReadError::Frozen.into()),
        (true, _) => Err(ManageError::Frozen.into()),
        (false, None) => Err(ManageError::NothingToClone.into()),
        (false, Some(_)) => Ok(found),
    }
}

fn clone_form(
    visit: &Visit,
    dataset: &Dataset,
    status: StatusCode,
    problem: Problem,
    sent: Option<&Sent>,
) -> Result<Reply, HttpError> {
    let place = DatasetPlace::of(dataset);
    let page = ClonePage {
        shell: visit.shell(problem.title(format!("Clone {}", dataset.name.as_str()))),
        heading: Heading::around(visit, dataset, &place.version(VersionSelector::Active, false), Tab::Versions),
        problem,
        effects: effects(dataset),
        name: sent.map_or_else(|| name_of_clone(dataset.name.as_str()), |sent| sent.trimmed("name").to_owned()),
    };
    render(status, &page)
}

fn effects(dataset: &Dataset) -> Vec<String> {
    let latest = dataset.latest_version.map_or(0, |latest| latest.get());
    let who = match dataset.is_private() {
        true => "The clone is private and has its own key.",
        false => "The clone is public, but it does not appear in the dataset list until you change its settings.",
    };
    vec![
        format!(
            "The clone is a new dataset that you own. Its version 1 is a copy of this dataset’s version {latest}, \
             including the alternate, if any."
        ),
        "The clone has this dataset’s description and license, but no source. To update the clone, upload or push \
         entities."
            .to_owned(),
        who.to_owned(),
        "The clone counts toward your plan’s active dataset limit.".to_owned(),
        "This dataset does not change.".to_owned(),
    ]
}

/// A name that says what it is, as long as a name may be.
fn name_of_clone(name: &str) -> String {
    format!("Clone of {name}").chars().take(DATASET_NAME_CHARACTERS).collect()
}

pub(super) async fn act_clone(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let sent = received(visit, body).await?;
    closed::or_told(visit, Tab::Versions, async |visit: &mut Visit| cloned(visit, &sent).await).await
}

async fn cloned(visit: &mut Visit, sent: &Sent) -> Result<Reply, HttpError> {
    let dataset = seen(visit).await?;
    let user = visit.user()?;
    sent.check(&["name"], &[])?;
    let invalid = |problem: InvalidDatasetName| ManageError::Invalid { field: "name", problem: problem.to_string() };
    let made = match sent.trimmed("name").parse().map_err(invalid) {
        Ok(name) => visit.app.datasets().clone_dataset(&user, dataset.id, name).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(made) => {
            let place = DatasetPlace::of(&made.dataset);
            Ok(Reply::SeeOther(place.version(VersionSelector::Active, false).browse()))
        }
        Err(error) => {
            let (status, problem) = problem(visit, error.into(), &["name"])?;
            clone_form(visit, &dataset, status, problem, Some(sent))
        }
    }
}

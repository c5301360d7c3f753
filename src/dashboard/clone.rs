//! `…/clone`: a dataset of the visitor's that begins with the newest version of this one. It says what it will do
//! before it is done.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;

use super::acting::{Problem, Sent, problem, received};
use super::closed;
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::visit::{Reply, Shell, Visit, render};
use crate::http::error::HttpError;
use crate::model::dataset::{Dataset, InvalidDatasetName};
use crate::model::limits::DATASET_NAME_CHARACTERS;
use crate::model::version::VersionSelector;
use crate::service::{ManageError, ReadError};

/// The field beside which its problem is said.
const FIELDS: [&str; 1] = ["name"];

#[derive(Template)]
#[template(path = "clone.html")]
struct ClonePage {
    shell: Shell,
    heading: Heading,
    problem: Problem,
    effects: Vec<String>,
    action: String,
    name: String,
    back: String,
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let page = async |visit: &mut Visit| {
        visit.query(&[])?;
        form(visit, &seen(visit).await?, StatusCode::OK, Problem::default(), None)
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

fn form(
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
        action: place.clone_page(),
        name: sent.map_or_else(|| name_of_clone(dataset.name.as_str()), |sent| sent.trimmed("name").to_owned()),
        back: place.versions(),
    };
    render(status, &page)
}

fn effects(dataset: &Dataset) -> Vec<String> {
    let latest = dataset.latest_version.map_or(0, |latest| latest.get());
    let who = match dataset.is_private() {
        true => "It is private, with a key of its own.",
        false => "It is public, and not listed until you say so in its settings.",
    };
    vec![
        format!(
            "You get a dataset of your own. Its version 1 is version {latest} of this one, with its alternate if any."
        ),
        "Its description and licence come with it, its source does not: it takes what you upload or push.".to_owned(),
        who.to_owned(),
        "It counts for your plan’s number of active datasets. This one does not change.".to_owned(),
    ]
}

/// A name that says what it is, as long as a name may be.
fn name_of_clone(name: &str) -> String {
    format!("Clone of {name}").chars().take(DATASET_NAME_CHARACTERS).collect()
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let sent = received(visit, body).await?;
    closed::or_told(visit, Tab::Versions, async |visit: &mut Visit| cloned(visit, &sent).await).await
}

async fn cloned(visit: &mut Visit, sent: &Sent) -> Result<Reply, HttpError> {
    let (dataset, user) = (seen(visit).await?, visit.user()?);
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
            let (status, problem) = problem(visit, error.into(), &FIELDS)?;
            form(visit, &dataset, status, problem, Some(sent))
        }
    }
}

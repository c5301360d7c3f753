//! `…/versions`: the versions of a dataset, the newest first; and `…/manage/{action}`, where its owner pins, unpins,
//! freezes and unfreezes.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{DatasetView, VersionRecord};
use strata_http::error::HttpError;
use strata_http::visit;
use strata_service::{Bucket, ReadError};
use strata_types::dataset::Dataset;
use strata_types::version::{VersionNumber, VersionSelector, there_are};

use super::context::{Heading, Tab};
use super::form_handling::{Question, own, received_of_owner};
use super::format::{self, Time};
use super::query::Query;
use super::urls::{DatasetPlace, Place};
use super::visit::{PageResult, Reply, Shell, Visit, render};

const PAGE: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Pin,
    Unpin,
    Freeze,
    Unfreeze,
}

impl Action {
    const ALL: [Action; 4] = [Action::Pin, Action::Unpin, Action::Freeze, Action::Unfreeze];

    fn name(self) -> &'static str {
        match self {
            Action::Pin => "pin",
            Action::Unpin => "unpin",
            Action::Freeze => "freeze",
            Action::Unfreeze => "unfreeze",
        }
    }

    fn parse(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Whether the action would change nothing.
    fn is_in_force(self, version: Option<VersionNumber>, dataset: &Dataset) -> bool {
        let is_pinned = dataset.pinned_version == version;
        match self {
            Action::Pin => is_pinned && !dataset.frozen,
            Action::Unpin => dataset.pinned_version.is_none(),
            Action::Freeze => is_pinned && dataset.frozen,
            Action::Unfreeze => !dataset.frozen,
        }
    }

    fn of_a_version(self) -> bool {
        matches!(self, Action::Pin | Action::Freeze)
    }
}

#[derive(Template)]
#[template(path = "versions.html")]
struct VersionsPage {
    shell: Shell,
    heading: Heading,
    /// The action that was just done.
    done: Option<Action>,
    dataset: Dataset,
    /// The versions that a form for the owner proposes to compare.
    last_two: Option<[VersionNumber; 2]>,
    total: usize,
    clones: bool,
    /// Each version with the one before it.
    versions: Vec<(VersionRecord, Option<VersionRecord>)>,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

fn manage(place: &Place, number: &VersionNumber, action: Action) -> String {
    Query::default().and("version", number).at(&place.dataset.manage(action.name()))
}

/// The dataset, and whether the visitor owns it. The request is counted as a read, before the versions are looked up.
async fn seen(visit: &mut Visit, place: &DatasetPlace) -> Result<(DatasetView, bool), HttpError> {
    let services = visit.services.clone();
    let user = visit.visitor.user.clone();
    if user.is_none() {
        visit::count(&services, visit.visitor.client, Bucket::Public, &mut visit.headers).await?;
    }
    let client = visit.visitor.client;
    let found = services.datasets.visible(user.as_ref(), client, place.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == place.slug);
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(Dataset::is_private);
        let bucket = if is_private { Bucket::Private } else { Bucket::Public };
        visit::count(&services, client, bucket, &mut visit.headers).await?;
    }
    let dataset = found.ok_or(ReadError::DatasetNotFound)?;
    let owned = user.as_ref().is_some_and(|user| user.id == dataset.owner);
    if dataset.frozen && !owned {
        return Err(ReadError::Frozen.into());
    }
    let view = services.datasets.with_versions(user.as_ref(), client, &dataset).await?;
    Ok((view.ok_or(ReadError::DatasetNotFound)?, owned))
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let uri = visit.head.uri.clone();
    let place = DatasetPlace::parse(uri.path())?;
    let query = visit.query(&["before", "done"])?;
    let before = query.number("before")?;
    query.one_of("done", &Action::ALL.map(Action::name))?;
    let (view, owned) = seen(visit, &place).await?;
    let before = before.unwrap_or(u64::MAX);
    let done = query.first("done").filter(|_| owned).and_then(Action::parse);
    let dataset = &view.dataset;
    let from = view.versions.iter().position(|record| record.version.number.get() < before);
    let rest = from.map_or(&[][..], |from| &view.versions[from..]);
    let active = place.version(VersionSelector::Active, false);
    let page = VersionsPage {
        shell: visit.shell(format!("Versions, {}", dataset.name.as_str())),
        heading: Heading::for_dataset(visit, dataset, &active, Tab::Versions).with_failure(visit, dataset).await,
        done,
        dataset: dataset.clone(),
        last_two: match view.versions.as_slice() {
            [last, before, ..] if owned => Some([before.version.number, last.version.number]),
            _ => None,
        },
        total: view.versions.len(),
        clones: visit.visitor.user.is_some() && !dataset.frozen && !view.versions.is_empty(),
        versions: rest.iter().take(PAGE).zip(1..).map(|(record, at)| (record.clone(), rest.get(at).cloned())).collect(),
        now: Utc::now(),
        first: from.filter(|from| *from > 0).map(|_| place.page("versions")),
        older: rest
            .get(PAGE)
            .map(|_| Query::default().and("before", rest[PAGE - 1].version.number).at(&place.page("versions"))),
    };
    render(StatusCode::OK, &page)
}

/// The confirmation page of an action.
#[derive(Template)]
#[template(path = "manage.html")]
struct ManagePage {
    shell: Shell,
    heading: Option<Heading>,
    question: Question,
    action: Action,
    number: u64,
    active: u64,
    latest: u64,
    frozen: bool,
}

struct ManageRequest {
    place: DatasetPlace,
    action: Action,
    version: Option<VersionNumber>,
}

fn asked(path: &str, version: Option<&str>) -> Result<ManageRequest, HttpError> {
    let place = DatasetPlace::parse(path)?;
    let name = path.rsplit('/').next().unwrap_or_default();
    let action = Action::parse(name).ok_or(HttpError::NoSuchPath)?;
    let number = version.and_then(|number| number.parse().ok()).filter(|number| *number > 0);
    let version = match (action.of_a_version(), number) {
        (false, _) => None,
        (true, Some(number)) => Some(VersionNumber::new(number)),
        (true, None) => {
            let given = visit::quoted(version.unwrap_or_default());
            let text = format!("The version must be a positive whole number, but is {given}.");
            return Err(HttpError::Invalid { status: StatusCode::BAD_REQUEST, text });
        }
    };
    Ok(ManageRequest { place, action, version })
}

pub(super) async fn confirm(visit: &mut Visit) -> PageResult {
    let given = Query::parse(visit.head.uri.query());
    // An unknown action returns 404 to every visitor.
    let ManageRequest { place, action, version } = asked(visit.head.uri.path(), given.first("version"))?;
    visit.query(if action.of_a_version() { &["version"] } else { &[] })?;
    let own = own(visit).await?;
    let dataset = &own.view.dataset;
    if let Some(number) = version
        && !own.view.versions.iter().any(|record| record.version.number == number)
    {
        let text = format!("There is no version {number}; {}.", there_are(dataset.latest_version));
        return Err(HttpError::Invalid { status: StatusCode::NOT_FOUND, text });
    }
    if action.is_in_force(version, dataset) {
        return Ok(Reply::SeeOther(place.page("versions")));
    }
    let number = version.map_or(0, VersionNumber::get);
    let (title, button) = match action {
        Action::Pin => (format!("Pin version {number}?"), format!("Pin version {number}")),
        Action::Unpin => ("Unpin the active version?".to_owned(), "Unpin version".to_owned()),
        Action::Freeze => (format!("Freeze this dataset at version {number}?"), "Freeze dataset".to_owned()),
        Action::Unfreeze => ("Unfreeze this dataset?".to_owned(), "Unfreeze dataset".to_owned()),
    };
    let page = ManagePage {
        shell: visit.shell(title.clone()),
        heading: Some(own.heading(visit, Tab::Versions)),
        action,
        number,
        active: dataset.active_version().map_or(0, VersionNumber::get),
        latest: dataset.latest_version.map_or(0, VersionNumber::get),
        frozen: dataset.frozen,
        question: Question {
            title,
            action: place.manage(action.name()),
            version: version.map(VersionNumber::get),
            button,
            danger: action == Action::Freeze,
            back: place.page("versions"),
            ..Question::default()
        },
    };
    render(StatusCode::OK, &page)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let (_, sent) = received_of_owner(visit, body).await?;
    let ManageRequest { place, action, version } = asked(visit.head.uri.path(), sent.fields.first("version"))?;
    sent.check(if action.of_a_version() { &["version"] } else { &[] }, &[])?;
    let datasets = &visit.services.datasets;
    let user = visit.user()?;
    match (action, version) {
        (Action::Pin, Some(version)) => datasets.rollback(&user, place.id, version, false).await?,
        (Action::Freeze, Some(version)) => datasets.rollback(&user, place.id, version, true).await?,
        (Action::Unfreeze, _) => datasets.unfreeze(&user, place.id).await?,
        _ => datasets.unpin(&user, place.id).await?,
    };
    Ok(Reply::done(action.name(), &place.page("versions")))
}

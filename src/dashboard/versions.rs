//! `…/versions`: the versions of a dataset, the newest first; and `…/manage/{action}`, where its owner pins, unpins,
//! freezes and unfreezes. Each says what it will do before it is done.

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

use super::acting::{Question, own, received_of_owner};
use super::figures::{self, Time};
use super::opened::{Heading, Tab};
use super::place::{DatasetPlace, Place};
use super::query::Query;
use super::visit::{Reply, Shell, Visit, render};

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

    fn done(self) -> &'static str {
        match self {
            Action::Pin => "The version was pinned. It stays active until you unpin it or pin another version.",
            Action::Unpin => "The version was unpinned. The newest version is now active.",
            Action::Freeze => "The dataset was frozen. Requests return 410, and strata does not refresh the dataset.",
            Action::Unfreeze => "The dataset was unfrozen. strata serves and refreshes it again.",
        }
    }

    /// Whether the dataset is as it would be then.
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
    notice: Option<&'static str>,
    dataset: Dataset,
    /// The last two versions, which a form proposes to compare, for the owner of more than one.
    last_two: Option<[VersionNumber; 2]>,
    total: usize,
    /// Whether a user can make a clone.
    clones: bool,
    /// Each version with the one before it.
    versions: Vec<(VersionRecord, Option<VersionRecord>)>,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

/// The page that asks before something is done with a version.
fn manage(place: &Place, number: &VersionNumber, action: Action) -> String {
    Query::default().and("version", number).at(&place.dataset.manage(action.name()))
}

/// The dataset, and whether it is the visitor's. To all but its owner a private one is what a missing one is, and a
/// frozen one is gone. The request is counted as a read, before the versions are looked up.
async fn seen(visit: &mut Visit, place: &DatasetPlace) -> Result<(DatasetView, bool), HttpError> {
    let app = visit.app.clone();
    let user = visit.visitor.user.clone();
    if user.is_none() {
        visit::count(&app, visit.visitor.client, Bucket::Public, &mut visit.headers).await?;
    }
    let client = visit.visitor.client;
    let found = app.datasets().visible(user.as_ref(), client, place.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == place.slug);
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(Dataset::is_private);
        let bucket = if is_private { Bucket::Private } else { Bucket::Public };
        visit::count(&app, client, bucket, &mut visit.headers).await?;
    }
    let dataset = found.ok_or(ReadError::DatasetNotFound)?;
    let owned = user.as_ref().is_some_and(|user| user.id == dataset.owner);
    if dataset.frozen && !owned {
        return Err(ReadError::Frozen.into());
    }
    let view = app.datasets().with_versions(user.as_ref(), client, &dataset).await?;
    Ok((view.ok_or(ReadError::DatasetNotFound)?, owned))
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let place = DatasetPlace::parse(uri.path())?;
    let query = visit.query(&["before", "done"])?;
    let before = query.number("before")?;
    query.one_of("done", &Action::ALL.map(Action::name))?;
    let (view, owned) = seen(visit, &place).await?;
    let before = before.unwrap_or(u64::MAX);
    let notice = query.first("done").filter(|_| owned).and_then(Action::parse);
    let dataset = &view.dataset;
    let from = view.versions.iter().position(|record| record.version.number.get() < before);
    let rest = from.map_or(&[][..], |from| &view.versions[from..]);
    let active = place.version(VersionSelector::Active, false);
    let page = VersionsPage {
        shell: visit.shell(format!("Versions, {}", dataset.name.as_str())),
        heading: Heading::around(visit, dataset, &active, Tab::Versions).with_failure(visit, dataset).await,
        notice: notice.map(Action::done),
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

/// What is asked for: the action, and the version that it is about, if it is about one.
struct Asked {
    place: DatasetPlace,
    action: Action,
    version: Option<VersionNumber>,
}

fn asked(path: &str, version: Option<&str>) -> Result<Asked, HttpError> {
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
    Ok(Asked { place, action, version })
}

/// The page that says what will be done.
pub(super) async fn confirm(visit: &mut Visit) -> Result<Reply, HttpError> {
    let given = Query::parse(visit.head.uri.query());
    // A page that there is not is missing for everybody, so it is looked at before the visitor.
    let Asked { place, action, version } = asked(visit.head.uri.path(), given.first("version"))?;
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
    let (title, button, effects) = words(action, version, dataset);
    let question = Question {
        title,
        effects,
        action: place.manage(action.name()),
        version: version.map(VersionNumber::get),
        button,
        danger: action == Action::Freeze,
        back: place.page("versions"),
        ..Question::default()
    };
    question.page(visit, own.heading(visit, Tab::Versions), StatusCode::OK)
}

/// What “active” means once `number`, called `name`, is the active version. A frozen dataset still returns 410.
fn active_effect(dataset: &Dataset, number: u64, name: &str) -> String {
    let active = dataset.active_version().map_or(0, VersionNumber::get);
    match (dataset.frozen, number == active) {
        (true, _) => format!("Once you unfreeze the dataset, requests for “active” will return {name}."),
        (false, true) => format!("Requests for “active” will continue to return {name}."),
        (false, false) => format!("Requests for “active” will return {name}. They currently return version {active}."),
    }
}

fn words(action: Action, version: Option<VersionNumber>, dataset: &Dataset) -> (String, String, Vec<String>) {
    let number = version.map_or(0, VersionNumber::get);
    let active = dataset.active_version().map_or(0, VersionNumber::get);
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    match action {
        Action::Pin => (
            format!("Pin version {number}?"),
            format!("Pin version {number}"),
            vec![
                active_effect(dataset, number, &format!("version {number}")),
                "The version will stay active until you unpin it, even if refreshes create newer versions.".to_owned(),
                "No versions will be changed or deleted. You can still request each version by its number.".to_owned(),
            ],
        ),
        Action::Unpin => (
            "Unpin the active version?".to_owned(),
            "Unpin version".to_owned(),
            vec![
                active_effect(dataset, latest, &format!("the newest version, {latest}")),
                "Each version that a refresh creates will become active immediately.".to_owned(),
            ],
        ),
        Action::Freeze => (
            format!("Freeze this dataset at version {number}?"),
            "Freeze dataset".to_owned(),
            vec![
                "Requests for any version will return 410 Gone.".to_owned(),
                "All refreshes will stop, including scheduled ones and pings.".to_owned(),
                format!("Version {number} will be pinned, so it will be active when you unfreeze the dataset."),
                "Nothing will be deleted, and you can unfreeze the dataset at any time.".to_owned(),
                "While frozen, the dataset does not count toward your plan’s active dataset limit.".to_owned(),
            ],
        ),
        Action::Unfreeze => (
            "Unfreeze this dataset?".to_owned(),
            "Unfreeze dataset".to_owned(),
            vec![
                format!("Requests will return data again. The active version will be {active}."),
                "Refreshes will resume, including scheduled ones.".to_owned(),
                "The dataset will count toward your plan’s active dataset limit.".to_owned(),
            ],
        ),
    }
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let (_, sent) = received_of_owner(visit, body).await?;
    let Asked { place, action, version } = asked(visit.head.uri.path(), sent.fields.first("version"))?;
    sent.check(if action.of_a_version() { &["version"] } else { &[] }, &[])?;
    let datasets = visit.app.datasets();
    let user = visit.user()?;
    match (action, version) {
        (Action::Pin, Some(version)) => datasets.rollback(&user, place.id, version, false).await?,
        (Action::Freeze, Some(version)) => datasets.rollback(&user, place.id, version, true).await?,
        (Action::Unfreeze, _) => datasets.unfreeze(&user, place.id).await?,
        _ => datasets.unpin(&user, place.id).await?,
    };
    Ok(Reply::done(action.name(), &place.page("versions")))
}

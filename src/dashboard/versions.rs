//! `…/versions`: the versions of a dataset in descending order. `…/manage/{action}`: the owner pins, unpins, freezes,
//! and unfreezes the dataset.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{DatasetView, VersionStatus};
use strata_http::error::HttpError;
use strata_http::page_support;
use strata_service::{RateLimitBucket, ReadError};
use strata_types::dataset::{Dataset, RollbackMode};
use strata_types::version::{VersionNumber, describe_versions};

use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{ConfirmationPrompt, OwnerContext, load_owner_context, receive_owner_form};
use super::format::{self, FormattedTime};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::urls::{DatasetUrls, VersionUrls};

const VERSIONS_PER_PAGE: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManageAction {
    Pin,
    Unpin,
    Freeze,
    Unfreeze,
}

impl ManageAction {
    const ALL: [ManageAction; 4] =
        [ManageAction::Pin, ManageAction::Unpin, ManageAction::Freeze, ManageAction::Unfreeze];

    fn name(self) -> &'static str {
        match self {
            ManageAction::Pin => "pin",
            ManageAction::Unpin => "unpin",
            ManageAction::Freeze => "freeze",
            ManageAction::Unfreeze => "unfreeze",
        }
    }

    fn parse(name: &str) -> Option<ManageAction> {
        ManageAction::ALL.into_iter().find(|action| action.name() == name)
    }

    fn is_no_op(self, version: Option<VersionNumber>, dataset: &Dataset) -> bool {
        let is_pinned = dataset.pinned_version == version;
        match self {
            ManageAction::Pin => is_pinned && !dataset.frozen,
            ManageAction::Unpin => dataset.pinned_version.is_none(),
            ManageAction::Freeze => is_pinned && dataset.frozen,
            ManageAction::Unfreeze => !dataset.frozen,
        }
    }

    fn requires_version(self) -> bool {
        matches!(self, ManageAction::Pin | ManageAction::Freeze)
    }
}

#[derive(Template)]
#[template(path = "versions.html")]
struct VersionsPage {
    layout: PageLayout,
    heading: DatasetHeading,
    done: Option<ManageAction>,
    dataset: Dataset,
    last_two: Option<[VersionNumber; 2]>,
    total: usize,
    can_clone: bool,
    versions: Vec<(VersionStatus, Option<VersionStatus>)>,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

fn manage_url(urls: &VersionUrls, number: &VersionNumber, action: ManageAction) -> String {
    QueryParams::default().with_added("version", number).to_url(&urls.dataset.manage_url(action.name()))
}

/// Counts the request as a read, and loads the dataset and its versions. Also returns whether the visitor is the owner.
async fn load_view_and_ownership(req: &mut PageRequest, urls: &DatasetUrls) -> Result<(DatasetView, bool), HttpError> {
    let services = req.services.clone();
    let user = req.current_user.user.clone();
    let client = req.current_user.client;
    if user.is_none() {
        page_support::count(&services, client, RateLimitBucket::Public, &mut req.response_headers).await?;
    }
    let found = services.datasets.find_visible(user.as_ref(), client, urls.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == urls.slug);
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(Dataset::is_private);
        let bucket = if is_private { RateLimitBucket::Private } else { RateLimitBucket::Public };
        page_support::count(&services, client, bucket, &mut req.response_headers).await?;
    }
    let dataset = found.ok_or(ReadError::DatasetNotFound)?;
    let is_owner = user.as_ref().is_some_and(|user| user.id == dataset.owner);
    if dataset.frozen && !is_owner {
        return Err(ReadError::Frozen.into());
    }
    let view = services.datasets.find_visible_view(user.as_ref(), client, &dataset).await?;
    Ok((view.ok_or(ReadError::DatasetNotFound)?, is_owner))
}

pub(super) async fn show_versions(req: &mut PageRequest) -> PageResult {
    let urls = DatasetUrls::parse(req.head.uri.path())?;
    let query = req.parse_query(&["before", "done"])?;
    let before = query.parse_number("before")?.unwrap_or(u64::MAX);
    query.parse_choice("done", &ManageAction::ALL.map(ManageAction::name))?;
    let (view, is_owner) = load_view_and_ownership(req, &urls).await?;
    let dataset = &view.dataset;
    let from = view.versions.iter().position(|record| record.version.number.get() < before);
    let rest = from.map_or(&[][..], |from| &view.versions[from..]);
    let last = rest.get(VERSIONS_PER_PAGE).map(|_| rest[VERSIONS_PER_PAGE - 1].version.number);
    let shown = rest.iter().take(VERSIONS_PER_PAGE).zip(1..);
    let heading = DatasetHeading::for_dataset(req, dataset, &urls.active_version(), DatasetTab::Versions);
    let page = VersionsPage {
        layout: req.layout(format!("Versions, {}", dataset.name.as_str())),
        heading: heading.with_refresh_status(req, dataset).await,
        done: query.first("done").filter(|_| is_owner).and_then(ManageAction::parse),
        dataset: dataset.clone(),
        last_two: match view.versions.as_slice() {
            [last, before, ..] if is_owner => Some([before.version.number, last.version.number]),
            _ => None,
        },
        total: view.versions.len(),
        can_clone: req.current_user.user.is_some() && !dataset.frozen && !view.versions.is_empty(),
        versions: shown.map(|(record, index)| (record.clone(), rest.get(index).cloned())).collect(),
        now: Utc::now(),
        first: from.filter(|from| *from > 0).map(|_| urls.page_url("versions")),
        older: last.map(|last| QueryParams::default().with_added("before", last).to_url(&urls.page_url("versions"))),
    };
    render(StatusCode::OK, &page)
}

#[derive(Template)]
#[template(path = "manage.html")]
struct ManagePage {
    layout: PageLayout,
    heading: Option<DatasetHeading>,
    prompt: ConfirmationPrompt,
    action: ManageAction,
    number: u64,
    active: u64,
    latest: u64,
    frozen: bool,
}

fn parse_manage_request(path: &str, version: Option<&str>) -> Result<(ManageAction, Option<VersionNumber>), HttpError> {
    DatasetUrls::parse(path)?;
    let name = path.rsplit('/').next().unwrap_or_default();
    let action = ManageAction::parse(name).ok_or(HttpError::PathNotFound)?;
    let number = version.and_then(|number| number.parse().ok()).filter(|number| *number > 0);
    let version = match (action.requires_version(), number) {
        (false, _) => None,
        (true, Some(number)) => Some(VersionNumber::new(number)),
        (true, None) => {
            let quoted = page_support::quote_for_page(version.unwrap_or_default());
            let text = format!("The version must be a positive whole number, but is {quoted}.");
            return Err(HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text });
        }
    };
    Ok((action, version))
}

pub(super) async fn show_manage_page(req: &mut PageRequest) -> PageResult {
    let query = QueryParams::parse(req.head.uri.query());
    // An unknown action returns 404 to all visitors, so it is checked before the session.
    let (action, version) = parse_manage_request(req.head.uri.path(), query.first("version"))?;
    req.parse_query(if action.requires_version() { &["version"] } else { &[] })?;
    let own = load_owner_context(req).await?;
    let dataset = &own.view.dataset;
    if let Some(number) = version
        && !own.view.versions.iter().any(|record| record.version.number == number)
    {
        let text = format!("There is no version {number}; {}.", describe_versions(dataset.latest_version));
        return Err(HttpError::InvalidRequest { status: StatusCode::NOT_FOUND, text });
    }
    if action.is_no_op(version, dataset) {
        return Ok(PageResponse::SeeOther(own.urls.page_url("versions")));
    }
    let number = version.map_or(0, VersionNumber::get);
    let (title, button) = match action {
        ManageAction::Pin => (format!("Pin version {number}?"), format!("Pin version {number}")),
        ManageAction::Unpin => ("Unpin the active version?".to_owned(), "Unpin version".to_owned()),
        ManageAction::Freeze => (format!("Freeze this dataset at version {number}?"), "Freeze dataset".to_owned()),
        ManageAction::Unfreeze => ("Unfreeze this dataset?".to_owned(), "Unfreeze dataset".to_owned()),
    };
    let page = ManagePage {
        layout: req.layout(title.clone()),
        heading: Some(own.heading(req, DatasetTab::Versions)),
        action,
        number,
        active: dataset.active_version().map_or(0, VersionNumber::get),
        latest: dataset.latest_version.map_or(0, VersionNumber::get),
        frozen: dataset.frozen,
        prompt: ConfirmationPrompt {
            title,
            action: own.urls.manage_url(action.name()),
            version: version.map(VersionNumber::get),
            button,
            is_dangerous: action == ManageAction::Freeze,
            back: own.urls.page_url("versions"),
            ..ConfirmationPrompt::default()
        },
    };
    render(StatusCode::OK, &page)
}

pub(super) async fn handle_manage_form(req: &mut PageRequest, body: Body) -> PageResult {
    let (OwnerContext { urls, .. }, form) = receive_owner_form(req, body).await?;
    let (action, version) = parse_manage_request(req.head.uri.path(), form.fields.first("version"))?;
    form.check_fields(if action.requires_version() { &["version"] } else { &[] }, &[])?;
    let datasets = &req.services.datasets;
    let user = req.require_user()?;
    match (action, version) {
        (ManageAction::Pin, Some(version)) => datasets.rollback(&user, urls.id, version, RollbackMode::Pin).await?,
        (ManageAction::Freeze, Some(version)) => {
            datasets.rollback(&user, urls.id, version, RollbackMode::PinAndFreeze).await?
        }
        (ManageAction::Unfreeze, _) => datasets.unfreeze(&user, urls.id).await?,
        _ => datasets.unpin(&user, urls.id).await?,
    };
    Ok(PageResponse::redirect_with_notice(action.name(), &urls.page_url("versions")))
}

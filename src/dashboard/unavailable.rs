//! The page that owners see if a version is unavailable or a dataset cannot be cloned.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};

use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::load_owner_context;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::urls::VersionUrls;

#[derive(Template)]
#[template(path = "closed.html")]
struct UnavailablePage {
    layout: PageLayout,
    heading: DatasetHeading,
    is_clone_page: bool,
}

/// Runs a page handler. If the dataset is frozen or has no version, its owner gets a page with the reason.
pub(super) async fn run_or_show_unavailable(
    req: &mut PageRequest,
    tab: DatasetTab,
    page: impl AsyncFnOnce(&mut PageRequest) -> PageResult,
) -> PageResult {
    let outcome = page(req).await;
    let status = match &outcome {
        Err(HttpError::Read(ReadError::Frozen)) => StatusCode::GONE,
        Err(HttpError::Read(ReadError::VersionNotFound { latest: None, .. })) => StatusCode::NOT_FOUND,
        Err(HttpError::Manage(ManageError::Frozen | ManageError::CloneSourceEmpty)) => StatusCode::CONFLICT,
        _ => return outcome,
    };
    let Ok(own) = load_owner_context(req).await else { return outcome };
    let dataset = &own.view.dataset;
    let urls = VersionUrls::parse(req.head.uri.path()).map_or_else(|_| own.urls.active_version(), |(urls, _)| urls);
    let page = UnavailablePage {
        layout: req.layout(dataset.name.as_str()),
        heading: DatasetHeading::for_dataset(req, dataset, &urls, tab),
        is_clone_page: tab == DatasetTab::Versions,
    };
    render(status, &page)
}

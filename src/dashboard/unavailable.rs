//! The page for an owner of a version that cannot be shown, or of a dataset that cannot be cloned.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};

use super::context::{Heading, Tab};
use super::form_handling::own;
use super::urls::Place;
use super::visit::{PageResult, Shell, Visit, render};

#[derive(Template)]
#[template(path = "closed.html")]
struct ClosedPage {
    shell: Shell,
    heading: Heading,
    clones: bool,
}

/// Runs a page. If its owner cannot see it because the dataset is frozen or has no version yet, returns a page that
/// says so.
pub(super) async fn or_told(
    visit: &mut Visit,
    tab: Tab,
    page: impl AsyncFnOnce(&mut Visit) -> PageResult,
) -> PageResult {
    let outcome = page(visit).await;
    let status = match &outcome {
        Err(HttpError::Read(ReadError::Frozen)) => StatusCode::GONE,
        Err(HttpError::Read(ReadError::VersionNotFound { latest: None, .. })) => StatusCode::NOT_FOUND,
        Err(HttpError::Manage(ManageError::Frozen | ManageError::NothingToClone)) => StatusCode::CONFLICT,
        _ => return outcome,
    };
    let Ok(own) = own(visit).await else { return outcome };
    let dataset = &own.view.dataset;
    // A page of the dataset is of no version.
    let place = Place::parse(visit.head.uri.path()).map_or_else(|_| own.active(), |(place, _)| place);
    let page = ClosedPage {
        shell: visit.shell(dataset.name.as_str()),
        heading: Heading::for_dataset(visit, dataset, &place, tab),
        clones: tab == Tab::Versions,
    };
    render(status, &page)
}

//! A version that cannot be shown, or a dataset that cannot be cloned, for the owner: why, and what to do, between its
//! other pages.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};

use super::acting::own;
use super::opened::{Heading, Tab};
use super::place::Place;
use super::visit::{Reply, Shell, Visit, render};

#[derive(Template)]
#[template(path = "closed.html")]
struct ClosedPage {
    shell: Shell,
    heading: Heading,
    clones: bool,
}

/// The outcome of a page of a version. Where its owner cannot see it because the dataset is frozen or has no version
/// yet, a page that says so.
pub(super) async fn or_told(
    visit: &mut Visit,
    tab: Tab,
    page: impl AsyncFnOnce(&mut Visit) -> Result<Reply, HttpError>,
) -> Result<Reply, HttpError> {
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
        heading: Heading::around(visit, dataset, &place, tab),
        clones: tab == Tab::Versions,
    };
    render(status, &page)
}

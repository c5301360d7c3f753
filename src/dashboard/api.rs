//! `/ui/api`: the API reference, one page for each resource. `http::openapi::reference` says what the pages show.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::openapi::reference::{Inline, Link, Prose, Resource, resources};

use super::visit::{PageResult, Shell, Visit, render};

const API: &str = "/ui/api";

#[derive(Template)]
#[template(path = "api.html")]
struct IndexPage {
    shell: Shell,
    resources: &'static [Resource],
}

#[derive(Template)]
#[template(path = "api_resource.html")]
struct ResourcePage {
    shell: Shell,
    resource: &'static Resource,
    resources: &'static [Resource],
}

pub(super) async fn index(visit: &mut Visit) -> PageResult {
    visit.query(&[])?;
    render(StatusCode::OK, &IndexPage { shell: visit.shell("API reference"), resources: resources() })
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    visit.query(&[])?;
    let name = visit.head.uri.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let resource = resources().iter().find(|resource| resource.name == name).ok_or(HttpError::NoSuchPath)?;
    let shell = visit.shell(resource.title());
    render(StatusCode::OK, &ResourcePage { shell, resource, resources: resources() })
}

fn page(resource: &Resource) -> String {
    format!("{API}/{}", resource.name)
}

fn href(link: &Link) -> String {
    let page = link.page.as_ref().map(|page| format!("{API}/{page}")).unwrap_or_default();
    format!("{page}#{}", link.anchor)
}

//! `/ui/api`: the API reference with a page per resource. `strata_http::openapi::reference` generates its contents.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::openapi::reference::{InlineText, ReferenceLink, ReferencePage, RichText, reference_pages};

use super::page_request::{PageLayout, PageRequest, PageResult, render};

const API_REFERENCE_PATH: &str = "/ui/api";

#[derive(Template)]
#[template(path = "api.html")]
struct ApiIndexPage {
    layout: PageLayout,
    resources: &'static [ReferencePage],
}

#[derive(Template)]
#[template(path = "api_resource.html")]
struct ApiResourcePage {
    layout: PageLayout,
    resource: &'static ReferencePage,
    resources: &'static [ReferencePage],
}

pub(super) async fn show_api_index(req: &mut PageRequest) -> PageResult {
    req.parse_query(&[])?;
    render(StatusCode::OK, &ApiIndexPage { layout: req.layout("API reference"), resources: reference_pages() })
}

pub(super) async fn show_api_resource(req: &mut PageRequest) -> PageResult {
    req.parse_query(&[])?;
    let name = req.head.uri.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let resource = reference_pages().iter().find(|resource| resource.name == name).ok_or(HttpError::PathNotFound)?;
    let layout = req.layout(resource.title());
    render(StatusCode::OK, &ApiResourcePage { layout, resource, resources: reference_pages() })
}

fn resource_url(resource: &ReferencePage) -> String {
    format!("{API_REFERENCE_PATH}/{}", resource.name)
}

fn link_url(link: &ReferenceLink) -> String {
    let page = link.page.as_ref().map(|page| format!("{API_REFERENCE_PATH}/{page}")).unwrap_or_default();
    format!("{page}#{}", link.anchor)
}

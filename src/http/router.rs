//! The routes that the modules offer, and the layers around them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use strata_config::Config;
use strata_types::node::Role;

use super::error::HttpError;
use super::headers::content_encoding::weighted_items;
use super::{endpoint, health, large_responses, layers, management, mcp, metrics, openapi, read};
use crate::AppState;

#[derive(Default)]
pub struct Pages {
    pub routes: Router<AppState>,
    /// The page for 404 and 405 of the router.
    pub unknown: Option<ErrorPage>,
}

pub type ErrorPage = fn(AppState, Parts, HttpError) -> BoxFuture<'static, Response>;

/// The operations as one tower service, without pages.
pub fn router(services: AppState) -> Router {
    with_pages(services, Pages::default())
}

/// The operations and these pages as one tower service, with the same layers. A process without the role `http` has
/// only the endpoints for health and metrics.
pub fn with_pages(services: AppState, pages: Pages) -> Router {
    let config = services.config.clone();
    let watched = endpoint::routes([&health::HEALTH, &health::READINESS, &metrics::METRICS].into_iter());
    let charged = from_fn_with_state(services.clone(), large_responses::charged);
    if !services.config.server.roles.include(Role::Http) {
        let routes = watched.layer(charged).fallback(async || HttpError::NotServed);
        return layered(routes.with_state(services).method_not_allowed_fallback(wrong_method), config);
    }
    let document = endpoint::routes([&openapi::DOCUMENT].into_iter());
    let modules = [management::routes(), mcp::routes(), document, watched];
    let routes = modules.into_iter().fold(pages.routes, Router::merge);
    let routes = routes.layer(charged).merge(read::routes());
    let Some(page) = pages.unknown else { return layered(unserved(routes.with_state(services)), config) };
    let respond = move |services: AppState, head: Parts, error: HttpError| async move {
        // Programs read the text.
        match matches!(head.method, Method::GET | Method::HEAD) && asks_for_html(&head.headers) {
            true => page(services, head, error).await,
            false => error.into_response(),
        }
    };
    let routes = routes
        .fallback(async move |State(services): State<AppState>, head: Parts| {
            let error = unknown_path(&head.uri);
            respond(services, head, error).await
        })
        .method_not_allowed_fallback(
            async move |path: Option<MatchedPath>, State(services): State<AppState>, head: Parts| {
                respond(services, head, wrong_method(path).await).await
            },
        );
    layered(routes.with_state(services), config)
}

/// Whether `Accept` lists HTML, as browsers send it.
fn asks_for_html(headers: &HeaderMap) -> bool {
    weighted_items(headers.get_all(ACCEPT))
        .any(|(name, weight)| name.eq_ignore_ascii_case("text/html") && weight > Default::default())
}

/// The routes with 404, 405, and the layers.
pub fn around(routes: Router) -> Router {
    layered(unserved(routes), Arc::default())
}

fn unserved(routes: Router) -> Router {
    routes.fallback(async |uri: Uri| unknown_path(&uri)).method_not_allowed_fallback(wrong_method)
}

fn unknown_path(uri: &Uri) -> HttpError {
    match openapi::nearest_path(uri.path()) {
        Some(nearest) => HttpError::MisspeltPath { nearest },
        None => HttpError::NoSuchPath,
    }
}

fn layered(routes: Router, config: Arc<Config>) -> Router {
    routes.layer(from_fn_with_state(config, layers::around))
}

/// The router adds the header `Allow` if the document does not contain the path.
async fn wrong_method(path: Option<MatchedPath>) -> HttpError {
    HttpError::MethodNotAllowed { allowed: path.and_then(|path| openapi::methods_of(path.as_str())) }
}

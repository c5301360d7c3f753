//! The router: the routes of all modules, and the layers around them.

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
use strata_types::node::NodeRole;

use super::error::HttpError;
use super::headers::content_encoding::weighted_items;
use super::{endpoint, health, large_responses, layers, management, mcp, metrics, openapi, read};
use crate::AppState;

#[derive(Default)]
pub struct DashboardPages {
    pub routes: Router<AppState>,
    /// Renders 404 and 405 errors for paths and methods without a route.
    pub error_page: Option<ErrorPageFn>,
}

pub type ErrorPageFn = fn(AppState, Parts, HttpError) -> BoxFuture<'static, Response>;

/// Returns all endpoints as one tower service, without the dashboard's pages.
pub fn router(services: AppState) -> Router {
    router_with_pages(services, DashboardPages::default())
}

/// Returns all endpoints and the dashboard's pages as one tower service. A process without the role `http` has only the
/// endpoints for health and metrics.
pub fn router_with_pages(services: AppState, pages: DashboardPages) -> Router {
    let config = services.config.clone();
    let charge_bodies = from_fn_with_state(services.clone(), large_responses::charge_complete_bodies);
    if !config.server.roles.contains(NodeRole::Http) {
        let routes = operational_routes().layer(charge_bodies).fallback(async || HttpError::RoleDisabled);
        return with_layers(routes.with_state(services).method_not_allowed_fallback(method_not_allowed), config);
    }
    let routes = pages
        .routes
        .merge(management::routes())
        .merge(mcp::routes())
        .merge(openapi::routes())
        .merge(operational_routes())
        .layer(charge_bodies)
        .merge(read::routes());
    let routes = match pages.error_page {
        Some(page) => with_error_pages(routes, page).with_state(services),
        None => with_fallbacks(routes.with_state(services)),
    };
    with_layers(routes, config)
}

fn operational_routes() -> Router<AppState> {
    let endpoints = [&health::HEALTH_ENDPOINT, &health::READINESS_ENDPOINT, &metrics::METRICS_ENDPOINT];
    endpoint::routes(endpoints.into_iter())
}

/// Adds the 404 and 405 errors. Browsers get them as pages.
fn with_error_pages(routes: Router<AppState>, page: ErrorPageFn) -> Router<AppState> {
    let respond = move |services: AppState, head: Parts, error: HttpError| async move {
        // Clients that are not browsers get errors as plain text.
        match matches!(head.method, Method::GET | Method::HEAD) && accepts_html(&head.headers) {
            true => page(services, head, error).await,
            false => error.into_response(),
        }
    };
    routes
        .fallback(async move |State(services): State<AppState>, head: Parts| {
            let error = path_not_found(&head.uri);
            respond(services, head, error).await
        })
        .method_not_allowed_fallback(
            async move |path: Option<MatchedPath>, State(services): State<AppState>, head: Parts| {
                respond(services, head, method_not_allowed(path).await).await
            },
        )
}

/// Whether the `Accept` header lists HTML, as it does in all browsers.
fn accepts_html(headers: &HeaderMap) -> bool {
    weighted_items(headers.get_all(ACCEPT))
        .any(|(name, weight)| name.eq_ignore_ascii_case("text/html") && weight > Default::default())
}

/// Adds the 404 and 405 errors and the HTTP layers to routes.
pub fn with_fallbacks_and_layers(routes: Router) -> Router {
    with_layers(with_fallbacks(routes), Arc::default())
}

fn with_fallbacks(routes: Router) -> Router {
    routes.fallback(async |uri: Uri| path_not_found(&uri)).method_not_allowed_fallback(method_not_allowed)
}

fn path_not_found(uri: &Uri) -> HttpError {
    match openapi::nearest_path(uri.path()) {
        Some(nearest) => HttpError::PathNotFoundWithHint { nearest },
        None => HttpError::PathNotFound,
    }
}

fn with_layers(routes: Router, config: Arc<Config>) -> Router {
    routes.layer(from_fn_with_state(config, layers::apply_layers))
}

/// Creates a 405 error. For a path that the OpenAPI document does not list, axum adds the `Allow` header.
async fn method_not_allowed(path: Option<MatchedPath>) -> HttpError {
    HttpError::MethodNotAllowed { allowed: path.and_then(|path| openapi::allowed_methods(path.as_str())) }
}

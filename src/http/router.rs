//! The routes that the modules offer, and the layers around them.

use std::time::Duration;

use axum::Router;
use axum::extract::MatchedPath;
use axum::middleware::from_fn_with_state;

use super::error::HttpError;
use super::layers::access_log::LogOptions;
use super::layers::drain::DrainLimits;
use super::layers::{self, Layers};
use super::{health, management, mcp, metrics, openapi, read};
use crate::config;
use crate::service::App;

/// The operations as one tower service, without pages.
pub fn router(app: App) -> Router {
    with_pages(app, Router::new())
}

/// The operations and these pages as one tower service. Pages have the same layers around them.
pub fn with_pages(app: App, pages: Router<App>) -> Router {
    let slow_request_ms = app.config().log.slow_request_ms;
    let log = LogOptions {
        slow_after: (slow_request_ms > 0).then(|| Duration::from_millis(slow_request_ms)),
        trusted_proxies: app.config().server.trusted_proxies.clone(),
    };
    let limits = DrainLimits::from(&app.config().limits);
    let modules =
        [read::routes(), management::routes(), mcp::routes(), health::routes(), metrics::routes(), openapi::routes()];
    let routes = modules.into_iter().fold(pages, Router::merge);
    layered(routes.with_state(app), log, limits)
}

/// Adds to the routes: answers for unknown paths and methods, and the layers.
pub fn around(routes: Router) -> Router {
    layered(routes, LogOptions::default(), DrainLimits::from(&config::Limits::default()))
}

fn layered(routes: Router, log: LogOptions, limits: DrainLimits) -> Router {
    routes
        .fallback(async || HttpError::NoSuchPath)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Layers::new(log, limits), layers::around))
}

/// 405. The router adds the header `Allow` where the document does not tell the methods.
async fn wrong_method(path: Option<MatchedPath>) -> HttpError {
    HttpError::MethodNotAllowed { allowed: path.and_then(|path| openapi::methods_of(path.as_str())) }
}

//! The routes that the modules offer, and the layers around them.

use std::time::Duration;

use axum::Router;
use axum::extract::MatchedPath;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;

use super::error::HttpError;
use super::layers::access_log::LogOptions;
use super::layers::drain::DrainLimits;
use super::layers::{self, Layers};
use super::{health, management, mcp, metrics, openapi, read};
use crate::config;
use crate::model::node::Role;
use crate::service::App;

/// The operations as one tower service, without pages.
pub fn router(app: App) -> Router {
    with_pages(app, Router::new())
}

/// The operations and these pages as one tower service. Pages have the same layers around them. A process without the
/// role for requests tells only how it is.
pub fn with_pages(app: App, pages: Router<App>) -> Router {
    let slow_request_ms = app.config().log.slow_request_ms;
    let log = LogOptions {
        slow_after: (slow_request_ms > 0).then(|| Duration::from_millis(slow_request_ms)),
        trusted_proxies: app.config().server.trusted_proxies.clone(),
    };
    let limits = DrainLimits::from(&app.config().limits);
    let watched = [health::routes(), metrics::routes()];
    if !app.config().server.roles.roles().include(Role::Http) {
        let routes = watched.into_iter().fold(Router::new(), Router::merge).fallback(async || HttpError::NotServed);
        return layered(routes.with_state(app), log, limits);
    }
    let modules = [read::routes(), management::routes(), mcp::routes(), openapi::routes()];
    let routes = modules.into_iter().chain(watched).fold(pages, Router::merge);
    layered(unknown(routes.with_state(app)), log, limits)
}

/// Adds to the routes: answers for unknown paths and methods, and the layers.
pub fn around(routes: Router) -> Router {
    layered(unknown(routes), LogOptions::default(), DrainLimits::from(&config::Limits::default()))
}

/// Adds the answer for unknown paths.
fn unknown(routes: Router) -> Router {
    routes.fallback(async |uri: Uri| match openapi::nearest_path(uri.path()) {
        Some(nearest) => HttpError::MisspeltPath { nearest },
        None => HttpError::NoSuchPath,
    })
}

fn layered(routes: Router, log: LogOptions, limits: DrainLimits) -> Router {
    routes.method_not_allowed_fallback(wrong_method).layer(from_fn_with_state(Layers::new(log, limits), layers::around))
}

/// 405. The router adds the header `Allow` where the document does not tell the methods.
async fn wrong_method(path: Option<MatchedPath>) -> HttpError {
    HttpError::MethodNotAllowed { allowed: path.and_then(|path| openapi::methods_of(path.as_str())) }
}

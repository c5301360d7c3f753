//! Every route of the service, in one table, and the layers around them.

use axum::{
    Router,
    middleware::from_fn,
    routing::{any, get},
};

use super::{access_log, error::HttpError, health, openapi, panics, read};
use crate::service::App;

/// The whole service as one tower service.
pub fn router(app: App) -> Router {
    let routes = Router::new()
        // Everything under /api/ goes to one handler with its own path parser, which can say what is wrong with a path.
        .route("/api", any(read::read))
        .route("/api/", any(read::read))
        .route("/api/{*path}", any(read::read))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::openapi))
        .with_state(app);
    around(routes)
}

/// What every route shares: answers for paths and methods that no route takes, and the layers, the last one outermost.
pub fn around(routes: Router) -> Router {
    routes
        .fallback(async || HttpError::NoSuchPath)
        .method_not_allowed_fallback(async || HttpError::MethodNotAllowed { allowed: None })
        .layer(from_fn(panics::answer))
        .layer(from_fn(access_log::record))
}

//! The layers around every handler: access log, drain of request bodies, check of `Host`, and handling of panics.

pub(super) mod access_log;
pub(super) mod body_drain;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Version;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use strata_config::Config;

use crate::error::HttpError;

/// Applies all layers as one layer of the router, because each separate layer would cost as much as routing.
pub(super) async fn apply_layers(State(config): State<Arc<Config>>, request: Request, next: Next) -> Response {
    let handled = async |request: Request| match request.extensions().get::<InvalidHostMarker>() {
        Some(InvalidHostMarker) => HttpError::InvalidHost.into_response(),
        None => catch_panic(next.run(request)).await.unwrap_or_else(IntoResponse::into_response),
    };
    let drained = |request| body_drain::drain_refused_bodies(&config.limits, request, handled);
    access_log::log_request(&config, request, drained).await
}

/// Marks an HTTP/1.1 request that does not have exactly one `Host` (RFC 9112, section 3.2). The response is a 400.
#[derive(Clone, Copy)]
struct InvalidHostMarker;

/// Marks a request from a connection if its `Host` is invalid. Requests passed directly to the router have no `Host`.
pub(crate) fn mark_invalid_host(request: &mut Request) {
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
        request.extensions_mut().insert(InvalidHostMarker);
    }
}

/// Maps a panic of a handler to [`HttpError::Panic`], which returns 500 in plain text. A panic in a body is too late
/// for that: it closes the connection.
///
/// Unwind safety: a handler that panicked is dropped. Its shared state (pools, caches) is behind locks and channels,
/// which an unwinding thread does not leave in an inconsistent state.
pub(crate) async fn catch_panic<T>(handling: impl Future<Output = T>) -> Result<T, HttpError> {
    AssertUnwindSafe(handling).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        HttpError::Panic(text.unwrap_or_else(|| "the panic payload is not a string".to_owned()))
    })
}

//! The layers around every handler.

pub(super) mod access_log;
pub(super) mod drain;

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

/// All of them as one layer of the router, because each separate layer would cost as much as routing.
pub(super) async fn around(State(config): State<Arc<Config>>, request: Request, next: Next) -> Response {
    let handled = async |request: Request| match request.extensions().get::<WrongHost>() {
        Some(WrongHost) => HttpError::Host.into_response(),
        None => caught(next.run(request)).await.unwrap_or_else(IntoResponse::into_response),
    };
    let drained = |request| drain::refused_bodies(&config.limits, request, handled);
    access_log::recorded(&config, request, drained).await
}

/// Marks an HTTP/1.1 request that does not have exactly one `Host` (RFC 9112, section 3.2). It returns 400.
#[derive(Clone, Copy)]
struct WrongHost;

/// Marks a request from a connection. A request that a program passes to the router has no `Host`.
pub(crate) fn mark_wrong_host(request: &mut Request) {
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
        request.extensions_mut().insert(WrongHost);
    }
}

/// The result of a handler, or its panic as [`HttpError::Panic`], which returns 500 in plain text. A panic in a body is
/// too late for that: it closes the connection.
///
/// Unwind safety: a handler that panicked is dropped, and its shared state (pools, caches) is behind locks and channels
/// that an unwinding thread does not leave half-changed.
pub(crate) async fn caught<T>(handling: impl Future<Output = T>) -> Result<T, HttpError> {
    AssertUnwindSafe(handling).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        HttpError::Panic(text.unwrap_or_else(|| "the panic payload is not a string".to_owned()))
    })
}

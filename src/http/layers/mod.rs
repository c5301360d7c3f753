//! The layers around every handler.
//!
//! | Module | Holds |
//! |---|---|
//! | `access_log` | the id of each request, its line in the log, and its metrics |
//! | `drain` | bodies that nobody takes: read to their end, within bounds |

pub(super) mod access_log;
pub(super) mod drain;

use std::any::Any;
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

/// All of them, which are one layer of the router: each of its own would cost as much as routing.
pub(super) async fn around(State(config): State<Arc<Config>>, request: Request, next: Next) -> Response {
    let handled = async |request: Request| match request.extensions().get::<WrongHost>() {
        Some(WrongHost) => HttpError::Host.into_response(),
        None => caught(next.run(request)).await.unwrap_or_else(IntoResponse::into_response),
    };
    let drained = |request| drain::refused_bodies(&config.limits, request, handled);
    access_log::recorded(&config, request, drained).await
}

/// Marks an HTTP/1.1 request that does not have the header `Host` once (RFC 9112, section 3.2), which gets 400.
#[derive(Clone, Copy)]
struct WrongHost;

/// Marks a request if its `Host` is wrong. Only requests from a connection are marked: what a program gives to the
/// router has no such header.
pub(crate) fn mark_wrong_host(request: &mut Request) {
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
        request.extensions_mut().insert(WrongHost);
    }
}

/// What a handler gives, or its panic as [`HttpError::Panic`]: a 500 in plain text, not a connection that drops without
/// an answer. A panic while a body is streamed comes too late for that: it ends the connection.
///
/// Unwind safety: a handler that panicked is dropped, and what it shared with others (the pools, the caches) is behind
/// locks and channels that are not left half-changed by an unwinding thread.
pub(crate) async fn caught<T>(handling: impl Future<Output = T>) -> Result<T, HttpError> {
    AssertUnwindSafe(handling).catch_unwind().await.map_err(|panic| HttpError::Panic(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "the panic payload is not a string".to_owned()
    }
}

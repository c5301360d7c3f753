//! The layers around every handler.
//!
//! | Module | Holds |
//! |---|---|
//! | `access_log` | the id of each request, its line in the log, and its metrics |
//! | `drain` | bodies that nobody takes: read to their end, within bounds |
//! | `host` | requests without the header `Host` |

pub(super) mod access_log;
pub(super) mod drain;
pub(super) mod host;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use strata_config::{Config, TrustedProxies};

use crate::error::HttpError;

/// The options of all of them, which are one layer of the router: each of its own would cost as much as routing.
#[derive(Debug)]
pub(super) struct Layers {
    /// After how long a request is slow, if it can be.
    slow_after: Option<Duration>,
    trusted_proxies: TrustedProxies,
    /// How much of a refused request's body is read, and for how long.
    refused_body_bytes: u64,
    refused_body_time: Duration,
}

impl From<&Config> for Layers {
    fn from(config: &Config) -> Self {
        let slow_request_ms = config.log.slow_request_ms;
        Layers {
            slow_after: (slow_request_ms > 0).then(|| Duration::from_millis(slow_request_ms)),
            trusted_proxies: config.server.trusted_proxies.clone(),
            refused_body_bytes: config.limits.refused_body_bytes,
            refused_body_time: Duration::from_secs(config.limits.refused_body_s),
        }
    }
}

pub(super) async fn around(State(layers): State<Arc<Layers>>, request: Request, next: Next) -> Response {
    let handled = async |request| caught(next.run(request)).await.unwrap_or_else(IntoResponse::into_response);
    let right = |request| host::refuse_wrong(request, handled);
    let drained = |request| drain::refused_bodies(&layers, request, right);
    access_log::recorded(&layers, request, drained).await
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

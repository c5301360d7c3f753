//! The layers around every handler.
//!
//! | Module | Holds |
//! |---|---|
//! | `access_log` | the id of each request, its line in the log, and its metrics |
//! | `drain` | bodies that nobody takes: read to their end, within bounds |
//! | `host` | requests without the header `Host` |
//! | `panics` | a panic as an answer |

pub(super) mod access_log;
pub(super) mod drain;
pub(super) mod host;
pub(super) mod panics;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::config::Config;
use access_log::LogOptions;
use drain::DrainLimits;

/// All of them with their options, as one layer of the router: each of its own would cost as much as routing.
#[derive(Clone)]
pub(super) struct Layers {
    log: Arc<LogOptions>,
    limits: DrainLimits,
}

impl From<&Config> for Layers {
    fn from(config: &Config) -> Self {
        let (slow_request_ms, limits) = (config.log.slow_request_ms, &config.limits);
        let log = LogOptions {
            slow_after: (slow_request_ms > 0).then(|| Duration::from_millis(slow_request_ms)),
            trusted_proxies: config.server.trusted_proxies.clone(),
        };
        let time = Duration::from_secs(limits.refused_body_s);
        Layers { log: Arc::new(log), limits: DrainLimits { bytes: limits.refused_body_bytes, time } }
    }
}

pub(super) async fn around(State(layers): State<Layers>, request: Request, next: Next) -> Response {
    let handled = |request| panics::answered(next.run(request));
    let right = |request| host::refuse_wrong(request, handled);
    let drained = |request| drain::refused_bodies(layers.limits, request, right);
    access_log::recorded(&layers.log, request, drained).await
}

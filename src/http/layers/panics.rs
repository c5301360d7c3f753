//! A panic in a handler becomes a 500 in plain text, not a connection that drops without an answer.
//!
//! A panic while a body is streamed comes too late for that: it ends the connection, as any failure after the first
//! byte does.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::response::{IntoResponse, Response};
use futures::FutureExt;

use crate::http::error::HttpError;

pub(super) async fn answered(handling: impl Future<Output = Response>) -> Response {
    caught(handling).await.unwrap_or_else(IntoResponse::into_response)
}

/// What a handler gives, or its panic as [`HttpError::Panic`]. Unwind safety: a handler that panicked is dropped, and
/// what it shared with others (the pools, the caches) is behind locks and channels that are not left half-changed by an
/// unwinding thread.
pub(in crate::http) async fn caught<T>(handling: impl Future<Output = T>) -> Result<T, HttpError> {
    AssertUnwindSafe(handling).catch_unwind().await.map_err(|panic| HttpError::Panic(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "not text".to_owned()
    }
}

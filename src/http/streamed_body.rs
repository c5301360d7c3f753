//! Streamed response bodies.
use axum::body::{Body, Bytes};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt, future};
use strata_service::ReadError;

use super::error::{HttpError, log_read_error};

/// Waits for the first bytes, so that an unreadable file still returns an error status. A later failure is logged and
/// ends the body with an error. hyper then closes the connection, so that a truncated body never looks complete.
pub(super) async fn stream_body(chunks: BoxStream<'static, Result<Bytes, ReadError>>) -> Result<Body, HttpError> {
    let mut chunks = chunks.try_filter(|chunk| future::ready(!chunk.is_empty()));
    match chunks.try_next().await? {
        None => Ok(Body::empty()),
        Some(first) => {
            // Nothing follows an error, because the end of a body can tell clients that it is complete.
            let rest = chunks.inspect_err(log_read_error).scan(false, |has_failed, chunk| {
                let has_ended = std::mem::replace(has_failed, chunk.is_err());
                future::ready((!has_ended).then_some(chunk))
            });
            Ok(Body::from_stream(stream::once(future::ready(Ok(first))).chain(rest)))
        }
    }
}

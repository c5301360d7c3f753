//! Bodies of answers that come in parts.

use axum::body::{Body, Bytes};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};

use super::error::{HttpError, log_read_error};
use crate::service::ReadError;

/// The body of an answer that is streamed.
///
/// Waits for its first bytes, so that a file that cannot be read at all is still an error with a status. A failure
/// after them is logged and ends the body with an error, on which the HTTP implementation cuts the connection: a cut
/// body never looks whole.
pub(super) async fn streamed(mut chunks: BoxStream<'static, Result<Bytes, ReadError>>) -> Result<Body, HttpError> {
    Ok(match first_bytes(&mut chunks).await {
        None => Body::empty(),
        Some(Err(error)) => return Err(HttpError::Read(error)),
        Some(Ok(first)) => {
            let rest = chunks.inspect(|chunk| {
                if let Err(error) = chunk {
                    log_read_error(error);
                }
            });
            Body::from_stream(stream::once(future::ready(Ok(first))).chain(rest))
        }
    })
}

/// The first chunk that holds anything.
async fn first_bytes(
    chunks: &mut (impl stream::Stream<Item = Result<Bytes, ReadError>> + Unpin),
) -> Option<Result<Bytes, ReadError>> {
    loop {
        match chunks.next().await {
            Some(Ok(chunk)) if chunk.is_empty() => {}
            other => return other,
        }
    }
}

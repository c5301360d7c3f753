//! An export as a response: all of it, or the range that the client wants.

use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use strata_service::Export;

use crate::body::streamed;
use crate::error::HttpError;
use crate::headers::range::ByteRange;

/// An export as a response: the bytes of a range, if one is wanted and they can be had; else all of it.
///
/// A range waits until the export is made, since only then its length is known. Without one the body begins as soon as
/// there are bytes, and has a `Content-Length` if all are there by then.
pub(crate) async fn respond(mut export: Export, wanted: Option<ByteRange>) -> Result<Response, HttpError> {
    let made = match wanted {
        Some(wanted) => export.bytes().await?.map(|length| (wanted, length)),
        None => None,
    };
    let (mut response, length) = match made {
        Some((wanted, length)) => {
            let range = wanted.of(length).ok_or(HttpError::RangeNotSatisfiable { length })?;
            let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let bytes = range.end - range.start;
            let mut response = Response::new(streamed(export.part(range)).await?);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            // Digits and punctuation are always a valid value.
            if let Ok(content_range) = HeaderValue::try_from(content_range) {
                response.headers_mut().insert(CONTENT_RANGE, content_range);
            }
            (response, Some(bytes))
        }
        None => {
            let length = export.known_bytes();
            (Response::new(streamed(export.whole()).await?), length)
        }
    };
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

//! Exports as responses: a whole Parquet file, or a range of it.

use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use strata_service::CachedExport;

use crate::error::HttpError;
use crate::headers::range::ByteRange;
use crate::streamed_body::stream_body;

/// Returns the requested range with 206, or the whole export.
///
/// A range waits until the export is complete, because only then the length is known. Without a range, the body begins
/// as soon as there are bytes, and has a `Content-Length` if the export is already complete.
pub(crate) async fn export_response(mut export: CachedExport, range: Option<ByteRange>) -> Result<Response, HttpError> {
    let range_and_length = match range {
        Some(range) => export.wait_for_size_bytes().await?.map(|length| (range, length)),
        None => None,
    };
    let (mut response, length) = match range_and_length {
        Some((range, length)) => {
            let range = range.resolve(length).ok_or(HttpError::RangeNotSatisfiable { length })?;
            let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let bytes = range.end - range.start;
            let mut response = Response::new(stream_body(export.into_range(range)).await?);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            // Digits and punctuation are always a valid header value.
            if let Ok(content_range) = HeaderValue::try_from(content_range) {
                response.headers_mut().insert(CONTENT_RANGE, content_range);
            }
            (response, Some(bytes))
        }
        None => {
            let length = export.known_size_bytes();
            (Response::new(stream_body(export.into_chunks()).await?), length)
        }
    };
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

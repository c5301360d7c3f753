//! `/files/{dataset_id}/{name_slug}/{version}.{format}`: a version as a file (docs/reference/files.md).
//!
//! `GET` is the read with this format and the same parameters, checks and headers. `HEAD` is a `GET` without a body.
//! `OPTIONS` responds to the preflight request of a browser, without a lookup.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, RANGE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body::Body as _;
use strata_encode::ContentCoding;
use strata_service::{AuthorizedTarget, ReadResponse, ResponseBody, Services};
use strata_types::read_request::{ReadRequest, ResponseFormat};

use super::path::parse_file_path;
use super::{ParsedRead, ResponseContext, complete_response, respond_to_parsed_read};
use crate::AppState;
use crate::error::{HttpError, Result};
use crate::headers::caching::UnsizedEmptyBody;
use crate::headers::cors;
use crate::headers::range::ByteRange;
use crate::params;

pub(super) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Handles all methods and paths under `/files`.
pub(super) async fn read_file(State(services): State<AppState>, request: Request) -> Response {
    let (mut head, _body) = request.into_parts();
    if head.method == Method::HEAD {
        head.headers.remove(RANGE);
    }
    let mut context = ResponseContext { has_digest: true, ..ResponseContext::default() };
    let response = match parse_file_request(&head) {
        Ok(None) => return preflight_response(),
        Ok(Some(parsed)) => respond_to_parsed_read(&services, &head, parsed, &mut context).await,
        Err(error) => Err(error),
    };
    let response = complete_response(response.unwrap_or_else(IntoResponse::into_response), context);
    if head.method == Method::HEAD { without_body(response) } else { response }
}

/// Parses a request. Returns `None` for a preflight request.
fn parse_file_request(head: &Parts) -> Result<Option<ParsedRead>> {
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method) {
        return Err(HttpError::MethodNotAllowed { allowed: Some(cors::FILE_METHODS) });
    }
    let (path, format) = parse_file_path(head.uri.path())?;
    if head.method == Method::OPTIONS {
        return Ok(None);
    }
    let (request, unknown_parameters) = params::parse_file_query(head.uri.query())?;
    let typed = request.typed || format == ResponseFormat::Arrow;
    let request = ReadRequest { format, alt: path.alt, typed, ..request };
    Ok(Some(ParsedRead { target: path.target, request, unknown_parameters }))
}

fn preflight_response() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    cors::allow_file_preflight(response.headers_mut());
    response
}

/// Removes the body of a response to `HEAD`, whose length stays in `Content-Length` if it is known.
fn without_body(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact().filter(|_| head.status != StatusCode::NOT_MODIFIED) {
        head.headers.entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    Response::from_parts(head, Body::new(UnsizedEmptyBody))
}

/// Returns the SHA-256 of a whole Parquet file, or of a whole version as JSON Lines. `None` for any other response, and
/// if the digest cannot be known before the body. A compressed response has none, because the digest covers the bytes
/// before the compression.
///
/// Waits until a Parquet file is built, because its digest precedes the body.
pub(super) async fn find_digest(
    services: &Services,
    response: &mut ReadResponse,
    target: &AuthorizedTarget,
    request: &ReadRequest,
    range: Option<&ByteRange>,
) -> Result<Option<[u8; 32]>> {
    if let ResponseBody::Export(export) = &mut response.body {
        return match range {
            None => Ok(export.wait_for_sha256().await?),
            Some(_) => Ok(None),
        };
    }
    let whole = ReadRequest { format: ResponseFormat::Jsonl, alt: request.alt, ..ReadRequest::default() };
    if request.canonicalize() != whole.canonicalize() || response.coding != ContentCoding::Identity {
        return Ok(None);
    }
    Ok(services.reads.recorded_list_sha256(target).await)
}

/// Adds `Repr-Digest` (RFC 9530).
pub(super) fn set_repr_digest(headers: &mut HeaderMap, sha256: [u8; 32]) {
    // Base64 and punctuation are always a valid header value.
    if let Ok(digest) = HeaderValue::try_from(format!("sha-256=:{}:", STANDARD.encode(sha256))) {
        headers.insert(REPR_DIGEST, digest);
    }
}

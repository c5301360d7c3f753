//! `GET /changes/{dataset_id}/{name_slug}/{version}/?since=vM`: the edits that turn version M into this version
//! (docs/reference/changes.md).
//!
//! The checks run in the same order as for a read. The version `since` is looked up last.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use strata_encode::ContentCoding;
use strata_service::{AuthorizedTarget, CacheKey, ReadRequester, ReadTarget, Services};
use strata_types::read_request::ReadRequest;
use strata_types::version::{VersionNumber, VersionSelector, VersionVariant};

use super::path::parse_changes_path;
use super::{ResponseContext, authorize, complete_response, encode_body, respond_not_modified, set_dataset_headers};
use crate::AppState;
use crate::error::{HttpError, Result};
use crate::headers::auth::parse_authorization;
use crate::headers::caching::{self, CachingHeaders};
use crate::headers::{client_ip, content_encoding};
use crate::params;

const X_TOTAL_CHANGES: HeaderName = HeaderName::from_static("x-total-changes");

/// A parsed request for changes. Nothing has been looked up yet.
struct ChangesCall {
    target: ReadTarget,
    since: VersionNumber,
}

impl ChangesCall {
    fn parse(head: &Parts) -> Result<ChangesCall> {
        if head.method != Method::GET {
            return Err(HttpError::MethodNotAllowed { allowed: Some("GET") });
        }
        let target = parse_changes_path(head.uri.path())?;
        Ok(ChangesCall { target, since: params::parse_since(head.uri.query())? })
    }
}

/// Handles all methods and paths under `/changes`.
pub(super) async fn read_changes(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut context = ResponseContext::default();
    let response = Box::pin(respond_with_changes(&services, &head, &mut context)).await;
    complete_response(response.unwrap_or_else(IntoResponse::into_response), context)
}

async fn respond_with_changes(services: &Services, head: &Parts, context: &mut ResponseContext) -> Result<Response> {
    let call = ChangesCall::parse(head)?;
    let target = authorize(services, head, &call.target, &ReadRequest::default(), context).await?;
    let since = find_since(services, head, &call).await?;
    let coding = content_encoding::negotiate(&head.headers);
    let key = CacheKey::for_changes(&target, &since);
    let tag = |coding: ContentCoding| caching::strong_etag(&key, coding.etag_suffix());
    let mut etag = tag(coding);
    if caching::is_precondition_failed(&head.headers, etag.as_ref()) {
        return Err(HttpError::PreconditionFailed);
    }
    if let Some(etag) = etag.take_if(|etag| caching::is_not_modified(&head.headers, etag)) {
        return Ok(respond_not_modified(context, &target, etag, true));
    }
    let changes = services.diffs.find_changes(&target, &since).await?;
    let read = changes.respond(coding).await?;
    let total = read.total;
    // If there was no memory for the compression, the response is not compressed, and has a different etag.
    let etag = tag(if read.is_streamed() { read.coding } else { coding });
    let mut response = encode_body(read, None).await?;
    let headers = response.headers_mut();
    headers.insert(X_TOTAL_CHANGES, HeaderValue::from(total));
    set_dataset_headers(headers, &target);
    caching::set_caching_headers(headers, CachingHeaders { etag, is_private: target.is_private, is_coded: true });
    Ok(response)
}

/// Finds the version that the client has. The same requester can read it, because it belongs to the same dataset.
async fn find_since(services: &Services, head: &Parts, call: &ChangesCall) -> Result<AuthorizedTarget> {
    let target = ReadTarget { version: VersionSelector::Number(call.since), ..call.target.clone() };
    let lookup = services.lookups.find(&target).await?;
    let client = client_ip::request_client(head, services);
    let requester = ReadRequester::Client { client, authorization: parse_authorization(&head.headers) };
    Ok(lookup.authorize(requester, VersionVariant::Original)?)
}

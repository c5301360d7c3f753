//! Reads are counted, and answers say where their client stands. A download of an export in ranges counts once.

use axum::http::header::{CONTENT_LENGTH, RANGE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use strata_encode::ContentCoding;
use strata_runtime::metrics;
use strata_service::{Admitted, Bucket, CacheKey, Client, ExportPart, RateLimitDecision, RateLimitStatus, Services};
use strata_types::request::{Format, ReadRequest};

use crate::error::HttpError;
use crate::headers::caching;
use crate::headers::range::ByteRange;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Counts a read. `None` where there is no limit.
pub(super) async fn count(services: &Services, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
    let status = services.rate_limiter.count(client, bucket).await?;
    let decision = if status.decision == RateLimitDecision::Within { "allowed" } else { "refused" };
    metrics::limiter_decision(bucket == Bucket::Private, decision);
    Some(status)
}

/// Counts a read, says in the headers where the client stands, and refuses one too many.
pub async fn admit(
    services: &Services,
    client: Client,
    bucket: Bucket,
    headers: &mut HeaderMap,
) -> Result<(), HttpError> {
    let status = count(services, client, bucket).await;
    if let Some(status) = &status {
        describe(headers, status);
    }
    check(status.as_ref())
}

/// Whether a request may turn out to go on with a download that was counted, which only a look-up tells.
pub(super) async fn may_continue(
    services: &Services,
    client: Client,
    request: &ReadRequest,
    headers: &HeaderMap,
) -> bool {
    // The check of a strict request may have to read entities, which is not free.
    let is_export = request.format == Format::Parquet && !request.count && !request.strict;
    is_export && headers.contains_key(RANGE) && services.rate_limiter.has_downloads(client).await
}

/// Where the client stands, if its request goes on with a download that was counted: then it is not. It asks for a
/// range of an export that is made. The inner `None` is no limit.
pub(super) async fn continued(
    services: &Services,
    client: Client,
    bucket: Bucket,
    admitted: &Admitted,
    request: &ReadRequest,
    headers: &HeaderMap,
) -> Option<Option<RateLimitStatus>> {
    let key = CacheKey::of(admitted, request)?;
    let etag = caching::etag(&key, ContentCoding::Identity.etag_suffix())?;
    if caching::is_unwanted(headers, Some(&etag)) {
        return None;
    }
    let range = ByteRange::requested(headers, &etag).filter(|_| !caching::is_held(headers, &etag))?;
    let export_bytes = services.reads.made_export_bytes(key).await?;
    // One that is 416 is a part without bytes.
    let bytes = range.of(export_bytes).map_or(0, |range| range.end - range.start);
    let part = ExportPart { export: key.export_id(), export_bytes, bytes };
    if !services.rate_limiter.continue_download(client, bucket, part).await {
        return None;
    }
    let status = services.rate_limiter.status(client, bucket).await;
    if status.is_some() {
        metrics::limiter_decision(bucket == Bucket::Private, "free");
    }
    Some(status)
}

/// The bytes of an export in an answer; `None` is all of them.
pub(super) fn sent_bytes(response: &Response) -> Option<u64> {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    length.filter(|_| response.status() == StatusCode::PARTIAL_CONTENT)
}

pub(super) fn check(status: Option<&RateLimitStatus>) -> Result<(), HttpError> {
    match status.map(|status| status.decision) {
        Some(RateLimitDecision::Exceeded { retry_after_s }) => Err(HttpError::RateLimited { retry_after_s }),
        Some(RateLimitDecision::Within) | None => Ok(()),
    }
}

/// `X-RateLimit-*` (docs/reference/api/index.md, Rate limits).
pub(super) fn describe(headers: &mut HeaderMap, status: &RateLimitStatus) {
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(status.limit));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(status.remaining));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(status.reset_unix_s));
}

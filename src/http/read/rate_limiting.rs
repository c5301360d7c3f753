//! The rate limit of reads and its response headers. A download of an export in several ranges counts once.

use axum::http::header::{CONTENT_LENGTH, RANGE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use strata_encode::ContentCoding;
use strata_runtime::metrics::{self, RateLimitBucketLabel, RateLimitDecisionLabel};
use strata_service::{
    AuthorizedTarget, CacheKey, ClientNetwork, ExportPart, RateLimitBucket, RateLimitDecision, RateLimitStatus,
    Services,
};
use strata_types::read_request::{ReadRequest, ResponseFormat};

use crate::error::HttpError;
use crate::headers::caching;
use crate::headers::range::ByteRange;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Counts a read for the rate limit of a client. Returns `None` if there is no limit.
pub(super) async fn count_request(
    services: &Services,
    client: ClientNetwork,
    bucket: RateLimitBucket,
) -> Option<RateLimitStatus> {
    let status = services.rate_limiter.count_request(client, bucket).await?;
    let decision = match status.decision {
        RateLimitDecision::Within => RateLimitDecisionLabel::Allowed,
        RateLimitDecision::Exceeded { .. } => RateLimitDecisionLabel::Refused,
    };
    metrics::count_rate_limit_decision(bucket_label(bucket), decision);
    Some(status)
}

fn bucket_label(bucket: RateLimitBucket) -> RateLimitBucketLabel {
    match bucket {
        RateLimitBucket::Public => RateLimitBucketLabel::Public,
        RateLimitBucket::Private => RateLimitBucketLabel::Private,
    }
}

/// Counts a read, adds the rate limit headers, and returns 429 if the limit is exceeded.
pub async fn admit_request(
    services: &Services,
    client: ClientNetwork,
    bucket: RateLimitBucket,
    headers: &mut HeaderMap,
) -> Result<(), HttpError> {
    let status = count_request(services, client, bucket).await;
    if let Some(status) = &status {
        set_rate_limit_headers(headers, status);
    }
    check_rate_limit(status.as_ref())
}

/// Returns whether a request might continue an already counted download. Only a lookup of the dataset can decide.
pub(super) async fn may_skip_rate_limit(
    services: &Services,
    client: ClientNetwork,
    request: &ReadRequest,
    headers: &HeaderMap,
) -> bool {
    // The check of unknown fields in a strict request might read entities, so a strict request is not free of charge.
    let is_export = request.format == ResponseFormat::Parquet && !request.count && !request.strict;
    is_export && headers.contains_key(RANGE) && services.rate_limiter.has_downloads(client).await
}

/// Returns the state of the client's rate limit if the request continues a counted download: it requests a range of a
/// complete export. Such requests do not count. The inner `None` means that there is no limit.
pub(super) async fn try_skip_rate_limit(
    services: &Services,
    client: ClientNetwork,
    bucket: RateLimitBucket,
    target: &AuthorizedTarget,
    request: &ReadRequest,
    headers: &HeaderMap,
) -> Option<Option<RateLimitStatus>> {
    let key = CacheKey::for_request(target, request)?;
    let etag = caching::strong_etag(&key, ContentCoding::Identity.etag_suffix())?;
    if caching::is_precondition_failed(headers, Some(&etag)) {
        return None;
    }
    let range = ByteRange::from_headers(headers, &etag).filter(|_| !caching::is_not_modified(headers, &etag))?;
    let export_bytes = services.reads.cached_export_bytes(key).await?;
    // A range that is not satisfiable (416) contains no bytes.
    let part_bytes = range.resolve(export_bytes).map_or(0, |range| range.end - range.start);
    let part = ExportPart { export: key.export_id(), export_bytes, part_bytes };
    if !services.rate_limiter.continue_download(client, bucket, part).await {
        return None;
    }
    let status = services.rate_limiter.status(client, bucket).await;
    if status.is_some() {
        metrics::count_rate_limit_decision(bucket_label(bucket), RateLimitDecisionLabel::Free);
    }
    Some(status)
}

/// Returns the number of bytes in a partial response, or `None` for a whole export.
pub(super) fn partial_body_bytes(response: &Response) -> Option<u64> {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    length.filter(|_| response.status() == StatusCode::PARTIAL_CONTENT)
}

pub(super) fn check_rate_limit(status: Option<&RateLimitStatus>) -> Result<(), HttpError> {
    match status.map(|status| status.decision) {
        Some(RateLimitDecision::Exceeded { retry_after_s }) => Err(HttpError::RateLimited { retry_after_s }),
        Some(RateLimitDecision::Within) | None => Ok(()),
    }
}

/// Adds `X-RateLimit-*` (docs/reference/api/index.md, Rate limits).
pub(super) fn set_rate_limit_headers(headers: &mut HeaderMap, status: &RateLimitStatus) {
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(status.limit));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(status.remaining));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(status.reset_unix_s));
}

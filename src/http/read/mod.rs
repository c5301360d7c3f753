//! `GET /api/{dataset_id}/{name_slug}/{version}/[alt/]`: the read endpoint. [`files`] serves the same responses under
//! names of files, and [`changes`] serves the changes since another version.
//!
//! The checks run in this order (docs/reference/errors.md, Order of checks). The first failed check ends the request:
//! 1. The method: 405.
//! 2. The path: 400.
//! 3. The parameters: 400.
//! 4. The rate limit: 429. Every request that passes the first three checks counts, except for further ranges of a
//!    counted download.
//! 5. Checks by the services: 404 for the dataset or slug, 401, 403, 410, 404 for the version or alternate, 400 for
//!    unknown fields in strict requests, 503, and 500.
//!
//! Before strata plans or reads anything, it checks `If-None-Match` (304) and `If-Match` (412). The steps after these
//! checks are documented in `strata_service`, `read/pipeline.rs`.
mod changes;
mod export;
mod files;
mod link_header;
mod openapi_operations;
pub mod path;
pub(super) mod rate_limiting;

pub(super) use openapi_operations::openapi_section;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE, LINK};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use percent_encoding::utf8_percent_encode;
use strata_encode::ContentCoding;
use strata_service::{
    AuthorizationHeader, AuthorizedRead, AuthorizedTarget, ClientNetwork, RateLimitBucket, RateLimitStatus, ReadError,
    ReadRequester, ReadResponse, ReadTarget, ResolvedTarget, ResponseBody, Services, UsageMeter,
};
use strata_types::read_request::{ReadRequest, ResponseFormat};
use strata_types::version::{VersionNumber, VersionVariant};

use crate::AppState;
use crate::error::{HttpError, Result};
use crate::headers::auth::parse_authorization;
use crate::headers::base_url::BaseUrl;
use crate::headers::caching::{self, CachingHeaders};
use crate::headers::content_encoding;
use crate::headers::range::ByteRange;
use crate::headers::{client_ip, cors};
use crate::large_responses::BodyAlreadyCharged;
use crate::params::{self, UnknownParameter, unknown_fields_header, unknown_parameters_header};
use crate::streamed_body::stream_body;

const X_DATASET_ID: HeaderName = HeaderName::from_static("x-dataset-id");
const X_DATASET_VERSION: HeaderName = HeaderName::from_static("x-dataset-version");
const X_DATASET_ALT: HeaderName = HeaderName::from_static("x-dataset-alt");
const X_TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");
const X_TOTAL_MATCHES: HeaderName = HeaderName::from_static("x-total-matches");
const X_UNKNOWN_FIELDS: HeaderName = HeaderName::from_static("x-unknown-fields");
const X_UNKNOWN_PARAMETERS: HeaderName = HeaderName::from_static("x-unknown-parameters");

/// Initial capacity of the header map, which is enough for most responses.
const HEADER_CAPACITY: usize = 20;

/// A parsed read request. Nothing has been looked up yet.
#[derive(Clone, Debug)]
pub struct ParsedRead {
    pub target: ReadTarget,
    pub request: ReadRequest,
    pub unknown_parameters: Vec<UnknownParameter>,
}

/// The data for headers and usage statistics that apply to any response, including errors.
#[derive(Default)]
struct ResponseContext {
    unknown_parameters: Option<HeaderValue>,
    /// The state of the client's rate limit; `None` if reads have no limit.
    rate_limit_status: Option<RateLimitStatus>,
    /// The bucket of the rate limit that the request was counted in, if any. Also set if reads have no limit.
    counted_bucket: Option<RateLimitBucket>,
    is_private: bool,
    /// Counts the request and the bytes of its response in the usage of the dataset. `None` if the dataset is unknown.
    usage_meter: Option<UsageMeter>,
    /// Whether a response with a whole version has the header `Repr-Digest`.
    has_digest: bool,
}

/// The routes include all paths under their prefixes, because the path parsers return better errors than the router.
pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/api", any(read_dataset))
        .route("/api/", any(read_dataset))
        .route("/api/{*path}", any(read_dataset))
        .route("/changes", any(changes::read_changes))
        .route("/changes/", any(changes::read_changes))
        .route("/changes/{*path}", any(changes::read_changes))
        .route("/files", any(files::read_file))
        .route("/files/", any(files::read_file))
        .route("/files/{*path}", any(files::read_file))
}

/// Handles all methods and paths under `/api`. If the request was parsed, error responses also list unknown parameters.
async fn read_dataset(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut context = ResponseContext::default();
    let response = match parse_read(&head.method, &head.uri) {
        Ok(parsed) => respond_to_parsed_read(&services, &head, parsed, &mut context).await,
        Err(error) => Err(error),
    };
    complete_response(response.unwrap_or_else(IntoResponse::into_response), context)
}

/// Adds the headers that apply to any response, including errors.
fn complete_response(mut response: Response, context: ResponseContext) -> Response {
    let headers = response.headers_mut();
    if let Some(status) = &context.rate_limit_status {
        rate_limiting::set_rate_limit_headers(headers, status);
    }
    if !context.is_private {
        cors::allow_any_origin(headers);
    }
    headers.extend(context.unknown_parameters.map(|names| (X_UNKNOWN_PARAMETERS, names)));
    // The access log layer passes the number of sent bytes to the usage meter.
    if let Some(usage_meter) = context.usage_meter {
        response.extensions_mut().insert(usage_meter);
    }
    response
}

async fn respond_to_parsed_read(
    services: &Services,
    head: &Parts,
    parsed: ParsedRead,
    context: &mut ResponseContext,
) -> Result<Response> {
    let ParsedRead { target, request, unknown_parameters } = parsed;
    context.unknown_parameters = unknown_parameters_header(&unknown_parameters);

    let client = client_ip::request_client(head, services);
    let authorized = authorize(services, head, &target, &request, context).await?;
    let request = Arc::new(request);
    if request.strict {
        Box::pin(services.reads.reject_unknown_fields(&authorized, &request)).await?;
    }
    let file = download_format(&request);
    let coding = select_coding(&head.headers, file);
    let read = AuthorizedRead::new(&authorized, &request);
    let tag = |coding: ContentCoding| caching::strong_etag(read.cache_key.as_ref()?, coding.etag_suffix());
    let mut etag = tag(coding);
    if caching::is_precondition_failed(&head.headers, etag.as_ref()) {
        return Err(HttpError::PreconditionFailed);
    }
    let is_coded = file != Some(ResponseFormat::Parquet);
    if let Some(etag) = etag.take_if(|etag| caching::is_not_modified(&head.headers, etag)) {
        return Ok(respond_not_modified(context, &authorized, etag, is_coded));
    }
    let range = etag.as_ref().and_then(|etag| ByteRange::from_headers(&head.headers, etag));
    // The futures of rare steps are boxed, because the future of this function is moved several times.
    let fields = match request.strict || !request.has_field_paths() {
        true => None,
        false => Box::pin(find_unknown_fields(services, &authorized, &request, &head.uri)).await?,
    };
    let mut response = services.reads.respond(read, coding).await?;
    let digest = match context.has_digest {
        true => Box::pin(files::find_digest(services, &mut response, &authorized, &request, range.as_ref())).await?,
        false => None,
    };
    // If there was no memory for the compression, the response is not compressed, and has a different etag.
    if response.coding != coding && matches!(response.body, ResponseBody::Stream(_)) {
        etag = tag(response.coding);
    }
    let base = || BaseUrl::from_request_head(head, services);
    let pages = link_header::adjacent_pages_header(base, &head.uri, authorized.version, &request, response.total);
    let is_export = matches!(response.body, ResponseBody::Export(_));
    let mut response = encode_response(response, &authorized, file, range).await?;
    // In the rate limit, each export counts as one download, even if the client requests it in several ranges.
    if is_export && let (Some(bucket), Some(key)) = (context.counted_bucket, &read.cache_key) {
        let query_bytes = head.uri.query().unwrap_or_default().len();
        services.export_prewarmer.record_request(target.version, &authorized, &request, query_bytes);
        let sent_bytes = rate_limiting::partial_body_bytes(&response);
        services.rate_limiter.begin_download(client, bucket, key.export_id(), sent_bytes).await;
    }
    let headers = response.headers_mut();
    if let Some(digest) = digest {
        files::set_repr_digest(headers, digest);
    }
    headers.extend(fields.map(|fields| (X_UNKNOWN_FIELDS, fields)));
    headers.extend(pages.map(|pages| (LINK, pages)));
    caching::set_caching_headers(headers, CachingHeaders { etag, is_private: authorized.is_private, is_coded });
    Ok(response)
}

/// Returns the header that lists unknown fields, in the order in which the URL uses them. If a part of the request
/// removes a field, only later uses count. Errors other than a timeout leave out the header, which is only a hint.
async fn find_unknown_fields(
    services: &Services,
    target: &AuthorizedTarget,
    request: &ReadRequest,
    uri: &Uri,
) -> Result<Option<HeaderValue>, ReadError> {
    let mut unknown = match services.reads.unknown_fields(target, request).await {
        Err(error @ ReadError::Timeout { .. }) => return Err(error),
        result => result.unwrap_or_default(),
    };
    if unknown.len() > 1 {
        let order = params::paths_in_query(uri.query().unwrap_or_default());
        unknown.sort_by_cached_key(|field| {
            order.iter().position(|(parameter, path)| *path == field.path && field.is_also_unknown_for(parameter))
        });
    }
    let paths: Vec<_> = unknown.into_iter().map(|field| field.path).collect();
    Ok(unknown_fields_header(&paths))
}

/// Finds the target of a read, counts the request for the rate limit, and checks that the client can read the target.
///
/// Without an `Authorization` header, the request counts in the public bucket before the lookup. So a rejected request
/// costs no lookup, and its response is the same for all datasets. Otherwise, the bucket depends on the dataset, but
/// does not reveal more than 401 and 403 do, because a lookup needs both the ID and the slug. A range that might belong
/// to a counted download also needs the lookup first.
async fn authorize(
    services: &Services,
    head: &Parts,
    target: &ReadTarget,
    request: &ReadRequest,
    context: &mut ResponseContext,
) -> Result<AuthorizedTarget> {
    let client = client_ip::request_client(head, services);
    let headers = &head.headers;
    let authorization = parse_authorization(headers);
    let may_continue = rate_limiting::may_skip_rate_limit(services, client, request, headers).await;
    let counts_first = authorization == AuthorizationHeader::None && !may_continue;
    if counts_first && let Err(error) = admit_read(services, client, RateLimitBucket::Public, context).await {
        context.usage_meter = Some(services.usage.meter_rate_limited(target.dataset, &target.name_slug));
        return Err(error);
    }
    let lookup = match counts_first {
        true => services.lookups.find(target).await,
        false => Box::pin(services.lookups.find_with_permit(client, target)).await,
    };
    context.is_private = lookup.as_ref().is_ok_and(ResolvedTarget::is_private);
    context.usage_meter =
        lookup.as_ref().ok().and_then(ResolvedTarget::dataset_id).map(|dataset| services.usage.meter_read(dataset));
    let requester = ReadRequester::Client { client, authorization };
    let authorized = lookup.and_then(|lookup| lookup.authorize(requester, request.variant()));
    if counts_first {
        return Ok(authorized?);
    }
    let has_private_access = context.is_private && authorization != AuthorizationHeader::None;
    let bucket = if has_private_access { RateLimitBucket::Private } else { RateLimitBucket::Public };
    if may_continue
        && let Ok(authorized) = &authorized
        && let Some(status) =
            Box::pin(rate_limiting::try_skip_rate_limit(services, client, bucket, authorized, request, headers)).await
    {
        context.rate_limit_status = status;
    } else if let Err(error) = admit_read(services, client, bucket, context).await {
        context.usage_meter.iter().for_each(UsageMeter::record_rate_limited);
        return Err(error);
    }
    Ok(authorized?)
}

/// Responds to a read that is authorized by a session instead of the `Authorization` header.
pub async fn download_response(
    services: &Services,
    head: &Parts,
    target: &AuthorizedTarget,
    request: ReadRequest,
) -> Result<Response> {
    let file = download_format(&request);
    let coding = select_coding(&head.headers, file);
    let request = Arc::new(request);
    let response = services.reads.respond(AuthorizedRead::new(target, &request), coding).await?;
    let mut response = encode_response(response, target, file, None).await?;
    let is_coded = file != Some(ResponseFormat::Parquet);
    caching::set_caching_headers(response.headers_mut(), CachingHeaders { etag: None, is_private: true, is_coded });
    Ok(response)
}

async fn admit_read(
    services: &Services,
    client: ClientNetwork,
    bucket: RateLimitBucket,
    context: &mut ResponseContext,
) -> Result<()> {
    context.rate_limit_status = rate_limiting::count_request(services, client, bucket).await;
    context.counted_bucket = Some(bucket);
    rate_limiting::check_rate_limit(context.rate_limit_status.as_ref())
}

/// Negotiates the content coding. Parquet files are already compressed and must support ranges, so they have no coding.
fn select_coding(headers: &HeaderMap, file: Option<ResponseFormat>) -> ContentCoding {
    if file == Some(ResponseFormat::Parquet) { ContentCoding::Identity } else { content_encoding::negotiate(headers) }
}

/// Checks the method, the path, and the parameters, in this order. These checks need no I/O.
pub fn parse_read(method: &Method, uri: &Uri) -> Result<ParsedRead> {
    if method != Method::GET {
        return Err(HttpError::MethodNotAllowed { allowed: Some("GET") });
    }
    let path = path::parse_path(uri.path())?;
    let (mut request, unknown_parameters) = params::parse_query(uri.query())?;
    // `/alt/` in the path overrides `alt=false` in the query string.
    request.alt |= path.alt;
    Ok(ParsedRead { target: path.target, request, unknown_parameters })
}

/// Returns the format of a response that is a file download: tables, but not counts.
fn download_format(request: &ReadRequest) -> Option<ResponseFormat> {
    (request.format.is_table() && !request.count).then_some(request.format)
}

/// Encodes the response to a read. `range` applies only to exports.
async fn encode_response(
    read: ReadResponse,
    target: &AuthorizedTarget,
    file: Option<ResponseFormat>,
    range: Option<ByteRange>,
) -> Result<Response> {
    let total = read.total;
    let matches = read.matches;
    let mut response = encode_body(read, range).await?;
    let disposition =
        file.and_then(|format| content_disposition(&target.name_slug, target.version, target.variant, format));
    let headers = response.headers_mut();
    headers.insert(X_TOTAL_COUNT, HeaderValue::from(total));
    headers.extend(matches.map(|matches| (X_TOTAL_MATCHES, HeaderValue::from(matches))));
    set_dataset_headers(headers, target);
    headers.extend(disposition.map(|disposition| (CONTENT_DISPOSITION, disposition)));
    Ok(response)
}

/// Encodes the body of a read with the headers that describe only the body.
async fn encode_body(read: ReadResponse, range: Option<ByteRange>) -> Result<Response> {
    let mut response = match read.body {
        ResponseBody::Whole(bytes) => Response::new(Body::from(bytes)),
        ResponseBody::Stream(chunks) => Response::new(Box::pin(stream_body(chunks)).await?),
        ResponseBody::Export(export) => Box::pin(export::export_response(export, range)).await?,
    };
    response.extensions_mut().insert(BodyAlreadyCharged);
    let headers = response.headers_mut();
    headers.reserve(HEADER_CAPACITY);
    if read.coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(read.coding.name()));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(read.content_type));
    Ok(response)
}

/// Responds with 304 to a request whose `If-None-Match` names the current `etag`.
fn respond_not_modified(
    context: &ResponseContext,
    target: &AuthorizedTarget,
    etag: HeaderValue,
    is_coded: bool,
) -> Response {
    context.usage_meter.iter().for_each(UsageMeter::record_not_modified);
    let mut response = Response::new(Body::new(caching::UnsizedEmptyBody));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    set_dataset_headers(headers, target);
    let caching_headers = CachingHeaders { etag: Some(etag), is_private: target.is_private, is_coded };
    caching::set_caching_headers(headers, caching_headers);
    response
}

fn set_dataset_headers(headers: &mut HeaderMap, target: &AuthorizedTarget) {
    headers.insert(X_DATASET_ID, HeaderValue::from(target.dataset_id.get()));
    let [yes, no] = const { [HeaderValue::from_static("true"), HeaderValue::from_static("false")] };
    headers.insert(X_DATASET_ALT, if target.variant.is_alternate() { yes } else { no });
    // A `v` and digits are always a valid header value.
    if let Ok(version) = HeaderValue::try_from(["v", &target.version.get().to_string()].concat()) {
        headers.insert(X_DATASET_VERSION, version);
    }
}

/// Returns `attachment; filename="{name_slug}-v{N}.{ext}"`, with `-alt` before the dot for an alternate
/// (docs/reference/formats.md, Content types and file names).
///
/// Some clients reject headers that are not ASCII, so other characters of the slug become `_`. The exact name follows
/// in the extended notation (RFC 6266), which browsers prefer. The result is never `None` for a slug that was derived
/// from a dataset name, because it contains no control characters and no `"`.
fn content_disposition(
    slug: &str,
    version: VersionNumber,
    variant: VersionVariant,
    format: ResponseFormat,
) -> Option<HeaderValue> {
    let file_name = file_name(slug, version, variant, format);
    let ascii: String = file_name.chars().map(|char| if char.is_ascii() { char } else { '_' }).collect();
    let mut value = format!("attachment; filename=\"{ascii}\"");
    if !file_name.is_ascii() {
        value.push_str("; filename*=UTF-8''");
        // Unreserved characters need no escape (RFC 8187).
        value.extend(utf8_percent_encode(&file_name, params::PERCENT_ENCODED));
    }
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

pub fn file_name(name_slug: &str, version: VersionNumber, variant: VersionVariant, format: ResponseFormat) -> String {
    let suffix = if variant.is_alternate() { "-alt" } else { "" };
    format!("{name_slug}-v{version}{suffix}.{}", format.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_format_includes_tables_but_not_counts() {
        for format in ResponseFormat::FILE_FORMATS {
            let request = ReadRequest { format, ..ReadRequest::default() };
            assert_eq!(download_format(&request), format.is_table().then_some(format));
            assert_eq!(download_format(&ReadRequest { count: true, ..request }), None);
        }
    }

    #[test]
    fn content_disposition_non_ascii_has_two_names() {
        let check = |slug, variant, expected: &str| {
            let value = content_disposition(slug, VersionNumber::new(3), variant, ResponseFormat::Csv);
            assert_eq!(value.expect("a header").as_bytes(), expected.as_bytes());
        };
        check("world-countries", VersionVariant::Original, r#"attachment; filename="world-countries-v3.csv""#);
        check(
            "köln-東京",
            VersionVariant::Alternate,
            "attachment; filename=\"k_ln-__-v3-alt.csv\"; filename*=UTF-8''k%C3%B6ln-%E6%9D%B1%E4%BA%AC-v3-alt.csv",
        );
    }
}

//! `GET /api/{dataset_id}/{name_slug}/{version}/[alt/]`: the read endpoint.
//!
//! The checks run in this order (docs/reference/errors.md, Order of checks); each ends the request:
//! 1. the method: 405,
//! 2. the path: 400,
//! 3. the parameters: 400,
//! 4. the client's rate: 429,
//! 5. what only the service knows: 404 dataset or slug, 401 and 403, 410, 404 version or alternate, 400 unknown
//!    fields of strict requests, 503, 500.
//!
//! The steps after these checks, and all functions that a request passes, are in `strata_service`, `read/pipeline.rs`.
//!
//! Requests that come as far as 4 are counted, but for further ranges of an export that was counted. Before anything is
//! planned or read for an answer, the client is asked whether it has it already: 304, or wants that of another `ETag`:
//! 412.

mod export;
mod link;
mod operations;
pub mod path;
pub(super) mod rate;

pub(super) use operations::section;
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
    Admitted, Answer, AnswerBody, Authorization, AuthorizedRead, Bucket, Client, Lookup, RateLimitStatus, ReadError,
    ReadTarget, Requester, Services, UsageMeter,
};
use strata_types::request::{Format, ReadRequest};
use strata_types::version::VersionNumber;

use crate::AppState;
use crate::body::streamed;
use crate::error::HttpError;
use crate::headers::auth::authorization;
use crate::headers::base_url::BaseUrl;
use crate::headers::content_encoding;
use crate::headers::range::ByteRange;
use crate::headers::{caching, client_ip, cors};
use crate::large_responses::Charged;
use crate::params::{self, UnknownParameter, unknown_fields_header, unknown_parameters_header};

const X_DATASET_ID: HeaderName = HeaderName::from_static("x-dataset-id");
const X_DATASET_VERSION: HeaderName = HeaderName::from_static("x-dataset-version");
const X_DATASET_ALT: HeaderName = HeaderName::from_static("x-dataset-alt");
const X_TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");
const X_TOTAL_MATCHES: HeaderName = HeaderName::from_static("x-total-matches");
const X_UNKNOWN_FIELDS: HeaderName = HeaderName::from_static("x-unknown-fields");
const X_UNKNOWN_PARAMETERS: HeaderName = HeaderName::from_static("x-unknown-parameters");

/// Room for the headers of most answers.
const HEADERS: usize = 20;

/// What a request asks for, before anything is looked up.
#[derive(Clone, Debug)]
pub struct ParsedRead {
    pub target: ReadTarget,
    pub request: ReadRequest,
    pub unknown: Vec<UnknownParameter>,
}

/// What every answer tells besides itself, as far as it is known when the answer is.
#[derive(Default)]
struct ResponseContext {
    unknown: Option<HeaderValue>,
    /// Where the client stands; `None` where no limit is.
    status: Option<RateLimitStatus>,
    /// The bucket that the request was counted in, if it was; where no limit is, too.
    counted: Option<Bucket>,
    private: bool,
    /// Counts the request for its dataset, and the bytes of the answer; `None` where no dataset is known.
    meter: Option<UsageMeter>,
}

/// Its routes: everything under `/api`, for the path's own parser can say what is wrong with a path.
pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/api", any(read)).route("/api/", any(read)).route("/api/{*path}", any(read))
}

/// The handler, for every method and every path under `/api`.
///
/// Answers to requests that could be parsed name their unknown parameters, whatever their status.
async fn read(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut context = ResponseContext::default();
    let mut response = respond(&services, &head, &mut context).await.unwrap_or_else(IntoResponse::into_response);
    let headers = response.headers_mut();
    if let Some(status) = &context.status {
        rate::describe(headers, status);
    }
    if !context.private {
        cors::allow(headers);
    }
    if let Some(names) = context.unknown {
        headers.insert(X_UNKNOWN_PARAMETERS, names);
    }
    // The layer that hands the body over, to its end or not, counts it.
    if let Some(meter) = context.meter {
        response.extensions_mut().insert(meter);
    }
    response
}

async fn respond(services: &Services, head: &Parts, context: &mut ResponseContext) -> Result<Response, HttpError> {
    let ParsedRead { target, request, unknown } = parse(&head.method, &head.uri)?;
    context.unknown = unknown_parameters_header(&unknown);

    let client = client_ip::client(head, services);
    let admitted = authorize(services, client, &target, &request, &head.headers, context).await?;
    let request = Arc::new(request);
    if request.strict {
        Box::pin(services.reads.check_fields(&admitted, &request)).await?;
    }
    let file = file_format(&request);
    let coding = coding(&head.headers, file);
    let read = AuthorizedRead::new(&admitted, &request);
    let tag = |coding: ContentCoding| caching::etag(read.key.as_ref()?, coding.etag_suffix());
    let mut etag = tag(coding);
    if caching::is_unwanted(&head.headers, etag.as_ref()) {
        return Err(HttpError::PreconditionFailed);
    }
    let is_coded = file != Some(Format::Parquet);
    if let Some(etag) = etag.take_if(|etag| caching::is_held(&head.headers, etag)) {
        context.meter.iter().for_each(UsageMeter::not_modified);
        let mut response = not_modified(&admitted);
        caching::describe(response.headers_mut(), Some(etag), admitted.private, is_coded);
        return Ok(response);
    }
    let range = etag.as_ref().and_then(|etag| ByteRange::requested(&head.headers, etag));
    // What most requests need no part of is in boxes of its own: this future is moved several times.
    let fields = match request.strict || !request.names_paths() {
        true => None,
        false => Box::pin(unknown_fields(services, &admitted, &request, &head.uri)).await?,
    };
    let answer = services.reads.respond(read, coding).await?;
    // There was no memory to compress it: those are other bytes than this tag stands for.
    if answer.coding != coding && matches!(answer.body, AnswerBody::Stream(_)) {
        etag = tag(answer.coding);
    }
    let base = || BaseUrl::of(head, services);
    let pages = link::pages(base, &head.uri, admitted.version, &request, answer.total);
    let is_export = matches!(answer.body, AnswerBody::Export(_));
    let mut response = encode(answer, &admitted, file, range).await?;
    // Once for each download.
    if is_export && let (Some(bucket), Some(key)) = (context.counted, &read.key) {
        let query_bytes = head.uri.query().unwrap_or_default().len();
        services.exports_ahead.asked(target.version, &admitted, &request, query_bytes);
        let sent_bytes = rate::sent_bytes(&response);
        services.rate_limiter.begin_download(client, bucket, key.export_id(), sent_bytes).await;
    }
    let headers = response.headers_mut();
    headers.extend(fields.map(|fields| (X_UNKNOWN_FIELDS, fields)));
    headers.extend(pages.map(|pages| (LINK, pages)));
    caching::describe(headers, etag, admitted.private, is_coded);
    Ok(response)
}

/// The header that names the fields that are not there, in the order in which the URL first names them as such: another
/// parameter may name one before, where it is still there. It is a hint: where they cannot be found out, the answer
/// does without, unless the time of the read is over.
async fn unknown_fields(
    services: &Services,
    admitted: &Admitted,
    request: &ReadRequest,
    uri: &Uri,
) -> Result<Option<HeaderValue>, ReadError> {
    let mut unknown = match services.reads.unknown_fields(admitted, request).await {
        Err(error @ ReadError::Timeout { .. }) => return Err(error),
        told => told.unwrap_or_default(),
    };
    if unknown.len() > 1 {
        let order = params::paths(uri.query().unwrap_or_default());
        unknown.sort_by_cached_key(|field| {
            order.iter().position(|(parameter, path)| *path == field.path && field.is_unknown_to(parameter))
        });
    }
    let paths: Vec<_> = unknown.into_iter().map(|field| field.path).collect();
    Ok(unknown_fields_header(&paths))
}

/// Finds the target, counts the request for the rate limit, and checks that the client can read it.
///
/// Without an `Authorization` the bucket is the public one, whatever the dataset: a request too many then costs no
/// look-up, and its answer is the same for every dataset. Otherwise the bucket depends on the dataset, but tells no
/// more of it than 401 and 403 do: only id and slug together find it. A range that may belong to a download that was
/// counted is looked up first, too: it counts unless it does.
async fn authorize(
    services: &Services,
    client: Client,
    target: &ReadTarget,
    request: &ReadRequest,
    headers: &HeaderMap,
    context: &mut ResponseContext,
) -> Result<Admitted, HttpError> {
    let authorization = authorization(headers);
    let may_continue = rate::may_continue(services, client, request, headers).await;
    let counts_first = authorization == Authorization::None && !may_continue;
    if counts_first && let Err(refused) = count(services, client, Bucket::Public, context).await {
        context.meter = Some(services.usage.refused(target.dataset, &target.name_slug));
        return Err(refused);
    }
    let lookup = match counts_first {
        true => services.lookups.find(target).await,
        false => Box::pin(services.lookups.find_in_turn(client, target)).await,
    };
    context.private = lookup.as_ref().is_ok_and(Lookup::is_private);
    context.meter = lookup.as_ref().ok().and_then(Lookup::dataset).map(|dataset| services.usage.found(dataset));
    let requester = Requester::Client { client, authorization };
    let admitted = lookup.and_then(|lookup| lookup.authorize(requester, request.alt));
    if counts_first {
        return Ok(admitted?);
    }
    let authorized = context.private && authorization != Authorization::None;
    let bucket = if authorized { Bucket::Private } else { Bucket::Public };
    if may_continue
        && let Ok(admitted) = &admitted
        && let Some(status) = Box::pin(rate::continued(services, client, bucket, admitted, request, headers)).await
    {
        context.status = status;
    } else if let Err(refused) = count(services, client, bucket, context).await {
        context.meter.iter().for_each(UsageMeter::rate_limited);
        return Err(refused);
    }
    Ok(admitted?)
}

/// The answer to a read of somebody who was admitted by a session and not by the request.
pub async fn download(
    services: &Services,
    head: &Parts,
    admitted: &Admitted,
    request: ReadRequest,
) -> Result<Response, HttpError> {
    let file = file_format(&request);
    let coding = coding(&head.headers, file);
    let request = Arc::new(request);
    let answer = services.reads.respond(AuthorizedRead::new(admitted, &request), coding).await?;
    let mut response = encode(answer, admitted, file, None).await?;
    caching::describe(response.headers_mut(), None, true, file != Some(Format::Parquet));
    Ok(response)
}

async fn count(
    services: &Services,
    client: Client,
    bucket: Bucket,
    context: &mut ResponseContext,
) -> Result<(), HttpError> {
    context.status = rate::count(services, client, bucket).await;
    context.counted = Some(bucket);
    rate::check(context.status.as_ref())
}

/// How a body is coded: as the client likes it most, but Parquet is compressed already, and read in parts.
fn coding(headers: &HeaderMap, file: Option<Format>) -> ContentCoding {
    if file == Some(Format::Parquet) { ContentCoding::Identity } else { content_encoding::negotiate(headers) }
}

/// The checks that need nothing but the request itself: the method, the path, the parameters, in this order.
pub fn parse(method: &Method, uri: &Uri) -> Result<ParsedRead, HttpError> {
    if method != Method::GET {
        return Err(HttpError::MethodNotAllowed { allowed: Some("GET") });
    }
    let path = path::parse(uri.path())?;
    let (mut request, unknown) = params::parse(uri.query())?;
    // `/alt/` wins over `alt=false`.
    request.alt |= path.alt;
    Ok(ParsedRead { target: path.target, request, unknown })
}

/// The format of the file that an answer is offered as: tables are, a count never is.
fn file_format(request: &ReadRequest) -> Option<Format> {
    (request.format.is_table() && !request.count).then_some(request.format)
}

/// An answer as an HTTP response: a file if `file` is a format, with the bytes of `range` only if the body has them.
async fn encode(
    answer: Answer,
    served: &Admitted,
    file: Option<Format>,
    range: Option<ByteRange>,
) -> Result<Response, HttpError> {
    let mut response = match answer.body {
        AnswerBody::Whole(bytes) => Response::new(Body::from(bytes)),
        AnswerBody::Stream(chunks) => Response::new(Box::pin(streamed(chunks)).await?),
        AnswerBody::Export(export) => Box::pin(export::respond(export, range)).await?,
    };
    response.extensions_mut().insert(Charged);
    let disposition =
        file.and_then(|format| content_disposition(&served.name_slug, served.version, served.alt, format));
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    if answer.coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(answer.coding.name()));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(X_TOTAL_COUNT, HeaderValue::from(answer.total));
    headers.extend(answer.matches.map(|matches| (X_TOTAL_MATCHES, HeaderValue::from(matches))));
    describe(headers, served);
    if let Some(disposition) = disposition {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

fn not_modified(served: &Admitted) -> Response {
    let mut response = Response::new(Body::new(caching::NoBody));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    describe(response.headers_mut(), served);
    response
}

fn describe(headers: &mut HeaderMap, served: &Admitted) {
    headers.insert(X_DATASET_ID, HeaderValue::from(served.dataset_id.get()));
    let [yes, no] = const { [HeaderValue::from_static("true"), HeaderValue::from_static("false")] };
    headers.insert(X_DATASET_ALT, if served.alt { yes } else { no });
    // A `v` and digits are always a valid value.
    if let Ok(version) = HeaderValue::try_from(["v", &served.version.get().to_string()].concat()) {
        headers.insert(X_DATASET_VERSION, version);
    }
}

/// `attachment; filename="{name_slug}-v{N}.{ext}"`, with `-alt` before the dot for an alternate
/// (docs/reference/formats.md, Content types and file names).
///
/// A header's text is ASCII, and some clients refuse one that is not: of a slug with other characters it has `_` in
/// their place, and the whole once more in the extended notation (RFC 6266), which browsers prefer. `None` if a header
/// cannot hold the slug, which no slug that was made from a name does: it has no control characters and no `"`.
fn content_disposition(name_slug: &str, version: VersionNumber, alt: bool, format: Format) -> Option<HeaderValue> {
    let file_name = file_name(name_slug, version, alt, format);
    let ascii: String = file_name.chars().map(|char| if char.is_ascii() { char } else { '_' }).collect();
    let mut value = format!("attachment; filename=\"{ascii}\"");
    if !file_name.is_ascii() {
        value.push_str("; filename*=UTF-8''");
        // The unreserved characters need no escape there (RFC 8187).
        value.extend(utf8_percent_encode(&file_name, params::ESCAPED));
    }
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

pub fn file_name(name_slug: &str, version: VersionNumber, alt: bool, format: Format) -> String {
    let alt = if alt { "-alt" } else { "" };
    format!("{name_slug}-v{version}{alt}.{}", format.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_files_and_counts_are_not() {
        for format in Format::ALL {
            let request = ReadRequest { format, ..ReadRequest::default() };
            assert_eq!(file_format(&request), format.is_table().then_some(format));
            assert_eq!(file_format(&ReadRequest { count: true, ..request }), None);
        }
    }

    #[test]
    fn a_name_that_is_not_ascii_is_given_twice() {
        let check = |slug, alt, expected: &str| {
            let value = content_disposition(slug, VersionNumber::new(3), alt, Format::Csv).expect("a header");
            assert_eq!(value.as_bytes(), expected.as_bytes());
        };
        check("world-countries", false, r#"attachment; filename="world-countries-v3.csv""#);
        check(
            "köln-東京",
            true,
            "attachment; filename=\"k_ln-__-v3-alt.csv\"; filename*=UTF-8''k%C3%B6ln-%E6%9D%B1%E4%BA%AC-v3-alt.csv",
        );
    }
}

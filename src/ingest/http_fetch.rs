//! Fetches a source over HTTP or HTTPS. A fetch waits for the response head, and the body becomes a reader for the
//! decoders. There are timeouts for the connection, for the head, between two chunks, and for the whole fetch. A
//! truncated response is an error. [`crate::egress`] decides which addresses are allowed. This module checks addresses
//! in URLs, both in the source URL and in redirects, because the resolver does not see them.

use std::sync::Arc;
use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::{Client, Response, StatusCode, redirect};
use strata_types::error_chain::{iter_error_chain, join_errors};
use strata_types::source::SourceValidators;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::error::SourceError;
use super::format_detection;
use super::source_input::{BodyTimeouts, FetchLimits, FetchOutcome, FetchedSource, ReadProgress, SourceInput};
use crate::egress::{EgressClient, EgressUrlError, NameResolutionError, describe_connection_failure, error_causes};

/// The maximum size of a validator (`ETag` or `Last-Modified`). Longer ones are ignored, because validators are stored
/// and sent with every request.
const MAX_VALIDATOR_BYTES: usize = 1024;

pub(super) async fn open_http(
    egress_client: &EgressClient,
    limits: &FetchLimits,
    url: &Url,
    known: Option<&SourceValidators>,
) -> Result<FetchOutcome, SourceError> {
    let fetch = HttpFetch::new(egress_client, limits)?;
    let mut response = fetch.send_request(url, known).await?;
    if let Some(known) = known.filter(|_| response.status() == StatusCode::NOT_MODIFIED) {
        if matches_validators(&response, known) {
            return Ok(FetchOutcome::NotModified(known.clone()));
        }
        response = fetch.send_request(url, None).await?;
    }
    check_status(response.status())?;
    check_content_encoding(response.headers())?;
    let content_type = header_text(&response, CONTENT_TYPE);
    let progress = ReadProgress { total_bytes: response.content_length(), ..ReadProgress::default() };
    let validators = response_validators(&response);
    // A redirect often leads to a URL without a meaningful file name, so the name in the requested URL is the fallback.
    let name = [response.url(), url]
        .into_iter()
        .filter_map(last_path_segment)
        .find(|name| format_detection::format_from_name(name).is_some());
    let timeouts = BodyTimeouts { idle_timeout: limits.idle_timeout, deadline: fetch.deadline };
    let body = SourceInput::from_response(response.bytes_stream().map_err(fetch_error).boxed(), timeouts);
    let input = SourceInput { name, content_type, progress, ..body };
    Ok(FetchOutcome::Document(FetchedSource { input, validators }))
}

fn check_status(status: StatusCode) -> Result<(), SourceError> {
    let detail = match status {
        // The request has no range and accepts no delta, so a response with a part of the document is an error.
        StatusCode::PARTIAL_CONTENT | StatusCode::IM_USED => ", which contains only part of the document",
        // A response without a body is an error, and not an empty document.
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => ", which contains no document",
        status if status.is_success() => return Ok(()),
        StatusCode::NOT_MODIFIED => " to an unconditional request",
        status if status.is_redirection() => " without an http or https URL to redirect to",
        _ => "",
    };
    Err(SourceError::Unreachable { reason: format!("the server returned {status}{detail}") })
}

struct HttpFetch<'a> {
    egress_client: &'a EgressClient,
    limits: &'a FetchLimits,
    deadline: Option<Instant>,
    client: Client,
    /// The URL of the last redirect of the current request.
    last_redirect: Arc<Mutex<Option<Url>>>,
}

impl<'a> HttpFetch<'a> {
    fn new(egress_client: &'a EgressClient, limits: &'a FetchLimits) -> Result<HttpFetch<'a>, SourceError> {
        let max_redirects = limits.max_redirects;
        let last_redirect = Arc::<Mutex<Option<Url>>>::default();
        let policy = {
            let egress_client = egress_client.clone();
            let last_redirect = last_redirect.clone();
            redirect::Policy::custom(move |attempt| {
                if attempt.previous().len() > max_redirects {
                    let reason = format!("more than {max_redirects} redirects");
                    return attempt.error(SourceError::Unreachable { reason });
                }
                match egress_client.check_url_without_lookup(attempt.url()) {
                    Ok(()) => {
                        *last_redirect.lock() = Some(attempt.url().clone());
                        attempt.follow()
                    }
                    Err(error) => attempt.error(error),
                }
            })
        };
        let client = egress_client.client_builder().connect_timeout(limits.connect_timeout).redirect(policy);
        let deadline = Instant::now().checked_add(limits.total_timeout);
        let client = client.build().map_err(fetch_error)?;
        Ok(HttpFetch { egress_client, limits, deadline, client, last_redirect })
    }

    async fn send_request(&self, url: &Url, known: Option<&SourceValidators>) -> Result<Response, SourceError> {
        self.egress_client.check_url_without_lookup(url)?;
        // The length and the progress refer to the file only without transfer compression. The file may be compressed.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let conditions = known.map(|known| [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)]);
        for (name, value) in conditions.into_iter().flatten() {
            if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
                request = request.header(name, value);
            }
        }
        let redirect = || self.last_redirect.lock();
        *redirect() = None;
        let response_deadline = Instant::now().checked_add(self.limits.response_timeout);
        let response = match [response_deadline, self.deadline].into_iter().flatten().min() {
            None => request.send().await,
            Some(deadline) => timeout_at(deadline, request.send())
                .await
                .map_err(|_| SourceError::Unreachable { reason: "timed out: the server did not respond".to_owned() })?,
        };
        // The HTTP client's error contains the first URL of the request. The URL after redirects replaces it.
        response.map_err(|error| match redirect().take() {
            Some(url) => fetch_error(error.with_url(url)),
            None => fetch_error(error),
        })
    }
}

/// Returns an error unless [`super::open_decoder`] can detect the content encodings by their first bytes.
fn check_content_encoding(headers: &HeaderMap) -> Result<(), SourceError> {
    const KNOWN_ENCODINGS: [&str; 5] = ["", "identity", "gzip", "x-gzip", "zstd"];
    let is_unknown = |encoding: &str| !KNOWN_ENCODINGS.iter().any(|known| encoding.eq_ignore_ascii_case(known));
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = String::from_utf8_lossy(value.as_bytes());
        if let Some(encoding) = value.split(',').map(str::trim).find(|encoding| is_unknown(encoding)) {
            let reason = format!("the server returned the content encoding {encoding:?}, which was not requested");
            return Err(SourceError::Unreachable { reason });
        }
    }
    Ok(())
}

fn header_text(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns the final URL without credentials and fragment, which must not appear in published entities.
fn final_public_url(response: &Response) -> String {
    let mut url = response.url().clone();
    // These calls fail only for URLs without a host, which http and https URLs have.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url.into()
}

/// Returns the validators for conditional requests. If the modification time equals the `Date` of the response, the
/// document might change once more within that second (RFC 9110, section 8.8.2.2). Then there are no validators, not
/// even the `ETag`, because servers such as nginx derive it from the time in seconds and the size.
fn response_validators(response: &Response) -> SourceValidators {
    let url = final_public_url(response);
    let modified = unique_header(response, LAST_MODIFIED);
    let modified_at = modified.as_deref().and_then(|text| httpdate::parse_http_date(text).ok());
    let sent_at = header_text(response, DATE).and_then(|text| httpdate::parse_http_date(&text).ok());
    let sent_at = sent_at.unwrap_or_else(SystemTime::now);
    if modified_at.is_some_and(|modified_at| modified_at >= sent_at) {
        return SourceValidators { url, ..SourceValidators::default() };
    }
    let etag = unique_header(response, ETAG).filter(|etag| is_entity_tag(etag));
    SourceValidators { url, etag, last_modified: modified.filter(|_| modified_at.is_some()) }
}

/// Returns the value of a validator header if it occurs exactly once and is short enough to store.
fn unique_header(response: &Response, name: HeaderName) -> Option<String> {
    let is_single = response.headers().get_all(&name).iter().count() == 1;
    header_text(response, name).filter(|value| is_single && value.len() <= MAX_VALIDATOR_BYTES)
}

/// Returns whether a string is an entity tag (RFC 9110, section 8.8.3). `*`, for example, would match any document.
fn is_entity_tag(text: &str) -> bool {
    let opaque = text.strip_prefix("W/").unwrap_or(text);
    let inner = opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte > b' ' && byte != b'"' && byte != 0x7f))
}

/// Whether a 304 response refers to `known`: the final URL matches and no validator differs (RFC 9111, section 4.3.4).
fn matches_validators(response: &Response, known: &SourceValidators) -> bool {
    let agrees = |name, known: &Option<String>| match (header_text(response, name), known) {
        (Some(new), Some(known)) => new.trim_start_matches("W/") == known.trim_start_matches("W/"),
        _ => true,
    };
    final_public_url(response) == known.url && agrees(ETAG, &known.etag) && agrees(LAST_MODIFIED, &known.last_modified)
}

fn last_path_segment(url: &Url) -> Option<String> {
    let segment = url.path_segments()?.next_back()?;
    let name = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    (!name.is_empty()).then(|| name.into_owned())
}

/// Describes a failed request by its chain of causes, without the URL, which might contain secrets.
fn fetch_error(error: reqwest::Error) -> SourceError {
    let is_redirect = error.is_redirect();
    let failure = describe_connection_failure(&error);
    let error = error.without_url();
    if let Some(forbidden) = iter_error_chain(&error).find_map(|cause| cause.downcast_ref::<EgressUrlError>()) {
        let reason = forbidden.to_string();
        let reason = if is_redirect { format!("it redirects to a URL that is not allowed: {reason}") } else { reason };
        return SourceError::UnusableUrl { reason };
    }
    let unresolved = iter_error_chain(&error).find_map(|cause| cause.downcast_ref::<NameResolutionError>());
    let texts = error_causes(&error).into_iter().map(|cause| match cause.downcast_ref::<SourceError>() {
        Some(SourceError::Unreachable { reason }) => reason.clone(),
        _ => cause.to_string(),
    });
    let reason = unresolved.map(ToString::to_string).or(failure).unwrap_or_else(|| join_errors(texts));
    SourceError::Unreachable { reason }
}

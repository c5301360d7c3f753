//! Fetches a source over http or https.
//!
//! A fetch waits for the head of the response. The body becomes a plain reader for the decoders. Time is bounded for
//! the connection, for the head, between two pieces, and in total. A truncated response is an error, never a shorter
//! document.
//!
//! [`crate::net`] decides whether an address may be contacted. Addresses in URLs are checked here, once for the given
//! URL and once for each redirect.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::{Client, Response, StatusCode, redirect};
use strata_types::causes::{chain, joined};
use strata_types::source::Validators;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::detect;
use super::error::SourceError;
use super::input::{FetchLimits, Fetched, Opened, Patience, Progress, SourceInput};
use crate::net::{AddressError, NameError, Outgoing, causes, connection_failure};

/// Longer validators are not kept, because they are sent with every request and stored in the catalog.
const VALIDATOR_BYTES_MAX: usize = 1024;

pub(super) async fn open(
    outgoing: &Outgoing,
    limits: &FetchLimits,
    url: &Url,
    known: Option<&Validators>,
) -> Result<Opened, SourceError> {
    let fetch = Fetch::new(outgoing, limits)?;
    let mut response = fetch.request(url, known).await?;
    let mut unchanged = known.filter(|_| response.status() == StatusCode::NOT_MODIFIED);
    if unchanged.is_some_and(|known| !confirms(&response, known)) {
        response = fetch.request(url, None).await?;
        unchanged = None;
    }
    if let Some(known) = unchanged {
        return Ok(Opened::NotModified(known.clone()));
    }
    check_status(response.status())?;
    check_encoding(response.headers())?;
    let content_type = header(&response, CONTENT_TYPE);
    let progress = Progress { total_bytes: response.content_length(), ..Progress::default() };
    let validators = validators(&response);
    // A redirect often leads to an opaque name. The requested name then says more.
    let name = [response.url(), url].into_iter().filter_map(last_segment).find(|name| detect::by_name(name).is_some());
    let patience = Patience { idle: limits.idle_timeout, until: fetch.until };
    let body = SourceInput::fetched(response.bytes_stream().map_err(unreachable).boxed(), patience);
    Ok(Opened::Document(Fetched { input: SourceInput { name, content_type, progress, ..body }, validators }))
}

/// Lets those pass that say that the whole document follows.
fn check_status(status: StatusCode) -> Result<(), SourceError> {
    let about = match status {
        // The request was not for a part, or for changes.
        StatusCode::PARTIAL_CONTENT | StatusCode::IM_USED => ", which contains only part of the document",
        // An empty version needs an empty document.
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => ", which contains no document",
        status if status.is_success() => return Ok(()),
        StatusCode::NOT_MODIFIED => " to an unconditional request",
        status if status.is_redirection() => " without an http or https URL to redirect to",
        _ => "",
    };
    Err(SourceError::Unreachable { reason: format!("the server returned {status}{about}") })
}

struct Fetch<'a> {
    outgoing: &'a Outgoing,
    limits: &'a FetchLimits,
    /// No byte is awaited after this moment.
    until: Option<Instant>,
    client: Client,
    /// The last redirect of the request.
    redirect: Arc<Mutex<Option<Url>>>,
}

impl<'a> Fetch<'a> {
    fn new(outgoing: &'a Outgoing, limits: &'a FetchLimits) -> Result<Fetch<'a>, SourceError> {
        let max_redirects = limits.redirects_max;
        let redirect = Arc::<Mutex<Option<Url>>>::default();
        let policy = {
            let outgoing = outgoing.clone();
            let redirect = redirect.clone();
            redirect::Policy::custom(move |attempt| {
                if attempt.previous().len() > max_redirects {
                    let reason = format!("more than {max_redirects} redirects");
                    return attempt.error(SourceError::Unreachable { reason });
                }
                match outgoing.check_literal(attempt.url()) {
                    Ok(()) => {
                        *redirect.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt.url().clone());
                        attempt.follow()
                    }
                    Err(error) => attempt.error(error),
                }
            })
        };
        let client = outgoing.client().connect_timeout(limits.connect_timeout).redirect(policy);
        let until = Instant::now().checked_add(limits.total_timeout);
        Ok(Fetch { outgoing, limits, until, client: client.build().map_err(unreachable)?, redirect })
    }

    /// One request and its redirects, up to the head of the answer.
    async fn request(&self, url: &Url, known: Option<&Validators>) -> Result<Response, SourceError> {
        self.outgoing.check_literal(url)?;
        // So the length and the progress are those of the file. The file itself may be compressed.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let conditions = known.map(|known| [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)]);
        for (name, value) in conditions.into_iter().flatten() {
            if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
                request = request.header(name, value);
            }
        }
        let redirect = || self.redirect.lock().unwrap_or_else(PoisonError::into_inner);
        *redirect() = None;
        let answer = Instant::now().checked_add(self.limits.answer_timeout);
        let sent = match [answer, self.until].into_iter().flatten().min() {
            None => request.send().await,
            Some(until) => timeout_at(until, request.send())
                .await
                .map_err(|_| SourceError::Unreachable { reason: "timed out: the server did not respond".to_owned() })?,
        };
        // The error's own URL is the first one.
        sent.map_err(|error| match redirect().take() {
            Some(url) => unreachable(error.with_url(url)),
            None => unreachable(error),
        })
    }
}

/// Lets those encodings pass that [`super::open`] recognises by their first bytes.
fn check_encoding(headers: &HeaderMap) -> Result<(), SourceError> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = String::from_utf8_lossy(value.as_bytes());
        for encoding in value.split(',').map(str::trim) {
            let is_known =
                ["", "identity", "gzip", "x-gzip", "zstd"].iter().any(|known| encoding.eq_ignore_ascii_case(known));
            if !is_known {
                return Err(SourceError::Unreachable {
                    reason: format!("the server returned the content encoding {encoding:?}, which was not requested"),
                });
            }
        }
    }
    Ok(())
}

fn header(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The URL that answered, without the parts that only the server needs and that must not be in published entities.
fn public_url(response: &Response) -> String {
    let mut url = response.url().clone();
    // Neither call fails for a URL with a host, which http requires.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url.into()
}

/// The validators with which later requests can ask whether the document has changed.
///
/// A document can change once more and keep its modification time if that second has not ended by the server's clock
/// (RFC 9110, section 8.8.2.2). It then has no validators: servers such as nginx derive the `ETag` from the time in
/// seconds and the size. A modification time that is not an HTTP date cannot be compared, so it is none.
fn validators(response: &Response) -> Validators {
    let url = public_url(response);
    let modified = single_header(response, LAST_MODIFIED);
    let modified_at = modified.as_deref().and_then(|text| httpdate::parse_http_date(text).ok());
    let sent_at = header(response, DATE).and_then(|text| httpdate::parse_http_date(&text).ok());
    let sent_at = sent_at.unwrap_or_else(SystemTime::now);
    if modified_at.is_some_and(|modified_at| modified_at >= sent_at) {
        return Validators { url, ..Validators::default() };
    }
    let etag = single_header(response, ETAG).filter(|etag| is_entity_tag(etag));
    Validators { url, etag, last_modified: modified.filter(|_| modified_at.is_some()) }
}

/// The value of a header that the response has once and that is not too long to store.
fn single_header(response: &Response, name: HeaderName) -> Option<String> {
    let is_single = response.headers().get_all(&name).iter().count() == 1;
    header(response, name).filter(|value| is_single && value.len() <= VALIDATOR_BYTES_MAX)
}

/// Whether a text is an entity tag (RFC 9110, section 8.8.3). `*`, for example, would match any document.
fn is_entity_tag(text: &str) -> bool {
    let opaque = text.strip_prefix("W/").unwrap_or(text);
    let inner = opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte > b' ' && byte != b'"' && byte != 0x7f))
}

/// Whether a 304 is about the document with these validators: from the same host, although a redirect can have changed,
/// and without other validators (RFC 9111, section 4.3.4).
fn confirms(response: &Response, known: &Validators) -> bool {
    let agrees = |name, known: &Option<String>| match (header(response, name), known) {
        (Some(new), Some(known)) => new.trim_start_matches("W/") == known.trim_start_matches("W/"),
        _ => true,
    };
    public_url(response) == known.url && agrees(ETAG, &known.etag) && agrees(LAST_MODIFIED, &known.last_modified)
}

fn last_segment(url: &Url) -> Option<String> {
    let segment = url.path_segments()?.next_back()?;
    let name = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    (!name.is_empty()).then(|| name.into_owned())
}

/// Says what happened by the chain of causes, without the URL, which may hold secrets.
fn unreachable(error: reqwest::Error) -> SourceError {
    let is_redirect = error.is_redirect();
    let failure = connection_failure(&error);
    let error = error.without_url();
    if let Some(refused) = chain(&error).find_map(|cause| cause.downcast_ref::<AddressError>()) {
        let reason = refused.to_string();
        let reason = if is_redirect { format!("it redirects to a URL that is not allowed: {reason}") } else { reason };
        return SourceError::BadAddress { reason };
    }
    if let Some(name) = chain(&error).find_map(|cause| cause.downcast_ref::<NameError>()) {
        return SourceError::Unreachable { reason: name.to_string() };
    }
    if let Some(reason) = failure {
        return SourceError::Unreachable { reason };
    }
    let texts = causes(&error).into_iter().map(|cause| match cause.downcast_ref::<SourceError>() {
        Some(SourceError::Unreachable { reason }) => reason.clone(),
        _ => cause.to_string(),
    });
    SourceError::Unreachable { reason: joined(texts) }
}

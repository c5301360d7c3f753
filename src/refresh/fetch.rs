//! Fetches a source over http or https.
//!
//! The answer's head is awaited; its body becomes a plain reader for the decoders, which run on a
//! blocking thread and pull one chunk after the other, so that a slow decoder slows the sender and
//! nothing piles up. Time is bounded for connecting and for everything together, redirects are bounded,
//! and an answer that breaks off is an error, never a shorter document.
//!
//! Whether an address may be contacted at all is asked in one place, `check_hop`, once for the given
//! URL and once for each redirect.

use std::error::Error;
use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use reqwest::{Client, Response, redirect};
use tokio::runtime::Handle;
use url::Url;

use super::detect;
use super::error::{SourceError, into_io};
use super::input::SourceInput;

/// The bounds of one fetch.
#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// For the connection, TLS included.
    pub connect_timeout: Duration,
    /// For everything, from the first connection to the body's last byte.
    pub total_timeout: Duration,
    /// How many redirects are followed.
    pub redirects_max: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(10), total_timeout: Duration::from_secs(3600), redirects_max: 5 }
    }
}

/// An answer whose body has not been read yet.
pub struct Fetched {
    /// The body, with the name, type and length that detection and progress use. It must be read on a
    /// thread that may block.
    pub input: SourceInput,
    /// Where the answer came from, after redirects, without user name, password and fragment: the
    /// `_source` of entities that have none.
    pub final_url: String,
    /// The answer's `ETag`.
    pub etag: Option<String>,
    /// The answer's `Last-Modified`.
    pub last_modified: Option<String>,
}

/// Asks `url` for its document and waits for the head of the answer.
///
/// # Errors
/// [`SourceError::BadAddress`] for what is not an http or https URL, [`SourceError::Unreachable`] when
/// no answer with a 2xx status comes in time. The body's reader fails with `Unreachable` too when the
/// body breaks off.
pub async fn open_url(url: &str, limits: &FetchLimits) -> Result<Fetched, SourceError> {
    let url = Url::parse(url).map_err(|error| SourceError::BadAddress { reason: error.to_string() })?;
    check_hop(&url)?;
    let redirects_max = limits.redirects_max;
    let follow = redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > redirects_max {
            return attempt.error(SourceError::Unreachable { reason: format!("more than {redirects_max} redirects") });
        }
        match check_hop(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    });
    let client = Client::builder()
        .connect_timeout(limits.connect_timeout)
        .timeout(limits.total_timeout)
        .redirect(follow)
        .referer(false)
        .user_agent(concat!("strata/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(unreachable)?;
    let response = client
        .get(url.clone())
        // A length and progress that mean something; compression is up to the file itself.
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        .send()
        .await
        .map_err(unreachable)?;
    if !response.status().is_success() {
        return Err(SourceError::Unreachable { reason: format!("the server answered {}", response.status()) });
    }
    check_encoding(response.headers())?;
    Ok(fetched(&url, response))
}

/// Refuses an address that must not be contacted. Only the scheme is looked at: which networks may be
/// reached has to be decided when names are resolved, in the client's resolver.
fn check_hop(url: &Url) -> Result<(), SourceError> {
    if matches!(url.scheme(), "http" | "https") {
        return Ok(());
    }
    Err(SourceError::BadAddress { reason: format!("{}: is neither http: nor https:", url.scheme()) })
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
                    reason: format!(
                        "the server answered with the content encoding {encoding:?}, which was not asked for"
                    ),
                });
            }
        }
    }
    Ok(())
}

fn fetched(asked_url: &Url, response: Response) -> Fetched {
    let text = |name: HeaderName| {
        let value = response.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let (content_type, etag, last_modified) = (text(CONTENT_TYPE), text(ETAG), text(LAST_MODIFIED));
    let total_bytes = response.content_length();
    let mut final_url = response.url().clone();
    // What these hold is for the server alone and must not end up in published entities. Neither call
    // fails for a URL with a host, which http requires.
    let _ = final_url.set_username("");
    let _ = final_url.set_password(None);
    final_url.set_fragment(None);
    // A redirect often leads to an opaque name; then the one that was asked for says more.
    let name =
        [&final_url, asked_url].into_iter().filter_map(last_segment).find(|name| detect::by_name(name).is_some());

    let mut input = SourceInput::stream(BodyReader { runtime: Handle::current(), response, chunk: Bytes::new() });
    if let Some(name) = name {
        input = input.with_name(name);
    }
    if let Some(content_type) = content_type {
        input = input.with_content_type(content_type);
    }
    if let Some(total_bytes) = total_bytes {
        input = input.with_total_bytes(total_bytes);
    }
    Fetched { input, final_url: final_url.into(), etag, last_modified }
}

fn last_segment(url: &Url) -> Option<String> {
    let segment = url.path_segments()?.next_back()?;
    let name = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    (!name.is_empty()).then(|| name.into_owned())
}

/// The body as a blocking reader.
struct BodyReader {
    runtime: Handle,
    response: Response,
    chunk: Bytes,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.runtime.block_on(self.response.chunk()) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => return Ok(0),
                Err(error) => return Err(into_io(unreachable(error))),
            }
        }
        let count = self.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

/// Says what happened by the chain of causes, without the URL, which may hold secrets.
fn unreachable(error: reqwest::Error) -> SourceError {
    let error = error.without_url();
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<SourceError>() {
            Some(SourceError::BadAddress { reason }) => {
                return SourceError::BadAddress { reason: format!("it redirects to another one: {reason}") };
            }
            Some(SourceError::Unreachable { reason }) => causes.push(reason.clone()),
            _ => causes.push(inner.to_string()),
        }
        cause = inner.source();
    }
    causes.dedup();
    SourceError::Unreachable { reason: causes.join(": ") }
}

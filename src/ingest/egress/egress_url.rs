//! The URLs to which strata may send requests.

use strata_types::limits;
use url::Url;

/// The reason why a URL is rejected. The messages contain neither credentials nor the query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressUrlError {
    #[error("it is not a URL: {reason}; valid: an http or https URL, such as https://example.org/data.json")]
    InvalidUrl { reason: String },
    #[error("the scheme {scheme}: is not supported; valid: http: and https:")]
    UnsupportedScheme { scheme: String },
    /// The host is a forbidden address, or a name that resolves only to forbidden addresses.
    #[error("{host} {verb} {kind}; valid: public addresses, or addresses that the operator allows with net.allow")]
    ForbiddenAddress { host: String, verb: &'static str, kind: &'static str },
}

/// What happens to the query string of a URL that clients can see. Query strings often contain keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlQuery {
    Keep,
    Remove,
}

impl UrlQuery {
    /// Converts a value of the setting `publish_query`: if true, clients see the query strings of source URLs.
    pub fn from_publish_query(publish_query: bool) -> UrlQuery {
        if publish_query { UrlQuery::Keep } else { UrlQuery::Remove }
    }
}

/// Parses an HTTP or HTTPS URL, and normalizes unusual spellings of addresses, such as `0x7f.1` or `2130706433`.
pub fn parse_http_url(text: &str) -> Result<Url, EgressUrlError> {
    let not_url = |reason: &str| EgressUrlError::InvalidUrl { reason: reason.to_owned() };
    if text.len() > limits::MAX_URL_BYTES {
        return Err(not_url("it is longer than 8 KiB"));
    }
    let url = Url::parse(text).map_err(|error| not_url(&error.to_string()))?;
    check_scheme(&url)?;
    if !url.has_host() {
        return Err(not_url("it has no host"));
    }
    Ok(url)
}

/// Removes the credentials of a URL. Text that is not a URL, such as `push`, is unchanged.
pub fn strip_credentials(text: &str, query: UrlQuery) -> String {
    let Ok(mut url) = Url::parse(text) else {
        // If a URL is invalid, only its scheme is returned, because every other part might contain secrets.
        return text.split_once("://").map_or(text, |(scheme, _)| scheme).to_owned();
    };
    let removes_query = query == UrlQuery::Remove && url.query().is_some();
    if url.username().is_empty() && url.password().is_none() && !removes_query {
        return text.to_owned();
    }
    // `set_username` and `set_password` fail only for a URL without a host, which has no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if removes_query {
        url.set_query(None);
    }
    url.into()
}

pub(super) fn check_scheme(url: &Url) -> Result<(), EgressUrlError> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        scheme => Err(EgressUrlError::UnsupportedScheme { scheme: scheme.to_owned() }),
    }
}

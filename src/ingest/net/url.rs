//! URLs to which requests may be sent.

use strata_types::limits;
use url::Url;

/// A URL to which no request may be sent. The texts show neither user name, password nor query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("it is not a URL: {reason}; valid: an http or https URL, such as https://example.org/data.json")]
    NotUrl { reason: String },
    #[error("the scheme {scheme}: is not supported; valid: http: and https:")]
    Scheme { scheme: String },
    /// Its host is an address, or a name that resolves only to addresses, that must not be contacted.
    #[error("{host} {verb} {kind}; valid: public addresses, or addresses that the operator allows with net.allow")]
    Refused {
        /// The host, as the URL's parser understood it.
        host: String,
        verb: &'static str,
        kind: &'static str,
    },
}

/// Parses the URL of a source or a webhook: http or https, with a host. Spellings of addresses that only some programs
/// understand (`0x7f.1`, `2130706433`, a final dot, full-width digits) become the intended address.
pub fn parse_http_url(text: &str) -> Result<Url, AddressError> {
    let not_url = |reason: &str| AddressError::NotUrl { reason: reason.to_owned() };
    if text.len() > limits::URL_BYTES {
        return Err(not_url("it is longer than 8 KiB"));
    }
    let url = Url::parse(text).map_err(|error| not_url(&error.to_string()))?;
    check_scheme(&url)?;
    if !url.has_host() {
        return Err(not_url("it has no host"));
    }
    Ok(url)
}

/// The URL without user name and password, and without its query unless that is to be kept: keys often stand there. As
/// it is written where it has none of them. What is no URL, such as `push`, stays.
pub fn without_credentials(text: &str, keeps_query: bool) -> String {
    let Ok(mut url) = Url::parse(text) else {
        // Its parts cannot be told apart.
        return text.split_once("://").map_or(text, |(scheme, _)| scheme).to_owned();
    };
    let has_query = !keeps_query && url.query().is_some();
    if url.username().is_empty() && url.password().is_none() && !has_query {
        return text.to_owned();
    }
    // Fails for a URL without a host, which has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if has_query {
        url.set_query(None);
    }
    url.into()
}

pub(super) fn check_scheme(url: &Url) -> Result<(), AddressError> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        scheme => Err(AddressError::Scheme { scheme: scheme.to_owned() }),
    }
}

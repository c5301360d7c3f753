//! URLs to which requests may be sent.

use std::net::IpAddr;

use url::{Host, Url};

use super::address::{AddressPolicy, RefusedAddress};
use crate::model::limits;

/// The longest URL that is taken.
const URL_BYTES_MAX: usize = limits::URL_BYTES;

/// A URL to which no request may be sent. The texts show neither user name, password nor query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not a URL, or not a complete one.
    #[error("it is not a URL: {reason}; valid: an http or https URL, such as https://example.org/data.json")]
    NotUrl {
        /// The parser's message.
        reason: String,
    },
    /// It has another scheme.
    #[error("the scheme {scheme}: is not valid; valid: http: and https:")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// Its host is an address, or a name that resolves only to addresses, that must not be contacted.
    #[error("{host} {verb} {kind}; valid: public addresses, and networks that the operator lists in net.allow")]
    Refused {
        /// The host, as the URL's parser understood it.
        host: String,
        /// `is` or `resolves to`.
        verb: &'static str,
        /// The kind of address, with its article.
        kind: &'static str,
    },
}

/// Parses the URL of a source or a webhook: http or https, with a host. Spellings of addresses that only some programs
/// understand (`0x7f.1`, `2130706433`, a final dot, full-width digits) become the intended address.
///
/// # Errors
/// [`AddressError::NotUrl`] and [`AddressError::Scheme`].
pub fn parse_http_url(text: &str) -> Result<Url, AddressError> {
    let not_url = |reason: &str| AddressError::NotUrl { reason: reason.to_owned() };
    if text.len() > URL_BYTES_MAX {
        return Err(not_url("it is longer than 8 KiB"));
    }
    let url = Url::parse(text).map_err(|error| not_url(&error.to_string()))?;
    check_scheme(&url)?;
    if !url.has_host() {
        return Err(not_url("it has no host"));
    }
    Ok(url)
}

pub(super) fn check_scheme(url: &Url) -> Result<(), AddressError> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        scheme => Err(AddressError::Scheme { scheme: scheme.to_owned() }),
    }
}

/// Refuses a URL whose host is written as an address that must not be contacted; names pass.
pub(super) fn check_literal(policy: &AddressPolicy, url: &Url) -> Result<(), AddressError> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    policy.check(address).map_err(|RefusedAddress { kind }| AddressError::Refused {
        host: url.host_str().unwrap_or_default().to_owned(),
        verb: "is",
        kind,
    })
}

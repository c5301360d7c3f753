//! Parses the `Authorization` header. The services check the credentials.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use strata_service::AuthorizationHeader;

/// Parses the `Authorization` header. An empty token, a value that is not visible ASCII, and a repeated header return
/// [`AuthorizationHeader::Other`].
pub(crate) fn parse_authorization(headers: &HeaderMap) -> AuthorizationHeader<'_> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return AuthorizationHeader::None;
    };
    if values.next().is_some() {
        return AuthorizationHeader::Other;
    }
    let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return AuthorizationHeader::Other;
    };
    let token = token.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        AuthorizationHeader::Bearer(token)
    } else {
        AuthorizationHeader::Other
    }
}

//! Parses the `Authorization` header of a request. `service` checks the key.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use strata_service::Authorization;

/// An empty token, a value that is not visible ASCII, and a repeated header are [`Authorization::Other`].
pub(crate) fn authorization(headers: &HeaderMap) -> Authorization<'_> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Authorization::None;
    };
    if values.next().is_some() {
        return Authorization::Other;
    }
    let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return Authorization::Other;
    };
    let token = token.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Authorization::Bearer(token)
    } else {
        Authorization::Other
    }
}

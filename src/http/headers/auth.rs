//! Parses the `Authorization` header of a request. `service` checks the key.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use crate::service::Authorization;

/// Reads the header: the scheme `Bearer` in any case and a token, or anything else.
///
/// An empty token, a value that is not visible ASCII, and a header given twice are "anything else".
pub(in crate::http) fn authorization(headers: &HeaderMap) -> Authorization<'_> {
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[derive(Debug, PartialEq)]
    enum Is<'a> {
        None,
        Bearer(&'a str),
        Other,
    }

    #[track_caller]
    fn check(values: &[&[u8]], expected: Is<'_>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).expect("a header value"));
        }
        let found = match authorization(&headers) {
            Authorization::None => Is::None,
            Authorization::Bearer(token) => Is::Bearer(token),
            Authorization::Other => Is::Other,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn only_one_bearer_token_is_one() {
        check(&[], Is::None);
        check(&[b"Bearer k3y"], Is::Bearer("k3y"));
        check(&[b"bEARER   k3y"], Is::Bearer("k3y"));
        check(&[b"Bearer two words"], Is::Bearer("two words"));
        check(&[b"Bearer"], Is::Other);
        check(&[b"Bearer "], Is::Other);
        check(&[b""], Is::Other);
        check(&[b"Basic k3y"], Is::Other);
        check(&[b"Bearerk3y"], Is::Other);
        check(&[b"Bearer k\xffy"], Is::Other);
        check(&[b"Bearer k3y", b"Bearer k3y"], Is::Other);
    }
}

//! Parses the `Authorization` header of a request. `service` checks the key.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use strata_service::Authorization;

/// Reads the header. An empty token, a value that is not visible ASCII, and a header given twice are
/// [`Authorization::Other`].
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_one_bearer_token_is_one() {
        let cases: [(&[&[u8]], Authorization<'_>); 11] = [
            (&[], Authorization::None),
            (&[b"Bearer k3y"], Authorization::Bearer("k3y")),
            (&[b"bEARER   k3y"], Authorization::Bearer("k3y")),
            (&[b"Bearer two words"], Authorization::Bearer("two words")),
            (&[b"Bearer"], Authorization::Other),
            (&[b"Bearer "], Authorization::Other),
            (&[b""], Authorization::Other),
            (&[b"Basic k3y"], Authorization::Other),
            (&[b"Bearerk3y"], Authorization::Other),
            (&[b"Bearer k\xffy"], Authorization::Other),
            (&[b"Bearer k3y", b"Bearer k3y"], Authorization::Other),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).expect("a header value"));
            }
            assert_eq!(authorization(&headers), expected);
        }
    }
}

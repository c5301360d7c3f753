//! `Accept-Encoding`: negotiates the content coding of a body (RFC 9110, section 12.5.3).

use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, GetAll, VARY};
use axum::http::{HeaderMap, HeaderValue};
use strata_encode::ContentCoding;

/// The order of content codings with equal client weights: the best ratio of size to CPU time comes first.
const PREFERRED_CODINGS: [ContentCoding; 3] = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];

type QualityWeight = u16;

/// Returns the coding with the highest weight. `*` sets the weight of each coding that the client does not name. The
/// result is `Identity` if the client names it with the highest weight, or accepts no other coding. A client that also
/// rejects `Identity` gets it anyway, and can discard the response itself.
pub fn negotiate(headers: &HeaderMap) -> ContentCoding {
    let mut named: [Option<QualityWeight>; ContentCoding::ALL.len()] = Default::default();
    let mut wildcard = None;
    for (name, quality) in weighted_items(headers.get_all(ACCEPT_ENCODING)) {
        let weight = match parse_coding(name) {
            Some(coding) => &mut named[coding as usize],
            None if name == "*" => &mut wildcard,
            None => continue,
        };
        weight.get_or_insert(quality);
    }
    // `Identity` is acceptable even if it is not named, but any other acceptable coding is preferred.
    let identity = named[ContentCoding::Identity as usize].unwrap_or(0);
    let weighted = PREFERRED_CODINGS.map(|coding| (coding, named[coding as usize].or(wildcard).unwrap_or(0)));
    let mut best = (ContentCoding::Identity, 0);
    for (coding, quality) in weighted {
        if quality > best.1 {
            best = (coding, quality);
        }
    }
    if identity > best.1 { ContentCoding::Identity } else { best.0 }
}

pub fn set_encoding_headers(coding: ContentCoding, headers: &mut HeaderMap) {
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
}

/// The names and weights of the list items in all lines of a header, without malformed items.
pub(crate) fn weighted_items(lines: GetAll<'_, HeaderValue>) -> impl Iterator<Item = (&str, QualityWeight)> {
    // A line of `Accept-Encoding` that is not ASCII cannot contain a valid item.
    lines.into_iter().flat_map(|line| line.to_str().unwrap_or_default().split(',')).filter_map(parse_weighted_item)
}

fn parse_coding(name: &str) -> Option<ContentCoding> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // `x-gzip` is the old name of gzip (RFC 9110, section 8.4.1.3).
    if is("x-gzip") {
        return Some(ContentCoding::Gzip);
    }
    ContentCoding::ALL.into_iter().find(|coding| is(coding.name()))
}

fn parse_weighted_item(item: &str) -> Option<(&str, QualityWeight)> {
    let mut parts = item.split(';').map(|part| part.trim_matches([' ', '\t']));
    let name = parts.next().filter(|name| !name.is_empty())?;
    let quality = match parts.next() {
        None => 1_000,
        Some(weight) => parse_quality(weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q="))?)?,
    };
    parts.next().is_none().then_some((name, quality))
}

/// Parses `0` or `1` with up to three decimals, as thousandths.
fn parse_quality(text: &str) -> Option<QualityWeight> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse::<QualityWeight>().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}

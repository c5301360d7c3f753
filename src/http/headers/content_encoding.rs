//! `Accept-Encoding`: which coding of a body the client wants most (RFC 9110, section 12.5.3).

use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, GetAll, VARY};
use axum::http::{HeaderMap, HeaderValue};
use strata_encode::ContentCoding;

/// Among codings that a client likes equally, the cheapest to make for its size comes first.
const PREFERRED: [ContentCoding; 3] = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];

type Quality = u16;

/// The coding to answer with: that of the highest weight among those that the client names, or covers with `*`. The
/// plain form only if it is weighted higher by name, or nothing else is wanted. If all is refused, too: an answer
/// that the client can refuse itself is better than none.
pub fn negotiate(headers: &HeaderMap) -> ContentCoding {
    let mut named: [Option<Quality>; ContentCoding::ALL.len()] = Default::default();
    let mut any = None;
    for (name, quality) in weighted_items(headers.get_all(ACCEPT_ENCODING)) {
        let weight = match coding_of(name) {
            Some(coding) => &mut named[coding as usize],
            None if name == "*" => &mut any,
            None => continue,
        };
        weight.get_or_insert(quality);
    }
    // Named by nobody, the plain form is acceptable, but whatever is asked for comes before it.
    let plain = named[ContentCoding::Identity as usize].unwrap_or(0);
    let weighted = PREFERRED.map(|coding| (coding, named[coding as usize].or(any).unwrap_or(0)));
    let mut best = (ContentCoding::Identity, 0);
    for (coding, quality) in weighted {
        if quality > best.1 {
            best = (coding, quality);
        }
    }
    if plain > best.1 { ContentCoding::Identity } else { best.0 }
}

/// Adds the headers of a body in this coding, for which `Accept-Encoding` was negotiated.
pub fn describe(coding: ContentCoding, headers: &mut HeaderMap) {
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
}

/// The names and weights that the lines of a header list; items that break the grammar are left out.
pub(crate) fn weighted_items(lines: GetAll<'_, HeaderValue>) -> impl Iterator<Item = (&str, Quality)> {
    // A line that is not text holds nothing that could be meant.
    lines.into_iter().flat_map(|line| line.to_str().unwrap_or_default().split(',')).filter_map(item_of)
}

fn coding_of(name: &str) -> Option<ContentCoding> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // The old name of gzip (RFC 9110, section 8.4.1.3).
    if is("x-gzip") {
        return Some(ContentCoding::Gzip);
    }
    ContentCoding::ALL.into_iter().find(|coding| is(coding.name()))
}

/// The name and the weight of one item of the list; `None` if it is neither a name nor one with a weight.
fn item_of(item: &str) -> Option<(&str, Quality)> {
    let mut parts = item.split(';').map(|part| part.trim_matches([' ', '\t']));
    let name = parts.next().filter(|name| !name.is_empty())?;
    let quality = match parts.next() {
        None => 1_000,
        Some(weight) => quality_of(weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q="))?)?,
    };
    parts.next().is_none().then_some((name, quality))
}

/// `0` or `1`, with up to three decimals, as thousandths.
fn quality_of(text: &str) -> Option<Quality> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse::<Quality>().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn negotiated(lines: &[&str]) -> ContentCoding {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).expect("a header"));
        }
        negotiate(&headers)
    }

    #[test]
    fn the_coding_that_the_client_likes_most_is_taken() {
        use ContentCoding::{Brotli, Gzip, Identity, Zstd};
        for (expected, lines) in [
            (Identity, "|identity"),
            (Gzip, "gzip|x-gzip|GZip|X-GZIP;Q=0.5"),
            (Brotli, "br"),
            (Zstd, "zstd|*"),
            // What browsers and command-line clients send.
            (Zstd, "gzip, deflate, br, zstd"),
            (Brotli, "gzip, deflate, br"),
            (Gzip, "deflate, gzip|gzip;q=1.0, identity; q=0.5, *;q=0"),
            // Weights.
            (Gzip, "gzip;q=1, br;q=0.9, zstd;q=0.8|zstd;q=0, gzip|*;q=0.1, gzip;q=0.2"),
            (Brotli, "gzip;q=0.001, br;q=0.002|zstd;q=0, *"),
            (Zstd, "gzip;q=0.5,br;q=0.50,zstd;q=0.500|gzip;q=0.2, *;q=0.3, br;q=0"),
            (Identity, "zstd;q=0.0, br;q=0.000, gzip;q=0|*;q=0"),
            // The plain form.
            (
                Identity,
                "identity;q=0.5, gzip;q=0.4|identity, gzip;q=0.9|identity;q=0|identity;q=0, *;q=0|identity, *;q=0",
            ),
            (Gzip, "identity;q=0.5, gzip;q=0.5|identity, gzip|identity;q=0, gzip"),
            // White space and empty items.
            (Brotli, " gzip ; q=0.5 ,\tbr ;\tq=0.6, ,"),
            (Gzip, ",,gzip,,"),
            // What breaks the grammar is ignored.
            (Brotli, "gzip;q=2, br;q=0.1|gzip;q=1.001, br;q=0.1|gzip;q=0.1234, br;q=0.1|gzip;q=-1, br;q=0.1"),
            (Brotli, "gzip;q=, br;q=0.1|gzip;q, br;q=0.1|gzip;level=9, br;q=0.1|gzip;q=1;q=1, br;q=0.1"),
            (Identity, "gzip br"),
            (Brotli, "gzip;q=0.3, gzip;q=0.9, br;q=0.5"),
        ] {
            for line in lines.split('|') {
                assert_eq!(negotiated(&[line]), expected, "{line}");
            }
        }
        assert_eq!(negotiated(&[]), Identity);
        // Several lines are one list.
        assert_eq!(negotiated(&["gzip;q=0.5", "br;q=0.6"]), Brotli);
        assert_eq!(negotiated(&["gzip", "zstd;q=0"]), Gzip);
    }

    #[test]
    fn a_line_that_is_not_text_is_ignored() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, HeaderValue::from_bytes(b"br\xff").expect("a header"));
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(negotiate(&headers), ContentCoding::Gzip);
    }

    /// As the RFC reads, one coding at a time.
    fn naive(items: &[(String, Option<u16>)]) -> ContentCoding {
        let weight = |coding: ContentCoding| {
            let named = |names: &[&str]| {
                let item = items.iter().find(|(name, _)| names.contains(&&*name.to_lowercase()));
                item.map(|(_, quality)| quality.unwrap_or(1_000))
            };
            match coding {
                ContentCoding::Identity => named(&["identity"]).unwrap_or(0),
                ContentCoding::Gzip => named(&["gzip", "x-gzip"]).or(named(&["*"])).unwrap_or(0),
                other => named(&[other.name()]).or(named(&["*"])).unwrap_or(0),
            }
        };
        let mut order = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip, ContentCoding::Identity];
        order.sort_by_key(|coding| std::cmp::Reverse(weight(*coding)));
        if weight(order[0]) == 0 { ContentCoding::Identity } else { order[0] }
    }

    proptest! {
        #[test]
        fn negotiation_is_as_the_rfc_reads(
            items in prop::collection::vec(
                (
                    prop::sample::select(vec![
                        "gzip", "x-gzip", "GZIP", "br", "Br", "zstd", "ZSTD", "identity", "Identity", "*", "deflate", "x",
                    ]),
                    prop::option::of(prop::sample::select(vec![0_u16, 1, 10, 100, 500, 999, 1_000])),
                ),
                0..8,
            ),
            cut in 0..8_usize,
        ) {
            let items: Vec<(String, Option<u16>)> =
                items.into_iter().map(|(name, quality)| (name.to_owned(), quality)).collect();
            let written = |(name, quality): &(String, Option<u16>)| match quality {
                None => name.clone(),
                Some(quality) => format!("{name};q={}.{:03}", quality / 1_000, quality % 1_000),
            };
            let (first, second) = items.split_at(cut.min(items.len()));
            let lines = [first, second].map(|items| items.iter().map(written).collect::<Vec<_>>().join(", "));
            prop_assert_eq!(negotiated(&[&lines[0], &lines[1]]), naive(&items));
        }

        #[test]
        fn nothing_that_is_sent_can_make_it_fail(line in "[ -~\t]{0,60}") {
            negotiated(&[&line]);
        }
    }
}

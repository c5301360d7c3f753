//! `Accept-Encoding`: the coding that a client gets.

use axum::http::header::ACCEPT_ENCODING;
use axum::http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use strata_encode::ContentCoding;
use strata_http::headers::content_encoding::negotiate;

fn negotiated(lines: &[&str]) -> ContentCoding {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).expect("invalid header"));
    }
    negotiate(&headers)
}

#[test]
fn negotiate_selects_highest_weight() {
    use ContentCoding::{Brotli, Gzip, Identity, Zstd};
    for (expected, lines) in [
        (Identity, "|identity"),
        (Gzip, "gzip|x-gzip|GZip|X-GZIP;Q=0.5"),
        (Brotli, "br"),
        (Zstd, "zstd|*"),
        // Headers of browsers and command-line clients.
        (Zstd, "gzip, deflate, br, zstd"),
        (Brotli, "gzip, deflate, br"),
        (Gzip, "deflate, gzip|gzip;q=1.0, identity; q=0.5, *;q=0"),
        // Weights.
        (Gzip, "gzip;q=1, br;q=0.9, zstd;q=0.8|zstd;q=0, gzip|*;q=0.1, gzip;q=0.2"),
        (Brotli, "gzip;q=0.001, br;q=0.002|zstd;q=0, *"),
        (Zstd, "gzip;q=0.5,br;q=0.50,zstd;q=0.500|gzip;q=0.2, *;q=0.3, br;q=0"),
        (Identity, "zstd;q=0.0, br;q=0.000, gzip;q=0|*;q=0"),
        // Identity.
        (Identity, "identity;q=0.5, gzip;q=0.4|identity, gzip;q=0.9|identity;q=0|identity;q=0, *;q=0|identity, *;q=0"),
        (Gzip, "identity;q=0.5, gzip;q=0.5|identity, gzip|identity;q=0, gzip"),
        // White space and empty items.
        (Brotli, " gzip ; q=0.5 ,\tbr ;\tq=0.6, ,"),
        (Gzip, ",,gzip,,"),
        // Invalid items are ignored.
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
fn negotiate_ignores_non_ascii_lines() {
    let mut headers = HeaderMap::new();
    headers.append(ACCEPT_ENCODING, HeaderValue::from_bytes(b"br\xff").expect("invalid header"));
    headers.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    assert_eq!(negotiate(&headers), ContentCoding::Gzip);
}

/// A naive reference: one coding at a time, as in the RFC.
fn naive(items: &[(String, Option<u16>)]) -> ContentCoding {
    let weight = |coding: ContentCoding| {
        let item_weight = |names: &[&str]| {
            let item = items.iter().find(|(name, _)| names.contains(&&*name.to_lowercase()));
            item.map(|(_, quality)| quality.unwrap_or(1_000))
        };
        match coding {
            ContentCoding::Identity => item_weight(&["identity"]).unwrap_or(0),
            ContentCoding::Gzip => item_weight(&["gzip", "x-gzip"]).or(item_weight(&["*"])).unwrap_or(0),
            other => item_weight(&[other.name()]).or(item_weight(&["*"])).unwrap_or(0),
        }
    };
    let mut order = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip, ContentCoding::Identity];
    order.sort_by_key(|coding| std::cmp::Reverse(weight(*coding)));
    if weight(order[0]) == 0 { ContentCoding::Identity } else { order[0] }
}

proptest! {
    #[test]
    fn negotiate_matches_naive_reference(
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
    fn negotiate_never_panics(line in "[ -~\t]{0,60}") {
        negotiated(&[&line]);
    }
}

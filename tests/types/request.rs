//! Canonical requests, and counts.

use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest, ResponseFormat};

/// Returns a request with range filters on one path, all with the same value.
fn ranged(bounds: &[RangeBound]) -> ReadRequest {
    let condition = PathValue { path: FieldPath::parse("a").expect("failed to parse path"), value: "1".to_owned() };
    let mut request = ReadRequest::default();
    bounds.iter().for_each(|bound| request.range_filters[*bound as usize].push(condition.clone()));
    request
}

#[test]
fn ineffective_parameters_are_reset() {
    let plain = ReadRequest { format: ResponseFormat::Csv, ..ReadRequest::default() };
    let same = [
        ReadRequest { pretty: false, ..plain.clone() },
        ReadRequest { flatten: true, ..plain.clone() },
        ReadRequest { keywords_mode: KeywordsMode::And, ..plain.clone() },
        ReadRequest { strict: true, ..plain.clone() },
        ReadRequest { typed: true, ..plain.clone() },
    ];
    for request in same {
        assert_eq!(request.canonicalize(), plain.canonicalize(), "{request:?}");
    }
    let words = |words: [&str; 2]| ReadRequest { keywords: words.map(str::to_owned).into(), ..plain.clone() };
    assert_eq!(words(["a", "b"]).canonicalize(), words(["b", "a"]).canonicalize());
    let less = RangeBound::Less;
    let greater = RangeBound::Greater;
    assert_eq!(ranged(&[less, greater, less]).canonicalize(), ranged(&[greater, less]).canonicalize());
    assert_ne!(ranged(&[less]).canonicalize(), ranged(&[RangeBound::LessOrEqual]).canonicalize());
}

#[test]
fn count_request_ignores_page_and_format() {
    let page = ReadRequest { total: true, limit: Some(3), ..ReadRequest::default() };
    let count = ReadRequest { count: true, ..ReadRequest::default() };
    for request in [
        page.clone(),
        ReadRequest { pretty: false, ..page.clone() },
        ReadRequest { format: ResponseFormat::Parquet, typed: true, offset: 7, ..page.clone() },
        ReadRequest { sample: Some(3), seed: Some(1), ..page },
    ] {
        assert_eq!(request.to_count_request(), count.canonicalize(), "{request:?}");
    }
}

#[test]
fn match_count_is_inferred_only_from_last_page() {
    let page = |offset, limit, sample| ReadRequest { offset, limit, sample, ..ReadRequest::default() };
    for (request, returned, expected) in [
        (page(0, None, None), 7, Some(7)),
        (page(0, None, None), 0, Some(0)),
        (page(5, None, None), 2, Some(7)),
        (page(5, None, None), 0, None),
        (page(0, Some(3), None), 2, Some(2)),
        (page(0, Some(3), None), 3, None),
        (page(0, Some(0), None), 0, None),
        (page(5, Some(3), None), 0, None),
        (page(0, None, Some(3)), 2, Some(2)),
        (page(0, None, Some(3)), 3, None),
        (page(1, None, Some(3)), 1, Some(2)),
        (page(1, None, Some(3)), 2, None),
        (page(0, None, Some(0)), 0, None),
    ] {
        assert_eq!(request.infer_match_count(returned), expected, "{request:?} {returned}");
    }
}

#[test]
fn effective_parameters_are_distinguished() {
    let plain = ReadRequest::default();
    let others = [
        ReadRequest { pretty: false, ..plain.clone() },
        ReadRequest { flatten: true, ..plain.clone() },
        ReadRequest { format: ResponseFormat::Xml, ..plain.clone() },
        ReadRequest { count: true, ..plain.clone() },
        ReadRequest { alt: true, ..plain.clone() },
        ReadRequest { offset: 1, ..plain.clone() },
        ReadRequest { limit: Some(1), ..plain.clone() },
        ReadRequest { dedup: true, ..plain.clone() },
        ranged(&[RangeBound::Less]),
        ReadRequest { total: true, ..plain.clone() },
        ReadRequest { sample: Some(1), seed: Some(1), ..plain.clone() },
        ReadRequest { sample: Some(1), seed: Some(2), ..plain.clone() },
    ];
    for request in others {
        assert_ne!(request.canonicalize(), plain.canonicalize(), "{request:?}");
    }
}

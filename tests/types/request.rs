//! What of a request matters, and what does not.

use strata_types::path::Path;
use strata_types::request::{Format, KeywordsMode, PathValue, RangeBound, ReadRequest};

/// A request with range filters on one path, of one value.
fn ranged(bounds: &[RangeBound]) -> ReadRequest {
    let condition = PathValue { path: Path::parse("a").expect("a path"), value: "1".to_owned() };
    let mut request = ReadRequest::default();
    bounds.iter().for_each(|bound| request.ranges[*bound as usize].push(condition.clone()));
    request
}

#[test]
fn what_has_no_effect_is_not_told_apart() {
    let plain = ReadRequest { format: Format::Csv, ..ReadRequest::default() };
    let same = [
        ReadRequest { pretty: false, ..plain.clone() },
        ReadRequest { flatten: true, ..plain.clone() },
        ReadRequest { keywords_mode: KeywordsMode::And, ..plain.clone() },
        ReadRequest { strict: true, ..plain.clone() },
        ReadRequest { typed: true, ..plain.clone() },
    ];
    for request in same {
        assert_eq!(request.canonical(), plain.canonical(), "{request:?}");
    }
    let words = |words: [&str; 2]| ReadRequest { keywords: words.map(str::to_owned).into(), ..plain.clone() };
    assert_eq!(words(["a", "b"]).canonical(), words(["b", "a"]).canonical());
    let (less, greater) = (RangeBound::Less, RangeBound::Greater);
    assert_eq!(ranged(&[less, greater, less]).canonical(), ranged(&[greater, less]).canonical());
    assert_ne!(ranged(&[less]).canonical(), ranged(&[RangeBound::LessOrEqual]).canonical());
}

#[test]
fn the_count_of_what_matches_is_one_for_all_forms() {
    let page = ReadRequest { total: true, limit: Some(3), ..ReadRequest::default() };
    let count = ReadRequest { count: true, ..ReadRequest::default() };
    for request in [
        page.clone(),
        ReadRequest { pretty: false, ..page.clone() },
        ReadRequest { format: Format::Parquet, typed: true, offset: 7, ..page.clone() },
        ReadRequest { sample: Some(3), seed: Some(1), ..page },
    ] {
        assert_eq!(request.matching(), count.canonical(), "{request:?}");
    }
}

#[test]
fn a_page_tells_the_total_only_where_it_ends_what_there_is() {
    let page = |offset, limit, sample| ReadRequest { offset, limit, sample, ..ReadRequest::default() };
    for (request, found, told) in [
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
        assert_eq!(request.matches_told_by(found), told, "{request:?} {found}");
    }
}

#[test]
fn what_has_an_effect_is() {
    let plain = ReadRequest::default();
    let others = [
        ReadRequest { pretty: false, ..plain.clone() },
        ReadRequest { flatten: true, ..plain.clone() },
        ReadRequest { format: Format::Xml, ..plain.clone() },
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
        assert_ne!(request.canonical(), plain.canonical(), "{request:?}");
    }
}

//! Range filters: limits, what matches them, and which imply others.

use strata_json::{RangeLimit, RangeNeedle, Scalar, Text, matches_range};
use strata_types::request::RangeBound;

fn text(value: &str) -> RangeLimit {
    RangeLimit::Text(value.into())
}

#[test]
fn quotes_on_both_sides_make_a_text() {
    for (value, expected) in [
        ("\"5\"", text("5")),
        ("\"", text("\"")),
        ("\"\"", text("")),
        ("\"\"\"", text("\"")),
        ("\"a\\\"", text("a\\")),
        ("\"5", text("\"5")),
        ("5\"", text("5\"")),
        (" \"5\"", text(" \"5\"")),
        ("", text("")),
        ("NaN", text("NaN")),
        ("+1", text("+1")),
        ("01", text("01")),
        (" 1", text(" 1")),
        ("1 ", text("1 ")),
        ("null", text("null")),
    ] {
        assert_eq!(RangeLimit::of(value), expected, "{value}");
    }
    for value in ["5", "-0", "1E2", "1e400", "9007199254740993"] {
        assert!(matches!(RangeLimit::of(value), RangeLimit::Number(_)), "{value}");
    }
}

#[test]
fn a_needle_implies_those_that_admit_all_that_it_admits() {
    // Ascending within a type.
    let values = ["-1e400", "-1", "0", "0.5", "9007199254740992", "9007199254740994", "1e400", "\"\"", "A", "a", "b"];
    let needles: Vec<RangeNeedle> = RangeBound::ALL
        .into_iter()
        .flat_map(|bound| values.iter().map(move |value| RangeNeedle::new(bound, value)))
        .collect();
    // The values themselves, and one between and beyond each two of them.
    let numbers = "-1e400 -2 -1 -0.5 -0 0.25 0.5 1 9007199254740992 9007199254740993 9007199254740994 1e300 1e400";
    let texts = ["", "0", "A", "B", "a", "aa", "b", "c"];
    let scalars: Vec<Scalar<'_>> = numbers
        .split(' ')
        .map(Scalar::Number)
        .chain(texts.into_iter().map(|text| Scalar::String(Text::new(text.as_bytes()))))
        .collect();
    for one in &needles {
        for other in &needles {
            let is_alike = one.bound.is_lower() == other.bound.is_lower()
                && std::mem::discriminant(&one.limit) == std::mem::discriminant(&other.limit);
            let all = scalars.iter().all(|scalar| !matches_range(*scalar, one) || matches_range(*scalar, other));
            if is_alike {
                assert_eq!(one.implies(other), all, "{one:?} {other:?}");
            } else {
                assert!(!one.implies(other), "{one:?} {other:?}");
            }
        }
    }
}

#[test]
fn scalars_of_the_other_type_never_match() {
    for bound in RangeBound::ALL {
        for value in ["0", "\"0\"", "", "true", "null"] {
            let needle = RangeNeedle::new(bound, value);
            assert!(!matches_range(Scalar::Null, &needle));
            assert!(!matches_range(Scalar::Bool(true), &needle));
            let is_number = matches!(&needle.limit, RangeLimit::Number(_));
            assert!(is_number || !matches_range(Scalar::Number("0"), &needle));
            assert!(!is_number || !matches_range(Scalar::String(Text::new(b"0")), &needle));
        }
    }
}

#[test]
fn texts_compare_by_what_they_are_and_not_by_how_they_are_written() {
    let fits = |bound, raw: &str, value| {
        matches_range(Scalar::String(Text::new(raw.as_bytes())), &RangeNeedle::new(bound, value))
    };
    // An escaped line feed is below every letter, the backslash of its escape is not.
    assert!(fits(RangeBound::Less, r"\n", "A"));
    assert!(fits(RangeBound::LessOrEqual, r#"a\"b"#, "a\"b"));
    assert!(!fits(RangeBound::Less, r#"a\"b"#, "a\"b"));
    assert!(fits(RangeBound::Greater, "\u{10400}", "\u{ffff}"));
    assert!(fits(RangeBound::Less, "Z", "a"));
}

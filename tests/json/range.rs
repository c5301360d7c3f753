//! Predicates of range filters: operands, matches, and implications.

use strata_json::{JsonScalar, JsonStr, RangeOperand, RangePredicate, matches_range};
use strata_types::read_request::RangeBound;

fn text(value: &str) -> RangeOperand {
    RangeOperand::String(value.into())
}

#[test]
fn quotes_on_both_sides_make_a_string() {
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
        assert_eq!(RangeOperand::from_filter_value(value), expected, "{value}");
    }
    for value in ["5", "-0", "1E2", "1e400", "9007199254740993"] {
        assert!(matches!(RangeOperand::from_filter_value(value), RangeOperand::Number(_)), "{value}");
    }
}

#[test]
fn predicate_implies_weaker_predicates() {
    // Ascending within each type.
    let values = ["-1e400", "-1", "0", "0.5", "9007199254740992", "9007199254740994", "1e400", "\"\"", "A", "a", "b"];
    let needles: Vec<RangePredicate> = RangeBound::ALL
        .into_iter()
        .flat_map(|bound| values.iter().map(move |value| RangePredicate::new(bound, value)))
        .collect();
    // The operands themselves, and values between and beyond them.
    let numbers = "-1e400 -2 -1 -0.5 -0 0.25 0.5 1 9007199254740992 9007199254740993 9007199254740994 1e300 1e400";
    let texts = ["", "0", "A", "B", "a", "aa", "b", "c"];
    let scalars: Vec<JsonScalar<'_>> = numbers
        .split(' ')
        .map(JsonScalar::Number)
        .chain(texts.into_iter().map(|text| JsonScalar::String(JsonStr::new(text.as_bytes()))))
        .collect();
    for one in &needles {
        for other in &needles {
            let is_comparable = one.bound.is_lower_bound() == other.bound.is_lower_bound()
                && std::mem::discriminant(&one.operand) == std::mem::discriminant(&other.operand);
            let all = scalars.iter().all(|scalar| !matches_range(*scalar, one) || matches_range(*scalar, other));
            if is_comparable {
                assert_eq!(one.implies(other), all, "{one:?} {other:?}");
            } else {
                assert!(!one.implies(other), "{one:?} {other:?}");
            }
        }
    }
}

#[test]
fn scalars_of_other_types_never_match() {
    for bound in RangeBound::ALL {
        for value in ["0", "\"0\"", "", "true", "null"] {
            let needle = RangePredicate::new(bound, value);
            assert!(!matches_range(JsonScalar::Null, &needle));
            assert!(!matches_range(JsonScalar::Bool(true), &needle));
            let is_number = matches!(&needle.operand, RangeOperand::Number(_));
            assert!(is_number || !matches_range(JsonScalar::Number("0"), &needle));
            assert!(!is_number || !matches_range(JsonScalar::String(JsonStr::new(b"0")), &needle));
        }
    }
}

#[test]
fn strings_compare_by_unescaped_value() {
    let matches = |bound, raw: &str, value| {
        matches_range(JsonScalar::String(JsonStr::new(raw.as_bytes())), &RangePredicate::new(bound, value))
    };
    // An escaped line feed is less than every letter, but its backslash is not.
    assert!(matches(RangeBound::Less, r"\n", "A"));
    assert!(matches(RangeBound::LessOrEqual, r#"a\"b"#, "a\"b"));
    assert!(!matches(RangeBound::Less, r#"a\"b"#, "a\"b"));
    assert!(matches(RangeBound::Greater, "\u{10400}", "\u{ffff}"));
    assert!(matches(RangeBound::Less, "Z", "a"));
}

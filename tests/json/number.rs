//! Numeric values.

use strata_json::NumericValue;

/// The first integer above `i64`.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn value(text: &str) -> NumericValue {
    NumericValue::parse(text).expect("failed to parse number")
}

#[test]
fn invalid_numbers_are_rejected() {
    for text in ["", "-", "01", "-01", "+1", ".5", "1.", "1e", "1e+", " 1", "1 ", "0x1", "NaN", "inf", "1_0", "١"] {
        assert_eq!(NumericValue::parse(text), None, "{text:?}");
    }
}

#[test]
fn numbers_order_by_value() {
    // Ascending rows of equal values.
    let rows: &[&[&str]] = &[
        &["-1e400", "-1e999"],
        &["-1000000000000000000000000000000000"],
        &["-9223372036854775809"],
        &["-9223372036854775808", "-9223372036854775808.0"],
        &["-1.5"],
        &["-1", "-1.0", "-10e-1"],
        &["-5e-324"],
        &["0", "-0", "0.0", "-0e5", "1e-400"],
        &["0.1", "1e-1", "0.1000000000000000055511151231257827"],
        &["9007199254740992", "9007199254740992.0", "9007199254740993.0"],
        &["9007199254740993"],
        &["9223372036854775807"],
        &["9223372036854775808", "9.223372036854775807e18"],
        &["9223372036854775809"],
        &["1000000000000000019884624838656", "1e30"],
        &["1000000000000000019884624838657"],
        &["1e308"],
        &["1e400", "1e401"],
    ];
    let numbered = rows.iter().enumerate().flat_map(|(row, texts)| texts.iter().map(move |text| (row, text)));
    for (left_row, left) in numbered.clone() {
        for (right_row, right) in numbered.clone() {
            assert_eq!(value(left).cmp(&value(right)), left_row.cmp(&right_row), "{left} and {right}");
            assert_eq!(value(left) == value(right), left_row == right_row, "{left} and {right}");
        }
    }
    let long = "1".repeat(400);
    assert!(value(&long) < value("1e400"));
    assert!(value(&long) > value("1e308"));
}

#[test]
fn double_and_remainder_are_exact() {
    let parts = |text| (value(text).nearest_double(), value(text).double_remainder());
    assert_eq!(parts("9007199254740993"), (9007199254740992.0, Some(1)));
    assert_eq!(parts("9223372036854775807"), (TWO_TO_63, Some(-1)));
    assert_eq!(parts("-9223372036854775807"), (-TWO_TO_63, Some(1)));
    assert_eq!(parts("1000000000000000000000000000000"), (1e30, Some(-19884624838656)));
    assert_eq!(parts("-1000000000000000000000000000000"), (-1e30, Some(19884624838656)));
    assert_eq!(parts("1.5"), (1.5, Some(0)));
    assert_eq!(parts("1e400"), (f64::INFINITY, Some(0)));
    assert_eq!(parts(&"1".repeat(400)), (f64::INFINITY, None));
    assert_eq!(value(&"1".repeat(200)).double_remainder(), None);
    let sides = ["1.5", "9223372036854775807", &"1".repeat(400), &format!("-{}", "1".repeat(400))]
        .map(|text| value(text).double_and_tie_breaker());
    let infinite = f64::INFINITY;
    assert_eq!(sides, [(1.5, 0), (TWO_TO_63, -1), (infinite, i128::MIN), (-infinite, i128::MAX)]);
    for digits in [200, 201, 250] {
        let text = "1".repeat(digits);
        let (nearest, side) = value(&text).double_and_tie_breaker();
        let nearest = format!("{nearest:.0}");
        let expected = (text.len(), &text).cmp(&(nearest.len(), &nearest));
        assert_eq!(side.cmp(&0), expected, "{digits} digits");
    }
}

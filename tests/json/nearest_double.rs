//! Numbers with digits and exponents of any length.

use strata_json::nearest_double;

fn bits(number: &str) -> Option<u64> {
    nearest_double(number).map(f64::to_bits)
}

#[test]
fn long_digits_and_exponent_cancel_out() {
    let zeros = |count: usize| "0".repeat(count);
    let nines = format!("{}e-1000000", "9".repeat(1_000_000));
    assert_eq!(nearest_double(&nines), Some(1.0));
    assert_eq!(nearest_double(&format!("0.{}1e1000001", zeros(1_000_000))), Some(1.0));
    assert_eq!(nearest_double(&format!("-25{}.0E-0700001", zeros(700_000))), Some(-2.5));
    assert_eq!(nearest_double(&format!("12{}e-655361", zeros(655_360))), Some(1.2));
    assert_eq!(nearest_double(&format!("12{}e-655359", zeros(655_360))), Some(120.0));
    // Halfway between two doubles, and slightly above.
    let halfway = "9007199254740993";
    assert_eq!(nearest_double(&format!("{halfway}{}e-700000", zeros(700_000))), Some(9007199254740992.0));
    assert_eq!(nearest_double(&format!("{halfway}{}1e-700000", zeros(699_999))), Some(9007199254740994.0));
}

#[test]
fn extreme_exponents_become_infinite_or_zero() {
    for (number, expected) in [
        ("1e1000000", f64::INFINITY),
        ("-1e+99999999999999999999999", f64::NEG_INFINITY),
        ("1e-1000000", 0.0),
        ("-1e-99999999999999999999999", -0.0),
        ("0e99999999999999999999999", 0.0),
        ("-0.000e1000000", -0.0),
        ("5e-000324", 5e-324),
        ("1.5e+000001", 15.0),
        ("17976931348623157e0000292", f64::MAX),
    ] {
        assert_eq!(bits(number), Some(expected.to_bits()), "{number}");
    }
}

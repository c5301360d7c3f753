//! Sort keys.

use strata_json::SortDirection::{Ascending, Descending};
use strata_json::{JsonCursor, NumericValue, SortDirection, write_sort_key};

fn key(value: &str, direction: SortDirection) -> Vec<u8> {
    let mut out = Vec::new();
    write_sort_key(JsonCursor::new(value.as_bytes()).next_scalar(), direction, &mut out);
    out
}

#[test]
fn sort_keys_have_the_documented_bytes() {
    let check = |value, direction, expected: &[u8]| assert_eq!(key(value, direction), expected, "{value}");
    check(r#""a""#, Ascending, &[2, 0x61, 0, 1]);
    check(r#""a""#, Descending, &[0xFD, 0x9E, 0xFF, 0xFE]);
    check(r#""\u0000""#, Ascending, &[2, 0, 0xFF, 0, 1]);
    check("false", Ascending, &[3]);
    check("true", Descending, &[!4]);
    check("null", Ascending, &[0xFF]);
    check("null", Descending, &[0xFF]);
    check("0", Ascending, &[1, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    check("2", Ascending, &[1, 0xC0, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    check("9007199254740993", Ascending, &[1, 0xC3, 0x40, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn sort_keys_order_like_values_in_both_directions() {
    let huge = format!("1{}", "0".repeat(400));
    let numbers = format!(
        "-1e400 -{huge} -1e300 -9007199254740993 -9007199254740992 -1 -0.5 0 1e-300 9.5 10 9007199254740992 \
         9007199254740993 9223372036854775807 100000000000000000000000000000000000000 1e308 {huge} 1e400"
    );
    let others = r#""" "\u0000" "\u0000a" "\u0001" "B" "a" "ab" "b" "ä" false true"#;
    let ascending: Vec<&str> = numbers.split(' ').chain(others.split(' ')).collect();
    for (index, low) in ascending.iter().enumerate() {
        for direction in [Ascending, Descending] {
            assert!(key(low, direction) < key("null", direction), "{low} before null");
        }
        for high in &ascending[index + 1..] {
            assert!(key(low, Ascending) < key(high, Ascending), "{low} < {high}");
            assert!(key(low, Descending) > key(high, Descending), "{low} > {high} descending");
        }
    }
}

#[test]
fn equal_values_have_equal_sort_keys() {
    for (one, other) in [("1", "1.0"), ("10", "1e1"), ("0", "-0"), ("0", "-0.0"), (r#""ä""#, "\"ä\"")] {
        assert_eq!(key(one, Ascending), key(other, Ascending));
    }
    assert_eq!(key("null", Ascending), key("null", Descending));
}

#[test]
fn integers_near_one_double_keep_their_order() {
    // All have the double 1e38 or a neighbor of it; some remainders fit 64 bits, others do not.
    let ascending = [
        "99999999999999990000000000000000000000",
        "99999999999999997740000000000000000000",
        "99999999999999997748809823456034029568",
        "1e38",
        "100000000000000000000000000000000000000",
        "100000000000000000000000000000000000001",
        "100000000000000005000000000000000000000",
    ];
    for pair in ascending.windows(2) {
        let exact = |text: &str| NumericValue::parse(text);
        let [low, high] = [0, 1].map(|index| key(pair[index], Ascending));
        assert_eq!(low.cmp(&high), exact(pair[0]).cmp(&exact(pair[1])), "{pair:?}");
    }
}

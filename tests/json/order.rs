//! Sort keys.

use strata_json::{JsonCursor, NumericValue, write_sort_key};

fn key(value: &str, descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    write_sort_key(JsonCursor::new(value.as_bytes()).next_scalar(), descending, &mut out);
    out
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
        assert!(key(low, false) < key("null", false) && key(low, true) < key("null", true), "{low} before null");
        for high in &ascending[index + 1..] {
            assert!(key(low, false) < key(high, false), "{low} < {high}");
            assert!(key(low, true) > key(high, true), "{low} > {high} descending");
        }
    }
}

#[test]
fn equal_values_have_equal_sort_keys() {
    for (one, other) in [("1", "1.0"), ("10", "1e1"), ("0", "-0"), ("0", "-0.0"), (r#""ä""#, "\"ä\"")] {
        assert_eq!(key(one, false), key(other, false));
    }
    assert_eq!(key("null", false), key("null", true));
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
        assert_eq!(key(pair[0], false).cmp(&key(pair[1], false)), exact(pair[0]).cmp(&exact(pair[1])), "{pair:?}");
    }
}

//! The stored profile: encoding, decoding, and decoding of its paths.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use strata_format::profile::{
    MAX_SHOWN_VALUE_BYTES, NumberHistogram, ProfileBuilder, ProfilePathRecord, ProfilePaths, ShreddingLimits,
    StoredProfile, ValueRecord, length_range,
};
use strata_types::index_settings::{IndexSettings, MAX_INDEX_PATH_BYTES, MAX_INDEX_PATHS};

/// Returns the record of a path with these JSON values.
fn record(values: &[String]) -> ProfilePathRecord {
    let mut profile = ProfileBuilder::default();
    values.iter().for_each(|value| profile.add(format!(r#"{{"a":{value}}}"#).as_bytes()));
    let index = IndexSettings::default();
    let choice = profile.choose_shredded(&ShreddingLimits::default(), &index);
    profile.to_stored(&choice, &index).paths.remove(0)
}

fn shown(bound: Option<ValueRecord>) -> (String, bool) {
    let ValueRecord { value, cut, .. } = bound.expect("failed to find bound");
    (value.as_str().map_or_else(|| value.to_string(), str::to_owned), cut)
}

#[test]
fn number_bounds_compare_by_value_exactly() {
    let check = |texts: &[&str], min: &str, max: &str| {
        let record = record(&owned(texts));
        // The JSON parser may normalize the sign of an exponent.
        let bound = |text: &str| match text.len() < MAX_SHOWN_VALUE_BYTES {
            true => (serde_json::from_str::<Json>(text).expect("failed to parse number").to_string(), false),
            false => (text[..MAX_SHOWN_VALUE_BYTES].to_owned(), text.len() > MAX_SHOWN_VALUE_BYTES),
        };
        assert_eq!((shown(record.number_min), shown(record.number_max)), (bound(min), bound(max)));
    };
    check(&["1"], "1", "1");
    check(&["1.0", "1", "1e0"], "1.0", "1.0");
    check(&["-0", "0", "0.0"], "-0", "-0");
    check(&["5", "-7", "6.5", "0.5", "-7.25", "6.75", "6"], "-7.25", "6.75");
    check(
        &["9007199254740993", "9007199254740992", "9007199254740994", "9007199254740993"],
        "9007199254740992",
        "9007199254740994",
    );
    check(&["0", "1e400", "-1e400", "3"], "-1e400", "1e400");
    check(&["-5", "-4.5", "-4", "-5.5"], "-5.5", "-4");
    check(&["123456789012345678901", "123456789012345678902", "999"], "999", "123456789012345678902");
    // Integers that are too long to be compared.
    let long = "1".repeat(1_001);
    check(&[&long, "5"], "5", &long);
    check(&[&format!("-{long}"), "1e400"], &format!("-{long}"), "1e400");
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn number_ranges_are_few_and_have_round_limits() {
    let ranges = |texts: &[&str], max_ranges| {
        let ranges = record(&owned(texts)).number_bins.map(|bins| bins.to_ranges(max_ranges)).unwrap_or_default();
        let filled = ranges.iter().filter(|range| range.count > 0);
        filled.map(|range| format!("{} to {}: {}", range.from, range.to, range.count)).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(ranges(&["5", "5.0"], 16), "");
    assert_eq!(ranges(&["1", "2", "2", "4"], 16), "1 to 2: 1, 2 to 3: 2, 4 to 5: 1");
    assert_eq!(ranges(&["0", "99", "100"], 16), "0 to 8: 1, 96 to 104: 2");
    assert_eq!(ranges(&["0.5", "0.75"], 16), "0.5 to 0.53125: 1, 0.75 to 0.78125: 1");
    assert_eq!(ranges(&["-1", "1e300"], 4).split(": ").count(), 3);
    assert_eq!(ranges(&["-3", "2"], 2), "-4 to 0: 1, 0 to 4: 1");
    // Histograms that strata does not write.
    for (exponent, first, number) in [
        (i32::MIN, i64::MAX, 0),
        (i32::MAX, i64::MIN, 0),
        (-1_000, i64::MAX, 16),
        (-1_000, i64::MIN, 16),
        (1_022, i64::MIN, 100),
    ] {
        let invalid = json!({"exponent": exponent, "first": first, "counts": vec![1; 100]});
        let invalid = serde_json::from_value::<NumberHistogram>(invalid).expect("failed to parse histogram");
        let ranges = invalid.to_ranges(16);
        assert!(ranges.len() <= number.max(1), "{exponent} {first}: {}", ranges.len());
    }
}

/// Returns the histogram with the narrowest bins of which at most 32 are needed.
fn reference_bins(texts: &[String]) -> Json {
    let numbers = texts.iter().filter_map(|text| text.parse().ok()).filter(|number: &f64| number.is_finite());
    let numbers: Vec<f64> = numbers.collect();
    let exponent = |number: &f64| (number.to_bits() >> 52 & 0x7FF) as i32 - 1_023;
    let Some(mut width) = numbers.iter().map(|number| (exponent(number) - 52).max(-1_000)).max() else {
        return Json::Null;
    };
    loop {
        let bin = |number: &f64| {
            let quotient = number * 2.0_f64.powi(-width);
            if quotient == 0.0 && *number < 0.0 { -1 } else { quotient.floor() as i64 }
        };
        let bins: Vec<i64> = numbers.iter().map(bin).collect();
        let first = *bins.iter().min().expect("failed to find first bin");
        let last = *bins.iter().max().expect("failed to find last bin");
        if first == last {
            return Json::Null;
        }
        if last - first < 32 {
            let counts = (first..=last).map(|at| bins.iter().filter(|bin| **bin == at).count());
            return json!({"exponent": width, "first": first, "counts": counts.collect::<Vec<_>>()});
        }
        width += 1;
    }
}

fn numbers() -> impl Strategy<Value = Vec<String>> {
    let number = prop_oneof![
        (-50_i64..50).prop_map(|number| number.to_string()),
        (-5_000_i64..5_000).prop_map(|number| format!("{:.2}", number as f64 / 100.0)),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        any::<i64>().prop_map(|number| number.to_string()),
        Just("0".to_owned()),
        Just("-0.0".to_owned()),
        Just("1e400".to_owned()),
        Just("4.9e-324".to_owned()),
    ];
    proptest::collection::vec(number, 1..40)
}

proptest! {
    #[test]
    fn histogram_does_not_depend_on_order(mut texts in numbers(), seed in any::<u64>()) {
        let expected = reference_bins(&texts);
        for _ in 0..2 {
            let histogram = serde_json::to_value(record(&texts).number_bins).expect("failed to serialize histogram");
            prop_assert_eq!(&histogram, &expected);
            texts.sort_by_key(|text| seed.wrapping_mul(text.bytes().map(u64::from).sum::<u64>() | 1));
        }
    }
}

#[test]
fn string_bounds_compare_by_code_point() {
    let check = |raw: &[&str], min: (&str, bool), max: (&str, bool)| {
        let record = record(&raw.iter().map(|raw| format!("\"{raw}\"")).collect::<Vec<_>>());
        let expected = [min, max].map(|(text, cut)| (text.to_owned(), cut));
        assert_eq!([shown(record.string_min), shown(record.string_max)], expected);
    };
    check(&["b", "", "a", "ab"], ("", false), ("b", false));
    check(&["0", "\\n", "\\u0001", "\\\""], ("\u{1}", false), ("0", false));
    check(&["abcdefgh2", "abcdefgh\\t", "abcdefgh1", "abcdefgh"], ("abcdefgh", false), ("abcdefgh2", false));
    check(&["z", "é", "日", "𐐀", "\u{ffff}"], ("z", false), ("𐐀", false));
    let full = "x".repeat(MAX_SHOWN_VALUE_BYTES);
    let long = "x".repeat(MAX_SHOWN_VALUE_BYTES + 1);
    check(&[&long, &full], (&full, false), (&full, true));
    // A truncated character is dropped from the stored form, but still counts for the order.
    let head = "x".repeat(MAX_SHOWN_VALUE_BYTES - 1);
    let edge = format!("{head}é");
    check(&[&edge, &full], (&full, false), (&head, true));
    let escaped = "\\u0001".repeat(MAX_SHOWN_VALUE_BYTES);
    let unescaped = "\u{1}".repeat(MAX_SHOWN_VALUE_BYTES);
    check(&[&escaped], (&unescaped, false), (&unescaped, false));
    check(&[&escaped.repeat(2)], (&unescaped, true), (&unescaped, true));
}

#[test]
fn string_lengths_count_characters() {
    let long = "é".repeat(1_000);
    for (raw, length) in [
        ("", 0),
        ("a", 1),
        ("é", 1),
        ("日本", 2),
        ("𐐀", 1),
        ("\\n", 1),
        ("\\u0001\\\\\\\"x", 4),
        ("é\\té", 3),
        ("👩\u{200d}👧", 3),
        (&long, 1_000),
        (&"x".repeat(1_023), 1_023),
        (&"x".repeat(1_024), 1_024),
    ] {
        let lengths = record(&[format!("\"{raw}\"")]).string_lengths;
        assert!(length_range(lengths.len() - 1).contains(&length), "{raw}: {lengths:?}");
        assert_eq!((lengths.last(), lengths.iter().sum::<u64>()), (Some(&1), 1), "{raw}");
    }
}

#[test]
fn length_ranges_cover_every_length_once() {
    let mut next = 0;
    for bin in 0..=64 {
        let range = length_range(bin);
        assert_eq!(*range.start(), next, "{bin}");
        next = range.end().wrapping_add(1);
    }
    assert_eq!(next, 0, "the ranges do not cover all lengths");
}

fn decoded_paths(entities: &[&str]) -> ProfilePaths {
    let mut profile = ProfileBuilder::default();
    entities.iter().for_each(|entity| profile.add(entity.as_bytes()));
    let index = IndexSettings::default();
    let described = profile.to_stored(&profile.choose_shredded(&ShreddingLimits::default(), &index), &index);
    let encoded = described.encode(profile.columns().as_ref()).expect("failed to encode profile");
    ProfilePaths::decode(&encoded).expect("failed to decode paths")
}

#[test]
fn numeric_strings_are_detected() {
    let paths = decoded_paths(&[
        r#"{"amount":"9.5","none":"","year":"1999","zip":"01003","date":"2024-01-01","mixed":"1","word":"1"}"#,
        r#"{"amount":"-1000","year":"2024","zip":"99501","date":"2023","mixed":2,"word":"one"}"#,
        r#"{"amount":"","mixed":"10"}"#,
    ]);
    for path in ["amount", "mixed", "none", "year", "zip", "date", "word"] {
        let expected = matches!(path, "amount" | "mixed");
        assert_eq!(paths.get(path).expect(path).has_numeric_strings, Some(expected), "{path}");
    }
}

#[test]
fn profile_shows_which_paths_survive_denull() {
    let paths = decoded_paths(&[
        r#"{"null":null,"empty":"","text":"","zero":0,"no":false,"object":{},"in":[{"x":null}],"array":[]}"#,
        r#"{"text":"a","nulls":[null,""],"mixed":[null,[]],"numbers":[[1]],"a.b":1}"#,
    ]);
    assert!(paths.is_complete());
    assert_eq!(paths.entities(), 2);
    let survives = |path: &str| paths.get(path).expect(path).survives_denull;
    for path in ["text", "zero", "no", "object", "in", "array", "numbers", r"a\.b"] {
        assert_eq!(survives(path), Some(true), "{path}");
    }
    for path in ["null", "empty", "in.x"] {
        assert_eq!(survives(path), Some(false), "{path}");
    }
    for path in ["nulls", "mixed"] {
        assert_eq!(survives(path), None, "{path}");
    }
    let distinct = |path: &str| paths.get(path).expect(path).distinct;
    assert_eq!(["null", "text", "numbers"].map(distinct), [Some(0), Some(2), Some(1)]);
    assert_eq!(paths.get("a.b"), None);
    for (path, has_object) in [("object", true), ("numbers", false)] {
        let facts = paths.get(path).expect(path);
        assert_eq!((facts.has_object, facts.has_array), (Some(has_object), Some(!has_object)), "{path}");
    }
}

#[test]
fn largest_profile_is_decoded() {
    let path = |number: u8| format!("{}{}", "\u{1}".repeat(MAX_INDEX_PATH_BYTES - 3), 100 + number);
    let paths: Vec<String> = (0..2 * MAX_INDEX_PATHS as u8).map(path).collect();
    let (always, never) = paths.split_at(MAX_INDEX_PATHS);
    let index = IndexSettings::try_new(always, never).expect("failed to create index settings");
    let mut profile = ProfileBuilder::default();
    for number in 0..8_000 {
        profile.add(format!(r#"{{"{number}{}":"x"}}"#, "n".repeat(1_000)).as_bytes());
    }
    let described = profile.to_stored(&profile.choose_shredded(&ShreddingLimits::default(), &index), &index);
    let encoded = described.encode(profile.columns().as_ref()).expect("failed to encode profile");
    let read = StoredProfile::decode(&encoded).expect("failed to decode profile");
    assert!(read.paths_left_out && read.paths.len() > 1_000, "{}", read.paths.len());
    assert_eq!((read.index.unmet.len(), &read.index), (MAX_INDEX_PATHS, &described.index));
}

#[test]
fn stored_profile_survives_encoding() {
    let mut profile = ProfileBuilder::default();
    profile.add(br#"{"a":"x"}"#);
    let index = IndexSettings::default();
    let described = profile.to_stored(&profile.choose_shredded(&ShreddingLimits::default(), &index), &index);
    assert_eq!(described.paths[0].string_lengths, [0, 1]);
    let without = described.clone().without_histograms();
    assert!(!serde_json::to_string(&without).expect("failed to serialize profile").contains("string_lengths"));
    for stored in [described, without] {
        let encoded = stored.encode(None).expect("failed to encode profile");
        assert_eq!(StoredProfile::decode(&encoded).expect("failed to decode profile"), stored);
    }
}

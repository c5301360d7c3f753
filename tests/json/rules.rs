//! Compares `strata_json` with a naive reference, for hostile generated entities.

use std::ops::{ControlFlow, Range};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use strata_json::{
    self, CanonicalFormWriter, ContainsPredicate, DocumentError, EqualsPredicate, FieldProjection, JsonCursor,
    JsonScalar, JsonToken, NumericValue, PathTrie, PathVisitor, RangePredicate, SourceField, ValueScanner,
};
use strata_reference::{Value, hostile, number, rules};
use strata_types::field_path::FieldPath;
use strata_types::read_request::RangeBound;

fn canonicalize(text: impl AsRef<[u8]>) -> Result<String, DocumentError> {
    let mut out = b"before".to_vec();
    let result = strata_json::canonicalize(text.as_ref(), &mut out);
    let out = String::from_utf8(out).expect("failed to decode UTF-8");
    match result {
        Ok(()) => Ok(out.strip_prefix("before").expect("failed to append").to_owned()),
        Err(error) => {
            assert_eq!(out, "before", "an error must not change the output");
            Err(error)
        }
    }
}

/// Passes a scalar of the reference to the fast code.
fn with_scalar<T>(value: &Value, check: impl FnOnce(JsonScalar<'_>) -> T) -> T {
    check(JsonScalar::parse(value.write().as_bytes()).expect("failed to parse scalar"))
}

fn path(keys: &[String]) -> FieldPath {
    FieldPath::from_keys(keys.to_vec()).expect("failed to parse path")
}

/// Records the scalars of each node in a walk, and whether the node is finished.
struct WalkRecorder {
    scalars: Vec<Vec<Value>>,
    finished: Vec<bool>,
}

impl PathVisitor for WalkRecorder {
    fn visit_scalar(&mut self, node: usize, scalar: JsonScalar<'_>) -> ControlFlow<()> {
        assert!(!self.finished[node], "a scalar follows a finished node");
        self.scalars[node].push(Value::from_scalar(scalar));
        ControlFlow::Continue(())
    }

    fn finish_nodes(&mut self, nodes: Range<usize>) -> ControlFlow<()> {
        self.finished[nodes].fill(true);
        ControlFlow::Continue(())
    }
}

/// Checks that a scalar matches range filters like in the reference.
fn in_ranges(scalar: &Value, value: &str) -> Result<(), TestCaseError> {
    for value in [value.to_owned(), format!("\"{value}\"")] {
        for bound in RangeBound::ALL {
            let needle = RangePredicate::new(bound, &value);
            let matches = with_scalar(scalar, |scalar| strata_json::matches_range(scalar, &needle));
            prop_assert_eq!(matches, rules::matches_range(scalar, bound, &value), "{:?} {}", bound, value);
        }
    }
    Ok(())
}

/// Generates texts in which one byte is changed, removed, or inserted.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(br#"{}[]",:\u0123456789eE+-. dD8cC"#.as_slice())];
    (hostile::text(), any::<prop::sample::Index>(), byte, 0..4).prop_map(|(text, at, byte, how)| {
        let mut text = text.into_bytes();
        let at = at.index(text.len());
        match how {
            0 => text[at] = byte,
            1 => text.truncate(at),
            2 => drop(text.remove(at)),
            _ => text.insert(at, byte),
        }
        text
    })
}

proptest! {
    #[test]
    fn canonical_text_matches_reference(text in hostile::text()) {
        let expected = Value::parse_entity(&text).expect("failed to parse text").write();
        prop_assert_eq!(canonicalize(&text), Ok(expected.clone()));
        // Canonicalization is idempotent.
        prop_assert_eq!(canonicalize(&expected), Ok(expected));
    }

    #[test]
    fn invalid_text_is_rejected_like_reference(text in damaged()) {
        let expected = match std::str::from_utf8(&text) {
            Ok(text) => Value::parse_entity(text).map(|value| value.write()),
            Err(error) => Err(error.to_string()),
        };
        match (canonicalize(&text), expected) {
            (Ok(actual), Ok(expected)) => prop_assert_eq!(actual, expected),
            (Err(_), Err(_)) => {}
            (actual, expected) => prop_assert!(false, "actual {actual:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn canonicalizer_keeps_no_state(first in damaged(), second in hostile::text()) {
        let mut canonicalizer = strata_json::JsonCanonicalizer::default();
        let mut out = Vec::new();
        let _ = canonicalizer.canonicalize(&first, &mut out);
        out.clear();
        prop_assert_eq!(canonicalizer.canonicalize(second.as_bytes(), &mut out), Ok(()));
        prop_assert_eq!(Ok(String::from_utf8(out).expect("failed to decode UTF-8")), canonicalize(&second));
    }

    #[test]
    fn reading_damaged_text_never_panics(text in damaged(), keys in hostile::path()) {
        let limit = text.len() + 1;
        prop_assert!(JsonCursor::new(&text).take(limit + 1).count() <= limit);
        strata_json::visit_scalars_at(&text, &path(&keys), |_| ControlFlow::Continue(()));
        strata_json::visit_values_at(&text, &path(&keys), |_| ControlFlow::Continue(()));
        strata_json::visit_all_scalars(&text, |_| ControlFlow::Continue(()));
        strata_json::find_member(&text, "a");
        let mut out = Vec::new();
        strata_json::remove_nulls(&text, &mut out);
        FieldProjection::new(SourceField::Remove, &[path(&keys)], &[]).apply(&text, &mut out);
        FieldProjection::new(SourceField::Include, &[], &[path(&keys)]).apply(&text, &mut out);
        CanonicalFormWriter::default().write(&text, &mut out);
        strata_json::try_write_indented(&text, 0, usize::MAX, &mut out);
    }

    #[test]
    fn tokens_match_reference(entity in hostile::entity()) {
        fn list(value: &Value, out: &mut Vec<String>) {
            match value {
                Value::Array(elements) => {
                    out.push("[".to_owned());
                    elements.iter().for_each(|element| list(element, out));
                    out.push("]".to_owned());
                }
                Value::Object(members) => {
                    out.push("{".to_owned());
                    for (key, value) in members {
                        out.push(format!("key {key}"));
                        list(value, out);
                    }
                    out.push("}".to_owned());
                }
                scalar => out.push(scalar.write()),
            }
        }
        let mut expected = Vec::new();
        list(&entity, &mut expected);
        let text = entity.write();
        let mut cursor = JsonCursor::new(text.as_bytes());
        let mut actual = Vec::new();
        for token in cursor.by_ref() {
            actual.push(match token {
                JsonToken::ObjectStart => "{".to_owned(),
                JsonToken::ObjectEnd => "}".to_owned(),
                JsonToken::ArrayStart => "[".to_owned(),
                JsonToken::ArrayEnd => "]".to_owned(),
                JsonToken::Key(key) => format!("key {}", key.unescape()),
                scalar => Value::from_scalar(scalar.as_scalar().expect("failed to parse scalar")).write(),
            });
        }
        prop_assert_eq!(cursor.offset(), text.len());
        prop_assert_eq!(actual, expected);
    }

    #[test]
    fn skip_and_leave_move_to_next_value(entity in hostile::entity(), leave_after in 0..6_usize) {
        let text = format!("[{},0]", entity.write());
        let Value::Object(members) = &entity else { unreachable!("an entity") };
        let mut cursor = JsonCursor::new(text.as_bytes());
        cursor.enter();
        cursor.enter();
        let mut left = false;
        for (number, (key, value)) in members.iter().enumerate() {
            if number == leave_after {
                cursor.leave();
                left = true;
                break;
            }
            let actual = cursor.next_key().expect("failed to read key");
            prop_assert!(actual.eq_str(key));
            prop_assert_eq!(actual.eq_str("a"), key == "a");
            prop_assert_eq!(actual.unescape(), key.as_str());
            let expected = value.write();
            prop_assert_eq!(cursor.skip_value(), expected.as_bytes());
            prop_assert_eq!(strata_json::find_member(&text.as_bytes()[1..], key), Some(expected.as_bytes()));
        }
        if !left {
            prop_assert!(cursor.next_key().is_none());
        }
        prop_assert!(cursor.next_element());
        prop_assert_eq!(cursor.skip_value(), b"0");
        prop_assert!(!cursor.next_element());
        prop_assert_eq!(cursor.offset(), text.len());
    }

    #[test]
    fn path_values_match_reference(entity in hostile::entity(), keys in hostile::path()) {
        let text = entity.write();
        let mut actual = Vec::new();
        strata_json::visit_scalars_at(text.as_bytes(), &path(&keys), |scalar| {
            actual.push(Value::from_scalar(scalar));
            ControlFlow::Continue(())
        });
        prop_assert_eq!(actual.iter().collect::<Vec<_>>(), rules::reach(&entity, &keys));

        let mut actual = Vec::new();
        strata_json::visit_values_at(text.as_bytes(), &path(&keys), |value| {
            actual.push(String::from_utf8_lossy(value).into_owned());
            ControlFlow::Continue(())
        });
        let expected: Vec<String> = rules::reach_values(&entity, &keys).into_iter().map(Value::write).collect();
        prop_assert_eq!(actual, expected);

        let mut actual = Vec::new();
        strata_json::visit_all_scalars(text.as_bytes(), |scalar| {
            actual.push(Value::from_scalar(scalar));
            ControlFlow::Continue(())
        });
        prop_assert_eq!(actual.iter().collect::<Vec<_>>(), rules::scalars(&entity));
    }

    #[test]
    fn trie_scalars_match_reference(entity in hostile::entity(), paths in prop::collection::vec(hostile::path(), 1..6)) {
        let text = entity.write();
        let parsed: Vec<FieldPath> = paths.iter().map(|keys| path(keys)).collect();
        let (tree, ends) = PathTrie::from_paths(&parsed);
        let mut walk = WalkRecorder { scalars: vec![Vec::new(); tree.len()], finished: vec![false; tree.len()] };
        tree.visit_scalars(text.as_bytes(), &mut walk);
        for (keys, end) in paths.iter().zip(ends) {
            prop_assert_eq!(walk.scalars[end].iter().collect::<Vec<_>>(), rules::reach(&entity, keys), "{:?}", keys);
        }
    }

    #[test]
    fn trie_values_match_reference(
        entity in hostile::entity(),
        paths in prop::collection::vec((hostile::path(), any::<bool>()), 1..12),
    ) {
        let text = entity.write();
        let parents = paths.iter().filter(|(_, with_parent)| *with_parent).map(|(keys, _)| &keys[..keys.len() - 1]);
        let parents = parents.filter(|keys| !keys.is_empty() && *keys != [""]).map(<[String]>::to_vec);
        let paths: Vec<Vec<String>> = paths.iter().map(|(keys, _)| keys.clone()).chain(parents).collect();
        let parsed: Vec<FieldPath> = paths.iter().map(|keys| path(keys)).collect();
        let (tree, ends) = PathTrie::from_paths(&parsed);
        let mut found = vec![Vec::new(); tree.len()];
        tree.visit_values(text.as_bytes(), |node, value| found[node].push(String::from_utf8_lossy(value).into_owned()));
        for (keys, end) in paths.iter().zip(ends) {
            let expected: Vec<String> = rules::reach_values(&entity, keys).into_iter().map(Value::write).collect();
            prop_assert_eq!(&found[end], &expected, "{:?}", keys);
        }
    }

    #[test]
    fn visit_can_end_search(entity in hostile::entity(), keys in hostile::path(), enough in 1..4_usize) {
        let text = entity.write();
        let mut count = 0;
        strata_json::visit_scalars_at(text.as_bytes(), &path(&keys), |_| {
            count += 1;
            if count == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        prop_assert_eq!(count, rules::reach(&entity, &keys).len().min(enough));
    }

    #[test]
    fn formatted_paths_parse_back(keys in hostile::path(), other in hostile::path(), value in hostile::string()) {
        let other = path(&other);
        let path = path(&keys);
        let text = path.to_string();
        prop_assert_eq!(FieldPath::parse(&text), Ok(path.clone()));
        prop_assert_eq!(FieldPath::parse_list(&format!(" {text} ,, {other}\t")), vec![path.clone(), other]);
        let filter = format!("{text}:{value}");
        prop_assert_eq!(FieldPath::parse_path_value(&filter), Ok((path, value.as_str())));
    }

    #[test]
    fn folding_matches_reference(text in hostile::string(), other in hostile::string()) {
        let whole = format!("{text}{other}");
        let mut folded = Vec::new();
        strata_json::fold_case_into(&text, &mut folded);
        strata_json::fold_case_into(&other, &mut folded);
        prop_assert_eq!(&folded, &rules::fold(&whole).into_bytes());
        prop_assert_eq!(strata_json::fold_case(&whole), rules::fold(&whole));
        let mut from_text = Vec::new();
        with_scalar(&Value::String(whole), |scalar| {
            let JsonScalar::String(text) = scalar else { unreachable!("a string") };
            strata_json::fold_json_str_into(text, &mut from_text);
        });
        prop_assert_eq!(from_text, folded);
    }

    #[test]
    fn strings_are_written_canonically(text in hostile::string()) {
        let mut out = Vec::new();
        strata_json::write_json_string(&text, &mut out);
        prop_assert_eq!(String::from_utf8(out).expect("failed to decode UTF-8"), Value::String(text).write());
    }

    #[test]
    fn numbers_compare_by_value(left in hostile::number(), right in hostile::number()) {
        let fast_left = NumericValue::parse(&left).expect("failed to parse number");
        let fast_right = NumericValue::parse(&right).expect("failed to parse number");
        let expected = number::compare(&left, &right);
        prop_assert_eq!(fast_left.cmp(&fast_right), expected);
        prop_assert_eq!(fast_left == fast_right, expected.is_eq());
        prop_assert_eq!(fast_left.nearest_double(), number::nearest_double(&left));
        // For numbers with remainders, the double and the remainder together order like the values.
        if let (Some(remainder), Some(other)) = (fast_left.double_remainder(), fast_right.double_remainder()) {
            let doubles = fast_left.nearest_double().partial_cmp(&fast_right.nearest_double()).expect("failed to compare doubles");
            prop_assert_eq!(doubles.then(remainder.cmp(&other)), expected);
        }
    }

    #[test]
    fn long_digits_and_exponents_cancel_out(
        (digits, exponent) in ("[0-9]{1,30}|[0-9]{760,810}", -400..400_i64),
        shift in prop_oneof![8 => 0..2_000_i64, 1 => 655_300..655_400_i64, 1 => 99_000..1_000_000_i64],
        (is_small, is_negative) in any::<(bool, bool)>(),
    ) {
        let sign = if is_negative { "-" } else { "" };
        // Formats the same number twice, once with zeros that the exponent cancels.
        let short = format!("{sign}1.{digits}e{exponent}");
        let zeros = "0".repeat(shift as usize);
        let long = match is_small {
            true => format!("{sign}0.{zeros}1{digits}E{:+}", exponent + shift + 1),
            false => format!("{sign}1{digits}{zeros}.0e{}", exponent - shift - digits.len() as i64),
        };
        let [short, long] = [short, long].map(|text| (NumericValue::parse(&text).expect("failed to parse number"), text));
        prop_assert_eq!(&long.0, &short.0);
        prop_assert_eq!(long.0.nearest_double(), number::nearest_double(&long.1));
        let bits = |double: f64| double.to_bits();
        prop_assert_eq!(strata_json::nearest_double(&long.1).map(bits), Some(bits(number::nearest_double(&short.1))));
    }

    #[test]
    fn only_numbers_have_a_value(text in "[-+0-9.eE]{0,8}|[0-9]{1,30}") {
        prop_assert_eq!(NumericValue::parse(&text).is_some(), number::is_number(&text));
    }

    #[test]
    fn predicates_match_reference(scalar in hostile::scalar(), needle in hostile::needle()) {
        let part: String = needle.chars().take(2).collect();
        for needle in [needle, part] {
            let equal = with_scalar(&scalar, |scalar| strata_json::matches_equal(scalar, &EqualsPredicate::new(&needle)));
            prop_assert_eq!(equal, rules::matches_equal(&scalar, &needle), "equal {:?}", needle);
            let contains =
                with_scalar(&scalar, |scalar| strata_json::matches_contains(scalar, &ContainsPredicate::new(&needle)));
            prop_assert_eq!(contains, rules::matches_contains(&scalar, &needle), "contains {:?}", needle);
            in_ranges(&scalar, &needle)?;
        }
    }

    #[test]
    fn predicates_match_reference_on_own_text(scalar in hostile::scalar(), from in 0..3_usize) {
        let text = scalar.text().unwrap_or("null".to_owned()).to_uppercase();
        let part: String = text.chars().skip(from).collect();
        let equal = with_scalar(&scalar, |scalar| strata_json::matches_equal(scalar, &EqualsPredicate::new(&text)));
        prop_assert_eq!(equal, rules::matches_equal(&scalar, &text));
        let contains = with_scalar(&scalar, |scalar| strata_json::matches_contains(scalar, &ContainsPredicate::new(&part)));
        prop_assert_eq!(contains, rules::matches_contains(&scalar, &part));
        for text in [scalar.text().unwrap_or_default(), text, part] {
            in_ranges(&scalar, &text)?;
        }
    }

    #[test]
    fn value_end_is_found_over_any_chunks(
        value in hostile::text(),
        sizes in prop::collection::vec(prop_oneof![1..5_usize, 1..200_usize], 1..10),
    ) {
        let value = value.trim_end();
        let stream = format!("{value},{{\"next\":1}}]");
        let mut scanner = ValueScanner::new();
        let mut fed = 0;
        let mut end = None;
        for size in sizes.iter().cycle() {
            let chunk = &stream.as_bytes()[fed..stream.len().min(fed + size)];
            if let Some(length) = scanner.feed(chunk).expect("failed to scan value") {
                end = Some(fed + length);
                break;
            }
            prop_assert!(!scanner.can_end());
            fed += chunk.len();
        }
        prop_assert_eq!(end, Some(value.len()));
        prop_assert!(scanner.can_end());
    }

    #[test]
    fn removed_nulls_match_reference(entity in hostile::entity()) {
        prop_assert_eq!(run(strata_json::remove_nulls, &entity), rules::denull(&entity).write());
    }

    #[test]
    fn projection_matches_reference(
        entity in hostile::entity(),
        include_source in any::<bool>(),
        denull in any::<bool>(),
        keep in prop::collection::vec(hostile::path(), 0..5),
        drop in prop::collection::vec(hostile::path(), 0..4),
    ) {
        let paths = |lists: &[Vec<String>]| -> Vec<FieldPath> { lists.iter().map(|keys| path(keys)).collect() };
        let source_field = if include_source { SourceField::Include } else { SourceField::Remove };
        let projection = FieldProjection::new(source_field, &paths(&keep), &paths(&drop));
        prop_assert_eq!(projection.is_identity(), include_source && keep.is_empty() && drop.is_empty());

        // The order of the query steps: `include_source`, `denull`, `keep_field`, `drop_field`.
        let mut expected = if include_source { entity.clone() } else { rules::strip_source(&entity) };
        if denull {
            expected = rules::denull(&expected);
        }
        if !keep.is_empty() {
            expected = rules::keep(&expected, &keep);
        }
        expected = rules::drop(&expected, &drop);
        let actual = run(|text, out| {
            let mut clean = Vec::new();
            if denull {
                strata_json::remove_nulls(text, &mut clean);
            } else {
                clean.extend_from_slice(text);
            }
            projection.apply(&clean, out);
        }, &entity);
        prop_assert_eq!(actual, expected.write());
    }

    #[test]
    fn equal_values_have_equal_forms(left in hostile::value(), right in hostile::value(), shape in any::<u64>()) {
        // Any two values, and a value with a variation of itself.
        let [left, right] = [left, right].map(|value| Value::parse(&value.write()).expect("failed to parse text"));
        let varied = vary(&left, shape);
        for other in [&right, &varied] {
            let forms = [&left, other].map(|value| {
                let mut form = Vec::new();
                CanonicalFormWriter::default().write(value.write().as_bytes(), &mut form);
                form
            });
            prop_assert_eq!(forms[0] == forms[1], rules::equal(&left, other), "{} and {}", left.write(), other.write());
        }
    }

    #[test]
    fn canonical_hash_ignores_source(entity in hostile::entity(), shape in any::<u64>(), other in hostile::entity()) {
        let mut hashes = CanonicalFormWriter::default();
        let mut hash = |value: &Value| hashes.hash_without_source_field(value.write().as_bytes());
        let varied = vary(&entity, shape);
        for other in [&other, &varied, &rules::strip_source(&entity)] {
            let equal = rules::equal(&rules::strip_source(&entity), &rules::strip_source(other));
            prop_assert_eq!(hash(&entity) == hash(other), equal);
        }
        prop_assert_eq!(hash(&entity), CanonicalFormWriter::default().hash_without_source_field(entity.write().as_bytes()));
    }

    #[test]
    fn indented_text_matches_reference(entity in hostile::entity(), level in 0..3_usize) {
        let actual = run(|text, out| assert!(strata_json::try_write_indented(text, level, usize::MAX, out)), &entity);
        prop_assert_eq!(&actual, &entity.write_pretty(level));
        let mut again = b"[".to_vec();
        strata_json::try_write_indented(entity.write().as_bytes(), level, usize::MAX, &mut again);
        prop_assert_eq!(String::from_utf8(again).expect("failed to decode UTF-8"), format!("[{actual}"));
    }
}

/// Applies a function to an entity, and checks that it only appends.
fn run(mut step: impl FnMut(&[u8], &mut Vec<u8>), entity: &Value) -> String {
    let mut out = b"before".to_vec();
    step(entity.write().as_bytes(), &mut out);
    String::from_utf8(out).expect("failed to decode UTF-8").strip_prefix("before").expect("failed to append").to_owned()
}

/// Varies a value as the bits of `shape` select: reverses members, changes the spelling of numbers, and sometimes
/// changes the value.
fn vary(value: &Value, shape: u64) -> Value {
    let inner = shape.rotate_right(3);
    match value {
        Value::Number(_) if shape & 7 == 7 => Value::Number("1.0".to_owned()),
        Value::Number(text) if shape & 1 == 1 => match text.contains(['.', 'e', 'E']) {
            true => Value::Number(text.replace('e', "E+0").replace("+0-", "-0").replace("+0+", "+0")),
            false => Value::Number(format!("{text}.0")),
        },
        Value::Array(elements) => Value::Array(elements.iter().map(|element| vary(element, inner)).collect()),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().map(|(key, value)| (key.clone(), vary(value, inner))).collect();
            if shape & 2 == 2 {
                members.reverse();
            }
            Value::Object(members)
        }
        _ => value.clone(),
    }
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(canonicalize(text).expect_err(text).to_string(), expected);
}

#[test]
fn errors_contain_problem_and_offset() {
    check_error("", "byte 0: expected an object, found the end of the text");
    check_error(" [1]", "an entity must be a JSON object, but this is an array");
    check_error("\"a\"", "an entity must be a JSON object, but this is a string");
    check_error("-1", "an entity must be a JSON object, but this is a number");
    check_error("null", "an entity must be a JSON object, but this is null");
    check_error("n", "an entity must be a JSON object, but this is null");
    for text in ["not json", "nulls", "truth", "fals e"] {
        let first = text.chars().next();
        check_error(text, &format!("byte 0: expected an object, found {:?}", first.expect("failed to get letter")));
    }
    check_error("hello", "byte 0: expected an object, found 'h'");
    check_error("{} x", "byte 3: text after the end of the object");
    check_error("{\"a\":1", "byte 6: expected a comma or a closing brace, found the end of the text");
    check_error("{\"a\":[1", "byte 7: expected a comma or a closing bracket, found the end of the text");
    check_error("{\"a", "byte 3: expected a closing quote, found the end of the text");
    check_error("{\"a\" 1}", "byte 5: expected a colon, found '1'");
    check_error("{\"a\":1,}", "byte 7: expected a key in quotes, found '}'");
    check_error("{ä:1}", "byte 1: expected a key in quotes, found 'ä'");
    check_error("{\"a\":nul}", "byte 5: expected a value, found 'n'");
    check_error("{\"a\":01}", "byte 6: invalid JSON number");
    check_error("{\"a\":+1}", "byte 5: invalid JSON number");
    check_error("{\"a\":.5}", "byte 5: invalid JSON number");
    check_error("{\"a\":1.}", "byte 7: invalid JSON number");
    check_error("{\"a\":1e}", "byte 7: invalid JSON number");
    check_error("{\"a\":-}", "byte 6: invalid JSON number");
    check_error("{\"a\":\"\\x\"}", "byte 6: invalid JSON escape");
    check_error("{\"a\":\"\\u12\"}", "byte 6: invalid JSON escape");
    check_error("{\"a\":\"\\ud83d\"}", "byte 6: unpaired surrogate");
    check_error("{\"a\":\"\\ude00\"}", "byte 6: unpaired surrogate");
    check_error("{\"a\":\"\\ud83d\\u0041\"}", "byte 6: unpaired surrogate");
    check_error("{\"a\":\"\n\"}", "byte 6: a control character (0x0a) in a string must be escaped");
    assert_eq!(canonicalize(b"{\"a\":\"\xff\"}"), Err(DocumentError::NotUtf8 { offset: 6 }));
    assert_eq!(canonicalize(b"{\"a\":\"\xed\xa0\x80\"}"), Err(DocumentError::NotUtf8 { offset: 6 }));
}

#[test]
fn escapes_become_canonical() {
    let text = r#" { "\u0061\/\u00e4" : "\u0022\u005c\/\u0008\f\u000A\r\t\u001F\u007f\ud83d\ude00\u00e4" , "n" : [ -0 , 1E+5 ] } "#;
    let expected = "{\"a/ä\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\u{7f}😀ä\",\"n\":[-0,1E+5]}";
    assert_eq!(canonicalize(text).as_deref(), Ok(expected));
}

#[test]
fn duplicate_keys_keep_first_position_and_last_value() {
    let text = r#"{"a":1,"b":{"x":1,"\u0078":[2]},"\u0061":{"a":3,"a":4},"c":5,"b":6,"a":7}"#;
    assert_eq!(canonicalize(text).as_deref(), Ok(r#"{"a":7,"b":6,"c":5}"#));
    let text = r#"{"a":{"x":1,"y":2,"x":3},"b":{"x":1,"\u0078":[2]}}"#;
    assert_eq!(canonicalize(text).as_deref(), Ok(r#"{"a":{"x":3,"y":2},"b":{"x":[2]}}"#));
}

#[test]
fn many_keys_with_one_hash_are_resolved() {
    // The keys differ only in the middle, so their hashes are equal.
    let key = |number: usize| format!("\"commonstart{number:06}commonend\"");
    let member = |number: usize| format!("{}:{number}", key(number));
    let distinct: Vec<String> = (0..100_000).map(member).collect();
    let text = format!("{{{}}}", distinct.join(","));
    assert_eq!(canonicalize(&text), Ok(text.clone()));
    let repeated = format!("{{{},{}:\"last\"}}", distinct.join(","), key(77));
    let expected = text.replacen(&member(77), &format!("{}:\"last\"", key(77)), 1);
    assert_eq!(canonicalize(&repeated), Ok(expected));
}

#[test]
fn nesting_depth_is_limited() {
    let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let deepest = nested(strata_json::MAX_NESTING_DEPTH);
    assert_eq!(canonicalize(&deepest), Ok(deepest.clone()));
    assert_eq!(canonicalize(nested(129)), Err(DocumentError::TooDeep { offset: 132 }));
    assert_eq!(ValueScanner::new().feed(deepest.as_bytes()), Ok(Some(deepest.len())));
    assert_eq!(ValueScanner::new().feed(nested(129).as_bytes()), Err(DocumentError::TooDeep { offset: 132 }));
    // Text that was never validated must not exhaust the stack.
    let endless = format!("{{\"a\":{}", "[".repeat(1_000_000));
    strata_json::visit_scalars_at(endless.as_bytes(), &FieldPath::parse("a.b").expect("failed to parse path"), |_| {
        ControlFlow::Continue(())
    });
    strata_json::visit_scalars_at(endless.as_bytes(), &FieldPath::parse("a").expect("failed to parse path"), |_| {
        ControlFlow::Continue(())
    });
    let paths = ["a", "a.b", "a.c"].map(|path| FieldPath::parse(path).expect("failed to parse path"));
    let (tree, _) = PathTrie::from_paths(&paths);
    tree.visit_scalars(
        endless.as_bytes(),
        &mut WalkRecorder { scalars: vec![Vec::new(); tree.len()], finished: vec![false; tree.len()] },
    );
    tree.visit_values(endless.as_bytes(), |_, _| {});
    let mut out = Vec::new();
    strata_json::remove_nulls(format!("{endless}null").as_bytes(), &mut out);
    CanonicalFormWriter::default().write(endless.as_bytes(), &mut out);
    FieldProjection::new(SourceField::Remove, &[], &[FieldPath::parse("a.b").expect("failed to parse path")])
        .apply(endless.as_bytes(), &mut out);
}

#[test]
fn scanner_finds_end_of_any_value() {
    let feed = |text: &str| ValueScanner::new().feed(text.as_bytes());
    assert_eq!(feed("  12.5e3,"), Ok(Some(8)));
    assert_eq!(feed("true]"), Ok(Some(4)));
    assert_eq!(feed("null\n"), Ok(Some(4)));
    assert_eq!(feed("\"a\\\"]\" ,"), Ok(Some(6)));
    assert_eq!(feed("[]{}"), Ok(Some(2)));
    assert_eq!(feed("12"), Ok(None));
    assert_eq!(feed(" \n"), Ok(None));
    assert!(matches!(feed(" ]"), Err(DocumentError::UnexpectedCharacter { offset: 1, .. })));
    let mut scanner = ValueScanner::new();
    assert!(scanner.is_before_value());
    assert_eq!(scanner.feed(b"\"a\\"), Ok(None));
    assert!(!scanner.can_end() && !scanner.is_before_value());
    assert_eq!(scanner.feed(b"\"b\"x"), Ok(Some(3)));
    assert_eq!(scanner.feed(b"x"), Ok(Some(0)));
    // Offsets count from the first byte of the stream.
    let mut scanner = ValueScanner::new();
    assert_eq!(scanner.feed(&[b'['; 100]), Ok(None));
    assert_eq!(scanner.feed(&[b'['; 100]), Err(DocumentError::TooDeep { offset: 128 }));
}

#[test]
fn removal_and_projection_examples() {
    let check = |step: fn(&[u8], &mut Vec<u8>), text: &str, expected: &str| {
        let mut out = Vec::new();
        step(text.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).expect("failed to decode UTF-8"), expected);
    };
    check(
        strata_json::remove_nulls,
        r#"{"a":null,"b":[{"x":null},[""],[]],"c":[null,[""]],"d":{"e":""},"f":[],"g":"null"}"#,
        r#"{"b":[{},[]],"d":{},"f":[],"g":"null"}"#,
    );
    let keep = |text: &str, list: &str| {
        let mut out = Vec::new();
        FieldProjection::new(SourceField::Include, &FieldPath::parse_list(list), &[]).apply(text.as_bytes(), &mut out);
        String::from_utf8(out).expect("failed to decode UTF-8")
    };
    let text = r#"{"_source":"s","a.b":1,"a":{"b":2,"c":[{"d":1,"e":2},3,[{"d":4}]]}}"#;
    assert_eq!(keep(text, r"a, a.b, a\.b"), r#"{"a.b":1,"a":{"b":2,"c":[{"d":1,"e":2},3,[{"d":4}]]}}"#);
    assert_eq!(keep(text, "a.c.d,_source"), r#"{"_source":"s","a":{"c":[{"d":1},[{"d":4}]]}}"#);
    assert_eq!(keep(text, "_source.x,a.b.x"), r#"{"a":{}}"#);
}

#[test]
fn canonical_hash_ignores_key_order() {
    let hash = |text: &str| CanonicalFormWriter::default().hash_without_source_field(text.as_bytes());
    let first = r#"{"_source":"1","description_en":1,"description_de":{"b":1.0,"a":[2e0]},"description":0,"a":-0}"#;
    let second = r#"{"a":0.0,"description":0,"description_de":{"a":[2],"b":1},"description_en":10e-1,"_source":"2"}"#;
    assert_eq!(hash(first), hash(second));
    assert_ne!(hash(first), hash(&first.replace("[2e0]", "[2e0,null]")));
    assert_ne!(hash(first), hash(&first.replace("\"a\":-0", "\"a\":\"0\"")));
}

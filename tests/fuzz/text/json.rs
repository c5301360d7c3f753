//! Arbitrary bytes as one entity: validity, canonical text, and all functions that write documents.

use std::cell::RefCell;

use strata_json::{JsonCanonicalizer, JsonCursor, ValueScanner};
use strata_reference::{Value, rules};

thread_local! {
    // One canonicalizer for all inputs, because it must not remember earlier ones.
    static CANONICALIZER: RefCell<JsonCanonicalizer> = RefCell::default();
}

pub fn check(bytes: &[u8]) {
    let expected = match std::str::from_utf8(bytes) {
        Ok(text) => Value::parse_entity(text),
        Err(error) => Err(error.to_string()),
    };
    let mut out = b"before".to_vec();
    let result = CANONICALIZER.with(|canonicalizer| canonicalizer.borrow_mut().canonicalize(bytes, &mut out));
    check_scanner(bytes, result.is_ok());
    check_serde_json(bytes, result.is_ok());
    match (result, expected) {
        (Ok(()), Ok(value)) => {
            assert_eq!(String::from_utf8_lossy(&out[6..]), value.write());
            check_writers(&out[6..], &value);
        }
        (Err(error), Err(_)) => {
            assert_eq!(out, b"before", "an error leaves the output as it was");
            assert!(!error.to_string().contains('\n'), "{error}");
            check_arbitrary_bytes(bytes);
        }
        (found, expected) => panic!("{found:?} for {expected:?}"),
    }
}

/// Checks that the scanner finds the end of the value regardless of the chunk size.
fn check_scanner(bytes: &[u8], valid: bool) {
    let mut whole = ValueScanner::new();
    let end = whole.feed(bytes);
    for size in [1, 3, 64, 65] {
        let mut scanner = ValueScanner::new();
        let mut before = 0;
        let mut found = Ok(None);
        for chunk in bytes.chunks(size) {
            found = scanner.feed(chunk).map(|end| end.map(|end| before + end));
            if !matches!(found, Ok(None)) {
                break;
            }
            before += chunk.len();
        }
        assert_eq!(found, end, "in pieces of {size}");
        if end == Ok(None) {
            assert_eq!((scanner.can_end(), scanner.is_before_value()), (whole.can_end(), whole.is_before_value()));
        }
    }
    if valid {
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let length = bytes.len() - bytes.iter().rev().take_while(blank).count();
        assert_eq!(end, Ok(Some(length)));
    }
}

/// Checks that the parser accepts the same entities as serde_json, except for very deep ones.
fn check_serde_json(bytes: &[u8], valid: bool) {
    // With arbitrary precision, serde_json treats a key with this name as a number.
    if memchr::memmem::find(bytes, b"$serde_json").is_some() {
        return;
    }
    let taken = serde_json::from_slice::<serde_json::Value>(bytes).is_ok_and(|value| value.is_object());
    let opened = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    // serde_json rejects values from level 128, which the service accepts.
    assert!(taken == valid || (!taken && opened >= 128), "serde_json: {taken}");
}

/// Checks that all functions that write a document agree with the reference.
fn check_writers(document: &[u8], value: &Value) {
    let written = |write: &dyn Fn(&[u8], &mut Vec<u8>)| {
        let mut out = Vec::new();
        write(document, &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    let again = |text: &[u8], out: &mut Vec<u8>| strata_json::canonicalize(text, out).expect("canonical");
    assert_eq!(written(&again).as_bytes(), document, "canonical text is its own");
    assert_eq!(
        written(&|text, out| assert!(strata_json::try_write_indented(text, 0, usize::MAX, out))),
        value.write_pretty(0)
    );
    assert_eq!(written(&strata_json::remove_nulls), rules::denull(value).write());

    let form = |document: &[u8]| {
        let mut out = Vec::new();
        strata_json::CanonicalFormWriter::default().write(document, &mut out);
        out
    };
    assert_eq!(
        form(document),
        form(with_reversed_members(value).write().as_bytes()),
        "the order of keys does not count"
    );
    let stripped = rules::strip_source(value).write();
    assert_eq!(
        strata_json::CanonicalFormWriter::default().hash_without_source_field(document),
        strata_json::CanonicalFormWriter::default().hash_without_source_field(stripped.as_bytes())
    );
}

/// Returns the value with the members of all objects in reverse order.
fn with_reversed_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members.iter().rev().map(|(key, value)| (key.clone(), with_reversed_members(value))).collect(),
        ),
        Value::Array(elements) => Value::Array(elements.iter().map(with_reversed_members).collect()),
        scalar => scalar.clone(),
    }
}

/// Checks that functions for canonical text end without a panic for any bytes, because a damaged file can contain any.
fn check_arbitrary_bytes(bytes: &[u8]) {
    assert!(JsonCursor::new(bytes).take(bytes.len() + 2).count() <= bytes.len() + 1);
    let mut out = Vec::new();
    strata_json::remove_nulls(bytes, &mut out);
    strata_json::CanonicalFormWriter::default().write(bytes, &mut out);
    strata_json::try_write_indented(bytes, 0, usize::MAX, &mut out);
    strata_json::visit_all_scalars(bytes, |_| std::ops::ControlFlow::Continue(()));
    strata_json::find_member(bytes, "a");
}

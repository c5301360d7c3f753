//! Any bytes as one entity: what is valid, its canonical text, and what is written of it.

use std::cell::RefCell;

use strata_json::{Canonicalizer, Cursor, ValueScanner};
use strata_reference::{Value, rules};

thread_local! {
    // One for all inputs: it must remember nothing of the ones before.
    static CANONICALIZER: RefCell<Canonicalizer> = RefCell::default();
}

pub fn check(bytes: &[u8]) {
    let expected = match std::str::from_utf8(bytes) {
        Ok(text) => Value::parse_entity(text),
        Err(error) => Err(error.to_string()),
    };
    let mut out = b"before".to_vec();
    let result = CANONICALIZER.with(|canonicalizer| canonicalizer.borrow_mut().canonicalize(bytes, &mut out));
    ends_are_found(bytes, result.is_ok());
    serde_agrees(bytes, result.is_ok());
    match (result, expected) {
        (Ok(()), Ok(value)) => {
            assert_eq!(String::from_utf8_lossy(&out[6..]), value.write());
            writes(&out[6..], &value);
        }
        (Err(error), Err(_)) => {
            assert_eq!(out, b"before", "an error leaves the output as it was");
            assert!(!error.to_string().contains('\n'), "{error}");
            ends_whatever_the_bytes(bytes);
        }
        (found, expected) => panic!("{found:?} for {expected:?}"),
    }
}

/// The end of the value is the same however the stream is cut.
fn ends_are_found(bytes: &[u8], valid: bool) {
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
            assert_eq!((scanner.may_end(), scanner.is_empty()), (whole.may_end(), whole.is_empty()));
        }
    }
    if valid {
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let length = bytes.len() - bytes.iter().rev().take_while(blank).count();
        assert_eq!(end, Ok(Some(length)));
    }
}

/// What a well-kept library takes is taken, and the other way round but for very deep ones.
fn serde_agrees(bytes: &[u8], valid: bool) {
    // With its arbitrary precision, serde_json gives a key of this name a meaning of its own.
    if memchr::memmem::find(bytes, b"$serde_json").is_some() {
        return;
    }
    let taken = serde_json::from_slice::<serde_json::Value>(bytes).is_ok_and(|value| value.is_object());
    let opened = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    // It stops at level 128, which is one of ours.
    assert!(taken == valid || (!taken && opened >= 128), "serde_json: {taken}");
}

/// What is written of a document is what the reference writes.
fn writes(document: &[u8], value: &Value) {
    let written = |write: &dyn Fn(&[u8], &mut Vec<u8>)| {
        let mut out = Vec::new();
        write(document, &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    let again = |text: &[u8], out: &mut Vec<u8>| strata_json::canonicalize(text, out).expect("canonical");
    assert_eq!(written(&again).as_bytes(), document, "canonical text is its own");
    assert_eq!(
        written(&|text, out| assert!(strata_json::pretty_within(text, 0, usize::MAX, out))),
        value.write_pretty(0)
    );
    assert_eq!(written(&strata_json::denull), rules::denull(value).write());

    let form = |document: &[u8]| {
        let mut out = Vec::new();
        strata_json::CanonicalForm::default().write(document, &mut out);
        out
    };
    assert_eq!(form(document), form(reversed(value).write().as_bytes()), "the order of keys does not count");
    let stripped = rules::strip_source(value).write();
    assert_eq!(
        strata_json::CanonicalForm::default().hash(document),
        strata_json::CanonicalForm::default().hash(stripped.as_bytes())
    );
}

/// The same members in another order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect())
        }
        Value::Array(elements) => Value::Array(elements.iter().map(reversed).collect()),
        scalar => scalar.clone(),
    }
}

/// What reads canonical text comes to an end with any bytes, without a panic: a damaged file can hold them.
fn ends_whatever_the_bytes(bytes: &[u8]) {
    assert!(Cursor::new(bytes).take(bytes.len() + 2).count() <= bytes.len() + 1);
    let mut out = Vec::new();
    strata_json::denull(bytes, &mut out);
    strata_json::CanonicalForm::default().write(bytes, &mut out);
    strata_json::pretty_within(bytes, 0, usize::MAX, &mut out);
    strata_json::scalars(bytes, |_| std::ops::ControlFlow::Continue(()));
    strata_json::member(bytes, "a");
}

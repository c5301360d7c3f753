//! Display of errors with their causes.

use strata_types::error_chain::ErrorChain;

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Layer {
    text: &'static str,
    source: Option<Box<Layer>>,
}

#[track_caller]
fn check(texts: &[&'static str], expected: &str) {
    let error = texts.iter().rev().fold(None, |source, text| Some(Box::new(Layer { text, source })));
    assert_eq!(ErrorChain(&*error.expect("failed to build chain")).to_string(), expected);
}

#[test]
fn error_chain_is_one_line_without_repetition() {
    check(&["disk full"], "disk full");
    check(&["cannot read the page", "cannot read the page", "disk gone"], "cannot read the page: disk gone");
    check(&["not available", "not available: disk gone"], "not available: disk gone");
    check(
        &["opening failed", "store: disk full\n  (at /data)", "disk full\n  (at /data)", "no space"],
        "opening failed: store: disk full (at /data): no space",
    );
}

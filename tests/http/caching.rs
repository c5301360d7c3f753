//! `If-None-Match`: whether a client has the response, tested with the OpenAPI document.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Request};
use axum::response::Response;
use futures::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower::ServiceExt;

use crate::clients::services;

static ROUTER: LazyLock<Router> = LazyLock::new(|| strata_http::router(services(|_| ())));

/// The etag of the uncompressed document, without its quotation marks.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let response = get_document(&[]);
    assert_eq!(response.status(), 200);
    response.headers()[ETAG].to_str().expect("invalid UTF-8").trim_matches('"').to_owned()
});

fn get_document(lines: &[HeaderValue]) -> Response {
    let mut request = Request::get("/openapi.json").body(Body::empty()).expect("invalid request");
    for line in lines {
        request.headers_mut().append(IF_NONE_MATCH, line.clone());
    }
    let response = ROUTER.clone().oneshot(request).now_or_never().expect("unexpected wait");
    response.expect("missing response")
}

/// Whether the service returns 304 for these lines. The letter `a` stands for the etag of the document.
fn is_not_modified(lines: &[&[u8]]) -> bool {
    let line = |line: &&[u8]| {
        let bytes = line.iter().flat_map(|byte| match byte {
            b'a' => TAG.as_bytes().to_vec(),
            b'A' => TAG.to_uppercase().into_bytes(),
            other => vec![*other],
        });
        HeaderValue::from_bytes(&bytes.collect::<Vec<u8>>()).expect("invalid header value")
    };
    match get_document(&lines.iter().map(line).collect::<Vec<_>>()).status().as_u16() {
        200 => false,
        304 => true,
        status => panic!("{status} for {lines:?}"),
    }
}

#[test]
fn if_none_match_accepts_all_etag_forms() {
    let one_line = "\"a\"|W/\"a\"|*| * |\"b\", \"a\"|\"b\",W/\"a\",\"c\"|,, \"b\" ,\t,\"a\",";
    for line in one_line.split('|') {
        assert!(is_not_modified(&[line.as_bytes()]), "{line}");
    }
    let lines: [&[&[u8]]; 3] = [&[b"\"b\"", b"\"a\""], &[b"garbage", b"\"a\""], &[b"\"b,\xffc\", \"a\""]];
    for lines in lines {
        assert!(is_not_modified(lines), "{lines:?}");
    }
    let others = "|a|\"A\"|\"ab\"|\"\"|\"b\"|w/\"a\"|W/ \"a\"|\"a|\"b\" \"a\"|\"a\"x|\"b,\"a\"|\"b\", *";
    for line in others.split('|') {
        assert!(!is_not_modified(&[line.as_bytes()]), "{line}");
    }
    assert!(!is_not_modified(&[]));
}

/// A line, and whether it contains `"a"`.
fn line() -> impl Strategy<Value = (String, bool)> {
    let tag = ("(W/)?", select(&["a", "b", "a,b", ",", "", "aa", "A", "a-gzip", "'", "\\"]));
    let separator = select(&[",", ", ", " ,", ",,", "\t, ,\t"]);
    vec((tag, separator), 0..6).prop_map(|tags| {
        let holds = tags.iter().any(|((_, tag), _)| *tag == "a");
        let mut line = String::new();
        for ((weak, tag), separator) in tags {
            line.push_str(&format!("{weak}\"{tag}\"{separator}"));
        }
        (line, holds)
    })
}

proptest! {
    #[test]
    fn etag_lists_are_parsed_as_written(lines in vec(line(), 0..4)) {
        let texts: Vec<&[u8]> = lines.iter().map(|(text, _)| text.as_bytes()).collect();
        prop_assert_eq!(is_not_modified(&texts), lines.iter().any(|(_, holds)| *holds));
    }

    #[test]
    fn any_bytes_do_not_panic(line in vec(prop_oneof![any::<u8>(), select(b"\"W/, *a".as_slice())], 0..40)) {
        if HeaderValue::from_bytes(&line).is_ok() {
            is_not_modified(&[&line]);
        }
    }
}

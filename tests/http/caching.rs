//! `If-None-Match`: whether a client has the response, with the OpenAPI document as the response.

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

/// The tag of the document that has no compression, without its quotation marks.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let response = requested(&[]);
    assert_eq!(response.status(), 200);
    response.headers()[ETAG].to_str().expect("text").trim_matches('"').to_owned()
});

fn requested(lines: &[HeaderValue]) -> Response {
    let mut request = Request::get("/openapi.json").body(Body::empty()).expect("a request");
    for line in lines {
        request.headers_mut().append(IF_NONE_MATCH, line.clone());
    }
    let response = ROUTER.clone().oneshot(request).now_or_never().expect("nothing to wait for");
    response.expect("a response")
}

/// Whether a client with these lines has the document. The letter `a` stands for its tag.
fn held(lines: &[&[u8]]) -> bool {
    let line = |line: &&[u8]| {
        let bytes = line.iter().flat_map(|byte| match byte {
            b'a' => TAG.as_bytes().to_vec(),
            b'A' => TAG.to_uppercase().into_bytes(),
            other => vec![*other],
        });
        HeaderValue::from_bytes(&bytes.collect::<Vec<u8>>()).expect("a header value")
    };
    match requested(&lines.iter().map(line).collect::<Vec<_>>()).status().as_u16() {
        200 => false,
        304 => true,
        status => panic!("{status} for {lines:?}"),
    }
}

#[test]
fn a_tag_is_found_in_any_form_that_a_client_may_send() {
    let one_line = "\"a\"|W/\"a\"|*| * |\"b\", \"a\"|\"b\",W/\"a\",\"c\"|,, \"b\" ,\t,\"a\",";
    for line in one_line.split('|') {
        assert!(held(&[line.as_bytes()]), "{line}");
    }
    let lines: [&[&[u8]]; 3] = [&[b"\"b\"", b"\"a\""], &[b"garbage", b"\"a\""], &[b"\"b,\xffc\", \"a\""]];
    for lines in lines {
        assert!(held(lines), "{lines:?}");
    }
    let others = "|a|\"A\"|\"ab\"|\"\"|\"b\"|w/\"a\"|W/ \"a\"|\"a|\"b\" \"a\"|\"a\"x|\"b,\"a\"|\"b\", *";
    for line in others.split('|') {
        assert!(!held(&[line.as_bytes()]), "{line}");
    }
    assert!(!held(&[]));
}

/// A line and whether it holds `"a"`.
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
    fn lists_are_read_as_they_were_written(lines in vec(line(), 0..4)) {
        let texts: Vec<&[u8]> = lines.iter().map(|(text, _)| text.as_bytes()).collect();
        prop_assert_eq!(held(&texts), lines.iter().any(|(_, holds)| *holds));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(line in vec(prop_oneof![any::<u8>(), select(b"\"W/, *a".as_slice())], 0..40)) {
        if HeaderValue::from_bytes(&line).is_ok() {
            held(&[&line]);
        }
    }
}

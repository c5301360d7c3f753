//! What answers hold until their readers have taken them: it is accounted for, whatever the mean size of a version's
//! entities promised.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::json;
use strata_diff::DiffPage;
use strata_encode::ContentCoding;
use strata_reference::coding::decoded;
use strata_service::{AnswerBody, DiffForm, DiffSides};
use strata_testing::TestService;
use strata_testing::owned::{Owned, add_user, call};
use strata_types::ids::DatasetId;
use strata_types::user::Plan;
use strata_types::version::{VersionNumber, VersionSelector};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// Text that hardly compresses.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let digits = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 59) as u8 % 26)
    });
    digits.take(bytes).collect()
}

/// The answer, of which nothing is read yet.
async fn begun(service: &TestService, uri: &str, coding: &str) -> Response<Body> {
    let request = Request::get(uri).header("accept-encoding", coding).body(Body::empty()).expect("a request");
    let response = service.respond(request).await;
    assert_eq!(response.status(), 200, "{uri}");
    response
}

#[tokio::test]
async fn whole_bodies_are_accounted_by_what_they_became() {
    const LARGE_BYTES: usize = 400 << 10;
    let service = TestService::start().await;
    let small: String = (1..20_000).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    service.import("Mixed", &format!("{{\"n\":0,\"text\":\"{}\"}}\n{small}", noise(LARGE_BYTES))).await;
    let load = || service.services.load().buffered_bytes;
    let uri = "/api/1/mixed/v1/?limit=3&pretty=false";

    let plain = begun(&service, uri, "identity").await;
    let size = plain.body().size_hint().exact().expect("a whole body");
    assert!(size > LARGE_BYTES as u64);
    assert_eq!(load(), size);
    drop(plain);
    assert_eq!(load(), 0);

    // Compressed, too, and once for all who are sent what is kept.
    let made = begun(&service, uri, "gzip").await;
    let size = made.body().size_hint().exact().expect("a whole body");
    assert!(size > 64 << 10, "{size}");
    assert_eq!(load(), size);
    drop(made);
    assert_eq!(load(), 0, "what is kept does not count as sent");
    let kept = [begun(&service, uri, "gzip").await, begun(&service, uri, "gzip").await];
    assert_eq!(load(), size);
    drop(kept);
    assert!(service.is_idle());
}

#[tokio::test]
async fn names_of_columns_count_as_part_of_a_body() {
    let service = TestService::start().await;
    let name = |number: usize| format!("\"{number:01000}\":1");
    let wide = format!("{{{}}}\n", (0..4_500).map(name).collect::<Vec<_>>().join(","));
    let small: String = (0..20_000).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    service.import("Wide", &format!("{wide}{small}")).await;
    let answer = begun(&service, "/api/1/wide/v1/?limit=2&format=csv", "identity").await;
    assert_eq!(answer.body().size_hint().exact(), None, "it is streamed");
    assert!(answer.into_body().collect().await.expect("a body").to_bytes().len() > 4_500_000);
}

#[tokio::test]
async fn records_of_a_diff_that_are_large_are_streamed_however_small_the_mean() {
    let owned = Owned::sqlite().await;
    let text = noise(300 << 10);
    let version = |salt: u64| {
        let large = (0..10).map(|number| json!({"id": number, "salt": salt, "text": text}).to_string());
        let small = (10..20_000).map(|number| json!({"id": number}).to_string());
        format!("[{}]", large.chain(small).collect::<Vec<_>>().join(","))
    };
    let id = owned.dataset("Things", json!({}), &[&version(1), &version(2)]).await;
    let (services, [v1, v2]) = (&owned.service.services, [1, 2].map(VersionNumber::new).map(VersionSelector::Number));
    let sides = DiffSides { v1, v2, alt: false };
    let diff = services.diffs.compare(Some(&owned.user), DatasetId::new(id), sides).await.expect("a diff");
    assert_eq!(diff.count(None), 10);
    let page = DiffPage::default();
    let answer = diff.answer(&page, DiffForm::Result, ContentCoding::Identity).await.expect("an answer");
    assert!(matches!(answer.body, AnswerBody::Stream(_)), "6 MB are streamed");
    drop(answer);
    let answer = owned.call("GET", &format!("/dataset/diff?dataset_id={id}&v1=1&v2=2"), "").await;
    let result: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(result["records"].as_array().map(Vec::len), Some(10));
    assert!(owned.service.is_idle());
}

#[tokio::test]
async fn without_memory_for_a_compressor_a_stream_is_plain_and_tagged_so() {
    let service = TestService::configured(|config| config.query.memory_bytes = Some(16 << 20)).await;
    let entities: String = (0..60_000).map(|number| format!("{{\"n\":{number},\"text\":\"some text\"}}\n")).collect();
    service.import("Large", &entities).await;
    let uri = "/api/1/large/v1/?format=jsonl";
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(begun(&service, uri, "zstd").await);
    }
    let mut seen = Vec::new();
    for answer in answers {
        let coding =
            answer.headers().get(header::CONTENT_ENCODING).map(|coding| coding.to_str().expect("ASCII").to_owned());
        let etag = answer.headers()[header::ETAG].to_str().expect("ASCII").to_owned();
        assert_eq!(etag.ends_with("-zstd\""), coding.is_some(), "{etag}");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let body = coding.as_deref().map_or_else(|| body.to_vec(), |coding| decoded(coding, &body));
        assert!(body == entities.as_bytes());
        seen.push(coding);
    }
    assert_eq!((seen[0].as_deref(), seen[3].as_deref()), (Some("zstd"), None), "{seen:?}");
    // Once they have been sent, there is memory again.
    let again = begun(&service, uri, "zstd").await;
    assert_eq!(again.headers()[header::CONTENT_ENCODING], "zstd");
}

/// A body that is announced and does not come.
struct Announced(u64);

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn large_bodies_of_calls_take_turns() {
    const LARGEST_BYTES: usize = 2 << 20;
    let owned = Owned::start(|config| config.query.heavy_wait_s = 1).await;
    let (other, token) = add_user(&owned.service, "bob@strata.test", Plan::Pro).await;
    assert!(other.id != owned.user.id);
    for path in ["/dataset/unpin", "/mcp"] {
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.header("authorization", format!("Bearer {}", owned.token));
            let request = request.body(Body::new(Announced(LARGEST_BYTES as u64))).expect("a request");
            let answering = owned.service.router().oneshot(request);
            waiting.spawn(async move { answering.await.expect("an answer").status() });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let large = format!("{{\"dataset_id\":7}}{}", " ".repeat(100 << 10));
        let refused = owned.call("POST", path, &large).await;
        assert_eq!(
            (refused.status, refused.header("retry-after").is_some()),
            (503, path != "/mcp"),
            "{}",
            refused.text()
        );
        // What is small needs no room, and others have some.
        assert!(owned.call("POST", path, "{\"dataset_id\":7}").await.status < 500);
        assert!(call(&owned.service, &token, "POST", path, &large).await.status < 500);
        waiting.shutdown().await;
        assert!(owned.call("POST", path, &large).await.status < 500);
    }
}

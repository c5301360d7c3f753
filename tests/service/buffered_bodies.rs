//! Memory of request and response bodies: responses are charged by their real size until their readers have received
//! them, regardless of the mean size of entities.

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
use strata_service::{DiffFormat, DiffSides, ResponseBody};
use strata_testing::TestService;
use strata_testing::owned::{Owned, add_user, call};
use strata_types::ids::DatasetId;
use strata_types::user::UserPlan;
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

/// Returns a response whose body is not read yet.
async fn start_response(service: &TestService, uri: &str, coding: &str) -> Response<Body> {
    let request = Request::get(uri).header("accept-encoding", coding).body(Body::empty()).expect("a request");
    let response = service.respond(request).await;
    assert_eq!(response.status(), 200, "{uri}");
    response
}

#[tokio::test]
async fn whole_bodies_are_charged_by_encoded_size() {
    const LARGE_BYTES: usize = 400 << 10;
    let service = TestService::start().await;
    let small: String = (1..20_000).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    service.import("Mixed", &format!("{{\"n\":0,\"text\":\"{}\"}}\n{small}", noise(LARGE_BYTES))).await;
    let load = || service.services.current_load().buffered_bytes;
    let uri = "/api/1/mixed/v1/?limit=3&pretty=false";

    let plain = start_response(&service, uri, "identity").await;
    let size = plain.body().size_hint().exact().expect("a whole body");
    assert!(size > LARGE_BYTES as u64);
    assert_eq!(load(), size);
    drop(plain);
    assert_eq!(load(), 0);

    // A compressed body is charged, too. A cached body is charged once for all readers.
    let first = start_response(&service, uri, "gzip").await;
    let size = first.body().size_hint().exact().expect("a whole body");
    assert!(size > 64 << 10, "{size}");
    assert_eq!(load(), size);
    drop(first);
    assert_eq!(load(), 0, "a cached body is not charged as buffered");
    let cached = [start_response(&service, uri, "gzip").await, start_response(&service, uri, "gzip").await];
    assert_eq!(load(), size);
    drop(cached);
    assert!(service.is_idle());
}

#[tokio::test]
async fn body_with_long_column_names_is_streamed() {
    let service = TestService::start().await;
    let name = |number: usize| format!("\"{number:01000}\":1");
    let wide = format!("{{{}}}\n", (0..4_500).map(name).collect::<Vec<_>>().join(","));
    let small: String = (0..20_000).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    service.import("Wide", &format!("{wide}{small}")).await;
    let answer = start_response(&service, "/api/1/wide/v1/?limit=2&format=csv", "identity").await;
    assert_eq!(answer.body().size_hint().exact(), None, "the body is streamed");
    assert!(answer.into_body().collect().await.expect("a body").to_bytes().len() > 4_500_000);
}

#[tokio::test]
async fn large_diff_records_are_streamed_despite_small_mean() {
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
    assert_eq!(diff.change_count(None), 10);
    let page = DiffPage::default();
    let answer = diff.page_response(&page, DiffFormat::Json, ContentCoding::Identity).await.expect("an answer");
    assert!(matches!(answer.body, ResponseBody::Stream(_)), "6 MB are streamed");
    drop(answer);
    let answer = owned.call("GET", &format!("/dataset/diff?dataset_id={id}&v1=1&v2=2"), "").await;
    let result: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(result["records"].as_array().map(Vec::len), Some(10));
    assert!(owned.service.is_idle());
}

#[tokio::test]
async fn stream_without_compressor_memory_is_plain() {
    let service = TestService::configured(|config| config.query.memory_bytes = Some(16 << 20)).await;
    let entities: String = (0..60_000).map(|number| format!("{{\"n\":{number},\"text\":\"some text\"}}\n")).collect();
    service.import("Large", &entities).await;
    let uri = "/api/1/large/v1/?format=jsonl";
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(start_response(&service, uri, "zstd").await);
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
    // After the responses have been sent, there is memory again.
    let again = start_response(&service, uri, "zstd").await;
    assert_eq!(again.headers()[header::CONTENT_ENCODING], "zstd");
}

/// A body with a declared length that sends nothing.
struct StalledBody(u64);

impl http_body::Body for StalledBody {
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
async fn large_request_bodies_share_a_memory_limit() {
    const LARGEST_BYTES: usize = 2 << 20;
    let owned = Owned::start(|config| config.query.heavy_wait_s = 1).await;
    let (other, token) = add_user(&owned.service, "bob@strata.test", UserPlan::Pro).await;
    assert!(other.id != owned.user.id);
    for path in ["/dataset/unpin", "/mcp"] {
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.header("authorization", format!("Bearer {}", owned.token));
            let request = request.body(Body::new(StalledBody(LARGEST_BYTES as u64))).expect("a request");
            let response = owned.service.router().oneshot(request);
            waiting.spawn(async move { response.await.expect("an answer").status() });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let large = format!("{{\"dataset_id\":7}}{}", " ".repeat(100 << 10));
        let rejected = owned.call("POST", path, &large).await;
        assert_eq!(
            (rejected.status, rejected.header("retry-after").is_some()),
            (503, path != "/mcp"),
            "{}",
            rejected.text()
        );
        // Small bodies are not charged, and other users have their own share.
        assert!(owned.call("POST", path, "{\"dataset_id\":7}").await.status < 500);
        assert!(call(&owned.service, &token, "POST", path, &large).await.status < 500);
        waiting.shutdown().await;
        assert!(owned.call("POST", path, &large).await.status < 500);
    }
}

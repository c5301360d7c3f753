//! Complete reads through the router. The input is a character that selects the version, a query string, and lines with
//! headers. A header line consists of a letter (`N` for `If-None-Match`, `A` for `Accept-Encoding`, `R` for `Range`,
//! `I` for `If-Range`) and a value, in which `$` stands for the response's `ETag`.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use bytes::Bytes;
use http_body_util::BodyExt;
use strata_config::Config;
use strata_http::params::PARAMETERS;
use strata_reference::Value;
use strata_reference::pipeline::{self, Body as Expected};
use strata_reference::{coding, headers, query};
use strata_service::{ImportRequest, ProcessPurpose, RefreshCounters, Services};
use strata_types::read_request::{ReadRequest, ResponseFormat};
use strata_types::user::UserPlan;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::Service;

use super::bench::runtime;
use crate::harness::{line, text};

/// The entities of each version, in JSON lines.
const VERSIONS: [&str; 4] = [
    "",
    include_str!("versions/alike.jsonl"),
    include_str!("versions/nested.jsonl"),
    include_str!("versions/texts.jsonl"),
];

struct FuzzService {
    runtime: Runtime,
    router: Router,
    versions: Vec<Vec<Value>>,
    _directory: TempDir,
}

static SERVICE: LazyLock<FuzzService> = LazyLock::new(FuzzService::start);

impl FuzzService {
    fn start() -> FuzzService {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        config.query.threads = 1;
        config.cache.memory_bytes = Some(32 << 20);
        config.cache.export_bytes = 8 << 20;
        (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
        let runtime = runtime();
        let source = directory.path().join("entities.jsonl");
        let services = runtime.block_on(async {
            let services = Services::open(&config, ProcessPurpose::Serve).await.expect("the service opens");
            let owner = "owner@strata.test";
            services.accounts.add_user(owner, "a long enough password", UserPlan::Scale, None).await.expect("a user");
            for version in VERSIONS {
                std::fs::write(&source, version).expect("written");
                let request = ImportRequest {
                    source: source.to_string_lossy().into_owned(),
                    name: "data".to_owned(),
                    owner_email: owner.to_owned(),
                    about: strata_types::dataset::DatasetMetadata::default(),
                    private: false,
                    format: Some(strata_types::source::SourceFormat::Jsonl),
                    records_path: None,
                    publish_query: false,
                    infer_types: false,
                };
                services
                    .refreshes
                    .import(request, std::sync::Arc::new(RefreshCounters::default()))
                    .await
                    .expect("imported");
            }
            services
        });
        let entity = |line: &str| Value::parse_entity(line).expect(line);
        let versions = VERSIONS.map(|version| version.lines().map(entity).collect()).into();
        FuzzService { runtime, router: strata_http::router(services), versions, _directory: directory }
    }

    fn get(&self, uri: &Uri, headers: HeaderMap) -> RouterResponse {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        let response = async {
            let Ok(response) = self.router.clone().call(request).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            RouterResponse { status: parts.status.as_u16(), headers: parts.headers, body }
        };
        self.runtime.block_on(response)
    }
}

struct RouterResponse {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl RouterResponse {
    fn header(&self, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

pub fn check(bytes: &[u8]) {
    let (first, rest) = line(text(bytes));
    let Some(choice) = first.chars().next() else { return };
    let number = choice as usize % VERSIONS.len();
    // A client percent-encodes the characters that a URL cannot contain.
    let query: String = first[choice.len_utf8()..]
        .bytes()
        .map(|byte| match byte {
            b'!'..=b'~' if !b"\"#<>\\^`{|}".contains(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let version = number as u64 + 1;
    let Ok(uri) = format!("/api/1/data/v{version}/?{query}").parse::<Uri>() else { return };
    let Some(parsed) = query::parse(&query, |name| PARAMETERS.iter().any(|parameter| parameter.name == name)) else {
        return;
    };

    let answer = SERVICE.get(&uri, HeaderMap::new());
    let alternate = parsed.as_ref().is_ok_and(|(request, _)| request.alt);
    let Ok((request, _)) = parsed else {
        assert_error(&answer, 400);
        return;
    };
    if alternate {
        assert_error(&answer, 404);
        return;
    }
    assert_eq!(answer.status, 200, "{} for {uri}", String::from_utf8_lossy(&answer.body));
    let entities = &SERVICE.versions[number];
    if request.is_random() {
        check_sample(&answer, entities, &request);
        return;
    }
    check_with_reference(&answer, entities, &request, version, &uri);
    if !rest.is_empty() {
        check_conditional_request(&uri, &request, &answer, rest);
    }
}

fn assert_error(answer: &RouterResponse, status: u16) {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{text}");
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(!text.is_empty() && !text.contains(|character: char| character.is_control()), "{text:?}");
}

fn check_sample(answer: &RouterResponse, entities: &[Value], request: &ReadRequest) {
    let all = pipeline::selected(entities, request).len() as u64;
    let drawn = all.min(request.sample.unwrap_or(u64::MAX));
    let total = drawn.saturating_sub(request.offset).min(request.limit.unwrap_or(u64::MAX));
    assert_eq!(answer.header("x-total-count"), Some(total.to_string().as_str()));
    assert_eq!(answer.header(ETAG), None);
}

fn check_with_reference(answer: &RouterResponse, entities: &[Value], request: &ReadRequest, version: u64, uri: &Uri) {
    let (total, expected) = pipeline::answer(entities, request, 1, version);
    assert_eq!(answer.header("x-total-count"), Some(total.to_string().as_str()), "{uri}");
    let format = if request.count { ResponseFormat::Json } else { request.format };
    assert_eq!(answer.header("content-type"), Some(format.content_type()), "{uri}");
    let matches = request.total.then(|| pipeline::selected(entities, request).len().to_string());
    assert_eq!(answer.header("x-total-matches"), matches.as_deref(), "{uri}");
    assert_eq!(Expected::decode(&answer.body, request), expected, "{uri}");
}

/// Repeats the request with conditions, a range, or a content coding.
fn check_conditional_request(uri: &Uri, request: &ReadRequest, plain: &RouterResponse, lines: &str) {
    let tag = plain.header(ETAG).expect("a tag");
    let mut sent = HeaderMap::new();
    for line in lines.lines().take(6) {
        let Some(value) = line.get(1..) else { continue };
        let name: HeaderName = match line.as_bytes()[0] {
            b'N' => IF_NONE_MATCH,
            b'A' => ACCEPT_ENCODING,
            b'R' => RANGE,
            b'I' => IF_RANGE,
            _ => continue,
        };
        let Ok(value) = HeaderValue::from_bytes(value.replace('$', tag).as_bytes()) else { continue };
        sent.append(name, value);
    }
    let lines = |name| -> Vec<&[u8]> { sent.get_all(name).iter().map(HeaderValue::as_bytes).collect() };
    let export = request.format == ResponseFormat::Parquet && !request.count;
    let coding = if export { "identity" } else { headers::coding(&lines(ACCEPT_ENCODING)) };
    let coded_tag = match coding {
        "identity" => tag.to_owned(),
        coding => format!("{}-{coding}\"", tag.trim_end_matches('"')),
    };
    let range = if export { headers::range(&lines(RANGE), &lines(IF_RANGE), tag.as_bytes()) } else { None };

    let answer = SERVICE.get(uri, sent.clone());
    if headers::is_held(&lines(IF_NONE_MATCH), coded_tag.as_bytes()) {
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{uri} {sent:?}");
        return;
    }
    let length = plain.body.len() as u64;
    match range.map(|range| range.resolve(length)) {
        Some(None) => {
            assert_error(&answer, 416);
            assert_eq!(answer.header(CONTENT_RANGE), Some(format!("bytes */{length}").as_str()));
        }
        Some(Some(range)) => {
            let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            assert_eq!((answer.status, answer.header(CONTENT_RANGE)), (206, Some(content_range.as_str())), "{sent:?}");
            assert_eq!(answer.body, plain.body.slice(range.start as usize..range.end as usize));
        }
        None => {
            assert_eq!((answer.status, answer.header(ETAG)), (200, Some(coded_tag.as_str())), "{uri} {sent:?}");
            match answer.header(CONTENT_ENCODING) {
                None => assert!(answer.body == plain.body, "{uri} {sent:?}"),
                Some(coding) => assert!(coding::decoded(coding, &answer.body) == plain.body, "{uri} {sent:?}"),
            }
        }
    }
}

//! Etags, conditional requests, cache headers, and how soon a change is visible.

use axum::body::Body;
use axum::http::Request;
use strata_testing::catalog::execute;
use strata_testing::{Answer, TestService};

async fn get(service: &TestService, uri: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service.call(request.body(Body::empty()).expect("invalid request")).await
}

async fn tag(service: &TestService, uri: &str) -> String {
    let answer = service.get(uri).await;
    assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
    answer.header("etag").expect("missing etag").to_owned()
}

async fn import_private(service: &TestService, name: &str) -> String {
    let imported = service.try_import(name, true, b"[{\"a\":1}]").await.expect("failed to import");
    format!("Bearer {}", imported.private_key.expect("missing key").expose())
}

#[tokio::test]
async fn etag_is_strong_and_unique_per_response() {
    let service = TestService::start().await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    service.import("Other", "[{\"a\":1},{\"a\":2}]").await;
    let queries =
        ["", "limit=1", "filter=a:1", "pretty=false", "count=true", "format=csv", "format=jsonl", "sort=a:desc"];
    let paths = ["/api/1/some/v1", "/api/1/some/v2", "/api/2/other/v1"];
    let mut tags = Vec::new();
    for path in paths {
        for query in queries {
            let uri = format!("{path}?{query}");
            let tag = tag(&service, &uri).await;
            assert!(tag.len() > 30 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
            assert_eq!(tag, self::tag(&service, &uri).await, "{uri}");
            tags.push(tag);
        }
    }
    let count = tags.len();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), count, "etags are unique");
    // Equivalent requests have the same etag.
    let same = tag(&service, "/api/1/some/v2").await;
    for uri in ["/api/1/some/active", "/api/1/some/latest/", "/api/1/some/v2?offset=0&pretty=1", "/api/1/some/v2?x=y"] {
        assert_eq!(tag(&service, uri).await, same, "{uri}");
    }
}

#[tokio::test]
async fn matching_etag_returns_304_without_body() {
    let service = TestService::configured(|config| config.limits.public_per_minute = 1_000).await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    for query in ["", "format=csv", "count=true", "format=parquet", "filter=a:2&lmit=1"] {
        let uri = format!("/api/1/some/active?{query}");
        let tag = tag(&service, &uri).await;
        let weak = format!("W/{tag}");
        let listed = format!("\"x\", {tag}, \"y\"");
        let lines = [("if-none-match", "\"x\""), ("if-none-match", &*tag)];
        let if_none_match = |value| vec![("if-none-match", value)];
        for headers in
            [if_none_match(&*tag), if_none_match(&weak), if_none_match(&listed), if_none_match("*"), lines.to_vec()]
        {
            let answer = get(&service, &uri, &headers).await;
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{uri} {headers:?}");
            let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
            names.retain(|name| *name != "x-unknown-parameters");
            names.sort_unstable();
            let mut expected = vec![
                "access-control-allow-origin",
                "access-control-expose-headers",
                "cache-control",
                "etag",
                "vary",
                "x-dataset-alt",
                "x-dataset-id",
                "x-dataset-version",
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
                "x-request-id",
            ];
            if query == "format=parquet" {
                // Exports have no content coding.
                expected.retain(|name| *name != "vary");
            }
            assert_eq!(names, expected, "{uri}");
            assert_eq!(answer.header("etag"), Some(&*tag));
            assert_eq!(answer.header("x-dataset-version"), Some("v1"));
            assert_eq!(answer.header("x-unknown-parameters"), query.contains("lmit").then_some("lmit"));
        }
        for other in ["\"x\"", "", "garbage", "W/", &tag.to_uppercase().replace('"', "\"A")] {
            assert_eq!(get(&service, &uri, &[("if-none-match", other)]).await.status, 200, "{uri} {other}");
        }
    }
}

#[tokio::test]
async fn not_modified_reads_nothing() {
    let service = TestService::configured(|config| {
        config.cache.memory_bytes = Some(0);
        config.cache.response_bytes = 0;
    })
    .await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    let uri = "/api/1/some/v1?sort=a:desc&format=csv";
    let tag = tag(&service, uri).await;
    for file in service.version_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    let answer = get(&service, uri, &[("if-none-match", &tag)]).await;
    assert_eq!((answer.status, answer.header("etag")), (304, Some(&*tag)));
    for headers in [vec![], vec![("if-none-match", "\"x\"")]] {
        let answer = get(&service, uri, &headers).await;
        answer.is_error(500);
        assert_eq!((answer.header("etag"), answer.header("cache-control")), (None, Some("no-store")));
    }
}

#[tokio::test]
async fn not_modified_requires_read_access() {
    let service = TestService::start().await;
    let key = import_private(&service, "Hidden").await;
    let any = ("if-none-match", "*");
    get(&service, "/api/1/hidden/v1", &[any]).await.is_error(401);
    get(&service, "/api/1/hidden/v1", &[any, ("authorization", "Bearer x")]).await.is_error(403);
    get(&service, "/api/1/hidden/v9", &[any, ("authorization", &key)]).await.is_error(404);
    assert_eq!(get(&service, "/api/1/hidden/v1", &[any, ("authorization", &key)]).await.status, 304);
    execute(&service, "UPDATE datasets SET frozen = 1, record_checksum = NULL").await;
    service.services.lookups.notify_catalog_change();
    get(&service, "/api/1/hidden/v1", &[any, ("authorization", &key)]).await.is_error(410);
}

#[tokio::test]
async fn cache_control_depends_on_visibility() {
    let service = TestService::start().await;
    service.import("Open", "[{\"a\":1}]").await;
    let key = import_private(&service, "Hidden").await;
    let key = ("authorization", &*key);
    let any = ("if-none-match", "*");
    let public = (Some("public, no-cache"), Some("Accept-Encoding"));
    let private = (Some("private, no-cache"), Some("Accept-Encoding, Authorization"));
    // URI and headers; status, `Cache-Control`, and `Vary`.
    type CachingRow<'a> = (&'a str, &'a [(&'a str, &'a str)], u16, (Option<&'a str>, Option<&'a str>));
    let rows: [CachingRow<'_>; 9] = [
        ("/api/1/open/v1", &[], 200, public),
        ("/api/1/open/v1?count=true", &[key], 200, public),
        ("/api/1/open/v1", &[any], 304, public),
        ("/api/2/hidden/v1", &[key], 200, private),
        ("/api/2/hidden/v1", &[key, any], 304, private),
        ("/api/1/open/v1?sample=1", &[any], 200, (Some("no-store"), Some("Accept-Encoding"))),
        ("/api/1/open/v1?sample=1&count=true", &[any], 200, (Some("no-store"), Some("Accept-Encoding"))),
        ("/api/2/hidden/v1?sample=1", &[key, any], 200, (Some("no-store"), private.1)),
        ("/api/2/hidden/v1", &[any], 401, (Some("no-store"), None)),
    ];
    for (uri, headers, status, expected) in rows {
        let answer = get(&service, uri, headers).await;
        let found = (answer.header("cache-control"), answer.header("vary"));
        assert_eq!((answer.status, found), (status, expected), "{uri} {headers:?}");
        assert_eq!(answer.header("etag").is_some(), expected.0.is_some_and(|control| control.ends_with("no-cache")));
    }
}

// ---- visibility of changes ----

#[tokio::test]
async fn local_change_is_visible_at_once() {
    let service = TestService::start().await;
    for number in 1..=20 {
        let text = format!("[{{\"v\":{number}}}]");
        service.import("Some", &text).await;
        for selector in ["active", "latest"] {
            service.get(&format!("/api/1/some/{selector}?pretty=0")).await.is(&text);
        }
        service.get(&format!("/api/1/some/v{}", number + 1)).await.is_error(404);
    }
    // The service's own writes do the same.
    execute(&service, "UPDATE datasets SET pinned_version = 3, record_checksum = NULL").await;
    service.services.lookups.notify_catalog_change();
    service.get("/api/1/some/active?pretty=0").await.is("[{\"v\":3}]");
    execute(&service, "UPDATE datasets SET frozen = 1, record_checksum = NULL").await;
    service.services.lookups.notify_catalog_change();
    service.get("/api/1/some/active").await.is_error(410);
}

#[tokio::test]
async fn remote_change_is_visible_soon() {
    let service = TestService::start().await;
    service.get("/api/1/some/active").await.is_error(404);
    // A second service on the same data simulates another process.
    let other = TwoProcesses { reading: &service, importing: service.reopened().await };
    other.import("[{\"v\":1}]").await;
    other.shows(200, "[{\"v\":1}]").await;
    other.import("[{\"v\":2}]").await;
    other.shows(200, "[{\"v\":2}]").await;
    execute(&service, "UPDATE datasets SET pinned_version = 1, record_checksum = NULL").await;
    other.shows(200, "[{\"v\":1}]").await;
    execute(&service, "UPDATE datasets SET frozen = 1, record_checksum = NULL").await;
    other.shows(410, "frozen").await;
}

/// A service, and a second one that simulates another process on the same data.
struct TwoProcesses<'a> {
    reading: &'a TestService,
    importing: TestService,
}

impl TwoProcesses<'_> {
    async fn import(&self, text: &str) {
        self.importing.import("Some", text).await;
    }

    /// Waits until the first process returns this response.
    async fn shows(&self, status: u16, text: &str) {
        let shown = async {
            loop {
                let answer = self.reading.get("/api/1/some/active?pretty=0").await;
                if answer.status == status && answer.text().contains(text) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), shown).await.expect(text);
    }
}

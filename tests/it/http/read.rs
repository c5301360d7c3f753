//! Reads of real data over HTTP: bytes, headers, access, missing resources, and failures.

use axum::http::HeaderMap;
use strata_config::StoreUrl;
use strata_reference::Value;
use strata_testing::pages::page;
use strata_testing::{Answer, FIXTURE_FILES, TestService, files, fixture};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The body in each format, by the naive reference.
fn bodies(entities: &[Value]) -> [(&'static str, &'static str, String); 3] {
    let array = Value::Array(entities.to_vec());
    let lines = entities.iter().map(|entity| format!("{}\n", entity.write())).collect();
    [
        ("", "application/json", array.write_pretty(0)),
        ("pretty=false", "application/json", array.write()),
        ("format=jsonl", "application/x-ndjson", lines),
    ]
}

#[track_caller]
fn check_headers(headers: &HeaderMap, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = headers.get(*name).map(|value| value.to_str().expect("invalid UTF-8"));
        assert_eq!(found, Some(*value), "{name}");
    }
}

// ---- bytes ----

#[tokio::test]
async fn fixtures_match_naive_reference() {
    let service = TestService::start().await;
    let loaded = service.load_fixtures().await;
    assert_eq!(loaded.len(), FIXTURE_FILES.len());
    let mut streamed = 0;
    for (dataset, (name, file, records)) in loaded.iter().zip(FIXTURE_FILES) {
        assert_eq!(dataset.name_slug, name.to_lowercase().replace(' ', "-"));
        let key = dataset.private_key.as_ref().map(|key| format!("Bearer {}", key.expose()));
        let base = format!("/api/{}/{}/active/", dataset.dataset_id, dataset.name_slug);
        let entities = fixture(file, records);
        let count = entities.len();
        for (from, to) in [(0, count), (0, 1), (count / 2, count / 2 + 10), (count - 1, count), (count, count)] {
            for (query, content_type, body) in bodies(&entities[from..to]) {
                let window = if (from, to) == (0, count) {
                    String::new()
                } else {
                    format!("&offset={from}&limit={}", to - from)
                };
                let answer = service.send("GET", &format!("{base}?{query}{window}"), key.as_deref()).await;
                answer.is(&body);
                let id = dataset.dataset_id.to_string();
                check_headers(
                    &answer.headers,
                    &[
                        ("content-type", content_type),
                        ("x-dataset-id", &id),
                        ("x-dataset-version", "v1"),
                        ("x-dataset-alt", "false"),
                        ("x-total-count", &(to - from).to_string()),
                    ],
                );
                streamed += usize::from(answer.chunks > 2);
            }
        }
    }
    assert!(streamed >= 2, "{streamed} bodies were streamed");

    // A second import finds all datasets.
    let again = service.load_fixtures().await;
    let ids: Vec<_> = loaded.iter().map(|dataset| (dataset.dataset_id, dataset.version)).collect();
    let ids_again: Vec<_> = again.iter().map(|dataset| (dataset.dataset_id, dataset.version)).collect();
    assert_eq!(ids_again, ids);
}

#[tokio::test]
async fn pages_cross_row_groups() {
    let service = TestService::start().await;
    // More than one row group, and more than one chunk of a response.
    let count = 40_000_usize;
    let entity =
        |number: usize| format!(r#"{{"i":{number},"even":{},"name":"Entity {number}"}}"#, number.is_multiple_of(2));
    let text: String = (0..count).map(|number| entity(number) + "\n").collect();
    service.import("Many", &text).await;
    let lines = |range: std::ops::Range<usize>| -> String { range.map(|number| entity(number) + "\n").collect() };

    service.get("/api/1/many/v1?format=jsonl").await.is(&text);
    for (offset, limit) in [(0, 1), (32_767, 1), (32_768, 1), (32_760, 20), (39_999, 5), (40_000, 5), (20_000, 19_000)]
    {
        let answer = service.get(&format!("/api/1/many/v1?format=jsonl&offset={offset}&limit={limit}")).await;
        let end = count.min(offset + limit);
        answer.is(&lines(offset..end));
        assert_eq!(answer.header("x-total-count"), Some(&*(end - offset).to_string()));
    }
    let even: String = (16_000..20_000).map(|number| entity(2 * number) + "\n").collect();
    let answer = service.get("/api/1/many/v1?format=jsonl&filter=even:TRUE&offset=16000&limit=8000").await;
    answer.is(&even);
    let answer = service.get("/api/1/many/v1?filter=even:true&count=true&pretty=0").await;
    answer.is(r#"{"count":20000,"dataset_id":1,"version":1,"alt":false}"#);
    assert_eq!(answer.header("x-total-count"), Some("20000"));
    service.get("/api/1/many/v1?filter=name:entity+39999&format=jsonl").await.is(&lines(39_999..40_000));
    service.get("/api/1/many/v1?filter_contains=name:39998&format=jsonl").await.is(&lines(39_998..39_999));
}

#[tokio::test]
async fn every_store_serves_reads() {
    let files = tempfile::tempdir().expect("failed to create directory");
    let urls = ["memory://".to_owned(), format!("file://{}/made", files.path().display())];
    for url in urls {
        let service = TestService::configured(|config| {
            config.store.url = Some(StoreUrl::try_from(url.clone()).expect("invalid URL"));
        });
        let service = service.await;
        service.import("Some", "[{\"a\":1.0},{}]").await;
        service.get("/api/1/some/active?pretty=false").await.is("[{\"a\":1.0},{}]");
        assert!(service.version_files().is_empty(), "{url} is elsewhere");
    }
}

// ---- versions ----

#[tokio::test]
async fn versions_are_selected_by_number_and_name() {
    let service = TestService::start().await;
    assert_eq!(service.import("My Köln, 2", "[{\"v\":1}]").await.version.get(), 1);
    let second = service.import("My Köln, 2", "[{\"v\":2},{}]").await;
    assert_eq!((second.version.get(), second.dataset_id.get(), &*second.name_slug), (2, 1, "my-köln-2"));
    for (version, number, body) in [
        ("v1", "v1", "[{\"v\":1}]"),
        ("v2", "v2", "[{\"v\":2},{}]"),
        ("active", "v2", "[{\"v\":2},{}]"),
        ("latest", "v2", "[{\"v\":2},{}]"),
    ] {
        for slash in ["", "/"] {
            let answer =
                service.get(&format!("/api/1/my-k%C3%B6ln-2/{version}{slash}?pretty=false&x=1&lmit=2&x=3")).await;
            answer.is(body);
            check_headers(
                &answer.headers,
                &[
                    ("x-dataset-id", "1"),
                    ("x-dataset-version", number),
                    ("x-dataset-alt", "false"),
                    ("x-total-count", if number == "v1" { "1" } else { "2" }),
                    ("x-unknown-parameters", "x,lmit"),
                    ("content-type", "application/json"),
                ],
            );
        }
    }
    let answer = service.get("/api/1/my-k%C3%B6ln-2/active?limit=1").await;
    assert_eq!(answer.header("x-unknown-parameters"), None);
    // Errors also list them.
    let answer = service.get("/api/1/my-k%C3%B6ln-2/v9?lmit=1").await;
    assert_eq!((answer.status, answer.header("x-unknown-parameters")), (404, Some("lmit")));
}

#[tokio::test]
async fn missing_resources_return_404() {
    let service = TestService::start().await;
    service.import("Here", "[{}]").await;
    let not_found = |uri: &'static str| {
        let service = &service;
        async move {
            let answer = service.get(uri).await;
            answer.is_error(404);
            for header in ["x-dataset-id", "x-dataset-version", "x-total-count"] {
                assert_eq!(answer.header(header), None, "{uri}");
            }
            answer.text().to_owned()
        }
    };
    // A wrong slug and a wrong ID return the same error, regardless of the version.
    let unknown = not_found("/api/2/here/v1").await;
    for uri in [
        "/api/1/there/v1",
        "/api/1/Here/v1",
        "/api/1/here%20/v1",
        "/api/1/there/v9",
        "/api/9/here/active/alt/",
        "/api/99999999999999999999999999/here/latest",
    ] {
        assert_eq!(not_found(uri).await, unknown, "{uri}");
    }
    for uri in ["/api/1/here/v2", "/api/1/here/v0/", "/api/1/here/v99999999999999999999999", "/api/1/here/v2/alt"] {
        let text = not_found(uri).await;
        assert!(text.contains("version"), "{text}");
    }
    for uri in
        ["/api/1/here/v1/alt/", "/api/1/here/active/alt", "/api/1/here/v1?alt=true", "/api/1/here/v1/alt?alt=false"]
    {
        let text = not_found(uri).await;
        assert!(text.contains("alternate"), "{text}");
    }
}

#[tokio::test]
async fn only_get_is_allowed() {
    let service = TestService::start().await;
    service.try_import("Here", true, b"[{}]").await.expect("failed to import");
    for method in ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"] {
        for uri in ["/api/1/here/v1/", "/api/1/here/v1?limit=x", "/api/7/gone/v1"] {
            let answer = service.send(method, uri, None).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")), "{method} {uri}");
        }
    }
}

// ---- access ----

#[tokio::test]
async fn private_datasets_require_key() {
    let service = TestService::start().await;
    let imported = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("failed to import");
    let key = imported.private_key.expect("missing key").expose().to_owned();
    service.import("Open", "[{\"a\":2}]").await;

    let answer = service.get("/api/1/hidden/v1/").await;
    answer.is_error(401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    for authorization in
        [format!("Bearer {key}"), format!("bearer {key}"), format!("BEARER {key}"), format!("bEARER   {key} ")]
    {
        service.send("GET", "/api/1/hidden/v1?pretty=0", Some(&authorization)).await.is("[{\"a\":1}]");
    }
    for authorization in
        ["Bearer", "Bearer ", "Bearer two words", "Basic dXNlcjpwYXNz", "", &*key, &*format!("Bearer {key}x")]
    {
        let answer = service.send("GET", "/api/1/hidden/v1", Some(authorization)).await;
        answer.is_error(403);
        assert!(!answer.text().contains(&key));
    }
    let authorization = format!("Bearer {key}");
    service.get_with("/api/1/hidden/v1", &[("authorization", &*authorization); 2]).await.is_error(403);
    // The key is checked after the slug, but before the version.
    service.get("/api/1/hidden/v9").await.is_error(401);
    service.send("GET", "/api/1/hidden/v9", Some("Bearer wrong")).await.is_error(403);
    service.send("GET", "/api/1/hidden/v9", Some(&format!("Bearer {key}"))).await.is_error(404);
    service.get("/api/1/hiden/v1").await.is_error(404);
    // A public dataset ignores all credentials.
    service.send("GET", "/api/2/open/v1?pretty=0", Some("Bearer wrong")).await.is("[{\"a\":2}]");
    // Parameters are checked first.
    service.get("/api/1/hidden/v1?limit=x").await.is_error(400);
}

// ---- failures ----

/// Entities of about this total size, large enough for a streamed response.
fn large(bytes: usize) -> String {
    let filler = "All of this is text. ".repeat(1_000);
    (0..bytes / filler.len()).map(|number| format!("{{\"n\":{number},\"text\":\"{filler}\"}}\n")).collect()
}

/// Checks that the error is internal and does not reveal the cause.
#[track_caller]
fn is_unreadable(answer: &Answer, service: &TestService) {
    answer.is_error(500);
    let directory = service.directory().display().to_string();
    for cause in [&*directory, "parquet", "versions/", "No such file", "EOF", "Corrupt", "store", "os error"] {
        assert!(
            !answer.text().contains(cause) || cause == "store" && answer.text().contains("from storage"),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn missing_or_damaged_version_file_returns_500() {
    // Nothing is cached, so that every read uses the file.
    let service = TestService::configured(|config| config.cache.memory_bytes = Some(0)).await;
    for text in ["[{\"a\":1},{\"a\":2}]", &large(3 << 20)] {
        let imported = service.import("Some", text).await;
        let base = format!("/api/1/some/v{}/", imported.version);
        let files = service.version_files();
        let file =
            files.iter().max_by_key(|file| file.metadata().expect("missing file").modified().expect("invalid time"));
        let file = file.expect("missing file").clone();
        let whole = std::fs::read(&file).expect("failed to read");
        let reads = ["", "?format=jsonl", "?filter=a:1", "?count=true&filter_contains=b:x", "?limit=1"];

        // Document pages are zeroed, but not the footer.
        let mut zeroed = whole.clone();
        zeroed[4..whole.len() / 3].fill(0);
        std::fs::write(&file, &zeroed).expect("failed to write");
        is_unreadable(&service.get(&base).await, &service);
        for length in [0, 3, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&file, &whole[..length]).expect("failed to write");
            for read in reads {
                is_unreadable(&service.get(&format!("{base}{read}")).await, &service);
            }
        }
        std::fs::remove_file(&file).expect("failed to remove");
        for read in reads {
            is_unreadable(&service.get(&format!("{base}{read}")).await, &service);
        }
        // Failures are not cached.
        std::fs::write(&file, &whole).expect("failed to write");
        let answer = service.get(&format!("{base}?limit=1")).await;
        assert_eq!((answer.status, answer.header("x-total-count")), (200, Some("1")));
    }
}

#[tokio::test]
async fn failed_body_closes_connection() {
    let service = TestService::configured(|config| config.cache.memory_bytes = Some(1)).await;
    service.import("Some", &large(24 << 20)).await;
    let file = service.version_files().remove(0);
    let whole = std::fs::read(&file).expect("failed to read");
    let listening = service.listen().await;

    for damage in ["none", "deleted", "truncated"] {
        // A small buffer, so that the service must wait for the client to read.
        let socket = tokio::net::TcpSocket::new_v4().expect("failed to create socket");
        socket.set_recv_buffer_size(32 << 10).expect("failed to set buffer size");
        let mut connection = socket.connect(listening.address).await.expect("failed to connect");
        connection
            .write_all(b"GET /api/1/some/v1?format=jsonl HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            .await
            .expect("failed to send");
        let mut read = vec![0; 64 << 10];
        connection.read_exact(&mut read).await.expect("failed to read");
        let head = String::from_utf8_lossy(&read[..1_000]).to_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
        match damage {
            "deleted" => std::fs::remove_file(&file).expect("failed to remove"),
            "truncated" => std::fs::write(&file, &whole[..1_000]).expect("truncated"),
            _ => {}
        }
        // The connection ends with a close or a reset.
        let end = connection.read_to_end(&mut read).await;
        std::fs::write(&file, &whole).expect("failed to restore");
        let complete = read.ends_with(b"\r\n0\r\n\r\n") && end.is_ok();
        assert_eq!(complete, damage == "none", "{damage}: {end:?} after {} bytes", read.len());
        assert_eq!(read.len() > 24 << 20, damage == "none", "{damage}: {} bytes", read.len());
        // The cause of the failure is logged, but not sent to the client.
        let tail = String::from_utf8_lossy(&read[read.len() - 300..]).into_owned();
        assert!(!tail.contains("versions/") && !tail.contains("storage"), "{tail}");
    }
    listening.stop().await;
}

#[tokio::test]
async fn failed_import_leaves_nothing() {
    let service = TestService::start().await;
    let failure = |name: &'static str, text: &'static [u8]| {
        let service = &service;
        async move {
            let error = service.try_import(name, false, text).await.expect_err("refused");
            assert!(format!("{error:?}").starts_with("Refresh(Source("), "{error:?}");
            error.to_string()
        }
    };
    let bad: [(&[u8], &str); 6] = [
        (b"[{\"a\":1},{\"b\":2},3]", "item 3"),
        (b"[{\"a\":1},{\"a\":\"\\ud800\"}]", "item 2"),
        (b"{\"a\":1}\n{\"a\":2}\n{\"a\":2\n", "item 3"),
        (b"{\"a\":1}\n{\"a\":\"\xff\"}\n", "item 2"),
        (b"[{},{},{},{", "item 4"),
        (b"[{},{}", ""),
    ];
    for (text, place) in bad {
        let error = failure("Some", text).await;
        assert!(error.contains(place), "{error}");
        assert!(service.version_files().is_empty());
        service.get("/api/1/some/latest").await.is_error(404);
    }
    // Failed imports use up no names or numbers.
    let imported = service.import("Some", "[{\"a\":1}]").await;
    assert_eq!((imported.dataset_id.get(), imported.version.get()), (1, 1));
    for (text, place) in bad {
        let error = failure("Some", text).await;
        assert!(error.contains(place), "{error}");
        assert_eq!(service.version_files().len(), 1);
        service.get("/api/1/some/latest?pretty=0").await.is("[{\"a\":1}]");
        service.get("/api/1/some/v2").await.is_error(404);
    }
    let error = service.try_import("Some", true, b"[]").await.expect_err("it is public");
    assert_eq!(format!("{error:?}"), "NotPrivate");
    // No version number was used up.
    assert_eq!(service.import("Some", "[]").await.version.get(), 2);
    service.get("/api/1/some/active").await.is("[]");
    let left: Vec<_> =
        files(&service.directory().join("tmp")).into_iter().filter(|path| !path.ends_with("lock")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn documented_requests_find_entities() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    for (path, min_requests) in [("docs/guides/analysis-tools.md", 5)] {
        // The scope of a DuckDB secret is not a request.
        let text = page(path).replace("SCOPE '", "");
        let requests = text.split("'http://127.0.0.1:8080").skip(1).filter_map(|rest| Some(rest.split_once('\'')?.0));
        let requests: Vec<&str> = requests.filter(|request| request.starts_with("/api/")).collect();
        assert!(requests.len() >= min_requests, "{path}: {requests:?}");
        for request in requests {
            let answer = service.get(request).await;
            // The private dataset returns 401 without its key.
            if request.contains("/palmer-penguins/") {
                assert_eq!(answer.status, 401, "{path}: {request}");
                continue;
            }
            // This request contains an intentional typo.
            if request.contains("regoin") {
                answer.is_error(400);
                continue;
            }
            assert_eq!(answer.status, 200, "{path}: {request}: {}", String::from_utf8_lossy(&answer.body));
            assert_eq!(answer.headers.get("x-unknown-parameters"), None, "{path}: {request}");
            assert_eq!(answer.headers.get("x-unknown-fields"), None, "{path}: {request}");
            let total = answer.headers.get("x-total-count").and_then(|total| total.to_str().ok()?.parse::<u64>().ok());
            assert!(total.is_some_and(|total| total > 0), "{path}: {request} finds nothing");
        }
    }
}

//! Compressed responses: the same bytes in every coding, negotiation, caching, and bodies that fail.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use strata_reference::coding::decoded;
use strata_testing::{Answer, TestService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// Returns the decoded body of a successful response.
#[track_caller]
fn plain(answer: &Answer, coding: &str) -> Vec<u8> {
    assert_eq!((answer.status, answer.whole), (200, true), "{:?}", answer.headers);
    assert_eq!(answer.header("content-encoding"), Some(coding));
    varies(answer);
    decoded(coding, &answer.body)
}

#[track_caller]
fn varies(answer: &Answer) {
    let vary: Vec<_> =
        answer.headers.get_all("vary").iter().map(|value| value.to_str().expect("invalid UTF-8")).collect();
    assert!(vary.join(",").to_lowercase().contains("accept-encoding"), "{vary:?}");
}

/// JSON lines that hardly compress.
fn noise(bytes: usize) -> String {
    let mut random = SmallRng::seed_from_u64(7);
    let mut text = String::new();
    while text.len() < bytes {
        let word: String = (0..20_000).map(|_| char::from(random.random_range(b'0'..=b'z'))).collect();
        text.push_str(&format!("{{\"n\":{},\"word\":\"{}\"}}\n", text.len(), word.replace('\\', "/")));
    }
    text
}

/// Regression: these responses were never compressed.
#[tokio::test]
async fn metrics_and_openapi_are_compressed() {
    let service = TestService::start().await;
    for path in ["/openapi.json", "/metrics"] {
        let whole = service.get(path).await;
        assert_eq!((whole.status, whole.header("content-encoding")), (200, None), "{path}");
        varies(&whole);
        for coding in CODINGS {
            let answer = service.get_with(path, &[("accept-encoding", coding)]).await;
            let text = String::from_utf8(plain(&answer, coding)).expect("invalid UTF-8");
            // The values of metrics change from call to call.
            assert!(
                text.contains("/openapi.json") || text.contains("# TYPE strata_requests_total"),
                "{coding} of {path}"
            );
            assert!(answer.body.len() * 2 < whole.body.len(), "{coding} of {path}: {} bytes", answer.body.len());
            if path == "/openapi.json" {
                assert_eq!(text, whole.text());
                let etag = answer.header("etag").expect("missing etag");
                assert_ne!(Some(etag), whole.header("etag"), "equal strong tags mean equal bytes");
                let headers = [("accept-encoding", coding), ("if-none-match", etag)];
                assert_eq!(service.get_with(path, &headers).await.status, 304);
            }
        }
    }
}

#[tokio::test]
async fn every_coding_decodes_to_identity_body() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    service.import("Noise", &noise(1_300_000)).await;
    let mut streamed = 0;
    for (base, formats) in [
        ("/api/1/world-countries/v1/?", &["json", "json&pretty=false", "jsonl", "csv", "tsv", "xml"][..]),
        ("/api/8/noise/v1/?", &["json", "jsonl", "tsv"]),
    ] {
        for format in formats {
            let uri = format!("{base}format={format}");
            let whole = service.get_with(&uri, &[("accept-encoding", "identity")]).await;
            assert_eq!((whole.status, whole.header("content-encoding")), (200, None));
            varies(&whole);
            for coding in CODINGS {
                let answer = service.get_with(&uri, &[("accept-encoding", coding)]).await;
                assert!(plain(&answer, coding) == whole.body, "{coding} of {uri}");
                assert!(
                    answer.body.len() < whole.body.len() * 9 / 10,
                    "{coding} of {uri}: {} bytes",
                    answer.body.len()
                );
                for header in ["content-type", "content-disposition", "x-total-count", "x-dataset-version"] {
                    assert_eq!(answer.header(header), whole.header(header), "{header} of {uri}");
                }
                assert_ne!(answer.header("etag"), whole.header("etag"));
                streamed += usize::from(answer.chunks > 1);
                let etag = answer.header("etag").expect("missing etag");
                let revalidated = service.get_with(&uri, &[("accept-encoding", coding), ("if-none-match", etag)]).await;
                assert_eq!((revalidated.status, revalidated.header("etag")), (304, Some(etag)));
                varies(&revalidated);
                // The compressed bytes match their etag each time.
                let again = service.get_with(&uri, &[("accept-encoding", coding)]).await;
                assert!(
                    again.body == answer.body && again.header("etag") == answer.header("etag"),
                    "{coding} of {uri}"
                );
            }
        }
    }
    assert!(streamed == 9, "{streamed} compressed answers were streamed");
}

#[tokio::test]
async fn accept_encoding_selects_coding() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let uri = "/api/1/world-countries/v1/?limit=10";
    for (accepted, coding) in [
        (&[("accept-encoding", "gzip, deflate, br, zstd")][..], Some("zstd")),
        (&[("accept-encoding", "gzip, deflate, br")], Some("br")),
        (&[("accept-encoding", "x-gzip;q=0.5")], Some("gzip")),
        (&[("accept-encoding", "br;q=0.5"), ("accept-encoding", "gzip")], Some("gzip")),
        (&[("accept-encoding", "*;q=0")], None),
        (&[("accept-encoding", "deflate, compress")], None),
        (&[], None),
    ] {
        let answer = service.get_with(uri, accepted).await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, coding), "{accepted:?}");
        varies(&answer);
    }
}

#[tokio::test]
async fn small_bodies_and_parquet_are_not_compressed() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    for (query, status) in [
        ("limit=0", 200),
        ("count=true", 200),
        ("count=true&format=parquet", 200),
        ("keep_field=cca2&limit=3", 200),
        ("limit=x", 400),
        ("format=parquet", 200),
        ("format=parquet&sample=100", 200),
    ] {
        let uri = format!("/api/1/world-countries/v1/?{query}");
        for coding in CODINGS {
            let answer = service.get_with(&uri, &[("accept-encoding", coding)]).await;
            assert_eq!((answer.status, answer.header("content-encoding")), (status, None), "{query}");
            let same = service.get(&uri).await;
            assert!(answer.body == same.body || query.contains("sample"), "{query}");
            match query.starts_with("format=parquet") {
                true => assert_eq!(answer.header("vary"), None),
                false if status == 200 => varies(&answer),
                false => {}
            }
        }
    }
    let missing = service.get_with("/api/1/world-countries/v9/", &[("accept-encoding", "gzip")]).await;
    missing.is_error(404);
}

#[tokio::test]
async fn unseeded_sample_is_compressed_but_not_cached() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let uri = "/api/3/earthquakes/v1/?sample=50";
    let first = service.get_with(uri, &[("accept-encoding", "zstd")]).await;
    let other = service.get_with(uri, &[("accept-encoding", "zstd")]).await;
    assert!(plain(&first, "zstd") != plain(&other, "zstd"));
}

#[tokio::test]
async fn compressed_response_cache_follows_config() {
    for response_bytes in [1 << 20, 0] {
        let service = TestService::configured(|config| {
            config.cache.memory_bytes = Some(0);
            config.cache.response_bytes = response_bytes;
        })
        .await;
        let key =
            service.try_import("Words", true, noise(100_000).as_bytes()).await.expect("failed to import").private_key;
        let key = format!("Bearer {}", key.expect("missing key").expose());
        let ask = |query: &'static str, accepted: &'static str, key: &str| {
            let service = &service;
            let key = key.to_owned();
            let uri = format!("/api/1/words/v1/?{query}");
            async move { service.get_with(&uri, &[("accept-encoding", accepted), ("authorization", &key)]).await }
        };
        let gzip = ask("limit=2", "gzip", &key).await;
        let whole = plain(&gzip, "gzip");
        ask("limit=2", "identity", &key).await.is(std::str::from_utf8(&whole).expect("invalid UTF-8"));
        ask("count=true", "identity", &key).await;

        // From now on, responses can come only from memory.
        std::fs::remove_file(service.version_files().remove(0)).expect("failed to remove");
        let is_cached = response_bytes > 0;
        let status = |is_cached| if is_cached { 200 } else { 500 };
        let again = ask("limit=2", "gzip", &key).await;
        assert_eq!(again.status, status(is_cached));
        if is_cached {
            assert!(again.body == gzip.body);
            let names = ["content-encoding", "content-type", "x-total-count", "x-dataset-id", "etag"];
            assert_eq!(names.map(|name| again.header(name)), names.map(|name| gzip.header(name)));
        }
        assert_eq!(ask("count=true", "identity", &key).await.status, status(is_cached));
        assert_eq!(ask("limit=2", "identity", &key).await.status, 500);
        assert_eq!(ask("limit=2", "br", &key).await.status, 500);
        assert_eq!(ask("limit=3", "gzip", &key).await.status, 500);
        // The cache still requires the key.
        assert_eq!(ask("limit=2", "gzip", "Bearer wrong").await.status, 403);
    }
}

#[tokio::test]
async fn failed_compressed_body_is_error_for_client() {
    let service = TestService::configured(|config| config.cache.memory_bytes = Some(1)).await;
    let text = noise(16 << 20);
    service.import("Noise", &text).await;
    let file = service.version_files().remove(0);
    let whole = std::fs::read(&file).expect("failed to read");
    let listening = service.listen().await;

    for (coding, damaged) in [("zstd", false), ("zstd", true), ("gzip", true), ("br", true)] {
        // A small buffer, so that the service must wait for the client to read.
        let socket = tokio::net::TcpSocket::new_v4().expect("failed to create socket");
        socket.set_recv_buffer_size(32 << 10).expect("failed to set buffer size");
        let mut connection = socket.connect(listening.address).await.expect("failed to connect");
        let request = format!(
            "GET /api/1/noise/v1?format=jsonl HTTP/1.1\r\nHost: test\r\nAccept-Encoding: {coding}\r\n\
             Connection: close\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).await.expect("failed to send");
        let mut read = vec![0; 64 << 10];
        connection.read_exact(&mut read).await.expect("failed to read");
        if damaged {
            std::fs::write(&file, &whole[..1_000]).expect("truncated");
        }
        // The connection ends with a close or a reset.
        let end = connection.read_to_end(&mut read).await;
        std::fs::write(&file, &whole).expect("failed to restore");

        let head = read.windows(4).position(|window| window == b"\r\n\r\n").expect("missing end of head");
        let mut chunks = &read[head + 4..];
        let head = String::from_utf8_lossy(&read[..head]).to_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
        assert!(head.contains(&format!("content-encoding: {coding}")) && !head.contains("content-length"), "{head}");
        let complete = chunks.ends_with(b"\r\n0\r\n\r\n") && end.is_ok();
        assert_eq!(complete, !damaged, "{coding}: {end:?} after {} bytes", read.len());
        if !damaged {
            // All chunks except the last, empty one.
            let mut body = Vec::new();
            while let Some(at) = chunks.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&chunks[..at]).expect("invalid size");
                let size = usize::from_str_radix(size, 16).expect("invalid size");
                body.extend_from_slice(&chunks[at + 2..at + 2 + size]);
                chunks = &chunks[at + 2 + size + 2..];
            }
            assert!(decoded(coding, &body) == text.as_bytes());
        }
    }
    listening.stop().await;
}

//! Ranges of Parquet exports: bytes, invalid requests, and the export cache.

use std::time::Duration;

use strata_testing::{Answer, TestService, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const EXPORT: &str = "/api/3/earthquakes/v1/?format=parquet";

async fn part(service: &TestService, uri: &str, range: &str) -> Answer {
    service.get_with(uri, &[("range", range)]).await
}

/// The whole export, from a request without `Range`.
async fn whole(service: &TestService, uri: &str) -> Answer {
    let whole = service.get(uri).await;
    assert_eq!((whole.status, whole.whole), (200, true));
    assert!(whole.body.starts_with(b"PAR1") && whole.body.ends_with(b"PAR1"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("content-length"), Some(&*whole.body.len().to_string()));
    assert_eq!((whole.header("content-range"), whole.header("vary")), (None, None));
    whole
}

#[tokio::test]
async fn ranges_match_whole_export() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    // The first range request creates the export.
    let first = part(&service, EXPORT, "bytes=0-99").await;
    let whole = whole(&service, EXPORT).await;
    let length = whole.body.len();
    assert!(length > 20_000, "{length}");
    assert_eq!(first.body, whole.body[..100]);
    for (range, from, to) in [
        ("bytes=0-0".to_owned(), 0, 1),
        ("bytes=0-3".to_owned(), 0, 4),
        ("bytes=1000-19999".to_owned(), 1_000, 20_000),
        ("bytes=1000-".to_owned(), 1_000, length),
        ("bytes=0-".to_owned(), 0, length),
        ("bytes=-1".to_owned(), length - 1, length),
        ("bytes=-8".to_owned(), length - 8, length),
        (format!("bytes=-{length}"), 0, length),
        // Longer than the file, so clamped.
        (format!("bytes=-{}", length + 1), 0, length),
        ("bytes=-99999999999999999999999".to_owned(), 0, length),
        (format!("bytes={}-{}", length - 5, length + 5), length - 5, length),
        (format!("bytes={}-99999999999999999999999", length - 1), length - 1, length),
        ("BYTES=5-6".to_owned(), 5, 7),
    ] {
        let part = part(&service, EXPORT, &range).await;
        assert_eq!((part.status, part.whole), (206, true), "{range}");
        assert!(part.body == whole.body[from..to], "{range}");
        assert_eq!(part.header("content-range"), Some(&*format!("bytes {from}-{}/{length}", to - 1)), "{range}");
        assert_eq!(part.header("content-length"), Some(&*(to - from).to_string()));
        let same =
            ["etag", "accept-ranges", "content-type", "content-disposition", "x-total-count", "x-dataset-version"];
        assert_eq!(same.map(|name| part.header(name)), same.map(|name| whole.header(name)), "{range}");
        assert_eq!((part.header("content-encoding"), part.header("vary")), (None, None));
    }
    // A resumed download consists of such ranges.
    let mut joined = Vec::new();
    while joined.len() < length {
        let range = format!("bytes={}-{}", joined.len(), joined.len() + 7_000);
        joined.extend_from_slice(&part(&service, EXPORT, &range).await.body);
    }
    assert!(joined == whole.body);
    assert_eq!(service.export_files().len(), 1);
}

#[tokio::test]
async fn range_past_end_returns_416() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let length = whole(&service, EXPORT).await.body.len();
    for range in [format!("bytes={length}-"), format!("bytes={length}-{}", length + 9), "bytes=-0".to_owned()] {
        let answer = part(&service, EXPORT, &range).await;
        answer.is_error(416);
        assert_eq!(answer.header("content-range"), Some(&*format!("bytes */{length}")), "{range}");
        assert!(answer.text().contains(&format!("bytes=0-{}", length - 1)), "{}", answer.text());
    }
}

#[tokio::test]
async fn invalid_range_returns_whole_export() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let whole = whole(&service, EXPORT).await;
    for range in ["bytes=5-4", "bytes=a-b", "bytes", "bytes=", "items=0-1", "bytes=0-1,5-6", "0-1", "bytes=-"] {
        let answer = part(&service, EXPORT, range).await;
        assert_eq!((answer.status, answer.header("content-range")), (200, None), "{range}");
        assert!(answer.body == whole.body, "{range}");
    }
}

#[tokio::test]
async fn if_match_of_another_file_returns_412() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let whole = whole(&service, EXPORT).await;
    let etag = whole.header("etag").expect("missing etag").to_owned();
    for (condition, matches) in [
        (&*etag, true),
        ("*", true),
        (&*format!("\"another\", {etag}"), true),
        ("\"another\"", false),
        (&*format!("W/{etag}"), false),
        ("garbage", false),
        ("", false),
    ] {
        let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-match", condition)]).await;
        match matches {
            true => assert!(answer.status == 206 && answer.body == whole.body[2..6], "{condition}: {}", answer.status),
            false => {
                answer.is_error(412);
                assert!(answer.text().contains("If-Match"), "{condition}: {}", answer.text());
                assert_eq!(answer.header("cache-control"), Some("no-store"));
            }
        }
        let whole = service.get_with(EXPORT, &[("if-match", condition)]).await;
        assert_eq!(whole.status, if matches { 200 } else { 412 }, "{condition}");
    }
    // `If-Match` is checked before `If-None-Match` (RFC 9110, section 13.2.2), and in all lines.
    for (headers, status) in [
        ([("if-match", "\"another\""), ("if-none-match", &*etag)], 412),
        ([("if-match", &*etag), ("if-none-match", &*etag)], 304),
        ([("if-match", "\"another\""), ("if-match", &*etag)], 200),
    ] {
        assert_eq!(service.get_with(EXPORT, &headers).await.status, status, "{headers:?}");
    }
    // A response that is different each time matches only `*`.
    let drawn = "/api/3/earthquakes/v1/?sample=2";
    assert_eq!(service.get_with(drawn, &[("if-match", "*")]).await.status, 200);
    service.get_with(drawn, &[("if-match", "\"another\"")]).await.is_error(412);
    // `If-Match` is checked without reading the dataset.
    for file in service.version_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    let unread = "/api/3/earthquakes/v1/?format=parquet&sort=id&limit=3";
    service.get_with(unread, &[("range", "bytes=2-5"), ("if-match", "\"another\"")]).await.is_error(412);
}

#[tokio::test]
async fn if_range_of_another_file_returns_whole_export() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let whole = whole(&service, EXPORT).await;
    let etag = whole.header("etag").expect("missing etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    for (condition, status) in [
        (&*etag, 206),
        ("\"another\"", 200),
        (&*format!("W/{etag}"), 200),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 200),
        ("*", 200),
    ] {
        let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-range", condition)]).await;
        assert_eq!(answer.status, status, "{condition}");
        assert!(answer.body == if status == 206 { &whole.body[2..6] } else { &whole.body }, "{condition}");
    }
    // A range past the end of another file returns the current file.
    let answer = service.get_with(EXPORT, &[("range", "bytes=999999999-"), ("if-range", "\"another\"")]).await;
    assert_eq!(answer.status, 200);
    let answer = service.get_with(EXPORT, &[("range", "bytes=999999999-"), ("if-range", &etag)]).await;
    assert_eq!(answer.status, 416);
    // A matching `If-None-Match` returns 304 regardless of the range.
    let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-none-match", &etag)]).await;
    assert_eq!((answer.status, answer.body.len(), answer.header("etag")), (304, 0, Some(&*etag)));
    let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-none-match", "\"another\"")]).await;
    assert_eq!(answer.status, 206);
}

#[tokio::test]
async fn only_exports_support_ranges() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    for query in ["format=csv", "format=json", "limit=5", "count=true&format=parquet", "format=parquet&sample=9"] {
        let answer = part(&service, &format!("/api/3/earthquakes/v1/?{query}"), "bytes=0-9").await;
        assert_eq!((answer.status, answer.header("content-range")), (200, None), "{query}");
        assert_eq!(answer.header("accept-ranges"), None, "{query}");
        assert!(answer.body.len() > 10);
    }
    assert_eq!(service.export_files().len(), 0);
    // Other checks come first.
    part(&service, "/api/3/earthquakes/v9/?format=parquet", "bytes=0-9").await.is_error(404);
    part(&service, "/api/3/earthquakes/v1/?format=parquet&limit=x", "bytes=0-9").await.is_error(400);
    let head = service.send_with("HEAD", EXPORT, &[("range", "bytes=0-9")]).await;
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn empty_export_supports_ranges() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    for query in ["limit=0", "filter=properties.mag:none"] {
        let uri = format!("{EXPORT}&{query}");
        let whole = whole(&service, &uri).await;
        assert_eq!(whole.header("x-total-count"), Some("0"));
        assert_eq!(part(&service, &uri, "bytes=-4").await.body, "PAR1");
    }
}

#[tokio::test]
async fn equal_requests_share_export_file() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let uris = [
        "/api/3/earthquakes/v1/?format=parquet&filter=properties.magType:ml&filter=properties.type:earthquake",
        "/api/3/earthquakes/active?filter=properties.type:earthquake&filter=properties.magType:ml&format=parquet&pretty=0",
    ];
    let answers = futures::future::join_all((0..10).map(|number| part(&service, uris[number % 2], "bytes=-100"))).await;
    assert!(answers.iter().all(|answer| answer.status == 206 && answer.body == answers[0].body));
    assert_eq!(service.export_files().len(), 1);
    service.get(EXPORT).await;
    assert_eq!(service.export_files().len(), 2);
}

#[tokio::test]
async fn export_bytes_are_the_same_on_every_node() {
    // The nodes share only the data, and have different numbers of threads.
    let first = TestService::start().await;
    first.load_fixtures().await;
    let uris = [EXPORT, "/api/1/world-countries/v1/?format=parquet", "/api/2/emoji/v1/?format=parquet&denull=true"];
    for threads in [1, 2, 5] {
        let change = |config: &mut strata_config::Config| {
            config.query.threads = threads;
            config.cache.export_bytes = if threads == 5 { 0 } else { 1 << 30 };
        };
        let other = first.open_instance(change).await;
        for uri in uris {
            let expected = first.get(uri).await;
            let another = other.get(uri).await;
            assert!(expected.body == another.body, "{uri} with {threads} threads");
            assert_eq!(expected.header("etag"), another.header("etag"));
            let ranges = if threads == 5 { None } else { Some("bytes") };
            assert_eq!(another.header("accept-ranges"), ranges);
        }
        // The first node's files remain. A job of the other node can end after its last response.
        drop(other);
        eventually("only the first one's files are there", async || first.export_files().len() == uris.len()).await;
    }
}

#[tokio::test]
async fn export_larger_than_cache_is_returned_whole() {
    for export_bytes in [0, 10_000] {
        let service = TestService::configured(|config| config.cache.export_bytes = export_bytes).await;
        service.load_fixtures().await;
        for _ in 0..2 {
            let answer = part(&service, EXPORT, "bytes=0-9").await;
            assert_eq!((answer.status, answer.whole, answer.header("content-range")), (200, true, None));
            assert!(answer.body.starts_with(b"PAR1") && answer.body.ends_with(b"PAR1") && answer.body.len() > 20_000);
        }
        assert_eq!(service.get(EXPORT).await.header("accept-ranges"), None);
        assert_eq!(service.export_files().len(), 0);
        // A smaller export fits.
        let small = part(&service, &format!("{EXPORT}&keep_field=id&limit=3"), "bytes=0-3").await;
        assert_eq!((small.status, &small.body[..4]), (if export_bytes == 0 { 200 } else { 206 }, &b"PAR1"[..]));
    }
}

#[tokio::test]
async fn export_cache_respects_limit() {
    let service = TestService::configured(|config| config.cache.export_bytes = 100_000).await;
    service.load_fixtures().await;
    for offset in 0..40 {
        let uri = format!("{EXPORT}&limit=200&offset={offset}");
        let part = part(&service, &uri, "bytes=-4").await;
        assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]), "{uri}");
        let sizes = service.export_files().into_iter().map(|file| file.metadata().map_or(0, |data| data.len()));
        let cached_bytes: u64 = sizes.sum();
        assert!(cached_bytes <= 100_000, "{cached_bytes} bytes");
    }
    assert!(service.export_files().len() > 1);
}

#[tokio::test]
async fn private_export_requires_key() {
    let service = TestService::start().await;
    let key = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("failed to import").private_key;
    let key = format!("Bearer {}", key.expect("missing key").expose());
    let uri = "/api/1/hidden/v1/?format=parquet";
    let part = service.get_with(uri, &[("range", "bytes=0-3"), ("authorization", &key)]).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
    assert_eq!(self::part(&service, uri, "bytes=0-3").await.status, 401);
    assert_eq!(service.get_with(uri, &[("range", "bytes=0-3"), ("authorization", "Bearer x")]).await.status, 403);
}

#[tokio::test]
async fn export_of_unreadable_version_returns_500() {
    let service = TestService::configured(|config| config.cache.memory_bytes = Some(0)).await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    let file = service.version_files().remove(0);
    let bytes = std::fs::read(&file).expect("failed to read");
    let uri = "/api/1/some/v1/?format=parquet";
    std::fs::write(&file, &bytes[..20]).expect("failed to write");
    for _ in 0..2 {
        part(&service, uri, "bytes=0-3").await.is_error(500);
        service.get(uri).await.is_error(500);
    }
    assert_eq!(service.export_files().len(), 0);
    std::fs::write(&file, &bytes).expect("failed to write");
    assert_eq!(part(&service, uri, "bytes=0-3").await.status, 206);
    // The cached export does not need the version file.
    std::fs::remove_file(&file).expect("failed to remove");
    assert_eq!(part(&service, uri, "bytes=-4").await.status, 206);
    whole(&service, uri).await;
}

#[tokio::test]
async fn range_of_too_wide_table_returns_400() {
    let service = TestService::configured(|config| config.limits.columns = 5).await;
    service.load_fixtures().await;
    part(&service, EXPORT, "bytes=0-3").await.is_error(400);
}

#[tokio::test]
async fn truncated_export_file_is_rebuilt_while_served() {
    let service = TestService::start().await;
    // Random text does not compress, so the file is larger than every buffer.
    let word = |number: u64| -> String {
        (0..300_u64)
            .map(|at| format!("{:016x}", (number * 1_000 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect()
    };
    let text: String = (0..3_000).map(|number| format!("{{\"n\":{number},\"word\":\"{}\"}}\n", word(number))).collect();
    service.import("Words", &text).await;
    let uri = "/api/1/words/v1/?format=parquet";
    let body = whole(&service, uri).await.body;
    let length = body.len() as u64;
    assert!(length > 5 << 20, "{length}");
    let file = service.export_files().pop_first().expect("missing file");

    let listening = service.listen().await;
    let socket = tokio::net::TcpSocket::new_v4().expect("failed to create socket");
    socket.set_recv_buffer_size(16 << 10).expect("failed to set buffer size");
    let mut connection = socket.connect(listening.address).await.expect("failed to connect");
    let request = format!("GET {uri} HTTP/1.1\r\nHost: test\r\nRange: bytes=1-\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("failed to send");
    let mut read = vec![0; 1_000];
    connection.read_exact(&mut read).await.expect("failed to read");
    let head = String::from_utf8_lossy(&read).to_lowercase();
    assert!(head.starts_with("http/1.1 206") && head.contains(&format!("content-length: {}", length - 1)), "{head}");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .expect("failed to open")
        .set_len(length / 8)
        .expect("not interrupted");
    let ended = tokio::time::timeout(Duration::from_secs(60), connection.read_to_end(&mut read)).await;
    ended.expect("connection did not end in time").expect("server failed");
    let head = read.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("missing head") + 4;
    assert!(read[head..] == body[1..], "{} of {length}", read.len() - head);
    listening.stop().await;
}

#[tokio::test]
async fn export_over_memory_limit_returns_400() {
    let service = TestService::configured(|config| config.query.memory_bytes = Some(16 << 20)).await;
    let imported = service.import("Things", r#"[{"a":1}]"#).await;
    let uri = format!("/api/{}/things/v1/?format=parquet", imported.dataset_id);
    for headers in [&[][..], &[("range", "bytes=0-3")]] {
        let answer = service.get_with(&uri, headers).await;
        answer.is_error(400);
        let text = answer.text();
        assert!(text.contains("bytes (query.memory_bytes)") && !text.contains("ry again"), "{text}");
    }
}

/// Regression: the memory for the footer was not counted at first, and then the error asked to try again.
#[tokio::test]
async fn export_footer_over_memory_limit_returns_400() {
    let refusal = async |memory_bytes| {
        let service = TestService::configured(|config| {
            config.query.memory_bytes = Some(memory_bytes);
            config.fair.space_percent = 100;
        })
        .await;
        let imported = service.import("Things", r#"[{"a":1}]"#).await;
        let answer = service.get(&format!("/api/{}/things/v1/?format=parquet", imported.dataset_id)).await;
        answer.is_error(400);
        let text = answer.text();
        assert!(text.contains("bytes (query.memory_bytes)") && !text.contains("ry again"), "{text}");
        text.to_owned()
    };
    let needed = |text: String| {
        let number = text.split(' ').find_map(|word| word.parse::<u64>().ok());
        number.expect("invalid number of bytes")
    };
    let needed_bytes = needed(refusal(16 << 20).await);
    // Anonymous clients get 75 % of this, which is slightly less than the footer needs.
    let limit_bytes = (needed_bytes - 300) * 4 / 3;
    assert_eq!(needed(refusal(limit_bytes).await), needed_bytes);
}

#[tokio::test]
async fn export_row_group_over_disk_limit_returns_400() {
    let service = TestService::configured(|config| {
        config.cache.export_bytes = 0;
        config.query.spill_bytes = 1 << 20;
    })
    .await;
    // Random text does not compress.
    let word = |number: u64| -> String {
        (0..300_u64)
            .map(|at| format!("{:016x}", (number * 1_000 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect()
    };
    let text: String = (0..2_000).map(|number| format!("{{\"n\":{number},\"word\":\"{}\"}}\n", word(number))).collect();
    let imported = service.import("Words", &text).await;
    let read = |query: &str| format!("/api/{}/words/v1/?format=parquet{query}", imported.dataset_id);
    let answer = service.get(&read("")).await;
    answer.is_error(400);
    let text = answer.text();
    assert!(text.contains("bytes (query.spill_bytes)") && !text.contains("ry again"), "{text}");
    assert_eq!(service.get(&read("&keep_field=n")).await.status, 200);
    assert_eq!(service.get(&read("").replace("parquet", "jsonl")).await.status, 200);
}

//! Parquet exports in parts: each part is that of the whole, what is asked for wrongly, and where the bytes lie
//! meanwhile.

use std::time::Duration;

use strata_testing::{Answer, TestService, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const EXPORT: &str = "/api/3/earthquakes/v1/?format=parquet";

async fn part(service: &TestService, uri: &str, range: &str) -> Answer {
    service.get_with(uri, &[("range", range)]).await
}

/// The whole export, as a plain request gets it.
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
async fn every_part_is_that_of_the_whole() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    // A part first: the whole need not have been asked for.
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
        // Longer than the file: clamped.
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
    // The parts that a resumed download is made of.
    let mut joined = Vec::new();
    while joined.len() < length {
        let range = format!("bytes={}-{}", joined.len(), joined.len() + 7_000);
        joined.extend_from_slice(&part(&service, EXPORT, &range).await.body);
    }
    assert!(joined == whole.body);
    assert_eq!(service.export_files().len(), 1);
}

#[tokio::test]
async fn what_is_beyond_the_end_is_416() {
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
async fn what_is_not_one_range_of_bytes_is_answered_whole() {
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
async fn a_part_of_another_file_than_the_wanted_one_is_412() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let whole = whole(&service, EXPORT).await;
    let etag = whole.header("etag").expect("an ETag").to_owned();
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
    // It is looked at before `If-None-Match` (RFC 9110, section 13.2.2), and in all lines.
    for (headers, status) in [
        ([("if-match", "\"another\""), ("if-none-match", &*etag)], 412),
        ([("if-match", &*etag), ("if-none-match", &*etag)], 304),
        ([("if-match", "\"another\""), ("if-match", &*etag)], 200),
    ] {
        assert_eq!(service.get_with(EXPORT, &headers).await.status, status, "{headers:?}");
    }
    // An answer that is another one each time is none of those that a client has.
    let drawn = "/api/3/earthquakes/v1/?sample=2";
    assert_eq!(service.get_with(drawn, &[("if-match", "*")]).await.status, 200);
    service.get_with(drawn, &[("if-match", "\"another\"")]).await.is_error(412);
    // Nothing is read for it.
    for file in service.version_files() {
        std::fs::remove_file(file).expect("removed");
    }
    let unread = "/api/3/earthquakes/v1/?format=parquet&sort=id&limit=3";
    service.get_with(unread, &[("range", "bytes=2-5"), ("if-match", "\"another\"")]).await.is_error(412);
}

#[tokio::test]
async fn a_part_is_given_only_of_what_the_client_holds() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let whole = whole(&service, EXPORT).await;
    let etag = whole.header("etag").expect("an ETag").to_owned();
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
    // Beyond the end, of another file: the file as it is now.
    let answer = service.get_with(EXPORT, &[("range", "bytes=999999999-"), ("if-range", "\"another\"")]).await;
    assert_eq!(answer.status, 200);
    let answer = service.get_with(EXPORT, &[("range", "bytes=999999999-"), ("if-range", &etag)]).await;
    assert_eq!(answer.status, 416);
    // A client that has it all is told so, whatever part it asks for.
    let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-none-match", &etag)]).await;
    assert_eq!((answer.status, answer.body.len(), answer.header("etag")), (304, 0, Some(&*etag)));
    let answer = service.get_with(EXPORT, &[("range", "bytes=2-5"), ("if-none-match", "\"another\"")]).await;
    assert_eq!(answer.status, 206);
}

#[tokio::test]
async fn only_exports_are_given_in_parts() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    for query in ["format=csv", "format=json", "limit=5", "count=true&format=parquet", "format=parquet&sample=9"] {
        let answer = part(&service, &format!("/api/3/earthquakes/v1/?{query}"), "bytes=0-9").await;
        assert_eq!((answer.status, answer.header("content-range")), (200, None), "{query}");
        assert_eq!(answer.header("accept-ranges"), None, "{query}");
        assert!(answer.body.len() > 10);
    }
    assert_eq!(service.export_files().len(), 0);
    // Errors come before.
    part(&service, "/api/3/earthquakes/v9/?format=parquet", "bytes=0-9").await.is_error(404);
    part(&service, "/api/3/earthquakes/v1/?format=parquet&limit=x", "bytes=0-9").await.is_error(400);
    let head = service.send_with("HEAD", EXPORT, &[("range", "bytes=0-9")]).await;
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn an_export_of_nothing_has_parts_too() {
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
async fn equal_requests_share_a_file_and_others_do_not() {
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
async fn the_bytes_are_the_same_whoever_makes_them() {
    // With nothing but the data in common, and with other numbers of threads.
    let first = TestService::start().await;
    first.load_fixtures().await;
    let uris = [EXPORT, "/api/1/world-countries/v1/?format=parquet", "/api/2/emoji/v1/?format=parquet&denull=true"];
    for threads in [1, 2, 5] {
        let change = |config: &mut strata_config::Config| {
            config.query.threads = threads;
            config.cache.export_bytes = if threads == 5 { 0 } else { 1 << 30 };
        };
        let other = first.beside(change).await;
        for uri in uris {
            let (one, another) = (first.get(uri).await, other.get(uri).await);
            assert!(one.body == another.body, "{uri} with {threads} threads");
            assert_eq!(one.header("etag"), another.header("etag"));
            let ranges = if threads == 5 { None } else { Some("bytes") };
            assert_eq!(another.header("accept-ranges"), ranges);
        }
        // The first one's files are still there. A job of the other one may end later than its last response.
        drop(other);
        eventually("only the first one's files are there", async || first.export_files().len() == uris.len()).await;
    }
}

#[tokio::test]
async fn an_export_that_does_not_fit_is_given_whole() {
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
        // A smaller one fits.
        let small = part(&service, &format!("{EXPORT}&keep_field=id&limit=3"), "bytes=0-3").await;
        assert_eq!((small.status, &small.body[..4]), (if export_bytes == 0 { 200 } else { 206 }, &b"PAR1"[..]));
    }
}

#[tokio::test]
async fn the_cache_holds_no_more_than_it_may() {
    let service = TestService::configured(|config| config.cache.export_bytes = 100_000).await;
    service.load_fixtures().await;
    for offset in 0..40 {
        let uri = format!("{EXPORT}&limit=200&offset={offset}");
        let part = part(&service, &uri, "bytes=-4").await;
        assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]), "{uri}");
        let sizes = service.export_files().into_iter().map(|file| file.metadata().map_or(0, |data| data.len()));
        let held: u64 = sizes.sum();
        assert!(held <= 100_000, "{held} bytes");
    }
    assert!(service.export_files().len() > 1);
}

#[tokio::test]
async fn a_private_export_is_for_those_with_the_key() {
    let service = TestService::start().await;
    let key = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("imported").private_key;
    let key = format!("Bearer {}", key.expect("a key").expose());
    let uri = "/api/1/hidden/v1/?format=parquet";
    let part = service.get_with(uri, &[("range", "bytes=0-3"), ("authorization", &key)]).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
    assert_eq!(self::part(&service, uri, "bytes=0-3").await.status, 401);
    assert_eq!(service.get_with(uri, &[("range", "bytes=0-3"), ("authorization", "Bearer x")]).await.status, 403);
}

#[tokio::test]
async fn an_export_of_a_version_that_cannot_be_read_is_500_and_leaves_nothing() {
    let service = TestService::configured(|config| config.cache.memory_bytes = Some(0)).await;
    service.import("Some", "[{\"a\":1},{\"a\":2}]").await;
    let file = service.version_files().remove(0);
    let bytes = std::fs::read(&file).expect("read");
    let uri = "/api/1/some/v1/?format=parquet";
    std::fs::write(&file, &bytes[..20]).expect("written");
    for _ in 0..2 {
        part(&service, uri, "bytes=0-3").await.is_error(500);
        service.get(uri).await.is_error(500);
    }
    assert_eq!(service.export_files().len(), 0);
    std::fs::write(&file, &bytes).expect("written");
    assert_eq!(part(&service, uri, "bytes=0-3").await.status, 206);
    // Kept: the version is not read again.
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(part(&service, uri, "bytes=-4").await.status, 206);
    whole(&service, uri).await;
}

#[tokio::test]
async fn a_table_with_too_many_columns_is_400_in_parts_too() {
    let service = TestService::configured(|config| config.limits.columns = 5).await;
    service.load_fixtures().await;
    part(&service, EXPORT, "bytes=0-3").await.is_error(400);
}

#[tokio::test]
async fn a_file_that_is_cut_short_while_it_is_served_is_made_again_and_served_whole() {
    let service = TestService::start().await;
    // Random text does not compress: a file that fills every buffer on the way.
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
    let file = service.export_files().pop_first().expect("a file");

    let listening = service.listen().await;
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(16 << 10).expect("a small buffer");
    let mut connection = socket.connect(listening.address).await.expect("a connection");
    let request = format!("GET {uri} HTTP/1.1\r\nHost: test\r\nRange: bytes=1-\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("sent");
    let mut read = vec![0; 1_000];
    connection.read_exact(&mut read).await.expect("the first bytes");
    let head = String::from_utf8_lossy(&read).to_lowercase();
    assert!(head.starts_with("http/1.1 206") && head.contains(&format!("content-length: {}", length - 1)), "{head}");
    std::fs::OpenOptions::new().write(true).open(&file).expect("opened").set_len(length / 8).expect("cut");
    let ended = tokio::time::timeout(Duration::from_secs(60), connection.read_to_end(&mut read)).await;
    ended.expect("the connection ends").expect("it ends well");
    let head = read.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    assert!(read[head..] == body[1..], "{} of {length}", read.len() - head);
    listening.stop().await;
}

#[tokio::test]
async fn an_export_that_can_never_have_its_memory_is_400_and_not_to_be_tried_again() {
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

/// What the footer takes was not counted at first, and then asked for another try.
#[tokio::test]
async fn an_export_whose_footer_can_never_have_its_memory_is_400() {
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
        number.expect("a number of bytes")
    };
    let needed_bytes = needed(refusal(16 << 20).await);
    // Anonymous clients have 75 % of this: all but some of what the footer takes.
    let limit_bytes = (needed_bytes - 300) * 4 / 3;
    assert_eq!(needed(refusal(limit_bytes).await), needed_bytes);
}

#[tokio::test]
async fn an_export_whose_row_group_can_never_have_its_disk_is_400_and_not_to_be_tried_again() {
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

//! Sorts by long strings: memory is needed for some of the keys at once, and a sort that never fits returns 400.

use strata_testing::TestService;

const COUNT: usize = 30;

/// Starts a service with a dataset of strings of this many bytes, which differ at their beginning, or only at their
/// end.
async fn service(memory_bytes: u64, key_bytes: usize, differ_late: bool) -> TestService {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(memory_bytes);
        config.limits.public_per_minute = 0;
    })
    .await;
    let filler = "abcdef ".repeat(key_bytes / 7);
    let entity = |number: usize| {
        let place = (number * 7) % COUNT;
        match differ_late {
            true => format!("{{\"n\":{place},\"x\":\"{filler}{place:02}\"}}\n"),
            false => format!("{{\"n\":{place},\"x\":\"{place:02}{filler}\"}}\n"),
        }
    };
    service.import("Large", &(0..COUNT).map(entity).collect::<String>()).await;
    service
}

/// Returns the numbers of the entities of a response, in order.
async fn numbers(service: &TestService, query: &str) -> Vec<usize> {
    let response = service.get(&format!("/api/1/large/v1/?format=jsonl&{query}")).await;
    assert_eq!(response.status, 200, "{query}: {:.300}", response.text());
    let number = |line: &str| {
        let digits = line.strip_prefix("{\"n\":").and_then(|rest| rest.split([',', '}']).next());
        digits.and_then(|digits| digits.parse().ok()).expect("a number")
    };
    response.text().lines().map(number).collect()
}

/// Regression test: batches of sort keys had the same number of rows regardless of their bytes, so that the first of
/// thirty entities always returned 503 with the minimum of `query.memory_bytes`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_k_of_long_sort_keys_needs_little_memory() {
    // As reported, and with a quarter of the key size in half of the memory, because batches of keys do not become
    // smaller.
    for (memory_bytes, key_bytes, differ_late) in [(128 << 20, 2_100_000, false), (64 << 20, 525_000, true)] {
        let service = service(memory_bytes, key_bytes, differ_late).await;
        for (query, expected) in [
            ("sort=x&limit=1", vec![0]),
            ("sort=x:desc&limit=1", vec![29]),
            ("sort=x&offset=9&limit=1", vec![9]),
            // More keys than fit in memory: all of them are sorted on disk.
            ("sort=x:desc&offset=1&limit=28", (1..29).rev().collect()),
            ("sort=x", (0..30).collect()),
            // Batches that are created one by one, with other columns and of some rows.
            ("sort=x&dedup=true&dedup_key=n&filter_lt=n:8", (0..8).collect()),
            ("sort=x:desc&filter_lt=n:25", (0..25).rev().collect()),
            ("sort=x:desc&keywords=abcdef&offset=29", vec![0]),
        ] {
            assert_eq!(numbers(&service, query).await, expected, "{query}, {memory_bytes} bytes");
        }
    }
}

/// Regression test: the sort returned 503 and asked to retry, which never helped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sort_beyond_memory_limit_returns_400_with_advice() {
    // Less than the configuration allows: one key takes half of the memory.
    let service = service(4 << 20, 2_100_000, false).await;
    for query in ["sort=x", "sort=x&limit=5", "sort=x:desc&limit=1"] {
        let response = service.get(&format!("/api/1/large/v1/?format=jsonl&{query}")).await;
        response.is_error(400);
        for words in ["limit per client (query.memory_bytes)", "Sort by a field with shorter values", "filters"] {
            assert!(response.text().contains(words), "{query}: {}", response.text());
        }
    }
    assert_eq!(numbers(&service, "sort=n&limit=3").await, [0, 1, 2]);
}

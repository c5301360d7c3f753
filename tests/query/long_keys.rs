//! Sorts by long strings: they take memory for some of them at once, and what never fits is refused for good.

use strata_testing::TestService;

/// Entities.
const COUNT: usize = 30;

/// Entities with strings of so many bytes, which differ at their beginning, or at their end alone.
async fn service(memory_bytes: u64, long: usize, differ_late: bool) -> TestService {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(memory_bytes);
        config.limits.public_per_minute = 0;
    })
    .await;
    let filler = "abcdef ".repeat(long / 7);
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

/// The numbers of the entities of an answer, in its order.
async fn numbers(service: &TestService, query: &str) -> Vec<usize> {
    let answer = service.get(&format!("/api/1/large/v1/?format=jsonl&{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {:.300}", answer.text());
    let number = |line: &str| {
        let digits = line.strip_prefix("{\"n\":").and_then(|rest| rest.split([',', '}']).next());
        digits.and_then(|digits| digits.parse().ok()).expect("a number")
    };
    answer.text().lines().map(number).collect()
}

/// Batches of sort keys had as many rows whatever their bytes: the first of thirty entities was 503 for ever, with the
/// least memory that queries may be given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_long_sort_keys_need_little_memory() {
    // As it was reported, and with a quarter of it in half of the memory: batches of keys do not become smaller.
    for (memory_bytes, long, differ_late) in [(128 << 20, 2_100_000, false), (64 << 20, 525_000, true)] {
        let service = service(memory_bytes, long, differ_late).await;
        for (query, expected) in [
            ("sort=x&limit=1", vec![0]),
            ("sort=x:desc&limit=1", vec![29]),
            ("sort=x&offset=9&limit=1", vec![9]),
            // More keys than there is memory for: all of them are sorted, on disk.
            ("sort=x:desc&offset=1&limit=28", (1..29).rev().collect()),
            ("sort=x", (0..30).collect()),
            // Batches that are made one by one, with other columns and of some rows.
            ("sort=x&dedup=true&dedup_key=n&filter_lt=n:8", (0..8).collect()),
            ("sort=x:desc&filter_lt=n:25", (0..25).rev().collect()),
            ("sort=x:desc&keywords=abcdef&offset=29", vec![0]),
        ] {
            assert_eq!(numbers(&service, query).await, expected, "{query}, {memory_bytes} bytes");
        }
    }
}

/// It was 503, and the text said to try again, which never helped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_that_never_fits_is_refused_for_good_and_says_what_to_do() {
    // Less than the configuration allows: one key takes half of it.
    let service = service(4 << 20, 2_100_000, false).await;
    for query in ["sort=x", "sort=x&limit=5", "sort=x:desc&limit=1"] {
        let answer = service.get(&format!("/api/1/large/v1/?format=jsonl&{query}")).await;
        answer.is_error(400);
        for words in ["limit per client (query.memory_bytes)", "Sort by a field with shorter values", "filters"] {
            assert!(answer.text().contains(words), "{query}: {}", answer.text());
        }
    }
    assert_eq!(numbers(&service, "sort=n&limit=3").await, [0, 1, 2]);
}

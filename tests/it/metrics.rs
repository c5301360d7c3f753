//! The metrics of the service in the response of `/metrics`.

use strata_testing::TestService;
use strata_testing::metrics::{growth, rendered, value};
use strata_testing::pages::between;

/// Returns the names of the metrics without labels from the table in the documentation.
fn names_without_labels() -> Vec<String> {
    let table = between("docs/reference/metrics.md", "<!-- metrics:begin -->", "<!-- metrics:end -->");
    let rows = table.lines().skip(2).map(|row| row.split(" | ").collect::<Vec<_>>());
    let names = rows.filter(|cells| cells[2].is_empty()).map(|cells| cells[0].trim_matches(['|', ' ', '`']).to_owned());
    let names: Vec<String> = names.collect();
    assert!(!names.is_empty());
    names
}

#[tokio::test]
async fn request_metrics_do_not_contain_dataset_names() {
    let service = TestService::start().await;
    let secret = service.try_import("Very Hidden Name", true, b"{\"a\":1}\n{\"a\":2}\n").await.expect("imported");
    service.import("Open Name", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n").await;
    // Other tests in this process also count requests, so only differences are checked, and only for a rare format.
    let series = "strata_http_requests_total{route=\"/api/{*path}\",status=\"200\",format=\"xml\"}";
    let before = value(&rendered(), series).unwrap_or_default();
    for _ in 0..3 {
        assert_eq!(service.get("/api/2/open-name/v1/?format=xml").await.status, 200);
    }
    assert_eq!(service.get("/api/1/very-hidden-name/v1/").await.status, 401);
    assert_eq!(service.get("/api/1/very-hidden-name/v1/?filter=a:needle").await.status, 401);
    let key = format!("Bearer {}", secret.private_key.as_ref().expect("a key").expose());
    assert_eq!(service.send("GET", "/api/1/very-hidden-name/v1/?filter=a:needle", Some(&key)).await.status, 200);
    assert_eq!(service.get("/no/such/very-hidden-name").await.status, 404);

    let answer = service.get("/metrics").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    let text = answer.text();
    assert!(value(text, series).unwrap_or_default() >= before + 3.0, "{text}");
    assert!(
        value(text, "strata_http_requests_total{route=\"none\",status=\"404\",format=\"text\"}").is_some(),
        "{text}"
    );
    assert!(!text.contains("hidden") && !text.contains("open-name") && !text.contains("needle"), "{text}");
    for name in names_without_labels() {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no text");
        assert!(text.contains(&format!("\n# TYPE {name} ")), "{name} has no type");
    }
    // Series that alerts use exist before the first event.
    for series in [
        "strata_webhooks_total{outcome=\"unanswered\"}",
        "strata_queries_total{outcome=\"memory\"}",
        "strata_limiter_decisions_total{bucket=\"private\",decision=\"refused\"}",
    ] {
        assert!(value(text, series).is_some(), "{series} in {text}");
    }
    let version = concat!("strata_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert_eq!(value(text, version), Some(1.0));
    for name in ["process_resident_memory_bytes", "process_open_fds"] {
        assert!(value(text, name).is_some_and(|number| number > 0.0), "{name} in {text}");
    }
    // The counter has whole seconds, so it is 0 in a young process.
    assert!(value(text, "process_cpu_seconds_total").is_some(), "{text}");
    for name in ["strata_http_answer_seconds", "strata_http_answer_start_seconds"] {
        assert!(text.contains(&format!("{name}_bucket{{route=\"/api/{{*path}}\",le=\"0.001\"}}")), "{text}");
    }
}

#[tokio::test]
async fn read_metrics_include_cache_and_store() {
    let service = TestService::start().await;
    // The text is long enough that the short fields get indexed columns.
    let about = "the quick brown fox jumps over the lazy dog ".repeat(5);
    let line = |number| format!("{{\"t\":\"word{number}\",\"about\":\"{about}{number}\"}}\n");
    service.import("Numbers", &(0..5_000).map(line).collect::<String>()).await;
    let names = [
        "strata_scanned_rows_total",
        "strata_sent_rows_total",
        "strata_scanned_bytes_total",
        "strata_store_requests_total",
        "strata_store_bytes_total",
        "strata_cache_lookups_total{cache=\"footers\",outcome=\"miss\"}",
        "strata_cache_lookups_total{cache=\"footers\",outcome=\"hit\"}",
        "strata_cache_lookups_total{cache=\"documents\",outcome=\"miss\"}",
        "strata_queries_total{outcome=\"settled\"}",
        "strata_http_sent_bytes_total{route=\"/api/{*path}\"}",
    ];
    let all = |text: &str| names.map(|name| value(text, name).unwrap_or_default());
    let before = all(&rendered());
    service.get("/api/1/numbers/v1/?keywords=word4999&keep_field=t&pretty=false").await.is("[{\"t\":\"word4999\"}]");
    assert_eq!(service.get("/api/1/numbers/v1/?limit=10").await.status, 200);
    let after = all(service.get("/metrics").await.text());
    let min_delta = [5_010.0, 11.0, 1_000.0, 3.0, 1_000.0, 1.0, 1.0, 1.0, 2.0, 100.0];
    for (((name, before), after), min_delta) in names.iter().zip(before).zip(after).zip(min_delta) {
        assert!(after - before >= min_delta, "{name} grew by {} only", after - before);
    }
    // Statistics exclude row groups without the value.
    let pruned = |text: &str| value(text, "strata_pruned_rows_total").unwrap_or_default();
    let before = pruned(&rendered());
    for word in ["nowhere", "nobody", "nothing", "never", "none"] {
        let answer = service.get(&format!("/api/1/numbers/v1/?filter=t:{word}&count=true&pretty=false")).await;
        assert!(answer.text().starts_with("{\"count\":0,"), "{}", answer.text());
    }
    assert!(pruned(&rendered()) >= before + 5_000.0);
}

#[tokio::test]
async fn refreshes_are_counted_by_outcome() {
    let service = TestService::start().await;
    let series = |outcome: &str| format!("strata_refreshes_total{{trigger=\"import\",outcome=\"{outcome}\"}}");
    service.import("Some", "{\"a\":0}\n").await;
    let two = async {
        service.import("Some", "{\"a\":1}\n").await;
        service.import("Some", "{\"a\":2}\n").await;
    };
    assert!(growth(&series("published"), two).await >= 2.0);
    let bad = async {
        service.try_import("Some", false, b"[3]").await.expect_err("no object");
    };
    assert!(growth(&series("failed"), bad).await >= 1.0);
    let timed = async {
        service.import("Some", "{\"a\":3}\n").await;
    };
    assert!(growth("strata_refresh_seconds_count", timed).await >= 1.0);
}

//! Blocking calls, and the registry of metrics with the tables of docs/reference/metrics.md.

mod blocking;
#[cfg(target_os = "linux")]
mod priority;
mod routes;

use strata_runtime::metrics::{self, MetricKind};
use strata_testing::metrics::value;
use strata_testing::pages::check_table;

/// Every metric as a row of one Markdown table: name, kind, labels, meaning.
fn markdown_table() -> String {
    let mut table = "| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    for metric in metrics::all() {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let (name, kind, about) = (metric.name, format!("{:?}", metric.kind).to_lowercase(), metric.about.trim());
        table += &format!("| `{name}` | {kind} | {labels} | {about} |\n");
    }
    table
}

#[test]
fn the_page_has_the_table_of_metrics() {
    check_table("docs/reference/metrics.md", "metrics", &markdown_table());
}

#[test]
fn the_page_lists_the_metrics_of_the_process() {
    let rendering = metrics::render();
    let helps = rendering.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut table = "| Metric | Kind |\n|---|---|\n".to_owned();
    let mut process: Vec<_> = helps.filter(|(name, _)| name.starts_with("process_")).collect();
    process.sort_unstable();
    for (name, kind) in process {
        table += &format!("| `{name}` | {kind} |\n");
    }
    check_table("docs/reference/metrics.md", "process", &table);
}

#[test]
fn metrics_are_named_by_the_rules_of_prometheus_and_once() {
    let mut names = std::collections::BTreeSet::new();
    for metric in metrics::all() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.starts_with("strata_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
        assert!(metric.values.is_empty() || metric.values.len() == metric.labels.len(), "{name}");
        assert_eq!(name.ends_with("_seconds"), metric.kind == MetricKind::Histogram, "{name}");
        assert!(metric.about.trim().ends_with('.'), "{name}: {:?}", metric.about);
    }
}

#[test]
fn limiter_decisions_are_counted_by_bucket() {
    let series = "strata_limiter_decisions_total{bucket=\"private\",decision=\"refused\"}";
    let before = value(&metrics::render(), series).unwrap_or_default();
    metrics::limiter_decision(true, "refused");
    assert!(value(&metrics::render(), series).unwrap_or_default() >= before + 1.0);
}

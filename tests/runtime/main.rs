//! The metrics registry, and the tables in docs/reference/metrics.md.

mod blocking;
#[cfg(target_os = "linux")]
mod priority;
mod routes;

use strata_runtime::metrics::{self, MetricKind, RateLimitBucketLabel, RateLimitDecisionLabel};
use strata_testing::metrics::value;
use strata_testing::pages::check_table;

/// Formats all metrics as one Markdown table: name, kind, labels, meaning.
fn markdown_table() -> String {
    let mut table = "| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    for metric in metrics::metric_descriptions() {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let kind = format!("{:?}", metric.kind).to_lowercase();
        table += &format!("| `{}` | {kind} | {labels} | {} |\n", metric.name, metric.help.trim());
    }
    table
}

#[test]
fn documentation_contains_metrics_table() {
    check_table("docs/reference/metrics.md", "metrics", &markdown_table());
}

#[test]
fn documentation_lists_process_metrics() {
    let rendering = metrics::render_prometheus();
    let metrics = rendering.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut table = "| Metric | Kind |\n|---|---|\n".to_owned();
    let mut process: Vec<_> = metrics.filter(|(name, _)| name.starts_with("process_")).collect();
    process.sort_unstable();
    for (name, kind) in process {
        table += &format!("| `{name}` | {kind} |\n");
    }
    check_table("docs/reference/metrics.md", "process", &table);
}

#[test]
fn metric_names_are_unique_and_follow_prometheus() {
    let mut names = std::collections::BTreeSet::new();
    for metric in metrics::metric_descriptions() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is declared twice");
        assert!(name.starts_with("strata_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
        assert!(metric.label_values.is_empty() || metric.label_values.len() == metric.labels.len(), "{name}");
        assert_eq!(name.ends_with("_seconds"), metric.kind == MetricKind::Histogram, "{name}");
        assert!(metric.help.trim().ends_with('.'), "{name}: {:?}", metric.help);
    }
}

#[test]
fn limiter_decisions_are_counted_by_bucket() {
    let series = "strata_limiter_decisions_total{bucket=\"private\",decision=\"refused\"}";
    let before = value(&metrics::render_prometheus(), series).unwrap_or_default();
    metrics::count_rate_limit_decision(RateLimitBucketLabel::Private, RateLimitDecisionLabel::Refused);
    assert!(value(&metrics::render_prometheus(), series).unwrap_or_default() >= before + 1.0);
}

//! What `/metrics` shows.

use strata_runtime::metrics;

/// What `/metrics` shows of this process now. Unlike a response, it is never shared with another reader.
pub fn rendered() -> String {
    metrics::render()
}

/// The value of a series of a rendering, as `name` or `name{label="value",…}`.
pub fn value(rendering: &str, series: &str) -> Option<f64> {
    let line = rendering.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next().and_then(|number| number.parse().ok())
}

/// By how much a series has grown when the work is done, at least: other tests may count in it, too.
pub async fn growth(series: &str, work: impl Future<Output = ()>) -> f64 {
    let now = || value(&rendered(), series).unwrap_or_default();
    let before = now();
    work.await;
    now() - before
}

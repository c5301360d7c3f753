//! Values of `/metrics`.

use strata_runtime::metrics;

/// Renders the metrics of this process.
pub fn rendered() -> String {
    metrics::render_prometheus()
}

/// Returns the value of a series, such as `name` or `name{label="value",…}`, in a rendering.
pub fn value(rendering: &str, series: &str) -> Option<f64> {
    let line = rendering.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next().and_then(|number| number.parse().ok())
}

/// Returns the increase of a series during `work`, to which other tests can contribute.
pub async fn growth(series: &str, work: impl Future<Output = ()>) -> f64 {
    let now = || value(&rendered(), series).unwrap_or_default();
    let before = now();
    work.await;
    now() - before
}

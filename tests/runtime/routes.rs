//! Request metrics by route.

use strata_runtime::metrics::render_prometheus;
use strata_runtime::metrics::routes::route_metrics;

#[test]
fn requests_are_counted_by_route_status_and_format() {
    const ROUTE: &str = "/only/in/this/test";
    for (status, format, times) in [(Some(200), "json", 3), (Some(200), "csv", 1), (None, "none", 2)] {
        (0..times).for_each(|_| route_metrics(ROUTE).count_request(status, format));
    }
    route_metrics(ROUTE).sent_bytes.increment(7);
    let text = render_prometheus();
    for line in [
        r#"strata_http_requests_total{route="/only/in/this/test",status="200",format="json"} 3"#,
        r#"strata_http_requests_total{route="/only/in/this/test",status="200",format="csv"} 1"#,
        r#"strata_http_requests_total{route="/only/in/this/test",status="none",format="none"} 2"#,
        r#"strata_http_sent_bytes_total{route="/only/in/this/test"} 7"#,
    ] {
        assert!(text.lines().any(|written| written == line), "{line}");
    }
}

//! The series of routes.

use strata_runtime::metrics::render;
use strata_runtime::metrics::routes::of_route;

#[test]
fn requests_are_counted_in_the_series_of_their_labels() {
    const ROUTE: &str = "/only/in/this/test";
    for (status, format, times) in [(Some(200), "json", 3), (Some(200), "csv", 1), (None, "none", 2)] {
        (0..times).for_each(|_| of_route(ROUTE).count_request(status, format));
    }
    of_route(ROUTE).sent_bytes.increment(7);
    let text = render();
    for line in [
        r#"strata_http_requests_total{route="/only/in/this/test",status="200",format="json"} 3"#,
        r#"strata_http_requests_total{route="/only/in/this/test",status="200",format="csv"} 1"#,
        r#"strata_http_requests_total{route="/only/in/this/test",status="none",format="none"} 2"#,
        r#"strata_http_sent_bytes_total{route="/only/in/this/test"} 7"#,
    ] {
        assert!(text.lines().any(|written| written == line), "{line}");
    }
}

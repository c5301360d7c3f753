//! `/metrics`: what the process measures, for Prometheus.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::openapi::HttpMethod;

use super::description;
use super::endpoint::{self, Answer, Callers, Endpoint, Group, Input};
use crate::metrics;
use crate::service::App;

/// The text format of Prometheus.
const CONTENT: &str = "text/plain; version=0.0.4";

/// While a text is being sent, others who ask get the same one for so long: readers that stop take a text a second at
/// most.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// A text that is being sent.
struct Sent(Arc<String>);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&METRICS];

/// Their routes.
pub(super) fn routes() -> Router<App> {
    endpoint::routes(ENDPOINTS.iter().copied())
}

static METRICS: Endpoint = Endpoint {
    path: "/metrics",
    operations: &[(HttpMethod::Get, "getMetrics")],
    group: Group::Operational,
    summary: "Metrics in the text format of Prometheus",
    callers: Callers::Anybody,
    input: Input::Nothing,
    answer: Answer::of("All metrics.", &[(CONTENT, || description::text(Some(EXAMPLE)))]),
    errors: &[],
    handler: rendered,
};

const EXAMPLE: &str = "# TYPE strata_requests_total counter\nstrata_requests_total 1\n";

/// Every metric. The text names no dataset, and costs nothing but formatting.
fn rendered(method: MethodFilter) -> MethodRouter<App> {
    let last: Arc<Mutex<(Instant, Weak<String>)>> = Arc::new(Mutex::new((Instant::now(), Weak::new())));
    on(method, async move |State(app): State<App>| {
        let text = {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = last.1.upgrade().filter(|_| last.0.elapsed() < SHARED_FOR);
            shared.unwrap_or_else(|| {
                app.update_metrics();
                let text = Arc::new(metrics::render());
                *last = (Instant::now(), Arc::downgrade(&text));
                text
            })
        };
        ([(CONTENT_TYPE, CONTENT)], Bytes::from_owner(Sent(text))).into_response()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use tower::Service;

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn readers_that_stop_share_a_text_and_others_get_a_new_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        let app = App::open(&config).await.expect("a service");
        let router = routes().with_state(app);
        let request = || Request::get("/metrics").body(Body::empty()).expect("a request");
        let get = async || {
            let response = router.clone().call(request()).await.expect("an answer");
            response.into_body().collect().await.expect("a body").to_bytes()
        };
        let (first, second) = (get().await, get().await);
        assert_eq!(first.as_ptr(), second.as_ptr());
        drop((first, second));
        metrics::metrics().sent_rows.increment(1);
        let before = get().await.to_vec();
        metrics::metrics().sent_rows.increment(1);
        assert!(before != get().await, "it was sent, so nothing is shared");
    }
}

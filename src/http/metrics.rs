//! `/metrics`: what the process measures, for Prometheus.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use strata_encode::{ContentCoding, compress};
use strata_runtime::blocking::blocking;
use strata_runtime::metrics;
use strata_service::App;

use super::description;
use super::endpoint::{Answer, Callers, Endpoint, Group};
use crate::headers::content_encoding;

const CONTENT: &str = "text/plain; version=0.0.4";

/// While a text is being sent, others get the same one for so long: stopped readers take one a second at most.
const SHARED_FOR: Duration = Duration::from_secs(1);

struct Rendered {
    text: String,
    /// The text in each requested coding, in the order of [`ContentCoding::ALL`].
    compressed: [OnceLock<Bytes>; ContentCoding::ALL.len()],
}

impl Rendered {
    /// Compresses the text, once for each coding. It may take milliseconds.
    fn compress(&self, coding: ContentCoding) -> io::Result<()> {
        let compressed = &self.compressed[coding as usize];
        if compressed.get().is_none() {
            // Another reader may have been faster.
            let _ = compressed.set(compress(coding, self.text.as_bytes())?);
        }
        Ok(())
    }
}

struct SentText {
    rendered: Arc<Rendered>,
    coding: ContentCoding,
}

impl AsRef<[u8]> for SentText {
    fn as_ref(&self) -> &[u8] {
        match self.rendered.compressed[self.coding as usize].get() {
            Some(compressed) => compressed,
            None => self.rendered.text.as_bytes(),
        }
    }
}

pub(super) static METRICS: Endpoint = Endpoint::get("/metrics", "getMetrics", Group::Operational, rendered)
    .summary("Returns all metrics in the Prometheus text format")
    .description("The metrics never contain the name of a dataset or user. The metrics reference explains each metric.")
    .callers(Callers::Anybody)
    .answer(Answer {
        headers: &[&["Cache-Control", "Vary", "Content-Encoding"]],
        ..Answer::of("All metrics.", &[(CONTENT, || description::text(None))])
    });

/// Every metric. The text names no dataset, and costs nothing but formatting.
fn rendered(method: MethodFilter) -> MethodRouter<App> {
    let last: Arc<Mutex<(Instant, Weak<Rendered>)>> = Arc::new(Mutex::new((Instant::now(), Weak::new())));
    on(method, async move |State(app): State<App>, headers: HeaderMap| {
        let rendered = {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = last.1.upgrade().filter(|_| last.0.elapsed() < SHARED_FOR);
            shared.unwrap_or_else(|| {
                app.update_metrics();
                let rendered = Arc::new(Rendered { text: metrics::render(), compressed: Default::default() });
                *last = (Instant::now(), Arc::downgrade(&rendered));
                rendered
            })
        };
        let mut coding = content_encoding::negotiate(&headers);
        if coding != ContentCoding::Identity {
            let compressing = rendered.clone();
            // Without a thread or memory, the plain text is sent.
            if !matches!(blocking(move || compressing.compress(coding)).await, Ok(Ok(()))) {
                coding = ContentCoding::Identity;
            }
        }
        let mut response = Bytes::from_owner(SentText { rendered, coding }).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
        // They hold only at this moment.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        content_encoding::describe(coding, headers);
        response
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use tower::Service;

    use super::*;
    use strata_config::Config;

    #[tokio::test]
    async fn readers_that_stop_share_a_text_and_others_get_a_new_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        let app = App::open(&config).await.expect("a service");
        let router = crate::endpoint::routes([&METRICS].into_iter()).with_state(app);
        let request = || Request::get("/metrics").body(Body::empty()).expect("a request");
        let get = async || {
            let response = router.clone().call(request()).await.expect("an answer");
            response.into_body().collect().await.expect("a body").to_bytes()
        };
        let first = get().await;
        assert_eq!(first.as_ptr(), get().await.as_ptr());
        drop(first);
        metrics::metrics().sent_rows.increment(1);
        let before = get().await.to_vec();
        metrics::metrics().sent_rows.increment(1);
        assert!(before != get().await, "it was sent, so nothing is shared");
    }
}

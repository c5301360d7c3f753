//! Sends a webhook POST without retries or redirects.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response};
use strata_ingest::egress::{EgressClient, describe_connection_failure, error_causes, parse_http_url};
use strata_types::error_chain::join_errors;
use strata_types::secret::Secret;
use tokio::time::{Instant, timeout_at};

use super::{SIGNATURE_HEADER, WebhookPayload, sign_body};

/// Maximum bytes that strata reads of a response body, so a webhook receiver can send a short body without an error.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

#[derive(Clone)]
pub struct WebhookSender {
    outgoing: EgressClient,
    client: Client,
    timeout: Duration,
}

impl WebhookSender {
    /// Creates a sender. `timeout` applies to a POST including the DNS look-up and the connection.
    pub fn try_new(outgoing: EgressClient, timeout: Duration) -> Result<Self, reqwest::Error> {
        let client = outgoing.client_builder().build()?;
        Ok(Self { outgoing, client, timeout })
    }

    /// Sends exactly one POST, signed if there is a secret. Returns the status, or an error, which is also logged.
    pub async fn send(&self, url: &str, secret: Option<&Secret>, payload: &WebhookPayload) -> Result<u16, String> {
        let deadline = Instant::now() + self.timeout;
        let dataset_id = payload.dataset_id;
        match timeout_at(deadline, self.post(url, secret, payload)).await {
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                // The status is enough: an incomplete response body is not an error.
                let _ = timeout_at(deadline, drain_body(response)).await;
                Ok(status)
            }
            Ok(Err(reason)) => {
                tracing::info!(dataset_id, reason, "failed to send webhook");
                Err(reason)
            }
            Err(_) => {
                tracing::info!(dataset_id, reason = "timed out", "failed to send webhook");
                Err(format!("no response within {} s", self.timeout.as_secs_f64()))
            }
        }
    }

    async fn post(&self, url: &str, secret: Option<&Secret>, payload: &WebhookPayload) -> Result<Response, String> {
        let url = parse_http_url(url).map_err(|error| error.to_string())?;
        self.outgoing.check_url_without_lookup(&url).map_err(|error| error.to_string())?;
        let body = serde_json::to_vec(payload).map_err(|error| error.to_string())?;
        let mut request = self.client.post(url).header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(secret) = secret {
            let signature = sign_body(secret, &body).map_err(|error| error.to_string())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        request.body(body).send().await.map_err(|error| {
            let failure = describe_connection_failure(&error);
            failure.unwrap_or_else(|| join_errors(error_causes(&error.without_url()).iter().map(ToString::to_string)))
        })
    }
}

async fn drain_body(mut response: Response) {
    let mut read_bytes = 0;
    while read_bytes < MAX_RESPONSE_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => read_bytes += chunk.len(),
            Ok(None) | Err(_) => return,
        }
    }
}

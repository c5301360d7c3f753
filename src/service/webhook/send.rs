//! Sends one POST, once.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response};
use strata_ingest::net::{Outgoing, causes, connection_failure, parse_http_url};
use strata_types::causes::joined;
use strata_types::secret::Secret;
use tokio::time::{Instant, timeout_at};

use super::{SIGNATURE_HEADER, WebhookPayload, sign};

/// The part of a response body that is read, so that a receiver can finish sending a short body.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub struct WebhookSender {
    outgoing: Outgoing,
    client: Client,
    timeout: Duration,
}

impl WebhookSender {
    /// A sender whose POSTs take at most `timeout` each, look-up and connection included.
    pub fn try_new(outgoing: Outgoing, timeout: Duration) -> Result<Self, reqwest::Error> {
        let client = outgoing.client().build()?;
        Ok(Self { outgoing, client, timeout })
    }

    /// Sends exactly one POST, signed if there is a secret. Follows no redirect, and never retries.
    /// Returns the status of the response, also of a redirect; or why there was none in time, which it also logs.
    pub async fn send(&self, url: &str, secret: Option<&Secret>, payload: &WebhookPayload) -> Result<u16, String> {
        let deadline = Instant::now() + self.timeout;
        let dataset_id = payload.dataset_id;
        match timeout_at(deadline, self.post(url, secret, payload)).await {
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                // Only the status counts, for any end of the body.
                let _ = timeout_at(deadline, drain(response)).await;
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
        self.outgoing.check_literal(&url).map_err(|error| error.to_string())?;
        let body = serde_json::to_vec(payload).map_err(|error| error.to_string())?;
        let mut request = self.client.post(url).header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(secret) = secret {
            let signature = sign(secret, &body).map_err(|error| error.to_string())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        request.body(body).send().await.map_err(|error| {
            let failure = connection_failure(&error);
            failure.unwrap_or_else(|| joined(causes(&error.without_url()).iter().map(ToString::to_string)))
        })
    }
}

async fn drain(mut response: Response) {
    let mut read_bytes = 0;
    while read_bytes < MAX_RESPONSE_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => read_bytes += chunk.len(),
            Ok(None) | Err(_) => return,
        }
    }
}

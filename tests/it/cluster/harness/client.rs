//! HTTP clients for the nodes and the load balancer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use strata_testing::http_client;

/// Longer than any response takes, even during attacks.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A client for one base URL, with the API token of the owner.
#[derive(Clone)]
pub struct ServiceClient {
    pub base_url: String,
    client: reqwest::Client,
    token: String,
}

/// A response, possibly truncated.
#[derive(Clone, Debug)]
pub struct ClusterResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body is complete according to HTTP.
    pub whole: bool,
}

impl ServiceClient {
    /// Uses a connection for each request, so that the load balancer selects a node each time, and no connection
    /// outlives the runtime of a test.
    pub fn new(base_url: &str, token: &str) -> ServiceClient {
        let client = http_client().timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(0).build().expect("a client");
        ServiceClient { base_url: base_url.to_owned(), client, token: token.to_owned() }
    }

    /// Returns the same client for another base URL.
    pub fn with_base_url(&self, base_url: &str) -> ServiceClient {
        ServiceClient { base_url: base_url.to_owned(), ..self.clone() }
    }

    /// Returns a client with another local address, which counts as another client.
    pub fn from(&self, address: std::net::IpAddr) -> ServiceClient {
        let client = http_client().timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(0).local_address(address).build();
        ServiceClient { client: client.expect("a client"), ..self.clone() }
    }

    /// Returns a client with persistent connections.
    pub fn with_keep_alive(&self) -> ServiceClient {
        let client = http_client().timeout(REQUEST_TIMEOUT).build().expect("a client");
        ServiceClient { client, ..self.clone() }
    }

    /// Sends a request without credentials; `None` if there is no response.
    pub async fn get(&self, path: &str) -> Option<ClusterResponse> {
        self.get_with(path, &[]).await
    }

    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Option<ClusterResponse> {
        let mut request = self.client.get(format!("{}{path}", self.base_url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        receive(request).await
    }

    /// Like [`ServiceClient::get`], without reading the body.
    pub async fn start(&self, path: &str) -> Option<StartedResponse> {
        self.client.get(format!("{}{path}", self.base_url)).send().await.ok().map(StartedResponse)
    }

    /// Sends a GET request of the owner.
    pub async fn view(&self, path: &str) -> Option<ClusterResponse> {
        self.get_with(path, &[("authorization", &format!("Bearer {}", self.token))]).await
    }

    /// Sends a POST request of the owner.
    pub async fn post(&self, path: &str, body: &Value) -> Option<ClusterResponse> {
        self.call(Method::POST, path, body).await
    }

    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Option<ClusterResponse> {
        self.send(method, path, body.to_string()).await
    }

    /// Like [`ServiceClient::post`], with an encoded body.
    pub async fn post_text(&self, path: &str, body: String) -> Option<ClusterResponse> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Option<ClusterResponse> {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(&self.token);
        receive(request.header("content-type", "application/json").body(body)).await
    }
}

async fn receive(request: reqwest::RequestBuilder) -> Option<ClusterResponse> {
    let started = StartedResponse(request.send().await.ok()?);
    Some(started.rest().await)
}

/// A response whose body is not read yet.
pub struct StartedResponse(reqwest::Response);

impl StartedResponse {
    /// Reads the body to its end, or to the first error.
    pub async fn rest(self) -> ClusterResponse {
        let status = self.0.status().as_u16();
        let headers = self.0.headers().clone();
        let mut body = BytesMut::new();
        let mut whole = true;
        let mut chunks = self.0.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(chunk) => body.extend_from_slice(&chunk),
                Err(_) => whole = false,
            }
        }
        ClusterResponse { status, headers, body: body.freeze(), whole }
    }
}

impl ClusterResponse {
    pub fn is_ok(&self) -> bool {
        self.status == 200 && self.whole
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the JSON of a successful response.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.is_ok(), "{} {}", self.status, self.text());
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

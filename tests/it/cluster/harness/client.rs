//! Clients of the service.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use strata_testing::http_client;

/// Longer than any answer takes, whatever happens meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// A way in, and whoever uses it: the owner.
#[derive(Clone)]
pub struct Door {
    pub base_url: String,
    client: reqwest::Client,
    token: String,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body came to what HTTP says is its end.
    pub whole: bool,
}

impl Door {
    /// A connection for each request: so the balancer chooses each time, and none outlives the runtime of a test.
    pub fn new(base_url: &str, token: &str) -> Door {
        let client = http_client().timeout(PATIENCE).pool_max_idle_per_host(0).build().expect("a client");
        Door { base_url: base_url.to_owned(), client, token: token.to_owned() }
    }

    /// The same client at another one.
    pub fn at(&self, base_url: &str) -> Door {
        Door { base_url: base_url.to_owned(), ..self.clone() }
    }

    /// The same, by a client at another address of this machine, which is another client to the service.
    pub fn from(&self, address: std::net::IpAddr) -> Door {
        let client = http_client().timeout(PATIENCE).pool_max_idle_per_host(0).local_address(address).build();
        Door { client: client.expect("a client"), ..self.clone() }
    }

    /// The same, by a client of its own that keeps its connection from request to request.
    pub fn keeping(&self) -> Door {
        let client = http_client().timeout(PATIENCE).build().expect("a client");
        Door { client, ..self.clone() }
    }

    /// An answer without credentials; `None` where none began.
    pub async fn get(&self, path: &str) -> Option<Reply> {
        self.get_with(path, &[]).await
    }

    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Option<Reply> {
        let mut request = self.client.get(format!("{}{path}", self.base_url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        receive(request).await
    }

    /// As [`Door::get`], only begun.
    pub async fn begin(&self, path: &str) -> Option<Begun> {
        self.client.get(format!("{}{path}", self.base_url)).send().await.ok().map(Begun)
    }

    /// What the owner sees.
    pub async fn view(&self, path: &str) -> Option<Reply> {
        self.get_with(path, &[("authorization", &format!("Bearer {}", self.token))]).await
    }

    /// A call of the owner's.
    pub async fn post(&self, path: &str, body: &Value) -> Option<Reply> {
        self.call(Method::POST, path, body).await
    }

    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Option<Reply> {
        self.send(method, path, body.to_string()).await
    }

    /// As [`Door::post`], of a text.
    pub async fn post_text(&self, path: &str, body: String) -> Option<Reply> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Option<Reply> {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(&self.token);
        receive(request.header("content-type", "application/json").body(body)).await
    }
}

async fn receive(request: reqwest::RequestBuilder) -> Option<Reply> {
    let begun = Begun(request.send().await.ok()?);
    Some(begun.rest().await)
}

/// An answer whose head came, and of whose body nothing was taken yet.
pub struct Begun(reqwest::Response);

impl Begun {
    /// All that comes.
    pub async fn rest(self) -> Reply {
        let (status, headers) = (self.0.status().as_u16(), self.0.headers().clone());
        let (mut body, mut whole) = (BytesMut::new(), true);
        let mut pieces = self.0.bytes_stream();
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => body.extend_from_slice(&piece),
                Err(_) => whole = false,
            }
        }
        Reply { status, headers, body: body.freeze(), whole }
    }
}

impl Reply {
    pub fn is_ok(&self) -> bool {
        self.status == 200 && self.whole
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The JSON of a successful answer.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.is_ok(), "{} {}", self.status, self.text());
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

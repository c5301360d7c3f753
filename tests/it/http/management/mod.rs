//! The management endpoints, called as owners call them. Every test runs on SQLite and on PostgreSQL, each with its
//! own database.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_config::{CatalogUrl, Config};
use strata_testing::openapi::Document;
use strata_testing::postgres::Postgres;
use strata_testing::{Answer, OWNER, PASSWORD, TestService};
use strata_types::user::UserPlan;

mod accounts;
mod datasets;
mod history;
mod listings;
mod refusals;
mod scopes;
mod sessions;
mod usage;

/// A service with users of each plan.
struct Owners {
    service: TestService,
    /// The tokens of users on the plans scale and free, and of another user on scale.
    scale: String,
    free: String,
    other: String,
    document: Document,
    _server: Option<Arc<Postgres>>,
}

impl Owners {
    async fn sqlite() -> Owners {
        Owners::on(None, |_| {}).await
    }

    async fn postgres() -> Owners {
        Owners::on(Some(Postgres::shared()), |_| {}).await
    }

    /// Returns a service with the same engine and a changed configuration.
    async fn with(&self, change: impl FnOnce(&mut Config)) -> Owners {
        Owners::on(self._server.clone(), change).await
    }

    async fn on(server: Option<Arc<Postgres>>, change: impl FnOnce(&mut Config)) -> Owners {
        let url = match &server {
            Some(server) => Some(server.create_database().await),
            None => None,
        };
        let service = TestService::configured(|config| {
            config.catalog.url = url.map(|url| CatalogUrl::try_from(url).expect("invalid URL"));
            config.limits.logins_per_minute = 0;
            config.limits.body_bytes = 10_000;
            change(config);
        })
        .await;
        let add = async |email: &str, plan| {
            let added =
                service.services.accounts.add_user(email, PASSWORD, plan, Some("ci")).await.expect("failed to add");
            format!("Bearer {}", added.expect("missing token").expose())
        };
        let free = add("free@strata.test", UserPlan::Free).await;
        let other = add("other@strata.test", UserPlan::Scale).await;
        let document = Document::fetch(&service).await;
        let owners = Owners { service, scale: String::new(), free, other, document, _server: server };
        let cookie = owners.log_in(OWNER, PASSWORD).await;
        let created = owners.send("POST", "/token/create", &[("cookie", &cookie)], &json!({"name": "tests"})).await;
        let scale = format!("Bearer {}", ok(&created)["token"].as_str().expect("missing token"));
        Owners { scale, ..owners }
    }

    /// Sends a request with a JSON body.
    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.raw(method, uri, &headers, body.to_string().into_bytes()).await
    }

    /// Sends any request. The OpenAPI document must describe the response.
    async fn raw(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri).header("host", "data.strata.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.service.call(request.body(Body::from(body)).expect("invalid request")).await;
        self.document.describes_call(method, uri.split('?').next().unwrap_or_default(), &answer);
        answer
    }

    /// Sends a request of the owner on the plan scale.
    async fn call(&self, method: &str, uri: &str, body: Value) -> Answer {
        self.send(method, uri, &[("authorization", &self.scale)], &body).await
    }

    async fn post(&self, uri: &str, body: Value) -> Answer {
        self.call("POST", uri, body).await
    }

    async fn get(&self, uri: &str) -> Answer {
        self.raw("GET", uri, &[("authorization", &self.scale)], Vec::new()).await
    }

    async fn try_log_in(&self, email: &str, password: &str) -> Answer {
        self.send("POST", "/session/login", &[], &json!({"email": email, "password": password})).await
    }

    async fn log_in(&self, email: &str, password: &str) -> String {
        cookie(&self.try_log_in(email, password).await)
    }

    /// Creates a dataset without versions. Returns its record.
    async fn create(&self, name: &str) -> Value {
        ok(&self.post("/dataset/create", json!({"name": name})).await)["dataset"].clone()
    }

    /// Imports a dataset with this many versions.
    async fn dataset(&self, name: &str, private: bool, versions: u64) -> u64 {
        let mut id = 0;
        for version in 1..=versions {
            let text = format!("[{{\"version\":{version}}}]");
            let imported = self.service.try_import(name, private, text.as_bytes()).await.expect("failed to import");
            id = imported.dataset_id.get();
        }
        id
    }
}

/// Returns the body of a successful response.
#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body: Value = serde_json::from_slice(&answer.body).expect("invalid JSON");
    assert_eq!(body.get("ok").unwrap_or(&Value::Bool(true)), true, "{body}");
    body
}

/// Checks that a request was rejected, and that the error contains `word`.
#[track_caller]
fn refused(answer: &Answer, status: u16, word: &str) {
    answer.is_error(status);
    assert!(answer.text().contains(word), "{} does not mention {word}", answer.text());
}

/// Returns the session cookie of a response, as a client sends it back.
#[track_caller]
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let set = answer.header("set-cookie").expect("missing cookie");
    assert!(set.starts_with("strata_session="), "{set}");
    set.split(';').next().expect("missing separator").to_owned()
}

//! A service, and a user with an API token.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use serde_json::{Value, json};
use strata_config::{CatalogUrl, Config};
use strata_service::PushedBody;
use strata_types::ids::UserId;
use strata_types::user::{User, UserPlan};

use crate::postgres::Postgres;
use crate::service::{Answer, PASSWORD, TestService};

/// A service, and a user with an API token.
pub struct Owned {
    pub service: TestService,
    pub user: User,
    pub token: String,
    pub _server: Option<Arc<Postgres>>,
}

impl Owned {
    pub async fn sqlite() -> Owned {
        Owned::configured(|_| {}, None).await
    }

    pub async fn postgres() -> Owned {
        let server = Postgres::shared();
        let url = CatalogUrl::try_from(server.create_database().await).expect("failed to parse URL");
        Owned::configured(|config| config.catalog.url = Some(url), Some(server)).await
    }

    /// Starts a service on SQLite with a changed configuration.
    pub async fn start(change: impl FnOnce(&mut Config)) -> Owned {
        Owned::configured(change, None).await
    }

    pub async fn configured(change: impl FnOnce(&mut Config), server: Option<Arc<Postgres>>) -> Owned {
        let service = TestService::configured(change).await;
        let (user, token) = add_user(&service, "ada@strata.test", UserPlan::Pro).await;
        Owned { service, user, token, _server: server }
    }

    /// Sends a management request of the user with a JSON body.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        call(&self.service, &self.token, method, path, body).await
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// Creates a dataset of the user with one version per entity list.
    pub async fn dataset(&self, name: &str, settings: Value, versions: &[&str]) -> u64 {
        let mut body = settings;
        body["name"] = json!(name);
        let created = parsed(&self.call("POST", "/dataset/create", &body.to_string()).await);
        let id = created["dataset"]["dataset_id"].as_u64().expect("missing ID");
        for entities in versions {
            self.push(id, entities).await;
        }
        id
    }

    /// Creates the next version.
    pub async fn push(&self, id: u64, entities: &str) {
        try_push(&self.service, self.user.id, id, entities).await.expect("missing version");
    }

    pub async fn save(&self, id: u64, version: u64, entities: &str) -> Answer {
        let body = format!(r#"{{"dataset_id":{id},"version":{version},"entities":{entities}}}"#);
        self.call("POST", "/dataset/alternate/save", &body).await
    }

    pub async fn delete(&self, id: u64, version: u64) -> Answer {
        let body = format!(r#"{{"dataset_id":{id},"version":{version}}}"#);
        self.call("DELETE", "/dataset/alternate/delete", &body).await
    }

    pub async fn clone(&self, id: u64, name: &str) -> Answer {
        self.call("POST", "/dataset/clone", &json!({"dataset_id": id, "name": name}).to_string()).await
    }

    /// Returns the records of a dataset's versions, newest first.
    pub async fn versions(&self, id: u64) -> Vec<Value> {
        let view = parsed(&self.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await);
        view["dataset"]["versions"].as_array().expect("missing versions").clone()
    }

    /// Returns the lines of a read.
    pub async fn lines(&self, path: &str) -> String {
        let answer = self.service.get(&format!("{path}?format=jsonl")).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{path}: {}", answer.text());
        answer.text().to_owned()
    }

    pub async fn receive(&self, entities: &str) -> PushedBody {
        let body = Bytes::from(format!(r#"{{"entities":{entities}}}"#));
        let chunks = futures::stream::iter([Ok::<_, std::io::Error>(body)]);
        self.service
            .services
            .ingest
            .receive_entities(self.user.id, chunks, &["dataset_id"])
            .await
            .expect("failed to receive entities")
    }

    pub async fn pull(&self, body: Value) -> Answer {
        self.call("POST", "/agent/pull_for_edit", &body.to_string()).await
    }

    /// Returns the ETag of a version.
    pub async fn etag(&self, id: u64, version: u64) -> String {
        let pulled = parsed(&self.pull(json!({"dataset_id": id, "version": version})).await);
        pulled["etag"].as_str().expect("missing ETag").to_owned()
    }

    pub async fn push_alt(&self, id: u64, version: u64, etag: &str, entities: &str) -> Answer {
        let body = format!(r#"{{"dataset_id":{id},"version":{version},"etag":{},"entities":{entities}}}"#, json!(etag));
        self.call("POST", "/agent/push_alt_version", &body).await
    }

    /// Edits the alternate. `edits` is JSON text.
    pub async fn edit(&self, id: u64, etag: &str, edits: &str) -> Answer {
        let body = format!(r#"{{"dataset_id":{id},"version":1,"etag":{},"edits":{edits}}}"#, json!(etag));
        self.call("POST", "/dataset/alternate/edit", &body).await
    }

    pub async fn alternate(&self, id: u64) -> String {
        let answer = self.service.get(&format!("/api/{id}/things/v1/alt/?pretty=false")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().to_owned()
    }
}

/// Pushes the next version of a dataset like a request of the owner. The error is a message.
pub async fn try_push(service: &TestService, owner: UserId, dataset: u64, entities: &str) -> Result<(), String> {
    let body = Bytes::from(format!(r#"{{"dataset_id":{dataset},"entities":{entities}}}"#));
    let push = strata_service::PushRequest {
        dataset: None,
        body: futures::stream::iter([Ok::<_, std::io::Error>(body)]),
        content_type: None,
        name: None,
        format: None,
        infer_types: None,
        is_enveloped: true,
    };
    service.services.refreshes.push(owner, push).await.map(drop).map_err(|error| error.to_string())
}

/// Adds another user with an API token.
pub async fn add_user(service: &TestService, email: &str, plan: UserPlan) -> (User, String) {
    let added =
        service.services.accounts.add_user(email, PASSWORD, plan, Some("test")).await.expect("failed to add user");
    let token = added.expect("missing token").expose().to_owned();
    let user = service
        .services
        .sessions
        .find_user_by_token(strata_service::ClientNetwork::Unspecified, &token)
        .await
        .expect("failed to query catalog")
        .expect("missing user")
        .user;
    (user, token)
}

pub async fn call(service: &TestService, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {token}"));
    service.call(request.body(Body::from(body.to_owned())).expect("failed to build request")).await
}

/// Parses the JSON of a successful response.
#[track_caller]
pub fn parsed(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let value: Value = serde_json::from_str(answer.text()).expect("failed to parse JSON");
    assert_eq!(value["ok"], json!(true));
    value
}

/// Logs a user in with the password of the tests, and returns the session cookie.
pub async fn log_in(service: &TestService, email: &str) -> String {
    let body = json!({"email": email, "password": PASSWORD}).to_string();
    let request = Request::post("/session/login").header("content-type", "application/json");
    let answer = service.call(request.body(Body::from(body)).expect("failed to build request")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let set = answer.header("set-cookie").expect("missing cookie");
    set.split(';').next().expect("missing pair").to_owned()
}

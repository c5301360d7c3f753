//! Password changes, sessions, expiring tokens, and ping URLs.

use std::time::Duration;

use serde_json::{Value, json};
use strata_testing::databases::on_both_databases;
use strata_testing::{Answer, OWNER, PASSWORD};

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    new_password_ends_other_sessions
    wrong_old_password_counts_as_login
    sessions_are_listed_and_ended
    expired_token_returns_401
    token_fields_are_validated
    new_ping_url_replaces_old
}

impl Owners {
    async fn with_cookie(&self, method: &str, uri: &str, cookie: &str, body: Value) -> Answer {
        self.send(method, uri, &[("cookie", cookie)], &body).await
    }

    async fn me(&self, cookie: &str) -> u16 {
        self.raw("GET", "/session/me", &[("cookie", cookie)], Vec::new()).await.status
    }
}

async fn new_password_ends_other_sessions(owners: Owners) {
    let current = owners.log_in(OWNER, PASSWORD).await;
    let other = owners.log_in(OWNER, PASSWORD).await;
    let theirs = owners.log_in("free@strata.test", PASSWORD).await;
    let change = async |cookie: &str, old: &str, new: &str| {
        owners.with_cookie("POST", "/account/password", cookie, json!({"old": old, "new": new})).await
    };
    refused(&change(&current, "wrong", "new password").await, 403, "`old` does not match your current password");
    refused(
        &change(&current, &"x".repeat(2_000), "new password").await,
        403,
        "`old` does not match your current password",
    );
    for new in [String::new(), "x".repeat(1_025)] {
        refused(&change(&current, PASSWORD, &new).await, 400, "new: the password must be 1 to 1024 bytes long");
        refused(&change(&current, "wrong", &new).await, 400, "new");
    }
    assert_eq!((owners.me(&current).await, owners.me(&other).await), (200, 200), "nothing has changed");
    let changed = ok(&change(&current, PASSWORD, &"x".repeat(1_024)).await);
    assert_eq!(changed["user"]["email"], OWNER);
    assert_eq!((owners.me(&current).await, owners.me(&other).await, owners.me(&theirs).await), (200, 401, 200));
    ok(&owners.get("/session/me").await);
    refused(&owners.try_log_in(OWNER, PASSWORD).await, 401, "password");
    owners.log_in(OWNER, &"x".repeat(1_024)).await;

    // With a token, no session remains.
    let body = json!({"old": "x".repeat(1_024), "new": PASSWORD});
    ok(&owners.post("/account/password", body).await);
    assert_eq!(owners.me(&current).await, 401);
    ok(&owners.get("/session/me").await);
    owners.log_in(OWNER, PASSWORD).await;
}

async fn wrong_old_password_counts_as_login(owners: Owners) {
    let owners = owners.with(|config| config.limits.logins_per_minute = 2).await;
    let change = async |old: &str| owners.post("/account/password", json!({"old": old, "new": PASSWORD})).await;
    for _ in 0..2 {
        refused(&change("wrong").await, 403, "password");
    }
    // Even the correct password is rejected, here and at login.
    for answer in [change(PASSWORD).await, owners.try_log_in(OWNER, PASSWORD).await] {
        refused(&answer, 429, "login attempts");
        assert!(answer.header("retry-after").is_some());
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    ok(&change(PASSWORD).await);
}

async fn sessions_are_listed_and_ended(owners: Owners) {
    // The login with which the test created its token.
    let before = listed(&owners.get("/session/list").await);
    assert_eq!((before.len(), &before[0]["current"]), (1, &json!(false)));
    let current = owners.log_in(OWNER, PASSWORD).await;
    let other = owners.log_in(OWNER, PASSWORD).await;
    let by_cookie =
        async |cookie: &str| listed(&owners.raw("GET", "/session/list", &[("cookie", cookie)], Vec::new()).await);
    let sessions = by_cookie(&current).await;
    assert_eq!(sessions.len(), 3);
    let flags: Vec<&Value> = sessions.iter().map(|session| &session["current"]).collect();
    assert_eq!(flags, [&json!(false), &json!(true), &json!(false)], "the newest first");
    for session in &sessions {
        let names: Vec<&str> = session.as_object().expect("expected an object").keys().map(String::as_str).collect();
        assert_eq!(names, ["id", "created_at", "last_used_at", "current"]);
        let id = session["id"].as_str().expect("missing text");
        assert!(!current.contains(id) && !other.contains(id) && !id.is_empty());
        // The ID of a session is not a credential.
        assert_eq!(owners.me(&format!("strata_session={id}")).await, 401);
    }
    let end =
        async |cookie: &str, id: &Value| owners.with_cookie("DELETE", "/session/end", cookie, json!({"id": id})).await;
    // Sessions of other users are not found.
    let theirs = owners.log_in("free@strata.test", PASSWORD).await;
    refused(&end(&theirs, &sessions[0]["id"]).await, 404, "session");
    assert_eq!(ok(&end(&current, &sessions[0]["id"]).await), json!({"ok": true}));
    assert_eq!((owners.me(&current).await, owners.me(&other).await), (200, 401));
    refused(&end(&current, &sessions[0]["id"]).await, 404, "session");
    // The cookie value is not the ID.
    let value = current.split_once('=').expect("missing separator").1;
    refused(&end(&current, &json!(value)).await, 404, "session");
    for id in [json!(1), json!(null), json!(["x"])] {
        refused(&end(&current, &id).await, 400, "id");
    }
    ok(&end(&current, &sessions[1]["id"]).await);
    assert_eq!(owners.me(&current).await, 401);
    assert_eq!(listed(&owners.get("/session/list").await), before);
}

#[track_caller]
fn listed(answer: &Answer) -> Vec<Value> {
    ok(answer)["sessions"].as_array().expect("expected sessions").clone()
}

async fn expired_token_returns_401(owners: Owners) {
    let created = ok(&owners.post("/token/create", json!({"name": "brief", "expires_in_s": 1})).await);
    let lasting = ok(&owners.post("/token/create", json!({"name": "long", "expires_in_s": 3_600})).await);
    let time = |value: &Value| {
        chrono::DateTime::parse_from_rfc3339(value.as_str().expect("invalid time")).expect("invalid RFC 3339 time")
    };
    let seconds = (time(&lasting["expires_at"]).to_utc() - chrono::Utc::now()).num_seconds();
    assert!((3_590..=3_600).contains(&seconds), "{lasting}");
    let bearer = format!("Bearer {}", created["token"].as_str().expect("missing token"));
    let call = async |uri: &str| owners.raw("GET", uri, &[("authorization", &bearer)], Vec::new()).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let expired = call("/session/me").await;
    refused(&expired, 401, "API token");
    assert_eq!(expired.header("www-authenticate"), Some("Bearer"));
    refused(&call("/dataset/profile?dataset_id=1").await, 401, "API token");
    let tool = owners.service.send("POST", "/mcp", Some(&bearer)).await;
    assert_eq!(tool.status, 401);
    let tokens = ok(&owners.get("/token/list").await);
    let shown: Vec<_> =
        tokens["tokens"].as_array().expect("expected tokens").iter().map(|token| &token["expires_at"]).collect();
    assert_eq!(shown, [&created["expires_at"], &lasting["expires_at"], &Value::Null]);
    // The name of an expired token can be used again.
    ok(&owners.post("/token/create", json!({"name": "brief"})).await);
}

async fn token_fields_are_validated(owners: Owners) {
    for scope in [json!("admin"), json!("READ"), json!(""), json!(1), json!(["read"])] {
        let answer = owners.post("/token/create", json!({"name": "x", "scope": scope})).await;
        refused(&answer, 400, "scope");
        assert!(answer.text().contains("valid: read, write"), "{}", answer.text());
    }
    for seconds in [json!(0), json!(-1), json!(1.5), json!("60"), json!(3_153_600_001_u64), json!(u64::MAX)] {
        refused(
            &owners.post("/token/create", json!({"name": "x", "expires_in_s": seconds})).await,
            400,
            "expires_in_s",
        );
    }
    let body = json!({"name": "x", "scope": null, "expires_in_s": null});
    let created = ok(&owners.post("/token/create", body).await);
    assert_eq!((&created["scope"], &created["expires_at"]), (&json!("write"), &json!(null)));
    let created = ok(&owners.post("/token/create", json!({"name": "y", "scope": "read", "expires_in_s": 60.0})).await);
    assert_eq!(created["scope"], "read");
    let tokens = ok(&owners.get("/token/list").await);
    let scopes: Vec<_> =
        tokens["tokens"].as_array().expect("expected tokens").iter().map(|token| &token["scope"]).collect();
    assert_eq!(scopes, ["write", "write", "read"]);
}

async fn new_ping_url_replaces_old(owners: Owners) {
    let created =
        ok(&owners.post("/dataset/create", json!({"name": "Pinged", "private": true})).await)["dataset"].clone();
    let path = |record: &Value| {
        let url = record["ping_url"].as_str().expect("invalid URL");
        url[url.find("/ping/").expect("missing path")..].to_owned()
    };
    let old = path(&created);
    // The source is `push`, so a ping returns 409.
    refused(&owners.service.send("POST", &old, None).await, 409, "nothing to fetch");
    let rotated = ok(&owners.post("/dataset/rotate_ping", json!({"dataset_id": created["dataset_id"]})).await);
    let rotated = &rotated["dataset"];
    assert_ne!(path(rotated), old);
    let but_url = |record: &Value| {
        let mut record = record.clone();
        record["ping_url"] = json!(null);
        record
    };
    assert_eq!(but_url(rotated)["private_key"], created["private_key"]);
    assert_eq!(but_url(rotated)["dataset_id"], created["dataset_id"]);
    for method in ["GET", "POST"] {
        refused(&owners.service.send(method, &old, None).await, 404, "ping");
    }
    refused(&owners.service.send("POST", &path(rotated), None).await, 409, "nothing to fetch");
    let theirs = json!({"dataset_id": created["dataset_id"]});
    let answer = owners.send("POST", "/dataset/rotate_ping", &[("authorization", &owners.other)], &theirs).await;
    refused(&answer, 404, "dataset");
}

//! Sessions and API tokens: logins, and limits for guessing.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use strata_config::Config;
use strata_testing::PASSWORD;
use strata_testing::databases::on_both_databases;
use strata_testing::{Answer, OWNER};
use strata_types::secret::Secret;

use super::{Owners, cookie, ok, refused};

on_both_databases! {
    Owners:
    login_starts_and_logout_ends_session
    use_extends_session_until_idle_timeout
    wrong_credentials_return_same_error
    session_ends_at_absolute_timeout
    logins_are_limited_per_client_and_account
    distributed_guessing_does_not_lock_owner_out
    tokens_are_valid_until_deleted
}

async fn login_starts_and_logout_ends_session(owners: Owners) {
    let answer = owners.try_log_in(" OWNER@strata.test", PASSWORD).await;
    let user = ok(&answer);
    assert_eq!((&user["user"]["email"], &user["user"]["plan"]), (&json!(OWNER), &json!("scale")));
    assert_eq!(user["user"].as_object().expect("expected an object").len(), 3, "{user}");
    let set = answer.header("set-cookie").expect("missing cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=7776000"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "{set}");

    let session = cookie(&answer);
    let me = async |cookie: &str| owners.raw("GET", "/session/me", &[("cookie", cookie)], Vec::new()).await;
    assert_eq!(ok(&me(&session).await), user);
    assert_eq!(ok(&me(&format!("a=b; {session}; c=\"d\"")).await), user);
    // The database does not contain the ID.
    let id = session.split_once('=').expect("missing separator").1;
    let record = owners
        .service
        .catalog()
        .await
        .session(&Secret::from_stored(id.to_owned()).sha256_hex())
        .await
        .expect("failed to look up");
    assert!(!format!("{:?}", record.expect("missing session")).contains(id));

    // Another login returns a new ID, and the old one becomes invalid.
    let again = owners
        .send("POST", "/session/login", &[("cookie", &session)], &json!({"email": OWNER, "password": PASSWORD}))
        .await;
    let other = cookie(&again);
    assert_ne!(other, session);
    refused(&me(&session).await, 401, "session");
    ok(&me(&other).await);
    // An ID that the client chose is never accepted.
    let chosen = format!("strata_session={id}");
    let fixed = owners
        .send("POST", "/session/login", &[("cookie", &chosen)], &json!({"email": OWNER, "password": PASSWORD}))
        .await;
    assert_ne!(cookie(&fixed), chosen);

    let out = owners.raw("POST", "/session/logout", &[("cookie", &other)], Vec::new()).await;
    assert_eq!(ok(&out), json!({"ok": true}));
    assert!(out.header("set-cookie").is_some_and(|set| set.contains("Max-Age=0")), "{:?}", out.headers);
    refused(&me(&other).await, 401, "session");
    refused(&owners.raw("POST", "/session/logout", &[("cookie", &other)], Vec::new()).await, 401, "session");

    // A password change ends all sessions.
    let session = owners.log_in(OWNER, PASSWORD).await;
    owners.service.services.accounts.set_password(OWNER, "another password").await.expect("failed to change");
    refused(&me(&session).await, 401, "session");
    refused(&owners.try_log_in(OWNER, PASSWORD).await, 401, "password");
    owners.log_in(OWNER, "another password").await;
}

async fn use_extends_session_until_idle_timeout(owners: Owners) {
    let session = owners.log_in(OWNER, PASSWORD).await;
    let hash = Secret::from_stored(session.split_once('=').expect("missing separator").1.to_owned()).sha256_hex();
    let catalog = owners.service.catalog().await;
    let end = async || catalog.session(&hash).await.expect("failed to look up").expect("missing session").expires_at;
    let me = async || owners.raw("GET", "/session/me", &[("cookie", &session)], Vec::new()).await;
    let whole = end().await;
    ok(&me().await);
    assert_eq!(end().await, whole, "a use at once costs no write");
    catalog.extend_session(&hash, whole - chrono::TimeDelta::days(1)).await.expect("failed to move");
    ok(&me().await);
    assert!(end().await >= whole);
    catalog.extend_session(&hash, catalog.now() - chrono::TimeDelta::seconds(1)).await.expect("failed to move");
    refused(&me().await, 401, "session");
}

async fn wrong_credentials_return_same_error(owners: Owners) {
    let unknown = owners.try_log_in("nobody@strata.test", PASSWORD).await;
    refused(&unknown, 401, "email and password");
    for (email, password) in
        [(OWNER, "wrong"), (OWNER, ""), (OWNER, "a\u{0}b"), ("\u{0}", PASSWORD), ("", ""), (OWNER, &"x".repeat(2_000))]
    {
        let answer = owners.try_log_in(email, password).await;
        assert_eq!((answer.status, &answer.body), (401, &unknown.body), "{email:?}");
        assert_eq!(answer.header("set-cookie"), None);
    }
    let session = "strata_session=AAAAAAAAAAAAAAAAAAAAAA";
    for headers in [
        &[][..],
        &[("cookie", session)],
        &[("cookie", "strata_session=")],
        &[("cookie", "strata_session=\u{7f}x")],
        &[("authorization", "Bearer strata_00")],
        &[("authorization", "Bearer x")],
        &[("authorization", "Basic eDp5")],
    ] {
        let headers: Vec<_> = headers.iter().filter(|(_, value)| !value.contains('\u{7f}')).copied().collect();
        let answer = owners.raw("GET", "/session/me", &headers, Vec::new()).await;
        refused(&answer, 401, "/session/login");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    // A valid cookie does not replace an invalid token.
    let session = owners.log_in(OWNER, PASSWORD).await;
    let both = [("cookie", session.as_str()), ("authorization", "Bearer strata_00")];
    refused(&owners.raw("GET", "/session/me", &both, Vec::new()).await, 401, "/session/login");
}

async fn session_ends_at_absolute_timeout(owners: Owners) {
    let owners = owners.with(|config| config.sessions.absolute_s = 3_600).await;
    let cookie = owners.log_in(OWNER, PASSWORD).await;
    let hash = Secret::from_stored(cookie.split_once('=').expect("missing separator").1.to_owned()).sha256_hex();
    let catalog = owners.service.catalog().await;
    let session = catalog.session(&hash).await.expect("failed to look up").expect("missing session");
    assert_eq!((session.expires_at - session.created_at).num_seconds(), 3_600, "although two idle weeks are free");
    let me = async || owners.raw("GET", "/session/me", &[("cookie", &cookie)], Vec::new()).await;
    // The same session with an earlier start.
    let begun = async |minutes: i64| {
        let created_at = session.created_at - chrono::TimeDelta::minutes(minutes);
        catalog.delete_session(&hash).await.expect("failed to delete");
        let mut record = session.clone();
        record.created_at = created_at;
        assert!(catalog.try_create_session(&record, None, 100).await.expect("not recorded"));
    };
    begun(50).await;
    ok(&me().await);
    begun(61).await;
    // The record has not expired, but the absolute timeout has passed.
    refused(&me().await, 401, "session");
}

/// Logins from different addresses.
struct LoginClient(Owners);

impl LoginClient {
    async fn start(owners: Owners, change: impl FnOnce(&mut Config)) -> LoginClient {
        let limited = owners.with(|config| {
            config.server.trusted_proxies = vec!["127.0.0.1".to_owned()].try_into().expect("invalid network");
            change(config);
        });
        LoginClient(limited.await)
    }

    async fn log_in(&self, email: &str, address: &str, password: &str) -> Answer {
        let body = json!({"email": email, "password": password}).to_string();
        let peer = axum::extract::ConnectInfo(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let request = Request::post("/session/login")
            .header("content-type", "application/json")
            .header("x-forwarded-for", address)
            .extension(peer);
        self.0.service.call(request.body(Body::from(body)).expect("invalid request")).await
    }

    async fn retry_after(&self, email: &str, address: &str) -> u64 {
        let answer = self.log_in(email, address, PASSWORD).await;
        refused(&answer, 429, "login attempts");
        answer.header("retry-after").expect("missing Retry-After").parse().expect("invalid seconds")
    }
}

async fn logins_are_limited_per_client_and_account(owners: Owners) {
    let door = LoginClient::start(owners, |config| config.limits.logins_per_minute = 3).await;
    for _ in 0..3 {
        refused(&door.log_in("free@strata.test", "192.0.2.1", "wrong").await, 401, "password");
    }
    // This client can no longer log in to this account, ignoring case, even with the correct password.
    for email in ["free@strata.test", "FREE@strata.test"] {
        assert_eq!(door.retry_after(email, "192.0.2.1").await, 1);
    }
    // Other clients and other accounts are not limited.
    cookie(&door.log_in("free@strata.test", "192.0.2.2", PASSWORD).await);
    cookie(&door.log_in("other@strata.test", "192.0.2.1", PASSWORD).await);
    // Attempts for missing accounts are limited in the same way.
    for _ in 0..3 {
        refused(&door.log_in("nobody@strata.test", "192.0.2.3", "wrong").await, 401, "password");
    }
    assert_eq!(door.retry_after("nobody@strata.test", "192.0.2.3").await, 1);
    // A client has nine attempts per minute in total, of which four are used.
    for number in 0..6 {
        door.log_in(&format!("u{number}@strata.test"), "192.0.2.1", "wrong").await;
    }
    assert!((1..=60).contains(&door.retry_after("other@strata.test", "192.0.2.1").await));
}

async fn distributed_guessing_does_not_lock_owner_out(owners: Owners) {
    let door = LoginClient::start(owners, |config| {
        config.limits.logins_per_minute = 3;
        config.limits.account_logins_per_hour = 5;
    });
    let door = door.await;
    cookie(&door.log_in("free@strata.test", "192.0.2.200", PASSWORD).await);
    let mut checked = 0;
    for client in 1..10 {
        let answer = door.log_in("free@strata.test", &format!("192.0.2.{client}"), "wrong").await;
        checked += usize::from(answer.status == 401);
    }
    assert_eq!(checked, 5);
    assert!((3_000..=3_600).contains(&door.retry_after("free@strata.test", "192.0.2.100").await));
    // Known addresses of the owner are not limited by the attempts of others.
    cookie(&door.log_in("free@strata.test", "192.0.2.200", PASSWORD).await);
}

async fn tokens_are_valid_until_deleted(owners: Owners) {
    let created = ok(&owners.post("/token/create", json!({"name": "deploy"})).await);
    assert_eq!((&created["name"], created.as_object().expect("expected an object").len()), (&json!("deploy"), 5));
    assert_eq!((&created["scope"], &created["expires_at"]), (&json!("write"), &json!(null)));
    let token = created["token"].as_str().expect("missing token");
    assert!(token.starts_with("strata_"));
    refused(&owners.post("/token/create", json!({"name": "deploy"})).await, 409, "name");
    let bearer = format!("bearer {token}");
    let me = async || owners.raw("GET", "/session/me", &[("authorization", &bearer)], Vec::new()).await;
    assert_eq!(ok(&me().await)["user"]["email"], OWNER);

    let listed = owners.get("/token/list").await;
    assert!(!listed.text().contains(token));
    let listed = ok(&listed);
    let names: Vec<_> =
        listed["tokens"].as_array().expect("expected tokens").iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["deploy", "tests"]);
    assert!(listed["tokens"][0]["last_used_at"].is_string(), "{listed}");

    // Token names are unique per user.
    let other = [("authorization", owners.other.as_str())];
    refused(&owners.send("DELETE", "/token/delete", &other, &json!({"name": "deploy"})).await, 404, "token");
    assert_eq!(ok(&owners.call("DELETE", "/token/delete", json!({"name": "deploy"})).await), json!({"ok": true}));
    refused(&me().await, 401, "token");
    refused(&owners.call("DELETE", "/token/delete", json!({"name": "deploy"})).await, 404, "token");
    for name in [json!(""), json!("x".repeat(300)), json!("a\u{0}"), json!(1), json!(null)] {
        refused(&owners.post("/token/create", json!({"name": name})).await, 400, "name");
    }
    for number in 0..99 {
        ok(&owners.post("/token/create", json!({"name": format!("t{number}")})).await);
    }
    refused(&owners.post("/token/create", json!({"name": "one more"})).await, 409, "100");
}

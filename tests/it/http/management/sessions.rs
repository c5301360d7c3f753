//! Sessions and API tokens: how owners come in, and how guessing is slowed down.

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
    a_log_in_begins_a_session_that_log_out_ends
    a_session_ends_when_it_is_not_used_and_its_end_moves_when_it_is
    wrong_credentials_are_all_answered_alike
    a_session_ends_for_good_however_much_it_is_used
    log_ins_are_limited_for_a_client_and_an_account_together
    many_clients_together_guess_slowly_and_keep_no_owner_out
    tokens_open_until_they_are_deleted
}

async fn a_log_in_begins_a_session_that_log_out_ends(owners: Owners) {
    let answer = owners.try_log_in(" OWNER@strata.test", PASSWORD).await;
    let user = ok(&answer);
    assert_eq!((&user["user"]["email"], &user["user"]["plan"]), (&json!(OWNER), &json!("scale")));
    assert_eq!(user["user"].as_object().expect("a record").len(), 3, "{user}");
    let set = answer.header("set-cookie").expect("a cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=7776000"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "{set}");

    let session = cookie(&answer);
    let me = async |cookie: &str| owners.raw("GET", "/session/me", &[("cookie", cookie)], Vec::new()).await;
    assert_eq!(ok(&me(&session).await), user);
    assert_eq!(ok(&me(&format!("a=b; {session}; c=\"d\"")).await), user);
    // The id is nowhere in the database.
    let id = session.split_once('=').expect("a pair").1;
    let record =
        owners.service.catalog().await.session(&Secret::from_stored(id.to_owned()).hash()).await.expect("a look-up");
    assert!(!format!("{:?}", record.expect("a session")).contains(id));

    // Whoever logs in again gets another id, and the old one is void.
    let again = owners
        .send("POST", "/session/login", &[("cookie", &session)], &json!({"email": OWNER, "password": PASSWORD}))
        .await;
    let other = cookie(&again);
    assert_ne!(other, session);
    refused(&me(&session).await, 401, "session");
    ok(&me(&other).await);
    // An id that the client chose is never taken over.
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

    // A new password ends all sessions.
    let session = owners.log_in(OWNER, PASSWORD).await;
    owners.service.services.accounts.set_password(OWNER, "another password").await.expect("changed");
    refused(&me(&session).await, 401, "session");
    refused(&owners.try_log_in(OWNER, PASSWORD).await, 401, "password");
    owners.log_in(OWNER, "another password").await;
}

async fn a_session_ends_when_it_is_not_used_and_its_end_moves_when_it_is(owners: Owners) {
    let session = owners.log_in(OWNER, PASSWORD).await;
    let hash = Secret::from_stored(session.split_once('=').expect("a pair").1.to_owned()).hash();
    let catalog = owners.service.catalog().await;
    let end = async || catalog.session(&hash).await.expect("a look-up").expect("a session").expires_at;
    let me = async || owners.raw("GET", "/session/me", &[("cookie", &session)], Vec::new()).await;
    let whole = end().await;
    ok(&me().await);
    assert_eq!(end().await, whole, "a use at once costs no write");
    catalog.extend_session(&hash, whole - chrono::TimeDelta::days(1)).await.expect("moved");
    ok(&me().await);
    assert!(end().await >= whole);
    catalog.extend_session(&hash, catalog.now() - chrono::TimeDelta::seconds(1)).await.expect("moved");
    refused(&me().await, 401, "session");
}

async fn wrong_credentials_are_all_answered_alike(owners: Owners) {
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
    // A token that is wrong is not made good by a cookie that is right.
    let session = owners.log_in(OWNER, PASSWORD).await;
    let both = [("cookie", session.as_str()), ("authorization", "Bearer strata_00")];
    refused(&owners.raw("GET", "/session/me", &both, Vec::new()).await, 401, "/session/login");
}

async fn a_session_ends_for_good_however_much_it_is_used(owners: Owners) {
    let owners = owners.with(|config| config.sessions.absolute_s = 3_600).await;
    let cookie = owners.log_in(OWNER, PASSWORD).await;
    let hash = Secret::from_stored(cookie.split_once('=').expect("a pair").1.to_owned()).hash();
    let catalog = owners.service.catalog().await;
    let session = catalog.session(&hash).await.expect("a look-up").expect("a session");
    assert_eq!((session.expires_at - session.created_at).num_seconds(), 3_600, "although two idle weeks are free");
    let me = async || owners.raw("GET", "/session/me", &[("cookie", &cookie)], Vec::new()).await;
    // The same session, begun earlier.
    let begun = async |minutes: i64| {
        let created_at = session.created_at - chrono::TimeDelta::minutes(minutes);
        catalog.delete_session(&hash).await.expect("deleted");
        let mut record = session.clone();
        record.created_at = created_at;
        assert!(catalog.create_session(&record, None, 100).await.expect("recorded"));
    };
    begun(50).await;
    ok(&me().await);
    begun(61).await;
    // Its record would let it go on; the limit was lowered since.
    refused(&me().await, 401, "session");
}

/// Log-ins from addresses of the test's choice.
struct Door(Owners);

impl Door {
    async fn of(owners: Owners, change: impl FnOnce(&mut Config)) -> Door {
        let limited = owners.with(|config| {
            config.server.trusted_proxies = vec!["127.0.0.1".to_owned()].try_into().expect("a network");
            change(config);
        });
        Door(limited.await)
    }

    async fn log_in(&self, email: &str, address: &str, password: &str) -> Answer {
        let body = json!({"email": email, "password": password}).to_string();
        let peer = axum::extract::ConnectInfo(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let request = Request::post("/session/login")
            .header("content-type", "application/json")
            .header("x-forwarded-for", address)
            .extension(peer);
        self.0.service.call(request.body(Body::from(body)).expect("a request")).await
    }

    async fn waits(&self, email: &str, address: &str) -> u64 {
        let answer = self.log_in(email, address, PASSWORD).await;
        refused(&answer, 429, "login attempts");
        answer.header("retry-after").expect("a time").parse().expect("seconds")
    }
}

async fn log_ins_are_limited_for_a_client_and_an_account_together(owners: Owners) {
    let door = Door::of(owners, |config| config.limits.logins_per_minute = 3).await;
    for _ in 0..3 {
        refused(&door.log_in("free@strata.test", "192.0.2.1", "wrong").await, 401, "password");
    }
    // From there not for that account, in whatever case, not even with the right password.
    for email in ["free@strata.test", "FREE@strata.test"] {
        assert_eq!(door.waits(email, "192.0.2.1").await, 1);
    }
    // From elsewhere, and for others, at once.
    cookie(&door.log_in("free@strata.test", "192.0.2.2", PASSWORD).await);
    cookie(&door.log_in("other@strata.test", "192.0.2.1", PASSWORD).await);
    // An account that does not exist is treated alike.
    for _ in 0..3 {
        refused(&door.log_in("nobody@strata.test", "192.0.2.3", "wrong").await, 401, "password");
    }
    assert_eq!(door.waits("nobody@strata.test", "192.0.2.3").await, 1);
    // One client in all: nine tries a minute, of which four are used up.
    for number in 0..6 {
        door.log_in(&format!("u{number}@strata.test"), "192.0.2.1", "wrong").await;
    }
    assert!((1..=60).contains(&door.waits("other@strata.test", "192.0.2.1").await));
}

async fn many_clients_together_guess_slowly_and_keep_no_owner_out(owners: Owners) {
    let door = Door::of(owners, |config| {
        config.limits.logins_per_minute = 3;
        config.limits.account_logins_per_hour = 5;
    });
    let door = door.await;
    cookie(&door.log_in("free@strata.test", "192.0.2.200", PASSWORD).await);
    let mut looked_at = 0;
    for client in 1..10 {
        let answer = door.log_in("free@strata.test", &format!("192.0.2.{client}"), "wrong").await;
        looked_at += usize::from(answer.status == 401);
    }
    assert_eq!(looked_at, 5);
    assert!((3_000..=3_600).contains(&door.waits("free@strata.test", "192.0.2.100").await));
    // Where the owner has been before, the guesses of others do not count.
    cookie(&door.log_in("free@strata.test", "192.0.2.200", PASSWORD).await);
}

async fn tokens_open_until_they_are_deleted(owners: Owners) {
    let made = ok(&owners.post("/token/create", json!({"name": "deploy"})).await);
    assert_eq!((&made["name"], made.as_object().expect("an object").len()), (&json!("deploy"), 5));
    assert_eq!((&made["scope"], &made["expires_at"]), (&json!("write"), &json!(null)));
    let token = made["token"].as_str().expect("a token");
    assert!(token.starts_with("strata_"));
    refused(&owners.post("/token/create", json!({"name": "deploy"})).await, 409, "name");
    let bearer = format!("bearer {token}");
    let me = async || owners.raw("GET", "/session/me", &[("authorization", &bearer)], Vec::new()).await;
    assert_eq!(ok(&me().await)["user"]["email"], OWNER);

    let listed = owners.get("/token/list").await;
    assert!(!listed.text().contains(token));
    let listed = ok(&listed);
    let names: Vec<_> = listed["tokens"].as_array().expect("tokens").iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["deploy", "tests"]);
    assert!(listed["tokens"][0]["last_used_at"].is_string(), "{listed}");

    // Names are the user's own.
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

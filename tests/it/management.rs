//! The management endpoints, driven as owners drive them. Every case runs on an SQLite file and on a PostgreSQL
//! database, each of its own.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use strata::catalog::Catalog;
use strata::config::{CatalogUrl, Config};
use strata::model::secret::Secret;
use strata::model::user::Plan;

use crate::openapi::Document;
use crate::postgres::Postgres;
use crate::support::{Answer, OWNER, TestService};

/// Makes every case a test of its own under each engine.
macro_rules! suite {
    ($($case:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Owners::sqlite().await).await;
            })*
        }
        mod postgresql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Owners::postgres().await).await;
            })*
        }
    };
}

suite! {
    a_log_in_begins_a_session_that_log_out_ends
    a_session_ends_when_it_is_not_used_and_its_end_moves_when_it_is
    wrong_credentials_are_all_answered_alike
    a_session_ends_for_good_however_much_it_is_used
    log_ins_are_limited_for_a_client_and_an_account_together
    many_clients_together_guess_slowly_and_keep_no_owner_out
    tokens_open_until_they_are_deleted
    a_dataset_is_created_changed_and_listed
    what_a_dataset_cannot_be_is_named
    a_rollback_pins_and_freezes_and_reads_follow_at_once
    a_new_key_opens_at_once_what_the_old_one_did
    plans_limit_active_datasets
    a_dataset_without_versions_is_deleted_and_no_other
    what_a_get_does_not_know_is_refused
    a_webhook_is_registered_replaced_and_deleted
    every_operation_refuses_in_the_same_order
    foreign_pages_cannot_use_a_cookie
    times_and_urls_are_as_clients_need_them
    hostile_bodies_never_make_a_server_error
}

const PASSWORD: &str = "a long enough password";

/// A service with users of each plan.
struct Owners {
    service: TestService,
    /// Of the users on the plans scale, free, and another on scale.
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

    /// The same engine, another configuration.
    async fn with(&self, change: impl FnOnce(&mut Config)) -> Owners {
        Owners::on(self._server.clone(), change).await
    }

    async fn on(server: Option<Arc<Postgres>>, change: impl FnOnce(&mut Config)) -> Owners {
        let url = match &server {
            Some(server) => Some(server.create_database().await),
            None => None,
        };
        let service = TestService::configured(|config| {
            config.catalog.url = url.map(|url| CatalogUrl::try_from(url).expect("a URL"));
            config.limits.logins_per_minute = 0;
            config.limits.body_bytes = 10_000;
            change(config);
        })
        .await;
        let add = async |email: &str, plan| {
            let added = service.app.accounts().add_user(email, PASSWORD, plan, Some("ci")).await.expect("added");
            format!("Bearer {}", added.token.expect("a token").expose())
        };
        let (free, other) = (add("free@strata.test", Plan::Free).await, add("other@strata.test", Plan::Scale).await);
        let document = Document::of(&service).await;
        let owners = Owners { service, scale: String::new(), free, other, document, _server: server };
        let cookie = owners.log_in(OWNER, PASSWORD).await;
        let made = owners.send("POST", "/token/create", &[("cookie", &cookie)], &json!({"name": "tests"})).await;
        let scale = format!("Bearer {}", ok(&made)["token"].as_str().expect("a token"));
        Owners { scale, ..owners }
    }

    /// Any call with a JSON body.
    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.raw(method, uri, &headers, body.to_string().into_bytes()).await
    }

    /// Any call. The OpenAPI document must describe its answer.
    async fn raw(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri).header("host", "data.strata.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.service.call(request.body(Body::from(body)).expect("a request")).await;
        self.document.describes_call(method, uri.split('?').next().unwrap_or_default(), &answer);
        answer
    }

    /// A call of the owner on the plan scale.
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

    /// The cookie of a new session.
    async fn log_in(&self, email: &str, password: &str) -> String {
        cookie(&self.try_log_in(email, password).await)
    }

    /// The catalog, as another process sees it.
    async fn catalog(&self) -> Catalog {
        Catalog::open(&self.service.app.config().catalog_url()).await.expect("the catalog")
    }

    /// A dataset with as many versions.
    async fn dataset(&self, name: &str, private: bool, versions: u64) -> u64 {
        let mut id = 0;
        for version in 1..=versions {
            let text = format!("[{{\"version\":{version}}}]");
            let imported = self.service.try_import(name, private, text.as_bytes()).await.expect("imported");
            id = imported.dataset_id.get();
        }
        id
    }
}

/// The body of a successful call.
#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(body.get("ok").unwrap_or(&Value::Bool(true)), true, "{body}");
    body
}

/// That a call was refused, and that the text names what it should.
#[track_caller]
fn refused(answer: &Answer, status: u16, word: &str) {
    answer.is_error(status);
    assert!(answer.text().contains(word), "{} does not mention {word}", answer.text());
}

/// The session cookie that an answer sets, as it is sent back.
#[track_caller]
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let set = answer.header("set-cookie").expect("a cookie");
    assert!(set.starts_with("strata_session="), "{set}");
    set.split(';').next().expect("a pair").to_owned()
}

async fn a_log_in_begins_a_session_that_log_out_ends(owners: Owners) {
    let answer = owners.try_log_in(" OWNER@strata.test", PASSWORD).await;
    let user = ok(&answer);
    assert_eq!((&user["user"]["email"], &user["user"]["plan"]), (&json!(OWNER), &json!("scale")));
    assert_eq!(user["user"].as_object().expect("a record").len(), 3, "{user}");
    let set = answer.header("set-cookie").expect("a cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "{set}");

    let session = cookie(&answer);
    let me = async |cookie: &str| owners.raw("GET", "/session/me", &[("cookie", cookie)], Vec::new()).await;
    assert_eq!(ok(&me(&session).await), user);
    assert_eq!(ok(&me(&format!("a=b; {session}; c=\"d\"")).await), user);
    // The id is nowhere in the database.
    let id = session.split_once('=').expect("a pair").1;
    let record = owners.catalog().await.session(&Secret::from_stored(id.to_owned()).hash()).await.expect("a look-up");
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
    owners.service.app.accounts().set_password(OWNER, "another password").await.expect("changed");
    refused(&me(&session).await, 401, "session");
    refused(&owners.try_log_in(OWNER, PASSWORD).await, 401, "password");
    owners.log_in(OWNER, "another password").await;
}

async fn a_session_ends_when_it_is_not_used_and_its_end_moves_when_it_is(owners: Owners) {
    let session = owners.log_in(OWNER, PASSWORD).await;
    let hash = Secret::from_stored(session.split_once('=').expect("a pair").1.to_owned()).hash();
    let catalog = owners.catalog().await;
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
    let catalog = owners.catalog().await;
    let session = catalog.session(&hash).await.expect("a look-up").expect("a session");
    assert_eq!((session.expires_at - session.created_at).num_seconds(), 3_600, "although two idle weeks are free");
    let me = async || owners.raw("GET", "/session/me", &[("cookie", &cookie)], Vec::new()).await;
    // The same session, begun earlier.
    let begun = async |minutes: i64| {
        let created_at = session.created_at - chrono::TimeDelta::minutes(minutes);
        catalog.delete_session(&hash).await.expect("deleted");
        let record = strata::catalog::SessionRecord { created_at, ..session.clone() };
        assert!(catalog.create_session(&record).await.expect("recorded"));
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
        refused(&answer, 429, "log-ins");
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
    assert_eq!((&made["name"], made.as_object().expect("an object").len()), (&json!("deploy"), 3));
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

async fn a_dataset_is_created_changed_and_listed(owners: Owners) {
    let created = ok(&owners.post("/dataset/create", json!({"name": "World Countries"})).await);
    let record = created["dataset"].clone();
    let id = record["dataset_id"].as_u64().expect("an id");
    let ping_url = record["ping_url"].as_str().expect("a URL").to_owned();
    assert!(ping_url.starts_with("http://data.strata.test/ping/ping_"), "{ping_url}");
    let expected = json!({
        "dataset_id": id, "name": "World Countries", "name_slug": "world-countries", "private": false,
        "private_key": null, "source": "push", "format": null, "records_path": null, "publish_query": false, "schedule": "0 2 * * *",
        "index": {"always": [], "never": []}, "ping_url": ping_url, "active_version": null, "latest_version": null, "pinned": false, "frozen": false,
        "created_at": record["created_at"], "last_attempts": [],
    });
    assert_eq!(record.to_string(), expected.to_string(), "in this order");
    refused(&owners.post("/dataset/create", json!({"name": "World Countries"})).await, 409, "name");

    let settings = json!({
        "dataset_id": id, "name": "Länder 2", "private": true, "source": "https://example.com/countries.json",
        "format": "json", "records_path": "data.items", "publish_query": true, "schedule": "*/5  *  * * MON-FRI",
        "index": {"always": ["area", "name.common"], "never": ["a\\.b"]},
    });
    let changed = ok(&owners.post("/dataset/update", settings.clone()).await)["dataset"].clone();
    for (field, value) in settings.as_object().expect("fields").iter().filter(|(field, _)| *field != "schedule") {
        assert_eq!(&changed[field], value, "{field}");
    }
    assert_eq!((&changed["schedule"], &changed["name_slug"]), (&json!("*/5 * * * MON-FRI"), &json!("länder-2")));
    let key = changed["private_key"].as_str().expect("a key");
    assert!(key.starts_with("sk_"), "{key}");
    assert_eq!(changed["ping_url"], ping_url);

    // What is not said stays; null clears what may be absent.
    let same = ok(&owners.post("/dataset/update", json!({"dataset_id": id, "private": true, "name": null})).await);
    assert_eq!(same["dataset"], changed);
    let cleared = json!({
        "dataset_id": id, "format": null, "records_path": null, "schedule": null, "private": false, "index": null, "publish_query": false,
    });
    let cleared = ok(&owners.post("/dataset/update", cleared).await)["dataset"].clone();
    for field in ["format", "records_path", "schedule", "private_key"] {
        assert_eq!(cleared[field], json!(null), "{field}");
    }
    assert_eq!(cleared["source"], "https://example.com/countries.json");
    assert_eq!(cleared["index"], json!({"always": [], "never": []}));

    let second =
        ok(&owners.post("/dataset/create", json!({"name": "Second", "private": true, "schedule": null})).await);
    assert_eq!((&second["dataset"]["private"], &second["dataset"]["schedule"]), (&json!(true), &json!(null)));
    refused(&owners.post("/dataset/update", json!({"dataset_id": id, "name": "Second"})).await, 409, "name");
    let listed = ok(&owners.get("/dataset/list").await);
    assert_eq!(listed["datasets"], json!([cleared, second["dataset"]]));
    let page = ok(&owners.get(&format!("/dataset/list?after={id}&limit=1")).await);
    assert_eq!(page["datasets"], json!([second["dataset"]]));
    let theirs = owners.raw("GET", "/dataset/list", &[("authorization", &owners.other)], Vec::new()).await;
    assert_eq!(ok(&theirs)["datasets"], json!([]));
    let viewed = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await);
    assert_eq!(viewed["dataset"]["versions"], json!([]));
}

async fn what_a_dataset_cannot_be_is_named(owners: Owners) {
    let id = owners.dataset("Countries", false, 1).await;
    for (field, value, word) in [
        ("name", json!("--"), "letter"),
        ("name", json!("x".repeat(201)), "200"),
        ("name", json!("a\u{0}b"), "U+0000"),
        ("name", json!(7), "string"),
        ("private", json!("yes"), "true or false"),
        ("source", json!(""), "not a URL"),
        ("source", json!("ftp://example.com/x"), "ftp"),
        ("source", json!("file:///etc/passwd"), "command line"),
        ("source", json!("http://127.0.0.1/x"), "loopback"),
        ("source", json!("http://[::ffff:10.0.0.1]/x"), "private"),
        ("source", json!("http://localhost:1/x"), "localhost"),
        ("source", json!("store:///versions/x"), "sources.prefix"),
        ("source", json!(format!("https://example.com/{}", "x".repeat(9_000))), "8192 bytes"),
        ("source", json!(["push"]), "string"),
        ("format", json!("xml"), "json, jsonl, csv, tsv, parquet"),
        ("format", json!("JSON"), "json, jsonl, csv, tsv, parquet"),
        ("records_path", json!(""), "empty"),
        ("records_path", json!("x".repeat(1_025)), "1024"),
        ("records_path", json!({}), "string"),
        ("publish_query", json!("yes"), "true or false"),
        ("index", json!(["name"]), "an array is not valid"),
        ("index", json!({"always": ["a"], "sometimes": []}), "\"sometimes\""),
        ("index", json!({"always": "name"}), "always is not a list of strings"),
        ("index", json!({"never": [1]}), "never is not a list of strings"),
        ("index", json!({"never": null}), "never is not a list of strings"),
        ("index", json!({"never": [""]}), "must name a field"),
        ("index", json!({"always": ["a.b", "c"], "never": ["c"]}), "`c` is both"),
        ("index", json!({"always": ["x".repeat(1_025)]}), "1024"),
        ("index", json!({"always": (0..65).map(|n| n.to_string()).collect::<Vec<_>>()}), "64"),
        ("schedule", json!("nightly"), "five fields, in UTC: minute, hour, day of month, month, day of week"),
        ("schedule", json!(5), "valid: five fields"),
        ("schedule", json!("0 0 31 2 *"), "no date"),
        ("schedule", json!("* * * * * *"), "seconds"),
    ] {
        let mut body = json!({"dataset_id": id, "name": "Fine"});
        body[field] = value.clone();
        for uri in ["/dataset/update", "/dataset/create"] {
            if uri.ends_with("create") {
                body.as_object_mut().expect("an object").remove("dataset_id");
            }
            let answer = owners.post(uri, body.clone()).await;
            refused(&answer, 400, word);
            assert!(answer.text().contains(field), "{uri}: {} does not name {field}", answer.text());
        }
    }
    refused(&owners.post("/dataset/create", json!({})).await, 400, "name: it is missing");
    let listed = ok(&owners.get("/dataset/list").await);
    assert_eq!(listed["datasets"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["datasets"][0]["name"], "Countries");
}

async fn a_rollback_pins_and_freezes_and_reads_follow_at_once(owners: Owners) {
    let id = owners.dataset("Countries", false, 3).await;
    let read = async |version: &str| owners.service.get(&format!("/api/{id}/countries/{version}/?pretty=false")).await;
    let view = async || ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"].clone();
    read("active").await.is("[{\"version\":3}]");

    let answer = ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    let record = &answer["dataset"];
    assert_eq!((&record["active_version"], &record["latest_version"]), (&json!(1), &json!(3)));
    assert_eq!((&record["pinned"], &record["frozen"]), (&json!(true), &json!(false)));
    read("active").await.is("[{\"version\":1}]");
    read("latest").await.is("[{\"version\":3}]");

    let viewed = view().await;
    let versions = viewed["versions"].as_array().expect("versions");
    let numbers: Vec<_> = versions.iter().map(|version| (&version["version_number"], &version["is_active"])).collect();
    assert_eq!(numbers, [(&json!(3), &json!(false)), (&json!(2), &json!(false)), (&json!(1), &json!(true))]);
    let names: Vec<&String> = versions[0].as_object().expect("a record").keys().collect();
    let expected = ["version_number", "alt_file_path", "entity_count", "file_size_bytes", "is_active", "created_at"];
    assert_eq!(names, expected);
    assert_eq!((&versions[0]["alt_file_path"], &versions[0]["entity_count"]), (&json!(null), &json!(1)));
    assert!(versions[0]["file_size_bytes"].as_u64().is_some_and(|bytes| bytes > 100));
    let attempts = viewed["last_attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 3);
    let attempt = &attempts[0];
    assert_eq!(
        (&attempt["trigger"], &attempt["ok"], &attempt["version"], &attempt["error"]),
        (&json!("import"), &json!(true), &json!(3), &json!(null))
    );
    let answer = ok(&owners.get("/dataset/list").await);
    assert_eq!(answer["datasets"][0]["last_attempts"], viewed["last_attempts"]);

    let answer = ok(&owners.post("/dataset/unpin", json!({"dataset_id": id})).await);
    assert_eq!((&answer["dataset"]["active_version"], &answer["dataset"]["pinned"]), (&json!(3), &json!(false)));
    read("active").await.is("[{\"version\":3}]");

    refused(&owners.post("/dataset/unfreeze", json!({"dataset_id": id})).await, 409, "not frozen");
    let freeze = json!({"dataset_id": id, "version_number": 2, "freeze": true});
    assert_eq!(ok(&owners.post("/dataset/rollback", freeze).await)["dataset"]["frozen"], json!(true));
    assert_eq!(read("active").await.status, 410);
    // A rollback of what is frozen works, and does not thaw it.
    let answer =
        owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": false})).await;
    assert_eq!((&ok(&answer)["dataset"]["frozen"], read("v3").await.status), (&json!(true), 410));
    let answer = ok(&owners.post("/dataset/unfreeze", json!({"dataset_id": id})).await);
    assert_eq!((&answer["dataset"]["frozen"], &answer["dataset"]["active_version"]), (&json!(false), &json!(1)));
    read("active").await.is("[{\"version\":1}]");
    refused(
        &owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 4})).await,
        404,
        "no version 4; its versions are 1 to",
    );
}

async fn a_new_key_opens_at_once_what_the_old_one_did(owners: Owners) {
    let id = owners.dataset("Hidden", true, 1).await;
    let uri = format!("/api/{id}/hidden/v1/");
    let status = async |key: &str| owners.service.send("GET", &uri, Some(&format!("Bearer {key}"))).await.status;
    let key = |answer: &Answer| ok(answer)["dataset"]["private_key"].as_str().expect("a key").to_owned();
    let old = key(&owners.get(&format!("/dataset/view?dataset_id={id}")).await);
    assert_eq!(status(&old).await, 200);
    let new = key(&owners.post("/dataset/rotate_key", json!({"dataset_id": id})).await);
    assert_eq!((status(&old).await, status(&new).await), (403, 200));
    ok(&owners.post("/dataset/update", json!({"dataset_id": id, "private": false})).await);
    assert_eq!(owners.service.get(&uri).await.status, 200);
    refused(&owners.post("/dataset/rotate_key", json!({"dataset_id": id})).await, 409, "public");
}

async fn plans_limit_active_datasets(owners: Owners) {
    let free = async |uri: &str, body: Value| owners.send("POST", uri, &[("authorization", &owners.free)], &body).await;
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        ids.push(ok(&free("/dataset/create", json!({"name": name})).await)["dataset"]["dataset_id"].clone());
    }
    refused(&free("/dataset/create", json!({"name": "four"})).await, 403, "3 active");
    // The order of checks: what is wrong with the request comes first.
    refused(&free("/dataset/create", json!({"name": "--"})).await, 400, "name");
    let plan = async |plan| owners.service.app.accounts().set_plan("free@strata.test", plan).await.expect("changed");
    plan(Plan::Pro).await;
    ok(&free("/dataset/create", json!({"name": "four"})).await);
    plan(Plan::Free).await;
    // What there is beyond the limit stays usable.
    ok(&free("/dataset/update", json!({"dataset_id": ids[0], "name": "uno"})).await);

    let id = owners.dataset("Frozen", false, 1).await;
    ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    let limited = owners.with(|config| config.plans.scale_active_datasets = 1).await;
    let id = limited.dataset("Frozen", false, 1).await;
    ok(&limited.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    ok(&limited.post("/dataset/create", json!({"name": "Another"})).await);
    refused(&limited.post("/dataset/unfreeze", json!({"dataset_id": id})).await, 403, "1 active");
}

async fn a_webhook_is_registered_replaced_and_deleted(owners: Owners) {
    let id = owners.dataset("Countries", false, 1).await;
    let view = async || owners.get(&format!("/webhook/view?dataset_id={id}")).await;
    assert_eq!(ok(&view().await), json!({"has_webhook": false}));
    let register = async |body: Value| owners.post("/webhook/register", body).await;
    let first = json!({"dataset_id": id, "url": "https://example.com/hook", "secret": "s3cret"});
    assert_eq!(ok(&register(first).await), json!({"ok": true}));
    let answer = view().await;
    assert!(!answer.text().contains("s3cret"));
    let record = ok(&answer);
    let created_at = record["created_at"].clone();
    let expected = json!({"has_webhook": true, "url": "https://example.com/hook", "has_secret": true, "is_active": true,
        "last_fired_at": null, "last_status": null, "created_at": created_at});
    assert_eq!(sorted(&record), sorted(&expected));

    ok(&register(json!({"dataset_id": id, "url": "http://example.com/other"})).await);
    let record = ok(&view().await);
    assert_eq!((&record["url"], &record["has_secret"]), (&json!("http://example.com/other"), &json!(false)));
    for (url, word) in [
        (json!("ftp://example.com"), "ftp"),
        (json!("/hook"), "not a URL"),
        (json!("https://"), "url"),
        (json!("http://192.168.1.1/hook"), "private"),
        (json!("http://169.254.169.254/latest"), "metadata"),
        (json!("http://2130706433/"), "loopback"),
        (json!(null), "string"),
    ] {
        let answer = register(json!({"dataset_id": id, "url": url})).await;
        refused(&answer, 400, "url");
        assert!(answer.text().contains(word), "{}", answer.text());
    }
    for secret in [json!(""), json!("x".repeat(2_000)), json!(5), json!("a\u{0}")] {
        let body = json!({"dataset_id": id, "url": "https://example.com", "secret": secret});
        refused(&register(body).await, 400, "secret");
    }
    assert_eq!(ok(&view().await)["url"], "http://example.com/other");

    assert_eq!(ok(&owners.call("DELETE", "/webhook/delete", json!({"dataset_id": id})).await), json!({"ok": true}));
    assert_eq!(ok(&view().await), json!({"has_webhook": false}));
    refused(&owners.call("DELETE", "/webhook/delete", json!({"dataset_id": id})).await, 404, "webhook");

    // The plan is asked last.
    let free =
        async |body: Value| owners.send("POST", "/webhook/register", &[("authorization", &owners.free)], &body).await;
    refused(&free(json!({"dataset_id": id, "url": "https://example.com"})).await, 404, "dataset");
    let made =
        owners.send("POST", "/dataset/create", &[("authorization", &owners.free)], &json!({"name": "Mine"})).await;
    let mine = ok(&made)["dataset"]["dataset_id"].clone();
    refused(&free(json!({"dataset_id": mine, "url": "https://example.com"})).await, 403, "plan");
    refused(&free(json!({"dataset_id": mine, "url": "x"})).await, 400, "url");
}

async fn a_dataset_without_versions_is_deleted_and_no_other(owners: Owners) {
    let delete = async |id: &Value| owners.call("DELETE", "/dataset/delete", json!({"dataset_id": id})).await;
    let made = async |name: &str| {
        let body = json!({"name": name, "source": "push"});
        ok(&owners.post("/dataset/create", body).await)["dataset"]["dataset_id"].clone()
    };
    let first = made("Planets").await;
    // What it has goes with it: a webhook, and attempts to refresh it.
    let webhook = json!({"dataset_id": first, "url": "https://example.com"});
    ok(&owners.post("/webhook/register", webhook).await);
    refused(&owners.post("/dataset/refresh", json!({"dataset_id": first, "entities": [7]})).await, 422, "item 1");
    // It is nobody else's to delete.
    let theirs = [("authorization", owners.other.as_str())];
    let body = json!({"dataset_id": first});
    refused(&owners.send("DELETE", "/dataset/delete", &theirs, &body).await, 404, "dataset");
    assert_eq!(ok(&delete(&first).await), json!({"ok": true}));
    refused(&delete(&first).await, 404, "dataset");
    refused(&owners.get(&format!("/dataset/view?dataset_id={first}")).await, 404, "dataset");
    refused(&owners.get(&format!("/webhook/view?dataset_id={first}")).await, 404, "dataset");
    // Its name is free, its id is not.
    let second = made("Planets").await;
    assert!(second.as_u64() > first.as_u64(), "{second} after {first}");
    // While it is refreshed it stays.
    let id = strata::model::ids::DatasetId::new(second.as_u64().expect("a number"));
    let catalog = owners.catalog().await;
    let lease = std::time::Duration::from_secs(600);
    let held =
        catalog.acquire_refresh(id, strata::model::dataset::RefreshTrigger::Manual, "held", lease).await.expect("held");
    refused(&delete(&second).await, 409, "Another refresh");
    catalog.fail_refresh(held.attempt, "a test").await.expect("given back");
    ok(&owners.post("/dataset/refresh", json!({"dataset_id": second, "entities": []})).await);
    refused(&delete(&second).await, 409, "versions, which are permanent");
    ok(&owners.get(&format!("/dataset/view?dataset_id={second}")).await);
    // A place in the plan is free again.
    let free = [("authorization", owners.free.as_str())];
    for name in ["One", "Two", "Three", "Four"] {
        let made = owners.send("POST", "/dataset/create", &free, &json!({"name": name})).await;
        let id = ok(&made)["dataset"]["dataset_id"].clone();
        ok(&owners.send("DELETE", "/dataset/delete", &free, &json!({"dataset_id": id})).await);
    }
}

async fn what_a_get_does_not_know_is_refused(owners: Owners) {
    for (uri, meant) in [
        ("/session/me?x=1", "valid: none"),
        ("/token/list?limit=1", "valid: none"),
        ("/dataset/list?limt=1", "did you mean limit?"),
        ("/dataset/view?dataset_id=1&dataset=1", "did you mean dataset_id?"),
        ("/dataset/profile?dataset_id=1&vesion=1", "did you mean version?"),
        ("/dataset/diff?dataset_id=1&v1=1&v2=1&ofset=1", "did you mean offset?"),
        ("/webhook/view?dataset_id=1&%C3%A9=1", "\"é\": there is no such field;"),
    ] {
        refused(&owners.get(uri).await, 400, meant);
    }
    let made = ok(&owners.post("/dataset/create", json!({"name": "Pushed", "source": "push"})).await);
    let id = made["dataset"]["dataset_id"].as_u64().expect("a number");
    let json_type = ("content-type", "application/json");
    let key = ("authorization", owners.scale.as_str());
    let push = async |query: &str, body: String| {
        owners.raw("POST", &format!("/dataset/refresh{query}"), &[key, json_type], body.into_bytes()).await
    };
    refused(&push(&format!("?dataset_id={id}&formt=json"), "[]".to_owned()).await, 400, "did you mean format?");
    refused(&push("", format!("{{\"dataset_id\":{id},\"entites\":[]}}")).await, 400, "did you mean entities?");
    for body in [
        format!("{{\"dataset_id\":{id},\"more\":{{}},\"entities\":[{{}}]}}"),
        format!("{{\"dataset_id\":{id},\"entities\":[{{}}],\"more\":1}}"),
    ] {
        refused(&push("", body).await, 400, "\"more\": there is no such field; valid: dataset_id, entities");
    }
    let versions = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"]["versions"].clone();
    assert_eq!(versions, json!([]), "nothing is done");
    // An object where the document is asked for.
    let whole = format!("{{\"dataset_id\":{id},\"entities\":[]}}");
    refused(&push("?format=json", whole.clone()).await, 400, "Leave format out to send");
    let query = format!("?dataset_id={id}&format=json");
    refused(&push(&query, whole.clone()).await, 422, "push it as application/json without format");
    ok(&push("", whole).await);
}

fn sorted(record: &Value) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = record.as_object().expect("a record").iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

/// Every operation with a body that is right but for the dataset, of which there is none, and a field that it needs.
fn operations() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let none = 1_000_000;
    vec![
        ("POST", "/token/create", json!({"name": "new"}), "name"),
        ("DELETE", "/token/delete", json!({"name": "none"}), "name"),
        ("POST", "/dataset/create", json!({"name": "New"}), "name"),
        ("POST", "/dataset/update", json!({"dataset_id": none}), "dataset_id"),
        ("DELETE", "/dataset/delete", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/rotate_key", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/rollback", json!({"dataset_id": none, "version_number": 1}), "version_number"),
        ("POST", "/dataset/unpin", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/unfreeze", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/agent/pull_for_edit", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/webhook/register", json!({"dataset_id": none, "url": "https://example.com"}), "url"),
        ("DELETE", "/webhook/delete", json!({"dataset_id": none}), "dataset_id"),
    ]
}

async fn every_operation_refuses_in_the_same_order(owners: Owners) {
    let theirs = owners.dataset("Theirs", false, 1).await;
    let key = ("authorization", owners.other.as_str());
    for (method, uri, body, field) in operations() {
        let text = body.to_string().into_bytes();
        let json_type = ("content-type", "application/json");
        let long = [&text[..], &vec![b' '; 10_000][..]].concat();
        // Each request has all the faults of those after it.
        let other_method = if method == "POST" { "GET" } else { "POST" };
        let answer = owners.raw(other_method, uri, &[], long.clone()).await;
        refused(&answer, 405, "method");
        assert_eq!(answer.header("allow"), Some(method), "{uri}");
        refused(&owners.raw(method, uri, &[], long.clone()).await, 401, "session");
        refused(&owners.raw(method, uri, &[key], long.clone()).await, 415, "JSON");
        let form = ("content-type", "application/x-www-form-urlencoded");
        refused(&owners.raw(method, uri, &[key, form], long.clone()).await, 415, "JSON");
        let packed = ("content-encoding", "gzip");
        refused(&owners.raw(method, uri, &[key, json_type, packed], text.clone()).await, 415, "uncompressed");
        refused(&owners.raw(method, uri, &[key, json_type], long).await, 413, "10000");
        for (malformed, word) in
            [("", "JSON object"), ("{", "EOF"), ("[]", "JSON object"), ("{\"a\":\"\\ud800\"}", "hex escape")]
        {
            refused(&owners.raw(method, uri, &[key, json_type], malformed.into()).await, 400, word);
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        refused(&owners.raw(method, uri, &[key, json_type], deep.into()).await, 400, "recursion");
        for value in [json!(null), json!([1]), json!({}), json!(true), json!(-1), json!(0), json!(1.5)] {
            let mut wrong = body.clone();
            wrong[field] = value;
            refused(&owners.send(method, uri, &[key], &wrong).await, 400, field);
        }
        let mut slip = body.clone();
        slip["dataset_di"] = json!(1);
        let answer = owners.send(method, uri, &[key], &slip).await;
        refused(&answer, 400, "\"dataset_di\": there is no such field;");
        refused(
            &answer,
            400,
            &format!("valid: {}", body.as_object().expect("an object").keys().next().expect("a field")),
        );
        assert_eq!(
            answer.text().contains("did you mean dataset_id?"),
            body["dataset_id"].is_number(),
            "{}",
            answer.text()
        );
        if body["dataset_id"].is_number() {
            for id in [json!(1_000_000), json!(theirs), json!(u64::MAX), json!(i64::MAX)] {
                let mut body = body.clone();
                body["dataset_id"] = id;
                refused(&owners.send(method, uri, &[key], &body).await, 404, "dataset");
            }
            for id in [json!("1"), json!(""), json!(1e300)] {
                let mut body = body.clone();
                body["dataset_id"] = id;
                refused(&owners.send(method, uri, &[key], &body).await, 400, "dataset_id");
            }
        }
    }
    for uri in ["/dataset/view", "/webhook/view", "/dataset/diff", "/dataset/explain"] {
        let get = async |query: &str, headers: &[(&str, &str)]| {
            owners.raw("GET", &format!("{uri}{query}"), headers, Vec::new()).await
        };
        refused(&get("", &[]).await, 401, "session");
        for query in
            ["", "?dataset_id=", "?dataset_id=x", "?dataset_id=0", "?dataset_id=1&dataset_id=1", "?dataset_id=-1"]
        {
            refused(&get(query, &[key]).await, 400, "dataset_id");
        }
        let versions = if uri == "/dataset/diff" { "&v1=1&v2=1" } else { "" };
        refused(&get(&format!("?dataset_id={theirs}{versions}"), &[key]).await, 404, "dataset");
        refused(&get(&format!("?dataset_id=99999999999999999999{versions}"), &[key]).await, 404, "dataset");
        let answer = owners.raw("POST", uri, &[key], Vec::new()).await;
        refused(&answer, 405, "method");
        assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    }
    // What is everybody's: a wrong token first, then the parameters, then who may see what.
    let profile = async |query: &str, headers: &[(&str, &str)]| {
        owners.raw("GET", &format!("/dataset/profile{query}"), headers, Vec::new()).await
    };
    refused(&profile("", &[("authorization", "Bearer strata_00")]).await, 401, "session");
    for headers in [&[][..], &[key]] {
        refused(&profile("", headers).await, 400, "dataset_id");
        refused(&profile("?dataset_id=99999999999999999999&version=x", headers).await, 400, "version");
    }
    refused(&profile("?dataset_id=99999999999999999999", &[]).await, 401, "session");
    refused(&profile("?dataset_id=99999999999999999999", &[key]).await, 404, "dataset");
    ok(&profile(&format!("?dataset_id={theirs}"), &[key]).await);
    for query in ["?limit=0", "?limit=x", "?after=0", "?limit=1&limit=2"] {
        refused(
            &owners.get(&format!("/dataset/list{query}")).await,
            400,
            if query.contains("after") { "after" } else { "limit" },
        );
    }
    // A log-in needs nobody to have logged in, and is refused in the same order otherwise.
    let body = json!({"email": OWNER, "password": PASSWORD}).to_string().into_bytes();
    refused(&owners.raw("POST", "/session/login", &[], body.clone()).await, 415, "JSON");
    let json_type = ("content-type", "application/json; charset=utf-8");
    let long = [&body[..], &vec![b' '; 20_000][..]].concat();
    refused(&owners.raw("POST", "/session/login", &[json_type], long).await, 413, "10000");
    refused(&owners.send("POST", "/session/login", &[], &json!({"email": OWNER})).await, 400, "password");
    refused(&owners.send("POST", "/session/login", &[], &json!({"email": 1, "password": ""})).await, 400, "email");
    cookie(&owners.raw("POST", "/session/login", &[json_type], body).await);
}

async fn foreign_pages_cannot_use_a_cookie(owners: Owners) {
    let session = owners.log_in(OWNER, PASSWORD).await;
    let create = async |owners: &Owners, name: &str, headers: &[(&str, &str)]| {
        owners.send("POST", "/dataset/create", headers, &json!({"name": name})).await
    };
    let with_origin = async |name: &str, origin: &str| {
        create(&owners, name, &[("cookie", session.as_str()), ("origin", origin)]).await
    };
    for origin in [
        "https://evil.test",
        "http://data.strata.test.evil.test",
        "http://evil.test:80",
        "http://data.strata.test:8081",
        "http://user@data.strata.test",
        "null",
        "",
        "data.strata.test",
        "ftp://data.strata.test",
    ] {
        refused(&with_origin("Forged", origin).await, 403, "Origin");
    }
    let twice = [("cookie", session.as_str()), ("origin", "http://data.strata.test"), ("origin", "https://evil.test")];
    refused(&create(&owners, "Forged", &twice).await, 403, "Origin");
    ok(&with_origin("Own page", "http://data.strata.test").await);
    ok(&with_origin("Behind TLS", "https://DATA.strata.test").await);
    ok(&create(&owners, "A backend", &[("cookie", session.as_str())]).await);
    // A token is in no browser.
    ok(&create(&owners, "A token", &[("authorization", &owners.scale), ("origin", "https://evil.test")]).await);
    // Whose cookie is not good hears that first.
    refused(&create(&owners, "x", &[("origin", "https://evil.test")]).await, 401, "session");
    let foreign = [("cookie", session.as_str()), ("origin", "https://evil.test")];
    refused(&owners.raw("GET", "/session/me", &foreign, Vec::new()).await, 403, "Origin");
    refused(&owners.raw("POST", "/session/logout", &foreign, Vec::new()).await, 403, "Origin");
    let body = json!({"email": OWNER, "password": PASSWORD});
    refused(&owners.send("POST", "/session/login", &[("origin", "https://evil.test")], &body).await, 403, "Origin");
    let listed = ok(&owners.get("/dataset/list").await).to_string();
    assert!(!listed.contains("Forged"), "{listed}");
}

async fn times_and_urls_are_as_clients_need_them(owners: Owners) {
    let made = ok(&owners.post("/dataset/create", json!({"name": "Countries"})).await);
    let created_at = made["dataset"]["created_at"].as_str().expect("a time");
    let parsed = chrono::DateTime::parse_from_rfc3339(created_at).expect("RFC 3339");
    assert!(created_at.ends_with('Z'), "{created_at}");
    let age = chrono::Utc::now().signed_duration_since(parsed);
    assert!(age.num_minutes().abs() < 10, "{created_at}");

    let public = owners
        .with(|config| {
            let url = "https://Data.example.org/strata/".to_owned();
            config.server.public_url = Some(url.try_into().expect("a URL"));
        })
        .await;
    let made = ok(&public.post("/dataset/create", json!({"name": "Countries"})).await);
    let ping_url = made["dataset"]["ping_url"].as_str().expect("a URL");
    assert!(ping_url.starts_with("https://data.example.org/strata/ping/ping_"), "{ping_url}");
    let answer = public.try_log_in(OWNER, PASSWORD).await;
    assert!(answer.header("set-cookie").is_some_and(|set| set.contains("Secure")), "{:?}", answer.headers);
    let session = cookie(&answer);
    let me = async |origin: &str| {
        public.raw("GET", "/session/me", &[("cookie", &session), ("origin", origin)], Vec::new()).await.status
    };
    assert_eq!((me("https://data.example.org").await, me("http://data.example.org").await), (200, 403));

    // A trusted proxy says that the client came by https.
    let proxied = owners
        .with(|config| config.server.trusted_proxies = vec!["127.0.0.1".to_owned()].try_into().expect("a network"))
        .await;
    let log_in = async |peer: [u8; 4]| {
        let request = Request::post("/session/login")
            .header("content-type", "application/json")
            .header("x-forwarded-proto", "https")
            .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from((peer, 1))));
        let body = json!({"email": OWNER, "password": PASSWORD}).to_string();
        let answer = proxied.service.call(request.body(Body::from(body)).expect("a request")).await;
        answer.header("set-cookie").expect("a cookie").contains("Secure")
    };
    assert_eq!((log_in([127, 0, 0, 1]).await, log_in([127, 0, 0, 2]).await), (true, false));
}

/// JSON that people do not write.
fn hostile() -> impl Strategy<Value = Value> {
    let shredded = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,30}".prop_map(Value::from),
        "\\PC{0,300}".prop_map(Value::from),
        prop::sample::select(vec![
            "push",
            "a\u{0}",
            "http://[",
            "https://a.test:99999",
            "0 2 * * *",
            "json",
            "\u{202e}",
            "http://a..b/",
            "L#W",
            "59 23 31 12 7",
            "store:///%00",
            "*/0 * * * *",
            "1-0 * * * *",
            "99999999999999999999 * * * *",
        ])
        .prop_map(Value::from),
    ];
    shredded.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,5}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

async fn hostile_bodies_never_make_a_server_error(owners: Owners) {
    let id = owners.dataset("Countries", false, 1).await;
    let fields = [
        "dataset_id",
        "version_number",
        "name",
        "url",
        "secret",
        "source",
        "format",
        "records_path",
        "publish_query",
        "schedule",
        "private",
        "freeze",
    ];
    let bodies = prop::collection::hash_map(prop::sample::select(fields.to_vec()), hostile(), 0..6);
    let mut runner = TestRunner::deterministic();
    let mut draw = |strategy: &dyn Fn(&mut TestRunner) -> Value| strategy(&mut runner);
    let mut refusals = 0;
    for round in 0..300 {
        let mut body = draw(&|runner| {
            let drawn = bodies.new_tree(runner).expect("a tree").current();
            drawn.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        });
        if round % 2 == 0 {
            body["dataset_id"] = json!(id);
        }
        // What makes a name that resolves wait for the network is another test's.
        for name in ["url", "source"] {
            if body[name].as_str().is_some_and(|url| url.contains("a.test")) {
                body[name] = json!("http://[::1]/");
            }
        }
        let operations = operations();
        let (method, uri, ..) = &operations[round % operations.len()];
        let answer = owners.call(method, uri, body.clone()).await;
        assert!(answer.status < 500, "{method} {uri} {body}: {}", answer.text());
        if answer.status != 200 {
            answer.is_error(answer.status);
            refusals += 1;
        }
        let cut = &body.to_string().into_bytes()[..body.to_string().len() / 2];
        let headers = [("authorization", owners.scale.as_str()), ("content-type", "application/json")];
        let answer = owners.raw(method, uri, &headers, cut.to_vec()).await;
        assert!(answer.status < 500, "{method} {uri}: {}", answer.text());
    }
    assert!(refusals > 200, "{refusals}");
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    for _ in 0..100 {
        let body = bytes.new_tree(&mut runner).expect("a tree").current();
        let headers = [("content-type", "application/json")];
        owners.raw("POST", "/session/login", &headers, body).await.is_error(400);
    }
}

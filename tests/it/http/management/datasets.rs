//! Datasets, their versions, keys, and webhooks.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use strata_testing::PASSWORD;
use strata_testing::databases::on_both_databases;
use strata_testing::{Answer, OWNER};
use strata_types::user::UserPlan;

use super::{Owners, cookie, ok, refused};

on_both_databases! {
    Owners:
    created_dataset_has_defaults
    update_changes_only_sent_fields
    list_and_view_return_own_datasets
    invalid_dataset_fields_are_reported
    rollback_and_freeze_affect_reads_at_once
    new_key_replaces_old_at_once
    plans_limit_active_datasets
    webhook_is_registered_replaced_and_deleted
    only_dataset_without_versions_is_deleted
    times_are_utc_and_urls_use_public_url
}

async fn created_dataset_has_defaults(owners: Owners) {
    let created = ok(&owners.post("/dataset/create", json!({"name": "World Countries"})).await);
    let record = created["dataset"].clone();
    let id = record["dataset_id"].as_u64().expect("missing ID");
    let ping_url = record["ping_url"].as_str().expect("invalid URL").to_owned();
    assert!(ping_url.starts_with("http://data.strata.test/ping/ping_"), "{ping_url}");
    let expected = json!({
        "dataset_id": id, "name": "World Countries", "name_slug": "world-countries", "description": null,
        "licence": null, "listed": false, "private": false, "private_key": null,
        "source": "push", "format": null, "records_path": null, "publish_query": false, "infer_types": false,
        "schedule": "0 2 * * *", "index": {"always": [], "never": []}, "checks": null, "ping_url": ping_url,
        "active_version": null, "latest_version": null, "pinned": false, "frozen": false,
        "created_at": record["created_at"], "last_attempts": [],
    });
    assert_eq!(record.to_string(), expected.to_string(), "in this order");
    refused(&owners.post("/dataset/create", json!({"name": "World Countries"})).await, 409, "name");

    let second =
        ok(&owners.post("/dataset/create", json!({"name": "Second", "private": true, "schedule": null})).await);
    assert_eq!((&second["dataset"]["private"], &second["dataset"]["schedule"]), (&json!(true), &json!(null)));
}

async fn update_changes_only_sent_fields(owners: Owners) {
    let created = owners.create("World Countries").await;
    let id = created["dataset_id"].as_u64().expect("missing ID");
    let settings = json!({
        "dataset_id": id, "name": "Länder 2", "private": true, "source": "https://example.com/countries.json",
        "format": "json", "records_path": "data.items", "publish_query": true, "infer_types": true,
        "description": "Länder,\nalle", "licence": "CC0-1.0", "listed": true,
        "schedule": "*/5  *  * * MON-FRI", "index": {"always": ["area", "name.common"], "never": ["a\\.b"]},
    });
    let changed = ok(&owners.post("/dataset/update", settings.clone()).await)["dataset"].clone();
    for (field, value) in
        settings.as_object().expect("expected fields").iter().filter(|(field, _)| *field != "schedule")
    {
        assert_eq!(&changed[field], value, "{field}");
    }
    assert_eq!((&changed["schedule"], &changed["name_slug"]), (&json!("*/5 * * * MON-FRI"), &json!("länder-2")));
    let key = changed["private_key"].as_str().expect("missing key");
    assert!(key.starts_with("sk_"), "{key}");
    assert_eq!(changed["ping_url"], created["ping_url"]);

    // Omitted fields keep their values, and null clears optional ones.
    let same = ok(&owners.post("/dataset/update", json!({"dataset_id": id, "private": true, "name": null})).await);
    assert_eq!(same["dataset"], changed);
    let cleared = json!({
        "dataset_id": id, "format": null, "records_path": null, "schedule": null, "private": false, "index": null,
        "publish_query": false, "description": null, "licence": null, "listed": false, "infer_types": false,
    });
    let cleared = ok(&owners.post("/dataset/update", cleared).await)["dataset"].clone();
    for field in ["format", "records_path", "schedule", "private_key", "description", "licence"] {
        assert_eq!(cleared[field], json!(null), "{field}");
    }
    assert_eq!(cleared["source"], "https://example.com/countries.json");
    assert_eq!(cleared["index"], json!({"always": [], "never": []}));

    owners.create("Second").await;
    refused(&owners.post("/dataset/update", json!({"dataset_id": id, "name": "Second"})).await, 409, "name");
}

async fn list_and_view_return_own_datasets(owners: Owners) {
    let first = owners.create("First").await;
    let second = owners.create("Second").await;
    let id = &first["dataset_id"];
    let listed = ok(&owners.get("/dataset/list").await);
    assert_eq!(listed["datasets"], json!([first, second]));
    let page = ok(&owners.get(&format!("/dataset/list?after={id}&limit=1")).await);
    assert_eq!(page["datasets"], json!([second]));
    let theirs = owners.raw("GET", "/dataset/list", &[("authorization", &owners.other)], Vec::new()).await;
    assert_eq!(ok(&theirs)["datasets"], json!([]));
    let viewed = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await);
    assert_eq!(viewed["dataset"]["versions"], json!([]));
}

async fn invalid_dataset_fields_are_reported(owners: Owners) {
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
        ("infer_types", json!(1), "true or false"),
        ("listed", json!("true"), "true or false"),
        ("description", json!(["x"]), "a string, or null"),
        ("description", json!("a\u{0}b"), "U+0000"),
        ("description", json!("é".repeat(4_001)), "4000 characters"),
        ("licence", json!(7), "a string, or null"),
        ("licence", json!("\u{0}"), "U+0000"),
        ("licence", json!("x".repeat(1_001)), "1000 characters"),
        ("index", json!(["name"]), "an array is not valid"),
        ("index", json!({"always": ["a"], "sometimes": []}), "\"sometimes\""),
        ("index", json!({"always": "name"}), "always is not a list of strings"),
        ("index", json!({"never": [1]}), "never is not a list of strings"),
        ("index", json!({"never": null}), "never is not a list of strings"),
        ("index", json!({"never": [""]}), "must name a field"),
        ("index", json!({"always": ["a.b", "c"], "never": ["c"]}), "`c` is in both"),
        ("index", json!({"always": ["x".repeat(1_025)]}), "1024"),
        ("index", json!({"always": (0..65).map(|n| n.to_string()).collect::<Vec<_>>()}), "64"),
        ("schedule", json!("nightly"), "five fields in UTC (minute, hour, day of month, month, day of week)"),
        ("schedule", json!(5), "valid: five fields"),
        ("schedule", json!("0 0 31 2 *"), "no date"),
        ("schedule", json!("* * * * * *"), "seconds"),
    ] {
        let mut body = json!({"dataset_id": id, "name": "Fine"});
        body[field] = value.clone();
        for uri in ["/dataset/update", "/dataset/create"] {
            if uri.ends_with("create") {
                body.as_object_mut().expect("expected an object").remove("dataset_id");
            }
            let answer = owners.post(uri, body.clone()).await;
            refused(&answer, 400, word);
            assert!(answer.text().contains(field), "{uri}: {} does not name {field}", answer.text());
        }
    }
    refused(&owners.post("/dataset/create", json!({})).await, 400, "name: missing");
    let listed = ok(&owners.get("/dataset/list").await);
    assert_eq!(listed["datasets"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["datasets"][0]["name"], "Countries");
}

async fn rollback_and_freeze_affect_reads_at_once(owners: Owners) {
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
    let versions = viewed["versions"].as_array().expect("expected versions");
    let numbers: Vec<_> = versions.iter().map(|version| (&version["version_number"], &version["is_active"])).collect();
    assert_eq!(numbers, [(&json!(3), &json!(false)), (&json!(2), &json!(false)), (&json!(1), &json!(true))]);
    let names: Vec<&String> = versions[0].as_object().expect("expected an object").keys().collect();
    let expected = [
        "version_number",
        "alt_file_path",
        "entity_count",
        "file_size_bytes",
        "content_sha256",
        "is_active",
        "created_at",
    ];
    assert_eq!(names, expected);
    assert_eq!((&versions[0]["alt_file_path"], &versions[0]["entity_count"]), (&json!(null), &json!(1)));
    assert!(versions[0]["file_size_bytes"].as_u64().is_some_and(|bytes| bytes > 100));
    for version in versions {
        let lines =
            owners.service.get(&format!("/api/{id}/countries/v{}/?format=jsonl", version["version_number"])).await;
        assert_eq!(version["content_sha256"], json!(hex::encode(Sha256::digest(&lines.body))), "{version}");
    }
    let attempts = viewed["last_attempts"].as_array().expect("expected attempts");
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
    // Rolling back a frozen dataset works, and does not unfreeze it.
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

async fn new_key_replaces_old_at_once(owners: Owners) {
    let id = owners.dataset("Hidden", true, 1).await;
    let uri = format!("/api/{id}/hidden/v1/");
    let status = async |key: &str| owners.service.send("GET", &uri, Some(&format!("Bearer {key}"))).await.status;
    let key = |answer: &Answer| ok(answer)["dataset"]["private_key"].as_str().expect("missing key").to_owned();
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
    // Invalid fields are reported before the plan limit.
    refused(&free("/dataset/create", json!({"name": "--"})).await, 400, "name");
    let plan = async |plan| {
        owners.service.services.accounts.set_plan("free@strata.test", plan).await.expect("failed to change")
    };
    plan(UserPlan::Pro).await;
    ok(&free("/dataset/create", json!({"name": "four"})).await);
    plan(UserPlan::Free).await;
    // Datasets over the limit stay usable.
    ok(&free("/dataset/update", json!({"dataset_id": ids[0], "name": "uno"})).await);

    let id = owners.dataset("Frozen", false, 1).await;
    ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    let limited = owners.with(|config| config.plans.scale_active_datasets = 1).await;
    let id = limited.dataset("Frozen", false, 1).await;
    ok(&limited.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    ok(&limited.post("/dataset/create", json!({"name": "Another"})).await);
    refused(&limited.post("/dataset/unfreeze", json!({"dataset_id": id})).await, 403, "1 active");
}

async fn webhook_is_registered_replaced_and_deleted(owners: Owners) {
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

    // The plan is checked after the fields and the dataset.
    let free =
        async |body: Value| owners.send("POST", "/webhook/register", &[("authorization", &owners.free)], &body).await;
    refused(&free(json!({"dataset_id": id, "url": "https://example.com"})).await, 404, "dataset");
    let created =
        owners.send("POST", "/dataset/create", &[("authorization", &owners.free)], &json!({"name": "Mine"})).await;
    let mine = ok(&created)["dataset"]["dataset_id"].clone();
    refused(&free(json!({"dataset_id": mine, "url": "https://example.com"})).await, 403, "plan");
    refused(&free(json!({"dataset_id": mine, "url": "x"})).await, 400, "url");
}

async fn only_dataset_without_versions_is_deleted(owners: Owners) {
    let delete = async |id: &Value| owners.call("DELETE", "/dataset/delete", json!({"dataset_id": id})).await;
    let create = async |name: &str| {
        let body = json!({"name": name, "source": "push"});
        ok(&owners.post("/dataset/create", body).await)["dataset"]["dataset_id"].clone()
    };
    let first = create("Planets").await;
    // The webhook and the refresh attempts are deleted, too.
    let webhook = json!({"dataset_id": first, "url": "https://example.com"});
    ok(&owners.post("/webhook/register", webhook).await);
    refused(&owners.post("/dataset/refresh", json!({"dataset_id": first, "entities": [7]})).await, 422, "item 1");
    // Other users cannot delete the dataset.
    let theirs = [("authorization", owners.other.as_str())];
    let body = json!({"dataset_id": first});
    refused(&owners.send("DELETE", "/dataset/delete", &theirs, &body).await, 404, "dataset");
    assert_eq!(ok(&delete(&first).await), json!({"ok": true}));
    refused(&delete(&first).await, 404, "dataset");
    refused(&owners.get(&format!("/dataset/view?dataset_id={first}")).await, 404, "dataset");
    refused(&owners.get(&format!("/webhook/view?dataset_id={first}")).await, 404, "dataset");
    // The name can be used again, but the ID cannot.
    let second = create("Planets").await;
    assert!(second.as_u64() > first.as_u64(), "{second} after {first}");
    // A dataset cannot be deleted during a refresh.
    let id = strata_types::ids::DatasetId::new(second.as_u64().expect("invalid number"));
    let catalog = owners.service.catalog().await;
    let lease = std::time::Duration::from_secs(600);
    let acquired = catalog
        .acquire_refresh(id, strata_types::dataset::RefreshTrigger::Manual, "holder", lease)
        .await
        .expect("failed to acquire");
    refused(&delete(&second).await, 409, "Another refresh");
    catalog.fail_refresh(acquired.attempt, "a test").await.expect("failed to release");
    ok(&owners.post("/dataset/refresh", json!({"dataset_id": second, "entities": []})).await);
    refused(&delete(&second).await, 409, "because versions are permanent");
    ok(&owners.get(&format!("/dataset/view?dataset_id={second}")).await);
    // Deleted datasets do not count toward the plan.
    let free = [("authorization", owners.free.as_str())];
    for name in ["One", "Two", "Three", "Four"] {
        let created = owners.send("POST", "/dataset/create", &free, &json!({"name": name})).await;
        let id = ok(&created)["dataset"]["dataset_id"].clone();
        ok(&owners.send("DELETE", "/dataset/delete", &free, &json!({"dataset_id": id})).await);
    }
}

async fn times_are_utc_and_urls_use_public_url(owners: Owners) {
    let created = ok(&owners.post("/dataset/create", json!({"name": "Countries"})).await);
    let created_at = created["dataset"]["created_at"].as_str().expect("invalid time");
    let parsed = chrono::DateTime::parse_from_rfc3339(created_at).expect("invalid RFC 3339 time");
    assert!(created_at.ends_with('Z'), "{created_at}");
    let age = chrono::Utc::now().signed_duration_since(parsed);
    assert!(age.num_minutes().abs() < 10, "{created_at}");

    let public = owners
        .with(|config| {
            let url = "https://Data.example.org/strata/".to_owned();
            config.server.public_url = Some(url.try_into().expect("invalid URL"));
        })
        .await;
    let created = ok(&public.post("/dataset/create", json!({"name": "Countries"})).await);
    let ping_url = created["dataset"]["ping_url"].as_str().expect("invalid URL");
    assert!(ping_url.starts_with("https://data.example.org/strata/ping/ping_"), "{ping_url}");
    let answer = public.try_log_in(OWNER, PASSWORD).await;
    assert!(answer.header("set-cookie").is_some_and(|set| set.contains("Secure")), "{:?}", answer.headers);
    let session = cookie(&answer);
    let me = async |origin: &str| {
        public.raw("GET", "/session/me", &[("cookie", &session), ("origin", origin)], Vec::new()).await.status
    };
    assert_eq!((me("https://data.example.org").await, me("http://data.example.org").await), (200, 403));

    // The trusted proxy reports https.
    let proxied = owners
        .with(|config| {
            config.server.trusted_proxies = vec!["127.0.0.1".to_owned()].try_into().expect("invalid network")
        })
        .await;
    let log_in = async |peer: [u8; 4]| {
        let request = Request::post("/session/login")
            .header("content-type", "application/json")
            .header("x-forwarded-proto", "https")
            .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from((peer, 1))));
        let body = json!({"email": OWNER, "password": PASSWORD}).to_string();
        let answer = proxied.service.call(request.body(Body::from(body)).expect("invalid request")).await;
        answer.header("set-cookie").expect("missing cookie").contains("Secure")
    };
    assert_eq!((log_in([127, 0, 0, 1]).await, log_in([127, 0, 0, 2]).await), (true, false));
}

fn sorted(record: &Value) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = record.as_object().expect("expected an object").iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

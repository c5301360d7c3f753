//! The dataset setting `checks`, which a new list of entities must pass to become a version.

use serde_json::{Value as Json, json};
use strata_config::{AllowedNetworks, CatalogUrl, Config};
use strata_testing::ImportedSource;
use strata_testing::databases::{Database, on_both_databases};
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::owned::{Owned, parsed};
use strata_testing::service::Answer;
use strata_testing::wait::eventually;
use tokio_util::sync::CancellationToken;

on_both_databases! {
    Checked:
    checks_are_validated_stored_and_cleared
    failed_push_changes_nothing
    checks_run_in_every_kind_of_refresh
    unchanged_source_is_checked
    checks_see_the_active_version
    clone_starts_without_checks
    active_version_can_be_checked
    damaged_checks_stop_refreshes
}

struct Checked {
    owned: Owned,
    database: Database,
}

impl Checked {
    async fn sqlite() -> Checked {
        Checked::start(Database::sqlite().await).await
    }

    async fn postgres() -> Checked {
        Checked::start(Database::postgres().await).await
    }

    async fn start(database: Database) -> Checked {
        let owned = Owned::start(|config: &mut Config| {
            config.catalog.url = Some(CatalogUrl::try_from(database.url.clone()).expect("failed to parse URL"));
            config.net.allow =
                AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks");
            config.sources.schedule_spread_s = 0;
        })
        .await;
        Checked { owned, database }
    }

    async fn post(&self, path: &str, body: Json) -> Answer {
        self.owned.call("POST", path, &body.to_string()).await
    }

    async fn push(&self, id: u64, entities: Json) -> Answer {
        self.post("/dataset/refresh", json!({ "dataset_id": id, "entities": entities })).await
    }

    async fn set_checks(&self, id: u64, checks: Json) -> Json {
        parsed(&self.post("/dataset/update", json!({ "dataset_id": id, "checks": checks })).await)["dataset"].clone()
    }

    async fn view(&self, id: u64) -> Json {
        parsed(&self.owned.call("GET", &format!("/dataset/view?dataset_id={id}"), "").await)["dataset"].clone()
    }

    /// Returns the trigger, the version, and the error of the last attempt.
    async fn last_attempt(&self, id: u64) -> Json {
        let attempt = self.view(id).await["last_attempts"][0].clone();
        json!([attempt["trigger"], attempt["version"], attempt["error"]])
    }

    /// Returns everything that a read of the active version returns, and the stored files.
    async fn state(&self, id: u64) -> (String, String, Vec<Json>, usize) {
        let path = format!("/api/{id}/things/active/");
        let answer = self.owned.service.get(&path).await;
        let etag = answer.header("etag").unwrap_or_default().to_owned();
        let files = self.owned.service.version_files().len();
        (self.owned.lines(&path).await, etag, self.owned.versions(id).await, files)
    }
}

#[track_caller]
fn assert_error(answer: &Answer, status: u16, text: &str) {
    assert_eq!((answer.status, answer.text()), (status, text));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
}

async fn checks_are_validated_stored_and_cleared(checked: Checked) {
    let id = checked.owned.dataset("Things", json!({}), &[]).await;
    assert_eq!(checked.view(id).await["checks"], json!(null));
    let checks = json!({
        "max_drop_percent": 12.50,
        "unique": [["id"], ["a\\.b", "c"]],
        "required": ["\u{0}é"],
        "types": { "id": ["number", "string"] },
        "json_schema": { "properties": { "id": { "minimum": 1 } } },
        "min_entities": 0
    });
    assert_eq!(checked.set_checks(id, checks.clone()).await["checks"], checks);
    assert_eq!(checked.view(id).await["checks"], checks);
    // Other changes keep the checks, and invalid ones change nothing.
    parsed(&checked.post("/dataset/update", json!({ "dataset_id": id, "name": "Things" })).await);
    for (invalid, text) in [
        (json!([]), "checks: an array is not valid; valid: an object, such as {\"required\":[\"name\"]}, or null"),
        (
            json!({ "minimum": 1 }),
            "checks: unknown check \"minimum\"; valid: min_entities, max_entities, max_drop_percent, required, unique, \
             types, json_schema",
        ),
        (json!({ "min_entities": -1 }), "checks: `min_entities`: -1 is not valid; valid: an integer from 0"),
        (
            json!({ "json_schema": { "type": 7 } }),
            "checks: `json_schema`: not a valid JSON Schema: \"/type\": 7 is not valid under any of the schemas listed \
             in the 'anyOf' keyword",
        ),
        (
            json!({ "json_schema": { "$ref": "http://127.0.0.1:9/schema.json" } }),
            "checks: `json_schema`: the reference \"http://127.0.0.1:9/schema.json\" leads to nothing in the schema; \
             strata does not fetch remote references",
        ),
        (
            json!({ "json_schema": { "title": "x".repeat(65_536) } }),
            "checks: `json_schema`: the schema has 65548 bytes; valid: at most 65536 bytes",
        ),
    ] {
        let text = format!("Invalid request: {text}.");
        let body = json!({ "dataset_id": id, "checks": invalid });
        assert_error(&checked.post("/dataset/update", body).await, 400, &text);
        assert_error(&checked.post("/dataset/create", json!({ "name": "New", "checks": invalid })).await, 400, &text);
    }
    assert_eq!(checked.view(id).await["checks"], checks);
    let list = parsed(&checked.owned.call("GET", "/dataset/list", "").await);
    let listed: Vec<&Json> = list["datasets"].as_array().expect("no list").iter().map(|one| &one["checks"]).collect();
    assert_eq!(listed, [&checks]);
    assert_eq!(checked.set_checks(id, json!(null)).await["checks"], json!(null));
    assert_eq!(checked.view(id).await["checks"], json!(null));
    // A new dataset can have checks.
    let other = checked.owned.dataset("Other", json!({ "checks": { "min_entities": 2 } }), &[]).await;
    assert_eq!(checked.view(other).await["checks"], json!({ "min_entities": 2 }));
    assert_eq!(checked.push(other, json!([{}])).await.status, 422);
    let stored = json!({}).to_string();
    assert_eq!(checked.set_checks(other, json!({})).await["checks"].to_string(), stored);
    assert_eq!(checked.push(other, json!([])).await.status, 200);
}

async fn failed_push_changes_nothing(checked: Checked) {
    let id = checked.owned.dataset("Things", json!({}), &[r#"[{"id":1,"name":"a"},{"id":2,"name":"b"}]"#]).await;
    let checks = json!({
        "max_entities": 4,
        "required": ["name"],
        "unique": [["id"]],
        "types": { "id": ["number"] },
        "json_schema": { "properties": { "name": { "maxLength": 3 } } }
    });
    checked.set_checks(id, checks).await;
    let before = checked.state(id).await;
    for (entities, text) in [
        (
            json!([{ "id": 1, "name": "a" }, { "id": 2 }, { "id": 3, "name": null }]),
            "1 of 5 checks: required: 2 of 3 entities fail; first at position 1: `name` is missing",
        ),
        (
            json!([{ "id": 1, "name": "a" }, { "id": 1.0, "name": "b" }]),
            "1 of 5 checks: unique: 1 of 2 entities fails; first at position 1: `id` is 1.0, as at position 0",
        ),
        (
            json!([{ "id": 1, "name": "abcd" }]),
            "1 of 5 checks: json_schema: 1 of 1 entities fails; first at position 0: \"/name\": \"abcd\" is longer than \
             3 characters",
        ),
        (
            json!([{ "id": "x", "name": "\u{202e}\n" }, { "name": "" }, { "name": "" }, { "name": "" }, { "name": "" }]),
            "3 of 5 checks: max_entities: the list has 5 entities; valid: at most 4; unique: 3 of 5 entities fail; first \
             at position 2: `id` is missing, as at position 1; types: 1 of 5 entities fails; first at position 0: `id` is \
             \"x\" (a string); valid: number",
        ),
    ] {
        let answer = checked.push(id, entities).await;
        assert_error(&answer, 422, &format!("No version was created: the new entities fail {text}."));
        let attempt = checked.last_attempt(id).await;
        assert_eq!(attempt, json!(["manual", null, format!("the new entities fail {text}")]));
        assert_eq!(checked.state(id).await, before);
    }
    // A list that passes becomes the next version: failed lists use no number.
    assert_eq!(checked.push(id, json!([{ "id": 1, "name": "new" }])).await.status, 200);
    assert_eq!(checked.view(id).await["latest_version"], json!(2));
    let temporary = strata_testing::files(&checked.owned.service.directory().join("tmp"));
    assert!(temporary.iter().all(|file| file.ends_with("lock")), "{temporary:?}");
}

async fn checks_run_in_every_kind_of_refresh(checked: Checked) {
    let source = LoopbackServer::start(|_| ok("Content-Type: application/json\r\n", b"[{\"n\":1},{\"n\":2}]"));
    let settings = json!({ "source": source.url("/things.json"), "checks": { "min_entities": 3 } });
    let id = checked.owned.dataset("Things", settings, &[]).await;
    let error = "the new entities fail 1 of 1 check: min_entities: the list has 2 entities; valid: at least 3";
    let public_text = format!("No version was created: {error}.");

    let answer = checked.post("/dataset/refresh", json!({ "dataset_id": id })).await;
    assert_error(&answer, 422, &public_text);
    assert_eq!(checked.last_attempt(id).await, json!(["manual", null, error]));

    let url = checked.view(id).await["ping_url"].as_str().expect("missing ping URL").to_owned();
    let ping = &url[url.find("/ping/").expect("missing ping URL")..];
    assert_error(&checked.owned.service.send("POST", ping, None).await, 422, &public_text);
    assert_eq!(checked.last_attempt(id).await, json!(["ping", null, error]));

    let run_due_schedules = async || {
        let started = checked.owned.service.services.refreshes.run_due_schedules(&CancellationToken::new()).await;
        started.expect("failed to run schedules")
    };
    run_due_schedules().await;
    checked.database.execute("UPDATE datasets SET next_run_at = 1").await;
    assert_eq!(run_due_schedules().await, 1);
    eventually("the scheduled attempt", async || checked.last_attempt(id).await == json!(["schedule", null, error]))
        .await;

    let file = tempfile::NamedTempFile::new_in(checked.owned.service.directory()).expect("missing file");
    std::fs::write(file.path(), r#"[{"n":1},{"n":2}]"#).expect("failed to write");
    let path = file.path().to_str().expect("invalid UTF-8");
    let import = async || {
        let source = ImportedSource { owner: "ada@strata.test", ..ImportedSource::new("Things", path) };
        checked.owned.service.import_source(source).await
    };
    assert_eq!(import().await.expect_err("the import succeeded").to_string(), error);
    assert_eq!(checked.last_attempt(id).await, json!(["import", null, error]));

    // A pushed document with its dataset in the body, in the URL, and in another format.
    checked.post("/dataset/update", json!({ "dataset_id": id, "source": "push" })).await;
    for (path, body, content_type) in [
        ("/dataset/refresh".to_owned(), format!(r#"{{"entities":[{{"n":1}},{{"n":2}}],"dataset_id":{id}}}"#), None),
        (format!("/dataset/refresh?dataset_id={id}"), "n\n1\n2\n".to_owned(), Some("text/csv")),
    ] {
        let request = axum::http::Request::builder().method("POST").uri(path);
        let request = request.header("authorization", format!("Bearer {}", checked.owned.token()));
        let request = request.header("content-type", content_type.unwrap_or("application/json"));
        let answer = checked.owned.service.call(request.body(body.into()).expect("failed to build request")).await;
        assert_error(&answer, 422, &public_text);
    }
    assert_eq!(checked.view(id).await["latest_version"], json!(null));

    checked.set_checks(id, json!({ "min_entities": 2 })).await;
    assert_eq!(import().await.expect("failed to import").version.get(), 1);
}

/// The dataset is known only after the entities if the body is larger than its searched beginning.
#[tokio::test]
async fn dataset_after_large_list_is_checked() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({ "checks": { "unique": [["n"]] } }), &[]).await;
    let entities: Vec<Json> = (0..2_000).map(|n| json!({ "n": n % 1_999, "text": "x".repeat(100) })).collect();
    let body = format!(r#"{{"entities":{},"dataset_id":{id}}}"#, json!(entities));
    let answer = owned.call("POST", "/dataset/refresh", &body).await;
    let text = "unique: 1 of 2000 entities fails; first at position 1999: `n` is 0, as at position 0";
    assert_error(&answer, 422, &format!("No version was created: the new entities fail 1 of 1 check: {text}."));
}

async fn unchanged_source_is_checked(checked: Checked) {
    let source = LoopbackServer::start(|request: &Received| match request.header("if-none-match") {
        Some("\"one\"") => Reply::Bytes(with_status("304 Not Modified", "ETag: \"one\"\r\n", b"")),
        _ => ok("ETag: \"one\"\r\nContent-Type: application/x-ndjson\r\n", b"{\"a\":1}\n{\"a\":1}\n"),
    });
    let id = checked.owned.dataset("Things", json!({ "source": source.url("/lines") }), &[]).await;
    let refresh = async || checked.post("/dataset/refresh", json!({ "dataset_id": id })).await;
    assert_eq!(refresh().await.status, 200);
    checked.set_checks(id, json!({ "unique": [["a"]] })).await;
    source.take_received();
    let text = "unique: 1 of 2 entities fails; first at position 1: `a` is 1, as at position 0";
    let text = format!("No version was created: the new entities fail 1 of 1 check: {text}.");
    assert_error(&refresh().await, 422, &text);
    let requests = source.take_received();
    assert!(requests.iter().all(|request| request.header("if-none-match").is_some()) && requests.len() == 1);
    checked.set_checks(id, json!({ "required": ["a"], "max_drop_percent": 0 })).await;
    assert_eq!(refresh().await.status, 200);
    assert_eq!(checked.view(id).await["latest_version"], json!(2));
}

async fn checks_see_the_active_version(checked: Checked) {
    let list = |count: usize| json!(vec![json!({}); count]);
    let id = checked.owned.dataset("Things", json!({ "checks": { "max_drop_percent": 25 } }), &[]).await;
    // Without an active version, the check passes.
    for (count, status) in [(8, 200), (6, 200), (4, 422), (5, 200), (0, 422)] {
        assert_eq!(checked.push(id, list(count)).await.status, status, "{count}");
    }
    // The pinned version is the active one, not the latest.
    parsed(&checked.post("/dataset/rollback", json!({ "dataset_id": id, "version_number": 1 })).await);
    let text =
        "max_drop_percent: the list has 5 entities, 37.50 % less than the 8 of version 1; valid: at most 25 % less";
    let answer = checked.push(id, list(5)).await;
    assert_error(&answer, 422, &format!("No version was created: the new entities fail 1 of 1 check: {text}."));
    assert_eq!(checked.push(id, list(6)).await.status, 200);
}

async fn clone_starts_without_checks(checked: Checked) {
    let settings = json!({ "checks": { "max_entities": 1 } });
    let id = checked.owned.dataset("Things", settings, &["[{}]"]).await;
    let cloned = parsed(&checked.owned.clone(id, "Clone").await)["dataset"].clone();
    assert_eq!(cloned["checks"], json!(null));
    let clone = cloned["dataset_id"].as_u64().expect("missing ID");
    assert_eq!(checked.push(clone, json!([{}, {}])).await.status, 200);
    assert_eq!(checked.push(id, json!([{}, {}])).await.status, 422);
}

async fn active_version_can_be_checked(checked: Checked) {
    let entities = r#"[{"id":1},{"id":2},{"id":1}]"#;
    let id = checked.owned.dataset("Things", json!({}), &[]).await;
    let check = async |checks: Json| {
        let mut body = json!({ "dataset_id": id });
        if !checks.is_null() {
            body["checks"] = checks;
        }
        checked.post("/dataset/check", body).await
    };
    assert_error(&check(json!(null)).await, 404, "This dataset has no versions yet.");
    checked.owned.push(id, entities).await;
    checked.owned.push(id, "[]").await;
    parsed(&checked.post("/dataset/rollback", json!({ "dataset_id": id, "version_number": 1 })).await);
    let response =
        |passed: bool, results: Json| json!({ "ok": true, "version": 1, "passed": passed, "results": results });
    assert_eq!(parsed(&check(json!(null)).await), response(true, json!([])));

    checked.set_checks(id, json!({ "unique": [["id"]], "min_entities": 3 })).await;
    let before = (checked.view(id).await, checked.state(id).await);
    let unique = "unique: 1 of 3 entities fails; first at position 2: `id` is 1, as at position 0";
    let results = json!([
        { "check": "min_entities", "passed": true, "text": null },
        { "check": "unique", "passed": false, "text": unique }
    ]);
    assert_eq!(parsed(&check(json!(null)).await), response(false, results));
    let results = json!([
        { "check": "max_drop_percent", "passed": true, "text": null },
        { "check": "required", "passed": true, "text": null },
        { "check": "json_schema", "passed": false, "text": "json_schema: 3 of 3 entities fail; first at position 0: False schema does not allow {\"id\":1}" }
    ]);
    let checks = json!({ "json_schema": false, "required": ["id"], "max_drop_percent": 0 });
    assert_eq!(parsed(&check(checks).await), response(false, results));
    let invalid = check(json!({ "unique": [] , "x": 1 })).await;
    assert!(invalid.status == 400 && invalid.text().starts_with("Invalid request: checks: unknown check \"x\"; "));
    assert_eq!((checked.view(id).await, checked.state(id).await), before);

    // Also if the dataset is frozen.
    let rollback = json!({ "dataset_id": id, "version_number": 1, "freeze": true });
    parsed(&checked.post("/dataset/rollback", rollback).await);
    assert_eq!(parsed(&check(json!({ "max_entities": 2 })).await)["passed"], json!(false));
    // Datasets of others do not exist.
    let missing = checked.post("/dataset/check", json!({ "dataset_id": 999 })).await;
    assert_error(&missing, 404, "You have no dataset with this dataset_id.");
}

async fn damaged_checks_stop_refreshes(checked: Checked) {
    let id = checked.owned.dataset("Things", json!({ "checks": { "max_entities": 1 } }), &["[{}]"]).await;
    checked.database.execute(r#"UPDATE datasets SET checks = '{"max_entities":9}'"#).await;
    assert_eq!(checked.push(id, json!([{}, {}])).await.status, 500);
    // An operator can change them and remove the checksum.
    checked.database.execute("UPDATE datasets SET checks_checksum = NULL").await;
    assert_eq!(checked.push(id, json!([{}, {}])).await.status, 200);
    checked.database.execute(r#"UPDATE datasets SET checks = '{"max_entitys":9}'"#).await;
    let answer = checked.push(id, json!([{}])).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(answer.text().contains("the dataset's checks are invalid, so they could not run: "), "{}", answer.text());
    assert_eq!(checked.owned.versions(id).await.len(), 2);
}

#[tokio::test]
async fn check_needs_only_the_read_scope() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &["[{}]"]).await;
    let body = json!({ "name": "reader", "scope": "read" }).to_string();
    let token = parsed(&owned.call("POST", "/token/create", &body).await)["token"].clone();
    let reader = Owned { token: token.as_str().expect("missing token").to_owned(), ..owned };
    let body = json!({ "dataset_id": id, "checks": { "min_entities": 2 } }).to_string();
    assert_eq!(parsed(&reader.call("POST", "/dataset/check", &body).await)["passed"], json!(false));
    assert_eq!(reader.call("POST", "/dataset/update", &body).await.status, 403);
}

//! The errors of all operations, and their order.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use strata_testing::OWNER;
use strata_testing::PASSWORD;
use strata_testing::databases::on_both_databases;
use strata_testing::openapi::MANAGED;

use super::{Owners, cookie, ok, refused};

on_both_databases! {
    Owners:
    unknown_query_parameters_return_400
    query_string_with_entities_returns_400
    head_equals_get_without_body
    operations_run_checks_in_the_same_order
    operations_accept_documented_fields
    operations_reject_unknown_fields
    foreign_pages_cannot_use_cookie
    hostile_bodies_never_cause_5xx
}

/// Reads accept only GET. All other GET endpoints also accept HEAD.
async fn head_equals_get_without_body(owners: Owners) {
    let id = owners.dataset("Things", false, 2).await;
    let key = Some(owners.scale.as_str());
    let uri_for = |path: &str, more: &str| format!("{path}?dataset_id={id}{more}");
    let mut uris: Vec<String> = ["/session/me", "/session/list", "/token/list", "/dataset/list", "/datasets"]
        .into_iter()
        .chain(["/healthz", "/readyz", "/openapi.json"])
        .map(str::to_owned)
        .collect();
    for path in ["/dataset/view", "/dataset/attempts", "/dataset/usage", "/dataset/profile", "/dataset/explain"] {
        uris.push(uri_for(path, ""));
    }
    uris.extend([
        uri_for("/webhook/view", ""),
        uri_for("/webhook/deliveries", ""),
        uri_for("/dataset/diff", "&v1=1&v2=2"),
    ]);
    uris.extend(["/dataset/view".to_owned(), "/dataset/view?dataset_id=99".to_owned()]);
    for uri in uris {
        let get = owners.service.send("GET", &uri, key).await;
        let head = owners.service.send("HEAD", &uri, key).await;
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{uri}");
        // Headers that differ between requests, or depend on the durations that explain reports.
        let steady = |answer: &strata_testing::Answer| {
            let names = answer.headers.iter().map(|(name, value)| (name.to_string(), format!("{value:?}")));
            let own = |name: &str| {
                matches!(name, "content-length" | "date" | "x-request-id") || name.starts_with("x-ratelimit-")
            };
            names.filter(|(name, _)| !own(name)).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(steady(&head), steady(&get), "{uri}");
        if let Some(length) = head.header("content-length").filter(|_| !uri.starts_with("/dataset/explain")) {
            assert_eq!(length, get.body.len().to_string(), "{uri}");
        }
    }
    let read = owners.service.send("HEAD", &format!("/api/{id}/things/v1/"), None).await;
    assert_eq!((read.status, read.header("allow")), (405, Some("GET")));
    assert_eq!(owners.service.send("GET", "/token/list", None).await.status, 401);
    assert_eq!(owners.service.send("HEAD", "/token/list", None).await.status, 401);
}

async fn unknown_query_parameters_return_400(owners: Owners) {
    for (uri, meant) in [
        ("/session/me?x=1", "valid: none"),
        ("/token/list?limit=1", "valid: none"),
        ("/session/list?limit=1", "valid: none"),
        ("/dataset/list?limt=1", "did you mean limit?"),
        ("/datasets?limt=1", "did you mean limit?"),
        ("/dataset/view?dataset_id=1&dataset=1", "did you mean dataset_id?"),
        ("/dataset/profile?dataset_id=1&vesion=1", "did you mean version?"),
        ("/dataset/diff?dataset_id=1&v1=1&v2=1&ofset=1", "did you mean offset?"),
        ("/webhook/view?dataset_id=1&%C3%A9=1", "unknown field \"é\";"),
    ] {
        refused(&owners.get(uri).await, 400, meant);
    }
    let created = ok(&owners.post("/dataset/create", json!({"name": "Pushed", "source": "push"})).await);
    let id = created["dataset"]["dataset_id"].as_u64().expect("invalid number");
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
        refused(&push("", body).await, 400, "unknown field \"more\"; valid: dataset_id, entities");
    }
    // Regression: JSON lines with a JSON type were rejected because of an unknown field, without advice.
    let lines = "The body looks like JSON lines: set Content-Type: application/x-ndjson and send dataset_id in the \
                 query string.";
    for query in [String::new(), format!("?dataset_id={id}")] {
        let expected = format!("unknown field \"id\"; valid: dataset_id, entities. {lines}");
        refused(&push(&query, "{\"id\":1}\n{\"id\":2}\n".to_owned()).await, 400, &expected);
        let expected = format!("the array entities is missing. {lines}");
        refused(&push(&query, format!("\n{{\"dataset_id\":{id}}}\r\n {{\"a\"\n")).await, 400, &expected);
        // A comma is missing between two entities.
        let answer = push(&query, format!("{{\"dataset_id\":{id},\"entities\":[{{}}\n{{}}]}}")).await;
        refused(&answer, 400, "expected a comma or a closing bracket after item 1");
        assert!(!answer.text().contains("JSON lines"), "{}", answer.text());
        // Parquet with a JSON content type.
        let status = if query.is_empty() { 400 } else { 422 };
        refused(&push(&query, "PAR1\u{15}\u{4}".to_owned()).await, status, "it is Parquet; set `format` to parquet");
    }
    // Regression: the error for a nested document listed unknown members, but not how to send the document.
    for document in [r#"{"data":{"items":[{"a":1}]}}"#, "{}"] {
        let answer = push(&format!("?dataset_id={id}"), document.to_owned()).await;
        refused(&answer, 400, "for example with a records_path, add format=json to the query string.");
    }
    let versions = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"]["versions"].clone();
    assert_eq!(versions, json!([]), "nothing is done");
    // An object instead of a document.
    let whole = format!("{{\"dataset_id\":{id},\"entities\":[]}}");
    refused(&push("?format=json", whole.clone()).await, 400, "omit format");
    let query = format!("?dataset_id={id}&format=json");
    refused(&push(&query, whole.clone()).await, 422, "as application/json without a format");
    ok(&push("", whole).await);
}

/// Every operation with a body that is valid except for the dataset, which does not exist, and a required field.
fn operations() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let none = 1_000_000;
    vec![
        ("POST", "/token/create", json!({"name": "new"}), "name"),
        ("DELETE", "/token/delete", json!({"name": "none"}), "name"),
        ("POST", "/account/password", json!({"old": "none", "new": "another"}), "new"),
        ("DELETE", "/session/end", json!({"id": "none"}), "id"),
        ("POST", "/dataset/create", json!({"name": "New"}), "name"),
        ("POST", "/dataset/update", json!({"dataset_id": none}), "dataset_id"),
        ("DELETE", "/dataset/delete", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/rotate_key", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/rotate_ping", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/rollback", json!({"dataset_id": none, "version_number": 1}), "version_number"),
        ("POST", "/dataset/unpin", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/unfreeze", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/dataset/check", json!({"dataset_id": none}), "dataset_id"),
        ("POST", "/agent/pull_for_edit", json!({"dataset_id": none}), "dataset_id"),
        (
            "POST",
            "/dataset/alternate/edit",
            json!({"dataset_id": none, "version": 1, "etag": "x", "edits": [{"position": 0, "remove": true}]}),
            "edits",
        ),
        ("POST", "/webhook/register", json!({"dataset_id": none, "url": "https://example.com"}), "url"),
        ("DELETE", "/webhook/delete", json!({"dataset_id": none}), "dataset_id"),
    ]
}

async fn query_string_with_entities_returns_400(owners: Owners) {
    let id = owners.dataset("Mine", false, 1).await;
    let key = ("authorization", owners.scale.as_str());
    let body = json!({"dataset_id": id, "version": 1, "etag": "x", "entities": []});
    for path in ["/dataset/alternate/save", "/agent/push_alt_version"] {
        let answer = owners.send("POST", &format!("{path}?dataset_id={id}"), &[key], &body).await;
        refused(&answer, 400, "unknown parameter \"dataset_id\"; send the fields of this operation in the body");
    }
}

async fn operations_run_checks_in_the_same_order(owners: Owners) {
    let theirs = owners.dataset("Theirs", false, 1).await;
    let key = ("authorization", owners.other.as_str());
    for (method, uri, body, field) in operations() {
        let text = body.to_string().into_bytes();
        let json_type = ("content-type", "application/json");
        let long = [&text[..], &vec![b' '; 10_000][..]].concat();
        // Each request has all the errors of the following requests.
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
        for (malformed, word) in [
            ("", "JSON object"),
            ("{", "a key in quotes"),
            ("[]", "JSON object"),
            ("{\"a\":\"\\ud800\"}", "unpaired surrogate"),
        ] {
            refused(&owners.raw(method, uri, &[key, json_type], malformed.into()).await, 400, word);
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        refused(&owners.raw(method, uri, &[key, json_type], deep.into()).await, 400, "nested deeper");
        // Regression: fields in the query string were ignored.
        for query in ["dataset_id=1", "x"] {
            let answer = owners.send(method, &format!("{uri}?{query}"), &[key], &body).await;
            let expected =
                "; send the fields of this operation in the body, as a JSON object, not in the query string.";
            refused(&answer, 400, expected);
        }
        let answer = owners.raw(method, &format!("{uri}?dataset_id=1"), &[key], Vec::new()).await;
        refused(&answer, 415, "Send the fields of this operation in the body, not in the query string.");
        for value in [json!(null), json!([1]), json!({}), json!(true), json!(-1), json!(0), json!(1.5)] {
            let mut wrong = body.clone();
            wrong[field] = value;
            refused(&owners.send(method, uri, &[key], &wrong).await, 400, field);
        }
        let mut slip = body.clone();
        slip["dataset_di"] = json!(1);
        let answer = owners.send(method, uri, &[key], &slip).await;
        refused(&answer, 400, "unknown field \"dataset_di\";");
        refused(
            &answer,
            400,
            &format!("valid: {}", body.as_object().expect("expected an object").keys().next().expect("missing field")),
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
    let gets = ["/dataset/view", "/dataset/attempts", "/dataset/usage", "/webhook/view", "/webhook/deliveries"];
    for uri in gets.into_iter().chain(["/dataset/diff", "/dataset/explain"]) {
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
    // Endpoints for anonymous callers: an invalid token first, then the parameters, then access.
    let profile = async |query: &str, headers: &[(&str, &str)]| {
        owners.raw("GET", &format!("/dataset/profile{query}"), headers, Vec::new()).await
    };
    refused(&profile("", &[("authorization", "Bearer strata_00")]).await, 401, "does not contain a valid API token");
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
    // A login needs no authentication. The other checks run in the same order.
    let body = json!({"email": OWNER, "password": PASSWORD}).to_string().into_bytes();
    refused(&owners.raw("POST", "/session/login", &[], body.clone()).await, 415, "JSON");
    let json_type = ("content-type", "application/json; charset=utf-8");
    let long = [&body[..], &vec![b' '; 20_000][..]].concat();
    refused(&owners.raw("POST", "/session/login", &[json_type], long).await, 413, "10000");
    refused(&owners.send("POST", "/session/login", &[], &json!({"email": OWNER})).await, 400, "password");
    refused(&owners.send("POST", "/session/login", &[], &json!({"email": 1, "password": ""})).await, 400, "email");
    cookie(&owners.raw("POST", "/session/login", &[json_type], body).await);
}

/// Calls every operation with its examples. A handler that uses an unlisted field would fail.
async fn operations_accept_documented_fields(owners: Owners) {
    let id = owners.dataset("Listed", false, 2).await;
    let example = |name: &str, example: &Value| if name == "dataset_id" { json!(id) } else { example.clone() };
    let mut called = 0;
    for (path, item) in owners.document.0["paths"].as_object().expect("missing paths") {
        for (method, operation) in item.as_object().expect("expected operations") {
            if !MANAGED.iter().any(|tag| operation["tags"][0] == **tag) || path == "/ping/{token}" {
                continue;
            }
            let own =
                operation["parameters"].as_array().into_iter().flatten().filter(|field| field["name"].is_string());
            let query: Vec<String> = own
                .map(|field| (field["name"].as_str().expect("missing name"), &field["example"]))
                .map(|(name, value)| (name, example(name, value)))
                .map(|(name, value)| format!("{name}={}", value.as_str().map_or(value.to_string(), str::to_owned)))
                .collect();
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            let body = body.as_object().map(|body| body.iter().map(|(name, value)| (name, example(name, value))));
            let body = body.map_or(json!({}), |body| body.map(|(name, value)| (name.clone(), value)).collect());
            let uri = format!("{path}?{}", query.join("&"));
            let uris = if query.is_empty() || body == json!({}) { vec![uri] } else { vec![path.clone(), uri] };
            for uri in uris {
                let answer = owners.call(&method.to_ascii_uppercase(), &uri, body.clone()).await;
                assert!(answer.status != 400 && answer.status < 500, "{method} {uri} {body}: {}", answer.text());
                called += 1;
            }
        }
    }
    assert!(called >= 25, "{called}");
}

/// Calls every operation with its examples and a misspelled field: nothing is changed.
async fn operations_reject_unknown_fields(owners: Owners) {
    let id = owners.dataset("Known", false, 2).await;
    // A rejected push is recorded as a failed attempt.
    let without_attempts =
        |dataset: &mut Value| dataset.as_object_mut().expect("missing dataset").remove("last_attempts");
    let before = async || {
        let mut listed = ok(&owners.get("/dataset/list").await);
        listed["datasets"].as_array_mut().expect("expected datasets").iter_mut().for_each(|dataset| {
            without_attempts(dataset);
        });
        let tokens = ok(&owners.get("/token/list").await);
        let names: Vec<Value> =
            tokens["tokens"].as_array().expect("expected tokens").iter().map(|t| t["name"].clone()).collect();
        let mut view = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await);
        without_attempts(&mut view["dataset"]);
        (listed, names, view)
    };
    let state = before().await;
    let example = |name: &str, example: &Value| if name == "dataset_id" { json!(id) } else { example.clone() };
    let mut queries = 0;
    let mut bodies = 0;
    for (path, item) in owners.document.0["paths"].as_object().expect("missing paths") {
        for (method, operation) in item.as_object().expect("expected operations") {
            let managed = MANAGED.iter().any(|tag| operation["tags"][0] == **tag);
            if !managed || path == "/ping/{token}" || path == "/session/logout" {
                continue;
            }
            let method = method.to_ascii_uppercase();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let own: Vec<&Value> = parameters.filter(|field| field["name"].is_string()).collect();
            let members = operation["requestBody"]["content"]["application/json"]["example"].as_object();
            if let Some(members) = members {
                let body: serde_json::Map<String, Value> =
                    members.iter().map(|(name, value)| (name.clone(), example(name, value))).collect();
                for known in members.keys() {
                    // A letter is added.
                    let slip = format!("{known}x");
                    let mut body = body.clone();
                    body.insert(slip.clone(), json!(1));
                    let answer = owners.call(&method, path, body.into()).await;
                    refused(&answer, 400, &format!("unknown field \"{slip}\"; did you mean {known}?"));
                    bodies += 1;
                }
            }
            if method == "GET" {
                let query: Vec<String> = own
                    .iter()
                    .map(|field| (field["name"].as_str().expect("missing name"), &field["example"]))
                    .map(|(name, value)| (name, example(name, value)))
                    .map(|(name, value)| format!("{name}={}", value.as_str().map_or(value.to_string(), str::to_owned)))
                    .collect();
                let uri = format!("{path}?{}&nonsense_of_mine=1", query.join("&"));
                let answer = owners.get(&uri).await;
                if path == "/dataset/explain" {
                    ok(&answer);
                    continue;
                }
                refused(&answer, 400, "unknown field \"nonsense_of_mine\"; valid: ");
                for field in own {
                    let known = field["name"].as_str().expect("missing name");
                    if known.len() > 2 {
                        let answer = owners.get(&format!("{path}?{known}x=1")).await;
                        refused(&answer, 400, &format!("did you mean {known}?"));
                    }
                }
                queries += 1;
            }
        }
    }
    assert!(queries >= 8 && bodies >= 40, "{queries} {bodies}");
    refused(&owners.post("/session/logout", json!({"all": true})).await, 400, "unknown field \"all\"; valid: none");
    let slip = json!({"name": "Slip", "index": {"alway": []}});
    refused(&owners.post("/dataset/create", slip).await, 400, "unknown member \"alway\"; did you mean always?");
    assert_eq!(before().await, state, "nothing is done");
}

async fn foreign_pages_cannot_use_cookie(owners: Owners) {
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
    // Browsers do not send tokens.
    ok(&create(&owners, "A token", &[("authorization", &owners.scale), ("origin", "https://evil.test")]).await);
    // An invalid cookie is reported first.
    refused(&create(&owners, "x", &[("origin", "https://evil.test")]).await, 401, "session");
    let foreign = [("cookie", session.as_str()), ("origin", "https://evil.test")];
    refused(&owners.raw("GET", "/session/me", &foreign, Vec::new()).await, 403, "Origin");
    refused(&owners.raw("POST", "/session/logout", &foreign, Vec::new()).await, 403, "Origin");
    let body = json!({"email": OWNER, "password": PASSWORD});
    refused(&owners.send("POST", "/session/login", &[("origin", "https://evil.test")], &body).await, 403, "Origin");
    let listed = ok(&owners.get("/dataset/list").await).to_string();
    assert!(!listed.contains("Forged"), "{listed}");
}

/// JSON texts with unusual values, names, and nesting.
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

async fn hostile_bodies_never_cause_5xx(owners: Owners) {
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
    let mut rejected = 0;
    for round in 0..300 {
        let mut body = draw(&|runner| {
            let drawn = bodies.new_tree(runner).expect("expected an object").current();
            drawn.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        });
        if round % 2 == 0 {
            body["dataset_id"] = json!(id);
        }
        // Names that must be resolved would wait for the network.
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
            rejected += 1;
        }
        let cut = &body.to_string().into_bytes()[..body.to_string().len() / 2];
        let headers = [("authorization", owners.scale.as_str()), ("content-type", "application/json")];
        let answer = owners.raw(method, uri, &headers, cut.to_vec()).await;
        assert!(answer.status < 500, "{method} {uri}: {}", answer.text());
    }
    assert!(rejected > 200, "{rejected}");
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    for _ in 0..100 {
        let body = bytes.new_tree(&mut runner).expect("expected an object").current();
        let headers = [("content-type", "application/json")];
        owners.raw("POST", "/session/login", &headers, body).await.is_error(400);
    }
}

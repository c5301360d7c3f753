//! The changes between versions over HTTP: bodies, checks, headers, and failures.

use serde_json::{Value as Json, json};
use strata_reference::Value;
use strata_reference::changes::apply_edits;
use strata_testing::TestService;
use strata_testing::owned::{Owned, parsed};
use strata_testing::service::Answer;

async fn owned() -> Owned {
    Owned::start(|config| config.limits.public_per_minute = 1_000).await
}

async fn lines(owned: &Owned, version: u64) -> Answer {
    owned.service.get(&format!("/api/1/some/v{version}?format=jsonl")).await
}

/// Checks that the changes turn one version into another one, and returns the edits.
async fn check_changes(owned: &Owned, since: u64, version: u64) -> Vec<String> {
    let answer = owned.service.get(&format!("/changes/1/some/v{version}/?since=v{since}")).await;
    assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(answer.header("x-dataset-version"), Some(&*format!("v{version}")));
    let mut edits: Vec<&str> = answer.text().lines().collect();
    let last: Json = serde_json::from_str(edits.pop().expect("missing last line")).expect("last line is not JSON");
    assert_eq!(answer.header("x-total-changes"), Some(&*edits.len().to_string()));
    let new = lines(owned, version).await;
    let versions = owned.versions(1).await;
    let record = versions.iter().find(|record| record["version_number"] == version).expect("missing version");
    let expected = json!({
        "version": version,
        "since": since,
        "entity_count": new.text().lines().count(),
        "content_sha256": record["content_sha256"],
    });
    assert_eq!(last, expected);
    let parse =
        |text: &str| -> Vec<Value> { text.lines().map(|line| Value::parse_entity(line).expect(line)).collect() };
    let patched = apply_edits(&parse(lines(owned, since).await.text()), &edits).expect("wrong edits");
    let patched: String = patched.iter().map(|entity| entity.write() + "\n").collect();
    assert_eq!(patched, new.text());
    edits.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn changes_turn_one_version_into_another() {
    let owned = owned().await;
    let versions = [
        r#"[{"a":1},{"b":2},{"c":3}]"#,
        r#"[{"a":1.0},{"b":2},{"d":4},{"c":3}]"#,
        "[]",
        r#"[{"a":1},{"b":2},{"c":3}]"#,
        r#"[{"c":3},{"a":1},{"b":2}]"#,
    ];
    owned.dataset("Some", json!({}), &versions).await;
    for since in 1..=5 {
        for version in 1..=5 {
            let edits = check_changes(&owned, since, version).await;
            assert!(!edits.is_empty() || since == version || [since, version] == [1, 4] || [since, version] == [4, 1]);
        }
    }
    let edits = check_changes(&owned, 1, 2).await;
    assert_eq!(edits, [r#"{"position":0,"set":{"a":1.0}}"#, r#"{"position":2,"insert":[{"d":4}]}"#]);
    let edits = check_changes(&owned, 4, 5).await;
    assert_eq!(edits, [r#"{"position":0,"insert":[{"c":3}]}"#, r#"{"position":2,"remove":true}"#]);
}

#[tokio::test]
async fn long_changes_are_streamed() {
    let owned = owned().await;
    let list = |range: std::ops::Range<usize>, text: &str| {
        let entities: Vec<String> = range.map(|id| format!(r#"{{"id":{id},"text":"{}"}}"#, text.repeat(20))).collect();
        format!("[{}]", entities.join(","))
    };
    owned.dataset("Some", json!({}), &[&list(0..20_000, "some"), &list(500..25_000, "same")]).await;
    check_changes(&owned, 1, 2).await;
    let answer = owned.service.get("/changes/1/some/v2?since=v1").await;
    assert!(answer.chunks > 3, "{} chunks", answer.chunks);
}

#[tokio::test]
async fn checks_are_those_of_read() {
    let owned = owned().await;
    owned.dataset("Some", json!({}), &["[{\"a\":1}]", "[]"]).await;
    for (uri, status, text) in [
        ("/changes", 400, "Invalid path: dataset_id is missing"),
        ("/changes/1/some", 400, "version is missing; valid: /changes/{dataset_id}/{name_slug}/{version}/?since=vN"),
        ("/changes/0/some/v1/?since=v1", 400, "dataset_id"),
        ("/changes/1/some/2/?since=v1", 400, "version is \"2\""),
        ("/changes/1/some/v2/alt/?since=v1", 400, "\"alt\" after the version is not valid; valid: nothing"),
        ("/changes/1/some/v2/", 400, "parameter since is missing"),
        ("/changes/1/some/v2/?since=1", 400, "parameter since: \"1\" is not a version"),
        ("/changes/1/some/v2/?since=active", 400, "parameter since: \"active\" is not a version"),
        ("/changes/1/some/v2/?since=v01", 400, "parameter since"),
        ("/changes/1/some/v2/?since=v1&since=v1", 400, "parameter since: \"v1\" is a second value"),
        ("/changes/1/some/v2/?since=v1&limit=3", 400, "parameter limit is not allowed here; valid: since"),
        ("/changes/1/some/v2/?x=1&since=v1", 400, "parameter \"x\" is not allowed here; valid: since"),
        ("/changes/1/some/v2/?since=%FF", 400, "not UTF-8"),
        ("/changes/2/some/v2/?since=v1", 404, ""),
        ("/changes/1/other/v2/?since=v1", 404, ""),
        ("/changes/1/some/v3/?since=v1", 404, "no version 3"),
        ("/changes/1/some/v2/?since=v3", 404, "no version 3"),
        ("/changes/1/some/v2/?since=v0", 404, "no version 0"),
    ] {
        let answer = owned.service.get(uri).await;
        answer.is_error(status);
        assert!(answer.text().contains(text), "{uri}: {}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{uri}");
        assert_eq!(answer.header("x-ratelimit-limit").is_some(), status != 400, "{uri}");
    }
    for method in ["HEAD", "OPTIONS", "POST", "DELETE"] {
        let answer = owned.service.send(method, "/changes/1/some/v2/?since=v1", None).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")), "{method}");
    }
    for version in ["active", "latest", "v2"] {
        let answer = owned.service.get(&format!("/changes/1/some/{version}?since=v1")).await;
        assert_eq!((answer.status, answer.header("x-dataset-version")), (200, Some("v2")), "{version}");
    }
    let freeze = json!({"dataset_id": 1, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    owned.service.get("/changes/1/some/v2/?since=v1").await.is_error(410);
    owned.service.get("/changes/1/some/v2/?since=v9").await.is_error(410);
}

#[tokio::test]
async fn private_dataset_requires_its_key() {
    let service = TestService::start().await;
    let imported = service.try_import("Some", true, b"[{\"a\":1}]").await.expect("failed to import");
    service.try_import("Some", true, b"[]").await.expect("failed to import");
    let uri = "/changes/1/some/v2/?since=v1";
    let answer = service.get(uri).await;
    answer.is_error(401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    service.send("GET", uri, Some("Bearer wrong")).await.is_error(403);
    let key = format!("Bearer {}", imported.private_key.expect("missing key").expose());
    let answer = service.send("GET", uri, Some(&key)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn requests_count_toward_rate_limit_and_usage() {
    let owned = Owned::start(|config| config.limits.public_per_minute = 2).await;
    owned.dataset("Some", json!({}), &["[{\"a\":1}]", "[]"]).await;
    let uri = "/changes/1/some/v2/?since=v1";
    let answer = owned.service.get(uri).await;
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"));
    let tag = answer.header("etag").expect("missing etag").to_owned();
    owned.service.get("/changes/1/some/v2/").await.is_error(400);
    assert_eq!(owned.service.get_with(uri, &[("if-none-match", &tag)]).await.status, 304);
    let answer = owned.service.get(uri).await;
    answer.is_error(429);
    assert!(answer.header("retry-after").is_some());
    let usage = parsed(&owned.call("GET", "/dataset/usage?dataset_id=1", "").await);
    let today = &usage["usage"][0];
    assert_eq!((&today["requests"], &today["not_modified"], &today["rate_limited"]), (&json!(3), &json!(1), &json!(1)));
}

#[tokio::test]
async fn etag_is_unique_and_revalidates() {
    let owned = owned().await;
    owned.dataset("Some", json!({}), &["[{\"a\":1}]", "[]", "[]"]).await;
    let mut tags = Vec::new();
    for (since, version) in [(1, 2), (2, 1), (1, 3), (2, 3), (1, 1)] {
        let uri = format!("/changes/1/some/v{version}/?since=v{since}");
        let answer = owned.service.get(&uri).await;
        let tag = answer.header("etag").expect("missing etag").to_owned();
        assert_eq!(answer.header("cache-control"), Some("public, no-cache"));
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        let answer = owned.service.get_with(&uri, &[("if-none-match", &tag)]).await;
        assert_eq!((answer.status, answer.body.len(), answer.header("etag")), (304, 0, Some(&*tag)));
        assert_eq!(answer.header("x-dataset-version"), Some(&*format!("v{version}")));
        assert_eq!(owned.service.get_with(&uri, &[("if-match", "\"x\"")]).await.status, 412);
        tags.push(tag);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 5);
    let by_name = owned.service.get("/changes/1/some/active/?since=v1").await;
    let by_number = owned.service.get("/changes/1/some/v3/?since=v1").await;
    assert_eq!(by_name.header("etag"), by_number.header("etag"));
}

#[tokio::test]
async fn compressed_changes_are_equal() {
    let owned = owned().await;
    let list: Vec<String> = (0..500).map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    owned.dataset("Some", json!({}), &["[]", &format!("[{}]", list.join(","))]).await;
    let uri = "/changes/1/some/v2/?since=v1";
    let plain = owned.service.get(uri).await;
    for coding in ["gzip", "zstd", "br"] {
        let coded = owned.service.get_with(uri, &[("accept-encoding", coding)]).await;
        assert_eq!(coded.header("content-encoding"), Some(coding));
        assert_ne!(coded.header("etag"), plain.header("etag"));
        let body = strata_reference::coding::decoded(coding, &coded.body);
        assert_eq!(body, plain.body);
    }
}

/// A version file that is damaged after the changes have begun ends the body with an error.
#[tokio::test]
async fn damage_after_first_byte_aborts_body() {
    let owned = Owned::start(|config| {
        config.limits.public_per_minute = 0;
        config.cache.memory_bytes = Some(0);
    })
    .await;
    let entities: Vec<String> = (0..60_000_u64)
        .map(|id| format!(r#"{{"id":{id},"text":"{:x}{:x}"}}"#, id.wrapping_mul(0x9e37_79b9_7f4a_7c15), id * id))
        .collect();
    owned.dataset("Some", json!({}), &["[]", &format!("[{}]", entities.join(","))]).await;
    let uri = "/changes/1/some/v2/?since=v1";
    let largest =
        owned.service.version_files().into_iter().max_by_key(|path| path.metadata().map_or(0, |file| file.len()));
    let path = largest.expect("missing version file");
    damage_middle_third(&path);
    let answer = owned.service.get(uri).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.whole, "the body looks complete");
    assert!(!answer.text().contains("content_sha256"));
}

/// Damages the documents of the second row group, among others.
fn damage_middle_third(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).expect("failed to read file");
    let third = bytes.len() / 3;
    bytes[third..2 * third].iter_mut().step_by(4_096).for_each(|byte| *byte ^= 1);
    std::fs::write(path, bytes).expect("failed to write file");
}

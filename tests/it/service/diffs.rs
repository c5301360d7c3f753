//! Diffs over HTTP, compared with the naive reference, and on the command line: results, errors, limits and caching.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use strata_reference::coding::decoded;
use strata_testing::Answer;
use strata_testing::machine::{Machine, Server, failed, get, request, succeeded};
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call};
use strata_testing::pages::between;
use strata_types::user::UserPlan;

/// Calls the diff endpoint as the owner.
async fn get_diff(owned: &Owned, query: &str) -> Answer {
    owned.call("GET", &format!("/dataset/diff?{query}"), "").await
}

// ---- results ----

const V1: &str = r#"[{"_source":"http://a/1","id":1,"price":1.50,"gone":null,"same":1.0,"kind":"k"},{"id":3,"no":"source"},{"x":1}]"#;
const V2: &str = r#"[{"id":4},{"x":1},{"price":15e-1,"new":[1.0],"same":1,"kind":"k","_source":"http://a/1","id":7}]"#;
const RECORDS: [&str; 3] = [
    concat!(
        r#"{"id":"m0-2","change_type":"modified","source":"http://a/1","#,
        r#""v1":{"_source":"http://a/1","id":1,"price":1.50,"gone":null,"same":1.0,"kind":"k"},"#,
        r#""v2":{"price":15e-1,"new":[1.0],"same":1,"kind":"k","_source":"http://a/1","id":7},"#,
        r#""field_diffs":[{"field":"id","v1":1,"v2":7},{"field":"gone","v1":null,"v2":null},"#,
        r#"{"field":"new","v1":null,"v2":[1.0]}]}"#
    ),
    r#"{"id":"s1","change_type":"subtracted","source":"","v1":{"id":3,"no":"source"},"v2":null,"field_diffs":[]}"#,
    r#"{"id":"a0","change_type":"added","source":"","v1":null,"v2":{"id":4},"field_diffs":[]}"#,
];

/// Returns the JSON result of [`V1`] and [`V2`] with these records.
fn diff_result(records: &[&str]) -> String {
    let records = records.join(",");
    format!(r#"{{"added":1,"subtracted":1,"modified":1,"total_v1":3,"total_v2":3,"records":[{records}]}}"#)
}

#[tokio::test]
async fn diff_result_matches_documentation_exactly() {
    let owned = Owned::sqlite().await;
    let document = Document::fetch(&owned.service).await;
    let id = owned.dataset("Things", json!({}), &[V1, V2]).await;
    let ask = async |query: &str| {
        let answer = get_diff(&owned, &format!("dataset_id={id}&v1=1&v2=2{query}")).await;
        document.describes_call("GET", "/dataset/diff", &answer);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer
    };
    let answer = ask("").await;
    answer.is(&diff_result(&RECORDS));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    ask("&format=json&limit=99999999999999999999&offset=0").await.is(&diff_result(&RECORDS));
    let slip = ask("&chang_type=added").await;
    slip.is_error(400);
    assert!(slip.text().contains("unknown field \"chang_type\"; did you mean change_type?"), "{}", slip.text());
    for (query, records) in [
        ("&limit=1", &RECORDS[..1]),
        ("&limit=0", &[]),
        ("&offset=1", &RECORDS[1..]),
        ("&offset=1&limit=1", &RECORDS[1..2]),
        ("&offset=3", &[]),
        ("&offset=18446744073709551615", &[]),
        ("&change_type=modified", &RECORDS[..1]),
        ("&change_type=subtracted", &RECORDS[1..2]),
        ("&change_type=added", &RECORDS[2..]),
        ("&change_type=added&offset=1", &[]),
    ] {
        ask(query).await.is(&diff_result(records));
        let lines = ask(&format!("{query}&format=jsonl")).await;
        lines.is(&records.iter().map(|record| format!("{record}\n")).collect::<String>());
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    }
    // In the opposite direction, the diff differs. A version has no differences from itself.
    let answer = get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=1&change_type=added")).await;
    let added =
        r#"{"id":"a1","change_type":"added","source":"","v1":null,"v2":{"id":3,"no":"source"},"field_diffs":[]}"#;
    answer.is(&diff_result(&[added]));
    let none = |total: u64| {
        format!(r#"{{"added":0,"subtracted":0,"modified":0,"total_v1":{total},"total_v2":{total},"records":[]}}"#)
    };
    get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=2")).await.is(&none(3));
    // Versions with the same entities, with and without a shared file, and without any entities.
    owned.push(id, V1).await;
    owned.push(id, "[]").await;
    get_diff(&owned, &format!("dataset_id={id}&v1=1&v2=3")).await.is(&none(3));
    get_diff(&owned, &format!("dataset_id={id}&v1=4&v2=4")).await.is(&none(0));
    let answer = get_diff(&owned, &format!("dataset_id={id}&v1=4&v2=2&limit=0")).await;
    answer.is(r#"{"added":3,"subtracted":0,"modified":0,"total_v1":0,"total_v2":3,"records":[]}"#);
}

#[tokio::test]
async fn frozen_dataset_is_compared_without_alternates() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({"private": true}), &[V1, V2]).await;
    assert_eq!(owned.save(id, 1, r#"[{"alt":1}]"#).await.status, 200);
    let query = format!("dataset_id={id}&v1=1&v2=2");
    get_diff(&owned, &query).await.is(&diff_result(&RECORDS));
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    get_diff(&owned, &query).await.is(&diff_result(&RECORDS));
}

#[tokio::test]
async fn alternate_is_compared_instead_of_version() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[V2, V1]).await;
    let query = format!("dataset_id={id}&v1=2&v2=2&alt=true");
    let missing = get_diff(&owned, &query).await;
    missing.is_error(404);
    assert!(missing.text().contains("Version 2 of this dataset has no alternate"), "{}", missing.text());
    assert_eq!(owned.save(id, 2, V2).await.status, 200);
    get_diff(&owned, &query).await.is(&diff_result(&RECORDS));
    get_diff(&owned, &query.replace("true", "1")).await.is(&diff_result(&RECORDS));
    get_diff(&owned, &format!("dataset_id={id}&v1=1&v2=2&alt=true&limit=0"))
        .await
        .is(r#"{"added":0,"subtracted":0,"modified":0,"total_v1":3,"total_v2":3,"records":[]}"#);
    get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=1&alt=true")).await.is_error(404);
    get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=2&alt=yes")).await.is_error(400);

    // The version, and the alternate of the latest version.
    get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=latest&alt=true")).await.is(&diff_result(&RECORDS));
    get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=latest"))
        .await
        .is(r#"{"added":0,"subtracted":0,"modified":0,"total_v1":3,"total_v2":3,"records":[]}"#);

    // The cached diff of the previous alternate is not used for the next one.
    assert_eq!(owned.save(id, 2, "[]").await.status, 200);
    let emptied = get_diff(&owned, &format!("{query}&limit=0")).await;
    emptied.is(r#"{"added":0,"subtracted":3,"modified":0,"total_v1":3,"total_v2":0,"records":[]}"#);
    assert_eq!(owned.delete(id, 2).await.status, 200);
    get_diff(&owned, &query).await.is_error(404);
}

#[tokio::test]
async fn diff_is_compressed_with_accepted_encoding() {
    let owned = Owned::sqlite().await;
    let version = |salt: u64| -> String {
        let entities: Vec<String> = (0..12_000).map(|number| json!({"id": number, "salt": salt}).to_string()).collect();
        format!("[{}]", entities.join(","))
    };
    let id = owned.dataset("Things", json!({}), &[&version(1), &version(2)]).await;
    // One response that is sent as a whole and one that is streamed.
    for (limit, streamed) in [(50, false), (12_000, true)] {
        let uri = format!("/dataset/diff?dataset_id={id}&v1=1&v2=2&limit={limit}");
        let plain = owned.call("GET", &uri, "").await;
        assert_eq!((plain.status, plain.whole, plain.header("content-encoding")), (200, true, None));
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
        let token = format!("Bearer {}", owned.token());
        let coded = owned.service.get_with(&uri, &[("authorization", &token), ("accept-encoding", "gzip")]).await;
        assert_eq!((coded.status, coded.header("content-encoding")), (200, Some("gzip")));
        assert!(decoded("gzip", &coded.body) == plain.body, "{limit}");
        assert_eq!(plain.chunks > 1, streamed, "{limit}");
        let parsed: Value = serde_json::from_slice(&plain.body).expect("failed to parse JSON");
        let records = parsed["records"].as_array().expect("missing records");
        assert_eq!(records.len(), limit);
        let last = &records[limit - 1];
        let number = limit - 1;
        assert_eq!(last["id"], format!("m{number}-{number}"));
        assert_eq!(last["field_diffs"], json!([{"field": "salt", "v1": 1, "v2": 2}]));
    }
}

// ---- errors ----

#[tokio::test]
async fn invalid_diff_request_returns_reason() {
    let owned = Owned::sqlite().await;
    let document = Document::fetch(&owned.service).await;
    let id = owned.dataset("Things", json!({}), &[V1, V2]).await;
    let single = owned.dataset("Single", json!({}), &[V1]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let (_, other) = add_user(&owned.service, "bob@strata.test", UserPlan::Free).await;
    let positive = "valid: a positive integer.";
    let version = "valid: active, latest, or a version number, such as 3 or v3.";
    let whole = "valid: a whole number, 0 or more.";
    let rows = [
        ("v1=1&v2=2".to_owned(), 400, format!("Invalid request: dataset_id: missing; {positive}")),
        ("dataset_id=x&v1=x".to_owned(), 400, format!("Invalid request: dataset_id: \"x\" is not valid; {positive}")),
        (format!("dataset_id={id}&v2=2"), 400, format!("Invalid request: v1: missing; {version}")),
        (format!("dataset_id={id}&v1=1"), 400, format!("Invalid request: v2: missing; {version}")),
        (format!("dataset_id={id}&v1=0&v2=2"), 400, format!("Invalid request: v1: \"0\" is not valid; {version}")),
        (format!("dataset_id={id}&v1=V1&v2=2"), 400, format!("Invalid request: v1: \"V1\" is not valid; {version}")),
        (format!("dataset_id={id}&v1=1&v2=-1"), 400, format!("Invalid request: v2: \"-1\" is not valid; {version}")),
        (format!("dataset_id={empty}&v1=active&v2=latest"), 404, "This dataset has no versions yet.".to_owned()),
        (format!("dataset_id={id}&v1=1&v1=1&v2=2"), 400, "Invalid request: v1: specified more than once.".to_owned()),
        (
            format!("dataset_id={id}&v1=1&v2=2&change_type=Added"),
            400,
            "Invalid request: change_type: \"Added\" is not valid; valid: added, subtracted, modified.".to_owned(),
        ),
        (
            format!("dataset_id={id}&v1=1&v2=2&offset=-1"),
            400,
            format!("Invalid request: offset: \"-1\" is not valid; {whole}"),
        ),
        (
            format!("dataset_id={id}&v1=1&v2=2&limit=all"),
            400,
            format!("Invalid request: limit: \"all\" is not valid; {whole}"),
        ),
        (
            format!("dataset_id={id}&v1=1&v2=2&limit="),
            400,
            format!("Invalid request: limit: \"\" is not valid; {whole}"),
        ),
        (
            format!("dataset_id={id}&v1=9&v2=2&format=csv"),
            400,
            "Invalid request: format: \"csv\" is not valid; valid: json, jsonl.".to_owned(),
        ),
        ("dataset_id=1000&v1=1&v2=2".to_owned(), 404, "You have no dataset with this dataset_id.".to_owned()),
        (
            "dataset_id=99999999999999999999&v1=1&v2=2".to_owned(),
            404,
            "You have no dataset with this dataset_id.".to_owned(),
        ),
        (
            format!("dataset_id={id}&v1=3&v2=4"),
            404,
            "This dataset has no version 3; its versions are 1 to 2.".to_owned(),
        ),
        (
            format!("dataset_id={id}&v1=1&v2=4"),
            404,
            "This dataset has no version 4; its versions are 1 to 2.".to_owned(),
        ),
        (
            format!("dataset_id={single}&v1=1&v2=2"),
            404,
            "This dataset has no version 2; its only version is 1.".to_owned(),
        ),
        (
            format!("dataset_id={empty}&v1=1&v2=1"),
            404,
            "This dataset has no version 1; it has no versions yet.".to_owned(),
        ),
        (
            format!("dataset_id={id}&v1=1&v2=99999999999999999999"),
            404,
            "This dataset has no version with such a large number; its versions are 1 to 2.".to_owned(),
        ),
    ];
    for (query, status, text) in rows {
        let answer = get_diff(&owned, &query).await;
        answer.is_error(status);
        assert_eq!(answer.text(), text, "{query}");
        document.describes_call("GET", "/dataset/diff", &answer);
    }
    let uri = format!("/dataset/diff?dataset_id={id}&v1=1&v2=2");
    call(&owned.service, &other, "GET", &uri, "").await.is_error(404);
    // The response reveals neither to anonymous clients which datasets exist, nor to other users details of errors.
    owned.service.get("/dataset/diff?dataset_id=x").await.is_error(401);
    let answer = owned.service.send("POST", &uri, None).await;
    answer.is_error(405);
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
}

/// Returns two versions of a source in which all pairs are candidates, so that comparing them takes long.
fn slow_versions() -> [String; 2] {
    [0, 1].map(|salt| {
        let entity = |number: u64| json!({"id": number * 2 + salt, "salt": salt, "same": 1}).to_string();
        format!("[{}]", (0..3_000).map(entity).collect::<Vec<_>>().join(","))
    })
}

#[tokio::test]
async fn diff_releases_permit_when_clients_leave() {
    let owned = Owned::configured(
        |config| {
            config.query.diffs = 1;
            config.query.heavy_queue = 0;
        },
        None,
    )
    .await;
    let document = Document::fetch(&owned.service).await;
    let [one, other] = slow_versions();
    let id = owned.dataset("Crowds", json!({}), &[&one, &other]).await;
    let load = || owned.service.services.current_load();
    let slow = format!("dataset_id={id}&v1=1&v2=2&limit=0");
    let mut first = Box::pin(get_diff(&owned, &slow));
    while load().diffs_running == 0 {
        assert!(futures::poll!(&mut first).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // An identical request waits for the running diff and needs no permit; another pair of versions does, also in the
    // opposite order.
    let mut second = Box::pin(get_diff(&owned, &slow));
    for _ in 0..20 {
        assert!(futures::poll!(&mut second).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answer = get_diff(&owned, &format!("dataset_id={id}&v1=2&v2=1")).await;
    answer.is_error(503);
    assert_eq!(answer.header("retry-after"), Some("5"));
    let expected = "Too many concurrent diffs, from this client or in total. Try again in 5 s";
    assert!(answer.text().starts_with(expected), "{}", answer.text());
    document.describes_call("GET", "/dataset/diff", &answer);
    // Versions with equal entities need no permit.
    assert_eq!(get_diff(&owned, &format!("dataset_id={id}&v1=1&v2=1")).await.status, 200);
    // The work continues for the second request and ends with it.
    drop(first);
    assert!(futures::poll!(&mut second).is_pending());
    assert_eq!(load().diffs_running, 1);
    drop(second);
    while !owned.service.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn slow_diff_returns_503_and_large_diff_400() {
    let [one, other] = slow_versions();
    let refuser = async |change: fn(&mut strata_config::Config), status: u16, expected: &str| {
        let owned = Owned::configured(change, None).await;
        let document = Document::fetch(&owned.service).await;
        let id = owned.dataset("Crowds", json!({}), &[&one, &other]).await;
        for _ in 0..3 {
            let answer = get_diff(&owned, &format!("dataset_id={id}&v1=1&v2=2")).await;
            answer.is_error(status);
            assert!(answer.text().starts_with(expected), "{}", answer.text());
            assert_eq!(answer.header("retry-after"), None);
            document.describes_call("GET", "/dataset/diff", &answer);
            assert!(owned.service.is_idle());
        }
    };
    let slow = "The diff was stopped after 0 s. A diff of versions with fewer differences might finish in time.";
    refuser(|config| config.query.diff_timeout_s = 0, 503, slow).await;
    // The response was a 503 with `Retry-After`, although retrying could never succeed.
    let large = "The diff needs more than 65536 bytes of memory, the limit per client (query.memory_bytes). \
                 Compare versions with fewer differences, or ask the operator to raise query.memory_bytes.";
    refuser(|config| config.query.memory_bytes = Some(64 << 10), 400, large).await;
}

// ---- caching ----

/// Returns the value of a metric of a server.
fn metric(server: &Server, series: &str) -> u64 {
    let (_, text) = get(&format!("{}/metrics", server.base_url), None);
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Returns a machine with versions of `Things`, and the owner's `Authorization` header.
fn machine_with(versions: &[&str]) -> (Machine, String) {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "free", "--token", "t"];
    let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
    for version in versions {
        machine.write("things.json", version);
        succeeded(&machine.run(&["import", "things.json", "--name", "Things", "--owner", "ada@example.test"]));
    }
    (machine, format!("Bearer {}", token.lines().last().expect("missing token")))
}

#[test]
fn diff_is_computed_once_and_frees_query_memory() {
    let same = V2.replace("15e-1", "1.5");
    let (machine, authorization) = machine_with(&[V1, V2, V1, &same]);
    for (cache_bytes, is_cached) in [("67108864", true), ("0", false)] {
        let server = Server::start(&machine, &[], &[("STRATA_CACHE__DIFF_BYTES", cache_bytes)]);
        let ask = |v1: u64, v2: u64, more: &str| {
            let url = format!("{}/dataset/diff?dataset_id=1&v1={v1}&v2={v2}{more}", server.base_url);
            let (head, _) = get(&url, Some(&authorization));
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let lookups = |outcome| {
                metric(&server, &format!("strata_cache_lookups_total{{cache=\"diffs\",outcome=\"{outcome}\"}}"))
            };
            let settled = metric(&server, "strata_queries_total{outcome=\"settled\"}");
            assert_eq!(metric(&server, "strata_query_memory_bytes"), 0);
            (lookups("miss"), lookups("hit"), settled)
        };
        assert_eq!(ask(1, 2, ""), (1, 0, 1));
        let then = |miss: u64, hit: u64| if is_cached { (miss, hit, miss) } else { (miss + hit, 0, miss + hit) };
        // Another page and another format use the cached diff; the opposite direction does not; equal versions are
        // never compared.
        assert_eq!(ask(1, 2, "&limit=1&change_type=added&format=jsonl"), then(1, 1));
        assert_eq!(ask(2, 1, ""), then(2, 1));
        assert_eq!(ask(2, 1, ""), then(2, 2));
        assert_eq!(ask(1, 3, ""), then(2, 2));
        assert_eq!(ask(1, 4, ""), then(3, 2));
    }
}

// ---- command line ----

fn run(machine: &Machine, arguments: &[&str]) -> Output {
    machine.run(&[&["diff"], arguments].concat())
}

const TEXT: &str = "\
Things: version 1 (3 entities) and version 2 (3 entities)
+1 added  -1 subtracted  ~1 modified

~ m0-2  http://a/1
    ~ id: 1 → 7
    - gone: null
    + new: [1.0]

- s1
    {\"id\":3,\"no\":\"source\"}

+ a0
    {\"id\":4}
";

#[test]
fn diff_command_works_during_running_server() {
    let (machine, authorization) = machine_with(&[V1, V2]);
    let server = Server::start(&machine, &[], &[]);
    assert_eq!(succeeded(&run(&machine, &["1", "1", "2"])), TEXT);
    for more in [&[][..], &["--limit", "1"], &["--offset", "1", "--change-type", "added"], &["--limit", "0"]] {
        let printed = succeeded(&run(&machine, &[&["1", "1", "2", "--json"], more].concat()));
        let query: String =
            more.chunks(2).map(|pair| format!("&{}={}", pair[0][2..].replace('-', "_"), pair[1])).collect();
        let (head, body) =
            get(&format!("{}/dataset/diff?dataset_id=1&v1=1&v2=2{query}", server.base_url), Some(&authorization));
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(printed, format!("{body}\n"), "{more:?}");
    }

    let lines = |arguments: &[&str]| -> Vec<String> {
        let printed = succeeded(&run(&machine, &[&["1", "1", "2"], arguments].concat()));
        printed.lines().skip(2).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let rest = "2 more. To list the next ones, use --offset 1. To list all, use --limit all.";
    assert_eq!(
        lines(&["--limit", "1"]),
        ["~ m0-2  http://a/1", "    ~ id: 1 → 7", "    - gone: null", "    + new: [1.0]", rest]
    );
    assert_eq!(lines(&["--change-type", "added"]), ["+ a0", "    {\"id\":4}"]);
    assert_eq!(lines(&["--offset", "9", "--limit", "all"]), ["No records at --offset 9: the total is 3."]);
    let same = succeeded(&run(&machine, &["1", "2", "2"]));
    assert!(same.ends_with("+0 added  -0 subtracted  ~0 modified\n\nNo entities differ.\n"), "{same}");
}

#[test]
fn diff_command_compares_alternate() {
    let (machine, authorization) = machine_with(&[V1]);
    let message = failed(&run(&machine, &["1", "1", "1", "--alt"]));
    assert!(message.contains("version 1 has no alternate"), "{message}");
    let server = Server::start(&machine, &[], &[]);
    let headers = format!("Authorization: {authorization}\r\nContent-Type: application/json\r\n");
    let body = format!("{{\"dataset_id\":1,\"version\":1,\"entities\":{V2}}}");
    let (head, _) = request("POST", &format!("{}/dataset/alternate/save", server.base_url), &headers, &body);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let text = TEXT.replace("and version 2 (", "and the alternate of version 1 (");
    assert_eq!(succeeded(&run(&machine, &["1", "1", "1", "--alt"])), text);
    let printed = succeeded(&run(&machine, &["1", "active", "latest", "--alt", "--json"]));
    let url = format!("{}/dataset/diff?dataset_id=1&v1=1&v2=1&alt=true", server.base_url);
    assert_eq!(printed, format!("{}\n", get(&url, Some(&authorization)).1));
    assert!(succeeded(&run(&machine, &["1", "1", "1"])).ends_with("No entities differ.\n"));
}

#[test]
fn documented_diff_example_prints_its_output() {
    let section = between("docs/reference/diffs.md", "<!-- diff:begin -->", "<!-- diff:end -->");
    let mut blocks = section.split("```").skip(1).step_by(2);
    let mut block = |kind: &str| blocks.next().and_then(|block| block.strip_prefix(kind)).expect(kind).trim_start();
    let script = block("sh");
    let text = block("text");
    let over_http = block("sh");
    let json = block("json");
    let machine = Machine::new();
    let binaries =
        std::path::Path::new(env!("CARGO_BIN_EXE_strata")).parent().expect("failed to create directory").display();
    let script = format!("export PATH={binaries}:$PATH\n{script}echo \"$TOKEN\"");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(machine.path("")).stdin(Stdio::null());
    let printed = succeeded(&command.output().expect("failed to run bash"));
    let (printed, token) = printed.trim_end().rsplit_once('\n').expect("missing token");
    assert!(printed.ends_with(text.trim_end()), "{printed}");
    // The server of the example, on another port.
    let serves = over_http.lines().find_map(|line| line.strip_prefix("strata serve ")).expect("missing server command");
    let (data, address) = serves.split_once(" --listen ").expect("missing address");
    let address = address.split(' ').next().expect("missing address");
    let server = Server::start(&machine, &data.split(' ').collect::<Vec<_>>(), &[]);
    let called = over_http.split('"').find_map(|url| url.strip_prefix(&format!("http://{address}")));
    let url = format!("{}{}", server.base_url, called.expect("missing call"));
    assert_eq!(get(&url, Some(&format!("Bearer {token}"))).1, json.trim_end());
}

#[test]
fn diff_command_truncates_records_by_default() {
    let version = |salt: u64| {
        let text = "word ".repeat(40);
        let entity = |number: u64| json!({"id": number, "text": format!("{text}{salt}{text}")}).to_string();
        format!("[{}]", (0..30).map(entity).collect::<Vec<_>>().join(","))
    };
    let (machine, _) = machine_with(&[&version(1), &version(2)]);
    let printed = succeeded(&run(&machine, &["1", "1", "2"]));
    assert_eq!(printed.matches("~ m").count(), 20);
    assert!(
        printed.ends_with("\n\n10 more. To list the next ones, use --offset 20. To list all, use --limit all.\n"),
        "{printed}"
    );
    let shown = |salt: &str| format!("…word word word word {salt}word word word word word word word wo…");
    let field = format!("    ~ text: {} → {}\n", shown("1"), shown("2"));
    assert!(printed.contains(&field), "{printed}");
    let whole = succeeded(&run(&machine, &["1", "1", "2", "--limit", "all", "--full"]));
    assert_eq!((whole.matches("~ m").count(), whole.contains('…'), whole.contains("more")), (30, false, false));
    assert!(whole.contains(&format!("\"{0}1{0}\" → \"{0}2{0}\"\n", "word ".repeat(40))), "{whole}");
}

#[test]
fn diff_command_colors_output_on_request() {
    let (machine, _) = machine_with(&[V1, V2]);
    let plain = succeeded(&run(&machine, &["1", "1", "2", "--color", "auto"]));
    assert_eq!(
        (plain.as_str(), succeeded(&run(&machine, &["1", "1", "2", "--color", "never"])).as_str()),
        (TEXT, TEXT)
    );
    let coloured = succeeded(&run(&machine, &["1", "1", "2", "--color", "always"]));
    for part in [
        "\u{1b}[1mThings: version 1 (3 entities) and version 2 (3 entities)\u{1b}[0m\n",
        "\u{1b}[32m+1 added\u{1b}[0m",
        "\u{1b}[31m-\u{1b}[0m \u{1b}[31ms1\u{1b}[0m\n",
        "id: \u{1b}[31m1\u{1b}[0m → \u{1b}[32m7\u{1b}[0m\n",
    ] {
        assert!(coloured.contains(part), "{coloured:?} lacks {part:?}");
    }
    let mut stripped = coloured.clone();
    for code in ["1", "2", "31", "32", "33", "36", "0"] {
        stripped = stripped.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(stripped, TEXT);
    // JSON output has no colors.
    assert!(!succeeded(&run(&machine, &["1", "1", "2", "--color", "always", "--json"])).contains('\u{1b}'));
    // On a terminal, the default is colored output.
    for (environment, expected) in
        [("TERM=xterm", true), ("NO_COLOR=1 TERM=xterm", false), ("NO_COLOR= TERM=xterm", true), ("TERM=dumb", false)]
    {
        let binary = env!("CARGO_BIN_EXE_strata");
        let line = format!("env -u NO_COLOR {environment} {binary} diff 1 1 2");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(machine.path("")).stdin(Stdio::null());
        let printed = succeeded(&command.output().expect("failed to run script"));
        assert!(printed.contains("added"), "{printed}");
        assert_eq!(printed.contains("\u{1b}[32m"), expected, "{environment}: {printed:?}");
    }
}

#[test]
fn invalid_diff_command_fails_with_message() {
    let (machine, _) = machine_with(&[V1, V2]);
    let compared = "strata: failed to compare versions";
    for (arguments, message) in [
        (&["9", "1", "2"], format!("{compared} v1 and v2 of dataset 9: no such dataset")),
        (
            &["1", "1", "3"],
            format!("{compared} v1 and v3 of dataset 1: there is no version 3; its versions are 1 to 2"),
        ),
        (
            &["1", "7", "3"],
            format!("{compared} v7 and v3 of dataset 1: there is no version 7; its versions are 1 to 2"),
        ),
    ] {
        assert_eq!(failed(&run(&machine, arguments)), message);
        assert_eq!(failed(&run(&machine, &[&arguments[..], &["--json"]].concat())), message);
    }
    for (arguments, word) in [
        (&["1", "1"][..], "<V2>"),
        (&["0", "1", "2"], "a dataset ID must be a positive integer"),
        (&["1", "x", "2"], "invalid value 'x' for '<V1>'"),
        (&["1", "1", "2", "--change-type", "changed"], "added, subtracted, modified"),
        (&["1", "1", "2", "--limit", "some"], "a whole number, or `all`"),
        (&["1", "1", "2", "--color", "sometimes"], "auto, always, never"),
    ] {
        let output = run(&machine, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
}

#[test]
fn diff_command_survives_closed_pipe() {
    let version = |salt: u64| {
        let entity = |number: u64| json!({"id": number, "salt": salt, "text": "x".repeat(500)}).to_string();
        format!("[{}]", (0..2_000).map(entity).collect::<Vec<_>>().join(","))
    };
    let (machine, _) = machine_with(&[&version(1), &version(2)]);
    for more in ["--limit all --full", "--json"] {
        let binary = env!("CARGO_BIN_EXE_strata");
        let line = format!("{binary} diff 1 1 2 {more} | head -c 100; exit ${{PIPESTATUS[0]}}");
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(machine.path(""))
            .output()
            .expect("failed to run bash");
        assert_eq!(
            (succeeded(&output).len(), String::from_utf8_lossy(&output.stderr).into_owned()),
            (100, String::new())
        );
    }
}

//! Diffs as owners get them: over HTTP against the naive reference, what is refused and when, what is kept, and the
//! command.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use strata_reference::coding::decoded;
use strata_testing::Answer;
use strata_testing::machine::{Machine, Server, failed, get, request, succeeded};
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call};
use strata_testing::pages::between;
use strata_types::user::Plan;

/// A call of the owner's.
async fn asked(owned: &Owned, query: &str) -> Answer {
    owned.call("GET", &format!("/dataset/diff?{query}"), "").await
}

// ---- what is answered ----

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

/// The Diff result of [`V1`] and [`V2`] with these records.
fn result(records: &[&str]) -> String {
    let records = records.join(",");
    format!(r#"{{"added":1,"subtracted":1,"modified":1,"total_v1":3,"total_v2":3,"records":[{records}]}}"#)
}

#[tokio::test]
async fn the_diff_result_is_the_documented_one_to_the_byte() {
    let owned = Owned::sqlite().await;
    let document = Document::of(&owned.service).await;
    let id = owned.dataset("Things", json!({}), &[V1, V2]).await;
    let ask = async |query: &str| {
        let answer = asked(&owned, &format!("dataset_id={id}&v1=1&v2=2{query}")).await;
        document.describes_call("GET", "/dataset/diff", &answer);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer
    };
    let answer = ask("").await;
    answer.is(&result(&RECORDS));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    ask("&format=json&limit=99999999999999999999&offset=0").await.is(&result(&RECORDS));
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
        ask(query).await.is(&result(records));
        let lines = ask(&format!("{query}&format=jsonl")).await;
        lines.is(&records.iter().map(|record| format!("{record}\n")).collect::<String>());
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    }
    // The other way round it is another diff; with itself there is none.
    let answer = asked(&owned, &format!("dataset_id={id}&v1=2&v2=1&change_type=added")).await;
    let added =
        r#"{"id":"a1","change_type":"added","source":"","v1":null,"v2":{"id":3,"no":"source"},"field_diffs":[]}"#;
    answer.is(&result(&[added]));
    let none = |total: u64| {
        format!(r#"{{"added":0,"subtracted":0,"modified":0,"total_v1":{total},"total_v2":{total},"records":[]}}"#)
    };
    asked(&owned, &format!("dataset_id={id}&v1=2&v2=2")).await.is(&none(3));
    // Versions of the same entities, whether or not they share a file; and of none.
    owned.push(id, V1).await;
    owned.push(id, "[]").await;
    asked(&owned, &format!("dataset_id={id}&v1=1&v2=3")).await.is(&none(3));
    asked(&owned, &format!("dataset_id={id}&v1=4&v2=4")).await.is(&none(0));
    let answer = asked(&owned, &format!("dataset_id={id}&v1=4&v2=2&limit=0")).await;
    answer.is(r#"{"added":3,"subtracted":0,"modified":0,"total_v1":0,"total_v2":3,"records":[]}"#);
}

#[tokio::test]
async fn alternates_do_not_count_and_frozen_datasets_can_be_compared() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({"private": true}), &[V1, V2]).await;
    assert_eq!(owned.save(id, 1, r#"[{"alt":1}]"#).await.status, 200);
    let query = format!("dataset_id={id}&v1=1&v2=2");
    asked(&owned, &query).await.is(&result(&RECORDS));
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    asked(&owned, &query).await.is(&result(&RECORDS));
}

#[tokio::test]
async fn an_alternate_is_compared_in_place_of_its_version() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[V2, V1]).await;
    let query = format!("dataset_id={id}&v1=2&v2=2&alt=true");
    let missing = asked(&owned, &query).await;
    missing.is_error(404);
    assert!(missing.text().contains("Version 2 of this dataset has no alternate"), "{}", missing.text());
    assert_eq!(owned.save(id, 2, V2).await.status, 200);
    asked(&owned, &query).await.is(&result(&RECORDS));
    asked(&owned, &query.replace("true", "1")).await.is(&result(&RECORDS));
    asked(&owned, &format!("dataset_id={id}&v1=1&v2=2&alt=true&limit=0"))
        .await
        .is(r#"{"added":0,"subtracted":0,"modified":0,"total_v1":3,"total_v2":3,"records":[]}"#);
    asked(&owned, &format!("dataset_id={id}&v1=2&v2=1&alt=true")).await.is_error(404);
    asked(&owned, &format!("dataset_id={id}&v1=2&v2=2&alt=yes")).await.is_error(400);

    // The version and the alternate of the latest one.
    asked(&owned, &format!("dataset_id={id}&v1=2&v2=latest&alt=true")).await.is(&result(&RECORDS));
    asked(&owned, &format!("dataset_id={id}&v1=2&v2=latest"))
        .await
        .is(r#"{"added":0,"subtracted":0,"modified":0,"total_v1":3,"total_v2":3,"records":[]}"#);

    // What is kept of the alternate that was there says nothing of the next one.
    assert_eq!(owned.save(id, 2, "[]").await.status, 200);
    let gone = asked(&owned, &format!("{query}&limit=0")).await;
    gone.is(r#"{"added":0,"subtracted":3,"modified":0,"total_v1":3,"total_v2":0,"records":[]}"#);
    assert_eq!(owned.delete(id, 2).await.status, 200);
    asked(&owned, &query).await.is_error(404);
}

#[tokio::test]
async fn a_diff_is_compressed_as_the_client_asks() {
    let owned = Owned::sqlite().await;
    let version = |salt: u64| -> String {
        let entities: Vec<String> = (0..12_000).map(|number| json!({"id": number, "salt": salt}).to_string()).collect();
        format!("[{}]", entities.join(","))
    };
    let id = owned.dataset("Things", json!({}), &[&version(1), &version(2)]).await;
    // One that is whole and one that is streamed.
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
        let parsed: Value = serde_json::from_slice(&plain.body).expect("JSON");
        let records = parsed["records"].as_array().expect("records");
        assert_eq!(records.len(), limit);
        let (last, number) = (&records[limit - 1], limit - 1);
        assert_eq!(last["id"], format!("m{number}-{number}"));
        assert_eq!(last["field_diffs"], json!([{"field": "salt", "v1": 1, "v2": 2}]));
    }
}

// ---- what is refused ----

#[tokio::test]
async fn what_is_wrong_with_a_call_is_named() {
    let owned = Owned::sqlite().await;
    let document = Document::of(&owned.service).await;
    let id = owned.dataset("Things", json!({}), &[V1, V2]).await;
    let single = owned.dataset("Single", json!({}), &[V1]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let (_, other) = add_user(&owned.service, "bob@strata.test", Plan::Free).await;
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
        let answer = asked(&owned, &query).await;
        answer.is_error(status);
        assert_eq!(answer.text(), text, "{query}");
        document.describes_call("GET", "/dataset/diff", &answer);
    }
    let uri = format!("/dataset/diff?dataset_id={id}&v1=1&v2=2");
    call(&owned.service, &other, "GET", &uri, "").await.is_error(404);
    // Nobody learns what there is without being who owns it, nor what is wrong without being somebody.
    owned.service.get("/dataset/diff?dataset_id=x").await.is_error(401);
    let answer = owned.service.send("POST", &uri, None).await;
    answer.is_error(405);
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
}

/// Two versions of one source, of which all pairs are candidates: comparing them takes long.
fn crowds() -> [String; 2] {
    [0, 1].map(|salt| {
        let entity = |number: u64| json!({"id": number * 2 + salt, "salt": salt, "same": 1}).to_string();
        format!("[{}]", (0..3_000).map(entity).collect::<Vec<_>>().join(","))
    })
}

#[tokio::test]
async fn diffs_take_turns_and_give_them_back_when_nobody_waits() {
    let owned = Owned::configured(
        |config| {
            config.query.diffs = 1;
            config.query.heavy_queue = 0;
        },
        None,
    )
    .await;
    let document = Document::of(&owned.service).await;
    let [one, other] = crowds();
    let id = owned.dataset("Crowds", json!({}), &[&one, &other]).await;
    let load = || owned.service.services.load();
    let slow = format!("dataset_id={id}&v1=1&v2=2&limit=0");
    let mut first = Box::pin(asked(&owned, &slow));
    while load().diffs_running == 0 {
        assert!(futures::poll!(&mut first).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Who asks for the same waits for it, and needs no turn; another pair does, also in the other order.
    let mut second = Box::pin(asked(&owned, &slow));
    for _ in 0..20 {
        assert!(futures::poll!(&mut second).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answer = asked(&owned, &format!("dataset_id={id}&v1=2&v2=1")).await;
    answer.is_error(503);
    assert_eq!(answer.header("retry-after"), Some("5"));
    let expected = "Too many concurrent diffs, from this client or in total. Try again in 5 s";
    assert!(answer.text().starts_with(expected), "{}", answer.text());
    document.describes_call("GET", "/dataset/diff", &answer);
    // Equal versions are no work.
    assert_eq!(asked(&owned, &format!("dataset_id={id}&v1=1&v2=1")).await.status, 200);
    // The work goes on for the second, and ends with it.
    drop(first);
    assert!(futures::poll!(&mut second).is_pending());
    assert_eq!(load().diffs_running, 1);
    drop(second);
    while !owned.service.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_diff_that_takes_too_long_is_a_503_and_one_that_never_fits_a_400() {
    let [one, other] = crowds();
    let refusals = async |change: fn(&mut strata_config::Config), status: u16, expected: &str| {
        let owned = Owned::configured(change, None).await;
        let document = Document::of(&owned.service).await;
        let id = owned.dataset("Crowds", json!({}), &[&one, &other]).await;
        for _ in 0..3 {
            let answer = asked(&owned, &format!("dataset_id={id}&v1=1&v2=2")).await;
            answer.is_error(status);
            assert!(answer.text().starts_with(expected), "{}", answer.text());
            assert_eq!(answer.header("retry-after"), None);
            document.describes_call("GET", "/dataset/diff", &answer);
            assert!(owned.service.is_idle());
        }
    };
    let slow = "The diff was stopped after 0 s. A diff of versions with fewer differences might finish in time.";
    refusals(|config| config.query.diff_timeout_s = 0, 503, slow).await;
    // It was a 503 that said to try again later, for ever.
    let large = "The diff needs more than 65536 bytes of memory, the limit per client (query.memory_bytes). \
                 Compare versions with fewer differences, or ask the operator to raise query.memory_bytes.";
    refusals(|config| config.query.memory_bytes = Some(64 << 10), 400, large).await;
}

// ---- what is kept ----

/// A metric of a server.
fn metric(server: &Server, series: &str) -> u64 {
    let (_, text) = get(&format!("{}/metrics", server.base_url), None);
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// A machine with two versions of `Things`, and the `Authorization` of who owns them.
fn machine_with(versions: &[&str]) -> (Machine, String) {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "free", "--token", "t"];
    let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
    for version in versions {
        machine.write("things.json", version);
        succeeded(&machine.run(&["import", "things.json", "--name", "Things", "--owner", "ada@example.test"]));
    }
    (machine, format!("Bearer {}", token.lines().last().expect("a token")))
}

#[test]
fn what_versions_differ_in_is_found_out_once_and_not_accounted_to_queries() {
    let same = V2.replace("15e-1", "1.5");
    let (machine, authorization) = machine_with(&[V1, V2, V1, &same]);
    for (kept_bytes, kept) in [("67108864", true), ("0", false)] {
        let server = Server::start(&machine, &[], &[("STRATA_CACHE__DIFF_BYTES", kept_bytes)]);
        let ask = |v1: u64, v2: u64, more: &str| {
            let url = format!("{}/dataset/diff?dataset_id=1&v1={v1}&v2={v2}{more}", server.base_url);
            let (head, _) = get(&url, Some(&authorization));
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let look_ups = |outcome| {
                metric(&server, &format!("strata_cache_lookups_total{{cache=\"diffs\",outcome=\"{outcome}\"}}"))
            };
            let settled = metric(&server, "strata_queries_total{outcome=\"settled\"}");
            assert_eq!(metric(&server, "strata_query_memory_bytes"), 0);
            (look_ups("miss"), look_ups("hit"), settled)
        };
        assert_eq!(ask(1, 2, ""), (1, 0, 1));
        let then = |miss: u64, hit: u64| if kept { (miss, hit, miss) } else { (miss + hit, 0, miss + hit) };
        // Another page and another form of the same; another pair of the same two; equal versions are never compared.
        assert_eq!(ask(1, 2, "&limit=1&change_type=added&format=jsonl"), then(1, 1));
        assert_eq!(ask(2, 1, ""), then(2, 1));
        assert_eq!(ask(2, 1, ""), then(2, 2));
        assert_eq!(ask(1, 3, ""), then(2, 2));
        assert_eq!(ask(1, 4, ""), then(3, 2));
    }
}

// ---- on the command line ----

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
fn the_command_prints_what_differs_while_a_server_uses_the_same_data() {
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
fn the_command_compares_with_an_alternate() {
    let (machine, authorization) = machine_with(&[V1]);
    let told = failed(&run(&machine, &["1", "1", "1", "--alt"]));
    assert!(told.contains("version 1 has no alternate"), "{told}");
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
fn the_example_of_a_diff_is_what_it_says() {
    let section = between("docs/reference/diffs.md", "<!-- diff:begin -->", "<!-- diff:end -->");
    let mut blocks = section.split("```").skip(1).step_by(2);
    let mut block = |kind: &str| blocks.next().and_then(|block| block.strip_prefix(kind)).expect(kind).trim_start();
    let (script, text, over_http, json) = (block("sh"), block("text"), block("sh"), block("json"));
    let machine = Machine::new();
    let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_strata")).parent().expect("a directory").display();
    let script = format!("export PATH={binaries}:$PATH\n{script}echo \"$TOKEN\"");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(machine.path("")).stdin(Stdio::null());
    let printed = succeeded(&command.output().expect("bash runs"));
    let (printed, token) = printed.trim_end().rsplit_once('\n').expect("a token");
    assert!(printed.ends_with(text.trim_end()), "{printed}");
    // The server of the example, at another port.
    let serves = over_http.lines().find_map(|line| line.strip_prefix("strata serve ")).expect("a server is started");
    let (data, address) = serves.split_once(" --listen ").expect("an address");
    let address = address.split(' ').next().expect("an address");
    let server = Server::start(&machine, &data.split(' ').collect::<Vec<_>>(), &[]);
    let called = over_http.split('"').find_map(|url| url.strip_prefix(&format!("http://{address}")));
    let url = format!("{}{}", server.base_url, called.expect("it is called"));
    assert_eq!(get(&url, Some(&format!("Bearer {token}"))).1, json.trim_end());
}

#[test]
fn the_command_lists_few_records_and_short_values_unless_it_is_asked_for_more() {
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
fn the_command_colours_when_it_is_told_to() {
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
    // JSON has no colours.
    assert!(!succeeded(&run(&machine, &["1", "1", "2", "--color", "always", "--json"])).contains('\u{1b}'));
    // On a terminal it colours by itself, unless it is told not to.
    for (environment, expected) in
        [("TERM=xterm", true), ("NO_COLOR=1 TERM=xterm", false), ("NO_COLOR= TERM=xterm", true), ("TERM=dumb", false)]
    {
        let binary = env!("CARGO_BIN_EXE_strata");
        let line = format!("env -u NO_COLOR {environment} {binary} diff 1 1 2");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(machine.path("")).stdin(Stdio::null());
        let printed = succeeded(&command.output().expect("script runs"));
        assert!(printed.contains("added"), "{printed}");
        assert_eq!(printed.contains("\u{1b}[32m"), expected, "{environment}: {printed:?}");
    }
}

#[test]
fn what_is_wrong_is_told_on_standard_error() {
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
fn whoever_reads_the_commands_output_may_stop() {
    let version = |salt: u64| {
        let entity = |number: u64| json!({"id": number, "salt": salt, "text": "x".repeat(500)}).to_string();
        format!("[{}]", (0..2_000).map(entity).collect::<Vec<_>>().join(","))
    };
    let (machine, _) = machine_with(&[&version(1), &version(2)]);
    for more in ["--limit all --full", "--json"] {
        let binary = env!("CARGO_BIN_EXE_strata");
        let line = format!("{binary} diff 1 1 2 {more} | head -c 100; exit ${{PIPESTATUS[0]}}");
        let output =
            Command::new("bash").args(["-c", &line]).current_dir(machine.path("")).output().expect("bash runs");
        assert_eq!(
            (succeeded(&output).len(), String::from_utf8_lossy(&output.stderr).into_owned()),
            (100, String::new())
        );
    }
}

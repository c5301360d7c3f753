//! The binary from a user's view: output, exit codes, and files.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use strata_testing::files;
use strata_testing::machine::{Machine, Server, failed, get, one_json_line, post, succeeded};
use strata_testing::scripts::paste;

#[test]
fn help_names_every_command_and_flag() {
    let machine = Machine::new();
    for (arguments, words) in [
        (
            &["--help"][..],
            &["serve", "user", "list", "import", "diff", "explain", "--data", "--config", "--version"][..],
        ),
        (
            &["serve", "--help"],
            &["--listen", "--data", "--config", "--demo", "--no-background", "127.0.0.1:8080", "strata-data"],
        ),
        (&["user", "--help"], &["add", "passwd", "plan", "token", "remove", "list"]),
        (
            &["user", "token", "--help"],
            &["<EMAIL>", "--name", "--scope", "read, write", "--expires-in", "not shown again"],
        ),
        (
            &["diff", "--help"],
            &[
                "<DATASET_ID>",
                "<V1>",
                "<V2>",
                "--change-type",
                "--offset",
                "--limit",
                "--full",
                "--json",
                "--color",
                "NO_COLOR",
            ],
        ),
        (&["user", "passwd", "--help"], &["<EMAIL>", "sessions"]),
        (&["user", "plan", "--help"], &["<EMAIL>", "<PLAN>", "free, pro, scale"]),
        (&["user", "remove", "--help"], &["<EMAIL>", "no datasets", "tokens and sessions"]),
        (&["user", "add", "--help"], &["<EMAIL>", "--plan", "free, pro, scale", "--token", "standard input"]),
        (
            &["import", "--help"],
            &["<FILE-OR-URL>", "--name", "--owner", "--private", "--format", "jsonl", "--records-path", "entity_count"],
        ),
        (&["sync", "--help"], &["<URL>", "<FILE>", "--key", "FILE.version", "active.jsonl"]),
        (&["explain", "--help"], &["<DATASET_ID>", "[QUERY]", "--version", "--alt", "--json"]),
    ] {
        let help = succeeded(&machine.run(arguments));
        for word in words {
            assert!(help.contains(word), "{arguments:?} does not mention {word}:\n{help}");
        }
    }
    assert_eq!(succeeded(&machine.run(&["--version"])), format!("strata {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_command_line_exits_with_2() {
    let machine = Machine::new();
    for (arguments, word) in [
        (&[][..], "Usage"),
        (&["fly"], "fly"),
        (&["serv"], "a similar subcommand exists: 'serve'"),
        (&["serve", "--port", "1"], "a similar argument exists: '--listen'"),
        (&["serve", "--host=::1"], "a similar argument exists: '--listen'"),
        (&["user", "add", "a@b.test"], "--plan <free|pro|scale>"),
        (&["user", "add", "a@b.test", "--plan", "gold"], "free, pro, scale"),
        (&["user", "plan", "a@b.test", "gold"], "free, pro, scale"),
        (&["import", "x.json", "--name", "x"], "--owner"),
        (&["import", "x", "--name", "x", "--owner", "a@b.test", "--format", "xml"], "json, jsonl, csv, tsv, parquet"),
        (&["import", "x", "--name", "x", "--owner", "a@b.test", "--records-path", ""], "the path is empty"),
    ] {
        let output = machine.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
    assert!(!machine.path("strata-data").exists());
}

#[test]
fn invalid_configuration_stops_every_command() {
    let machine = Machine::new();
    machine.write("strata.toml", "[server]\nlisen = \"127.0.0.1:1\"\n");
    for arguments in [&["serve"][..], &["import", "x", "--name", "x", "--owner", "a@b.test"]] {
        let message = failed(&machine.run(arguments));
        assert!(
            message.starts_with("strata: strata.toml: unknown key `server.lisen`; did you mean server.listen? "),
            "{message}"
        );
    }
    let elsewhere = Machine::new();
    let mut command = elsewhere.command(&["serve"]);
    let message = failed(&command.env("STRATA_SERVER__LISEN", "x").output().expect("the binary runs"));
    assert!(message.starts_with("strata: environment variable STRATA_SERVER__LISEN: unknown key"), "{message}");
    let message = failed(&elsewhere.run(&["serve", "--config", "none.toml"]));
    assert!(message.starts_with("strata: failed to read the configuration file none.toml: "), "{message}");
    let message = failed(&elsewhere.run(&["serve", "--listen", "nowhere"]));
    assert!(message.starts_with("strata: --listen: `server.listen`: \"nowhere\" is invalid"), "{message}");
    assert!(!elsewhere.path("strata-data").exists() && !machine.path("strata-data").exists());
}

#[test]
fn user_is_added_once_and_token_is_on_last_line() {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"];
    let output = succeeded(&machine.run_with_input(&add, "correct horse\nnot read\n"));
    let token = output.lines().last().expect("a last line");
    assert!(token.starts_with("strata_") && !token.contains(' '), "{output}");
    assert_eq!(output.matches("strata_").count(), 1, "{output}");

    let again =
        failed(&machine.run_with_input(&["user", "add", "ADA@example.test", "--plan", "free"], "battery staple\n"));
    assert!(again.to_lowercase().contains("ada@example.test"), "{again}");
    let no_password = failed(&machine.run(&["user", "add", "bob@example.test", "--plan", "free"]));
    assert!(no_password.contains("password"), "{no_password}");
    // The failed command has not added the user.
    let bob = ["user", "add", "bob@example.test", "--plan", "free"];
    let output = succeeded(&machine.run_with_input(&bob, "battery staple"));
    assert!(!output.contains("strata_"), "{output}");
}

#[test]
fn user_password_and_plan_can_be_changed() {
    let machine = Machine::with_user();
    let output = succeeded(&machine.run_with_input(&["user", "passwd", "ADA@example.test"], "battery staple\n"));
    assert_eq!(output, "changed the password for ADA@example.test\n");
    let output = succeeded(&machine.run(&["user", "plan", "ada@example.test", "scale"]));
    assert_eq!(output, "changed the plan for ada@example.test to scale\n");
    for arguments in [&["user", "passwd", "eve@example.test"][..], &["user", "plan", "eve@example.test", "pro"]] {
        let message = failed(&machine.run_with_input(arguments, "battery staple\n"));
        assert!(message.contains("there is no user eve@example.test"), "{message}");
    }

    let server = Server::start(&machine, &[], &[]);
    let me = |password: &str| {
        let body = json!({"email": "ada@example.test", "password": password});
        post(&format!("{}/session/login", server.base_url), &body)
    };
    assert!(me("correct horse").0.starts_with("http/1.1 401"));
    let (head, body) = me("battery staple");
    assert!(head.starts_with("http/1.1 200") && head.contains("set-cookie: strata_session="), "{head}");
    assert_eq!(serde_json::from_str::<Value>(&body).expect("JSON")["user"]["plan"], "scale");
}

#[test]
fn user_without_datasets_can_be_removed() {
    let machine = Machine::with_user();
    let add = ["user", "add", "bob@example.test", "--plan", "pro", "--token", "ci"];
    let token =
        succeeded(&machine.run_with_input(&add, "battery staple\n")).lines().last().expect("a token").to_owned();
    machine.write("one.jsonl", "{\"a\":1}\n");
    one_json_line(&machine.import("one.jsonl", &[]));
    let message = failed(&machine.run(&["user", "remove", "ADA@example.test"]));
    assert!(message.contains("cannot remove the user ada@example.test, who has 1 dataset;"), "{message}");

    // A server uses the same metadata database.
    let server = Server::start(&machine, &[], &[]);
    let login = || {
        let body = json!({"email": "bob@example.test", "password": "battery staple"});
        post(&format!("{}/session/login", server.base_url), &body).0
    };
    let me = || {
        let bearer = format!("Bearer {token}");
        get(&format!("{}/session/me", server.base_url), Some(&bearer)).0
    };
    assert!(login().starts_with("http/1.1 200") && me().starts_with("http/1.1 200"));
    let output = succeeded(&machine.run(&["user", "remove", "BOB@example.test"]));
    assert_eq!(output, "removed BOB@example.test\n");
    assert!(login().starts_with("http/1.1 401") && me().starts_with("http/1.1 401"));
    assert_eq!(succeeded(&machine.run(&["user", "list"])).lines().count(), 2, "the header and the other user");
    let message = failed(&machine.run(&["user", "remove", "bob@example.test"]));
    assert!(message.contains("there is no user bob@example.test"), "{message}");
}

/// Regression: a token for an existing user could only be created over HTTP.
#[test]
fn token_is_created_for_existing_user() {
    let machine = Machine::with_user();
    let make = |options: &[&str]| machine.run(&[&["user", "token", "ada@example.test", "--name"], options].concat());
    let token = |output: std::process::Output| succeeded(&output).lines().last().expect("a token").to_owned();
    let printed = succeeded(&make(&["ci"]));
    assert!(
        printed
            .starts_with("created the token ci for ada@example.test with the scope write; it does not expire\nstrata_"),
        "{printed}"
    );
    let all = printed.lines().last().expect("a token");
    let reads = token(make(&["bi", "--scope", "read"]));
    let short = token(make(&["short", "--expires-in", "1h"]));
    let refused = make(&["days", "--expires-in", "90"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2));
    assert!(message.contains("the unit is missing; valid: 90d for days, 90h for hours, 90s for seconds"), "{message}");
    let refused = make(&["none", "--expires-in", "0s"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a token must be valid for at least 1s"), "{refused:?}");
    for (options, words) in [
        (&["ci"][..], "failed to create the token: the token name is taken"),
        (&[""], "failed to create the token: name: it must be 1 to"),
    ] {
        let message = failed(&make(options));
        assert!(message.contains(words), "{message}");
    }
    let message = failed(&machine.run(&["user", "token", "bob@example.test", "--name", "ci"]));
    assert!(message.contains("there is no user bob@example.test"), "{message}");
    let server = Server::start(&machine, &[], &[]);
    for (token, scope, expires) in
        [(all, "write", false), (reads.as_str(), "read", false), (short.as_str(), "write", true)]
    {
        let (head, list) = get(&format!("{}/token/list", server.base_url), Some(&format!("Bearer {token}")));
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let found = list["tokens"].as_array().expect("tokens").iter();
        let matching =
            found.filter(|entry| entry["scope"] == scope && entry["expires_at"].is_null() != expires).count();
        assert_eq!(matching, 1, "{list}");
    }

    // The operator lists the tokens and revokes one while the server is running.
    let lines = |text: String| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    };
    let listed = lines(succeeded(&machine.run(&["user", "tokens", "ada@example.test", "--json"])));
    assert_eq!(listed.iter().map(|line| line["name"].clone()).collect::<Vec<_>>(), ["bi", "ci", "short"]);
    assert_eq!((&listed[0]["scope"], &listed[0]["expires_at"]), (&json!("read"), &Value::Null));
    assert!(listed[1]["last_used_at"].is_string() && listed[2]["expires_at"].is_string(), "{listed:?}");
    succeeded(&make(&["red\u{1b}[31m\n"]));
    let table = succeeded(&machine.run(&["user", "tokens", "ada@example.test"]));
    assert!(table.starts_with("NAME") && table.lines().count() == 5, "{table}");
    assert!(table.contains("red\\u{1b}[31m\\u{a}") && !table.contains('\u{1b}'), "{table}");
    assert!(table.contains("never"), "{table}");
    let revoke = |name: &str| machine.run(&["user", "revoke", "ada@example.test", name]);
    assert_eq!(succeeded(&revoke("bi")), "revoked the token bi for ada@example.test\n");
    let (head, _) = get(&format!("{}/token/list", server.base_url), Some(&format!("Bearer {reads}")));
    assert!(head.starts_with("http/1.1 401"), "{head}");
    let message = failed(&revoke("bi"));
    assert!(message.contains("ada@example.test has no token named bi; to list the user"), "{message}");
    let message = failed(&machine.run(&["user", "revoke", "bob@example.test", "ci"]));
    assert!(message.contains("there is no user bob@example.test; run `strata user list`"), "{message}");
}

#[test]
fn tuning_example_makes_slow_read_fast() {
    let machine = Machine::new();
    let printed = paste(&machine, "docs/guides/tune.md", "tuning", ["8083"]);
    let explained: Vec<&str> = printed.split("Query on dataset 1").skip(1).collect();
    let [before, after] = explained[..] else { panic!("{printed}") };
    let verified = "verified in documents: 50,000 -> 4";
    for text in ["version 1\n", "50,000 tested, 4 selected", "filter=promotion.percent:20: by documents", verified] {
        assert!(before.contains(text), "{text}: {before}");
    }
    assert!(before.contains("`promotion.percent` has no indexed column"), "{before}");
    for text in ["version 2\n", "50,000 tested, 4 selected", "by the indexed column promotion.percent, 50,000 -> 4\n"] {
        assert!(after.contains(text), "{text}: {after}");
    }
    assert!(!after.contains("Hints") && !after.contains("verified in documents"), "{after}");
}

#[test]
fn owner_tour_works_when_pasted() {
    let machine = Machine::new();
    let printed = paste(&machine, "docs/tutorials/publish-a-dataset.md", "owner", ["8081", "8082"]);
    let received = std::fs::read_to_string(machine.path("received.txt")).expect("the received requests");
    assert!(received.contains("genuine {\"dataset_id\":1,\"dataset_name\":\"Planets\",\"version\":1,"), "{received}");
    let answers: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ok = answers.iter().filter(|answer| answer["ok"] == true).count();
    assert_eq!(ok, 6, "{printed}");
    assert!(answers.iter().any(|answer| answer["has_webhook"] == true), "{printed}");
    assert!(printed.contains("\"name\": \"Mars\"") && !printed.contains("\"name\": \"Earth\""), "{printed}");
    let last = &answers.last().expect("the view")["dataset"];
    assert_eq!((&last["active_version"], &last["latest_version"]), (&json!(1), &json!(2)), "{printed}");
}

#[test]
fn import_creates_dataset_then_next_version() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n{\"a\":2}\n");
    machine.write("large.json", "{\"data\":{\"items\":[{\"a\":1},{\"a\":2},{\"a\":3}]}}");
    let line = one_json_line(&machine.import("small.jsonl", &[]));
    let id = line["dataset_id"].clone();
    let small = |version, count| json!({"dataset_id": id, "name_slug": "small-things", "version": version, "entity_count": count, "private_key": null});
    assert_eq!(line, small(1, 2));
    let line = one_json_line(&machine.import("large.json", &["--records-path", "data.items"]));
    assert_eq!(line, small(2, 3));

    machine.write("twice.csv", "a,a\n1,2\n");
    let line = one_json_line(&machine.import("twice.csv", &[]));
    let warning = line["warnings"][0].as_str();
    assert!(warning.is_some_and(|warning| warning.starts_with("Several columns of the table are named")), "{line}");

    let arguments = ["import", "small.jsonl", "--name", "Hidden", "--owner", "ada@example.test", "--private"];
    let line = one_json_line(&machine.run(&arguments));
    assert_eq!((&line["name_slug"], &line["version"]), (&json!("hidden"), &json!(1)));
    assert_ne!(line["dataset_id"], id);
    assert!(line["private_key"].as_str().is_some_and(|key| key.len() >= 32), "{line}");

    let stranger = ["import", "small.jsonl", "--name", "x", "--owner", "eve@example.test"];
    let message = failed(&machine.run(&stranger));
    assert!(message.contains("eve@example.test"), "{message}");
}

#[test]
fn flag_overrides_environment_overrides_file() {
    let machine = Machine::with_user();
    machine.write("strata.toml", "[data]\ndirectory = \"from-file\"\n");
    let add = |more: &[&str], variable: Option<&str>| {
        let arguments = [&["user", "add", "bob@example.test", "--plan", "free"][..], more].concat();
        machine.write("password", "battery staple\n");
        let mut command = machine.command(&arguments);
        command.stdin(std::fs::File::open(machine.path("password")).expect("the password"));
        command.envs(variable.map(|value| ("STRATA_DATA__DIRECTORY", value)));
        succeeded(&command.output().expect("the binary runs"));
    };
    add(&["--data", "from-flag"], Some("from-environment"));
    assert!(machine.path("from-flag").exists() && !machine.path("from-environment").exists());
    add(&[], Some("from-environment"));
    assert!(machine.path("from-environment").exists() && !machine.path("from-file").exists());
    add(&[], None);
    assert!(machine.path("from-file").exists());
}

#[test]
fn invalid_file_is_reported_and_leaves_no_data() {
    let machine = Machine::with_user();
    machine.write("good.jsonl", "{\"a\":1}\n");
    machine.write("not-an-object.jsonl", "{\"a\":1}\n{\"a\":2}\n[3]\n");
    machine.write("cut.jsonl", "{\"a\":1}\n{\"a\":");
    let before = machine.data_files();
    for (file, place) in [
        ("not-an-object.jsonl", "item 3"),
        ("cut.jsonl", "item 2"),
        ("none.jsonl", "there is no such file; valid: a file, - for"),
    ] {
        let message = failed(&machine.import(file, &[]));
        assert!(
            message.starts_with(&format!("strata: failed to import {file}: ")) && message.contains(place),
            "{message}"
        );
        assert_eq!(machine.data_files(), before, "{file}");
    }
    // The failed imports have not used version numbers.
    assert_eq!(one_json_line(&machine.import("good.jsonl", &[]))["version"], json!(1));
    let before = machine.data_files();
    assert!(failed(&machine.import("cut.jsonl", &[])).contains("item 2"));
    assert_eq!(machine.data_files(), before);
    assert_eq!(one_json_line(&machine.import("good.jsonl", &[]))["version"], json!(2));
}

/// Regression: the errors contained the API's field names.
#[test]
fn import_error_names_command_line_flag() {
    let machine = Machine::with_user();
    machine.write("places.geojson", "{\"type\":\"FeatureCollection\",\"features\":[{\"type\":\"Feature\"}]}");
    machine.write("nested.jsonl", "{\"a\":{\"b\":\"1\"}}\n");
    machine.write("table.csv", "a\n1\n");
    let message = failed(&machine.import("places.geojson", &[]));
    assert!(message.contains("`--records-path`") && message.contains("(did you mean features?)"), "{message}");
    let line = one_json_line(&machine.import("places.geojson", &["--records-path", "features"]));
    assert_eq!(line["entity_count"], json!(1));
    // Regression: the flag was ignored for formats with types, for existing and for new datasets.
    let error = "strata: failed to import nested.jsonl: `--infer-types` applies only to csv and tsv, but the format is \
                jsonl; omit it";
    assert_eq!(failed(&machine.import("nested.jsonl", &["--infer-types"])), error);
    let new = ["import", "nested.jsonl", "--name", "New", "--owner", "ada@example.test", "--infer-types"];
    assert_eq!(failed(&machine.run(&new)), error);
    one_json_line(&machine.import("table.csv", &["--infer-types"]));
    one_json_line(&machine.import("nested.jsonl", &[]));
}

#[test]
fn server_exits_with_0_on_each_signal() {
    let machine = Machine::new();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let server = Server::start(&machine, &[], &[("STRATA_LOG__FORMAT", "json")]);
        assert_eq!(server.greeting, "");
        let (head, _) = get(&format!("{}/healthz", server.base_url), None);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let (code, errors) = server.stop(signal);
        assert_eq!(code, Some(0), "{errors}");
        let lines = errors.lines().map(|line| serde_json::from_str::<Value>(line).expect("a JSON object per line"));
        let messages: Vec<Value> = lines.map(|line| line["message"].clone()).collect();
        for message in ["listening", "stopping", "stopped"] {
            assert!(messages.contains(&json!(message)), "{message} is missing: {messages:?}");
        }
        // The request ID appears only once.
        let request = errors.lines().find(|line| line.contains("\"request\"")).expect("a line about the request");
        let request: Value = serde_json::from_str(request).expect("JSON");
        assert!(request["spans"][0]["id"].is_string() && request["span"].is_null(), "{request}");
    }
}

#[test]
fn address_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let machine = Machine::new();
    let message = failed(&machine.run(&["serve", "--listen", &address, "--demo"]));
    assert!(
        message
            .starts_with(&format!("strata: failed to listen on {address} (to use another address, set `--listen`): ")),
        "{message}"
    );
    assert!(!machine.path("strata-data").exists(), "the data directory was created");
}

/// Parses the requests that the demo prints, as (URL, `Authorization`).
fn demo_requests(greeting: &str) -> Vec<(String, Option<String>)> {
    let lines = greeting.lines().map(str::trim);
    lines
        .filter_map(|line| match line.strip_prefix("curl -H 'Authorization: ") {
            Some(rest) => {
                let (authorization, rest) = rest.split_once("' '")?;
                Some((rest.trim_end_matches('\'').to_owned(), Some(authorization.to_owned())))
            }
            None => line.starts_with("http://").then(|| (line.to_owned(), None)),
        })
        .collect()
}

#[test]
fn demo_requests_return_results_on_every_start() {
    let machine = Machine::new();
    let server = Server::start(&machine, &["--demo"], &[]);
    let first = format!("To see the dashboard, open {}/ in a browser.\n", server.base_url);
    assert!(server.greeting.starts_with(&first), "{}", server.greeting);
    let requests = demo_requests(&server.greeting);
    let datasets: BTreeSet<&str> = requests.iter().filter_map(|(url, _)| url.split('/').nth(5)).collect();
    let expected = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("data-fixtures/manifest.toml"));
    assert_eq!(datasets.len(), expected.expect("the manifest").matches("[[dataset]]").count(), "{datasets:?}");
    assert!(requests.len() >= 2 * datasets.len(), "several examples per dataset:\n{}", server.greeting);
    for (url, authorization) in &requests {
        let (head, body) = get(url, authorization.as_deref());
        assert!(head.starts_with("http/1.1 200"), "{url}: {head}\n{body}");
        let total = head.lines().find_map(|line| line.strip_prefix("x-total-count: ")).unwrap_or_default();
        assert!(total.parse::<u64>().is_ok_and(|total| total > 0), "{url}: {head}");
        if authorization.is_some() {
            let (head, _) = get(url, None);
            assert!(head.starts_with("http/1.1 401"), "{url} without its key: {head}");
        }
    }
    // The requests of the owner, as printed.
    let token = |greeting: &str| {
        let token = greeting.lines().find_map(|line| line.trim().strip_prefix("TOKEN=")).expect("a token");
        format!("Bearer {token}")
    };
    let prefix = "curl -H \"Authorization: Bearer $TOKEN\" '";
    let owners = server.greeting.lines().filter_map(|line| line.trim().strip_prefix(prefix));
    let owners: Vec<&str> = owners.map(|url| url.trim_end_matches('\'')).collect();
    assert_eq!(owners.len(), 2, "{}", server.greeting);
    let first_token = token(&server.greeting);
    for url in owners {
        let (head, body) = get(url, Some(&first_token));
        assert!(head.starts_with("http/1.1 200") && body.len() > 100, "{url}: {head}\n{body}");
    }
    let first_url = server.base_url.clone();
    let greeting = server.greeting.clone();
    assert_eq!(server.stop("-TERM").0, Some(0));

    let files = machine.data_files();
    let server = Server::start(&machine, &["--demo"], &[]);
    let for_readers =
        |greeting: &str| greeting.split("The owner of these datasets is").next().unwrap_or_default().to_owned();
    assert_eq!(
        for_readers(&server.greeting).replace(&server.base_url, ""),
        for_readers(&greeting).replace(&first_url, "")
    );
    // The new token works, and the old one no longer does.
    let list = format!("{}/dataset/list", server.base_url);
    assert!(get(&list, Some(&token(&server.greeting))).0.starts_with("http/1.1 200"));
    assert!(get(&list, Some(&first_token)).0.starts_with("http/1.1 401"));
    assert_eq!(machine.data_files(), files);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

#[test]
fn command_without_database_creates_no_directory() {
    let machine = Machine::new();
    let commands = [
        &["check"][..],
        &["scrub"],
        &["sweep"],
        &["backup", "copy"],
        &["explain", "1", "limit=1"],
        &["diff", "1", "1", "2"],
        &["user", "plan", "ada@example.test", "pro"],
    ];
    let import = &["import", "https://example.test/x.json", "--name", "x", "--owner", "ada@example.test"][..];
    for arguments in commands.into_iter().chain([import]) {
        let message = failed(&machine.run(&[arguments, &["--data", "nowhere"]].concat()));
        assert!(message.contains("there is no metadata database nowhere/catalog.sqlite"), "{message}");
        assert!(!machine.path("nowhere").exists() && !machine.path("copy").exists(), "{arguments:?}");
    }
    machine.write("file", "no directory");
    for arguments in commands {
        let message = failed(&machine.run(&[arguments, &["--data", "file"]].concat()));
        assert!(message.contains("the data directory file is not a directory"), "{message}");
    }
    // An empty directory stays empty.
    std::fs::create_dir(machine.path("empty")).expect("made");
    for arguments in commands.into_iter().chain([&["user", "passwd", "ada@example.test"][..]]) {
        let message = failed(&machine.run_with_input(&[arguments, &["--data", "empty"]].concat(), "a password\n"));
        assert!(message.contains("there is no metadata database empty/catalog.sqlite"), "{message}");
        let left = std::fs::read_dir(machine.path("empty")).expect("still there").count();
        assert!(left == 0 && !machine.path("copy").exists(), "{arguments:?} creates files");
    }
}

#[test]
fn import_reads_stdin_and_reports_missing_file() {
    let machine = Machine::new();
    let arguments = |source| ["import", source, "--name", "Things", "--owner", "ada@example.test"];
    for (source, problem) in [
        ("/nowhere/x.json", "there is no such file"),
        (".", "it is a directory"),
        ("htp://example.org/x.json", "the URL scheme is not supported, and there is no such file"),
    ] {
        let message = failed(&machine.run(&arguments(source)));
        assert!(message.starts_with(&format!("strata: failed to import {source}: {problem}; valid: ")), "{message}");
    }
    assert!(!machine.path("strata-data").exists());

    let machine = Machine::with_user();
    let output = machine.run_with_input(&arguments("-"), "{\"a\":1}\n{\"a\":2}\n");
    assert_eq!(one_json_line(&output)["entity_count"], json!(2));
    // Unresolvable names are reported in a sentence, regardless of the name servers.
    let message = failed(&machine.run(&arguments("http://no-such-host.invalid/x.json")));
    assert!(message.contains("fetch the source: the name no-such-host.invalid d"), "{message}");
    assert!(!message.contains("error sending") && !message.contains("Query") && !message.contains('{'), "{message}");
    // A refused connection is reported in a sentence, too.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("an address");
    let url = format!("http://user:secret@{closed}/x.json?key=secret");
    let mut command = machine.command(&arguments(&url));
    let output = command.env("STRATA_NET__ALLOW", "127.0.0.0/8").output().expect("the binary runs");
    let message = failed(&output);
    let reason = format!("failed to fetch the source: {closed} refused the connection");
    assert!(message.ends_with(&reason), "{message}");
}

#[test]
fn import_sets_description_license_and_listing() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n");
    let listed = || -> Value {
        let server = Server::start(&machine, &[], &[]);
        let (_, body) = get(&format!("{}/datasets", server.base_url), None);
        serde_json::from_str::<Value>(&body).expect("JSON")["datasets"].clone()
    };
    let about = ["--description", "Small things", "--licence", "CC0-1.0", "--listed"];
    one_json_line(&machine.import("one.jsonl", &about));
    let datasets = listed();
    assert_eq!(
        (&datasets[0]["description"], &datasets[0]["licence"], &datasets[0]["version"]),
        (&json!("Small things"), &json!("CC0-1.0"), &json!(1))
    );
    // The next import changes only the specified settings.
    one_json_line(&machine.import("one.jsonl", &["--description", "Smaller things"]));
    let datasets = listed();
    assert_eq!(
        (&datasets[0]["description"], &datasets[0]["licence"], &datasets[0]["version"]),
        (&json!("Smaller things"), &json!("CC0-1.0"), &json!(2))
    );
    let long = "x".repeat(1_001);
    let message = failed(&machine.import("one.jsonl", &["--licence", &long]));
    assert!(message.ends_with("--licence: it is longer than 1000 characters"), "{message}");
    assert_eq!(machine.import("one.jsonl", &["--listed", "--private"]).status.code(), Some(2));
    assert_eq!(listed()[0]["version"], json!(2), "no version is created");
}

#[test]
fn unexpected_delimiter_is_reported_to_owner() {
    let machine = Machine::with_user();
    machine.write("semicolons.csv", "name;age\nAda;36\n");
    let output = machine.import("semicolons.csv", &[]);
    assert_eq!(one_json_line(&output)["entity_count"], json!(1));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        log.contains("one column, and its name contains semicolons. In this format, only commas separate"),
        "{log}"
    );
    // The log line contains the ID, because the dataset exists now.
    let log = machine.import("semicolons.csv", &[]).stderr;
    assert!(String::from_utf8_lossy(&log).contains("dataset_id=1"), "{log:?}");
    let explained = succeeded(&machine.run(&["explain", "1"]));
    assert!(
        explained.contains("`name;age`, so the source might be a table whose cells are separated by semicolons"),
        "{explained}"
    );

    machine.write("commas.csv", "name;age,b\nAda;36,1\n");
    assert!(machine.import("commas.csv", &[]).stderr.is_empty());
    let explained = succeeded(&machine.run(&["explain", "1"]));
    assert!(!explained.contains("the source might be a table"), "{explained}");
}

#[test]
fn every_command_accepts_same_version_names() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n");
    machine.write("two.jsonl", "{\"a\":1}\n{\"a\":2}\n");
    for file in ["one.jsonl", "two.jsonl"] {
        one_json_line(&machine.import(file, &[]));
    }
    let diff = succeeded(&machine.run(&["diff", "1", "1", "2"]));
    for [v1, v2] in [["v1", "v2"], ["1", "latest"], ["v1", "active"]] {
        assert_eq!(succeeded(&machine.run(&["diff", "1", v1, v2])), diff, "{v1} {v2}");
    }
    for version in ["2", "v2", "latest", "active"] {
        let line = succeeded(&machine.run(&["explain", "1", "--version", version, "--json"]));
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON")["version"], json!(2), "{version}");
    }
    for (arguments, right) in [
        (["diff", "a", "1", "2"], "a dataset ID must be a positive integer"),
        (["diff", "1", "first", "2"], "valid: active, latest, or a version number, such as 3 or v3"),
        (["diff", "1", "0", "2"], "valid: active, latest, or a version number, such as 3 or v3"),
    ] {
        let output = machine.run(&arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(right), "{message}");
    }
}

#[test]
fn demo_and_backup_reject_directory_with_data() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n");
    one_json_line(&machine.import("one.jsonl", &[]));
    let before = machine.data_files();
    let message = failed(&machine.run(&["serve", "--demo", "--listen", "127.0.0.1:0"]));
    assert!(message.contains("the metadata database has datasets other than the demo's"), "{message}");
    assert_eq!(machine.data_files(), before);

    std::os::unix::fs::symlink(machine.path("strata-data"), machine.path("link")).expect("a link");
    for place in
        ["strata-data/backup", "strata-data", "strata-data/store/a/b", "link/backup", "./strata-data/../strata-data/b"]
    {
        let message = failed(&machine.run(&["backup", place]));
        assert!(message.contains(" is inside ") && message.contains("choose another directory"), "{place}: {message}");
    }
    assert_eq!(machine.data_files(), before);
    assert!(!machine.path("strata-data/backup").exists());
    succeeded(&machine.run(&["backup", "strata-data-backup"]));
}

#[test]
fn check_reports_damaged_file_once() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n");
    one_json_line(&machine.import("one.jsonl", &[]));
    let file = files(&machine.path("strata-data/store/versions")).pop().expect("a version file");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[200] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    for arguments in [&["check"][..], &["check", "--json"]] {
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(1));
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
        assert_eq!(printed.matches(&name).count(), 1, "{printed}");
        assert!(printed.contains("it does not match its checksum"), "{printed}");
    }
}

#[test]
fn digest_of_every_form_of_a_version_is_the_same() {
    let machine = Machine::with_user();
    let lines = "{\"a\":1.0,\"b\":\"\u{e4}\\n\"}\n{\"a\":[],\"_source\":\"s\"}\n";
    let digest = hex::encode(Sha256::digest(lines));
    machine.write("lines.jsonl", lines);
    machine.write("array.json", &format!(" [\n{}]", lines.trim_end().replace('\n', " ,\n")));
    one_json_line(&machine.import("lines.jsonl", &[]));
    one_json_line(&machine.import("array.json", &[]));
    let checked = succeeded(&machine.run(&["check", "--digests"]));
    let expected = format!("{digest}  1/small-things/v1\n{digest}  1/small-things/v2\nchecked ");
    assert!(checked.starts_with(&expected), "{checked}");
    let checked = succeeded(&machine.run(&["check", "--quick", "--digests", "--json"]));
    let first: Value = serde_json::from_str(checked.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first, json!({"dataset_id": 1, "name": "Small Things", "version": 1, "content_sha256": digest}));

    let stored = files(&machine.path("strata-data/store/versions")).pop().expect("a version file");
    let stored = stored.to_string_lossy().into_owned();
    for file in ["lines.jsonl", "array.json", &stored] {
        assert_eq!(succeeded(&machine.run(&["verify", file])), format!("{digest}  {file}\n"));
    }
    machine.write("empty.jsonl", "");
    machine.write("empty.json", "[]");
    for file in ["empty.jsonl", "empty.json"] {
        assert_eq!(
            succeeded(&machine.run(&["verify", file])),
            format!("{}  {file}\n", hex::encode(Sha256::digest("")))
        );
    }
    let mut bytes = std::fs::read(&stored).expect("read");
    bytes[200] ^= 1;
    std::fs::write(machine.path("damaged.parquet"), bytes).expect("written");
    machine.write("no.parquet", "PAR1");
    machine.write("no.json", "[{\"a\":1},");
    for (file, reason) in [
        ("damaged.parquet", "it does not match its checksum"),
        ("no.parquet", "other Parquet files have no digest"),
        ("no.json", "failed to parse the file as JSON"),
        ("missing", "No such file"),
    ] {
        let message = failed(&machine.run(&["verify", file]));
        assert!(message.contains(&format!("failed to compute the digest of {file}")), "{message}");
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn check_counts_missing_file_once() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n");
    one_json_line(&machine.import("one.jsonl", &[]));
    let file = files(&machine.path("strata-data/store/versions")).pop().expect("a version file");
    std::fs::remove_file(&file).expect("removed");
    let output = machine.run(&["check"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("the check found 1 damaged file, version, or database record"), "{message}");
}

#[test]
fn unreadable_database_suggests_restore() {
    let machine = Machine::with_user();
    let catalog = machine.path("strata-data/catalog.sqlite");
    let length = std::fs::metadata(&catalog).expect("a catalog").len();
    std::fs::write(&catalog, vec![0x5a; usize::try_from(length).expect("small")]).expect("written");
    for command in ["check", "list"] {
        let message = failed(&machine.run(&[command]));
        assert!(message.starts_with("strata: the metadata database is damaged and cannot be opened ("), "{message}");
        assert!(message.contains("; restore it from a backup") && !message.contains("strata check"), "{message}");
    }
}

#[test]
fn users_and_datasets_are_listed() {
    let machine = Machine::with_user();
    assert!(failed(&Machine::new().run(&["list"])).contains("there is no metadata database"));
    assert_eq!(
        succeeded(&machine.run(&["list"])),
        "ID  SLUG  OWNER  VERSIONS  ACTIVE  SIZE  PINNED  PRIVATE  FROZEN  NAME\n"
    );
    machine.write("one.jsonl", "{\"a\":1}\n");
    one_json_line(&machine.import("one.jsonl", &[]));
    one_json_line(&machine.import("one.jsonl", &[]));
    let private = ["import", "one.jsonl", "--name", "Hidden", "--owner", "ada@example.test", "--private"];
    one_json_line(&machine.run(&private));
    let lines = succeeded(&machine.run(&["list", "--json"]));
    let mut first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    // The reported size is the size of the file.
    let bytes = first["file_size_bytes"].take().as_u64().expect("a number");
    let record = json!({"dataset_id": 1, "name_slug": "small-things", "name": "Small Things", "owner": "ada@example.test",
                        "versions": 2, "active_version": 2, "file_size_bytes": null, "pinned": false, "private": false,
                        "frozen": false});
    assert_eq!((lines.lines().count(), first), (2, record));
    let files = strata_testing::files(&machine.path("strata-data/store/versions"));
    assert!(files.iter().any(|file| file.metadata().expect("a file").len() == bytes), "{bytes}: {files:?}");
    let size = format!("{:.2} KiB", bytes as f64 / 1_024.0);
    let expected = [
        "ID  SLUG          OWNER             VERSIONS  ACTIVE      SIZE  PINNED  PRIVATE  FROZEN  NAME".to_owned(),
        format!(" 1  small-things  ada@example.test         2  v2      {size}  no      no       no      Small Things"),
        format!(" 2  hidden        ada@example.test         1  v1      {size}  no      yes      no      Hidden"),
    ];
    let text = succeeded(&machine.run(&["list"]));
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);

    succeeded(&machine.run_with_input(&["user", "add", "bob@example.test", "--plan", "pro"], "battery staple\n"));
    // Regression: these commands waited for a store that they do not need.
    let away = [
        ("STRATA_STORE__URL", "s3://away/versions"),
        ("STRATA_STORE__ENDPOINT", "http://127.0.0.1:9"),
        ("STRATA_STORE__ALLOW_HTTP", "true"),
    ];
    for arguments in [&["list"][..], &["user", "list"], &["user", "plan", "bob@example.test", "pro"]] {
        let output = machine.command(arguments).envs(away).output().expect("the binary runs");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
    let text = succeeded(&machine.run(&["user", "list"]));
    assert!(text.starts_with("EMAIL             PLAN  CREATED\nada@example.test  free  "), "{text}");
    assert!(text.contains("\nbob@example.test  pro   "), "{text}");
    let lines = succeeded(&machine.run(&["user", "list", "--json"]));
    let last: Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["email"], &last["plan"]), (&json!("bob@example.test"), &json!("pro")));
    assert!(!lines.contains("argon2") && last["created_at"].is_string(), "{lines}");
}

#[test]
fn command_line_accepts_configuration_units() {
    let machine = Machine::with_user();
    for rate in ["8MiB", "1.5 MB", "8388608", "0"] {
        succeeded(&machine.run(&["scrub", "--bytes-per-s", rate]));
    }
    for time in ["2days", "1day 30min", "90000", "36h"] {
        succeeded(&machine.run(&["sweep", "--older-than", time]));
    }
    for (arguments, expected) in [
        (["scrub", "--bytes-per-s", "much"], "a whole number of bytes, or a size such as"),
        (["sweep", "--older-than", "long"], "a whole number of seconds, or a duration such as"),
    ] {
        let output = machine.run(&arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn server_without_background_work_prints_notice() {
    let machine = Machine::new();
    let server = Server::start(&machine, &["--no-background"], &[]);
    assert_eq!(server.greeting, "background work is disabled: no schedules, webhooks, sweeps, or scrubs\n");
    let (head, _) = get(&format!("{}/healthz", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(errors.matches("background work is disabled: ").count(), 1, "{errors}");
}

#[test]
fn completions_and_manual_cover_every_command() {
    let machine = Machine::new();
    // These commands do not read the configuration.
    machine.write("strata.toml", "this is no TOML");
    let bash = succeeded(&machine.run(&["completions", "bash"]));
    succeeded(&machine.run(&["manual", "man1"]));
    for command in
        ["serve", "user", "list", "import", "explain", "diff", "sweep", "check", "scrub", "backup", "restore"]
    {
        assert!(bash.contains(&format!("strata__subcmd__{command}")), "{command}");
        let page = std::fs::read_to_string(machine.path("man1").join(format!("strata-{command}.1"))).expect(command);
        assert!(page.contains(".SH SYNOPSIS") && page.contains("data.directory"), "{page}");
    }
    // Regression: the manual omitted the values of options.
    let page = std::fs::read_to_string(machine.path("man1/strata-user-add.1")).expect("a page");
    let synopsis = page.split(".SH SYNOPSIS\n").nth(1).and_then(|rest| rest.lines().next()).expect("a line");
    let written = synopsis.replace('\\', "");
    assert!(written.contains("[--token NAME] ") && written.contains(" --plan free|pro|scale EMAIL"), "{written}");
    assert!(machine.path("man1/strata.1").exists());
    let message = failed(&machine.run(&["manual", "strata.toml/man1"]));
    assert!(message.contains("failed to write the manual pages to strata.toml/man1: "), "{message}");
}

#[test]
fn sync_updates_local_copy_or_explains_failure() {
    let machine = Machine::with_user();
    machine.write("one.jsonl", "{\"a\":1}\n{\"b\":2}\n");
    let slug = one_json_line(&machine.import("one.jsonl", &[]))["name_slug"].as_str().expect("a slug").to_owned();
    let server = Server::start(&machine, &[], &[]);
    let url = format!("{}/files/1/{slug}/active.jsonl", server.base_url);
    let sync = || machine.run(&["sync", &url, "copy.jsonl"]);
    let read = |name: &str| std::fs::read_to_string(machine.path(name)).expect("missing file");
    assert_eq!(succeeded(&sync()), "downloaded version 1 to copy.jsonl\n");
    assert_eq!(read("copy.jsonl"), "{\"a\":1}\n{\"b\":2}\n");
    assert_eq!(succeeded(&sync()), "copy.jsonl is already version 1\n");
    let second = ("{\"b\":2}\n{\"c\":3}\n", "v2\n");
    machine.write("one.jsonl", second.0);
    one_json_line(&machine.import("one.jsonl", &[]));
    // A server can serve the previous version for up to a second after another process has published a new one.
    let is_served =
        || get(&format!("{}/api/1/{slug}/active?count=true", server.base_url), None).1.contains("\"version\": 2");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_served() {
        assert!(Instant::now() < deadline, "version 2 is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(succeeded(&sync()), "updated copy.jsonl from version 1 to version 2 (2 edits)\n");
    assert_eq!((&*read("copy.jsonl"), &*read("copy.jsonl.version")), second);
    let missing = url.replace("/files/1/", "/files/9/");
    let message = failed(&machine.run(&["sync", &missing, "copy.jsonl"]));
    assert!(message.contains("failed to update copy.jsonl: the server returned 404: "), "{message}");
    assert_eq!((&*read("copy.jsonl"), &*read("copy.jsonl.version")), second);
    let output = machine.run(&["sync", &format!("{url}?limit=1"), "copy.jsonl"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

//! `strata restore`: to PostgreSQL and S3 and back, after interruptions, and its errors.

use std::path::PathBuf;

use serde_json::{Value, json};
use strata_testing::catalog::execute_in;
use strata_testing::files::{damage_documents, files};
use strata_testing::machine::{Machine, Server, failed, get, one_json_line, succeeded};
use strata_testing::postgres::Postgres;
use strata_testing::s3_server::S3Server;

/// Returns a machine with a dataset of two versions, and the owner's `Authorization` header.
fn machine_with_versions() -> (Machine, String) {
    let machine = Machine::with_user();
    for text in [r#"[{"a":1},{"a":2}]"#, r#"[{"a":1},{"a":3},{"b":"ä"}]"#] {
        machine.write("things.json", text);
        succeeded(&machine.import("things.json", &[]));
    }
    let printed = succeeded(&machine.run(&["user", "token", "ada@example.test", "--name", "ci"]));
    let token = format!("Bearer {}", printed.lines().last().expect("a token"));
    (machine, token)
}

/// Returns the responses of the read endpoint and of the owner's dataset list.
fn visible_state(server: &Server, token: &str) -> Vec<String> {
    let versions = ["active", "v1", "v2"].map(|version| {
        let (head, body) = get(&format!("{}/api/1/small-things/{version}/", server.base_url), None);
        assert!(head.starts_with("http/1.1 200"), "{head}{body}");
        body
    });
    let (head, list) = get(&format!("{}/dataset/list", server.base_url), Some(token));
    assert!(head.starts_with("http/1.1 200"), "{head}{list}");
    // The ping URLs contain the server's address.
    versions.into_iter().chain([list.replace(&server.base_url, "")]).collect()
}

/// Returns both outputs of a failed command.
fn failed_with_findings(output: &std::process::Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn version_files(machine: &Machine, data: &str) -> Vec<PathBuf> {
    let mut found = files(&machine.path(&format!("{data}/store/versions")));
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_moves_to_postgresql_and_s3_and_back() {
    let (machine, token) = machine_with_versions();
    let server = Server::start(&machine, &[], &[]);
    let before = visible_state(&server, &token);
    assert_eq!(server.stop("-TERM").0, Some(0));
    let untouched = std::fs::read(machine.path("strata-data/catalog.sqlite")).expect("the catalog");

    let postgres = Postgres::shared();
    let s3 = S3Server::start().await;
    let url = postgres.create_database().await;
    let mut environment = s3.environment().to_vec();
    environment.push(("STRATA_CATALOG__URL", url));
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
    let strata = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        command.envs(environment.iter().copied());
        command.output().expect("the binary runs")
    };
    tokio::task::block_in_place(|| {
        let summary = one_json_line(&strata(&["restore", "strata-data", "--data", "new", "--json"]));
        assert_eq!(
            (&summary["files"], &summary["copied"], &summary["directory"]),
            (&json!(2), &json!(2), &json!("strata-data"))
        );
        assert_eq!(std::fs::read(machine.path("strata-data/catalog.sqlite")).expect("the catalog"), untouched);
        let left: Vec<PathBuf> = files(&machine.path("new"));
        assert!(left.iter().all(|path| !path.to_string_lossy().contains("restore-")), "{left:?}");
        // A restore does not overwrite existing data.
        let refused = failed(&strata(&["restore", "strata-data", "--data", "new"]));
        assert!(refused.contains("failed to restore the backup: ") && refused.contains("not empty"), "{refused}");

        let server = Server::start(&machine, &["--data", "new"], &environment);
        assert_eq!(visible_state(&server, &token), before);
        assert_eq!(server.stop("-TERM").0, Some(0));
        machine.write("things.json", r#"[{"c":1}]"#);
        let third = ["import", "things.json", "--name", "Small Things", "--owner", "ada@example.test", "--data", "new"];
        succeeded(&strata(&third));
        succeeded(&strata(&["check", "--data", "new"]));

        // Restores back by means of a backup.
        succeeded(&strata(&["backup", "copy", "--data", "new"]));
        let summary = one_json_line(&machine.run(&["restore", "copy", "--data", "home", "--json"]));
        assert_eq!((&summary["files"], &summary["copied"]), (&json!(3), &json!(3)));
        succeeded(&machine.run(&["check", "--data", "home"]));
        let server = Server::start(&machine, &["--data", "home"], &[]);
        let after = visible_state(&server, &token);
        assert_eq!((&after[1..3], &*after[0]), (&before[1..3], "[\n  {\n    \"c\": 1\n  }\n]"));
        assert_eq!(server.stop("-TERM").0, Some(0));
    });
}

#[test]
fn interrupted_restore_resumes_and_reports_damage() {
    let (machine, token) = machine_with_versions();
    let server = Server::start(&machine, &[], &[]);
    let before = visible_state(&server, &token);
    let message = failed(&machine.run(&["restore", "strata-data", "--data", "new"]));
    assert!(message.contains("a process is using the data directory strata-data; stop the process"), "{message}");
    assert!(!machine.path("new").exists());
    assert_eq!(server.stop("-TERM").0, Some(0));
    let damaged = version_files(&machine, "strata-data").pop().expect("a file");
    let whole = std::fs::read(&damaged).expect("a file");
    damage_documents(&damaged);
    let message = failed(&machine.run(&["restore", "strata-data", "--data", "new"]));
    let name = damaged.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(
        message.contains(&format!("failed to restore the backup: cannot copy the file versions/{name} (dataset ")),
        "{message}"
    );
    // Opening a pipe for reading blocks until a process opens it for writing.
    std::fs::remove_file(&damaged).expect("removed");
    let created = std::process::Command::new("mkfifo").arg(&damaged).status().expect("mkfifo");
    assert!(created.success());
    let message = failed(&machine.run(&["restore", "strata-data", "--data", "new"]));
    assert!(message.contains("it is not a regular file"), "{message}");
    for command in [&["check"][..], &["check", "--quick"], &["scrub"], &["backup", "copy"]] {
        let text = failed_with_findings(&machine.run(command));
        assert!(text.contains("it is not a regular file"), "{command:?}: {text}");
    }
    std::fs::remove_file(&damaged).expect("removed");
    // No users have been restored yet.
    assert!(succeeded(&machine.run(&["user", "list", "--data", "new", "--json"])).trim().is_empty());

    std::fs::write(&damaged, whole).expect("written");
    let text = one_json_line(&machine.run(&["restore", "strata-data", "--data", "new", "--json"]));
    // The intact file may have been copied by the first attempt.
    let copied = text["copied"].as_u64().expect("a number");
    assert!(text["files"] == 2 && (1..=2).contains(&copied), "{text}");
    let server = Server::start(&machine, &["--data", "new"], &[]);
    assert_eq!(visible_state(&server, &token), before);
}

#[test]
fn keep_going_skips_damaged_files() {
    let machine = Machine::with_user();
    let created: Vec<PathBuf> = (1..=4)
        .map(|number| {
            let before = version_files(&machine, "strata-data");
            machine.write("things.json", &format!("[{{\"a\":{number}}}]"));
            succeeded(&machine.import("things.json", &[]));
            let now = version_files(&machine, "strata-data");
            now.into_iter().find(|path| !before.contains(path)).expect("a file")
        })
        .collect();
    damage_documents(&created[0]);
    std::fs::remove_file(&created[1]).expect("removed");
    std::fs::remove_file(&created[2]).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&created[2]).status().expect("mkfifo").success());

    let refused = failed(&machine.run(&["backup", "refused"]));
    assert!(refused.contains("failed to create the backup: cannot copy the file versions/"), "{refused}");
    assert!(refused.contains(" (dataset 1 \"Small Things\" v"), "{refused}");
    let findings = |output: &std::process::Output, end: &str| {
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(end), "{output:?}");
        let printed = String::from_utf8(output.stdout.clone()).expect("UTF-8");
        let mut lines: Vec<Value> =
            printed.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let sum = lines.pop().expect("a sum");
        lines.sort_by_key(|line| line["versions"][0]["version"].as_u64());
        let of_version = |line: &Value| (line["versions"][0]["version"].clone(), line["finding"].clone());
        assert_eq!(
            lines.iter().map(of_version).collect::<Vec<_>>(),
            [1, 2, 3].map(|version| (json!(version), json!("damaged")))
        );
        assert_eq!(lines[1]["reason"], "it is missing");
        assert_eq!((&sum["files"], &sum["damaged"]), (&json!(1), &json!(3)));
    };
    let ended = "the backup was created, but it contains 3 damaged files";
    findings(&machine.run(&["backup", "linked", "--keep-going", "--json"]), ended);
    findings(&machine.run(&["backup", "copy", "--copy", "--keep-going", "--json"]), ended);
    let refused = failed(&machine.run(&["restore", "copy", "--data", "new"]));
    assert!(refused.contains("failed to restore the backup: cannot copy the file versions/"), "{refused}");
    let ended = "the backup was restored, but it contains 3 damaged files";
    findings(&machine.run(&["restore", "copy", "--data", "new", "--keep-going", "--json"]), ended);

    for data in ["linked", "copy", "new"] {
        let server = Server::start(&machine, &["--data", data], &[]);
        let statuses = [1, 2, 3, 4].map(|version| {
            let (head, _) = get(&format!("{}/api/1/small-things/v{version}/", server.base_url), None);
            head.split(' ').nth(1).expect("a status").to_owned()
        });
        assert_eq!(statuses, ["500", "500", "500", "200"], "{data}");
        assert_eq!(server.stop("-TERM").0, Some(0));
    }
    // Without `--json`, the findings are text.
    let output = machine.run(&["backup", "words", "--keep-going"]);
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains(": it is missing (dataset 1 \"Small Things\" v2)\n"), "{output}");
    assert!(output.contains("backed up 1 file (") && output.contains(" linked, 3 more damaged\n"), "{output}");
}

#[test]
fn restore_rejects_directory_without_backup() {
    let (machine, _) = machine_with_versions();
    for (place, reason) in [
        ("nowhere", "nowhere is neither a backup nor a data directory: it has no catalog.sqlite"),
        (".", ". is neither a backup nor a data directory: it has no catalog.sqlite"),
    ] {
        let message = failed(&machine.run(&["restore", place, "--data", "new"]));
        assert!(message.contains(reason), "{message}");
        assert!(!machine.path("new").exists());
    }
    succeeded(&machine.run(&["backup", "copy"]));
    machine.write("copy/INCOMPLETE-BACKUP", "");
    let message = failed(&machine.run(&["restore", "copy", "--data", "new"]));
    assert!(message.contains("copy contains an incomplete backup"), "{message}");
    std::fs::remove_file(machine.path("copy/INCOMPLETE-BACKUP")).expect("removed");
    // Restoring into the backup itself, or over existing data, fails.
    for (data, reason) in [("copy", "is inside the directory that you are restoring"), ("strata-data", "not empty")] {
        let message = failed(&machine.run(&["restore", "copy", "--data", data]));
        assert!(message.contains(reason), "{message}");
    }
    // Stores of another database, of the original, and of a restored copy: two databases would sweep the same store.
    let other = Machine::with_user();
    other.write("things.json", "[{}]");
    succeeded(&other.import("things.json", &[]));
    succeeded(&machine.run(&["restore", "copy", "--data", "first"]));
    let belongs = "belongs to another metadata database";
    let inside = "is inside the directory that you are restoring";
    for (store, refusal) in [
        (other.path("strata-data/store").display().to_string(), belongs),
        (machine.path("first/store").display().to_string(), belongs),
        (machine.path("copy/store").display().to_string(), inside),
        (format!("file://{}", machine.path("copy/store/new").display()), inside),
        ("memory://".to_owned(), "is in memory"),
    ] {
        let mut command = machine.command(&["restore", "copy", "--data", "new"]);
        command.env("STRATA_STORE__URL", &store);
        let message = failed(&command.output().expect("the binary runs"));
        assert!(message.contains(refusal), "{store}: {message}");
    }
    assert_eq!(succeeded(&machine.run(&["list", "--data", "new", "--json"])), "");
}

#[test]
fn restore_rejects_unusable_source() {
    let (machine, _) = machine_with_versions();
    let refused = |directory: &str, data: &str, message: &str| {
        let output = machine.run(&["restore", directory, "--data", data]);
        let text = failed(&output);
        assert!(text.contains(message), "{directory} to {data}: {text}");
        assert!(!machine.path(data).join("catalog.sqlite").exists(), "{data}");
    };
    for data in ["strata-data/new", "strata-data/store", "./strata-data/../strata-data/new/deep"] {
        refused("strata-data", data, "is inside the directory that you are restoring");
    }
    succeeded(&machine.run(&["backup", "kept"]));
    std::fs::write(machine.path("kept/catalog.sqlite"), "").expect("emptied");
    refused("kept", "other", "catalog.sqlite is empty");
    std::fs::remove_file(machine.path("kept/catalog.sqlite")).expect("removed");
    std::fs::create_dir(machine.path("kept/catalog.sqlite")).expect("a folder");
    refused("kept", "other", "catalog.sqlite is not a regular file");
}

/// Regression: files were restored under any path, including paths that a sweep removes and the store's identity file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_rejects_unexpected_file_path() {
    let (machine, _) = machine_with_versions();
    let file = version_files(&machine, "strata-data").pop().expect("a file");
    let name = format!("versions/{}", file.file_name().expect("a name").to_string_lossy());
    let data = machine.path("strata-data");
    let long = name.replace(".parquet", "0.parquet");
    let mut before = name;
    for path in ["versions//evil.parquet", "versions/evil.parquet", "strata.id", "../evil", &long] {
        let file = data.join("store").join(&before);
        execute_in(&data, &format!("UPDATE files SET path = '{path}' WHERE path = '{before}'")).await;
        execute_in(&data, "UPDATE versions SET record_checksum = NULL").await;
        let moved = data.join("store").join(path);
        if !moved.exists() {
            std::fs::copy(file, moved).expect("copied");
        }
        let output = tokio::task::block_in_place(|| machine.run(&["restore", "strata-data", "--data", "new"]));
        let message = failed(&output);
        assert!(message.contains(path) && message.contains("which strata never creates"), "{message}");
        path.clone_into(&mut before);
    }
}

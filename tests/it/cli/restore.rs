//! `strata restore`: from one machine to PostgreSQL and S3, and back; refusals; what was interrupted.

use std::path::PathBuf;

use serde_json::{Value, json};
use strata_testing::catalog::execute_in;
use strata_testing::files::{damage_documents, files};
use strata_testing::machine::{Machine, Server, failed, get, one_json_line, succeeded};
use strata_testing::postgres::Postgres;
use strata_testing::s3_server::S3Server;

/// A machine with a dataset of two versions, and what its owner sends as `Authorization`.
fn machine() -> (Machine, String) {
    let machine = Machine::with_user();
    for text in [r#"[{"a":1},{"a":2}]"#, r#"[{"a":1},{"a":3},{"b":"ä"}]"#] {
        machine.write("things.json", text);
        succeeded(&machine.import("things.json", &[]));
    }
    let printed = succeeded(&machine.run(&["user", "token", "ada@example.test", "--name", "ci"]));
    let token = format!("Bearer {}", printed.lines().last().expect("a token"));
    (machine, token)
}

/// What readers and the owner see: each version, and the list of datasets.
fn seen(server: &Server, token: &str) -> Vec<String> {
    let versions = ["active", "v1", "v2"].map(|version| {
        let (head, body) = get(&format!("{}/api/1/small-things/{version}/", server.base_url), None);
        assert!(head.starts_with("http/1.1 200"), "{head}{body}");
        body
    });
    let (head, list) = get(&format!("{}/dataset/list", server.base_url), Some(token));
    assert!(head.starts_with("http/1.1 200"), "{head}{list}");
    // The addresses of pings name the server.
    versions.into_iter().chain([list.replace(&server.base_url, "")]).collect()
}

/// What a command that has failed told, on both outputs.
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
async fn a_service_moves_to_postgresql_and_s3_and_back() {
    let (machine, token) = machine();
    let server = Server::start(&machine, &[], &[]);
    let before = seen(&server, &token);
    assert_eq!(server.stop("-TERM").0, Some(0));
    let untouched = std::fs::read(machine.path("strata-data/catalog.sqlite")).expect("the catalog");

    let (postgres, s3) = (Postgres::shared(), S3Server::start().await);
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
        let told = one_json_line(&strata(&["restore", "strata-data", "--data", "new", "--json"]));
        assert_eq!(
            (&told["files"], &told["copied"], &told["directory"]),
            (&json!(2), &json!(2), &json!("strata-data"))
        );
        assert_eq!(std::fs::read(machine.path("strata-data/catalog.sqlite")).expect("the catalog"), untouched);
        let left: Vec<PathBuf> = files(&machine.path("new"));
        assert!(left.iter().all(|path| !path.to_string_lossy().contains("restore-")), "{left:?}");
        // Not over what is there.
        let refused = failed(&strata(&["restore", "strata-data", "--data", "new"]));
        assert!(refused.contains("failed to restore the backup: ") && refused.contains("not empty"), "{refused}");

        let server = Server::start(&machine, &["--data", "new"], &environment);
        assert_eq!(seen(&server, &token), before);
        assert_eq!(server.stop("-TERM").0, Some(0));
        machine.write("things.json", r#"[{"c":1}]"#);
        let third = ["import", "things.json", "--name", "Small Things", "--owner", "ada@example.test", "--data", "new"];
        succeeded(&strata(&third));
        succeeded(&strata(&["check", "--data", "new"]));

        // And back, by a backup.
        succeeded(&strata(&["backup", "copy", "--data", "new"]));
        let told = one_json_line(&machine.run(&["restore", "copy", "--data", "home", "--json"]));
        assert_eq!((&told["files"], &told["copied"]), (&json!(3), &json!(3)));
        succeeded(&machine.run(&["check", "--data", "home"]));
        let server = Server::start(&machine, &["--data", "home"], &[]);
        let after = seen(&server, &token);
        assert_eq!((&after[1..3], &*after[0]), (&before[1..3], "[\n  {\n    \"c\": 1\n  }\n]"));
        assert_eq!(server.stop("-TERM").0, Some(0));
    });
}

#[test]
fn what_was_interrupted_goes_on_and_damage_is_named() {
    let (machine, token) = machine();
    let server = Server::start(&machine, &[], &[]);
    let before = seen(&server, &token);
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
    // Whoever reads a pipe waits for one who writes.
    std::fs::remove_file(&damaged).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&damaged).status().expect("mkfifo");
    assert!(made.success());
    let message = failed(&machine.run(&["restore", "strata-data", "--data", "new"]));
    assert!(message.contains("it is not a regular file"), "{message}");
    for command in [&["check"][..], &["check", "--quick"], &["scrub"], &["backup", "copy"]] {
        let told = failed_with_findings(&machine.run(command));
        assert!(told.contains("it is not a regular file"), "{command:?}: {told}");
    }
    std::fs::remove_file(&damaged).expect("removed");
    // Nobody is there yet.
    assert!(succeeded(&machine.run(&["user", "list", "--data", "new", "--json"])).trim().is_empty());

    std::fs::write(&damaged, whole).expect("written");
    let told = one_json_line(&machine.run(&["restore", "strata-data", "--data", "new", "--json"]));
    // The whole one was there already, if it came first.
    let copied = told["copied"].as_u64().expect("a number");
    assert!(told["files"] == 2 && (1..=2).contains(&copied), "{told}");
    let server = Server::start(&machine, &["--data", "new"], &[]);
    assert_eq!(seen(&server, &token), before);
}

#[test]
fn backup_and_restore_go_on_past_damage_if_they_are_told_to() {
    let machine = Machine::with_user();
    let made: Vec<PathBuf> = (1..=4)
        .map(|number| {
            let before = version_files(&machine, "strata-data");
            machine.write("things.json", &format!("[{{\"a\":{number}}}]"));
            succeeded(&machine.import("things.json", &[]));
            let now = version_files(&machine, "strata-data");
            now.into_iter().find(|path| !before.contains(path)).expect("a file")
        })
        .collect();
    damage_documents(&made[0]);
    std::fs::remove_file(&made[1]).expect("removed");
    std::fs::remove_file(&made[2]).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&made[2]).status().expect("mkfifo").success());

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
    // In words.
    let told = machine.run(&["backup", "words", "--keep-going"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains(": it is missing (dataset 1 \"Small Things\" v2)\n"), "{told}");
    assert!(told.contains("backed up 1 file (") && told.contains(" linked, 3 more damaged\n"), "{told}");
}

#[test]
fn what_is_no_backup_is_refused() {
    let (machine, _) = machine();
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
    // Into itself, and beside what is there.
    for (data, reason) in [("copy", "is inside the directory that you are restoring"), ("strata-data", "not empty")] {
        let message = failed(&machine.run(&["restore", "copy", "--data", data]));
        assert!(message.contains(reason), "{message}");
    }
    // A store of another catalog, that of the original, and that of one which was restored: two would sweep one store.
    let other = Machine::with_user();
    other.write("things.json", "[{}]");
    succeeded(&other.import("things.json", &[]));
    succeeded(&machine.run(&["restore", "copy", "--data", "first"]));
    let (belongs, inside) = ("belongs to another metadata database", "is inside the directory that you are restoring");
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
fn a_directory_that_cannot_be_the_source_is_refused_before_anything_is_made() {
    let (machine, _) = machine();
    let refused = |directory: &str, data: &str, told: &str| {
        let output = machine.run(&["restore", directory, "--data", data]);
        let text = failed(&output);
        assert!(text.contains(told), "{directory} to {data}: {text}");
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

/// Files were restored under any name, such as one that a sweep removes, or that of the store's own file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_no_version_file_has_is_refused() {
    let (machine, _) = machine();
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

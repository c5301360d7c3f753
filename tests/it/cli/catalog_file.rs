//! The SQLite metadata database after each command: a single file that can be copied and replaced.

use std::fs;

use strata_testing::catalog::execute_in;
use strata_testing::machine::{Machine, Server, failed, get, succeeded};

/// Returns the names of the database files.
fn database_files(machine: &Machine) -> Vec<String> {
    let entries = fs::read_dir(machine.path("strata-data")).expect("readable");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("catalog.sqlite")).collect();
    names.sort_unstable();
    names
}

#[test]
fn commands_and_stopped_server_leave_one_file() {
    let machine = Machine::with_user();
    assert_eq!(database_files(&machine), ["catalog.sqlite"], "user add");
    machine.write("rows.jsonl", "{\"a\":1}\n{\"a\":2}\n");
    let import =
        |name| succeeded(&machine.run(&["import", "rows.jsonl", "--name", name, "--owner", "ada@example.test"]));
    import("First");
    import("First");
    for arguments in [
        &["backup", "before"][..],
        &["check"],
        &["scrub"],
        &["sweep"],
        &["explain", "1", "limit=1"],
        &["diff", "1", "1", "2"],
        &["user", "plan", "ada@example.test", "pro"],
    ] {
        succeeded(&machine.run(arguments));
        assert_eq!(database_files(&machine), ["catalog.sqlite"], "{arguments:?}");
    }
    // A failed command, too.
    assert!(!machine.run(&["explain", "7", "limit=1"]).status.success());
    assert_eq!(database_files(&machine), ["catalog.sqlite"], "a command that fails");
    import("Second");

    let server = Server::start(&machine, &[], &[]);
    let (head, _) = get(&format!("{}/api/2/second/v1/", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    get(&format!("{}/readyz", server.base_url), None);
    assert_eq!(server.stop("-TERM").0, Some(0));
    assert_eq!(database_files(&machine), ["catalog.sqlite"], "a server that was stopped");

    // Replacing the file also removes all changes after the backup.
    fs::copy(machine.path("before/catalog.sqlite"), machine.path("strata-data/catalog.sqlite")).expect("copied");
    let server = Server::start(&machine, &[], &[]);
    for (target, status) in [("1/first/v2", "200"), ("2/second/v1", "404")] {
        let (head, _) = get(&format!("{}/api/{target}/", server.base_url), None);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{target}: {head}");
    }
    assert_eq!(server.stop("-TERM").0, Some(0));
}

/// Regression: strata created its tables in the other program's database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_of_other_program_is_not_modified() {
    let machine = Machine::with_user();
    let data = machine.path("strata-data");
    let file = machine.path("strata-data/catalog.sqlite");
    fs::write(&file, "").expect("emptied");
    execute_in(&data, "CREATE TABLE notes (text TEXT)").await;
    let before = fs::read(&file).expect("read");
    tokio::task::block_in_place(|| {
        for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["user", "list"], &["check"]] {
            let message = failed(&machine.run(arguments));
            assert!(message.contains("is another program's database"), "{arguments:?}: {message}");
        }
    });
    assert!(fs::read(&file).expect("read") == before);
    assert_eq!(database_files(&machine), ["catalog.sqlite"]);
}

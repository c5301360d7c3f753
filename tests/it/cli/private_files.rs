//! The permissions of files that the binary creates: 0700 for directories and 0600 for files.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use strata_testing::machine::{Machine, Server, failed, get, succeeded};

/// Returns the files and directories at and below `path` that the group or other users can access.
fn open_to_others(path: &Path) -> Vec<String> {
    let metadata = std::fs::symlink_metadata(path).expect("metadata");
    let mode = metadata.permissions().mode() & 0o777;
    let mut open = Vec::new();
    let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
    if mode != expected {
        open.push(format!("{} {mode:04o}", path.display()));
    }
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).expect("readable") {
            open.extend(open_to_others(&entry.expect("an entry").path()));
        }
    }
    open
}

#[test]
fn created_files_are_private_to_their_user() {
    let machine = Machine::with_user();
    let rows: String = (0..3_000).map(|number| format!("{{\"a\":{number},\"b\":\"text {number}\"}}\n")).collect();
    machine.write("rows.jsonl", &rows);
    succeeded(&machine.run(&["import", "rows.jsonl", "--name", "Rows", "--owner", "ada@example.test", "--private"]));
    succeeded(&machine.run(&["import", "rows.jsonl", "--name", "Open", "--owner", "ada@example.test"]));
    let server = Server::start(&machine, &[], &[]);
    // Creates an export in the cache, a database log, and the traces of a probe.
    let (head, _) = get(&format!("{}/api/2/open/latest/?format=parquet", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    get(&format!("{}/readyz", server.base_url), None);
    let data = machine.path("strata-data");
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm", "store/versions", "tmp", "exports"] {
        assert!(data.join(name).exists(), "{name} exists while the server is running");
    }
    assert_eq!(open_to_others(&data), Vec::<String>::new());
    for (to, more) in [("linked", None), ("copied", Some("--copy"))] {
        let to = machine.path(to).join("deep");
        let mut arguments = vec!["backup".to_owned(), to.display().to_string()];
        arguments.extend(more.map(str::to_owned));
        succeeded(&machine.run(&arguments));
        assert_eq!(open_to_others(to.parent().expect("a parent")), Vec::<String>::new());
    }
    let (code, errors) = server.stop("-TERM");
    assert_eq!(code, Some(0));
    assert!(!errors.contains("other users can access private files"), "{errors}");
}

#[test]
fn open_directory_is_reported_but_not_changed() {
    let machine = Machine::with_user();
    let data = machine.path("strata-data");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("set");
    let (code, errors) = Server::start(&machine, &[], &[]).stop("-TERM");
    assert_eq!(code, Some(0));
    let line = errors.lines().find(|line| line.contains("other users can access private files")).expect("a warning");
    assert!(line.contains("WARN") && line.contains("strata-data") && line.contains("0755"), "{line}");
    assert_eq!(data.metadata().expect("metadata").permissions().mode() & 0o777, 0o755);
}

/// Regression: after `sudo strata user add`, the service's user could not open the database.
#[test]
fn root_creates_files_for_directory_owner() {
    fn check(path: &Path, owner: (u32, u32)) {
        let metadata = std::fs::symlink_metadata(path).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), owner, "{}", path.display());
        if metadata.is_dir() {
            for entry in std::fs::read_dir(path).expect("readable") {
                check(&entry.expect("an entry").path(), owner);
            }
        }
    }
    let machine = Machine::new();
    let data = machine.path("strata-data");
    std::fs::create_dir(&data).expect("created");
    let created = data.metadata().expect("metadata");
    // Without root privileges, a command can only work on a directory of its own user.
    let owner = if created.uid() == 0 { (65_534, 65_534) } else { (created.uid(), created.gid()) };
    std::os::unix::fs::chown(&data, Some(owner.0), Some(owner.1)).expect("the owner is set");
    succeeded(&machine.run_with_input(&["user", "add", "ada@example.test", "--plan", "free"], "correct horse\n"));
    // The owner of the data directory cannot read this file.
    machine.write("rows.jsonl", "{\"a\":1}\n");
    std::fs::set_permissions(machine.path("rows.jsonl"), std::fs::Permissions::from_mode(0o600)).expect("set");
    succeeded(&machine.import("rows.jsonl", &[]));
    let server = Server::start(&machine, &[], &[]);
    let (head, _) = get(&format!("{}/api/1/small-things/latest/?format=parquet", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for name in ["catalog.sqlite-wal", "store/versions", "exports"] {
        assert!(data.join(name).exists(), "{name} exists while the server is running");
    }
    check(&data, owner);
    assert_eq!(server.stop("-TERM").0, Some(0));
    // Only root can write to the parent of this directory.
    succeeded(&machine.run(&["backup", &machine.path("backup").display().to_string()]));
}

/// Regression: the error mentioned a lack of memory or descriptors, and a restore reported a missing database.
#[test]
fn permission_error_is_reported_as_such() {
    let machine = Machine::with_user();
    let data = machine.path("strata-data");
    let catalog = machine.path("strata-data/catalog.sqlite");
    let owner = data.metadata().expect("metadata").uid();
    // Root runs without the capabilities that bypass permissions.
    let run = |arguments: &[&str]| {
        let command = machine.command(arguments);
        let output = match owner {
            0 => {
                let mut without = Command::new("setpriv");
                without.args(["--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all", "--"]);
                without.arg(command.get_program()).args(command.get_args());
                without.current_dir(command.get_current_dir().expect("a directory")).output()
            }
            _ => machine.command(arguments).output(),
        };
        failed(&output.expect("the command runs"))
    };
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    set(&catalog, 0o000);
    let message = run(&["list"]);
    assert!(message.contains("for reading and writing") && message.contains("run strata as the user"), "{message}");
    set(&catalog, 0o600);
    set(&data, 0o000);
    let message = run(&["restore", "strata-data", "--data", "new"]);
    assert!(message.contains("ermission denied") && !message.contains("neither a backup"), "{message}");
    set(&data, 0o700);
    succeeded(&machine.run(&["list"]));
}

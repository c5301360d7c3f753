//! The dashboard in Chromium, which is driven by the programs in `tests/tools/browser`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use strata_testing::DEMO_OWNER;
use strata_testing::machine::{Machine, Server, one_json_line, succeeded};
use strata_testing::scripts::{node_tools, tools_file};

const EMAIL: &str = "grace@example.test";
const PASSWORD: &str = "the password of Grace";

/// The size of the large dataset; `TEST_ENTITIES` overrides it. With a release build, a million is practical:
///
/// ```sh
/// TEST_ENTITIES=1000000 STRATA_TEST_BINARY=target/release/strata \
///     cargo test --test it -- dashboard::in_browser::large_dataset
/// ```
const ENTITIES: u64 = 100_000;

/// A server with one user.
struct BrowserServer {
    machine: Machine,
    server: Server,
    /// An API token of the user.
    token: String,
}

impl BrowserServer {
    /// Starts a server with the demo.
    fn start() -> BrowserServer {
        BrowserServer::start_with(|_| {}, &["--demo"])
    }

    /// Starts a server after `prepare` has prepared the machine.
    fn start_with(prepare: impl FnOnce(&Machine), more: &[&str]) -> BrowserServer {
        let machine = Machine::new();
        let arguments = ["user", "add", EMAIL, "--plan", "scale", "--token", "browser"];
        let printed = succeeded(&machine.run_with_input(&arguments, PASSWORD));
        let token = printed.lines().last().expect("a token").to_owned();
        prepare(&machine);
        // The programs send many requests from one address.
        let environment = [
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
            ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0"),
            ("STRATA_LIMITS__LOGINS_PER_MINUTE", "0"),
            // The programs contain sources and receivers of webhooks.
            ("STRATA_NET__ALLOW", "127.0.0.0/8"),
        ];
        let server = Server::start(&machine, more, &environment);
        BrowserServer { machine, server, token }
    }

    /// Returns the password of the demo's owner.
    fn demo_password(&self) -> String {
        let greeting = &self.server.greeting;
        let start = format!("The owner of these datasets is {DEMO_OWNER} (password: ");
        let rest = greeting.split_once(&start).unwrap_or_else(|| panic!("no password: {greeting}")).1;
        rest.split(')').next().expect("a password").to_owned()
    }

    /// Runs a program, which must succeed, and returns its output.
    fn drive(&self, program: &str, arguments: &[&str]) -> String {
        let programs = Programs::copy_next_to_packages();
        let mut command = Command::new("node");
        command.arg(programs.path(program)).arg(&self.server.base_url).args(arguments);
        command.current_dir(self.machine.path("")).env("NO_PROXY", "*").env("NO_COLOR", "1");
        let output = command.output().expect("node runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let log = self.server.errors();
        let last = log.lines().rev().take(3).collect::<Vec<_>>().join("\n");
        assert!(output.status.success(), "{program}: {printed}{errors}\nthe last requests:\n{last}");
        printed.trim().to_owned()
    }
}

/// A copy of the programs in the directory of the packages that they import.
struct Programs(tempfile::TempDir);

impl Programs {
    fn copy_next_to_packages() -> Programs {
        let directory = tempfile::tempdir_in(node_tools()).expect("a directory");
        for entry in std::fs::read_dir(tools_file("browser")).expect("the programs") {
            let from: PathBuf = entry.expect("a program").path();
            let name = from.file_name().expect("a name");
            std::fs::copy(&from, directory.path().join(name)).expect("copied");
        }
        Programs(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.0.path()).join(name)
    }
}

#[test]
fn every_page_is_accessible_in_both_color_schemes() {
    let served = BrowserServer::start();
    // Developers can look at the screenshots.
    let pictures = std::env::var("TEST_PICTURES").ok();
    let password = served.demo_password();
    let mut arguments = vec![DEMO_OWNER, &password];
    arguments.extend(pictures.as_deref());
    assert!(served.drive("audit.mjs", &arguments).ends_with(" pages"));
}

#[test]
fn owner_tasks_work_with_and_without_scripts() {
    let served = BrowserServer::start();
    assert_eq!(served.drive("owner.mjs", &[EMAIL, PASSWORD, &served.token]), "done twice");
}

#[test]
fn owner_changes_work_with_scripts() {
    let served = BrowserServer::start();
    assert_eq!(served.drive("changes.mjs", &[EMAIL, PASSWORD, &served.token, "with"]), "done");
}

#[test]
#[ignore = "campaign: does the same once more"]
fn owner_changes_work_without_scripts() {
    let served = BrowserServer::start();
    assert_eq!(served.drive("changes.mjs", &[EMAIL, PASSWORD, &served.token, "without"]), "done");
}

#[test]
fn hostile_names_and_values_do_not_run() {
    let served = BrowserServer::start();
    assert!(served.drive("hostile.mjs", &[EMAIL, PASSWORD, &served.token]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: checks each page once more"]
fn hostile_names_and_values_are_accessible() {
    let served = BrowserServer::start();
    assert!(served.drive("hostile.mjs", &[EMAIL, PASSWORD, &served.token, "axe"]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: checks each page in four looks"]
fn every_page_is_accessible_in_every_theme() {
    let served = BrowserServer::start();
    let pictures = tempfile::tempdir().expect("a directory");
    let pictures = pictures.path().to_string_lossy();
    assert!(served.drive("audit.mjs", &[DEMO_OWNER, &served.demo_password(), &pictures]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: opens pages of ten megabytes"]
fn long_strings_and_many_paths_fit_on_pages() {
    let served = BrowserServer::start_with(|_| {}, &[]);
    assert!(served.drive("long_and_wide.mjs", &[EMAIL, PASSWORD, &served.token]).ends_with(" pages"));
}

#[test]
fn large_dataset_is_paged_filtered_and_sorted() {
    let entities = std::env::var("TEST_ENTITIES").map_or(ENTITIES, |number| number.parse().expect("a number"));
    let import = |machine: &Machine| {
        let file = std::fs::File::create(machine.path("large.jsonl")).expect("a file");
        let mut file = BufWriter::new(file);
        for n in 0..entities {
            // Each score occurs once, in an order unrelated to the positions.
            let score = n * 7_919 % entities;
            writeln!(file, r#"{{"n":{n},"group":"group {}","score":{score},"name":"name {n}"}}"#, n % 10)
                .expect("it is written");
        }
        file.flush().expect("it is written");
        one_json_line(&machine.run(&["import", "large.jsonl", "--name", "Large", "--owner", EMAIL]));
    };
    let served = BrowserServer::start_with(import, &[]);
    assert_eq!(served.drive("large.mjs", &[&entities.to_string()]), "done");
}

#[test]
fn scripts_add_shortcuts_and_columns() {
    let served = BrowserServer::start();
    assert_eq!(served.drive("island.mjs", &[EMAIL, PASSWORD]), "done");
}

//! The dashboard in a real browser, Chromium, driven by the programs of `tests/tools/browser`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use strata_testing::DEMO_OWNER;
use strata_testing::machine::{Machine, Server, one_json_line, succeeded};
use strata_testing::scripts::{node_tools, tools_file};

const EMAIL: &str = "grace@example.test";
const PASSWORD: &str = "the password of Grace";

/// Entities of the large dataset, unless `TEST_ENTITIES` says how many. With a binary that is optimized, a million:
///
/// ```sh
/// TEST_ENTITIES=1000000 STRATA_TEST_BINARY=target/release/strata \
///     cargo test --test it -- dashboard::in_browser::a_large_dataset
/// ```
const ENTITIES: u64 = 100_000;

/// A server with a user.
struct Served {
    machine: Machine,
    server: Server,
    /// A token of the user.
    token: String,
}

impl Served {
    /// With the demo, too.
    fn start() -> Served {
        Served::with(|_| {}, &["--demo"])
    }

    /// With what is made on the machine before it starts.
    fn with(make: impl FnOnce(&Machine), more: &[&str]) -> Served {
        let machine = Machine::new();
        let arguments = ["user", "add", EMAIL, "--plan", "scale", "--token", "browser"];
        let printed = succeeded(&machine.run_with_input(&arguments, PASSWORD));
        let token = printed.lines().last().expect("a token").to_owned();
        make(&machine);
        // Pages are opened faster than by people, and all from one address.
        let environment = [
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
            ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0"),
            ("STRATA_LIMITS__LOGINS_PER_MINUTE", "0"),
            // Sources and receivers of webhooks are in the programs.
            ("STRATA_NET__ALLOW", "127.0.0.0/8"),
        ];
        let server = Server::start(&machine, more, &environment);
        Served { machine, server, token }
    }

    /// The password of the demo's owner.
    fn demo_password(&self) -> String {
        let greeting = &self.server.greeting;
        let start = format!("The owner of these datasets is {DEMO_OWNER} (password: ");
        let rest = greeting.split_once(&start).unwrap_or_else(|| panic!("no password: {greeting}")).1;
        rest.split(')').next().expect("a password").to_owned()
    }

    /// What a program prints that ends well.
    fn drive(&self, program: &str, arguments: &[&str]) -> String {
        let programs = Programs::beside_their_packages();
        let mut command = Command::new("node");
        command.arg(programs.path(program)).arg(&self.server.base_url).args(arguments);
        command.current_dir(self.machine.path("")).env("NO_PROXY", "*").env("NO_COLOR", "1");
        let output = command.output().expect("node runs");
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = self.server.errors();
        let last = log.lines().rev().take(3).collect::<Vec<_>>().join("\n");
        assert!(output.status.success(), "{program}: {printed}{errors}\nthe last requests:\n{last}");
        printed.trim().to_owned()
    }
}

/// A copy of the programs, where they find the packages that they import.
struct Programs(tempfile::TempDir);

impl Programs {
    fn beside_their_packages() -> Programs {
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
fn every_page_is_accessible_and_fits_in_both_colour_schemes() {
    let served = Served::start();
    // Developers look at the pictures.
    let pictures = std::env::var("TEST_PICTURES").ok();
    let password = served.demo_password();
    let mut arguments = vec![DEMO_OWNER, &password];
    arguments.extend(pictures.as_deref());
    assert!(served.drive("audit.mjs", &arguments).ends_with(" pages"));
}

#[test]
fn an_owner_does_everything_with_scripts_and_without() {
    let served = Served::start();
    assert_eq!(served.drive("owner.mjs", &[EMAIL, PASSWORD, &served.token]), "done twice");
}

#[test]
fn an_owner_makes_refreshes_compares_and_edits_with_scripts() {
    let served = Served::start();
    assert_eq!(served.drive("changes.mjs", &[EMAIL, PASSWORD, &served.token, "with"]), "done");
}

#[test]
#[ignore = "campaign: does the same once more"]
fn an_owner_makes_refreshes_compares_and_edits_without_scripts() {
    let served = Served::start();
    assert_eq!(served.drive("changes.mjs", &[EMAIL, PASSWORD, &served.token, "without"]), "done");
}

#[test]
fn hostile_names_and_values_do_nothing_in_a_browser() {
    let served = Served::start();
    assert!(served.drive("hostile.mjs", &[EMAIL, PASSWORD, &served.token]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: checks each page once more"]
fn hostile_names_and_values_are_accessible() {
    let served = Served::start();
    assert!(served.drive("hostile.mjs", &[EMAIL, PASSWORD, &served.token, "axe"]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: checks each page in four looks"]
fn every_page_is_accessible_in_every_look() {
    let served = Served::start();
    let pictures = tempfile::tempdir().expect("a directory");
    let pictures = pictures.path().to_string_lossy();
    assert!(served.drive("audit.mjs", &[DEMO_OWNER, &served.demo_password(), &pictures]).ends_with(" pages"));
}

#[test]
#[ignore = "campaign: opens pages of ten megabytes"]
fn strings_of_ten_megabytes_and_thousands_of_paths_are_shown_within_bounds() {
    let served = Served::with(|_| {}, &[]);
    assert!(served.drive("long_and_wide.mjs", &[EMAIL, PASSWORD, &served.token]).ends_with(" pages"));
}

#[test]
fn a_large_dataset_is_paged_filtered_sorted_and_counted() {
    let entities = std::env::var("TEST_ENTITIES").map_or(ENTITIES, |number| number.parse().expect("a number"));
    let import = |machine: &Machine| {
        let file = std::fs::File::create(machine.path("large.jsonl")).expect("a file");
        let mut file = BufWriter::new(file);
        for n in 0..entities {
            // Each score once, and in no order that the positions have.
            let score = n * 7_919 % entities;
            writeln!(file, r#"{{"n":{n},"group":"group {}","score":{score},"name":"name {n}"}}"#, n % 10)
                .expect("it is written");
        }
        file.flush().expect("it is written");
        one_json_line(&machine.run(&["import", "large.jsonl", "--name", "Large", "--owner", EMAIL]));
    };
    let served = Served::with(import, &[]);
    assert_eq!(served.drive("large.mjs", &[&entities.to_string()]), "done");
}

#[test]
fn scripts_add_keys_columns_and_more() {
    let served = Served::start();
    assert_eq!(served.drive("island.mjs", &[EMAIL, PASSWORD]), "done");
}

//! Runs the console blocks of each page in a shell session.
//!
//! A page that starts a server on the default port gets only `strata` and the tools. All other pages get a demo server
//! on that port: their own server if they use a credential and might change datasets, and otherwise a shared one.

use std::path::Path;
use std::process::{Command, Stdio};

use strata_testing::machine::{Machine, Server, without_configuration};
use strata_testing::scripts::{free_ports, tool};

use super::documents;
use super::transcript::{Step, matches, steps};

/// The ports in the documentation.
const PORTS: std::ops::Range<u16> = 8080..8090;

#[derive(Clone, Copy, PartialEq)]
enum PageKind {
    OwnServers,
    OwnDemo,
    SharedDemo,
}

fn page_kind(steps: &[Step]) -> PageKind {
    let serves = |step: &Step| step.command.contains("strata serve") && !step.command.contains("--listen 127.0.0.1:");
    if steps.iter().any(serves) {
        PageKind::OwnServers
    } else if steps.iter().any(|step| ["$TOKEN", "$SECRET"].iter().any(|name| step.command.contains(name))) {
        PageKind::OwnDemo
    } else {
        PageKind::SharedDemo
    }
}

/// A demo server.
pub struct Demo {
    pub server: Server,
    _machine: Machine,
}

impl Demo {
    pub fn start(environment: &[(&str, &str)]) -> Demo {
        let machine = Machine::new();
        Demo { server: Server::start(&machine, &["--demo"], environment), _machine: machine }
    }

    /// Returns the word after `mark` in the server's greeting.
    pub fn printed(&self, mark: &str) -> &str {
        let (_, rest) = self.server.greeting.split_once(mark).expect("the demo prints it");
        rest.split(|end: char| !end.is_ascii_alphanumeric() && end != '_').next().unwrap_or_default()
    }

    fn environment(&self) -> [(&'static str, String); 2] {
        [("TOKEN", self.printed("TOKEN=").to_owned()), ("SECRET", self.printed("Bearer ").to_owned())]
    }
}

/// Replaces each first string of a pair by the second one, in one pass. Replacing the pairs one after another would
/// also change replacements: a free port such as 38085 contains a port of the documentation.
fn replaced(text: &str, pairs: &[(&str, &str)]) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        match pairs.iter().find(|(from, _)| rest.starts_with(from)) {
            Some((from, to)) => {
                result += to;
                rest = &rest[from.len()..];
            }
            None => {
                result.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    result
}

/// Runs the steps of a page and returns the differences from the documented output.
fn differences(path: &str, steps: &[Step], demo: Option<&Demo>) -> Vec<String> {
    let mut free = free_ports();
    if let Some(demo) = demo {
        free[0] = demo.server.base_url.rsplit_once(':').expect("a port").1.to_owned();
    }
    let ports: Vec<(String, String)> = PORTS.map(|port| port.to_string()).zip(free).collect();
    let free_by_named: Vec<(&str, &str)> = ports.iter().map(|(named, free)| (&**named, &**free)).collect();
    let named_by_free: Vec<(&str, &str)> = ports.iter().map(|(named, free)| (&**free, &**named)).collect();
    // Background jobs end with the shell, even if a command fails.
    let mut script = "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        script += &format!("{}\nprintf '\\n@step %s@\\n' {number}\n", replaced(&step.command, &free_by_named));
    }
    let machine = Machine::new();
    let mut command = Command::new("bash");
    let strata = machine.command::<&str>(&[]);
    let binaries = Path::new(strata.get_program()).parent().expect("a directory").to_owned();
    let tools = Path::new(tool("python").get_program()).parent().expect("a directory").to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let search = [binaries, tools].into_iter().chain(std::env::split_paths(&others));
    command.env("PATH", std::env::join_paths(search).expect("a path"));
    without_configuration(&mut command);
    command.env("STRATA_SERVER__DRAIN_IDLE_S", "0");
    command.envs(demo.into_iter().flat_map(Demo::environment));
    command.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(machine.path("")).stdin(Stdio::null());
    let output = command.output().expect("bash runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut rest = &*printed;
    let mut differences = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let Some((output, after)) = rest.split_once(&format!("\n@step {number}@\n")) else {
            differences.push(format!("{path}: `{}` did not end:\n{rest}", step.command));
            break;
        };
        let output = replaced(output, &named_by_free);
        if !matches(&step.output, &output) {
            let expected = step.output.join("\n");
            differences.push(format!("{path}: `{}` should print\n{expected}\nbut prints\n{output}", step.command));
        }
        rest = after;
    }
    differences
}

fn check(kind: PageKind) {
    // The shared server receives more requests per minute than the public limit allows.
    let shared = (kind == PageKind::SharedDemo).then(|| Demo::start(&[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]));
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let steps = steps(&text);
        if steps.is_empty() || page_kind(&steps) != kind {
            continue;
        }
        checked += steps.len();
        let own = (kind == PageKind::OwnDemo).then(|| Demo::start(&[]));
        wrong.extend(differences(&path, &steps, shared.as_ref().or(own.as_ref())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(checked >= 10, "only {checked} commands ran");
}

#[test]
fn commands_with_own_servers_print_their_output() {
    check(PageKind::OwnServers);
}

#[test]
fn commands_of_owners_print_their_output() {
    check(PageKind::OwnDemo);
}

#[test]
fn commands_of_readers_print_their_output() {
    check(PageKind::SharedDemo);
}

#[test]
fn replacements_are_not_replaced_again() {
    let pairs = [("8080", "38085"), ("8085", "21000")];
    assert_eq!(replaced("a:8080/b:8085é", &pairs), "a:38085/b:21000é");
}

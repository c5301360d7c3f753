//! External programs of tests, and scripts of the documentation.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::binary::{self, target_directory};
use crate::machine::Machine;
use crate::pages::{ROOT, between};

/// Returns a command for a program that `tests/run` installs.
pub fn tool(name: &str) -> Command {
    // Next to the directory for test files, which is in the target directory.
    let program = target_directory().join("python-tools").join("bin").join(name);
    assert!(program.exists(), "{} is missing; ./tests/run installs it", program.display());
    Command::new(program)
}

/// Returns the directory with the npm packages that `tests/run` installs.
pub fn node_tools() -> PathBuf {
    let directory = target_directory().join("node-tools");
    let packages = directory.join("node_modules");
    assert!(packages.exists(), "{} is missing; ./tests/run installs it", packages.display());
    directory
}

/// Returns a command for a program of the npm packages.
pub fn node_tool(name: &str) -> Command {
    Command::new(node_tools().join("node_modules/.bin").join(name))
}

pub fn tools_file(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/tools").join(name)
}

/// Returns ten free ports. They are below the range of ephemeral ports, so that no other test gets one of them before a
/// script listens on it.
pub fn free_ports() -> Vec<String> {
    static NEXT: AtomicU16 = AtomicU16::new(21_000);
    loop {
        let first = NEXT.fetch_add(10, Ordering::Relaxed);
        let ports = first..first + 10;
        if ports.clone().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return ports.map(|port| port.to_string()).collect();
        }
    }
}

/// Runs the script between the marks of a page in the machine's directory, with its ports replaced.
#[track_caller]
pub fn paste<const N: usize>(machine: &Machine, path: &str, mark: &str, ports: [&str; N]) -> String {
    let script = between(path, &format!("<!-- {mark}:begin -->"), &format!("<!-- {mark}:end -->"));
    let script = script.trim_start_matches("```sh").trim_end_matches("```").to_owned();
    let script = ports.iter().zip(free_ports()).fold(script, |script, (port, free)| script.replace(port, &free));

    // If the script fails, its background processes are killed.
    let script = format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}");
    let mut command = Command::new("bash");
    let binaries = binary::path().parent().expect("failed to create directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(binaries).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths).expect("missing path"));
    let output = command.args(["-euo", "pipefail", "-c", &script]).current_dir(machine.path("")).stdin(Stdio::null());
    let output = output.output().expect("failed to run bash");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed.into_owned()
}

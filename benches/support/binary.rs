//! The binary of the service in child processes.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use super::process::{ThreadTimes, status_of};

const BINARY: &str = env!("CARGO_BIN_EXE_strata");

/// The email address of the owner of the imported datasets.
pub const OWNER: &str = "bench@example.org";

pub const PASSWORD: &str = "a long enough password";

/// A running server in a child process, which is killed when this value is dropped.
pub struct ServerProcess {
    child: Child,
    /// The address on which the server listens.
    pub address: SocketAddr,
}

impl ServerProcess {
    /// Starts a server from a command (a [`strata`] command with options) on a free port of the loopback interface.
    pub fn serve(mut command: Command) -> ServerProcess {
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        ServerProcess::start(command)
    }

    /// Runs a command that prints a line with its listening address, as `strata serve` does.
    pub fn start(mut command: Command) -> ServerProcess {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("failed to run the binary");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let address = |line: String| line.strip_prefix("listening on http://")?.parse().ok();
        match output.lines().map_while(Result::ok).find_map(address) {
            Some(address) => ServerProcess { child, address },
            None => panic!("it does not listen: {:?}", child.wait()),
        }
    }

    /// Returns the resident memory in bytes, if the system reports it.
    pub fn resident_bytes(&self) -> Option<u64> {
        status_of(&self.child.id().to_string(), "VmRSS:")
    }

    /// Returns the peak resident memory in bytes, if the system reports it.
    pub fn peak_bytes(&self) -> Option<u64> {
        status_of(&self.child.id().to_string(), "VmHWM:")
    }

    /// Returns the processor time of each thread, if the system reports it.
    pub fn times(&self) -> Option<ThreadTimes> {
        ThreadTimes::read(self.child.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command of the binary on a data directory, without `STRATA_*` variables of the shell.
pub fn strata(directory: &Path) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRATA_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// Returns a command on a data directory that [`super::import::in_child`] has created, with the configuration of
/// [`super::import::config`] and without background work.
pub fn measured(data: &Path, cache_bytes: u64) -> Command {
    let mut command = strata(data);
    // At a lower level, the binary would log a warning that other users can read the data directory.
    command.env("STRATA_DATA__DIRECTORY", data).env("STRATA_LOG__LEVEL", "error");
    command.env("STRATA_CACHE__MEMORY_BYTES", cache_bytes.to_string());
    command.env("STRATA_CACHE__RESPONSE_BYTES", "0").env("STRATA_CACHE__EXPORT_BYTES", "0");
    command.env("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0").env("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0");
    command.env("STRATA_SERVER__BACKGROUND", "false");
    command
}

/// Adds a user and returns the output of the command.
pub fn add_user(directory: &Path, email: &str, options: &[&str]) -> String {
    let mut command = strata(directory);
    command.args(["user", "add", email, "--plan", "scale"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("failed to run the binary");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{PASSWORD}").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{email} is added");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Imports `entities` entities and returns the URL path of their version.
pub fn import(directory: &Path, name: &str, entities: u64, mut write: impl FnMut(u64, &mut String)) -> String {
    let source = directory.join(format!("{name}.jsonl"));
    let mut file = BufWriter::new(File::create(&source).expect("failed to open the file"));
    let mut line = String::new();
    for position in 0..entities {
        line.clear();
        write(position, &mut line);
        line.push('\n');
        file.write_all(line.as_bytes()).expect("failed to write");
    }
    file.into_inner().expect("failed to write").sync_all().expect("failed to write");
    let mut command = strata(directory);
    let output = command.arg("import").arg(&source).args(["--name", name, "--owner", OWNER]).output();
    let output = output.expect("failed to run the binary");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&source).expect("failed to remove");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let slug = report["name_slug"].as_str().expect("a slug");
    format!("/api/{}/{slug}/v{}/", report["dataset_id"], report["version"])
}

/// Runs the benchmark again with a higher soft limit of open files. A process cannot raise its own limit without unsafe
/// code.
pub fn with_open_files(files: u64) -> ExitCode {
    let script = format!("ulimit -S -n {files} || exit 1; exec \"$0\" \"$@\"");
    let binary = std::env::current_exe().expect("failed to find the binary");
    let arguments = std::env::args_os().skip(1);
    match Command::new("sh").args(["-c", &script]).arg(binary).args(arguments).arg("--raised").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("failed; it needs {files} open files (ulimit -n), and a hard limit that allows them");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("sh cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

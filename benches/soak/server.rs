//! The binary as a server in a child process, with its datasets.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use strata::config::Config;

use crate::Arguments;
use crate::entities::Generator;

const BINARY: &str = env!("CARGO_BIN_EXE_strata");
const OWNER: &str = "soak@example.org";

/// A running server, killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// The path of the catalogue's version.
    pub catalogue: String,
    /// The path of the measurements' version.
    pub measurements: String,
}

impl Server {
    /// Makes the datasets in a new directory, and serves them.
    pub fn start(directory: &Path, arguments: &Arguments) -> Server {
        if directory.exists() {
            std::fs::remove_dir_all(directory).expect("the last run's data can be removed");
        }
        std::fs::create_dir_all(directory).expect("a directory");
        eprintln!("importing twice {} entities", arguments.entities);
        add_owner(directory);
        let generator = Generator::new();
        let catalogue = import(directory, "Catalogue", arguments.entities, |position, line| {
            generator.entity(position).write(line);
        });
        let measurements = import(directory, "Measurements", arguments.entities, |position, line| {
            let (station, value) = (position * 7_919 % 401, (position * 104_729 % 20_011) as f64 / 100.0);
            let _ = write!(
                line,
                "{{\"id\":{position},\"station\":\"station {station}\",\"value\":{value},\"unit\":\"mm\",\"valid\":{}}}",
                position % 13 != 0
            );
        });
        let mut command = strata(directory);
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        command.env("STRATA_LOG__LEVEL", "warn");
        // Rate limits, if this build has them: one address makes all requests here.
        for option in Config::options().iter().filter(|option| option.key().ends_with("_per_minute")) {
            command.env(option.environment_variable(), "0");
        }
        if arguments.slow {
            command.env("STRATA_SERVER__HEADER_TIMEOUT_S", "3600");
        }
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("UTF-8");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        Server { child, address: address.expect("it says where it listens"), catalogue, measurements }
    }

    /// The server's resident memory, where the system tells.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kibibytes| kibibytes * 1_024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary on the data directory, without what the shell configures.
fn strata(directory: &Path) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRATA_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

fn add_owner(directory: &Path) {
    let mut command = strata(directory);
    command.args(["user", "add", OWNER, "--plan", "scale"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(b"a long enough password\n").expect("it reads");
    assert!(child.wait().is_ok_and(|status| status.success()), "the owner is added");
}

/// Imports so many entities; the path of their version.
fn import(directory: &Path, name: &str, entities: u64, mut write: impl FnMut(u64, &mut String)) -> String {
    let source = directory.join(format!("{name}.jsonl"));
    let mut file = BufWriter::new(File::create(&source).expect("a file"));
    let mut line = String::new();
    for position in 0..entities {
        line.clear();
        write(position, &mut line);
        line.push('\n');
        file.write_all(line.as_bytes()).expect("written");
    }
    file.into_inner().expect("written").sync_all().expect("written");
    let mut command = strata(directory);
    let output = command.arg("import").arg(&source).args(["--name", name, "--owner", OWNER]).output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&source).expect("removed");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let slug = report["name_slug"].as_str().expect("a slug");
    format!("/api/{}/{slug}/v{}/", report["dataset_id"], report["version"])
}

/// Runs the benchmark again with the soft limit of open files raised, which a process cannot do by itself without unsafe
/// code.
pub fn with_open_files(files: u64) -> ExitCode {
    let script = format!("ulimit -S -n {files} || exit 1; exec \"$0\" \"$@\"");
    let binary = std::env::current_exe().expect("the benchmark knows its binary");
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

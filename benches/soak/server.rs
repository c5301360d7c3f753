//! The binary as a server in a child process, with its datasets.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use strata::config::Config;

use crate::Arguments;
use crate::entities::Generator;

const BINARY: &str = env!("CARGO_BIN_EXE_strata");
const OWNER: &str = "soak@example.org";

/// The password of every user.
pub const PASSWORD: &str = "a long enough password";

/// A running server, killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// The path of the catalogue's version.
    pub catalogue: String,
    /// The path of the measurements' version.
    pub measurements: String,
    directory: PathBuf,
}

impl Server {
    /// Makes the datasets in a new directory, and serves them.
    pub fn start(directory: &Path, arguments: &Arguments, name_server: Option<SocketAddr>) -> Server {
        if directory.exists() {
            std::fs::remove_dir_all(directory).expect("the last run's data can be removed");
        }
        std::fs::create_dir_all(directory).expect("a directory");
        eprintln!("importing twice {} entities", arguments.entities);
        add_user(directory, OWNER, &[]);
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
        // The rates of reads: few addresses make all requests here.
        command.env("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0").env("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0");
        // A source, and bodies that fill the disk.
        command.env("STRATA_NET__ALLOW", "127.0.0.1").env("STRATA_LIMITS__BODY_BYTES", "104857600");
        if let Some(address) = name_server {
            let options = Config::options();
            match options.iter().find(|option| option.key() == "net.name_servers") {
                Some(option) => {
                    command.env(option.environment_variable(), address.to_string());
                }
                None => eprintln!("this build knows no net.name_servers: names are those of the system"),
            }
        }
        if arguments.slow {
            command.env("STRATA_SERVER__HEADER_TIMEOUT_S", "3600").env("STRATA_SERVER__CONNECTIONS_PER_CLIENT", "0");
        }
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("UTF-8");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        let address = address.expect("it says where it listens");
        Server { child, address, catalogue, measurements, directory: directory.to_owned() }
    }

    /// Adds a user while the server runs; its token.
    pub fn add_user(&self, email: &str) -> String {
        let printed = add_user(&self.directory, email, &["--token", "soak"]);
        printed.lines().last().expect("a token").to_owned()
    }

    /// Whether the server was built without optimisation, which makes everything slow.
    pub fn is_debug(&self) -> bool {
        cfg!(debug_assertions)
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

/// Adds a user; what the command prints.
fn add_user(directory: &Path, email: &str, options: &[&str]) -> String {
    let mut command = strata(directory);
    command.args(["user", "add", email, "--plan", "scale"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{PASSWORD}").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{email} is added");
    String::from_utf8(output.stdout).expect("UTF-8")
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

/// Runs the benchmark again with the soft limit of open files raised, which a process cannot do by itself without
/// unsafe code.
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

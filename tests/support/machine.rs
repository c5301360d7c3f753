//! Runs the binary like its users.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::files;

/// A directory in which the binary runs, with the default data directory `strata-data`.
pub struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("failed to create temporary directory") }
    }

    /// Creates a machine with the user `ada@example.test`.
    pub fn with_user() -> Self {
        let machine = Self::new();
        succeeded(&machine.run_with_input(&["user", "add", "ada@example.test", "--plan", "free"], "correct horse\n"));
        machine
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("failed to write file");
    }

    /// Returns a command for the binary, or for the one in `STRATA_TEST_BINARY`, in this directory, without input and
    /// without the configuration of the environment.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let binary = std::env::var_os("STRATA_TEST_BINARY");
        let mut command = Command::new(binary.unwrap_or_else(|| crate::binary::path().into()));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        without_configuration(&mut command);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command(arguments).output().expect("failed to run binary")
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("failed to run binary");
        // A command that does not read its input can have ended already.
        let _ = child.stdin.take().expect("missing pipe").write_all(input.as_bytes());
        child.wait_with_output().expect("failed to wait for binary")
    }

    pub fn import(&self, source: &str, more: &[&str]) -> Output {
        let arguments = ["import", source, "--name", "Small Things", "--owner", "ada@example.test"];
        self.run(&[&arguments[..], more].concat())
    }

    /// Returns every file below the data directory except those of the catalog.
    pub fn data_files(&self) -> BTreeSet<PathBuf> {
        let name =
            |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_data = |path: &PathBuf| !name(path).starts_with("catalog.sqlite") && name(path) != "lock";
        files(&self.path("strata-data")).into_iter().filter(is_data).collect()
    }
}

/// Removes configuration variables of the developer's shell.
pub fn without_configuration(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRATA_")) {
        command.env_remove(name);
    }
}

/// Returns the output of a successful command.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("invalid UTF-8")
}

/// Returns the only line on standard error of a failed command.
#[track_caller]
pub fn failed(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).expect("invalid UTF-8");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "unexpected standard output");
    assert!(errors.starts_with("strata: ") && errors.ends_with('\n'), "{errors:?}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors.trim_end().to_owned()
}

/// Parses an output that is a single line of JSON.
#[track_caller]
pub fn one_json_line(output: &Output) -> Value {
    let text = succeeded(output);
    assert_eq!((text.lines().count(), text.ends_with('\n')), (1, true), "{text:?}");
    serde_json::from_str(&text).expect("failed to parse JSON")
}

/// A running `strata serve`, which is terminated on drop.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The file with standard error.
    log: PathBuf,
    /// The output up to the line with the address.
    pub greeting: String,
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
}

/// Resource limits of a process.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// Maximum address space (`ulimit -v`) in KiB.
    pub address_space_kib: u64,
    /// Stack size of the first thread and of threads with the default size (`ulimit -s`) in KiB.
    pub stack_kib: u64,
}

impl Server {
    pub fn start(machine: &Machine, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let command = machine.command(&[&["serve", "--listen", "127.0.0.1:0"][..], more].concat());
        Server::spawn(machine, command, environment)
    }

    /// Starts a server with a configuration file in the machine's directory.
    pub fn configured(machine: &Machine, file: &str, environment: &[(&str, &str)]) -> Self {
        Server::spawn(machine, machine.command(&["serve", "--config", file]), environment)
    }

    /// Starts a server with resource limits.
    pub fn confined(machine: &Machine, environment: &[(&str, &str)], confinement: Confinement) -> Self {
        let Confinement { address_space_kib, stack_kib } = confinement;
        let serve = machine.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -v {address_space_kib} && ulimit -s {stack_kib} && exec \"$0\" \"$@\""));
        command.arg(serve.get_program()).args(serve.get_args()).stdin(Stdio::null());
        command.current_dir(serve.get_current_dir().expect("missing machine directory"));
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Server::spawn(machine, command, environment)
    }

    fn spawn(machine: &Machine, mut command: Command, environment: &[(&str, &str)]) -> Self {
        // A file, because a pipe that nothing reads would fill up.
        let log = machine.path("log");
        let errors = std::fs::File::create(&log).expect("failed to open log");
        // Clients of tests keep idle connections, for which each stop would wait.
        command.env("STRATA_SERVER__DRAIN_IDLE_S", "0");
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().expect("failed to run binary");
        let output = BufReader::new(child.stdout.take().expect("missing pipe"));
        let mut server = Self { child, output, log, greeting: String::new(), base_url: String::new() };
        loop {
            let mut line = String::new();
            if server.output.read_line(&mut line).expect("invalid UTF-8") == 0 {
                panic!("server ended before it listened: {}", server.errors());
            }
            if let Some(base_url) = line.strip_prefix("listening on ") {
                server.base_url = base_url.trim_end().to_owned();
                return server;
            }
            server.greeting.push_str(&line);
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.log).expect("failed to open log")
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended, and returns the signal that ended it.
    pub fn ended_by(&mut self) -> Option<i32> {
        self.child.wait().expect("failed to wait for end").signal()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("failed to kill process");
        self.child.wait().expect("failed to wait for end");
    }

    /// Sends a signal, and returns the exit code and standard error.
    pub fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()), "failed to send signal");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("invalid UTF-8");
        assert_eq!(rest, "", "unexpected standard output");
        let code = self.child.wait().expect("failed to wait for end").code();
        (code, self.errors())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has already ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the points at which the variable `CRASH_AT` ends a debug build of the binary.
pub fn crash_points() -> impl Iterator<Item = &'static str> {
    strata_runtime::failpoint::FAILPOINTS.into_iter()
}

/// Sends a GET. Returns the status line and headers in lower case, and the body.
pub fn get(url: &str, authorization: Option<&str>) -> (String, String) {
    let authorization = authorization.map_or(String::new(), |value| format!("Authorization: {value}\r\n"));
    request("GET", url, &authorization, "")
}

/// Sends a POST with JSON, and returns the same.
pub fn post(url: &str, body: &Value) -> (String, String) {
    request("POST", url, "Content-Type: application/json\r\n", &body.to_string())
}

pub fn request(method: &str, url: &str, headers: &str, body: &str) -> (String, String) {
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("invalid HTTP URL");
    let mut stream = TcpStream::connect(host).expect("failed to connect");
    let length = body.len();
    let headers = format!("{headers}Content-Length: {length}\r\nConnection: close");
    let request = format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("failed to send request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("failed to read response");
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("invalid HTTP response");
    (head.to_lowercase(), body.to_owned())
}

//! The binary as a server on data that a test created in its own process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::machine::without_configuration;
use crate::serving::get_request;

/// Returns Cargo's target directory. A test program is in `<target>/<profile>/deps`.
pub fn target_directory() -> PathBuf {
    let program = std::env::current_exe().expect("failed to get path of program");
    program.ancestors().nth(3).expect("missing target directory").to_owned()
}

/// Returns the path of the binary, which `cargo test` builds before it runs the tests of the root package.
pub fn path() -> PathBuf {
    built("strata")
}

/// Returns the path of a program in the folder `examples` of a crate.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"))
}

fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("failed to get path of program");
    let path =
        program.ancestors().nth(2).expect("missing profile").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing; `cargo test --no-run` builds it", path.display());
    path
}

/// A running `strata serve`, killed when dropped.
pub struct Binary {
    pub child: Child,
    pub address: String,
}

impl Binary {
    /// Starts the binary on a data directory, with environment variables.
    pub fn start(data: &Path, environment: &[(&str, &str)]) -> Binary {
        Binary::start_through(&[], data, environment)
    }

    /// Starts the binary through a wrapper command such as `strace`.
    pub fn start_through(through: &[&str], data: &Path, environment: &[(&str, &str)]) -> Binary {
        let binary = path();
        let words = [through, &[binary.to_str().expect("invalid UTF-8")]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        without_configuration(&mut command);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).current_dir(data);
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("failed to run binary");
        let mut output = BufReader::new(child.stdout.take().expect("missing pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("invalid UTF-8");
        let address = line.trim().strip_prefix("listening on http://").expect("missing address").to_owned();
        Binary { child, address }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()), "failed to send signal");
    }

    /// Waits until the process ends.
    pub fn exit_code(mut self) -> Option<i32> {
        self.child.wait().expect("failed to wait for end").code()
    }

    /// Returns the status line and the body of a response, if the server still responds.
    pub fn get(&self, target: &str) -> Option<(String, String)> {
        let mut connection = std::net::TcpStream::connect(&self.address).ok()?;
        connection.write_all(get_request(target).as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // The process has already ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

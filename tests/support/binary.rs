//! The binary as a server on data that a test has made in process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::machine::without_configuration;

/// The directory that Cargo builds in.
///
/// A test program lies in `<target>/<profile>/deps`.
pub fn target_directory() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    program.ancestors().nth(3).expect("a target directory").to_owned()
}

/// The binary, which `cargo test` builds before it runs the tests of the root package.
pub fn path() -> PathBuf {
    built("strata")
}

/// A program in the folder `examples` of a crate.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"))
}

fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let path = program.ancestors().nth(2).expect("a profile").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing; `cargo test --no-run` builds it", path.display());
    path
}

/// A running `strata serve`, killed when dropped.
pub struct Binary {
    pub child: Child,
    /// Where it listens.
    pub address: String,
}

impl Binary {
    /// On this data, with these variables.
    pub fn start(data: &Path, environment: &[(&str, &str)]) -> Binary {
        Binary::start_through(&[], data, environment)
    }

    /// The command that these words begin.
    pub fn start_through(through: &[&str], data: &Path, environment: &[(&str, &str)]) -> Binary {
        let binary = path();
        let words = [through, &[binary.to_str().expect("UTF-8")]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        without_configuration(&mut command);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).current_dir(data);
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("UTF-8");
        let address = line.trim().strip_prefix("listening on http://").expect("an address").to_owned();
        Binary { child, address }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// Waits for its end.
    pub fn exit_code(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// The status line and the body of an answer, if the server still answers.
    pub fn get(&self, target: &str) -> Option<(String, String)> {
        let mut connection = std::net::TcpStream::connect(&self.address).ok()?;
        connection.write_all(request(target).as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
}

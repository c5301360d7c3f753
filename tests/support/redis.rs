//! A Redis server for a single test, on a free loopback port and in a temporary directory.
//!
//! The program `redis-server` or `valkey-server` is searched for in `PATH`. `tests/run` installs it. If it is missing,
//! the tests fail.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use strata_config::RedisUrl;
use tempfile::TempDir;

/// A running server. Dropping it ends the server and removes its directory.
pub struct RedisServer {
    process: Child,
    port: u16,
    password: Option<&'static str>,
    // Dropped last, so that the directory is removed after the server has stopped.
    directory: TempDir,
}

impl RedisServer {
    pub fn start() -> RedisServer {
        RedisServer::start_with(None)
    }

    /// Starts a server, optionally with a password.
    pub fn start_with(password: Option<&'static str>) -> RedisServer {
        let directory =
            tempfile::Builder::new().prefix("strata-redis-").tempdir().expect("failed to create temporary directory");
        // Another program can take the port between the search for a free port and the start of the server.
        for _ in 0..5 {
            let port = free_port();
            let mut process = serve(&directory, port, password);
            if is_ready(&mut process, port) {
                return RedisServer { process, port, password, directory };
            }
        }
        panic!("failed to start redis-server");
    }

    pub fn url(&self) -> RedisUrl {
        self.url_with(self.password)
    }

    pub fn url_with(&self, password: Option<&str>) -> RedisUrl {
        let password = password.map(|password| format!(":{password}@")).unwrap_or_default();
        RedisUrl::try_from(format!("redis://{password}127.0.0.1:{}", self.port)).expect("failed to parse URL")
    }

    /// Stops all responses of the server without closing connections, until [`RedisServer::thaw`].
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Ends [`RedisServer::freeze`].
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// Kills the server like a crash, which loses all data.
    pub fn kill(&mut self) {
        self.process.kill().expect("failed to kill server");
        self.process.wait().expect("failed to wait for server");
    }

    /// Starts the server again on the same port.
    pub fn restart(&mut self) {
        self.process = serve(&self.directory, self.port, self.password);
        assert!(is_ready(&mut self.process, self.port), "failed to restart redis-server");
    }

    /// Runs a command whose words contain no quotes or spaces, and returns the raw response.
    pub fn run(&self, command: &str) -> String {
        ask(self.port, command).expect("failed to get response")
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.process.id())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "failed to send signal");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(directory: &TempDir, port: u16, password: Option<&str>) -> Child {
    let mut command = Command::new(program());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
    command.arg(directory.path());
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("failed to start redis-server")
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut programs = ["redis-server", "valkey-server"]
        .into_iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    programs
        .find(|program| program.is_file())
        .expect("redis-server is not installed: run ./tests/run, which installs it")
}

fn is_ready(process: &mut Child, port: u16) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until && process.try_wait().expect("failed to poll redis-server").is_none() {
        // A server with a password returns an error, which shows that it is ready.
        if ask(port, "PING").is_ok_and(|answer| answer == "+PONG" || answer.starts_with("-NOAUTH")) {
            return true;
        }
        sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
    false
}

fn ask(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = vec![0; 16 << 10];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).trim_end().to_owned())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("failed to find free port")
        .port()
}

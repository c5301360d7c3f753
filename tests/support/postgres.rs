//! A PostgreSQL server for tests, on a free loopback port and in a temporary directory. The server stops when the last
//! test that uses it ends.
//!
//! The programs `initdb` and `postgres` are searched for in the directory `STRATA_TEST_POSTGRES_BIN`, in `PATH`, and in
//! Debian's directories. `tests/run` installs them. If they are missing, the tests fail.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

/// A running server. Dropping it stops the server and removes its directory.
pub struct Postgres {
    process: Child,
    port: u16,
    databases: AtomicU32,
    // Dropped last, so that the directory is removed after the server has stopped.
    directory: TempDir,
}

impl Postgres {
    /// Returns the server that all running tests share.
    pub fn shared() -> Arc<Postgres> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        // A test that failed to start a server must not prevent others from trying.
        let mut shared = SHARED.lock().unwrap_or_else(|poison| poison.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Postgres::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts a server for a single test, which can stop it.
    pub fn own() -> Postgres {
        Postgres::start()
    }

    /// Kills the server with all its connections, like a crash.
    pub fn crash(&mut self) {
        stop(&mut self.process);
    }

    /// Stops all responses of the server without closing connections, until [`Postgres::thaw`].
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    /// Ends [`Postgres::freeze`].
    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    /// Sends a signal to the server and to its child processes, which serve the connections.
    fn signal_all(&self, signal: &str) {
        let id = self.process.id();
        let children =
            fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("failed to read child processes");
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id} {children}")]).status();
        assert!(sent.is_ok_and(|status| status.success()), "failed to send signal");
    }

    /// Starts the server again with the same port and data.
    pub fn restart(&mut self) {
        let log = self.directory.path().join("log-again");
        self.process = Postgres::serve(self.directory.path(), self.port, &log);
        if let Err(log) = wait_until_ready(&mut self.process, &log) {
            panic!(
                "failed to restart postgres:
{log}"
            );
        }
    }

    /// Creates an empty database and returns its URL.
    pub async fn create_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let mut connection =
            PgConnection::connect(&self.url("postgres")).await.expect("failed to connect to test server");
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE test_{number}")))
            .execute(&mut connection)
            .await
            .expect("failed to create database");
        connection.close().await.expect("failed to close connection");
        self.url(&format!("test_{number}"))
    }

    /// Runs SQL about the database of a URL from another database. `{}` in the SQL stands for the database name.
    pub async fn execute_on(&self, url: &str, sql: &str) {
        let name = url.rsplit('/').next().expect("missing name");
        let mut connection =
            PgConnection::connect(&self.url("postgres")).await.expect("failed to connect to test server");
        sqlx::raw_sql(AssertSqlSafe(sql.replace("{}", name))).execute(&mut connection).await.expect(sql);
        connection.close().await.expect("failed to close connection");
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://strata@127.0.0.1:{}/{database}", self.port)
    }

    fn start() -> Postgres {
        let programs = programs();
        let account = account();
        let directory = tempfile::Builder::new()
            .prefix("strata-postgres-")
            .tempdir()
            .expect("failed to create temporary directory");
        if let Some(account) = account {
            chown(directory.path(), Some(account.user), Some(account.group)).expect("failed to change directory owner");
        }
        let data = directory.path().join("data");

        let output = command(&programs.join("initdb"), directory.path(), account)
            .args(["--auth=trust", "--username=strata", "--encoding=UTF8"])
            .args(["--locale=C", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .expect("failed to run initdb");
        assert!(
            output.status.success(),
            "initdb failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );

        // Another program can take the port between the search for a free port and the start of the server.
        for attempt in 1.. {
            let port = free_port();
            let log = directory.path().join(format!("log-{attempt}"));
            let mut process = Postgres::serve(directory.path(), port, &log);
            match wait_until_ready(&mut process, &log) {
                Ok(()) => {
                    return Postgres { process, port, databases: AtomicU32::new(0), directory };
                }
                Err(log) if attempt == 5 => panic!(
                    "failed to start postgres:
{log}"
                ),
                Err(_) => {}
            }
        }
        unreachable!("the last attempt panics");
    }

    fn serve(directory: &Path, port: u16, log: &Path) -> Child {
        command(&programs().join("postgres"), directory, account())
            .arg("-D")
            .arg(directory.join("data"))
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories="])
            .args(["-c", "fsync=off", "-c", "max_connections=200"])
            .stderr(File::create(log).expect("failed to create server log"))
            .spawn()
            .expect("failed to start postgres")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// A non-root account, because the server refuses to run as root.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

/// Returns the account to run the server: the current one or, for root, `postgres` or `nobody`.
fn account() -> Option<Account> {
    use std::os::unix::fs::MetadataExt;
    // A new file belongs to the current account.
    let own = tempfile::tempfile().and_then(|file| file.metadata()).expect("failed to create temporary file");
    if own.uid() != 0 {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").expect("failed to read accounts");
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|wanted| {
            accounts.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                match fields[..] {
                    [name, _, user, group, ..] if name == wanted => {
                        Some(Account { user: user.parse().ok()?, group: group.parse().ok()? })
                    }
                    _ => None,
                }
            })
        })
        .map(Some)
        .expect("missing account `postgres` or `nobody` for the server")
}

fn command(program: &Path, directory: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(account) = account {
        command.uid(account.user).gid(account.group);
    }
    command
}

/// Returns the directory of `initdb` and `postgres`.
fn programs() -> PathBuf {
    let is_there = |directory: &PathBuf| directory.join("initdb").is_file() && directory.join("postgres").is_file();
    if let Some(directory) = std::env::var_os("STRATA_TEST_POSTGRES_BIN") {
        let directory = PathBuf::from(directory);
        assert!(
            is_there(&directory),
            "STRATA_TEST_POSTGRES_BIN is {directory:?}, which does not contain initdb and postgres"
        );
        return directory;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut debian: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    debian.sort();
    std::env::split_paths(&path)
        .chain(debian)
        .find(is_there)
        // The programs look for their data relative to their real path.
        .and_then(|directory| fs::canonicalize(directory.join("initdb")).ok())
        .and_then(|initdb| Some(initdb.parent()?.to_owned()))
        .expect("the PostgreSQL server (initdb, postgres) is not installed: run ./tests/run, which installs it")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("failed to find free port")
        .port()
}

/// Waits until the log reports that the server is ready. If the server ends or times out, returns the log.
fn wait_until_ready(process: &mut Child, log: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let written = fs::read_to_string(log).unwrap_or_else(|error: io::Error| error.to_string());
        if written.contains("database system is ready to accept connections") {
            return Ok(());
        }
        let ended = process.try_wait().expect("failed to poll postgres").is_some();
        if ended || Instant::now() > deadline {
            stop(process);
            return Err(written);
        }
        sleep(Duration::from_millis(10));
    }
}

/// Stops the server and its child processes with the signal for an immediate shutdown.
fn stop(process: &mut Child) {
    if let Ok(None) = process.try_wait() {
        // The shell's built-in `kill` exists even if the program does not.
        let signalled = Command::new("sh").args(["-c", &format!("kill -QUIT {}", process.id())]).status();
        if !signalled.is_ok_and(|status| status.success()) {
            let _ = process.kill();
        }
        let _ = process.wait();
    }
}

//! A PostgreSQL server of the tests' own: on loopback, on a free port, in a temporary directory, gone when
//! the last test that uses it is over.
//!
//! The programs `initdb` and `postgres` are looked for in `STRATA_TEST_POSTGRES_BIN` (a directory), in
//! `PATH`, and where Debian puts them. `tests/run` installs them; where they are missing the tests fail.

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
    // Dropped last: the directory goes after the server.
    directory: TempDir,
}

impl Postgres {
    /// The server that all tests running at the moment share.
    pub fn shared() -> Arc<Postgres> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        // A test that failed to start a server must not keep others from trying.
        let mut shared = SHARED.lock().unwrap_or_else(|poison| poison.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Postgres::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// A server of one test's own, which may stop it.
    pub fn own() -> Postgres {
        Postgres::start()
    }

    /// Ends the server as a crash would, with all its connections.
    pub fn crash(&mut self) {
        stop(&mut self.process);
    }

    /// Lets the server answer nobody, without ending a connection, until [`Postgres::thaw`].
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    /// Ends [`Postgres::freeze`].
    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    /// The server and the processes of its connections, which are its children.
    fn signal_all(&self, signal: &str) {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("the server's children");
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id} {children}")]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// Starts the server again, on the same port and data.
    pub fn restart(&mut self) {
        let log = self.directory.path().join("log-again");
        self.process = Postgres::serve(self.directory.path(), self.port, &log);
        if let Err(log) = wait_until_ready(&mut self.process, &log) {
            panic!("postgres does not start again:\n{log}");
        }
    }

    /// Makes a new, empty database and returns its URL.
    pub async fn create_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let mut connection =
            PgConnection::connect(&self.url("postgres")).await.expect("connecting to the tests' server");
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE test_{number}")))
            .execute(&mut connection)
            .await
            .expect("creating a database");
        connection.close().await.expect("closing the connection");
        self.url(&format!("test_{number}"))
    }

    /// Runs SQL about the database of a URL, whose name stands in it as `{}`, from another one.
    pub async fn execute_on(&self, url: &str, sql: &str) {
        let name = url.rsplit('/').next().expect("a name");
        let mut connection =
            PgConnection::connect(&self.url("postgres")).await.expect("connecting to the tests' server");
        sqlx::raw_sql(AssertSqlSafe(sql.replace("{}", name))).execute(&mut connection).await.expect(sql);
        connection.close().await.expect("closing the connection");
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://strata@127.0.0.1:{}/{database}", self.port)
    }

    fn start() -> Postgres {
        let programs = programs();
        let account = account();
        let directory =
            tempfile::Builder::new().prefix("strata-postgres-").tempdir().expect("making a temporary directory");
        if let Some(account) = account {
            chown(directory.path(), Some(account.user), Some(account.group))
                .expect("giving the directory to the server's account");
        }
        let data = directory.path().join("data");

        let output = command(&programs.join("initdb"), directory.path(), account)
            .args(["--auth=trust", "--username=strata", "--encoding=UTF8"])
            .args(["--locale=C", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .expect("running initdb");
        assert!(
            output.status.success(),
            "initdb failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );

        // Between finding a port free and listening on it, another program may take it.
        for attempt in 1.. {
            let port = free_port();
            let log = directory.path().join(format!("log-{attempt}"));
            let mut process = Postgres::serve(directory.path(), port, &log);
            match wait_until_ready(&mut process, &log) {
                Ok(()) => {
                    return Postgres { process, port, databases: AtomicU32::new(0), directory };
                }
                Err(log) if attempt == 5 => panic!("postgres does not start:\n{log}"),
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
            .stderr(File::create(log).expect("making the server's log"))
            .spawn()
            .expect("starting postgres")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// An account that is not root's, under which the server refuses to run.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

/// The account to run the server under: the present one, or, for root, that of `postgres` or `nobody`.
fn account() -> Option<Account> {
    use std::os::unix::fs::MetadataExt;
    // A new file belongs to whoever makes it.
    let own = tempfile::tempfile().and_then(|file| file.metadata()).expect("making a temporary file");
    if own.uid() != 0 {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").expect("reading the accounts");
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
        .expect("an account named postgres or nobody, to run the server under")
}

fn command(program: &Path, directory: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(account) = account {
        command.uid(account.user).gid(account.group);
    }
    command
}

/// The directory of `initdb` and `postgres`.
fn programs() -> PathBuf {
    let is_there = |directory: &PathBuf| directory.join("initdb").is_file() && directory.join("postgres").is_file();
    if let Some(directory) = std::env::var_os("STRATA_TEST_POSTGRES_BIN") {
        let directory = PathBuf::from(directory);
        assert!(
            is_there(&directory),
            "STRATA_TEST_POSTGRES_BIN names {directory:?}, where initdb and postgres are not"
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
        // The programs look for their data beside where they really are.
        .and_then(|directory| fs::canonicalize(directory.join("initdb")).ok())
        .and_then(|initdb| Some(initdb.parent()?.to_owned()))
        .expect("the PostgreSQL server (initdb, postgres) is not installed: run ./tests/run, which installs it")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("finding a free port").port()
}

/// Waits for the server's word in its log; if the server ends before or never gives it, returns the log.
fn wait_until_ready(process: &mut Child, log: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let written = fs::read_to_string(log).unwrap_or_else(|error: io::Error| error.to_string());
        if written.contains("database system is ready to accept connections") {
            return Ok(());
        }
        let ended = process.try_wait().expect("asking after postgres").is_some();
        if ended || Instant::now() > deadline {
            stop(process);
            return Err(written);
        }
        sleep(Duration::from_millis(10));
    }
}

/// Ends the server with the signal for an immediate shutdown, which takes its children with it.
fn stop(process: &mut Child) {
    if let Ok(None) = process.try_wait() {
        // The shell's own `kill` is there even where the program is not.
        let signalled = Command::new("sh").args(["-c", &format!("kill -QUIT {}", process.id())]).status();
        if !signalled.is_ok_and(|status| status.success()) {
            let _ = process.kill();
        }
        let _ = process.wait();
    }
}

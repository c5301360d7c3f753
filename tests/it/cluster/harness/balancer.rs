//! HAProxy, configured as docs/guides/cluster.md shows.

use std::fs::File;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::page::GuideConfig;

/// A running load balancer, which ends when the value is dropped.
pub struct Balancer {
    process: Child,
    address: String,
    _directory: TempDir,
}

impl Balancer {
    pub fn start(page: &GuideConfig) -> Balancer {
        let address = format!("{}2:8000", page.network);
        let directory = tempfile::Builder::new().prefix("strata-haproxy-").tempdir().expect("a temporary directory");
        let file = directory.path().join("haproxy.cfg");
        std::fs::write(&file, page.haproxy()).expect("written");
        let checked = Command::new(program()).arg("-c").arg("-f").arg(&file).stdin(Stdio::null()).output();
        let checked = checked.expect("haproxy runs");
        let output = [checked.stdout, checked.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        // The configuration in the documentation must cause no warnings.
        assert!(checked.status.success() && !output.contains("WARNING"), "{output}");
        let log = directory.path().join("log");
        let errors = File::create(&log).expect("the log");
        let mut command = Command::new(program());
        command.arg("-db").arg("-f").arg(&file).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut process = command.spawn().expect("haproxy runs");
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&address).is_err() {
            let ended = process.try_wait().expect("failed to query haproxy").is_some();
            if ended || Instant::now() > deadline {
                let _ = process.kill();
                panic!("haproxy does not start:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Balancer { process, address, _directory: directory }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Debian installs haproxy in a directory that is not on the `PATH` of users.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    directories
        .map(|directory| directory.join("haproxy"))
        .find(|program| program.is_file())
        .expect("haproxy is not installed: run ./tests/run, which installs it")
}

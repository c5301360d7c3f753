//! SeaweedFS as the S3 server of a service: its four parts in one process, with one bucket.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use strata_testing::scripts::tool;
use tempfile::TempDir;

use super::page::block;

const KEYS: &str = r#"{"identities":[{"name":"strata","credentials":[{"accessKey":"key","secretKey":"secret"}],
 "actions":["Admin","Read","Write","List","Tagging"]}]}"#;

/// Where a server listens: at this address, on ports of its own. Its parts also talk by sockets in `/tmp`, whose names
/// hold the ports and nothing else.
#[derive(Clone)]
struct Place {
    address: String,
    first: u16,
}

impl Place {
    /// `number` tells services apart. All ports, and those 10,000 above, are below those that clients get.
    fn new(address: &str, number: u32) -> Place {
        let first = 10_000 + 10 * u16::try_from(number % 1_200).expect("below");
        Place { address: address.to_owned(), first }
    }

    /// Of master, volumes, files and S3.
    fn ports(&self) -> [u16; 4] {
        [self.first, self.first + 1, self.first + 2, self.first + 3]
    }

    fn s3(&self) -> u16 {
        self.first + 3
    }
}

/// A running server, ended when dropped.
pub struct ObjectServer {
    process: Child,
    place: Place,
    // Dropped last: the directory goes after the server.
    directory: TempDir,
}

impl ObjectServer {
    /// At this address, with the bucket that docs/guides/cluster.md names. `number` tells the services of a machine
    /// apart.
    pub fn start(address: &str, number: u32) -> ObjectServer {
        let place = Place::new(address, number);
        let directory = tempfile::Builder::new().prefix("strata-weed-").tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("keys.json"), KEYS).expect("written");
        std::fs::create_dir(directory.path().join("data")).expect("made");
        let process = serve(&place, &directory);
        let mut server = ObjectServer { process, place, directory };
        server.until_ready();
        let made = ask(&server.place, "POST", &format!("/buckets/{}/", bucket()), "");
        assert!(made.starts_with("HTTP/1.1 201"), "{made}");
        server
    }

    /// The environment of a strata that keeps its files there.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("STRATA_STORE__ENDPOINT", format!("http://{}:{}", self.place.address, self.place.s3())),
            ("STRATA_STORE__ACCESS_KEY_ID", "key".to_owned()),
            ("STRATA_STORE__SECRET_ACCESS_KEY", "secret".to_owned()),
            ("STRATA_STORE__ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server is killed");
        self.process.wait().expect("the server has ended");
    }

    /// Starts it again, at the same address and with the same objects.
    pub fn restart(&mut self) {
        self.process = serve(&self.place, &self.directory);
        self.until_ready();
    }

    /// Waits until objects can be written.
    fn until_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            // A file of the file server lies in a volume, too.
            let written = ask(&self.place, "PUT", "/ready", "content");
            if written.starts_with("HTTP/1.1 20") && TcpStream::connect((&*self.place.address, self.place.s3())).is_ok()
            {
                return;
            }
            let ended = self.process.try_wait().expect("asking after weed").is_some();
            if ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                panic!("weed does not start ({written}):\n{log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // It was not given the time to remove its sockets.
        let ports = self.place.ports();
        let own = |name: &str| {
            let name = name.strip_prefix("seaweedfs-").and_then(|name| name.strip_suffix(".sock"));
            let port = name.and_then(|name| name.rsplit('-').next()?.parse::<u16>().ok());
            port.is_some_and(|port| ports.contains(&port) || ports.contains(&port.wrapping_sub(10_000)))
        };
        for entry in std::fs::read_dir("/tmp").into_iter().flatten().flatten() {
            if own(&entry.file_name().to_string_lossy()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The bucket of the page.
fn bucket() -> String {
    let configuration = block("strata");
    let bucket = configuration.split_once("s3://").and_then(|(_, rest)| rest.split_once('/'));
    bucket.expect("a bucket").0.to_owned()
}

fn serve(place: &Place, directory: &TempDir) -> Child {
    let log = File::options().append(true).create(true).open(directory.path().join("log")).expect("the log");
    let mut command = tool("weed");
    command.arg("server").arg("-filer").arg("-s3");
    command.arg(format!("-dir={}", directory.path().join("data").display()));
    command.args([&format!("-ip={}", place.address), &format!("-ip.bind={}", place.address)]);
    for (part, port) in ["master", "volume", "filer", "s3"].iter().zip(place.ports()) {
        command.arg(format!("-{part}.port={port}"));
    }
    command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
    command.arg(format!("-s3.config={}", directory.path().join("keys.json").display()));
    // It would tell its makers of itself, over the network.
    command.arg("-master.telemetry=false");
    // One master need not wait long for others.
    command.args(["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]);
    // Small volumes, made when they are needed.
    command.args(["-master.volumeSizeLimitMB=64", "-volume.max=40", "-volume.minFreeSpace=1MiB"]);
    command.current_dir(directory.path()).env("HOME", directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("starting weed")
}

/// A request to the server of files; the beginning of what is answered, if anything.
fn ask(place: &Place, method: &str, path: &str, body: &str) -> String {
    let (address, [.., port, _]) = (&*place.address, place.ports());
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((address, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        let mut answer = vec![0; 1 << 10];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    asked().unwrap_or_default()
}

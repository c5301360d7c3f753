//! SeaweedFS as the S3 server of a cluster: its four servers in one process, with one bucket.

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

/// The address and the first port of a server. The ports must be unique on the machine, because the names of its
/// sockets in `/tmp` contain only the ports.
#[derive(Clone)]
struct ListenAddress {
    address: String,
    first_port: u16,
}

impl ListenAddress {
    /// `number` distinguishes clusters. All ports, and the gRPC ports 10,000 above, are below the ephemeral ports.
    fn new(address: &str, number: u32) -> ListenAddress {
        let first_port = 10_000 + 10 * u16::try_from(number % 1_200).expect("below");
        ListenAddress { address: address.to_owned(), first_port }
    }

    /// The ports of master, volumes, filer and S3.
    fn ports(&self) -> [u16; 4] {
        [self.first_port, self.first_port + 1, self.first_port + 2, self.first_port + 3]
    }

    fn s3(&self) -> u16 {
        self.first_port + 3
    }
}

/// A running server, which ends when the value is dropped.
pub struct ObjectServer {
    process: Child,
    place: ListenAddress,
    // The last field, so that the directory is removed after the server has ended.
    directory: TempDir,
}

impl ObjectServer {
    /// Starts a server with the bucket in docs/guides/cluster.md. `number` distinguishes the clusters of a machine.
    pub fn start(address: &str, number: u32) -> ObjectServer {
        let place = ListenAddress::new(address, number);
        let directory = tempfile::Builder::new().prefix("strata-weed-").tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("keys.json"), KEYS).expect("written");
        std::fs::create_dir(directory.path().join("data")).expect("directory is created");
        let process = serve(&place, &directory);
        let mut server = ObjectServer { process, place, directory };
        server.until_ready();
        let created = send_filer_request(&server.place, "POST", &format!("/buckets/{}/", bucket()), "");
        assert!(created.starts_with("HTTP/1.1 201"), "{created}");
        server
    }

    /// Returns the environment variables of a node that uses this store.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("STRATA_STORE__ENDPOINT", format!("http://{}:{}", self.place.address, self.place.s3())),
            ("STRATA_STORE__ACCESS_KEY_ID", "key".to_owned()),
            ("STRATA_STORE__SECRET_ACCESS_KEY", "secret".to_owned()),
            ("STRATA_STORE__ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server is killed");
        self.process.wait().expect("the server has ended");
    }

    /// Starts the server again, with the same address and objects.
    pub fn restart(&mut self) {
        self.process = serve(&self.place, &self.directory);
        self.until_ready();
    }

    /// Waits until objects can be written.
    fn until_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            // A file of the filer is stored in a volume, too.
            let written = send_filer_request(&self.place, "PUT", "/ready", "content");
            if written.starts_with("HTTP/1.1 20") && TcpStream::connect((&*self.place.address, self.place.s3())).is_ok()
            {
                return;
            }
            let ended = self.process.try_wait().expect("failed to query weed").is_some();
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
        // A killed server leaves its sockets.
        let ports = self.place.ports();
        let is_own_socket = |name: &str| {
            let name = name.strip_prefix("seaweedfs-").and_then(|name| name.strip_suffix(".sock"));
            let port = name.and_then(|name| name.rsplit('-').next()?.parse::<u16>().ok());
            port.is_some_and(|port| ports.contains(&port) || ports.contains(&port.wrapping_sub(10_000)))
        };
        for entry in std::fs::read_dir("/tmp").into_iter().flatten().flatten() {
            if is_own_socket(&entry.file_name().to_string_lossy()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns the bucket in docs/guides/cluster.md.
fn bucket() -> String {
    let configuration = block("strata");
    let bucket = configuration.split_once("s3://").and_then(|(_, rest)| rest.split_once('/'));
    bucket.expect("a bucket").0.to_owned()
}

fn serve(place: &ListenAddress, directory: &TempDir) -> Child {
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
    // No telemetry over the network.
    command.arg("-master.telemetry=false");
    // A single master does not need to wait for others.
    command.args(["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]);
    // Small volumes, which are created on demand.
    command.args(["-master.volumeSizeLimitMB=64", "-volume.max=40", "-volume.minFreeSpace=1MiB"]);
    command.current_dir(directory.path()).env("HOME", directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("failed to start weed")
}

/// Sends a request to the filer, and returns the beginning of the response, or an empty string.
fn send_filer_request(place: &ListenAddress, method: &str, path: &str, body: &str) -> String {
    let address = &*place.address;
    let [.., port, _] = place.ports();
    let send = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((address, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        let mut answer = vec![0; 1 << 10];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    send().unwrap_or_default()
}

//! The binary as a server in a child process, with the datasets of the benchmark.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use strata_config::Config;

use crate::SoakArguments;
use crate::support::binary::{OWNER, ServerProcess, add_user, import, strata};
use crate::support::entities::Generator;

/// A running server with its datasets.
pub struct SoakServer {
    process: ServerProcess,
    /// The address on which the server listens.
    pub address: SocketAddr,
    /// The URL path of the catalogue's version.
    pub catalogue: String,
    /// The URL path of the measurements' version.
    pub measurements: String,
    /// The URL path of a version whose profile has the maximum size.
    pub wide: String,
    directory: PathBuf,
}

impl SoakServer {
    /// Creates the datasets in a new directory and starts the server.
    pub fn start(directory: &Path, arguments: &SoakArguments, name_server: Option<SocketAddr>) -> SoakServer {
        if directory.exists() {
            std::fs::remove_dir_all(directory).expect("failed to remove the data of the last run");
        }
        std::fs::create_dir_all(directory).expect("failed to create a directory");
        eprintln!("importing twice {} entities", arguments.entities);
        add_user(directory, OWNER, &[]);
        let generator = Generator::new();
        let catalogue = import(directory, "Catalogue", arguments.entities, |position, line| {
            generator.entity(position).write(line);
        });
        let measurements = import(directory, "Measurements", arguments.entities, |position, line| {
            let station = position * 7_919 % 401;
            let value = (position * 104_729 % 20_011) as f64 / 100.0;
            let _ = write!(
                line,
                "{{\"id\":{position},\"station\":\"station {station}\",\"value\":{value},\"unit\":\"mm\",\"valid\":{}}}",
                position % 13 != 0
            );
        });
        let wide = import(directory, "Wide", 8, |position, line| {
            let field = |field| format!("\"field_number_{field}\":\"{position}-{field}-{}\"", "x".repeat(30));
            let _ = write!(line, "{{{}}}", (0..10_000).map(field).collect::<Vec<_>>().join(","));
        });
        let mut command = strata(directory);
        command.env("STRATA_LOG__LEVEL", "warn");
        // A few addresses make all requests, so rate limits are disabled.
        command.env("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0").env("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0");
        // Sources on the loopback interface are allowed, and bodies may be large enough to fill the disk.
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
        let process = ServerProcess::serve(command);
        SoakServer { address: process.address, process, catalogue, measurements, wide, directory: directory.to_owned() }
    }

    /// Adds a user while the server runs and returns the user's token.
    pub fn add_user(&self, email: &str) -> String {
        let printed = add_user(&self.directory, email, &["--token", "soak"]);
        printed.lines().last().expect("a token").to_owned()
    }

    /// Returns whether the server was built without optimization, which makes all requests slow.
    pub fn is_debug(&self) -> bool {
        cfg!(debug_assertions)
    }

    /// Returns the server's resident memory in bytes, if the system reports it.
    pub fn resident_bytes(&self) -> Option<u64> {
        self.process.resident_bytes()
    }
}

//! The committed instruction counts, and the environment that they were measured in.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The contents of the file with the committed counts.
#[derive(Serialize, Deserialize)]
pub struct CommittedCounts {
    /// The environment in which the counts are valid.
    pub built: BuildEnvironment,
    /// The instruction count of each path, by name.
    pub instructions: BTreeMap<String, u64>,
}

/// The properties of an environment that influence the counts.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildEnvironment {
    pub toolchain: String,
    pub target: String,
    /// `release` or `debug`.
    pub profile: String,
    /// The valgrind release, which determines the simulated processor.
    pub valgrind: String,
}

impl BuildEnvironment {
    /// Returns the environment of this process.
    pub fn current(valgrind: String) -> BuildEnvironment {
        let output = Command::new("rustc").arg("-vV").current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let line = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value.unwrap_or("unknown").to_owned()
        };
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        BuildEnvironment { toolchain: line("release"), target: line("host"), profile: profile.to_owned(), valgrind }
    }
}

impl std::fmt::Display for BuildEnvironment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rustc {}, {}, {}, {}", self.toolchain, self.target, self.profile, self.valgrind)
    }
}

impl CommittedCounts {
    /// Reads the counts from a file; `None` if there is no file.
    pub fn read(path: &Path) -> Option<CommittedCounts> {
        let text = std::fs::read_to_string(path).ok()?;
        Some(toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) {
        let mut text = "# Instructions of one run of each hot path.
# `cargo bench --profile dist --bench instructions -- --write` writes this file.\n\n"
            .to_owned();
        let _ = write!(text, "{}", toml::to_string(self).expect("failed to serialize the counts"));
        std::fs::write(path, text).expect("failed to write the file");
    }
}

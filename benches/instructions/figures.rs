//! The committed figures: how many instructions each path took, and on what.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The file of figures.
#[derive(Serialize, Deserialize)]
pub struct Figures {
    /// What they hold for.
    pub built: Built,
    /// Instructions of each path, by its name.
    pub instructions: BTreeMap<String, u64>,
}

/// What decides how many instructions there are, besides the code.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The release of the compiler.
    pub toolchain: String,
    /// The target.
    pub target: String,
    /// `release` or `debug`.
    pub profile: String,
    /// The release of valgrind, which says what the processor can do.
    pub valgrind: String,
}

impl Built {
    /// Of this benchmark.
    pub fn here(valgrind: String) -> Built {
        let output = Command::new("rustc").arg("-vV").current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let line = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value.unwrap_or("unknown").to_owned()
        };
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Built { toolchain: line("release"), target: line("host"), profile: profile.to_owned(), valgrind }
    }
}

impl std::fmt::Display for Built {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rustc {}, {}, {}, {}", self.toolchain, self.target, self.profile, self.valgrind)
    }
}

impl Figures {
    /// Those of the file, if there is one.
    pub fn read(path: &Path) -> Option<Figures> {
        let text = std::fs::read_to_string(path).ok()?;
        Some(toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) {
        let mut text = "# Instructions of one run of each hot path.
# `cargo bench --profile dist --bench instructions -- --write` writes this file.\n\n"
            .to_owned();
        let _ = write!(text, "{}", toml::to_string(self).expect("figures are TOML"));
        std::fs::write(path, text).expect("the file can be written");
    }
}

//! A list of the integration tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::ROOT;

/// The crates whose tests are in the folder of their name in `tests/`.
const CRATES: [&str; 15] = [
    "catalog", "checks", "cluster", "config", "diff", "encode", "format", "http", "ingest", "json", "limits", "query",
    "runtime", "service", "types",
];

/// Returns the module path of a test as `cargo test` prints it. For tests of a crate, it begins with the crate's name.
fn module_of(prefix: Option<&str>, root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).expect("path outside root").with_extension("");
    let names = relative.iter().map(|name| name.to_string_lossy()).filter(|name| name != "mod" && name != "main");
    prefix.map(Into::into).into_iter().chain(names).collect::<Vec<_>>().join("::")
}

/// Returns all functions of the integration tests, including tests: `module::name` for `tests/it`, and
/// `crate::module::name` for `tests/<crate>`.
pub fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    tests_below(None, &Path::new(ROOT).join("tests/it"), &mut tests);
    for crate_name in CRATES {
        tests_below(Some(crate_name), &Path::new(ROOT).join("tests").join(crate_name), &mut tests);
    }
    tests
}

fn tests_below(prefix: Option<&str>, root: &Path, tests: &mut BTreeSet<String>) {
    let mut files = Vec::new();
    sources(root, &mut files);
    for file in files {
        let module = module_of(prefix, root, &file);
        let text = fs::read_to_string(&file).expect("failed to read source");
        for line in text.lines().map(str::trim_start) {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            if let Some(rest) = line.strip_prefix("fn ") {
                let name: String = rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
                let names = [module.as_str(), &name];
                tests.insert(names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("::"));
            }
        }
    }
}

/// Collects the Rust files below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("failed to create directory") {
        let path = entry.expect("failed to read entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

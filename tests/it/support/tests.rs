//! The integration tests that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::pages::ROOT;

/// The path of a test's module as `cargo test` prints it, without `mod`: `catalog/states.rs` is `catalog::states`.
fn module_of(root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).expect("below the root").with_extension("");
    let names: Vec<_> = relative.iter().map(|name| name.to_string_lossy()).filter(|name| name != "mod").collect();
    names.join("::")
}

/// Every function below `tests/it`, tests among them, as `module::name`.
pub fn tests() -> BTreeSet<String> {
    let root = &Path::new(ROOT).join("tests/it");
    let mut files = Vec::new();
    sources(root, &mut files);
    let mut tests = BTreeSet::new();
    for file in files {
        let module = module_of(root, &file);
        let text = fs::read_to_string(&file).expect("a source");
        for line in text.lines().map(str::trim_start) {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            if let Some(rest) = line.strip_prefix("fn ") {
                let name: String = rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
                tests.insert(format!("{module}::{name}"));
            }
        }
    }
    tests
}

/// The files of Rust below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

//! The promises of `docs/security.md`: each names the tests that hold it, and those exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

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

#[test]
fn every_promise_names_a_test_that_exists() {
    let tests = tests();
    let page = fs::read_to_string(Path::new(ROOT).join("docs/security.md")).expect("the page");
    let mut promises = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Promise")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, whom, named] = cells[..] else { panic!("a promise has three cells: {row}") };
        assert!(["client", "owner", "operator", "everybody"].contains(&whom), "{promise}: to whom is {whom:?}?");
        let names: Vec<_> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{promise}: no test is named");
        for name in names {
            assert!(tests.contains(name), "{promise}: there is no test {name} below tests/it");
        }
        promises += 1;
    }
    assert!(promises >= 40, "only {promises} promises were read: has the form of the page changed?");
}

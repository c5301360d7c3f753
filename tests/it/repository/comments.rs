//! Conventions of the source files that no tool checks.

use std::fs;
use std::path::{Path, PathBuf};

use strata_testing::pages::ROOT;

fn source_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The formatter does not wrap comments.
#[test]
fn comments_are_as_short_as_code() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches"] {
        source_files(&Path::new(ROOT).join(folder), &mut files);
    }
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for (index, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//") && !line.contains("://") && !line.contains(" | ");
            if is_comment && line.chars().count() > 120 {
                long.push(format!("{}:{}", file.display(), index + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 120 characters: {long:#?}");
}

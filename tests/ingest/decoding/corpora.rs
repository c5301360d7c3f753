//! Files that pyarrow, pandas, fastparquet and DuckDB write, and tables as people write them, give the values that
//! other readers find, or are refused with a reason (`tests/tools/corpora.py`, with the packages that `tests/run`
//! installs).

use std::fmt::Write as _;
use std::path::Path;

use strata_ingest::{DecodeOptions, SourceError, SourceInput, open};
use strata_testing::scripts::{tool, tools_file};

/// The outcome of each file.
const OUTCOMES: &str = include_str!("corpora.txt");

/// The entities of a file, its warnings, and why it was refused.
fn decode_file(path: &Path) -> String {
    let mut found = String::new();
    let mut decode = || -> Result<(), SourceError> {
        let (mut decoder, _) = open(SourceInput::open_file(path)?, &DecodeOptions::default())?;
        let mut entity = Vec::new();
        while decoder.next(&mut entity)? {
            writeln!(found, "{}", std::str::from_utf8(&entity).expect("UTF-8")).expect("a string takes all");
            entity.clear();
        }
        for warning in decoder.warnings() {
            writeln!(found, "W {warning}").expect("a string takes all");
        }
        Ok(())
    };
    if let Err(error) = decode() {
        writeln!(found, "! {error}").expect("a string takes all");
    }
    found
}

/// What the script prints.
fn run(command: &str, directory: &Path) -> String {
    let output = tool("python").arg(tools_file("corpora.py")).arg(command).arg(directory).output();
    let output = output.expect("the script runs");
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    printed.into_owned()
}

#[test]
fn files_of_other_writers_load_or_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    run("write", directory.path());
    let files: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").collect();
    for file in files {
        let path = file.expect("a file").path();
        let found = decode_file(&path);
        std::fs::write(format!("{}.found", path.display()), found).expect("written");
    }
    assert_eq!(run("check", directory.path()), OUTCOMES);
}
